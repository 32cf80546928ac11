//! Lets Curator's recipes, kazoo's locks and Palisade contend for one lock of one ZooKeeper, each in processes of
//! their own or tasks. Started by `cargo xtask interop`, which prepares the others: `curator=COMMAND` and
//! `kazoo=COMMAND` are the arguments; one that is not there is left out.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use palisade::{Client, ClientBuilder};
use palisade_testkit::servers::{ZooKeeperOptions, ZooKeeperSet};
use palisade_testkit::turns::{begin, count, counted, run};
use palisade_zookeeper_trials::{bare, nodes};
use tokio::process::Command;
use tokio::task::JoinSet;

const TURNS: u32 = 100;
const LIMIT: Duration = Duration::from_mins(3);

/// Who contends for one lock.
struct Round {
    client: &'static str,
    name: &'static str,
    /// Processes of the others.
    theirs: &'static [&'static str],
    dialect: &'static str,
    ours: &'static [Kind],
}

const ROUNDS: [Round; 6] = [
    Round {
        client: "curator",
        name: "InterProcessMutex",
        theirs: &["mutex", "mutex"],
        dialect: "curator",
        ours: &[Kind::Mutex, Kind::Mutex],
    },
    Round {
        client: "curator",
        name: "InterProcessReadWriteLock",
        theirs: &["write", "read", "write"],
        dialect: "curator",
        ours: &[Kind::Write, Kind::Read, Kind::Write],
    },
    Round {
        client: "curator",
        name: "LeaderLatch",
        theirs: &["latch", "latch"],
        dialect: "curator",
        ours: &[Kind::Election, Kind::Election],
    },
    Round {
        client: "curator",
        name: "InterProcessSemaphoreV2",
        theirs: &["semaphore", "semaphore", "semaphore"],
        dialect: "curator",
        ours: &[Kind::Semaphore, Kind::Semaphore, Kind::Semaphore],
    },
    Round {
        client: "kazoo",
        name: "Lock",
        theirs: &["lock", "lock"],
        dialect: "kazoo",
        ours: &[Kind::Mutex, Kind::Mutex],
    },
    Round {
        client: "kazoo",
        name: "WriteLock",
        theirs: &["write"],
        dialect: "kazoo",
        ours: &[Kind::Write, Kind::Read, Kind::Mutex],
    },
];

#[tokio::main]
async fn main() -> Result<()> {
    let commands: Vec<String> = std::env::args().skip(1).collect();
    let set = ZooKeeperSet::start(1, ZooKeeperOptions::default()).await?;
    for round in &ROUNDS {
        let mark = format!("{}=", round.client);
        let Some(command) = commands.iter().find_map(|command| command.strip_prefix(&mark)) else { continue };
        let all = tokio::time::timeout(LIMIT, contend(&set, round, command)).await;
        let turns = all.context("it took too long")??;
        let at_once = if round.ours[0] == Kind::Semaphore { "at most two" } else { "one" };
        println!("{turns} turns of {}'s {} and Palisade, {at_once} at a time", round.client, round.name);
    }
    Ok(())
}

/// Returns how many turns all took together.
async fn contend(set: &ZooKeeperSet, round: &Round, command: &str) -> Result<u32> {
    let folder = tempfile::tempdir()?;
    let path = folder.path();
    begin(path)?;
    let mut all = JoinSet::new();
    let mut expected = 0;
    for kind in round.theirs {
        let mut words = command.split(' ');
        let mut command = Command::new(words.next().context("a command is a program")?);
        command.args(words).args([set.hosts().as_str(), kind, round.name, &TURNS.to_string()]).arg(path);
        all.spawn(run(command, 1));
        expected += if *kind == "read" { 0 } else { TURNS };
    }
    for kind in round.ours {
        let url = format!("zk://{}?dialect={}", set.hosts(), round.dialect);
        let client = ClientBuilder::default().connect(&url).await?;
        all.spawn(ours(client, round.name, *kind, path.to_owned()));
        expected += if *kind == Kind::Read { 0 } else { TURNS };
    }
    while let Some(done) = all.join_next().await {
        done??;
    }
    let mut count = counted(path)?;
    if round.ours[0] == Kind::Semaphore {
        count += seated(path)?;
    }
    ensure!(count == expected, "{count} of {expected} turns were counted: too many were inside at once");
    let bare = bare(set).await?;
    for below in ["", "/locks", "/leases"] {
        let mut left = nodes(&bare, &format!("{}{below}", round.name)).await?;
        left.retain(|name| name != "locks" && name != "leases");
        ensure!(left.is_empty(), "nodes were left: {left:?}");
    }
    Ok(count)
}

/// Returns how many turns there were on both seats, which must have gone from one side to the other: who comes in takes
/// whichever is free, so that one of them alone may stay with one side for long.
fn seated(folder: &Path) -> Result<u32> {
    let (mut count, mut changes) = (0, 0);
    for seat in SEATS {
        let turns = fs::read(folder.join(format!("{seat}-turns")))?;
        changes += turns.windows(2).filter(|two| two[0] != two[1]).count();
        count += u32::try_from(turns.len())?;
    }
    ensure!(changes >= TURNS as usize / 10, "seats went from one side to the other {changes} times only");
    Ok(count)
}

/// Where those with one of two slots sit.
const SEATS: [&str; 2] = ["seat", "second-seat"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mutex,
    Write,
    Read,
    Election,
    /// One of two slots.
    Semaphore,
}

async fn ours(client: Client, name: &str, kind: Kind, folder: PathBuf) -> Result<()> {
    let (mutex, lock, election) = (client.mutex(name)?, client.rw_lock(name)?, client.election(name)?);
    let semaphore = client.semaphore(name, 2)?;
    // The others take their time to start, and would find nobody to contend with.
    while kind == Kind::Semaphore && !folder.join(format!("{}-turns", SEATS[0])).exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
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
            Kind::Read => {
                let guard = lock.read().await?;
                look(&folder).await?;
                guard.release().await?;
            }
            Kind::Semaphore => {
                let guard = semaphore.acquire().await?;
                sit(&folder).await?;
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

/// One of two seats, of which one must be free, and our letter in a file.
async fn sit(folder: &Path) -> Result<()> {
    for name in SEATS {
        let seat = folder.join(name);
        if fs::create_dir(&seat).is_err() {
            continue;
        }
        let mut turns = fs::OpenOptions::new();
        turns.create(true).append(true).open(folder.join(format!("{name}-turns")))?.write_all(b"p")?;
        tokio::time::sleep(Duration::from_millis(1)).await;
        return Ok(fs::remove_dir(seat)?);
    }
    bail!("three are inside at once")
}

/// A reader's.
async fn look(folder: &Path) -> Result<()> {
    for _ in 0..3 {
        ensure!(!folder.join("inside").exists(), "a writer is inside beside a reader");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
