//! Every step of a claim's life has a span, and a loss is told.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use palisade::Client;
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Remembers the names of spans, and the events at level warn.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeSet<String>>>);

impl<S: Subscriber> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        self.0.lock().unwrap().insert(attributes.metadata().name().to_owned());
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() == tracing::Level::WARN {
            self.0.lock().unwrap().insert("lost".to_owned());
        }
    }
}

#[tokio::test]
async fn a_claims_life_is_traced_and_its_holder_shows_its_trace() {
    let seen = Seen::default();
    let _default = tracing::subscriber::set_default(Registry::default().with(seen.clone()));
    let client =
        Client::builder().ttl(Duration::from_millis(90)).trace("4bf92f35").connect("memory:").await.unwrap();
    let mutex = client.mutex("x").unwrap();
    let guard = mutex.acquire().await.unwrap();
    let holder = client.show("x").await.unwrap().holders.remove(0);
    assert_eq!(holder.owner.trace.as_deref(), Some("4bf92f35"));

    let waiter = tokio::spawn({
        let mutex = mutex.clone();
        async move { mutex.acquire().await }
    });
    while client.show("x").await.unwrap().waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    let has = |name: &str| seen.0.lock().unwrap().contains(name);
    while !has("renew") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    client.evict("x", guard.claim_id(), "test").await.unwrap();
    guard.lost().await;
    for name in ["acquire", "claim", "wait", "renew", "release", "evict", "lost"] {
        assert!(has(name), "no {name} in {:?}", seen.0.lock().unwrap());
    }
}

#[test]
fn everything_can_be_sent_and_shared_between_tasks() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Client>();
    shared::<palisade::Mutex>();
    shared::<palisade::MutexGuard>();
    shared::<palisade::ManyGuard>();
    shared::<palisade::Leadership>();
    shared::<palisade::Fenced>();
    shared::<palisade::Error>();
}
