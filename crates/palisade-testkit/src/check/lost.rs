//! Lost updates: an element whose addition was acknowledged is in the set at the end.

use std::collections::{HashMap, HashSet};

use super::{Undecided, Violation};
use crate::history::{Answer, Call, Nanos, Op};

/// How many elements are named.
const NAMED: usize = 20;

/// What became of the elements of one set.
#[derive(Debug, Default)]
pub(super) struct Set {
    /// How many were acknowledged and are not there.
    pub(super) lost: usize,
    pub(super) violations: Vec<Violation>,
    pub(super) undecided: Option<Undecided>,
}

/// Looks at all operations on one set. Without a set there is nothing to find.
pub(super) fn check(ops: &[&Op], calm_since: Option<Nanos>) -> Set {
    let adds: Vec<(&Op, &str)> = ops
        .iter()
        .filter_map(|op| match &op.call {
            Call::Add { element } => Some((*op, element.as_str())),
            _ => None,
        })
        .collect();
    let mut set = Set::default();
    let Some((first, _)) = adds.first() else { return set };
    let acknowledged = |op: &Op| matches!(op.answer, Answer::Done { .. }).then_some(op.end).flatten();
    let last_add = adds.iter().filter_map(|(op, _)| acknowledged(op)).max().unwrap_or(0);
    let since = calm_since.unwrap_or(last_add);
    let last = ops
        .iter()
        .rev()
        .find(|op| matches!((&op.call, &op.answer), (Call::Read, Answer::Value { .. })) && op.start >= since);
    let Some((read, Answer::Value { value, .. })) = last.map(|op| (op, &op.answer)) else {
        let why = "nobody read the set at the end".to_owned();
        set.undecided = Some(Undecided { checker: "lost", key: first.key.to_string(), why });
        return set;
    };
    let there = value.as_deref().unwrap_or_default().split(',').map(str::trim);
    let there: HashSet<&str> = there.filter(|element| !element.is_empty()).collect();
    judge(&mut set, &adds, &there, read);
    set
}

fn judge(set: &mut Set, adds: &[(&Op, &str)], there: &HashSet<&str>, read: &Op) {
    // An element may have been tried more than once: what counts is the best that was said of it.
    let mut tried: HashMap<&str, (Told, &Op)> = HashMap::new();
    for (op, element) in adds {
        let told = Told::of(op, read.start);
        let best = tried.entry(element).or_insert((told, op));
        if best.0 < told {
            *best = (told, op);
        }
    }
    let mut pick = |what: &str, wrong: &dyn Fn(&str, Told) -> bool| {
        let mut found: Vec<(&str, &Op)> = tried
            .iter()
            .filter(|(element, (told, _))| wrong(element, *told))
            .map(|(element, (_, op))| (*element, *op))
            .collect();
        found.sort_by_key(|(_, op)| op.id);
        set.violations.extend(violation(read, what, &found));
        found.len()
    };
    let lost = pick("acknowledged and lost", &|element, told| told == Told::Done && !there.contains(element));
    pick("refused and there all the same", &|element, told| {
        told == Told::NoEffect && there.contains(element)
    });
    set.lost = lost;
    let mut strange: Vec<(&str, &Op)> =
        there.iter().filter(|element| !tried.contains_key(**element)).map(|it| (*it, read)).collect();
    strange.sort_unstable_by_key(|(element, _)| *element);
    set.violations.extend(violation(read, "there and added by nobody", &strange));
}

/// What was said of an element, from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    NoEffect,
    Unknown,
    Done,
}

impl Told {
    /// What was said of it before `now`.
    fn of(op: &Op, now: Nanos) -> Self {
        match (&op.answer, op.end) {
            (Answer::Done { .. }, Some(end)) if end < now => Self::Done,
            (Answer::Failed { .. } | Answer::Refused { .. }, Some(_)) => Self::NoEffect,
            _ => Self::Unknown,
        }
    }
}

fn violation(read: &Op, what: &str, found: &[(&str, &Op)]) -> Option<Violation> {
    if found.is_empty() {
        return None;
    }
    let named: Vec<&str> = found.iter().take(NAMED).map(|(element, _)| *element).collect();
    let more = if found.len() > NAMED { ", …" } else { "" };
    let noun = if found.len() == 1 { "element" } else { "elements" };
    let mut ops: Vec<_> = found.iter().take(NAMED).map(|(_, op)| op.id).collect();
    ops.push(read.id);
    ops.dedup();
    let what = format!("{} {noun} {what}: {}{more}", found.len(), named.join(", "));
    let at = read.end.unwrap_or(read.start);
    Some(Violation { checker: "lost", key: read.key.to_string(), at, what, ops })
}
