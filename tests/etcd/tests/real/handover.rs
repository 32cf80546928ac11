//! A queue in which each knows the next: whoever leaves passes it on, and nobody needs to look.

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use palisade_core::{Claim, Claimed, Engine, Grant, Mode, Name, Owner, Token, Ttl, Waited, Withdrawn};
use palisade_etcd::{EtcdConfig, EtcdEngine};
use palisade_etcd_trials::{one, soon, until, url};
use palisade_testkit::servers::{EtcdOptions, EtcdSet};
use tokio::task::JoinHandle;

use crate::trouble::settled;

const RESOURCE: &str = "orders";

/// One of the queue, with a connection of its own.
struct Member {
    engine: Arc<EtcdEngine>,
    claim: Arc<Claim>,
    waits: JoinHandle<palisade_core::Result<Waited>>,
}

impl Member {
    /// Gets in line. The first holds at once, which it is told as well if it waits.
    async fn join(set: &EtcdSet, floor: Option<Token>) -> Result<Self> {
        let engine = Arc::new(EtcdEngine::open(EtcdConfig::parse(&url(set))?).await?);
        let ttl = Ttl::new(std::time::Duration::from_mins(1))?;
        let owner = Arc::new(Owner::this_process());
        let mut claim = Claim::new(Name::new(RESOURCE)?, Mode::Exclusive, ttl, owner);
        claim.will_wait = true;
        claim.token_floor = floor;
        let claim = Arc::new(claim);
        ensure!(!matches!(engine.claim(&claim).await?, Claimed::Busy(_)), "who waits is not turned away");
        let waits = tokio::spawn({
            let (engine, claim) = (Arc::clone(&engine), Arc::clone(&claim));
            async move { engine.wait(&claim).await }
        });
        Ok(Self { engine, claim, waits })
    }

    async fn waited(&mut self) -> Result<Waited> {
        Ok(soon("the end of a wait", &mut self.waits).await???)
    }

    async fn granted(&mut self) -> Result<Grant> {
        match self.waited().await? {
            Waited::Granted(grant) => Ok(grant),
            Waited::Gone(reason) => bail!("it is gone: {reason:?}"),
        }
    }

    async fn leave(&self) -> Result<()> {
        let left = self.engine.withdraw(std::slice::from_ref(&self.claim)).await?;
        ensure!(left == [Withdrawn::Released], "{left:?}");
        Ok(())
    }
}

#[tokio::test]
async fn nobody_looks_whom_it_was_passed_on_to() -> Result<()> {
    const WAITERS: usize = 8;
    let set = one().await?;
    let mut first = Member::join(&set, None).await?;
    first.granted().await?;
    let mut members = Vec::new();
    for _ in 0..WAITERS {
        members.push(Member::join(&set, None).await?);
    }
    let before = settled(&set).await?;
    first.leave().await?;
    let mut last = None;
    for member in &mut members {
        let token = Some(member.granted().await?.token);
        ensure!(token > last, "{token:?} came after {last:?}");
        last = token;
        member.leave().await?;
    }
    // The first never waited and knows nobody: so the second looks.
    let requests = set.servers[0].requests().await? - before;
    ensure!(requests < 2 * WAITERS as u64, "{requests} requests for {WAITERS} hand-overs");
    Ok(())
}

#[tokio::test]
async fn who_was_deleted_meanwhile_holds_nothing() -> Result<()> {
    let set = one().await?;
    let mut first = Member::join(&set, None).await?;
    first.granted().await?;
    let mut members = Vec::new();
    for _ in 0..3 {
        members.push(Member::join(&set, None).await?);
    }
    settled(&set).await?;
    first.leave().await?;
    let token = members[0].granted().await?.token;
    let keys = ["get", "orders/", "--prefix", "--keys-only", "--sort-by=CREATE", "--order=ASCEND"];
    let keys = set.servers[0].ctl(&keys).await?;
    let deleted = keys.split_whitespace().nth(1).context("there are three keys")?;
    set.servers[0].ctl(&["del", deleted]).await?;
    // Somebody else's by now, at the end of the line.
    set.servers[0].ctl(&["put", deleted, "another"]).await?;
    members[0].leave().await?;
    ensure!(members[2].granted().await?.token > token, "the token fell");
    let deleted = members[1].waited().await?;
    ensure!(matches!(deleted, Waited::Gone(_)), "two hold at once: {deleted:?}");
    Ok(())
}

#[tokio::test]
async fn a_lifted_token_lifts_the_next() -> Result<()> {
    let set = one().await?;
    let mut first = Member::join(&set, None).await?;
    let floor = Token::new(first.granted().await?.token.get() + 1000);
    let (mut lifted, mut next) = (Member::join(&set, floor).await?, Member::join(&set, None).await?);
    settled(&set).await?;
    first.leave().await?;
    let token = lifted.granted().await?.token;
    ensure!(Some(token) > floor, "{token} is not above the floor");
    lifted.leave().await?;
    let next = next.granted().await?.token;
    ensure!(next > token, "{next} came after {token}");
    Ok(())
}

/// A full server still deletes, but refuses every transaction that might write.
#[tokio::test]
async fn a_full_server_does_not_hold_up_who_leaves() -> Result<()> {
    let quota = vec!["--quota-backend-bytes=2097152".to_owned()];
    let set = EtcdSet::start(1, EtcdOptions { args: quota, ..EtcdOptions::default() }).await?;
    let mut first = Member::join(&set, None).await?;
    first.granted().await?;
    let (mut second, mut third) = (Member::join(&set, None).await?, Member::join(&set, None).await?);
    settled(&set).await?;
    first.leave().await?;
    second.granted().await?;
    let much = "x".repeat(100_000);
    until("it is full", || async { Ok(set.servers[0].ctl(&["put", "much", &much]).await.is_err()) }).await?;
    second.leave().await?;
    third.granted().await?;
    third.leave().await
}
