use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use palisade_core::{Name, Page, Reading, Selector};

use super::bug::{Bug, Store};
use super::clock::NodeClock;
use super::judge;
use super::node::Node;
use super::plan::{Plan, Want};
use super::server::Server;
use super::world::{Happening, SERVER, World};
use crate::check::Violation;
use crate::history::{Answer, Call, Event, Nanos, ProcessId};

/// What a simulation showed.
#[derive(Debug, Clone)]
pub struct Run {
    /// What must never be, and was.
    pub violations: Vec<Violation>,
    /// Everything that was asked, answered and believed, in simulated time.
    pub events: Vec<Event>,
    /// All of that and every message, line by line; empty unless asked for.
    pub trace: Vec<String>,
    /// How long it took in simulated time.
    pub time: Duration,
    /// How many things happened: messages, timers, faults.
    pub happenings: u64,
}

impl Run {
    /// A number that differs if any line of the trace does (64-bit FNV-1a).
    pub fn digest(&self) -> u64 {
        let bytes = self.trace.iter().flat_map(|line| line.bytes().chain([b'\n']));
        bytes.fold(0xCBF2_9CE4_8422_2325, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }
}

/// Carries out a plan.
pub fn simulate(plan: &Plan, bug: Option<Bug>, traced: bool) -> Run {
    let plan = Arc::new(plan.clone());
    let world = World::new(Arc::clone(&plan), traced);
    let store = Store::new(bug, Arc::new(NodeClock::of_server(&world)));
    let mut simulation = Simulation {
        server: Server::new(world.clone(), bug),
        nodes: (0..plan.nodes.len()).map(Node::new).collect(),
        plan,
        world,
        store,
        bug,
        on_lines: BTreeSet::new(),
        processes: Vec::new(),
        happenings: 0,
    };
    simulation.run();
    simulation.finish()
}

/// A simulation under way.
pub(super) struct Simulation {
    // Dropped first: its tasks may still look at the world.
    pub(super) nodes: Vec<Node>,
    server: Server,
    pub(super) plan: Arc<Plan>,
    pub(super) world: World,
    store: Store,
    bug: Option<Bug>,
    /// The faults that cut lines or slow them down, while they do.
    pub(super) on_lines: BTreeSet<usize>,
    /// On which node each process is, by its number.
    processes: Vec<usize>,
    happenings: u64,
}

impl Simulation {
    /// More than this is no simulation any more but something that spins.
    const MOST: u64 = 1_000_000;

    fn run(&mut self) {
        self.world.with(|state| {
            for (number, fault) in self.plan.faults.iter().enumerate() {
                if let Some(at) = fault.strikes_at() {
                    state.plan_in(at, Happening::Strike(number));
                    state.plan_in(fault.over(), Happening::Heal(number));
                }
            }
        });
        for node in 0..self.nodes.len() {
            self.start(node);
        }
        self.pass(self.plan.calm_after() + Duration::from_nanos(1), |_| false);
        self.world.with(|state| {
            let at = state.now();
            state.is_calm = true;
            state.record(Event::Calm { at });
        });
        self.all_is_served();
        self.nothing_is_left();
    }

    /// Once nothing disturbs any more, everyone gets everything within a bound.
    fn all_is_served(&mut self) {
        let steps = self.plan.nodes.iter().flat_map(|node| &node.tasks).flatten();
        let keys: BTreeSet<(Want, u8)> = steps.map(|step| (step.want, step.number)).collect();
        let keys: Vec<(Want, u8)> = keys.into_iter().collect();
        for node in 0..self.nodes.len() {
            let process = self.next_process(node);
            self.nodes[node].check_all(&self.world, &self.plan, process, keys.clone());
        }
        if !self.pass(self.plan.longest(), Self::is_at_rest) {
            let working = self.world.with(|state| state.working.clone());
            let what = format!(
                "after {:?} without faults, tasks per node still wait: {working:?}",
                self.plan.longest()
            );
            self.world.violated("progress", "", Vec::new(), what);
        }
    }

    fn is_at_rest(&self) -> bool {
        self.world.with(|state| state.working.iter().all(|working| *working == 0))
    }

    /// What nobody holds any more must be gone: from the server, and from the clients.
    fn nothing_is_left(&mut self) {
        self.pass(Duration::from_secs(5), |_| false);
        self.audit(false, "although all guards are gone");
        for node in &mut self.nodes {
            node.close(&self.world);
        }
        if !self.pass(Duration::from_secs(30), |simulation| {
            simulation.is_at_rest() && simulation.nodes.iter().all(|node| node.tasks() == 0)
        }) {
            let tasks: Vec<usize> = self.nodes.iter().map(Node::tasks).collect();
            let what = format!("30 s after all clients were closed, tasks per node still run: {tasks:?}");
            self.world.violated("leak", "", Vec::new(), what);
        }
        self.audit(false, "although all clients are closed");
        // What a node sent before it crashed may still be on its way, and lives for a TTL from then on.
        if !self.pass(self.plan.latest(), |simulation| !simulation.world.with(|state| state.has_requests())) {
            let what =
                format!("{:?} after all clients were closed, requests are on their way", self.plan.latest());
            self.world.violated("leak", "", Vec::new(), what);
        }
        self.pass(self.plan.ttl + Duration::from_nanos(1), |_| false);
        self.audit(true, "although the last TTL is over");
        self.read_sets();
    }

