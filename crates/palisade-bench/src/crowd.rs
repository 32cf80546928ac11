//! Many who want the same: processes where the engine crosses them, else tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use palisade::{Client, Clock, SystemClock};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::raw::RawClient;
use crate::report::Requests;
use crate::stats::{amount, jain, number};
use crate::target::{Target, counted, give, sum, take};
use crate::usage;
use crate::worker::{Job, Worker};

/// What one of a crowd had.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Share {
    /// When it asked and when it had it, each time; nanoseconds since boot.
    pub(crate) turns: Vec<(u64, u64)>,
    /// Processor time since its first turn; of a task nothing, for tasks share a process.
    pub(crate) cpu_us: f64,
    /// Of the process; looked up when all is done, because that takes longer than a turn.
    pub(crate) rss_mib: Option<f64>,
    /// Calls to the engine, if they were counted.
    pub(crate) calls: u64,
}

/// What a crowd had together.
#[derive(Debug)]
pub(crate) struct Crowd {
    /// When the first could have had it.
    began: u64,
    shares: Vec<Share>,
    /// Processor time of all.
    cpu_us: f64,
    /// How often the bench looked whether all were there.
    looks: u64,
}

/// Turns of clients in one process that do not count: caches are filled.
const WARM_TURNS: usize = 10;

/// Takes `resource` so often, and gives it back at once.
pub(crate) async fn take_turns(client: &Client, resource: &str, turns: usize) -> Result<Share> {
    let mutex = client.mutex(resource)?;
    let mut log = Log::new(turns);
    for _ in 0..turns {
        let asked = now();
        let guard = take(&mutex).await?;
        log.had(asked);
        give(guard).await?;
    }
    Ok(log.share())
}

/// Lets each of these clients take `resource` so often, after some turns that do not count: what all of them had.
pub(crate) async fn take_turns_together(clients: &[Client], resource: &str, turns: usize) -> Result<Share> {
    let all = async |turns| -> Result<Vec<(u64, u64)>> {
        let each = clients.iter().map(|client| take_turns(client, resource, turns));
        Ok(try_join_all(each).await?.into_iter().flat_map(|share| share.turns).collect())
    };
    all(WARM_TURNS).await?;
    Ok(Share { turns: all(turns).await?, ..Share::default() })
}

/// The same in the raw limit's line.
pub(crate) async fn take_turns_together_bare(clients: &[Arc<dyn RawClient>], turns: usize) -> Result<Share> {
    let all = async |turns| -> Result<Vec<(u64, u64)>> {
        for (place, client) in clients.iter().enumerate() {
            client.join(place, clients.len()).await?;
        }
        let Some(first) = clients.first() else { return Ok(Vec::new()) };
        first.start().await?;
        let each = clients.iter().map(|client| take_turns_bare(&**client, turns));
        let shares = try_join_all(each).await?;
        first.end().await?;
        Ok(shares.into_iter().flat_map(|share| share.turns).collect())
    };
    all(WARM_TURNS).await?;
    Ok(Share { turns: all(turns).await?, ..Share::default() })
}

/// Has its turn in the raw limit's line so often, and passes it on at once.
pub(crate) async fn take_turns_bare(raw: &dyn RawClient, turns: usize) -> Result<Share> {
    let mut log = Log::new(turns);
    for _ in 0..turns {
        let asked = now();
        raw.turn().await?;
        log.had(asked);
        raw.pass().await?;
    }
    Ok(log.share())
}

struct Log {
    turns: Vec<(u64, u64)>,
    cpu: Duration,
}

impl Log {
    fn new(turns: usize) -> Self {
        Self { turns: Vec::with_capacity(turns), cpu: Duration::ZERO }
    }

    fn had(&mut self, asked: u64) {
        if self.turns.is_empty() {
            self.cpu = usage::cpu();
        }
        self.turns.push((asked, now()));
    }

