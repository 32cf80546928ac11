//! `palisade verify`: workers that lock, faults that strike, and checkers that judge what happened.
//!
//! ```text
//!   parent   launches the engine, hires workers, strikes, records, checks, reports
//!     ├── worker 1    rounds of mutex, rw, semaphore, election, fence, register
//!     ├── worker 2    …               every call is told to the parent before it is made
//!     └── …
//! ```

mod closing;
mod crew;
mod nemesis;
mod outage;
mod outcome;
mod planted;
mod recorder;
pub mod report;
mod settings;
mod stall;
mod station;
mod teller;
mod worker;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use palisade::Client;
use palisade_core::Fairness;
use tokio::time::Instant;

pub use self::outcome::{Outcome, Verdict};
#[cfg(feature = "planted-bugs")]
pub use self::planted::Bug;
pub use self::settings::Settings;
pub use self::worker::main as worker_main;
pub use self::workload::Workload;

use self::crew::Crew;
use self::nemesis::{Nemesis, stop_half_of_the_time};
use self::recorder::Recorder;
use self::station::Station;
use self::teller::{Listener, Teller};
use self::worker::Spec;
use crate::history::{Begin, Event, FaultKind};
use crate::launch::{Purpose, Target, launch};
use crate::misuse::{Misuse, misuse};

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Since it began.
    pub passed: Duration,
    /// How many operations were answered.
    pub ops: u64,
    /// How many grants there were.
    pub grants: u64,
    /// How many faults struck.
    pub faults: u64,
}

/// Verifies an engine.
///
/// # Errors
/// If it could not be tried: no such engine, a fault that cannot be done to it, a worker that
/// cannot be started. What is wrong with the engine itself is in the [`Outcome`].
///
/// # Cancel safety
/// Dropping the future kills the workers and ends what was launched; nothing is judged, and claims
/// in an engine of the user's own end with their TTL.
pub async fn verify(settings: &Settings, progress: &dyn Fn(Progress)) -> Result<Outcome> {
    if settings.duration < Duration::from_secs(1) {
        misuse!("a run lasts for at least a second");
    }
    let target: Arc<dyn Target> = launch(&settings.engine, &settings.helper, Purpose::Faults).await?.into();
    let faults = faults(settings, &*target)?;
    if let Some(folder) = &settings.report {
        std::fs::create_dir_all(folder)
            .map_err(|problem| Misuse(format!("cannot make the folder {}: {problem}", folder.display())))?;
    }
    let file = settings.report.as_ref().map(|folder| folder.join("history.jsonl"));
    let recorder = Arc::new(Recorder::new(file.as_deref())?);
    recorder.hear(Event::Begin(Begin {
        format: 1,
        engine: target.name(),
        seed: settings.seed,
        command: settings.command.clone(),
        ttl_ms: millis(settings.longest_ttl()),
        voids_exclusion: faults
            .iter()
            .filter_map(|fault| Some((*fault, target.voids_exclusion(*fault)?)))
            .collect(),
    }));
    // First of all: what cannot be reached cannot be tried. And a store in memory lives as long as
    // somebody is connected.
    let station = station(settings, &*target, &recorder).await?;
    let settings = &settings.suited_to(station.client.profile().modes)?;
    let mut run = Run { settings, target, faults, recorder, station };
    let (ran, problems) = run.trouble(progress).await?;
    let violations = run.close(problems).await?;
    let history = run.recorder.finish()?;
    let fifo = run.station.client.profile().fairness == Fairness::Fifo;
    let engine = run.target.name();
    let bound = settings.progress_bound(&*run.target);
    let outcome = Outcome::judge(settings, engine, &run.faults, history, violations, (ran, bound, fifo));
    if let Some(folder) = &settings.report {
        outcome.write(folder)?;
    }
    Ok(outcome)
}

/// Which faults are done: those asked for, or all that can be.
fn faults(settings: &Settings, target: &dyn Target) -> Result<Vec<FaultKind>> {
    let refuses = |fault: FaultKind| match fault {
        FaultKind::Pause | FaultKind::Kill | FaultKind::Cut | FaultKind::Slow
            if settings.common_workloads().is_empty() =>
        {
            Some(
                "the workers of lock-set are stopped by a plan of their own; name another workload too"
                    .to_owned(),
            )
        }
        fault => target.refuses(fault),
    };
    let Some(asked) = &settings.faults else {
        return Ok(FaultKind::ALL.into_iter().filter(|fault| refuses(*fault).is_none()).collect());
    };
    for fault in asked {
        if let Some(reason) = refuses(*fault) {
            misuse!("fault {} cannot be done here: {reason}", fault.name());
        }
    }
    Ok(asked.clone())
}

struct Run<'a> {
    settings: &'a Settings,
    target: Arc<dyn Target>,
    faults: Vec<FaultKind>,
    recorder: Arc<Recorder>,
    /// Where the parent itself stands: with a line of its own to the engine.
    station: Station,
}

