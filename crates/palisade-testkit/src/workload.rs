//! Many tasks over several connections on one resource, with what must hold while they run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use palisade_core::{Claim, Grant, Mode, Token};
use parking_lot::Mutex;

use crate::context::name;
use crate::{Context, Session};

/// How much happens at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) connections: u32,
    pub(crate) tasks: u32,
    pub(crate) rounds: u32,
}

/// What is known of those inside a resource.
#[derive(Debug, Default)]
struct Inside {
    exclusive: AtomicI64,
    shared: AtomicI64,
    slots: Mutex<Vec<u32>>,
    /// Of the last holder that came in alone.
    last: Mutex<Option<Token>>,
}

impl Workload {
    /// All tasks take the resource alone, in the case's way.
    pub(crate) async fn alone(self, context: &Context) -> Result<()> {
        let make = |context: &Context, _: u32| context.alone(&name("shared by all"));
        self.run(context, make).await
    }

    /// One task in `writers` takes it alone, the others share it.
    pub(crate) async fn readers_and_writers(self, context: &Context) -> Result<()> {
        let make = |context: &Context, turn: u32| {
            let mode = if turn.is_multiple_of(4) { Mode::Exclusive } else { Mode::Shared };
            context.claim(&name("shared by all"), mode).family(palisade_core::Family::Rw)
        };
        self.run(context, make).await
    }

    /// All tasks take one slot of three.
    pub(crate) async fn slots(self, context: &Context) -> Result<()> {
        let make = |context: &Context, _: u32| context.claim(&name("shared by all"), Mode::Slot { of: 3 });
        self.run(context, make).await
    }

    async fn run(self, context: &Context, make: fn(&Context, u32) -> Claim) -> Result<()> {
        let inside = Arc::new(Inside::default());
        let mut sessions = Vec::new();
        for _ in 0..self.connections {
            sessions.push(context.connect().await?);
        }
        let tasks = (0..self.tasks).map(|task| {
            let (session, inside) =
                (sessions[(task % self.connections) as usize].clone(), Arc::clone(&inside));
            let context = context.clone();
            // Spawned, so that tasks run on several threads at once.
            tokio::spawn(async move {
                for round in 0..self.rounds {
                    turn(&session, &inside, make(&context, task + round)).await?;
                }
                anyhow::Ok(())
            })
        });
        for outcome in try_join_all(tasks).await? {
            outcome?;
        }
        Ok(())
    }
}

async fn turn(session: &Session, inside: &Inside, claim: Claim) -> Result<()> {
    let claim = Arc::new(claim);
    let grant = session.acquire(&claim).await?;
    inside.enter(&claim, &grant)?;
    // Lets the others run while this one holds, which is when a second holder would show.
    tokio::task::yield_now().await;
    inside.leave(&claim, &grant);
    session.release(&claim).await
}

impl Inside {
    fn enter(&self, claim: &Claim, grant: &Grant) -> Result<()> {
        match claim.mode {
            Mode::Exclusive => {
                let (others, readers) =
                    (self.exclusive.fetch_add(1, Ordering::SeqCst), self.shared.load(Ordering::SeqCst));
                ensure!(
                    others == 0 && readers == 0,
                    "{others} writers and {readers} readers beside a writer"
                );
                self.follow(grant.token)
            }
            Mode::Shared => {
                self.shared.fetch_add(1, Ordering::SeqCst);
                let writers = self.exclusive.load(Ordering::SeqCst);
                ensure!(writers == 0, "{writers} writers beside a reader");
                Ok(())
            }
            Mode::Slot { of } => {
                let slot = grant.slot.unwrap_or(u32::MAX);
                let mut slots = self.slots.lock();
                ensure!(slot < of, "slot {slot} of {of}");
                ensure!(!slots.contains(&slot), "slot {slot} is held twice");
                slots.push(slot);
                if of == 1 { self.follow(grant.token) } else { Ok(()) }
            }
        }
    }

    /// Of two grants that exclude each other, the later one has the greater token.
    fn follow(&self, token: Token) -> Result<()> {
        let before = self.last.lock().replace(token);
        ensure!(before < Some(token), "token {token} came after {before:?}");
        Ok(())
    }

    fn leave(&self, claim: &Claim, grant: &Grant) {
        match claim.mode {
            Mode::Exclusive => drop(self.exclusive.fetch_sub(1, Ordering::SeqCst)),
            Mode::Shared => drop(self.shared.fetch_sub(1, Ordering::SeqCst)),
            Mode::Slot { .. } => self.slots.lock().retain(|slot| Some(*slot) != grant.slot),
        }
    }
}
