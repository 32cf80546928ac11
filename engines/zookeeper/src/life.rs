use std::collections::VecDeque;
use std::time::Duration;

use palisade_core::BootInstant;

/// Until when a session lives at least, as far as can be known.
///
/// A server renews its clients' sessions at the leader every half tick, all at once, and answers pings by itself. So an
/// answer proves nothing about the leader: a server that is cut off from it goes on answering pings. What
/// is known is this: a session is at least two ticks long, a half tick is at most a quarter of it, and messages from
/// a server to its leader stay in order. Hence once something was *agreed upon* that was sent a quarter of the
/// timeout after a request that was answered, the leader has heard of the latter.
#[derive(Debug)]
pub(crate) struct Life {
    timeout: Duration,
    /// The latest moment that the leader counts the session from, at least.
    base: BootInstant,
    /// When requests were sent that were answered, and of which the leader may not have heard.
    touches: VecDeque<BootInstant>,
    /// When the session went on over a new connection, which the leader itself is asked about.
    resumed: Option<BootInstant>,
    /// When the latest request was sent that was answered, and the latest that a majority agreed to.
    latest: BootInstant,
    agreed: BootInstant,
}

impl Life {
    const KEPT: usize = 64;

    /// A session that began with a request sent at `sent`: it was agreed upon.
    pub(crate) fn new(timeout: Duration, sent: BootInstant) -> Self {
        let (latest, agreed) = (sent, sent);
        Self { timeout, base: sent, touches: VecDeque::new(), resumed: None, latest, agreed }
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn until(&self) -> BootInstant {
        self.base + self.timeout
    }

    /// Whether something was answered, and something agreed upon, that was sent at this moment or later.
    pub(crate) fn heard_since(&self, moment: BootInstant) -> (bool, bool) {
        (self.latest >= moment, self.agreed >= moment)
    }

    /// Notes that the session went on over a new connection, asked for at `sent`.
    pub(crate) fn resumed(&mut self, sent: BootInstant) {
        self.touches.clear();
        self.resumed = Some(sent);
    }

    /// Notes an answer to what was sent at `sent`, and whether a majority had to agree to it.
    pub(crate) fn answered(&mut self, sent: BootInstant, agreed: bool) {
        self.latest = self.latest.max(sent);
        if agreed {
            self.agreed = self.agreed.max(sent);
            // A leader that was replaced gets no majority any more: it was the one and only leader who was asked.
            if let Some(resumed) = self.resumed.take_if(|resumed| *resumed <= sent) {
                self.base = self.base.max(resumed);
            }
            while let Some(touch) = self.touches.front()
                && *touch + self.timeout / 4 <= sent
            {
                self.base = self.base.max(*touch);
                self.touches.pop_front();
            }
        }
        let step = self.timeout / Self::KEPT as u32;
        if self.touches.back().is_none_or(|last| *last + step <= sent) {
            if self.touches.len() == Self::KEPT {
                self.touches.pop_front();
            }
            self.touches.push_back(sent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(16);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos((seconds + 1000) * 1_000_000_000)
    }

    #[test]
    fn pings_alone_prove_nothing() {
        let mut life = Life::new(TIMEOUT, at(0));
        (1..100).for_each(|second| life.answered(at(second), false));
        assert_eq!(life.until(), at(16));
    }

    #[test]
    fn what_is_agreed_upon_proves_what_was_answered_a_while_before() {
        let mut life = Life::new(TIMEOUT, at(0));
        life.answered(at(2), false);
        life.answered(at(5), true);
        assert_eq!(life.until(), at(16), "the leader need not have heard of second 2 yet");
        life.answered(at(6), true);
        assert_eq!(life.until(), at(18));
        life.answered(at(9), true);
        assert_eq!(life.until(), at(21));
    }

    #[test]
    fn an_idle_session_is_known_to_live_from_its_first_agreement_on() {
        let mut life = Life::new(TIMEOUT, at(0));
        (1..500).for_each(|second| life.answered(at(second * 2), false));
        life.answered(at(1000), true);
        assert!(life.until() >= at(1000) + TIMEOUT * 5 / 8);
        assert!(life.until() <= at(996) + TIMEOUT);
    }

    #[test]
    fn a_new_connection_counts_once_something_was_agreed_upon_over_it() {
        let mut life = Life::new(TIMEOUT, at(0));
        life.answered(at(9), false);
        life.resumed(at(10));
        life.answered(at(10), false);
        assert_eq!(life.until(), at(16));
        life.answered(at(11), true);
        assert_eq!(life.until(), at(26));
    }
}
