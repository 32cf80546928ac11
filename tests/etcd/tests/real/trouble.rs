//! Leaders that end, servers that stop, keys and leases that somebody deletes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use palisade::{ClientBuilder, Clock, Condition, SystemClock};
use palisade_etcd_trials::{client, one, soon, three, until, url};
use palisade_testkit::servers::{EtcdOptions, EtcdServer, EtcdSet, newer_etcd};
use palisade_testkit::trial::{holders, outlive};

async fn leader(set: &EtcdSet) -> Result<&EtcdServer> {
    for server in &set.servers {
        let status = server.ctl(&["endpoint", "status", "--write-out=fields"]).await?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(&format!("\"{name}\"")))?;
            line.rsplit(' ').next().map(str::to_owned)
        };
        if field("Leader").context("no leader is named")?
            == field("MemberID").context("no member is named")?
        {
            return Ok(server);
        }
    }
    anyhow::bail!("no server says that it leads")
}

/// An election takes one to two seconds, and as long again if two servers ask for votes at once: what was renewed a
/// third of its TTL ago must last that long.
const OUTLASTS_ELECTIONS: u64 = 8;

#[tokio::test]
async fn no_hold_is_lost_when_the_leader_is_killed() -> Result<()> {
    let set = three().await?;
    let (clients, guards) = holders(&url(&set), OUTLASTS_ELECTIONS).await?;
    let leader = leader(&set).await?;
    leader.kill().await?;
    let killed = SystemClock.now();
    let other = &clients[0];
    until("the others decide again", || async {
        Ok(other.register("probe")?.write("x", Condition::always()).await.is_ok())
    })
    .await?;
    outlive(&guards, killed).await?;
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

/// So a dead holder keeps others out for up to two TTLs and what an election takes: no client can shorten it.
#[tokio::test]
async fn a_new_leader_gives_leases_their_time_again() -> Result<()> {
    const SECONDS: u64 = 10;
    let set = three().await?;
    let old = leader(&set).await?;
    let other =
        set.servers.iter().find(|server| server.address() != old.address()).context("there is one")?;
    let granted = old.ctl(&["lease", "grant", &SECONDS.to_string()]).await?;
    let lease = granted.split_whitespace().nth(1).context("it has no number")?;
    until("some of its time is over", || async { Ok(seconds_left(other, lease).await? + 4 <= SECONDS) })
        .await?;
    let before = seconds_left(other, lease).await?;
    let killed = Instant::now();
    old.kill().await?;
    until("the others decide again", || async { Ok(other.ctl(&["put", "probe", "x"]).await.is_ok()) })
        .await?;
    // Both are whole seconds.
    let later = seconds_left(other, lease).await? + killed.elapsed().as_secs();
    ensure!(
        later > before + 2,
        "it ends {later} s after the kill: it would have ended after {before} s anyway"
    );
    Ok(())
}

/// As etcdctl tells it: `lease 694d granted with TTL(5s), remaining(3s)`.
async fn seconds_left(server: &EtcdServer, lease: &str) -> Result<u64> {
    let told = server.ctl(&["lease", "timetolive", lease]).await?;
    let left = told.split_once("remaining(").and_then(|(_, left)| left.split_once('s'));
    Ok(left.with_context(|| format!("nothing is left of it: {told}"))?.0.parse()?)
}

#[tokio::test]
async fn a_client_leaves_a_server_that_is_stopped() -> Result<()> {
    let set = three().await?;
    // It may lead.
    let (_clients, guards) = holders(&url(&set), OUTLASTS_ELECTIONS).await?;
    // Some of the clients talk to this one.
    set.servers[0].stop()?;
    outlive(&guards, SystemClock.now()).await?;
    for guard in guards {
        guard.release().await?;
    }
    set.servers[0].go_on()
}

#[tokio::test]
async fn a_server_that_is_cut_off_from_the_others_is_left_and_comes_back() -> Result<()> {
    let program = newer_etcd().unwrap_or_else(|_| "etcd".into());
    let options = EtcdOptions { program, cuttable: true, ..EtcdOptions::default() };
    let set = EtcdSet::start(3, options).await?;
    let (_clients, guards) = holders(&url(&set), OUTLASTS_ELECTIONS).await?;
    let old = leader(&set).await?.address();
    let place = set.servers.iter().position(|server| server.address() == old).context("it is one of them")?;
    set.cut_off(place)?;
    let alone = &set.servers[place];
    until("it can decide nothing", || async { Ok(alone.ctl(&["put", "probe", "x"]).await.is_err()) }).await?;
    outlive(&guards, SystemClock.now()).await?;
    set.rejoin(place).await?;
    alone.ctl(&["put", "probe", "x"]).await?;
    for guard in guards {
        guard.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_holder_without_a_majority_is_told_before_its_time_is_up() -> Result<()> {
    let set = three().await?;
    let client = client(&url(&set)).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    set.servers[0].stop()?;
    set.servers[1].stop()?;
    soon("the holder is told", guard.lost()).await?;
    ensure!(!guard.is_valid(), "it calls itself valid");
    set.servers[0].go_on()?;
    set.servers[1].go_on()?;
    soon("the next grant", client.mutex("orders")?.acquire()).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_revoked_lease_is_told_at_once() -> Result<()> {
    let set = one().await?;
    let client = ClientBuilder::default().ttl(Duration::from_mins(1)).connect(&url(&set)).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    let key = set.servers[0].ctl(&["get", "orders/", "--prefix", "--keys-only"]).await?;
    let lease = key.trim().strip_prefix("orders/").context("the key is another one")?;
    set.servers[0].ctl(&["lease", "revoke", lease]).await?;
    soon("the holder is told", guard.lost()).await?;
    soon("the next grant", client.mutex("orders")?.acquire()).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_deleted_key_is_noticed_by_the_next_renewal() -> Result<()> {
    let set = one().await?;
    let (one, two) = (client(&url(&set)).await?, client(&url(&set)).await?);
    let guard = one.mutex("orders")?.acquire().await?;
    let kept = one.mutex("other")?.acquire().await?;
    set.servers[0].ctl(&["del", "orders/", "--prefix"]).await?;
    let next = soon("the next grant", two.mutex("orders")?.acquire()).await??;
    soon("the holder is told", guard.lost()).await?;
    ensure!(next.token() > guard.token(), "{} came after {}", next.token(), guard.token());
    ensure!(kept.is_valid(), "another one went with it");
    Ok(())
}

#[tokio::test]
async fn compaction_is_no_matter_to_who_waits() -> Result<()> {
    let set = one().await?;
    let (one, two) = (client(&url(&set)).await?, client(&url(&set)).await?);
    let guard = one.mutex("orders")?.acquire().await?;
    let (lock, register) = (two.mutex("orders")?, one.register("noise")?);
    let mut waiting = Box::pin(lock.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(200), &mut waiting).await.is_err(),
        "two hold at once"
    );
    for _ in 0..20 {
        register.write("x", Condition::always()).await?;
    }
    let revision = guard.token().get() + 15;
    set.servers[0].ctl(&["compact", &revision.to_string()]).await?;
    guard.release().await?;
    soon("the turn", waiting).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_restart_of_all_keeps_what_is_held() -> Result<()> {
    let set = three().await?;
    let client = ClientBuilder::default().ttl(Duration::from_secs(15)).connect(&url(&set)).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    for server in &set.servers {
        server.kill().await?;
    }
    EtcdServer::start_with_others(&set.servers).await?;
    until("the servers decide again", || async { Ok(client.show("orders").await.is_ok()) }).await?;
    ensure!(guard.is_valid(), "it was lost");
    let other = palisade_etcd_trials::client(&url(&set)).await?;
    ensure!(other.mutex("orders")?.try_acquire().await?.is_none(), "two hold at once");
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn a_thousand_waiters_are_woken_one_at_a_time() -> Result<()> {
    const WAITERS: usize = 1000;
    let set = one().await?;
    // A thousand who come at once take as long as the machine needs for them.
    let url = format!("{}?call-timeout=30s", url(&set));
    let client = Arc::new(ClientBuilder::default().ttl(Duration::from_mins(1)).connect(&url).await?);
    let guard = client.mutex("orders")?.acquire().await?;
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                let guard = client.mutex("orders")?.acquire().await?;
                let token = guard.token();
                guard.release().await?;
                anyhow::Ok(token)
            })
        })
        .collect();
    until("all wait", || async { Ok(client.show("orders").await?.waiters.len() == WAITERS) }).await?;
    let before = settled(&set).await?;
    guard.release().await?;
    let mut tokens = Vec::new();
    for task in tasks {
        tokens.push(tokio::time::timeout(Duration::from_mins(1), task).await???);
    }
    tokens.sort_unstable();
    tokens.dedup();
    ensure!(tokens.len() == WAITERS, "two have one token");
    // A look and a release for each, and some renewals meanwhile: nobody else was woken.
    let requests = set.servers[0].requests().await? - before;
    ensure!(requests < 3 * WAITERS as u64, "{requests} requests for {WAITERS} hand-overs");
    Ok(())
}

/// The requests so far, once no more come: all who wait have looked again after their watch stood.
pub(crate) async fn settled(set: &EtcdSet) -> Result<u64> {
    let mut before = set.servers[0].requests().await?;
    soon("nothing is asked any more", async {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let now = set.servers[0].requests().await?;
            if now == before {
                return anyhow::Ok(now);
            }
            before = now;
        }
    })
    .await?
}
