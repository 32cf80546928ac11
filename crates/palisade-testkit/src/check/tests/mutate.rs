//! Ways to break a clean history. `None` where there is nothing to break in that way.

use std::collections::HashMap;

use super::random::Random;
use crate::history::{Answer, Call, Event, History, Hold, HoldMode, Nanos, Op, OpId};

/// Breaks a history.
pub(super) type Mutation = fn(&[Event], &mut Random) -> Option<Vec<Event>>;

/// Ways to break a lock, and the models that see it.
pub(super) const LOCKS: [(&str, Mutation, &[&str]); 6] = [
    ("two tokens swapped", swap_tokens, &["fenced-mutex"]),
    ("a token given twice", repeat_token, &["fenced-mutex"]),
    ("told before the holder left", overlap, &["mutex", "owner-mutex", "fenced-mutex"]),
    ("a writer beside a reader", writer_beside_reader, &["rw"]),
    ("a slot given twice", same_slot, &["permits"]),
    ("one permit too many", extra_permit, &["permits"]),
];

/// Ways to break a register.
pub(super) const REGISTERS: [(&str, Mutation); 4] = [
    ("a read of what nobody wrote", invented_read),
    ("an answered write that never was", lost_write),
    ("a read of what had been overwritten", stale_read),
    ("a version made twice", repeat_version),
];

fn holds(events: &[Event]) -> Vec<Hold> {
    History::from_events(events.to_vec()).unwrap().holds()
}

/// Changes the answer of an operation, or when it came.
fn answered(events: &[Event], wanted: OpId, change: impl Fn(&mut Nanos, &mut Answer)) -> Vec<Event> {
    let mut events = events.to_vec();
    for event in &mut events {
        if let Event::Return { op, at, answer } = event
            && *op == wanted
        {
            change(at, answer);
        }
    }
    events
}

/// Two holds of which the second was asked for after the first was told, if there are any.
fn one_after_the_other(holds: &[Hold], random: &mut Random) -> Option<(Hold, Hold)> {
    let pairs: Vec<(&Hold, &Hold)> =
        holds.iter().zip(holds.iter().skip(1)).filter(|(first, second)| first.until < second.from).collect();
    random.pick(&pairs).map(|(first, second)| ((*first).clone(), (*second).clone()))
}

/// Two holds that were believed in at one time.
fn at_one_time(holds: &[Hold], random: &mut Random) -> Option<(Hold, Hold)> {
    let pairs: Vec<(&Hold, &Hold)> = holds
        .iter()
        .zip(holds.iter().skip(1))
        .filter(|(first, second)| second.from < first.until && second.from < second.until)
        .collect();
    random.pick(&pairs).map(|(first, second)| ((*first).clone(), (*second).clone()))
}

fn with_token(hold: &Hold) -> impl Fn(&mut Nanos, &mut Answer) {
    let other = hold.token;
    move |_, answer| {
        if let Answer::Granted { token, .. } = answer {
            *token = other;
        }
    }
}

pub(super) fn swap_tokens(events: &[Event], random: &mut Random) -> Option<Vec<Event>> {
    let (first, second) = one_after_the_other(&holds(events), random)?;
    let events = answered(events, first.op, with_token(&second));
    Some(answered(&events, second.op, with_token(&first)))
}

pub(super) fn repeat_token(events: &[Event], random: &mut Random) -> Option<Vec<Event>> {
    let (first, second) = one_after_the_other(&holds(events), random)?;
    Some(answered(events, second.op, with_token(&first)))
}

pub(super) fn overlap(events: &[Event], random: &mut Random) -> Option<Vec<Event>> {
    let holds = holds(events);
    let pairs: Vec<(&Hold, &Hold)> = holds
        .iter()
        .zip(holds.iter().skip(1))
        .filter(|(first, second)| second.asked < first.from && first.from + 1 < first.until)
        .filter(|(first, second)| first.until < second.from)
        .filter(|(first, second)| first.mode == HoldMode::Exclusive && second.mode == HoldMode::Exclusive)
        .collect();
    let (first, second) = random.pick(&pairs)?;
    Some(answered(events, second.op, |at, _| *at = first.from + 1))
}

pub(super) fn writer_beside_reader(events: &[Event], random: &mut Random) -> Option<Vec<Event>> {
    let shared: Vec<Hold> = holds(events).into_iter().filter(|hold| hold.mode == HoldMode::Shared).collect();
    let (_, second) = at_one_time(&shared, random)?;
    let mut events = events.to_vec();
    for event in &mut events {
        if let Event::Call { op, call: Call::Acquire { mode }, .. } = event
            && *op == second.op
        {
            *mode = HoldMode::Exclusive;
        }
    }
    Some(events)
}