    fn share(self) -> Share {
        let cpu = usage::cpu().saturating_sub(self.cpu);
        Share { turns: self.turns, cpu_us: cpu.as_secs_f64() * 1e6, rss_mib: None, calls: 0 }
    }
}

fn now() -> u64 {
    SystemClock.now().as_nanos()
}

/// Lets `size` of them take one resource `turns` times each.
pub(crate) async fn run(target: &Target, size: usize, turns: usize) -> Result<Crowd> {
    let client = target.client().await?;
    let crowd = if target.crosses_processes {
        processes(target, &client, size, Job::Turns { turns, counted: false }).await
    } else {
        tasks(&client, size, turns).await
    };
    client.close().await;
    crowd
}

/// How often per second `size` clients of one process have it that take one resource `turns` times each: measured as
/// the locks of others are, whose clients share a process, too.
pub(crate) async fn rate_in_one_process(target: &Target, size: usize, turns: usize) -> Result<f64> {
    rate_of(target, Job::Clients { size, turns }).await
}

/// The same in the raw limit's line.
pub(crate) async fn bare_rate_in_one_process(target: &Target, size: usize, turns: usize) -> Result<f64> {
    rate_of(target, Job::BareClients { size, turns }).await
}

async fn rate_of(target: &Target, job: Job) -> Result<f64> {
    let worker = Worker::start(target, RESOURCE, job).await?;
    let (share, worker) = bounded("a crowd to have all its turns", worker.share()).await?;
    bounded("a worker to end", worker.end()).await?;
    let began = share.turns.iter().map(|(asked, _)| *asked).min().unwrap_or(0);
    let ended = share.turns.iter().map(|(_, had)| *had).max().unwrap_or(0);
    Ok(amount(share.turns.len()) / (number(ended.saturating_sub(began).max(1)) / 1e9))
}

/// Lets them take turns, counting what they ask of the engine; counting costs time, so it is not timed.
pub(crate) async fn count(target: &Target, size: usize, turns: usize) -> Result<Requests> {
    let settings = Client::builder();
    let (client, calls) = counted(&target.url, &target.namespace, settings).await?;
    let beside = Beside::measure(target, &client).await?;
    let before = target.raw.requests().await?;
    let crowd = if target.crosses_processes {
        processes(target, &client, size, Job::Turns { turns, counted: true }).await?
    } else {
        tasks(&client, size, turns).await?
    };
    let after = target.raw.requests().await?.map(|after| after.saturating_sub(beside.of(target, &crowd)));
    client.close().await;
    let calls = sum(&calls) + crowd.shares.iter().map(|share| share.calls).sum::<u64>();
    // One more than theirs: the turn that held them all back until everyone was there.
    Ok(Requests::per(size * turns + 1, calls, before.zip(after)))
}

/// What the server counts for what the bench does beside the turns.
struct Beside {
    /// For connecting a client, and closing it.
    client: u64,
    /// For looking once who waits.
    look: u64,
}

impl Beside {
    async fn measure(target: &Target, client: &Client) -> Result<Self> {
        let counted = async || -> Result<u64> { Ok(target.raw.requests().await?.unwrap_or(0)) };
        let first = counted().await?;
        target.client().await?.close().await;
        let second = counted().await?;
        client.show(RESOURCE).await?;
        let third = counted().await?;
        Ok(Self { client: second.saturating_sub(first), look: third.saturating_sub(second) })
    }

    /// All of it, of one crowd.
    fn of(&self, target: &Target, crowd: &Crowd) -> u64 {
        let clients = if target.crosses_processes { crowd.shares.len() as u64 } else { 0 };
        clients * self.client + crowd.looks * self.look
    }
}

const RESOURCE: &str = "bench";

async fn processes(target: &Target, client: &Client, size: usize, job: Job) -> Result<Crowd> {
    let guard = client.mutex(RESOURCE)?.acquire().await?;
    let mut workers = Vec::with_capacity(size);
    for _ in 0..size {
        workers.push(Worker::start(target, RESOURCE, job).await?);
    }
    let looks = until_waiting(client, RESOURCE, size).await?;
    let began = now();
    guard.release().await?;
    Ok(Crowd { looks, ..gathered(began, workers).await? })
}

