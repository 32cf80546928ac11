use super::plan::{Fault, Way};
use super::run::Simulation;
use super::world::{Link, NodeId};
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
            Fault::Cut { .. } | Fault::Slow { .. } => {
                self.on_lines.insert(number);
                self.relink(node);
            }
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
            Fault::Cut { .. } | Fault::Slow { .. } => {
                self.on_lines.remove(&number);
                self.relink(node);
            }
        }
    }

    /// Sets a node's line to what all faults that strike it now make of it: one that is over does
    /// not heal another that goes on.
    fn relink(&self, node: NodeId) {
        let mut link = Link::default();
        for fault in self.on_lines.iter().map(|number| self.plan.faults[*number]) {
            if fault.node() == node {
                link.suffers(fault);
            }
        }
        self.world.with(|state| state.links[node] = link);
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

impl Link {
    /// Of two cuts, a silent one keeps everything silent; of two that make it slow, the slower counts.
    fn suffers(&mut self, fault: Fault) {
        match fault {
            Fault::Cut { way, silent, .. } => {
                let cut = |before: Option<bool>| Some(silent || before == Some(true));
                if way != Way::Back {
                    self.no_requests = cut(self.no_requests);
                }
                if way != Way::There {
                    self.no_answers = cut(self.no_answers);
                }
            }
            Fault::Slow { by, .. } => self.slow = self.slow.max(by),
            _ => {}
        }
    }
}
