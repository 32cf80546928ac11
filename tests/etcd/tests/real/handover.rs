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
        Self::join_with(engine, floor).await
    }

    async fn join_with(engine: Arc<EtcdEngine>, floor: Option<Token>) -> Result<Self> {
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

    /// Gives back what it holds, and gets in line again.
    async fn again(&mut self) -> Result<()> {
        self.leave().await?;
        *self = Self::join_with(Arc::clone(&self.engine), None).await?;
        Ok(())
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
        self.withdraw(Withdrawn::Released).await
    }

    async fn leave_line(&self) -> Result<()> {
        self.withdraw(Withdrawn::LeftQueue).await
    }

    async fn withdraw(&self, expected: Withdrawn) -> Result<()> {
        let left = self.engine.withdraw(std::slice::from_ref(&self.claim)).await?;
        ensure!(left == [expected], "{left:?}");
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
async fn who_takes_turns_knows_who_comes_next_and_hears_whom_it_waits_for() -> Result<()> {
    const ROUNDS: usize = 5;
    let set = one().await?;
    let mut members = Vec::new();
    for _ in 0..6 {
        members.push(Member::join(&set, None).await?);
    }
    let counted = async || -> Result<[u64; 3]> {
        let (server, all) = (&set.servers[0], settled(&set).await?);
        Ok([all, server.messages("Range").await?, server.messages("Watch").await?])
    };
    // Until each has looked who comes next, and had the time for it.
    let mut before = counted().await?;
    for round in 0.. {
        ensure!(round < 20, "somebody goes on looking");
        for member in &mut members {
            settled(&set).await?;
            member.granted().await?;
            member.again().await?;
        }
        let after = counted().await?;
        let looked = after[1..] != before[1..];
        before = after;
        if !looked {
            break;
        }
    }
    let mut last = None;
    for _ in 0..ROUNDS {
        for member in &mut members {
            let token = Some(member.granted().await?.token);
            ensure!(token > last, "{token:?} came after {last:?}");
            last = token;
            member.again().await?;
        }
    }
    let (after, turns) = (counted().await?, (ROUNDS * members.len()) as u64);
    let [all, ranges, watches] = [0, 1, 2].map(|kind| after[kind] - before[kind]);
    ensure!((ranges, watches) == (0, 0), "{ranges} looks who comes next, {watches} new watches");
    // Taken, given back, and looked at where the two watches spoke too far apart.
    ensure!(all <= 3 * turns, "{all} requests for {turns} turns");
    Ok(())
}

/// Who takes turns expects whoever came next the last time, and another came between: it is not told, and the one who is
/// holds nothing.
#[tokio::test]
async fn whoever_is_expected_by_mistake_holds_nothing() -> Result<()> {
    let set = one().await?;
    let (mut one, mut two, mut three) =
        (Member::join(&set, None).await?, Member::join(&set, None).await?, Member::join(&set, None).await?);
    // Each has waited, and had the time to see who came after.
    for _ in 0..2 {
        for member in [&mut one, &mut two, &mut three] {
            settled(&set).await?;
            member.granted().await?;
            member.again().await?;
        }
    }
    for member in [&mut one, &mut two] {
        member.granted().await?;
        member.again().await?;
    }
    three.granted().await?;
    // Before it is one's turn again another one comes to stand behind it.
    two.leave_line().await?;
    let mut between = Member::join(&set, None).await?;
    two = Member::join_with(Arc::clone(&two.engine), None).await?;
    three.leave().await?;
    one.granted().await?;
    let written =
        set.servers[0].ctl(&["get", "orders/", "--prefix", "--sort-by=CREATE", "-w", "fields"]).await?;
    one.leave().await?;
    let token = between.granted().await?.token;
    settled(&set).await?;
    let after =
        set.servers[0].ctl(&["get", "orders/", "--prefix", "--sort-by=CREATE", "-w", "fields"]).await?;
    let times = |said: &str| -> Vec<String> {
        said.lines().filter_map(|line| line.strip_prefix("\"ModRevision\" : ").map(str::to_owned)).collect()
    };
    let (before, after) = (times(&written), times(&after));
    ensure!(before.last() != after.last(), "two was not expected: {before:?} {after:?}");
    ensure!(before[1] == after[0], "the one between was: {before:?} {after:?}");
    ensure!(!two.waits.is_finished(), "two hold at once");
    between.leave().await?;
    ensure!(two.granted().await?.token > token, "the token fell");
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