async fn tasks(client: &Client, size: usize, turns: usize) -> Result<Crowd> {
    let guard = client.mutex(RESOURCE)?.acquire().await?;
    let mut running: JoinSet<_> = (0..size)
        .map(|_| {
            let client = client.clone();
            async move { take_turns(&client, RESOURCE, turns).await }
        })
        .collect();
    let looks = until_waiting(client, RESOURCE, size).await?;
    let (began, cpu) = (now(), usage::cpu());
    guard.release().await?;
    Ok(Crowd { looks, ..joined(began, cpu, &mut running).await? })
}

/// The same crowd in the raw limit's line.
pub(crate) async fn run_bare(target: &Target, size: usize, turns: usize) -> Result<Crowd> {
    let raw = target.raw.client().await?;
    if target.crosses_processes {
        let mut workers = Vec::with_capacity(size);
        for place in 0..size {
            workers.push(Worker::start(target, RESOURCE, Job::BareTurns { turns, place, of: size }).await?);
        }
        for worker in &mut workers {
            bounded("a worker to join the line", worker.ready()).await?;
        }
        let began = now();
        raw.start().await?;
        let crowd = gathered(began, workers).await;
        raw.end().await?;
        return crowd;
    }
    let mut running = JoinSet::new();
    let there = Arc::new(AtomicUsize::new(0));
    for place in 0..size {
        let member = target.raw.client().await?;
        member.join(place, size).await?;
        let there = Arc::clone(&there);
        running.spawn(async move {
            there.fetch_add(1, Ordering::Relaxed);
            take_turns_bare(&*member, turns).await
        });
    }
    while there.load(Ordering::Relaxed) < size {
        tokio::task::yield_now().await;
    }
    let (began, cpu) = (now(), usage::cpu());
    raw.start().await?;
    let crowd = joined(began, cpu, &mut running).await;
    // For the next crowd.
    raw.end().await?;
    crowd
}

async fn gathered(began: u64, workers: Vec<Worker>) -> Result<Crowd> {
    let mut shares = Vec::with_capacity(workers.len());
    let mut finished = Vec::with_capacity(workers.len());
    for worker in workers {
        let (share, worker) = bounded("a worker to have all its turns", worker.share()).await?;
        shares.push(share);
        finished.push(worker);
    }
    for worker in finished {
        bounded("a worker to end", worker.end()).await?;
    }
    let cpu_us = shares.iter().map(|share| share.cpu_us).sum();
    Ok(Crowd { began, shares, cpu_us, looks: 0 })
}

async fn joined(began: u64, cpu: Duration, running: &mut JoinSet<Result<Share>>) -> Result<Crowd> {
    let mut shares = Vec::with_capacity(running.len());
    bounded("all tasks to have their turns", async {
        while let Some(done) = running.join_next().await {
            shares.push(done??);
        }
        Ok(())
    })
    .await?;
    let cpu_us = usage::cpu().saturating_sub(cpu).as_secs_f64() * 1e6;
    // They share one process, so one knows it for all.
    if let Some(share) = shares.first_mut() {
        share.rss_mib = usage::rss_mib();
    }
    Ok(Crowd { began, shares, cpu_us, looks: 0 })
}

/// Returns once so many wait for `resource`: how often it looked.
pub(crate) async fn until_waiting(client: &Client, resource: &str, count: usize) -> Result<u64> {
    bounded("those who wait to be in line", async {
        let mut looks = 1;
        while client.show(resource).await?.waiters.len() < count {
            tokio::time::sleep(Duration::from_millis(2)).await;
            looks += 1;
        }
        Ok(looks)
    })
    .await
}