pub(super) fn same_slot(events: &[Event], random: &mut Random) -> Option<Vec<Event>> {
    let slots: Vec<Hold> = holds(events).into_iter().filter(|hold| hold.slot.is_some()).collect();
    let (first, second) = at_one_time(&slots, random)?;
    Some(answered(events, second.op, |_, answer| {
        if let Answer::Granted { slot, .. } = answer {
            *slot = first.slot;
        }
    }))
}

/// The most that held at one time were one more than there are.
pub(super) fn extra_permit(events: &[Event], _: &mut Random) -> Option<Vec<Event>> {
    let slots: Vec<Hold> = holds(events).into_iter().filter(|hold| hold.slot.is_some()).collect();
    let at_once = |at: Nanos| slots.iter().filter(|hold| hold.from <= at && at < hold.until).count();
    let most = slots.iter().map(|hold| at_once(hold.from)).max()? as u32;
    let mut events = events.to_vec();
    for event in &mut events {
        if let Event::Call { call: Call::Acquire { mode: mode @ HoldMode::Slot(_) }, .. } = event {
            *mode = HoldMode::Slot(most - 1);
        }
    }
    (most > 1).then_some(events)
}

fn invented_read(events: &[Event], random: &mut Random) -> Option<Vec<Event>> {
    let reads: Vec<OpId> = events
        .iter()
        .filter_map(|event| match event {
            Event::Return { op, answer: Answer::Value { .. }, .. } => Some(*op),
            _ => None,
        })
        .collect();
    let read = *random.pick(&reads)?;
    Some(answered(events, read, |_, answer| {
        if let Answer::Value { value, .. } = answer {
            *value = Some("invented".to_owned());
        }
    }))
}

/// Makes a write one of another value than the one that a read saw, where no other write has that
/// value.
fn lost_write(events: &[Event], _: &mut Random) -> Option<Vec<Event>> {
    let mut written: HashMap<&str, Vec<OpId>> = HashMap::new();
    for event in events {
        if let Event::Call { op, call: Call::Write { value, .. } | Call::Cas { to: value, .. }, .. } = event {
            written.entry(value).or_default().push(*op);
        }
    }
    let victim = events.iter().find_map(|event| match event {
        Event::Return { answer: Answer::Value { value: Some(value), .. }, .. } => {
            written.get(value.as_str()).filter(|ops| ops.len() == 1).map(|ops| ops[0])
        }
        _ => None,
    })?;
    let mut events = events.to_vec();
    for event in &mut events {
        if let Event::Call { op, call: Call::Write { value, .. } | Call::Cas { to: value, .. }, .. } = event
            && *op == victim
        {
            value.push_str(" lost");
        }
    }
    Some(events)
}

/// A read that sees what another saw, although a write was asked for and answered in between. Only
/// where no two writes have one value.
fn stale_read(events: &[Event], random: &mut Random) -> Option<Vec<Event>> {
    let history = History::from_events(events.to_vec()).unwrap();
    let is_read = |op: &&Op| matches!(op.answer, Answer::Value { value: Some(_), .. });
    let reads: Vec<&Op> = history.ops.iter().filter(is_read).collect();
    let writes: Vec<&Op> = history
        .ops
        .iter()
        .filter(|op| matches!(op.call, Call::Write { .. } | Call::Append { .. }))
        .filter(|op| matches!(op.answer, Answer::Done { .. }))
        .collect();
    if history.ops.iter().any(|op| matches!(op.call, Call::Cas { .. })) {
        return None;
    }
    let later = *random.pick(&reads)?;
    let between = |earlier: &Op| {
        writes
            .iter()
            .any(|write| Some(write.start) > earlier.end && write.end.is_some_and(|end| end < later.start))
    };
    let earlier = reads.iter().find(|earlier| between(earlier))?;
    Some(answered(events, later.id, |_, answer| *answer = earlier.answer.clone()))
}

/// Where versions are told.
fn repeat_version(events: &[Event], random: &mut Random) -> Option<Vec<Event>> {
    let history = History::from_events(events.to_vec()).unwrap();
    if !history.ops.iter().any(|op| matches!(op.call, Call::Write { version: Some(_), .. })) {
        return None;
    }
    let done = |op: &&Op| matches!(op.answer, Answer::Done { version: Some(_) });
    let writes: Vec<&Op> = history.ops.iter().filter(done).collect();
    let (first, second) = (random.pick(&writes)?, random.pick(&writes)?);
    (first.id != second.id).then(|| answered(events, second.id, |_, answer| *answer = first.answer.clone()))
}
