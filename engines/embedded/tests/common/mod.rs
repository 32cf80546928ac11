//! What the tests of this crate share.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Claim, Claimed, Engine, Grant, Mode, Name, Owner, Ttl, Waited};
use palisade_embedded::{EmbeddedConfig, EmbeddedEngine};

/// No wait in these tests may take longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"))
}

pub(crate) async fn open(folder: &Path) -> EmbeddedEngine {
    EmbeddedEngine::open(EmbeddedConfig::new(folder)).await.unwrap()
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn claim(resource: &str, mode: Mode) -> Claim {
    claim_for(resource, mode, Duration::from_secs(30))
}

pub(crate) fn claim_for(resource: &str, mode: Mode, ttl: Duration) -> Claim {
    Claim::new(name(resource), mode, Ttl::new(ttl).unwrap(), Arc::new(Owner::this_process()))
}

pub(crate) fn exclusive(resource: &str) -> Arc<Claim> {
    Arc::new(claim(resource, Mode::Exclusive))
}

pub(crate) async fn take(engine: &dyn Engine, resource: &str) -> (Arc<Claim>, Grant) {
    let claim = exclusive(resource);
    let grant = granted(engine.claim(&claim).await.unwrap());
    (claim, grant)
}

#[track_caller]
pub(crate) fn granted(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

#[track_caller]
pub(crate) fn waited(waited: Waited) -> Grant {
    match waited {
        Waited::Granted(grant) => grant,
        Waited::Gone(reason) => panic!("gone: {reason:?}"),
    }
}