/// Waits for `what`, but not for ever: a lost wake-up is a finding, and no reason to hang.
pub(crate) async fn bounded<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    const BOUND: Duration = Duration::from_mins(3);
    match tokio::time::timeout(BOUND, work).await {
        Ok(outcome) => outcome,
        Err(_) => bail!("waited {BOUND:?} in vain for {what}"),
    }
}

impl Crowd {
    pub(crate) fn grants(&self) -> usize {
        self.shares.iter().map(|share| share.turns.len()).sum()
    }

    /// Fails unless everyone had all its turns.
    pub(crate) fn all_served(self, turns: usize) -> Result<Self> {
        ensure!(self.shares.iter().all(|share| share.turns.len() == turns), "somebody had too few turns");
        Ok(self)
    }

    /// Who had it when, in order.
    fn order(&self) -> Vec<(u64, usize)> {
        let of_one = |(who, share): (usize, &Share)| -> Vec<(u64, usize)> {
            share.turns.iter().map(|(_, had)| (*had, who)).collect()
        };
        let mut order: Vec<(u64, usize)> = self.shares.iter().enumerate().flat_map(of_one).collect();
        order.sort_unstable();
        order
    }

    /// How long it took until everyone had had all its turns.
    pub(crate) fn seconds(&self) -> f64 {
        let last = self.order().last().map_or(self.began, |(at, _)| *at);
        number(last.saturating_sub(self.began).max(1)) / 1e9
    }

    /// How often the next holder was another one.
    pub(crate) fn handoffs(&self) -> usize {
        self.order().windows(2).filter(|pair| pair[0].1 != pair[1].1).count()
    }

    /// How long each waited each time, except for the first, which waited for the start.
    pub(crate) fn waits_us(&self) -> Vec<f64> {
        let again = self.shares.iter().flat_map(|share| share.turns.iter().skip(1));
        again.map(|(asked, had)| number(had - asked) / 1e3).collect()
    }

    /// The longest of all waits.
    pub(crate) fn worst_wait_ms(&self) -> Option<f64> {
        self.waits_us().into_iter().max_by(f64::total_cmp).map(|us| us / 1e3)
    }

    /// The time from each grant to the next.
    pub(crate) fn gaps_us(&self) -> Vec<f64> {
        self.order().windows(2).map(|pair| number(pair[1].0 - pair[0].0) / 1e3).collect()
    }

    /// How evenly the first half of all grants fell, while all still wanted more.
    pub(crate) fn jain(&self) -> Option<f64> {
        let order = self.order();
        let mut shares = vec![0.0; self.shares.len()];
        for (_, who) in &order[..order.len() / 2] {
            shares[*who] += 1.0;
        }
        jain(&shares)
    }

    pub(crate) fn cpu_us_per_grant(&self) -> f64 {
        self.cpu_us / amount(self.grants().max(1))
    }

    /// Of the largest process.
    pub(crate) fn rss_mib(&self) -> Option<f64> {
        self.shares.iter().filter_map(|share| share.rss_mib).max_by(f64::total_cmp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(turns: &[(u64, u64)]) -> Share {
        Share { turns: turns.to_vec(), cpu_us: 2.0, rss_mib: Some(1.0), calls: 0 }
    }

    #[test]
    fn handoffs_are_changes_of_the_holder_and_the_first_wait_does_not_count() {
        let crowd = Crowd {
            began: 0,
            shares: vec![share(&[(0, 1000), (1100, 2000)]), share(&[(0, 3000), (3100, 5000)])],
            cpu_us: 4.0,
            looks: 0,
        };
        assert_eq!((crowd.grants(), crowd.handoffs()), (4, 1));
        assert_eq!(crowd.waits_us(), [0.9, 1.9]);
        assert_eq!(crowd.gaps_us(), [1.0, 1.0, 2.0]);
        assert_eq!(crowd.jain(), Some(0.5), "one had the whole first half");
        assert!((crowd.seconds() - 5e-6).abs() < 1e-12);
        assert!(crowd.all_served(3).is_err());
    }
}
