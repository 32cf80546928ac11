use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use palisade_core::Token;

/// What is known over one connection of the server's count of tokens. Another server, or one that was restarted, is
/// another connection.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    /// Whether it was made sure that the count is not behind the clock.
    ahead: AtomicBool,
    /// The last token that was seen to be made; 0 for none.
    last: AtomicU64,
    /// Whether bare commands may be used: see `crate::bare`.
    bare: bool,
    /// How many claims are yet to go the long way, because bare commands were of no use the last time.
    pause: AtomicU32,
}

impl Counter {
    /// So many claims go the long way after one for which bare commands were sent in vain: where others count too, or
    /// somebody waits, that is likely to be so for the next one, and costs a request.
    const PAUSE: u32 = 64;

    /// Counts that scripts calculate with: none below, which is a counter that began anew, and none that is not exact.
    const USUAL: std::ops::Range<u64> = 1_000_000_000_000_001..9_000_000_000_000_000;

    pub(crate) fn new(bare: bool) -> Self {
        Self { bare, ..Self::default() }
    }

    pub(crate) fn is_ahead(&self) -> bool {
        self.ahead.load(Ordering::Relaxed)
    }

    /// Notes that a token was made just now; `by_clock` if it was compared with the clock where need be.
    pub(crate) fn made(&self, token: Token, by_clock: bool) {
        self.last.store(token.get(), Ordering::Relaxed);
        if by_clock {
            self.ahead.store(true, Ordering::Relaxed);
        }
    }

    /// The token that the server will make next for a claim with such a floor, if nobody else counts meanwhile, and if
    /// it is worth a try.
    pub(crate) fn next(&self, floor: Token) -> Option<Token> {
        let last = self.last.load(Ordering::Relaxed);
        let next = last + 1;
        if !self.bare || floor.get() != last || !Self::USUAL.contains(&next) {
            return None;
        }
        let paused =
            self.pause.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if paused.is_ok() { None } else { Token::new(next) }
    }

    pub(crate) fn was_in_vain(&self) {
        self.pause.store(Self::PAUSE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).unwrap()
    }

    const NOW: u64 = 1_800_000_000_000_000;

    #[test]
    fn the_next_token_is_known_only_where_nothing_else_decides() {
        let counter = Counter::new(true);
        assert_eq!(counter.next(token(NOW)), None, "nothing was counted yet");
        counter.made(token(NOW), false);
        assert_eq!(counter.next(token(NOW)), Some(token(NOW + 1)));
        assert_eq!(counter.next(token(NOW + 1)), None, "the floor is above");
        assert_eq!(counter.next(token(NOW - 1)), None, "others have counted on");
        counter.made(token(5), true);
        assert_eq!(counter.next(token(5)), None, "a counter that began anew");
        let scripts_only = Counter::new(false);
        scripts_only.made(token(NOW), true);
        assert_eq!(scripts_only.next(token(NOW)), None);
    }

    #[test]
    fn what_was_in_vain_is_not_tried_again_at_once() {
        let counter = Counter::new(true);
        counter.made(token(NOW), true);
        counter.was_in_vain();
        let tries = (0..=Counter::PAUSE).filter(|_| counter.next(token(NOW)).is_some()).count();
        assert_eq!(tries, 1);
    }
}