impl Run<'_> {
    /// Workers work while faults strike, then in calm, then leave. Returns for how long that went
    /// on, and what was wrong with workers.
    async fn trouble(&mut self, progress: &dyn Fn(Progress)) -> Result<(Duration, Vec<String>)> {
        let settings = self.settings;
        let lock_set = if settings.has_lock_set() { vec![Workload::LockSet] } else { Vec::new() };
        if !lock_set.is_empty() && !self.target.crosses_processes() {
            misuse!("lock-set stops its workers, but {} lives inside one process", self.target.name());
        }
        let common = settings.common_workloads();
        let workers = if common.is_empty() { 0 } else { Settings::WORKERS };
        let mut crew = self.hire(common, settings.common_ttl(), 1, workers).await?;
        let setters = if lock_set.is_empty() { 0 } else { Settings::LOCK_SET_WORKERS };
        let setting = self.hire(lock_set, settings.lock_set_ttl(), 1 << 20, setters).await?;

        let start = Instant::now();
        let end = start + settings.duration;
        let bound = settings.progress_bound(&*self.target);
        let ttl = settings.common_ttl();
        let calm = bound + ttl / 2;
        let mut nemesis =
            Nemesis::new(self.recorder(), Arc::clone(&self.target), settings.seed, &self.faults, ttl, calm);
        let period = settings.lock_set_ttl() * Settings::LOCK_SET_PERIOD;
        let raging = async {
            tokio::try_join!(
                nemesis.rage(&mut crew, end),
                stop_half_of_the_time(&self.recorder, &setting, period, end)
            )?;
            self.recorder.hear(Event::Calm { at: teller::now() });
            // Long enough for a wait that takes too long to show.
            crew.watch_until(Instant::now() + bound + settings.longest_ttl()).await
        };
        tokio::select! {
            raged = raging => raged?,
            never = self.watch_over(start, progress) => match never {},
        }
        // Counted while workers were at it: what comes now is cleaning up.
        let ran = start.elapsed();
        let patience = settings.longest_ttl() * 10 + Duration::from_secs(10);
        let (mut problems, more) = tokio::join!(crew.dismiss(patience), setting.dismiss(patience));
        problems.extend(more);
        Ok((ran, problems))
    }

    async fn hire(&self, workloads: Vec<Workload>, ttl: Duration, first: u64, count: usize) -> Result<Crew> {
        let settings = self.settings;
        let orders = Spec {
            process: first,
            url: String::new(),
            registers: settings.registers.clone(),
            namespace: namespace(settings),
            ttl_ms: millis(ttl),
            seed: settings.seed,
            workloads,
            cancels: self.faults.contains(&FaultKind::Cancel),
            unhurried: !self.target.crosses_processes(),
            bug: settings.bug.clone(),
        };
        Crew::hire(&settings.helper, Arc::clone(&self.target), self.recorder(), orders, count).await
    }

    /// Tells how far it is, and notes when the machine itself stood still.
    async fn watch_over(&self, start: Instant, progress: &dyn Fn(Progress)) -> std::convert::Infallible {
        let mut stalls = stall::Stalls::new(self.recorder());
        let mut told = Instant::now();
        loop {
            stalls.tick().await;
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                let counts = self.recorder.counts();
                let (ops, grants, faults) = (counts.ops, counts.grants, counts.faults);
                progress(Progress { passed: start.elapsed(), ops, grants, faults });
            }
        }
    }

    /// Takes everything once more, reads everything, and looks what is left.
    async fn close(&self, problems: Vec<String>) -> Result<Vec<crate::check::Violation>> {
        let settings = self.settings;
        let bound = settings.progress_bound(&*self.target);
        let mut violations: Vec<_> =
            problems.into_iter().map(|problem| closing::violation("workers", "", problem)).collect();
        let at = &self.station;
        let workloads = settings.all_workloads();
        violations.extend(closing::leaks(&at.client, bound).await?);
        violations.extend(closing::last_words(at, &workloads, bound).await?);
        violations.extend(closing::leaks(&at.client, bound).await?);
        at.client.close().await;
        at.registers.close().await;
        let left = self.target.left_behind().await?;
        violations.extend(left.into_iter().map(|left| closing::violation("leaks", "", left)));
        Ok(violations)
    }

    fn recorder(&self) -> Arc<Recorder> {
        Arc::clone(&self.recorder)
    }
}

/// Connects the parent, and checks that the engine can do what workers will ask of it.
async fn station(settings: &Settings, target: &dyn Target, recorder: &Arc<Recorder>) -> Result<Station> {
    let (ttl, namespace) = (settings.longest_ttl(), namespace(settings));
    let client = open(&target.url(&[]), &namespace, ttl).await?;
    let registers = match &settings.registers {
        Some(url) => {
            if target.crosses_processes()
                && !launch(url, &settings.helper, Purpose::Faults).await?.crosses_processes()
            {
                misuse!("registers at {url} live inside one process, and workers are several");
            }
            open(url, &namespace, ttl).await?
        }
        None => client.clone(),
    };
    if !registers.profile().registers {
        misuse!(
            "{} keeps no registers, which fence, register and lock-set need; name an engine that does with --registers",
            target.name()
        );
    }
    let teller = Teller::new(0, Listener::Here(Arc::clone(recorder)));
    Ok(Station { client, registers, teller, ttl, cancels: false, unhurried: false })
}

/// Apart from whatever else uses the engine.
fn namespace(settings: &Settings) -> String {
    format!("palisade-verify-{}-{}", std::process::id(), settings.seed)
}

async fn open(url: &str, namespace: &str, ttl: Duration) -> palisade::Result<Client> {
    // No call may take longer than a claim lasts: then it is time to give up anyway.
    let builder = Client::builder().label("palisade verify").namespace(namespace).ttl(ttl).call_timeout(ttl);
    // A server of the testkit's own takes these by its URL.
    let ours = url.starts_with("remote:");
    let options =
        if ours { format!("?namespace={namespace}&call-timeout={}", millis(ttl)) } else { String::new() };
    let url = format!("{url}{options}");
    crate::open(&url, builder).await
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
