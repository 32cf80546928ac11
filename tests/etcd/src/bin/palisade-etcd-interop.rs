//! Lets Go's clients, `etcdctl` and Palisade contend for one lock of one etcd, each in processes of
//! their own or tasks. Started by `cargo xtask interop`, which builds the Go program: its path is the argument.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::{Client, ClientBuilder};
use palisade_testkit::servers::{EtcdOptions, EtcdSet, newer_etcd};
use palisade_testkit::turns::{begin, count, counted, run};
use tokio::process::Command;
use tokio::task::JoinSet;

const NAME: &str = "orders";
const TURNS: u32 = 150;
/// `etcdctl` is a new process for each turn.
const TURNS_OF_ETCDCTL: u32 = 40;
const LIMIT: Duration = Duration::from_mins(3);

#[tokio::main]
async fn main() -> Result<()> {
    let go = std::env::args().nth(1).context("name the Go program")?;
    let system = EtcdOptions::default();
    let newer = EtcdOptions { program: newer_etcd()?, ..EtcdOptions::default() };
    for (version, options) in [("the system's etcd", system), ("a newer etcd", newer)] {
        let set = EtcdSet::start(1, options).await?;
        let all = tokio::time::timeout(LIMIT, contend(&set, &go)).await;
        let turns = all.context("it took too long")??;
        println!(
            "{version}: {turns} turns of Go's Mutex and Election, etcdctl lock and Palisade, one at a time"
        );
    }
    Ok(())
}

/// Returns how many turns all took together.
async fn contend(set: &EtcdSet, go: &str) -> Result<u32> {
    let folder = tempfile::tempdir()?;
    let path = folder.path();
    begin(path)?;
    let mut all = JoinSet::new();
    let mut expected = 0;
    for kind in ["mutex", "mutex", "election"] {
        let mut command = Command::new(go);
        command.args([&set.hosts(), kind, NAME, &TURNS.to_string()]).arg(path);
        all.spawn(run(command, 1));
        expected += TURNS;
    }
    let mut etcdctl = Command::new("etcdctl");
    let turn = format!(
        "set -e; cd '{}'; mkdir inside; n=$(cat count); echo -n $((n + 1)) >count; rmdir inside",
        path.display()
    );
    etcdctl.arg(format!("--endpoints={}", set.hosts())).args(["lock", NAME, "--", "sh", "-c", &turn]);
    etcdctl.env("ETCDCTL_API", "3");
    all.spawn(run(etcdctl, TURNS_OF_ETCDCTL));
    expected += TURNS_OF_ETCDCTL;
    for kind in [Kind::Mutex, Kind::Mutex, Kind::Write, Kind::Election] {
        let client = ClientBuilder::default().connect(&format!("etcd://{}", set.hosts())).await?;
        all.spawn(ours(client, kind, path.to_owned()));
        expected += TURNS;
    }
    while let Some(done) = all.join_next().await {
        done??;
    }
    let count = counted(path)?;
    ensure!(count == expected, "{count} of {expected} turns were counted: two were inside at once");
    let left = set.servers[0].ctl(&["get", &format!("{NAME}/"), "--prefix", "--keys-only"]).await?;
    ensure!(left.trim().is_empty(), "keys were left: {left}");
    Ok(count)
}

#[derive(Clone, Copy)]
enum Kind {
    Mutex,
    Write,
    Election,
}

async fn ours(client: Client, kind: Kind, folder: std::path::PathBuf) -> Result<()> {
    let (mutex, lock, election) = (client.mutex(NAME)?, client.rw_lock(NAME)?, client.election(NAME)?);
    for _ in 0..TURNS {
        match kind {
            Kind::Mutex => {
                let guard = mutex.acquire().await?;
                count(&folder)?;
                guard.release().await?;
            }
            Kind::Write => {
                let guard = lock.write().await?;
                count(&folder)?;
                guard.release().await?;
            }
            Kind::Election => {
                let leader = election.campaign("palisade").await?;
                count(&folder)?;
                leader.resign().await?;
            }
        }
    }
    client.close().await;
    Ok(())
}
