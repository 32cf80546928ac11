//! Tokens (I1): no exclusive grant has the token of another grant; whoever asked after another was
//! told has the greater one; and so has the later one of two that exclude each other.

use std::collections::HashMap;

use palisade_core::Token;

use super::{Violation, excludes};
use crate::history::{Hold, HoldMode};

/// Looks at all grants of one key.
pub(super) fn check(holds: &[&Hold], violations: &mut Vec<Violation>) {
    unique(holds, violations);
    in_real_time(holds, violations);
}

fn violation(first: &Hold, second: &Hold, what: String) -> Violation {
    Violation {
        checker: "tokens",
        key: second.key.to_string(),
        at: second.from,
        what,
        ops: vec![first.op, second.op],
    }
}

fn unique(holds: &[&Hold], violations: &mut Vec<Violation>) {
    let mut first: HashMap<Token, &Hold> = HashMap::new();
    for hold in holds {
        let Some(token) = hold.token else { continue };
        match first.get(&token) {
            None => drop(first.insert(token, hold)),
            Some(other) if hold.mode == HoldMode::Exclusive || other.mode == HoldMode::Exclusive => {
                let what = format!(
                    "token {token} was given twice: to process {} and to process {}",
                    other.process, hold.process
                );
                violations.push(violation(other, hold, what));
            }
            Some(_) => {}
        }
    }
}

/// If a grant was told before another was asked for, its token is smaller. By the time told and by
/// the time asked for, both in order, one greatest token so far is enough.
fn in_real_time(holds: &[&Hold], violations: &mut Vec<Violation>) {
    let mut told: Vec<&Hold> = holds.iter().copied().filter(|hold| hold.token.is_some()).collect();
    let mut asked = told.clone();
    told.sort_by_key(|hold| hold.from);
    asked.sort_by_key(|hold| hold.asked);
    let mut told = told.into_iter().peekable();
    let mut greatest: Option<&Hold> = None;
    for hold in asked {
        while let Some(earlier) = told.next_if(|earlier| earlier.from < hold.asked) {
            greatest = greatest.filter(|greatest| greatest.token >= earlier.token).or(Some(earlier));
        }
        if let Some(earlier) = greatest.filter(|earlier| earlier.token >= hold.token) {
            let what = format!(
                "process {} asked after process {} had been told token {}, and got {}",
                hold.process,
                earlier.process,
                shown(earlier),
                shown(hold)
            );
            violations.push(violation(earlier, hold, what));
        }
    }
}

/// Of two grants that exclude each other and were believed in one after the other, the later one has
/// the greater token, also if it was asked for first. That rests on exclusion: a grant that ended
/// early may be told late.
pub(super) fn where_they_exclude(holds: &[&Hold], violations: &mut Vec<Violation>) {
    // A grant that nobody ever believed in has no place in the order.
    let mut begun: Vec<&Hold> =
        holds.iter().copied().filter(|hold| hold.token.is_some() && hold.from < hold.until).collect();
    let mut ended = begun.clone();
    begun.sort_by_key(|hold| hold.from);
    ended.sort_by_key(|hold| hold.until);
    let mut ended = ended.into_iter().peekable();
    let mut greatest: HashMap<(Class, Option<u32>), &Hold> = HashMap::new();
    for hold in begun {
        while let Some(earlier) = ended.next_if(|earlier| earlier.until <= hold.from) {
            let place = greatest.entry((Class::of(earlier), earlier.slot)).or_insert(earlier);
            if place.token < earlier.token {
                *place = earlier;
            }
        }
        let excluded = greatest.values().copied().filter(|earlier| excludes(earlier, hold));
        // What real time alone shows is told above.
        let wrong = excluded.filter(|earlier| earlier.token >= hold.token && earlier.from >= hold.asked);
        if let Some(earlier) = wrong.max_by_key(|earlier| earlier.token) {
            let what = format!(
                "process {} held token {}, and after it process {} held {}",
                earlier.process,
                shown(earlier),
                hold.process,
                shown(hold)
            );
            violations.push(violation(earlier, hold, what));
        }
    }
}

/// A mode, however many slots there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Class {
    Exclusive,
    Shared,
    Slot,
}

impl Class {
    const fn of(hold: &Hold) -> Self {
        match hold.mode {
            HoldMode::Exclusive => Self::Exclusive,
            HoldMode::Shared => Self::Shared,
            HoldMode::Slot(_) => Self::Slot,
        }
    }
}

fn shown(hold: &Hold) -> String {
    hold.token.map_or_else(|| "none".to_owned(), |token| token.to_string())
}
