use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use palisade::{Client, Fenced, Guard, Released, Stale};
use palisade_core::{Clock, Effect as Done, Error};
use tokio::task::JoinHandle;

use super::clock::NodeClock;
use super::held::{Held, take};
use super::plan::{Effect, End, Patience, Phase, Step, Want};
use super::world::{NodeId, World};
use crate::history::{Answer, Call, Event, Nanos, OpId, ProcessId};
use crate::{CancelAfter, Cancelled};

/// One task of a node: it takes, uses and gives back, and all of it goes on record.
pub(super) struct Worker {
    pub(super) world: World,
    pub(super) node: NodeId,
    pub(super) process: ProcessId,
    pub(super) client: Client,
    pub(super) clock: NodeClock,
    /// How often a guard is asked whether it is valid.
    pub(super) look: Duration,
    pub(super) call_timeout: Duration,
    pub(super) ttl: Duration,
}

/// What is known of a guard.
struct Seen {
    op: OpId,
    key: String,
    /// When it was last looked at.
    valid: AtomicBool,
}

/// Tells the world that a worker has ended, however it ended.
struct Working<'a>(&'a Worker);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let node = self.0.node;
        self.0.world.with(|state| state.working[node] = state.working[node].saturating_sub(1));
    }
}

impl Worker {
    /// Does what is left of a task: a step in which its node crashed is not done again.
    pub(super) async fn work(self, task: usize, steps: Vec<Step>) {
        let _working = Working(&self);
        let begun = self.world.with(|state| state.begun[self.node][task]);
        for step in steps.iter().skip(begun) {
            self.world.with(|state| state.begun[self.node][task] += 1);
            self.rest(step.after).await;
            if self.world.with(|state| state.leaving[self.node]) {
                return;
            }
            self.step(step).await;
        }
    }

    /// Takes every key once and gives it back: once nothing disturbs any more, that must work.
    pub(super) async fn check_all(self, keys: Vec<(Want, u8)>) {
        let _working = Working(&self);
        for (want, number) in keys {
            let step = Step {
                after: Duration::ZERO,
                want,
                number,
                patience: Patience::Forever,
                hold: Duration::ZERO,
                longest_hold: None,
                effect: Effect::Checked,
                end: End::Release,
                cancel: None,
            };
            if !self.step(&step).await {
                let key = want.key(number);
                let what = format!("node {} could not take it although nothing disturbs any more", self.node);
                self.world.violated("progress", &key, Vec::new(), what);
            }
        }
    }

    async fn rest(&self, time: Duration) {
        if !time.is_zero() {
            self.clock.sleep_until(self.clock.now() + time).await;
        }
    }

    /// Whether it was granted.
    async fn step(&self, step: &Step) -> bool {
        let key = step.want.key(step.number);
        let op = self.world.ask(self.process, &key, Call::Acquire { mode: step.want.mode() });
        let asked = self.world.now();
        let taken = cut(step, Phase::Acquire, take(&self.client, step)).await;
        self.was_patient(step, asked, op, &key);
        let held = match taken {
            Ok(Ok(Some(held))) => held,
            Ok(Ok(None)) => return self.failed(op, "not to be had"),
            Ok(Err(error)) => return self.failed(op, &kind(&error)),
            Err(Cancelled) => return self.failed(op, "cancelled"),
        };
        let until = held.guard().deadline().map(|at| self.clock.world_at(at));
        let granted = Answer::Granted { token: Some(held.guard().token()), slot: held.slot(), until };
        self.world.answer(op, granted);
        let watch = self.watch(op, held.guard());
        let seen = Seen { op, key: key.clone(), valid: AtomicBool::new(true) };
        match step.effect {
            Effect::Checked | Effect::Zombie if step.want != Want::Read => self.add(step, &held, &seen).await,
            _ => self.hold(step, held.guard(), &seen).await,
        }
        self.look(held.guard(), &seen);
        if !seen.valid.load(Ordering::Relaxed) {
            // Who was told that it is lost gives it back after that, not at the very same moment: on
            // record, of two things that share a moment neither is the first.
            self.rest(Duration::from_micros(1)).await;
        }
        drop(watch);
        self.give_back(step, held, op, &key).await;
        true
    }

    fn failed(&self, op: OpId, reason: &str) -> bool {
        self.world.answer(op, Answer::Failed { reason: reason.to_owned() });
        false
    }

    /// Whoever waits for a limited time does not wait much longer, unless its process stood still.
    fn was_patient(&self, step: &Step, asked: Nanos, op: OpId, key: &str) {
        let limit = match step.patience {
            // It leaves the queue before it says so.
            Patience::Within(limit) => limit + self.call_timeout,
            // It asks again for as long as a claim lives, and the last time may take a whole call.
            Patience::Once => self.ttl + self.call_timeout,
            Patience::Forever => return,
        };
        // Clocks may differ by a few thousandths.
        let (limit, now) = (limit + limit / 100, self.world.now());
        let took = Duration::from_nanos(now - asked);
        if took > limit && self.world.with(|state| state.went_on[self.node]) < asked {
            let what = format!("it took {took:?} where {limit:?} is the most");
            self.world.violated("patience", key, vec![op], what);
        }
    }

    /// Notes when the guard is told that it is lost.
    fn watch(&self, op: OpId, guard: &Guard) -> Watch {
        let (world, lost) = (self.world.clone(), guard.lost());
        Watch(tokio::spawn(async move {
            let reason = lost.await.to_string();
            world.with(|state| {
                let at = state.now();
                state.record(Event::Lost { hold: op, at, reason });
            });
        }))
    }

