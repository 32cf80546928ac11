use std::sync::Arc;

use palisade::Client;
use palisade_core::{Signal, Signals};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::broadcast;

use super::bug::{Bug, Store};
use super::clock::NodeClock;
use super::dice::{ClientDice, Dice};
use super::line::Line;
use super::plan::{Plan, Want};
use super::worker::Worker;
use super::world::{NodeId, World};
use crate::history::{Event, ProcessId};

/// A simulated process: a real client on a runtime of its own.
///
/// The runtime has neither timers nor sockets, and runs only when it is its turn. Not running it
/// is a pause; dropping it is a crash.
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) incarnation: u32,
    /// Whether something may have happened since it last ran.
    pub(super) awake: bool,
    /// How many pauses hold it up.
    pub(super) paused: u32,
    /// Its tasks.
    pub(super) processes: Vec<ProcessId>,
    life: Option<Life>,
}

struct Life {
    /// Dropped first: a crash runs nothing any more.
    runtime: Runtime,
    client: Client,
    clock: NodeClock,
    signals: Signals,
    /// What the server tells this connection.
    told: broadcast::Receiver<Signal>,
}

impl Node {
    pub(super) fn new(id: NodeId) -> Self {
        Self { id, incarnation: 0, awake: false, paused: 0, processes: Vec::new(), life: None }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.life.is_some()
    }

    /// Starts a client in this place.
    pub(super) fn start(
        &mut self,
        world: &World,
        plan: &Plan,
        store: &Store,
        bug: Option<Bug>,
    ) -> Result<(), String> {
        // Runs its tasks until none can go on before it looks up.
        let runtime = Builder::new_current_thread().event_interval(u32::MAX).build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let clock = NodeClock::of_node(world, self.id, &plan.nodes[self.id]);
        let (remote, signals) = (store.connect(), Signals::new());
        let told = remote.signals().subscribe();
        let line = Line {
            world: world.clone(),
            node: self.id,
            clock: clock.clone(),
            remote,
            signals: signals.clone(),
            bug,
            known: parking_lot::Mutex::default(),
        };
        let row = 10_000 + self.id as u64 * 1000 + u64::from(self.incarnation);
        let client = {
            let _inside = runtime.enter();
            Client::builder()
                .label(self.label())
                .ttl(plan.ttl)
                .call_timeout(plan.call_timeout)
                .clock(Arc::new(clock.clone()))
                .chance(Arc::new(ClientDice::new(Dice::new(plan.seed, row))))
                .over(Arc::new(line))
                .map_err(|error| error.to_string())?
        };
        world.with(|state| state.leaving[self.id] = false);
        self.life = Some(Life { runtime, client, clock, signals, told });
        self.awake = true;
        Ok(())
    }

    /// What others see of it.
    pub(super) fn label(&self) -> String {
        format!("{}.{}", self.id, self.incarnation)
    }

    fn worker(&mut self, world: &World, plan: &Plan, process: ProcessId) -> Option<Worker> {
        let life = self.life.as_ref()?;
        self.awake = true;
        self.processes.push(process);
        world.with(|state| state.working[self.id] += 1);
        Some(Worker {
            world: world.clone(),
            node: self.id,
            process,
            client: life.client.clone(),
            clock: life.clock.clone(),
            look: plan.ttl / 5,
            call_timeout: plan.call_timeout,
            ttl: plan.ttl,
        })
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(life) = &self.life {
            drop(life.runtime.spawn(work));
        }
    }

    /// Lets a task do what is left of its steps.
    pub(super) fn work(&mut self, world: &World, plan: &Plan, process: ProcessId, task: usize) {
        if let Some(worker) = self.worker(world, plan, process) {
            self.spawn(worker.work(task, plan.nodes[self.id].tasks[task].clone()));
        }
    }

    /// Lets a task take every key once.
    pub(super) fn check_all(
        &mut self,
        world: &World,
        plan: &Plan,
        process: ProcessId,
        keys: Vec<(Want, u8)>,
    ) {
        if let Some(worker) = self.worker(world, plan, process) {
            self.spawn(worker.check_all(keys));
        }
    }

    /// Closes the client, and lets go of it.
    pub(super) fn close(&mut self, world: &World) {
        let Some(life) = &self.life else { return };
        let (client, world, node) = (life.client.clone(), world.clone(), self.id);
        world.with(|state| {
            state.leaving[node] = true;
            state.working[node] += 1;
        });
        self.spawn(async move {
            client.close().await;
            world.with(|state| state.working[node] -= 1);
        });
        self.awake = true;
    }

    /// How many tasks its runtime still has.
    pub(super) fn tasks(&self) -> usize {
        self.life.as_ref().map_or(0, |life| life.runtime.metrics().num_alive_tasks())
    }

    /// Runs until nothing can go on without time or a message.
    pub(super) fn run(&mut self) {
        self.awake = false;
        let Some(life) = &self.life else { return };
        life.runtime.block_on(async {
            // Comes back when the queue was empty; once more for those who yielded meanwhile.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        });
    }

    /// Everything ends here, between two instructions.
    pub(super) fn crash(&mut self, world: &World) {
        world.with(|state| {
            let at = state.now();
            for process in self.processes.drain(..) {
                state.record(Event::Died { process, at });
            }
        });
        self.life = None;
        self.incarnation += 1;
        self.awake = false;
        world.with(|state| state.working[self.id] = 0);
    }

    /// What the server wants to tell.
    pub(super) fn next_signal(&mut self) -> Option<Signal> {
        self.life.as_mut()?.told.try_recv().ok()
    }

    /// What the server told has come.
    pub(super) fn hear(&mut self, signal: Signal) {
        if let Some(life) = &self.life {
            life.signals.send(signal);
            self.awake = true;
        }
    }
}
