//! Histories of a lock that is right: processes that ask, wait, give up, hold, renew, stop, die.

use std::collections::BTreeMap;

use palisade_core::Token;

use super::random::Random;
use crate::history::{Answer, Call, Event, HoldMode, Nanos, OpId, ProcessId};

/// The lock's key.
pub(super) const KEY: &str = "lock";
const TICK: Nanos = 1_000;
/// How long a grant lives without a renewal.
const TTL: Nanos = 300 * TICK;

/// What to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) processes: usize,
    pub(super) grants: usize,
    /// Of a hundred.
    pub(super) shared: usize,
    pub(super) slots: Option<u32>,
    /// Of a thousand moves, how many are deaths, stops and lost answers.
    pub(super) faults: usize,
}

impl Shape {
    pub(super) const fn exclusive(processes: usize, grants: usize, faults: usize) -> Self {
        Self { processes, grants, shared: 0, slots: None, faults }
    }

    pub(super) const fn rw(processes: usize, grants: usize, faults: usize) -> Self {
        Self { shared: 60, ..Self::exclusive(processes, grants, faults) }
    }

    pub(super) const fn slots(of: u32, processes: usize, grants: usize, faults: usize) -> Self {
        Self { slots: Some(of), ..Self::exclusive(processes, grants, faults) }
    }
}

/// What a process is about.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Nothing,
    Waiting {
        op: OpId,
        mode: HoldMode,
    },
    /// Let in, not told yet.
    LetIn {
        op: OpId,
    },
    Holding {
        op: OpId,
    },
    /// Asked to give back; the lock has heard of it or not.
    Leaving {
        op: OpId,
        hold: OpId,
        heard: bool,
    },
    /// Stopped: it holds and does not renew.
    Stopped {
        op: OpId,
    },
}

/// A grant, as the lock knows it.
#[derive(Debug, Clone, Copy)]
struct Inside {
    mode: HoldMode,
    slot: Option<u32>,
    token: u64,
    /// Never before this.
    deadline: Nanos,
    /// Nobody renews it any more.
    abandoned: bool,
}

struct World {
    random: Random,
    shape: Shape,
    now: Nanos,
    events: Vec<Event>,
    inside: BTreeMap<OpId, Inside>,
    tokens: u64,
    ops: OpId,
    processes: Vec<(ProcessId, Doing)>,
    born: ProcessId,
    grants: usize,
}

/// Makes a clean history.
pub(super) fn clean(shape: Shape, seed: u64) -> Vec<Event> {
    let born = shape.processes as ProcessId;
    let mut world = World {
        random: Random::new(seed),
        shape,
        now: TICK,
        events: Vec::new(),
        inside: BTreeMap::new(),
        tokens: 0,
        ops: 0,
        processes: (0..born).map(|process| (process, Doing::Nothing)).collect(),
        born,
        grants: 0,
    };
    while world.grants < shape.grants {
        world.now += TICK;
        world.expire();
        let index = world.random.below(shape.processes);
        world.act(index);
    }
    world.events
}

impl World {
    /// Ends what was not renewed, some time after its deadline.
    fn expire(&mut self) {
        let (now, late) = (self.now, self.random.percent(50));
        self.inside.retain(|_, inside| !(late && inside.abandoned && inside.deadline < now));
        // Whoever is alive renews in time.
        for (op, inside) in &mut self.inside {
            if !inside.abandoned && inside.deadline < now + TTL / 2 {
                inside.deadline = now + TTL;
                self.events.push(Event::Valid { hold: *op, at: now, until: Some(now + TTL) });
            }
        }
    }

