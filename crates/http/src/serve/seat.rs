//! Something that is counted while it is there.

/// What is to happen when it is gone happens when this is dropped.
pub struct Seat(Option<Box<dyn FnOnce()>>);

impl Seat {
    /// A seat; `left` is called when it is empty again.
    pub fn new(left: impl FnOnce() + 'static) -> Self {
        Self(Some(Box::new(left)))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(left) = self.0.take() {
            left();
        }
    }
}
