use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::report::{self, Latency, Page};
use super::settings::Settings;
use super::station::Dropped;
use crate::check::linear::Budget;
use crate::check::{self, Bounds, Findings, Spread, Undecided, Violation};
use crate::history::{Answer, FaultKind, History, Op};

pub use super::report::Verdict;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Which engine was tried, without secrets.
    pub engine: String,
    /// The seed of the run.
    pub seed: u64,
    /// The command that does it again.
    pub command: String,
    /// What happened.
    pub history: History,
    /// What the checkers say of it, and what was wrong with the run itself.
    pub findings: Findings,
    /// How often each fault was done.
    pub faults: BTreeMap<FaultKind, usize>,
    /// For how long workers worked.
    pub ran: Duration,
}

impl Outcome {
    /// How long the search of one key may take. It takes milliseconds where all is well.
    const BUDGET: Duration = Duration::from_mins(1);

    /// Checks what happened; `violations` are what the run itself found.
    pub(super) fn judge(
        settings: &Settings,
        engine: String,
        faults: &[FaultKind],
        history: History,
        violations: Vec<Violation>,
        (ran, progress, fifo): (Duration, Duration, bool),
    ) -> Self {
        let linear = Budget { time: Self::BUDGET, ..Budget::default() };
        let bounds = Bounds { progress, fifo, linear };
        let mut findings = check::all(&history, &bounds);
        // What was wrong with the run itself explains the rest.
        findings.violations.splice(0..0, violations);
        findings.undecided.extend(untried(settings, &history));
        let struck = history.faults.iter().map(|fault| fault.kind);
        let kinds: BTreeSet<FaultKind> = faults.iter().copied().chain(struck).collect();
        let faults = kinds.into_iter().map(|kind| (kind, count(&history, kind))).collect();
        let (seed, command) = (settings.seed, settings.command.clone());
        Self { engine, seed, command, history, findings, faults, ran }
    }

    /// In one word.
    pub fn verdict(&self) -> Verdict {
        self.page(&[], &[]).verdict()
    }

    /// How many operations were checked in each second of the run.
    pub fn ops_per_second(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a run has far fewer than 2^52 operations")]
        let checked = self.history.checked() as f64;
        checked / self.ran.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        let findings = &self.findings;
        let by_kind: BTreeMap<&str, usize> =
            self.faults.iter().map(|(kind, count)| (kind.name(), *count)).collect();
        json!({
            "verdict": match self.verdict() {
                Verdict::Passed => "passed",
                Verdict::Violated => "violated",
                Verdict::Undecided => "undecided",
            },
            "engine": self.engine,
            "ops": self.history.checked(),
            "ops_per_second": self.ops_per_second().round(),
            "grants": findings.grants,
            "faults": self.faults.values().sum::<usize>(),
            "faults_by_kind": by_kind,
            "violations": findings.violations,
            "overlaps": findings.overlaps,
            "overlaps_excused": findings.overlaps_excused,
            "undecided": findings.undecided,
            "lost_updates": findings.lost_updates,
            "stale_refused": findings.stale_refused,
            "seed": self.seed,
            "command": self.command,
            "seconds": self.ran.as_secs_f64(),
            "waits": findings.waits,
            "holds": findings.holds,
            "takeovers": findings.takeovers,
            "progress_judged_seconds": findings.progress_judged.as_secs_f64(),
        })
    }