    fn act(&mut self, index: usize) {
        let (process, doing) = self.processes[index];
        let (at, fault) = (self.now, self.random.below(1000) < self.shape.faults);
        self.processes[index].1 = match doing {
            Doing::Nothing => self.ask(process),
            Doing::Waiting { op, .. } if fault => self.give_up(op),
            Doing::Waiting { op, mode } => self.try_in(op, mode),
            Doing::LetIn { op } => self.told(op),
            Doing::Holding { op } if fault && self.random.percent(50) => {
                self.events.push(Event::Died { process, at });
                self.abandon(op);
                self.processes[index].0 = self.born;
                self.born += 1;
                Doing::Nothing
            }
            Doing::Holding { op } if fault => {
                self.abandon(op);
                Doing::Stopped { op }
            }
            Doing::Holding { op } => self.leave(process, op),
            Doing::Leaving { op, hold, heard: false } => {
                self.inside.remove(&hold);
                Doing::Leaving { op, hold, heard: true }
            }
            Doing::Leaving { op, .. } if fault => {
                self.events.push(Event::Return { op, at, answer: Answer::Unknown { reason: "cut".into() } });
                Doing::Nothing
            }
            Doing::Leaving { op, .. } => {
                self.events.push(Event::Return { op, at, answer: Answer::Released { in_time: true } });
                Doing::Nothing
            }
            Doing::Stopped { op } if self.inside.contains_key(&op) => doing,
            Doing::Stopped { op } => {
                self.events.push(Event::Lost { hold: op, at, reason: "expired".into() });
                Doing::Nothing
            }
        };
    }

    fn abandon(&mut self, op: OpId) {
        if let Some(inside) = self.inside.get_mut(&op) {
            inside.abandoned = true;
        }
    }

    fn ask(&mut self, process: ProcessId) -> Doing {
        self.ops += 1;
        let mode = match self.shape.slots {
            Some(of) => HoldMode::Slot(of),
            None if self.random.percent(self.shape.shared) => HoldMode::Shared,
            None => HoldMode::Exclusive,
        };
        let (op, call) = (self.ops, Call::Acquire { mode });
        self.events.push(Event::Call { op, process, at: self.now, key: KEY.into(), call });
        Doing::Waiting { op, mode }
    }

    /// Gives up: without effect, or nobody knows, in which case it may have been let in.
    fn give_up(&mut self, op: OpId) -> Doing {
        let reason = "late".to_owned();
        let answer =
            if self.random.percent(50) { Answer::Failed { reason } } else { Answer::Unknown { reason } };
        self.events.push(Event::Return { op, at: self.now, answer });
        Doing::Nothing
    }

    fn try_in(&mut self, op: OpId, mode: HoldMode) -> Doing {
        let is_taken = |slot: u32| self.inside.values().any(|inside| inside.slot == Some(slot));
        let (fits, slot) = match mode {
            HoldMode::Exclusive => (self.inside.is_empty(), None),
            HoldMode::Shared => (self.inside.values().all(|inside| inside.mode == HoldMode::Shared), None),
            HoldMode::Slot(of) => {
                let slot = (0..of).find(|slot| !is_taken(*slot));
                (slot.is_some(), slot)
            }
        };
        if !fits {
            return Doing::Waiting { op, mode };
        }
        self.tokens += 1 + self.random.below(2) as u64;
        let inside = Inside { mode, slot, token: self.tokens, deadline: self.now + TTL, abandoned: false };
        self.inside.insert(op, inside);
        Doing::LetIn { op }
    }

    fn told(&mut self, op: OpId) -> Doing {
        let inside = self.inside[&op];
        let answer = Answer::Granted {
            token: Token::new(inside.token),
            slot: inside.slot,
            until: Some(inside.deadline),
        };
        self.events.push(Event::Return { op, at: self.now, answer });
        self.grants += 1;
        Doing::Holding { op }
    }

    fn leave(&mut self, process: ProcessId, hold: OpId) -> Doing {
        if self.random.percent(60) {
            return Doing::Holding { op: hold };
        }
        self.ops += 1;
        let call = Call::Release { hold: Some(hold) };
        self.events.push(Event::Call { op: self.ops, process, at: self.now, key: KEY.into(), call });
        Doing::Leaving { op: self.ops, hold, heard: false }
    }
}