    /// Holds for as long as planned, or until told that it is lost unless it does not care.
    async fn hold(&self, step: &Step, guard: &Guard, seen: &Seen) {
        let end = self.clock.now() + step.hold;
        let mut lost = Box::pin(guard.lost());
        self.look(guard, seen);
        while self.clock.now() < end {
            let next = end.min(self.clock.now() + self.look);
            match select(&mut lost, self.clock.sleep_until(next)).await {
                Either::Left(_) if step.effect == Effect::Zombie => {
                    seen.valid.store(false, Ordering::Relaxed);
                    self.clock.sleep_until(end).await;
                    return;
                }
                Either::Left(_) => return,
                Either::Right(_) => self.look(guard, seen),
            }
        }
    }

    /// Looks at the guard while something else goes on.
    async fn meanwhile<T>(&self, guard: &Guard, seen: &Seen, work: impl Future<Output = T>) -> T {
        let mut work = Box::pin(work);
        loop {
            match select(work, self.clock.sleep_until(self.clock.now() + self.look)).await {
                Either::Left((done, _)) => return done,
                Either::Right(((), rest)) => work = rest,
            }
            self.look(guard, seen);
        }
    }

    /// Asks the guard whether it is valid, which it may never be again once it was not.
    fn look(&self, guard: &Guard, seen: &Seen) {
        let until = guard.deadline().map(|at| self.clock.world_at(at));
        let valid = guard.is_valid();
        let was_valid = seen.valid.swap(valid, Ordering::Relaxed);
        if valid && !was_valid {
            let what = "a guard became valid again".to_owned();
            self.world.violated("validity", &seen.key, vec![seen.op], what);
        }
        if valid {
            self.world.with(|state| {
                let at = state.now();
                state.record(Event::Valid { hold: seen.op, at, until });
            });
        }
    }

    /// Adds to the set that the lock protects, as one reads, changes and writes a file.
    async fn add(&self, step: &Step, held: &Held, seen: &Seen) {
        let set = match held.slot() {
            Some(slot) => format!("set/{}/{slot}", step.want.key(step.number)),
            None => format!("set/{}", step.want.key(step.number)),
        };
        let element = seen.op.to_string();
        let add = self.world.ask(self.process, &set, Call::Add { element: element.clone() });
        let Ok(register) = self.client.register(&set) else { return };
        let open = cut(step, Phase::Open, register.fenced(held.guard()));
        let opened = match self.meanwhile(held.guard(), seen, open).await {
            Ok(opened) => opened,
            Err(Cancelled) => Err(Stale::Failed(Error::new(palisade::ErrorKind::Timeout, "cancelled"))),
        };
        self.hold(step, held.guard(), seen).await;
        let answer = match opened {
            Err(Stale::Failed(error)) => Answer::Failed { reason: kind(&error) },
            Err(_) => Answer::Refused { version: None, stale: true },
            Ok(_) if step.effect == Effect::Checked && !held.guard().is_valid() => {
                Answer::Failed { reason: "the guard is not valid any more".to_owned() }
            }
            Ok(opened) => self.meanwhile(held.guard(), seen, written(step, &opened, &element)).await,
        };
        self.world.answer(add, answer);
    }

    async fn give_back(&self, step: &Step, held: Held, op: OpId, key: &str) {
        let release = self.world.ask(self.process, key, Call::Release { hold: Some(op) });
        let claim = held.guard().claim_id();
        let answer = match step.end {
            End::Drop => {
                drop(held);
                Answer::Unknown { reason: "dropped".to_owned() }
            }
            End::Release => match cut(step, Phase::Release, held.release()).await {
                Ok(Ok(released)) => {
                    if !self.world.with(|state| state.withdrawn.contains(&claim)) {
                        let what = "said to be released, but the server knows nothing of it".to_owned();
                        self.world.violated("release", key, vec![op], what);
                    }
                    Answer::Released { in_time: released == Released::InTime }
                }
                Ok(Err(error)) => Answer::Unknown { reason: kind(&error) },
                Err(Cancelled) => Answer::Unknown { reason: "cancelled".to_owned() },
            },
        };
        self.world.answer(release, answer);
    }
}

async fn written(step: &Step, opened: &Fenced, element: &str) -> Answer {
    let before = opened.opened().value.as_deref().map(String::from_utf8_lossy);
    let value = match before {
        Some(before) => format!("{before},{element}"),
        None => element.to_owned(),
    };
    match cut(step, Phase::Write, opened.write(value)).await {
        Ok(Ok(version)) => Answer::Done { version: version.to_string().parse().ok() },
        Ok(Err(Stale::Failed(error))) if error.effect() == Done::None => {
            Answer::Failed { reason: kind(&error) }
        }
        Ok(Err(Stale::Failed(error))) => Answer::Unknown { reason: kind(&error) },
        Ok(Err(_)) => Answer::Refused { version: None, stale: true },
        Err(Cancelled) => Answer::Unknown { reason: "cancelled".to_owned() },
    }
}

/// Cancels `work` if the step says that this phase is cancelled.
async fn cut<T>(step: &Step, phase: Phase, work: impl Future<Output = T>) -> Result<T, Cancelled> {
    let polls = step.cancel.filter(|cancel| cancel.phase == phase).map_or(usize::MAX, |cancel| cancel.polls);
    CancelAfter::new(polls, work).await
}

/// Errors by kind only: their text may differ from process to process.
fn kind(error: &Error) -> String {
    format!("{:?}", error.kind())
}

/// A task that watches a guard, for as long as it is watched.
struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}
