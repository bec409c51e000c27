//! Copies of texts that are nearly always short.

/// Copies `from` to the start of `to`, as far as there is room; returns how much. Up to 16 bytes are copied as two
/// words that may overlap, because a call would cost more.
#[inline]
pub fn short(to: &mut [u8], from: &[u8]) -> usize {
    let len = from.len().min(to.len());
    let (to, from) = (&mut to[..len], &from[..len]);
    if len > 16 {
        to.copy_from_slice(from);
    } else if !words::<8>(to, from) && !words::<4>(to, from) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
    }
    len
}

/// The first and the last `N` bytes, if there are that many.
#[inline]
fn words<const N: usize>(to: &mut [u8], from: &[u8]) -> bool {
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else {
        return false;
    };
    if let Some(to) = to.first_chunk_mut::<N>() {
        *to = *first;
    }
    if let Some(to) = to.last_chunk_mut::<N>() {
        *to = *last;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_and_nothing_beyond() {
        let from: [u8; 40] = core::array::from_fn(|n| n as u8 + 1);
        for room in 0..40 {
            for len in 0..=40 {
                let mut to = [0; 40];
                let copied = short(&mut to[..room], &from[..len]);
                assert_eq!(copied, len.min(room));
                assert_eq!(to[..copied], from[..copied]);
                assert!(to[copied..].iter().all(|&byte| byte == 0));
            }
        }
    }
}
