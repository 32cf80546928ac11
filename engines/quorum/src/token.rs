//! The fencing token of a quorum, and why it never falls.
//!
//! # The rule
//!
//! N nodes, N odd, a majority is k = (N + 1) / 2. Each node keeps a counter. A grant to a claim with
//! floor F sets it to a value above both the counter and F, and that value is the node's vote; asked
//! again with a floor that is not below its vote, a grant gets a greater vote. Counters never fall
//! while a node keeps its data.
//!
//! The quorum hands out T only when, among the votes that it holds,
//!
//! 1. k votes are not above T, and
//! 2. k votes are not below T.
//!
//! Clients send the same hint as a floor to all nodes, greater than every token they have seen, and never
//! behind the clock. So a node that is not ahead votes exactly the hint, and the rule is met at once by k equal
//! votes. Otherwise the greatest vote is *written back*: nodes below it are asked
//! again with it as the floor, while the claim holds them.
//!
//! # The argument
//!
//! *Let A be handed T(A), and let B be asked for after that. Then T(B) > T(A).*
//!
//! By 2, a set S of k nodes had counters of at least T(A) when it was handed out. By 1, B's token is not
//! below the votes of a set M of k nodes. Two majorities have a node in common. Its counter was at
//! least T(A) before B asked, hence its vote for B is above T(A), hence so is T(B). Nothing was said
//! about time, TTLs or pauses: it holds for a client that slept for a day.
//!
//! *The same, where B was asked for before A was handed its token, but came in after it.*
//!
//! The node in common was raised to T(A) or more by A *while A held it*. B's vote there was given
//! before A's or after it. After: as above. Before: then B's vote had ended there before A came in,
//! and B counts a vote that it no longer has. That takes more than a wait: B checks that its votes
//! are within their TTL before it counts them, so the node must have ended B's vote early, against
//! the assumption about clocks on which all of Redlock's exclusion rests. Even then the fence of a
//! register stays right: it refuses B's token once it has seen A's.
//!
//! *Without 2* a token could be handed out that one node stores. The next claim's majority may do
//! without that node and be handed a smaller one: `tests/model.rs` shows it.
//!
//! # Nodes that lose their data
//!
//! The argument needs the node in common to remember. One that restarted empty is not counted until
//! the longest TTL has passed. After that its counter may still be behind a token that others had been
//! handed before. What then keeps tokens from falling is the hint: it follows the wall clock, and the
//! node has been silent for the longest TTL, so that every hint from before is behind every hint from
//! after, unless the clocks of two clients differ by about as much. [`Hints::LEAD`] stays below a
//! quarter of it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use palisade_core::Token;

/// What the votes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// This token may be handed out.
    Agreed(Token),
    /// This one must be stored by more nodes first.
    WriteBack(Token),
}

/// Applies the rule above to the votes held; `None` without a majority.
pub(crate) fn choose(votes: &[Token], majority: usize) -> Option<Choice> {
    let mut votes = votes.to_vec();
    votes.sort_unstable();
    let least = *votes.get(majority.checked_sub(1)?)?;
    let stored = votes.iter().filter(|vote| **vote >= least).count();
    if stored >= majority {
        return Some(Choice::Agreed(least));
    }
    votes.last().copied().map(Choice::WriteBack)
}

/// Proposes tokens.
#[derive(Debug)]
pub(crate) struct Hints {
    /// The greatest token seen or proposed.
    last: AtomicU64,
    /// Somebody else counts: where votes differ, only a hint ahead of all of them makes them equal.
    crowded: AtomicBool,
    lead: Duration,
}

impl Hints {
    /// How far hints run ahead of the clock. Nodes may count by their own clocks: a hint that is
    /// behind on arrival makes each of them vote differently.
    pub(crate) const LEAD: Duration = Duration::from_secs(1);

    pub(crate) fn new(longest_ttl: Duration) -> Self {
        Self {
            last: AtomicU64::new(0),
            crowded: AtomicBool::new(false),
            lead: Self::LEAD.min(longest_ttl / 4),
        }
    }

