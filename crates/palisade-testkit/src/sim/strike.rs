use std::time::Duration;

use super::plan::{Fault, Way};
use super::run::Simulation;
use crate::history::{Event, FaultKind};

/// How faults strike, and how they are healed.
impl Simulation {
    pub(super) fn strike(&mut self, number: usize) {
        let fault = self.plan.faults[number];
        self.record_fault(number, fault);
        let node = fault.node();
        match fault {
            Fault::Pause { .. } => self.nodes[node].paused += 1,
            Fault::Crash { .. } => {
                if self.nodes[node].is_alive() {
                    self.nodes[node].crash(&self.world);
                }
            }
            Fault::Leave { .. } => self.nodes[node].close(&self.world),
            Fault::Cut { way, silent, .. } => self.world.with(|state| {
                let link = &mut state.links[node];
                if way != Way::Back {
                    link.no_requests = Some(silent);
                }
                if way != Way::There {
                    link.no_answers = Some(silent);
                }
            }),
            Fault::Slow { by, .. } => self.world.with(|state| state.links[node].slow = by),
            Fault::Message { .. } => {}
        }
    }

    pub(super) fn heal(&mut self, number: usize) {
        self.world.with(|state| {
            let at = state.now();
            state.record(Event::Healed { fault: number as u64, at });
        });
        let fault = self.plan.faults[number];
        let node = fault.node();
        match fault {
            Fault::Pause { .. } => {
                self.nodes[node].paused -= 1;
                self.world.with(|state| state.went_on[node] = state.now());
                self.nodes[node].awake = true;
            }
            Fault::Leave { .. } => {
                if self.nodes[node].is_alive() {
                    self.nodes[node].crash(&self.world);
                }
                self.start(node);
            }
            Fault::Crash { .. } if !self.nodes[node].is_alive() => self.start(node),
            Fault::Crash { .. } | Fault::Message { .. } => {}
            Fault::Cut { .. } => self.world.with(|state| {
                state.links[node].no_requests = None;
                state.links[node].no_answers = None;
            }),
            Fault::Slow { .. } => self.world.with(|state| state.links[node].slow = Duration::ZERO),
        }
    }

    fn record_fault(&self, number: usize, fault: Fault) {
        let kind = match fault {
            Fault::Pause { .. } => FaultKind::Pause,
            Fault::Crash { .. } | Fault::Leave { .. } => FaultKind::Kill,
            Fault::Cut { .. } => FaultKind::Cut,
            Fault::Slow { .. } | Fault::Message { .. } => FaultKind::Slow,
        };
        let target = format!("node {}", fault.node());
        self.world.with(|state| {
            let (at, fault) = (state.now(), number as u64);
            state.record(Event::Fault { fault, at, kind, target, process: None });
        });
    }
}
