//! Chance, the same for the same seed: a small generator (splitmix64).

/// The source of all chance in one story.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of this seed.
    pub fn new(seed: u64) -> Self {
        let mut dice = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x6D61_696E_7374_6179);
        dice.roll();
        dice
    }

    /// Any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below this one (0 for 0).
    pub fn below(&mut self, most: u64) -> u64 {
        if most == 0 { 0 } else { self.roll() % most }
    }

    /// A number from the first to the last.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True this many times in a thousand.
    pub fn permille(&mut self, times: u64) -> bool {
        self.below(1_000) < times
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// Mostly short, sometimes long: a time in milliseconds up to this.
    pub fn delay_ms(&mut self, most: u64) -> u64 {
        let most = match self.below(4) {
            0 => 1,
            1 | 2 => most / 8,
            _ => most,
        };
        self.below(most + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_story() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed);
            [dice.roll(), dice.below(10), dice.between(3, 5)]
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
        assert!((3..=5).contains(&rolls(9)[2]));
    }
}
