//! A worker: a process, or part of one, that does rounds of its workloads until it is told to stop.

use std::fs::File;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use palisade::Client;
use parking_lot::Mutex;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::station::{Chance, Station};
use super::teller::{Listener, Teller};
use super::workload::Workload;
use crate::history::ProcessId;

/// What a worker is told when it is hired.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) process: ProcessId,
    pub(super) url: String,
    /// Where registers are, if not at `url`.
    pub(super) registers: Option<String>,
    pub(super) namespace: String,
    pub(super) ttl_ms: u64,
    pub(super) seed: u64,
    pub(super) workloads: Vec<Workload>,
    pub(super) cancels: bool,
    pub(super) unhurried: bool,
    /// A bug to suffer from, in builds that have bugs planted.
    pub(super) bug: Option<String>,
}

impl Spec {
    fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

/// Acts as a worker process: takes its orders from the standard input, tells what it does on the
/// standard output, and ends when the standard input does.
pub fn main() -> ExitCode {
    // A stopped worker whose parent is killed would stay for ever.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = runtime.context("no runtime").and_then(|runtime| {
        let outcome = runtime.block_on(as_process());
        // A read of the standard input cannot be cancelled; waiting for it would be for ever.
        runtime.shutdown_background();
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("palisade: a worker failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn as_process() -> Result<()> {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let first = orders.next_line().await?.context("no orders came")?;
    let spec: Spec = serde_json::from_str(&first).context("the orders make no sense")?;
    let pipe = File::from(rustix::io::dup(rustix::stdio::stdout())?);
    let teller = Teller::new(spec.process, Listener::Pipe(Mutex::new(pipe)));
    let (stop, stopped) = watch::channel(false);
    let working = work(spec, teller, stopped);
    let watching = async move {
        // The end of the orders is the order to end.
        while let Ok(Some(_)) = orders.next_line().await {}
        let _ = stop.send(true);
    };
    let (outcome, ()) = tokio::join!(working, watching);
    outcome
}

/// Works until told to stop; then gives everything back.
pub(super) async fn work(spec: Spec, teller: Teller, mut stopped: watch::Receiver<bool>) -> Result<()> {
    let Some(station) = station(&spec, teller, &mut stopped).await? else { return Ok(()) };
    let mut tasks = JoinSet::new();
    let parts =
        spec.workloads.iter().flat_map(|workload| (0..workload.tasks()).map(move |part| (*workload, part)));
    for (number, (workload, part)) in (0..).zip(parts) {
        let (station, stopped) = (station.clone(), stopped.clone());
        let mut chance = Chance::new(spec.seed, (spec.process << 8) | number);
        tasks.spawn(async move {
            while !*stopped.borrow() {
                workload.round(&station, &mut chance, part).await;
                station.breathe(&mut chance).await;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.context("a task of the worker panicked")?;
    }
    station.client.close().await;
    station.registers.close().await;
    Ok(())
}

/// Connects; `None` if it is told to stop before that works out.
async fn station(
    spec: &Spec,
    teller: Teller,
    stopped: &mut watch::Receiver<bool>,
) -> Result<Option<Station>> {
    let connecting = async {
        let client = connect(spec, &spec.url).await?;
        let registers = match &spec.registers {
            Some(url) => connect(spec, url).await?,
            None => client.clone(),
        };
        anyhow::Ok((client, registers))
    };
    let (client, registers) = tokio::select! {
        connected = connecting => connected?,
        _ = stopped.wait_for(|stopped| *stopped) => return Ok(None),
    };
    let (ttl, cancels, unhurried) = (spec.ttl(), spec.cancels, spec.unhurried);
    Ok(Some(Station { client, registers, teller, ttl, cancels, unhurried }))
}

/// Connects, again if a fault is in the way.
async fn connect(spec: &Spec, url: &str) -> Result<Client> {
    loop {
        match super::open(url, &spec.namespace, spec.ttl()).await {
            Ok(client) => return super::planted::plant(spec, client),
            Err(error) if error.is_transient() => tokio::time::sleep(spec.ttl() / 10).await,
            Err(error) => return Err(error.into()),
        }
    }
}
