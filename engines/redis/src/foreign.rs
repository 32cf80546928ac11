use std::collections::HashMap;
use std::sync::Arc;

use palisade_core::look_again;
use parking_lot::Mutex;
use redis::Value;
use tokio::sync::Notify;

use crate::engine::Inner;

/// Keys that other clients hold and the heads of our queues wait for.
#[derive(Debug, Default)]
pub(crate) struct Foreign(Mutex<HashMap<Vec<u8>, Arc<Notify>>>);

impl Foreign {
    fn watch(&self, key: &str) -> Arc<Notify> {
        Arc::clone(self.0.lock().entry(key.as_bytes().to_vec()).or_default())
    }

    /// The server said that a key has changed.
    pub(crate) fn changed(&self, key: &[u8]) {
        // The server tells once; whoever is still interested asks again.
        if let Some(watched) = self.0.lock().remove(key) {
            watched.notify_waiters();
        }
    }

    pub(crate) fn wake_all(&self) {
        self.0.lock().drain().for_each(|(_, watched)| watched.notify_waiters());
    }
}

impl Inner {
    /// Completes once the lock of another client may be free: when the server says so, else after a
    /// while. Another client tells nobody, and its lock may have no TTL.
    pub(crate) async fn until_changed(&self, key: &str, tries: u32) {
        if self.facts().tracks {
            let watched = self.foreign.watch(key);
            let mut told = std::pin::pin!(watched.notified());
            told.as_mut().enable();
            let mut pipeline = redis::Pipeline::new();
            pipeline.cmd("CLIENT").arg("CACHING").arg("YES").ignore().cmd("EXISTS").arg(key);
            match self.link.together(&pipeline).await {
                Ok(Value::Array(there)) if matches!(there.last(), Some(Value::Int(0))) => return,
                Ok(_) => return told.await,
                Err(_) => {}
            }
        }
        tokio::time::sleep(look_again(tries, rand::random())).await;
    }
}
