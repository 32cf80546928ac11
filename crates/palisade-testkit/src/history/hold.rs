use std::collections::HashMap;
use std::sync::Arc;

use palisade_core::Token;

use super::{Answer, Belief, Call, History, HoldMode, Nanos, Op, OpId, ProcessId};

/// One grant, with the window in which its holder believed in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// The operation that acquired it.
    pub op: OpId,
    /// Who holds.
    pub process: ProcessId,
    /// What is held.
    pub key: Arc<str>,
    /// In which mode.
    pub mode: HoldMode,
    /// The token, where there is one.
    pub token: Option<Token>,
    /// The slot, where there is one.
    pub slot: Option<u32>,
    /// When it was asked for.
    pub asked: Nanos,
    /// When the holder had it for sure.
    pub from: Nanos,
    /// Until when the holder believed in it for sure; at least `from`.
    pub until: Nanos,
    /// By when it was given back for sure: when its release was answered. `None` if it was not,
    /// or nobody knows.
    pub released: Option<Nanos>,
    /// The latest deadline that the holder named.
    pub deadline: Option<Nanos>,
    /// The last moment at which the guard is known to have called itself valid.
    pub valid_at: Option<Nanos>,
    /// What ended the belief.
    pub ended: Ended,
}

/// What ended a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Its holder released it.
    Released,
    /// Its deadline passed.
    Deadline,
    /// Its holder was told that it is lost.
    Lost,
    /// Its holder died.
    Died,
    /// Nothing that is known of.
    Open,
}

impl History {
    /// All grants, by the time they were answered.
    ///
    /// A window is never longer than what the holder believed: it begins after the answer came
    /// and ends before the release was asked for, the guard was told, or the process was killed.
    /// A stopped process goes on believing up to the deadline it knew of.
    pub fn holds(&self) -> Vec<Hold> {
        let releases = self.releases();
        let mut holds: Vec<Hold> =
            self.ops.iter().filter_map(|op| self.hold(op, releases.get(&op.id).copied())).collect();
        holds.sort_by_key(|hold| (hold.from, hold.op));
        holds
    }

    /// The release of each hold.
    fn releases(&self) -> HashMap<OpId, &Op> {
        let mut open: HashMap<(ProcessId, &str), OpId> = HashMap::new();
        let mut releases = HashMap::new();
        for op in &self.ops {
            match (&op.call, &op.answer) {
                (Call::Acquire { .. }, Answer::Granted { .. }) => {
                    open.insert((op.process, &op.key), op.id);
                }
                (Call::Release { hold: Some(hold) }, _) => drop(releases.insert(*hold, op)),
                // A release that is known to have changed nothing ended nothing.
                (Call::Release { hold: None }, answer) if !matches!(answer, Answer::Failed { .. }) => {
                    if let Some(hold) = open.remove(&(op.process, &*op.key)) {
                        releases.insert(hold, op);
                    }
                }
                _ => {}
            }
        }
        releases
    }

    fn hold(&self, op: &Op, release: Option<&Op>) -> Option<Hold> {
        let (Call::Acquire { mode }, Answer::Granted { token, slot, .. }) = (&op.call, &op.answer) else {
            return None;
        };
        let from = op.end?;
        let nothing = Belief::default();
        let belief = self.beliefs.get(&op.id).unwrap_or(&nothing);
        // Of two at the same moment the first counts: who was told gives back because of that.
        let ends = [
            (belief.lost_at, Ended::Lost),
            (release.map(|release| release.start), Ended::Released),
            (self.deaths.get(&op.process).copied(), Ended::Died),
            (belief.deadline, Ended::Deadline),
        ];
        let first = ends.into_iter().filter_map(|(at, how)| Some((at?, how))).min_by_key(|(at, _)| *at);
        let (until, ended) = first.unwrap_or((Nanos::MAX, Ended::Open));
        // A guard that was renewed says a later deadline than the one that is on record.
        let until = until.max(belief.valid_at.unwrap_or(from)).max(from);
        let released =
            release.filter(|release| matches!(release.answer, Answer::Released { .. } | Answer::Done { .. }));
        Some(Hold {
            op: op.id,
            process: op.process,
            key: Arc::clone(&op.key),
            mode: *mode,
            token: *token,
            slot: *slot,
            asked: op.start,
            from,
            until,
            released: released.and_then(|release| release.end),
            deadline: belief.deadline,
            valid_at: belief.valid_at,
            ended,
        })
    }
}
