//! The memory engine's floor: a map under a mutex, and tokio's own fair semaphore.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::{Floors, RawClient, RawLimit};

pub(super) fn open() -> Arc<dyn RawLimit> {
    Arc::new(Memory(Arc::new(Bare::default())))
}

pub(super) fn attach() -> Result<Arc<dyn RawLimit>> {
    bail!("the memory engine does not cross processes")
}

#[derive(Debug)]
struct Memory(Arc<Bare>);

#[derive(Debug)]
struct Bare {
    held: Mutex<HashMap<String, Instant>>,
    /// What [`RawClient::fill`] filled in: whoever renews has to name each.
    keys: Mutex<Vec<String>>,
    turn: Semaphore,
}

impl Default for Bare {
    fn default() -> Self {
        Self { held: Mutex::default(), keys: Mutex::default(), turn: Semaphore::new(0) }
    }
}

#[async_trait]
impl RawLimit for Memory {
    fn floors(&self) -> Floors {
        Floors {
            pair: "insert + remove in a hash map under a mutex",
            turn: "a permit of tokio's fair semaphore, handed on",
            hold: "",
            keep: "a new deadline for each key of a hash map",
        }
    }

    fn address(&self) -> String {
        String::new()
    }

    async fn client(&self) -> Result<Arc<dyn RawClient>> {
        Ok(Arc::clone(&self.0) as Arc<dyn RawClient>)
    }
}

#[async_trait]
impl RawClient for Bare {
    async fn pair(&self, key: &str) -> Result<()> {
        self.held.lock().insert(key.to_owned(), Instant::now());
        self.held.lock().remove(key);
        Ok(())
    }

    async fn join(&self, _place: usize, _of: usize) -> Result<()> {
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        self.turn.add_permits(1);
        Ok(())
    }

    async fn turn(&self) -> Result<()> {
        self.turn.acquire().await?.forget();
        Ok(())
    }

    async fn pass(&self) -> Result<()> {
        self.turn.add_permits(1);
        Ok(())
    }

    async fn end(&self) -> Result<()> {
        self.turn().await
    }

    async fn hold(&self) -> Result<()> {
        bail!("no holder in this process can be killed alone")
    }

    async fn until_waiting(&self) -> Result<()> {
        bail!("nobody waits for a holder in this process")
    }

    async fn let_go(&self) -> Result<()> {
        Ok(())
    }

    async fn fill(&self, count: usize) -> Result<()> {
        let now = Instant::now();
        let keys: Vec<String> = (0..count).map(|number| format!("held/{number}")).collect();
        *self.held.lock() = keys.iter().map(|key| (key.clone(), now)).collect();
        *self.keys.lock() = keys;
        Ok(())
    }

    async fn keep(&self) -> Result<()> {
        let (now, mut held) = (Instant::now(), self.held.lock());
        for key in self.keys.lock().iter() {
            if let Some(deadline) = held.get_mut(key) {
                *deadline = now;
            }
        }
        Ok(())
    }
}
