use std::fmt;

use palisade::{Chance, ClaimId};
use parking_lot::Mutex;

/// Numbers that follow from a seed, the same on every machine and for ever: splitmix64.
///
/// Not a crate's generator, because a failing seed must mean the same after an update.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    /// One of many independent rows of numbers that follow from `seed`.
    pub(super) fn new(seed: u64, row: u64) -> Self {
        let mut dice = Self(seed ^ row.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        dice.0 = dice.next();
        dice
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, but not including, `end`; 0 if that is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// From `first` up to and including `last`.
    pub(super) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// Yes, so many times of a hundred.
    pub(super) fn percent(&mut self, yes: u64) -> bool {
        self.below(100) < yes
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// From 0 up to, but not including, 1.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The chance of one simulated client.
pub(super) struct ClientDice(Mutex<Dice>);

impl ClientDice {
    pub(super) fn new(dice: Dice) -> Self {
        Self(Mutex::new(dice))
    }
}

impl fmt::Debug for ClientDice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientDice")
    }
}

impl Chance for ClientDice {
    fn claim_id(&self) -> ClaimId {
        let mut dice = self.0.lock();
        let bits = (u128::from(dice.next()) << 64) | u128::from(dice.next());
        ClaimId::from_bytes(bits.to_be_bytes())
    }

    fn part(&self) -> f64 {
        self.0.lock().part()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_fixed_for_ever_and_apart() {
        let mut dice = Dice::new(7, 1);
        assert_eq!([dice.below(1000), dice.below(1000), dice.below(1000)], [426, 332, 89]);
        assert_ne!(Dice::new(7, 1).next(), Dice::new(7, 2).next());
        assert_ne!(Dice::new(7, 1).next(), Dice::new(8, 1).next());
    }

    #[test]
    fn parts_lie_between_zero_and_one() {
        let dice = ClientDice::new(Dice::new(1, 1));
        assert!((0..1000).map(|_| dice.part()).all(|part| (0.0..1.0).contains(&part)));
    }
}
