//! The search passes what is clean and flags what is not.

use super::locks::{self, Shape};
use super::random::Random;
use super::registers::{self, Style};
use super::{mutate, searched};
use crate::check::ModelKind;
use crate::check::linear::Outcome;
use crate::history::{Answer, Call, Event, History};

const STYLES: [(Style, ModelKind); 3] = [
    (Style::Register, ModelKind::Register),
    (Style::Kv, ModelKind::Kv),
    (Style::Versioned, ModelKind::Versioned),
];

fn shapes(faults: usize) -> [(Shape, &'static [ModelKind]); 3] {
    [
        (
            Shape::exclusive(5, 120, faults),
            &[ModelKind::Mutex, ModelKind::OwnerMutex, ModelKind::FencedMutex, ModelKind::Rw],
        ),
        (Shape::rw(6, 120, faults), &[ModelKind::Rw]),
        (Shape::slots(3, 6, 120, faults), &[ModelKind::Permits(None)]),
    ]
}

fn passes(events: Vec<Event>, kind: ModelKind, what: &str) {
    let history = History::from_events(events).unwrap();
    let outcome = searched(&history, kind).outcome;
    assert!(matches!(outcome, Outcome::Linearizable), "{what}, {kind}: {outcome}");
}

fn is_flagged(events: Vec<Event>, kind: ModelKind, what: &str) {
    let history = History::from_events(events).unwrap();
    let outcome = searched(&history, kind).outcome;
    assert!(matches!(outcome, Outcome::Violated(_)), "{what}, {kind}: {outcome}");
}

#[test]
fn clean_registers_pass() {
    for seed in 0..40 {
        for (style, kind) in STYLES {
            let processes = 1 + (seed as usize % if style == Style::Kv { 4 } else { 6 });
            let doubtful = (seed as usize % 4) * 3;
            let events = registers::clean(style, processes, 150, doubtful, seed);
            passes(events, kind, &format!("seed {seed}"));
        }
    }
}

#[test]
fn clean_locks_pass() {
    for seed in 0..30 {
        for faults in [0, 30, 150] {
            for (shape, kinds) in shapes(faults) {
                let events = locks::clean(shape, seed);
                for kind in kinds {
                    passes(events.clone(), *kind, &format!("seed {seed}, {shape:?}"));
                }
            }
        }
    }
}

#[test]
fn broken_locks_are_flagged() {
    for seed in 0..25 {
        for (shape, kinds) in shapes(20) {
            let events = locks::clean(shape, seed);
            for (name, mutate, caught_by) in mutate::LOCKS {
                let Some(broken) = mutate(&events, &mut Random::new(seed)) else { continue };
                for kind in kinds.iter().filter(|kind| caught_by.contains(&kind.name())) {
                    is_flagged(broken.clone(), *kind, &format!("{name}, seed {seed}, {shape:?}"));
                }
            }
        }
    }
}

#[test]
fn every_way_to_break_a_lock_was_tried() {
    for (name, mutate, _) in mutate::LOCKS {
        let tried = (0..25).any(|seed| {
            shapes(20)
                .iter()
                .any(|(shape, _)| mutate(&locks::clean(*shape, seed), &mut Random::new(seed)).is_some())
        });
        assert!(tried, "{name} never applied");
    }
}

#[test]
fn broken_registers_are_flagged() {
    let mut count = 0;
    for seed in 0..16 {
        for (style, kind) in STYLES {
            let events = registers::clean(style, 3, 120, 0, seed);
            for (name, mutate) in mutate::REGISTERS {
                if let Some(broken) = mutate(&events, &mut Random::new(seed)) {
                    is_flagged(broken, kind, &format!("{name}, seed {seed}"));
                    count += 1;
                }
            }
        }
    }
    assert!(count > 100, "only {count} histories could be broken");
}

#[test]
fn only_the_owner_releases() {
    let call = |op, process, at, call| Event::Call { op, process, at, key: "k".into(), call };
    let ret = |op, at, answer| Event::Return { op, at, answer };
    let acquire = Call::Acquire { mode: crate::history::HoldMode::Exclusive };
    let granted = Answer::Granted { token: None, slot: None, until: None };
    let events = [
        call(1, 1, 1, acquire),
        ret(1, 2, granted),
        call(2, 2, 3, Call::Release { hold: None }),
        ret(2, 4, Answer::Released { in_time: true }),
    ];
    let history = History::from_events(events).unwrap();
    let ops: Vec<_> = history.ops.iter().collect();
    let subject = crate::check::kind::Subject { ops: &ops, holds: None, fenced: true };
    let judge = |kind| subject.judge(kind, super::budget()).unwrap().1.outcome;
    assert!(matches!(judge(ModelKind::Mutex), Outcome::Linearizable));
    assert!(matches!(judge(ModelKind::OwnerMutex), Outcome::Violated(_)));
    assert!(matches!(judge(ModelKind::FencedMutex), Outcome::Violated(_)));
}

/// Time is not measured here: a loaded machine would fail it. The number of steps does not depend
/// on the machine.
#[test]
fn steps_grow_as_the_history_does() {
    for (shape, kind) in [
        (Shape::exclusive(16, 1_000, 20), ModelKind::FencedMutex),
        (Shape::rw(16, 1_000, 20), ModelKind::Rw),
        (Shape::slots(4, 16, 1_000, 20), ModelKind::Permits(None)),
    ] {
        let steps = |grants| {
            let history = History::from_events(locks::clean(Shape { grants, ..shape }, 7)).unwrap();
            let searched = searched(&history, kind);
            assert!(matches!(searched.outcome, Outcome::Linearizable), "{shape:?}: {}", searched.outcome);
            searched.steps
        };
        let (short, long) = (steps(1_000), steps(4_000));
        assert!(long < 6 * short, "{shape:?}: {short} steps for 1,000 grants, {long} for 4,000");
        assert!(long < 12 * 4_000, "{shape:?}: {long} steps for 4,000 grants");
    }
}

/// However long the history, what is shown of it can be read.
#[test]
fn the_part_that_is_wrong_is_small() {
    for (shape, kind) in [
        (Shape::exclusive(8, 3_000, 100), ModelKind::FencedMutex),
        (Shape::slots(3, 8, 3_000, 100), ModelKind::Permits(None)),
    ] {
        let events = locks::clean(shape, 3);
        for (name, mutate, caught_by) in mutate::LOCKS {
            let Some(broken) = mutate(&events, &mut Random::new(3)) else { continue };
            if !caught_by.contains(&kind.name()) {
                continue;
            }
            let history = History::from_events(broken).unwrap();
            let Outcome::Violated(part) = searched(&history, kind).outcome else { panic!("{name}") };
            assert!(part.rows.len() <= 20, "{name}, {kind}:\n{part}");
            assert!(!part.states.is_empty());
        }
    }
}