    /// A token greater than all seen and proposed so far.
    ///
    /// Whoever is alone counts on for a while: the nodes do so anyway, and need not be told.
    pub(crate) fn next(&self) -> u64 {
        let crowded = self.crowded.swap(false, Ordering::AcqRel);
        self.propose(crowded)
    }

    /// The same, and ahead of the clock: greater than what most others have proposed, too.
    pub(crate) fn ahead(&self) -> u64 {
        self.propose(true)
    }

    fn propose(&self, jump: bool) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(0);
        let (now, ahead) = (micros(now), micros(now + self.lead));
        let next = |last: u64| {
            let wall = if jump || last < now { ahead } else { 0 };
            wall.max(last + 1).min(Token::MAX)
        };
        self.last
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(next(last)))
            .map_or(ahead, next)
    }

    /// Takes in a token that a node voted.
    pub(crate) fn see(&self, token: Token) {
        if self.last.fetch_max(token.get(), Ordering::AcqRel) < token.get() {
            self.crowded.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(votes: &[u64]) -> Vec<Token> {
        votes.iter().filter_map(|vote| Token::new(*vote)).collect()
    }

    fn chosen(votes: &[u64], majority: usize) -> Option<Choice> {
        choose(&tokens(votes), majority)
    }

    #[test]
    fn equal_votes_agree_and_others_are_written_back() {
        let agreed = |token| Some(Choice::Agreed(Token::new(token).unwrap()));
        let write_back = |token| Some(Choice::WriteBack(Token::new(token).unwrap()));
        assert_eq!(chosen(&[7, 7], 3), None);
        assert_eq!(chosen(&[7, 7, 7], 3), agreed(7));
        assert_eq!(chosen(&[7, 9, 7, 7], 3), agreed(7));
        assert_eq!(chosen(&[7, 7, 9], 3), write_back(9));
        assert_eq!(chosen(&[5, 7, 8, 9], 3), write_back(9));
        // With all votes in, the middle one does: three are not above it, three not below.
        assert_eq!(chosen(&[1, 5, 7, 8, 9], 3), agreed(7));
        assert_eq!(chosen(&[1, 2], 2), write_back(2));
    }

    #[test]
    fn whatever_the_votes_the_rule_is_met() {
        for code in 0..4_u64.pow(5) {
            let votes: Vec<u64> = (0..5).map(|at| code / 4_u64.pow(at) % 4 + 1).collect();
            for count in 3..=5 {
                if let Some(Choice::Agreed(token)) = chosen(&votes[..count], 3) {
                    let votes = tokens(&votes[..count]);
                    assert!(votes.iter().filter(|vote| **vote <= token).count() >= 3, "{votes:?}");
                    assert!(votes.iter().filter(|vote| **vote >= token).count() >= 3, "{votes:?}");
                }
            }
        }
    }

    #[test]
    fn hints_rise_and_follow_what_is_seen() {
        let hints = Hints::new(Duration::from_secs(30));
        let first = hints.next();
        assert!(hints.next() > first);
        hints.see(Token::new(first + 1_000_000_000).unwrap());
        assert!(hints.next() > first + 1_000_000_000);
    }

    #[test]
    fn who_is_alone_counts_on_and_who_is_not_jumps_ahead() {
        let hints = Hints::new(Duration::from_secs(30));
        let first = hints.next();
        hints.see(Token::new(first).unwrap());
        assert_eq!(hints.next(), first + 1);
        let theirs = Token::new(first + 5).unwrap();
        hints.see(theirs);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let ahead = u64::try_from((now + Hints::LEAD).as_micros()).unwrap();
        assert!(hints.next() >= ahead.max(theirs.get() + 1));
        assert!(hints.ahead() >= ahead);
        // Never far behind the clock: what was handed out by a node that forgot it may be that late.
        hints.last.store(ahead - 2_000_000, Ordering::Release);
        assert!(hints.next() >= ahead);
    }
}
