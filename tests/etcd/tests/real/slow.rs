//! A server that is slow for a moment: it is left, and nobody who asked it something else notices.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use palisade_core::{
    Claim, Claimed, ConnectionState, Engine, Mode, Name, Owner, Page, Selector, Signal, Ttl, Withdrawn,
};
use palisade_etcd::{EtcdConfig, EtcdEngine};
use palisade_etcd_trials::{one, soon, url};

fn claim(resource: &str, ttl: Duration) -> Result<Arc<Claim>> {
    let owner = Arc::new(Owner::this_process());
    Ok(Arc::new(Claim::new(Name::new(resource)?, Mode::Exclusive, Ttl::new(ttl)?, owner)))
}

#[tokio::test]
async fn who_asks_is_not_told_that_a_keep_alive_was_late() -> Result<()> {
    let set = one().await?;
    let engine = EtcdEngine::open(EtcdConfig::parse(&url(&set))?).await?;
    let (brief, long) = (claim("brief", Duration::from_secs(2))?, claim("long", Duration::from_mins(1))?);
    // The brief one last: on a busy machine the other may take so long that this one has ended before it is renewed.
    for claim in [&long, &brief] {
        ensure!(matches!(engine.claim(claim).await?, Claimed::Granted(_)), "nobody else is there");
    }
    let mut signals = engine.signals().subscribe();
    set.servers[0].stop()?;
    let everything = Selector::everything("");
    let page = Page { after: None, limit: 10 };
    let (renewed, released, seen, went_on) = tokio::join!(
        engine.renew(std::slice::from_ref(&brief)),
        engine.withdraw(std::slice::from_ref(&long)),
        engine.inspect(&everything, &page),
        async {
            // The keep-alive of the brief one has no time to wait: the connection is given up.
            soon("the connection is left", async {
                while !matches!(signals.recv().await, Ok(Signal::Connection(ConnectionState::Suspended))) {}
            })
            .await?;
            set.servers[0].go_on()
        },
    );
    went_on?;
    ensure!(renewed.is_err(), "the keep-alive was in time after all: {renewed:?}");
    ensure!(released? == [Withdrawn::Released], "it was given back in time");
    ensure!(seen.is_ok(), "{seen:?}");
    Ok(())
}
