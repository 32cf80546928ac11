//! The search agrees with one that tries every order, without any cleverness, on small histories
//! whose answers are made up.

use std::marker::PhantomData;

use super::random::Random;
use crate::check::linear::{Model, Outcome, Timed, search};
use crate::check::models::{
    FencedMutex, Mutex, OwnerMutex, Permits, Register, Rw, Versioned, from_holds, from_records,
};
use crate::history::{Answer, Call, Event, History, Hold, HoldMode, Op};

/// Whether some order works, found by trying all.
fn any_order<M: Model>(model: &M, ops: &[Timed<M::Step>], left: &mut Vec<usize>, state: &M::State) -> bool {
    if left.iter().all(|op| ops[*op].ret.is_none()) {
        return true;
    }
    let due = left.iter().filter_map(|op| ops[*op].ret).min().unwrap();
    for place in 0..left.len() {
        let op = left[place];
        if ops[op].call > due {
            continue;
        }
        if let Some(after) = model.apply(state, &ops[op].step) {
            left.remove(place);
            let found = any_order(model, ops, left, &after);
            left.insert(place, op);
            if found {
                return true;
            }
        }
    }
    false
}

/// A history of a few processes whose answers are made up.
fn made_up(
    random: &mut Random,
    ask: fn(&mut Random) -> Call,
    say: fn(&mut Random, &Call) -> Answer,
) -> History {
    let processes = 2 + random.below(2);
    let mut open: Vec<Option<(u64, Call)>> = vec![None; processes];
    let (mut events, mut ops) = (Vec::new(), 0);
    for at in 1..=16 {
        let process = random.below(processes);
        match open[process].take() {
            None => {
                ops += 1;
                let call = ask(random);
                open[process] = Some((ops, call.clone()));
                events.push(Event::Call { op: ops, process: process as u64, at, key: "k".into(), call });
            }
            Some((op, call)) => {
                let unknown = call != Call::Read && random.percent(25);
                let reason = "made up".to_owned();
                let answer = if unknown { Answer::Unknown { reason } } else { say(random, &call) };
                events.push(Event::Return { op, at, answer });
            }
        }
    }
    History::from_events(events).unwrap()
}

fn compare<M: Model>(what: &str, model: &M, steps: &[Timed<M::Step>], verdicts: &mut [usize; 2]) {
    let mut all = (0..steps.len()).collect();
    let expected = any_order(model, steps, &mut all, &model.initial());
    let outcome = search(model, steps, super::budget()).outcome;
    assert_eq!(matches!(outcome, Outcome::Linearizable), expected, "{what}: {outcome}");
    verdicts[usize::from(expected)] += 1;
}

/// Both verdicts must have been common, or nothing was compared.
fn were_both(what: &str, verdicts: [usize; 2]) {
    assert!(verdicts.iter().all(|count| *count > 100), "{what}: {verdicts:?}");
}

fn digit(random: &mut Random) -> String {
    random.below(2).to_string()
}

#[test]
fn on_registers() {
    let mut verdicts = [0, 0];
    for seed in 0..1500 {
        let history = made_up(
            &mut Random::new(seed),
            |random| match random.below(3) {
                0 => Call::Read,
                1 => Call::Write { value: digit(random), version: None, token: None },
                _ => Call::Cas { from: digit(random), to: digit(random) },
            },
            |random, call| match call {
                Call::Read => Answer::Value { value: Some(digit(random)), version: None },
                Call::Cas { .. } if random.percent(50) => Answer::Refused { version: None, stale: false },
                _ => Answer::Done { version: None },
            },
        );
        let ops: Vec<&Op> = history.ops.iter().collect();
        compare(&format!("seed {seed}"), &Register::default(), &Register::steps(&ops), &mut verdicts);
    }
    were_both("register", verdicts);
}

