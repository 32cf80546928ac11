use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use palisade::{Client, ClientBuilder, Mutex, MutexGuard, Reach};
use palisade_testkit::launch::{self, Purpose, launch};
use palisade_testkit::{Calls, Counting};

use crate::Options;
use crate::crowd::bounded;
use crate::raw::{Entry, RawLimit, Setting};
use crate::report::Requests;
use crate::stats::{amount, number};

/// The engine that is measured, with its raw limit.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: String,
    /// A namespace of our own, so that a bench on an engine in use meets nobody's claims.
    pub(crate) namespace: String,
    /// As `palisade engines` calls it.
    pub(crate) engine: &'static str,
    pub(crate) raw: Arc<dyn RawLimit>,
    /// The `palisade` command, which is also the worker.
    pub(crate) program: PathBuf,
    /// Whether processes share the engine; else a crowd is one of tasks.
    pub(crate) crosses_processes: bool,
    /// Whether servers were started for this run, so that they share this machine's processors with it.
    pub(crate) is_beside: bool,
    /// Ends what was started for this run; declared last, for it must outlive the raw limit.
    #[expect(dead_code, reason = "kept until it is dropped")]
    launched: Option<Box<dyn launch::Target>>,
}

impl Target {
    /// Starts the engine if its URL asks for that, and connects once to see that it serves.
    pub(crate) async fn open(options: &Options) -> Result<Self> {
        let launched = launch(&options.engine, &options.helper, Purpose::Speed).await?;
        let started = options.engine.starts_with("local:");
        let url = if started { as_usual(&launched.url(&[])) } else { launched.url(&[]) };
        let entry = Entry::of_url(&url)?;
        // Short as people's own are: it is part of every key.
        let fresh = || format!("bench-{:08x}", uuid::Uuid::new_v4().as_fields().0);
        let namespace = options.namespace.clone().unwrap_or_else(fresh);
        let demand = options.demand.clone();
        let client = Client::builder().namespace(&namespace).demand(demand).connect(&url).await?;
        let is_beside = started && client.profile().reach == Reach::Network;
        client.close().await;
        let raw = (entry.open)(&url).context("cannot prepare the raw limit beside the engine")?;
        if started {
            until_granting(&url, &namespace).await?;
        }
        Ok(Self {
            url,
            namespace,
            engine: entry.engine,
            raw,
            program: options.helper.path.clone(),
            crosses_processes: launched.crosses_processes(),
            is_beside,
            launched: Some(launched),
        })
    }

    /// The same engine with another setting.
    pub(crate) fn with(&self, setting: Setting) -> Self {
        Self {
            url: setting.url,
            raw: setting.raw,
            namespace: self.namespace.clone(),
            engine: self.engine,
            program: self.program.clone(),
            crosses_processes: self.crosses_processes,
            is_beside: self.is_beside,
            launched: None,
        }
    }

    pub(crate) async fn client(&self) -> Result<Client> {
        connect(&self.url, &self.namespace).await
    }

    /// Counts what `work` asks of the engine, apart from what is timed: the counter costs time too.
    pub(crate) async fn count(
        &self,
        operations: usize,
        work: impl AsyncFnOnce(&Client) -> Result<()>,
    ) -> Result<Requests> {
        let (client, calls) = counted(&self.url, &self.namespace, Client::builder()).await?;
        let before = self.raw.requests().await?;
        work(&client).await?;
        let after = self.raw.requests().await?;
        client.close().await;
        Ok(Requests::per(operations, sum(&calls), before.zip(after)))
    }
}

/// The URL of an engine that was started for this run, without what would suit only a run in which servers
/// lose their data: a quorum whose TTLs are short enough for such a server to vote again soon.
fn as_usual(url: &str) -> String {
    let Some((address, options)) = url.split_once('?') else { return url.to_owned() };
    let options: Vec<&str> =
        options.split('&').filter(|option| !option.starts_with("longest-ttl=")).collect();
    if options.is_empty() { address.to_owned() } else { format!("{address}?{}", options.join("&")) }
}

/// Returns once a claim is granted: servers of a quorum that began just now do not vote at once.
async fn until_granting(url: &str, namespace: &str) -> Result<()> {
    const PAUSE: Duration = Duration::from_millis(100);
    bounded("the engine to grant", async {
        let client = connect(url, namespace).await?;
        let mutex = client.mutex("bench")?;
        let guard = loop {
            match tokio::time::timeout(Duration::from_secs(1), mutex.acquire()).await {
                Ok(Ok(guard)) => break guard,
                Ok(Err(problem)) if !problem.is_transient() => return Err(problem.into()),
                Ok(Err(_)) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        };
        guard.release().await?;
        client.close().await;
        Ok(())
    })
    .await
}

/// Takes what is free or will be; again, if the engine was out of reach for a moment. On a machine that others share
/// that happens once in a while (a quorum's servers have a tenth of a second to answer), and would cost the minutes before.
pub(crate) async fn take(mutex: &Mutex) -> Result<MutexGuard> {
    const TRIES: usize = 5;
    for _ in 1..TRIES {
        match mutex.acquire().await {
            Err(problem) if problem.is_transient() => {}
            taken => return Ok(taken?),
        }
    }
    Ok(mutex.acquire().await?)
}

/// Gives it back. An engine that is out of reach for a moment is told in the background.
pub(crate) async fn give(guard: MutexGuard) -> Result<()> {
    match guard.release().await {
        Err(problem) if !problem.is_transient() => Err(problem.into()),
        _ => Ok(()),
    }
}

/// A client of the engine at `url`.
pub(crate) async fn connect(url: &str, namespace: &str) -> Result<Client> {
    Ok(Client::builder().namespace(namespace).connect(url).await?)
}

/// A client, with `settings`, whose calls are counted.
pub(crate) async fn counted(
    url: &str,
    namespace: &str,
    settings: ClientBuilder,
) -> Result<(Client, Arc<Calls>)> {
    let counting = Counting::new(Arc::clone(connect(url, namespace).await?.engine()));
    let calls = counting.calls();
    Ok((settings.over(Arc::new(counting))?, calls))
}

/// All calls about claims.
pub(crate) fn sum(calls: &Calls) -> u64 {
    use std::sync::atomic::Ordering::Relaxed;
    [&calls.claim, &calls.wait, &calls.renew, &calls.withdraw].iter().map(|count| count.load(Relaxed)).sum()
}

impl Requests {
    /// `calls` and what the server counted before and after, for each of so many operations.
    pub(crate) fn per(operations: usize, calls: u64, server: Option<(u64, u64)>) -> Self {
        let each = |count: u64| number(count) / amount(operations.max(1));
        let calls = each(calls);
        let requests = server.map_or(calls, |(before, after)| each(after.saturating_sub(before)));
        Self { requests, calls }
    }
}