    /// Writes `report.html` and `summary.json` into `folder`.
    ///
    /// # Errors
    /// If they cannot be written.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let write = |name: &str, text: String| {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        let (facts, latencies) = (self.facts(), self.latencies());
        write("report.html", report::render(&self.page(&facts, &latencies)))?;
        write("summary.json", format!("{:#}\n", self.to_json()))
    }

    fn page<'a>(&'a self, facts: &'a [(String, String)], latencies: &'a [Latency]) -> Page<'a> {
        Page {
            title: "palisade verify",
            engine: &self.engine,
            history: &self.history,
            violations: &self.findings.violations,
            excuse: self.findings.overlaps_excused.as_deref(),
            undecided: &self.findings.undecided,
            facts,
            latencies,
            command: &self.command,
            seed: self.seed,
        }
    }

    fn facts(&self) -> Vec<(String, String)> {
        let findings = &self.findings;
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let mut facts = vec![
            fact("Operations checked", self.history.checked().to_string()),
            fact("Checked per second", format!("{:.0}", self.ops_per_second())),
            fact("Grants", findings.grants.to_string()),
            fact(
                "Waiting that was judged",
                format!("{:.0} s over all keys", findings.progress_judged.as_secs_f64()),
            ),
            fact("Lost updates", findings.lost_updates.to_string()),
            fact("Stale writes refused", findings.stale_refused.to_string()),
        ];
        if findings.overlaps_excused.is_some() {
            facts.push(fact("Overlaps of holders, excused", findings.overlaps.len().to_string()));
        }
        facts.extend(
            self.faults
                .iter()
                .map(|(kind, count)| fact(&format!("Faults: {}", kind.name()), count.to_string())),
        );
        facts
    }

    fn latencies(&self) -> Vec<Latency> {
        let findings = &self.findings;
        [
            ("From asking to holding", findings.waits),
            ("Held", findings.holds),
            ("From a holder's death to the next grant", findings.takeovers),
        ]
        .into_iter()
        .filter(|(_, spread)| spread.count > 0)
        .map(|(what, spread)| latency(what, spread))
        .collect()
    }
}

/// What no worker ever got to: a run in which nothing was tried proves nothing.
fn untried(settings: &Settings, history: &History) -> Vec<Undecided> {
    let done = |op: &&Op| {
        let by_worker = op.process != 0;
        by_worker && matches!(op.answer, Answer::Granted { .. } | Answer::Done { .. })
    };
    let worked: BTreeSet<&str> = history.ops.iter().filter(done).map(|op| &*op.key).collect();
    let keys = settings
        .all_workloads()
        .into_iter()
        .flat_map(|workload| workload.resources().into_iter().chain(workload.registers()));
    let missing = keys.filter(|key| !worked.contains(key.as_str()));
    let why = "no worker ever got to it: nothing was tried".to_owned();
    let mut untried: Vec<Undecided> =
        missing.map(|key| Undecided { checker: "workers", key, why: why.clone() }).collect();
    let after_calm = |op: &Op| history.calm_since.is_none_or(|calm| op.start >= calm);
    if !history.ops.iter().filter(done).any(after_calm) {
        let why = "no worker did anything after the faults were over".to_owned();
        untried.push(Undecided { checker: "workers", key: String::new(), why });
    }
    untried
}

fn latency(what: &str, spread: Spread) -> Latency {
    Latency {
        what: what.to_owned(),
        count: spread.count,
        p50: Duration::from_nanos(spread.p50),
        p99: Duration::from_nanos(spread.p99),
        max: Duration::from_nanos(spread.max),
    }
}

/// How often a fault was done. Futures are dropped by the workers, who say so in their answers.
fn count(history: &History, kind: FaultKind) -> usize {
    if kind != FaultKind::Cancel {
        return history.faults.iter().filter(|fault| fault.kind == kind).count();
    }
    let cancelled = |answer: &Answer| matches!(answer, Answer::Failed { reason } | Answer::Unknown { reason } if reason == Dropped::REASON);
    history.ops.iter().filter(|op| cancelled(&op.answer)).count()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let findings = &self.findings;
        write!(f, "{findings}")?;
        writeln!(
            f,
            "{} operations checked on {}, {:.0} a second; {} grants; {} stale writes refused, {} updates lost",
            self.history.checked(),
            self.engine,
            self.ops_per_second(),
            findings.grants,
            findings.stale_refused,
            findings.lost_updates
        )?;
        let faults: Vec<String> =
            self.faults.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
        let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
        writeln!(f, "faults: {faults}")?;
        if findings.takeovers.count > 0 {
            let (half, most) = (findings.takeovers.p50, findings.takeovers.p99);
            let (half, most) = (Duration::from_nanos(half), Duration::from_nanos(most));
            let count = findings.takeovers.count;
            writeln!(
                f,
                "after {count} deaths of a holder the next came in within {half:.1?} (half of them), {most:.1?} (99 of 100)"
            )?;
        }
        write!(f, "again: {}", self.command)
    }
}
