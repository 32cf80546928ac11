//! Fenced writes (I3): versions rise with every write, tokens of accepted writes never fall and were
//! granted, opening shuts older holders out, no write was put over another than the one it was meant
//! for, and whoever reads sees what was acknowledged before.

use std::collections::{HashMap, HashSet};

use palisade_core::Token;

use super::Violation;
use crate::history::{Answer, Call, Nanos, Op, OpId};

/// What is known of the tokens of a register's lock.
#[derive(Debug)]
pub(super) struct Lock {
    /// Whether tokens must not fall.
    pub(super) fenced: bool,
    /// The tokens that were granted; `None` if the history tells nothing of the lock.
    pub(super) granted: Option<HashSet<Token>>,
}

/// A write that was accepted.
#[derive(Debug, Clone, Copy)]
struct Accepted<'h> {
    op: &'h Op,
    version: u64,
    value: &'h str,
    expected: Option<u64>,
    token: Option<Token>,
    /// When it was acknowledged.
    acknowledged: Nanos,
}

impl<'h> Accepted<'h> {
    fn of(op: &'h Op) -> Option<Self> {
        match (&op.call, &op.answer) {
            (Call::Write { value, version: expected, token }, Answer::Done { version: Some(version) }) => {
                Some(Self {
                    op,
                    version: *version,
                    value,
                    expected: *expected,
                    token: *token,
                    acknowledged: op.end?,
                })
            }
            _ => None,
        }
    }
}

/// Looks at all operations on one register.
pub(super) fn check(ops: &[&Op], lock: &Lock, violations: &mut Vec<Violation>) {
    let mut accepted: Vec<Accepted<'_>> = ops.iter().filter_map(|op| Accepted::of(op)).collect();
    accepted.sort_by_key(|write| (write.version, write.acknowledged));
    in_version_order(&accepted, lock, violations);
    reads(ops, &accepted, violations);
    if lock.fenced {
        after_opening(ops, &accepted, violations);
        refusals(ops, lock, violations);
    }
}

/// Opening a register shuts older holders out: what they ask for afterwards is refused.
fn after_opening(ops: &[&Op], accepted: &[Accepted<'_>], violations: &mut Vec<Violation>) {
    let mut opened: Vec<(Nanos, Token, OpId)> = ops
        .iter()
        .filter_map(|op| match (&op.call, &op.answer) {
            (Call::Open { token }, Answer::Value { .. }) => Some((op.end?, (*token)?, op.id)),
            _ => None,
        })
        .collect();
    opened.sort_unstable();
    // The greatest token so far, by the time it was known to be in force.
    let mut greatest: Option<(Token, OpId)> = None;
    for (_, token, op) in &mut opened {
        greatest = greatest.max(Some((*token, *op)));
        (*token, *op) = greatest.unwrap_or((*token, *op));
    }
    for write in accepted {
        let before = opened.partition_point(|(end, ..)| *end < write.op.start);
        let Some((_, greater, other)) = before.checked_sub(1).map(|last| opened[last]) else { continue };
        if let Some(token) = write.token.filter(|token| *token < greater) {
            let what = format!(
                "a write of process {} with token {token} was accepted after token {greater} had opened it",
                write.op.process
            );
            violations.push(violation(write.op, Some(other), what));
        }
    }
}

/// A holder is refused for being stale only if there was a later one.
fn refusals(ops: &[&Op], lock: &Lock, violations: &mut Vec<Violation>) {
    let Some(granted) = &lock.granted else { return };
    let greatest = granted.iter().max();
    for op in ops {
        let token = match (&op.call, &op.answer) {
            (Call::Open { token } | Call::Write { token, .. }, Answer::Refused { stale: true, .. }) => *token,
            _ => continue,
        };
        if token.is_none_or(|token| greatest.is_none_or(|greatest| *greatest <= token)) {
            let what =
                format!("process {} was refused as stale, but no later holder was ever granted", op.process);
            violations.push(violation(op, None, what));
        }
    }
}

fn violation(op: &Op, other: Option<OpId>, what: String) -> Violation {
    let at = op.end.unwrap_or(op.start);
    let ops = other.into_iter().chain([op.id]).collect();
    Violation { checker: "fenced", key: op.key.to_string(), at, what, ops }
}

fn in_version_order(accepted: &[Accepted<'_>], lock: &Lock, violations: &mut Vec<Violation>) {
    let mut greatest: Option<(Token, OpId)> = None;
    let mut before: Option<&Accepted<'_>> = None;
    for write in accepted {
        let by = write.op.process;
        if let Some(before) = before {
            let other = Some(before.op.id);
            if before.version == write.version {
                let what = format!("version {} was made twice", write.version);
                violations.push(violation(write.op, other, what));
            } else if let Some(expected) = write.expected.filter(|expected| *expected < before.version) {
                let what = format!(
                    "process {by} wrote over version {expected}, but version {} was there: that write is lost",
                    before.version
                );
                violations.push(violation(write.op, other, what));
            }
        }
        if let Some(token) = write.token {
            if lock.granted.as_ref().is_some_and(|granted| !granted.contains(&token)) {
                let what = format!("process {by} wrote with token {token}, which nobody was granted");
                violations.push(violation(write.op, None, what));
            }
            if let Some((greater, other)) = greatest.filter(|(greatest, _)| lock.fenced && *greatest > token)
            {
                let what = format!(
                    "a write of process {by} with token {token} was accepted after one with token {greater}"
                );
                violations.push(violation(write.op, Some(other), what));
            }
            greatest = greatest.max(Some((token, write.op.id)));
        }
        before = Some(write);
    }
}

/// A read sees a version that is not below any acknowledged before it began, and the value that was
/// written with it.
fn reads(ops: &[&Op], accepted: &[Accepted<'_>], violations: &mut Vec<Violation>) {
    let values: HashMap<u64, &Accepted<'_>> = accepted.iter().map(|write| (write.version, write)).collect();
    let mut acknowledged: Vec<&Accepted<'_>> = accepted.iter().collect();
    acknowledged.sort_by_key(|write| write.acknowledged);
    let mut acknowledged = acknowledged.into_iter().peekable();
    let mut latest: Option<&Accepted<'_>> = None;
    // They come by the time they were asked.
    for op in ops {
        let (Call::Read | Call::Open { .. }, Answer::Value { value, version: Some(version) }) =
            (&op.call, &op.answer)
        else {
            continue;
        };
        while let Some(write) = acknowledged.next_if(|write| write.acknowledged < op.start) {
            latest = latest.filter(|latest| latest.version >= write.version).or(Some(write));
        }
        if let Some(latest) = latest.filter(|latest| latest.version > *version) {
            let what = format!(
                "process {} read version {version} after version {} had been acknowledged",
                op.process, latest.version
            );
            violations.push(violation(op, Some(latest.op.id), what));
        }
        if let Some(write) = values.get(version).filter(|write| value.as_deref() != Some(write.value)) {
            let what =
                format!("process {} read another value of version {version} than was written", op.process);
            violations.push(violation(op, Some(write.op.id), what));
        }
    }
}
