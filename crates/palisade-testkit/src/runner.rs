use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use futures::{StreamExt, stream};
use palisade_core::{Owner, Profile};
use tokio::sync::RwLock;

use crate::{Case, Context, Fixture, Outcome, Report, Verdict, cases};

/// How to run the suite.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only cases whose name contains this; all, if it is empty.
    pub filter: String,
    /// A case that takes longer has failed.
    pub case_limit: Duration,
    /// How many cases run at once.
    pub parallel: usize,
    /// The `palisade-taker` program, for the cases that kill and stop processes.
    pub taker: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { filter: String::new(), case_limit: Duration::from_mins(1), parallel: 8, taker: None }
    }
}

/// The suite over one fixture; cases can be run one by one, in any order, at the same time.
pub struct Suite {
    fixture: Arc<dyn Fixture>,
    profile: Profile,
    options: Options,
    owner: Arc<Owner>,
    /// Held for writing by a case that must run alone.
    quiet: RwLock<()>,
}

impl std::fmt::Debug for Suite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Suite").field("engine", &self.fixture.name()).finish_non_exhaustive()
    }
}

impl Suite {
    /// Connects once, to learn what the engine promises.
    ///
    /// # Errors
    /// The engine cannot be reached.
    pub async fn new(fixture: Arc<dyn Fixture>, options: Options) -> Result<Self> {
        let probe = fixture.connect("probe").await.context("the engine cannot be reached")?;
        let profile = probe.profile().clone();
        probe.close().await;
        let owner = Arc::new(Owner { label: Some("palisade-testkit".to_owned()), ..Owner::this_process() });
        Ok(Self { fixture, profile, options, owner, quiet: RwLock::new(()) })
    }

    /// The cases that the filter picks.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = cases();
        cases.retain(|case| case.name.contains(&self.options.filter));
        cases
    }

    /// Why a case does not apply to this engine, if so.
    pub fn not_applicable(&self, case: &Case) -> Option<String> {
        let applies = case.applies(&self.profile, &*self.fixture);
        match (applies, &self.options.taker) {
            (Ok(()), None) if case.needs.contains(&crate::case::Need::Processes) => {
                Some("no taker program was given".to_owned())
            }
            (applies, _) => applies.err(),
        }
    }

    /// Runs one case.
    pub async fn run(&self, case: &Case) -> Outcome {
        let started = Instant::now();
        let verdict = match self.not_applicable(case) {
            Some(why) => Verdict::NotApplicable(why),
            None => match self.attempt(case).await {
                Ok(()) => Verdict::Passed,
                Err(why) => Verdict::Failed(format!("{why:#}; the clause: {:?}", case.clause)),
            },
        };
        Outcome { case: case.name.clone(), verdict, took: started.elapsed() }
    }

    async fn attempt(&self, case: &Case) -> Result<()> {
        let (_alone, _shared) = if case.alone {
            (Some(self.quiet.write().await), None)
        } else {
            (None, Some(self.quiet.read().await))
        };
        let limit = self.options.case_limit;
        // On a task of its own, so that an engine that never pauses hangs that task only, and
        // what the limit must end is noticed here.
        let mut body = tokio::spawn((case.run)(self.context(case)));
        match tokio::time::timeout(limit, &mut body).await {
            Ok(Ok(result)) => result,
            Ok(Err(ended)) => Err(anyhow!("it panicked: {}", panic_text(&*ended.into_panic()))),
            Err(_) => {
                body.abort();
                Err(anyhow!("it took longer than {limit:?}"))
            }
        }
    }

    fn context(&self, case: &Case) -> Context {
        // Unique over repeated runs against a store that keeps what earlier runs wrote.
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("t{}-{run}", palisade_core::ClaimId::random());
        Context {
            fixture: Arc::clone(&self.fixture),
            profile: self.profile.clone(),
            namespace,
            way: case.way,
            taker: self.options.taker.clone(),
            owner: Arc::clone(&self.owner),
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Runs the suite over a fixture.
///
/// # Errors
/// The engine cannot be reached at all. What it does wrong is in the report.
pub async fn run(fixture: Arc<dyn Fixture>, options: Options) -> Result<Report> {
    let (engine, parallel) = (fixture.name().to_owned(), options.parallel.max(1));
    let suite = Suite::new(fixture, options).await?;
    let cases = suite.cases();
    let outcomes = stream::iter(&cases).map(|case| suite.run(case)).buffered(parallel).collect().await;
    Ok(Report { engine, outcomes })
}