#[test]
fn on_versioned_registers() {
    let mut verdicts = [0, 0];
    for seed in 0..1500 {
        let history = made_up(
            &mut Random::new(seed),
            |random| match random.below(2) {
                0 => Call::Read,
                _ => Call::Write {
                    value: digit(random),
                    version: random.percent(40).then_some(random.below(3) as u64),
                    token: None,
                },
            },
            |random, call| {
                let version = random.percent(30).then_some(1 + random.below(3) as u64);
                match call {
                    Call::Read => Answer::Value { value: Some(digit(random)), version },
                    _ if random.percent(25) => Answer::Refused { version, stale: false },
                    _ => Answer::Done { version },
                }
            },
        );
        let ops: Vec<&Op> = history.ops.iter().collect();
        let model = Versioned { fenced: true, history: PhantomData };
        compare(&format!("seed {seed}"), &model, &Versioned::steps(&ops), &mut verdicts);
    }
    assert!(verdicts[1] > 20 && verdicts[0] > 100, "{verdicts:?}");
}

#[test]
fn on_locks() {
    let mut verdicts = [[0, 0]; 4];
    for seed in 0..1500 {
        let history = made_up(
            &mut Random::new(seed),
            |random| match random.below(3) {
                0 => Call::Release { hold: None },
                1 => Call::Acquire { mode: HoldMode::Shared },
                _ => Call::Acquire { mode: HoldMode::Exclusive },
            },
            |random, call| match call {
                Call::Acquire { .. } if random.percent(60) => {
                    let token = palisade_core::Token::new(random.below(6) as u64);
                    Answer::Granted { token, slot: None, until: None }
                }
                Call::Acquire { .. } => Answer::Failed { reason: "busy".to_owned() },
                _ if random.percent(50) => Answer::Failed { reason: "not held".to_owned() },
                _ => Answer::Released { in_time: true },
            },
        );
        let ops: Vec<&Op> = history.ops.iter().collect();
        let (steps, what) = (from_records(&ops), format!("seed {seed}"));
        compare(&what, &Mutex, &steps, &mut verdicts[0]);
        compare(&what, &FencedMutex, &steps, &mut verdicts[1]);
        compare(&what, &Rw, &steps, &mut verdicts[2]);
        compare(&what, &Permits { of: 2 }, &steps, &mut verdicts[3]);
    }
    for verdicts in verdicts {
        were_both("lock", verdicts);
    }
}

/// Grants of which it is known how long their holders believed in them, all made up.
fn made_up_holds(random: &mut Random) -> History {
    let mut events = Vec::new();
    let mut ops = 0;
    for process in 0..3 {
        let mut at = random.below(40) as u64;
        for _ in 0..=random.below(2) {
            ops += 1;
            let mode = *random.pick(&[HoldMode::Exclusive, HoldMode::Shared, HoldMode::Slot(2)]).unwrap();
            let hold = ops;
            events.push(Event::Call { op: hold, process, at, key: "k".into(), call: Call::Acquire { mode } });
            at += 1 + random.below(8) as u64;
            let until = random.percent(30).then_some(at + random.below(6) as u64);
            let number = if random.percent(60) { at } else { random.below(60) as u64 };
            let token = palisade_core::Token::new(number);
            let slot = matches!(mode, HoldMode::Slot(_)).then_some(random.below(2) as u32);
            events.push(Event::Return { op: hold, at, answer: Answer::Granted { token, slot, until } });
            at += random.below(6) as u64;
            ops += 1;
            let call = Call::Release { hold: Some(hold) };
            events.push(Event::Call { op: ops, process, at, key: "k".into(), call });
            at += 1 + random.below(4) as u64;
            if random.percent(70) {
                events.push(Event::Return { op: ops, at, answer: Answer::Released { in_time: true } });
            }
        }
    }
    History::from_events(events).unwrap()
}

#[test]
fn on_holds() {
    let mut verdicts = [[0, 0]; 5];
    for seed in 0..3000 {
        let history = made_up_holds(&mut Random::new(seed));
        let holds = history.holds();
        let holds: Vec<&Hold> = holds.iter().collect();
        let (steps, what) = (from_holds(&holds), format!("seed {seed}"));
        compare(&what, &Mutex, &steps, &mut verdicts[0]);
        compare(&what, &OwnerMutex, &steps, &mut verdicts[1]);
        compare(&what, &FencedMutex, &steps, &mut verdicts[2]);
        compare(&what, &Rw, &steps, &mut verdicts[3]);
        compare(&what, &Permits { of: 2 }, &steps, &mut verdicts[4]);
    }
    for verdicts in verdicts {
        assert!(verdicts.iter().all(|count| *count > 30), "{verdicts:?}");
    }
}