    /// No claim of a node that lives may be there, nor in the end any other: those of crashed ones
    /// end with their TTL.
    fn audit(&mut self, in_the_end: bool, why: &str) {
        let engine = self.store.connect();
        let look = engine.inspect(&Selector::resources(""), &Page::default()).now_or_never();
        let seen = match look {
            Some(Ok(seen)) if seen.next.is_none() => seen,
            other => {
                let what = format!("the server could not be looked at: {other:?}");
                return self.world.violated("audit", "", Vec::new(), what);
            }
        };
        let alive: BTreeSet<String> = self.nodes.iter().map(Node::label).collect();
        for view in &seen.resources {
            for claim in view.holders.iter().chain(&view.waiters) {
                let label = claim.owner.label.clone().unwrap_or_default();
                if in_the_end || alive.contains(&label) {
                    let state = if claim.token.is_some() { "holds" } else { "waits" };
                    let what = format!("a claim of node {label} still {state} {why}");
                    self.world.violated("leak", view.resource.as_str(), Vec::new(), what);
                }
            }
        }
    }

    /// What the sets hold in the end.
    fn read_sets(&mut self) {
        let sets = self.world.with(|state| {
            let adds = state.events.iter().filter_map(|event| match event {
                Event::Call { key, call: Call::Add { .. }, .. } => Some(key.clone()),
                _ => None,
            });
            adds.collect::<BTreeSet<String>>()
        });
        let (engine, process) = (self.store.connect(), self.next_process(SERVER));
        for set in sets {
            let Ok(name) = Name::new(set.clone()) else { continue };
            let op = self.world.ask(process, &set, Call::Read);
            match engine.read(&name, None).now_or_never() {
                Some(Ok(Reading::Fresh(entry))) => {
                    let value = entry.value.map(|value| String::from_utf8_lossy(&value).into_owned());
                    self.world.answer(op, Answer::Value { value, version: None });
                }
                other => {
                    let what = format!("it could not be read in the end: {other:?}");
                    self.world.violated("audit", &set, vec![op], what);
                }
            }
        }
    }

    fn next_process(&mut self, node: usize) -> ProcessId {
        self.processes.push(node);
        self.processes.len() as ProcessId - 1
    }

    pub(super) fn start(&mut self, node: usize) {
        if let Err(problem) = self.nodes[node].start(&self.world, &self.plan, &self.store, self.bug) {
            self.world.violated("start", "", Vec::new(), problem);
            return;
        }
        for task in 0..self.plan.nodes[node].tasks.len() {
            let process = self.next_process(node);
            self.nodes[node].work(&self.world, &self.plan, process, task);
        }
    }

    /// Lets time pass until `done`, at most for `time`. Returns whether it is done.
    fn pass(&mut self, time: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let until = self.world.now() + time.as_nanos() as Nanos;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            self.happenings += 1;
            if self.happenings > Self::MOST {
                self.world.violated("progress", "", Vec::new(), "it spins".to_owned());
                return false;
            }
            match self.world.next(until) {
                Some(happening) => self.happen(happening),
                None => return done(self),
            }
        }
    }

    /// Lets everyone run who can, without time passing.
    fn settle(&mut self) {
        loop {
            let mut ran = self.server.run();
            for node in &mut self.nodes {
                if node.awake && node.paused == 0 {
                    node.run();
                    ran = true;
                }
            }
            self.pass_signals_on();
            if !ran {
                return;
            }
        }
    }

    fn pass_signals_on(&mut self) {
        for node in &mut self.nodes {
            while let Some(signal) = node.next_signal() {
                self.world.with(|state| {
                    let link = state.links[node.id];
                    if link.no_answers.is_none() {
                        let after = self.plan.nodes[node.id].latency.1 + link.slow / 2;
                        state.plan_in(after, Happening::Told(node.id, node.incarnation, signal));
                    }
                });
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Wake(node, waker) => {
                if node != SERVER {
                    self.nodes[node].awake = true;
                }
                waker.wake();
            }
            Happening::Arrive(envelope) => self.server.arrive(*envelope),
            Happening::Answered(node, slot, outcome) => {
                self.nodes[node].awake = true;
                slot.put(*outcome);
            }
            Happening::Told(node, incarnation, signal) => {
                if self.nodes[node].incarnation == incarnation {
                    self.nodes[node].hear(signal);
                }
            }
            Happening::Strike(number) => self.strike(number),
            Happening::Heal(number) => self.heal(number),
        }
    }

    fn finish(self) -> Run {
        let Self { nodes, server, world, plan, happenings, processes, .. } = self;
        drop((nodes, server));
        let (events, mut violations, now) = world.with(|state| {
            (std::mem::take(&mut state.events), std::mem::take(&mut state.violations), state.now())
        });
        violations.extend(judge::judge(&events, &plan, &processes));
        let time = Duration::from_nanos(now - World::START);
        Run { violations, events, trace: world.take_trace(), time, happenings }
    }
}
