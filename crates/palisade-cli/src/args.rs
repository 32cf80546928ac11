//! The command line.
#![allow(clippy::doc_markdown, reason = "these comments are the help text, as people read it")]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use palisade::{ClaimId, Token, Version};
use palisade_testkit::verify::Workload;

use crate::exit::{self, Failure, Outcome};

/// Locks for shell scripts, cron jobs and operators: one command at a time, on any engine.
#[derive(Debug, Parser)]
#[command(name = "palisade", version, after_help = exit::HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Options of all verbs.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The engine, such as file:/var/lib/palisade; see `palisade engines`. Without it the embedded
    /// engine in the user's state folder (verify and bench: local:file)
    #[arg(
        long,
        short = 'e',
        value_name = "URL",
        env = "PALISADE_ENGINE",
        hide_env_values = true,
        global = true
    )]
    pub(crate) engine: Option<String>,
    /// The namespace: one never sees another. An error if the URL names another one
    #[arg(long, value_name = "NAME", env = "PALISADE_NAMESPACE", global = true)]
    pub(crate) namespace: Option<String>,
    /// What to call yourself to those who wait; unless given, the command's name
    #[arg(long, value_name = "TEXT", global = true)]
    pub(crate) label: Option<String>,
    /// What the engine must promise, such as linearizable,fenced
    #[arg(long, value_name = "LIST", global = true)]
    pub(crate) demand: Option<String>,
    /// Say whom is waited for even if nobody watches
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Run),
    Elect(Elect),
    Leader(Leader),
    Ls(Ls),
    Show(Show),
    Watch(Watch),
    Evict(Evict),
    Get(Get),
    Put(Put),
    Del(Del),
    Bench(Bench),
    Engines(Engines),
    Schema(Schema),
    Verify(Verify),
    Completions(Completions),
}

const RUN_HELP: &str = "\
The command finds in its environment:
  PALISADE_RESOURCE  NAME
  PALISADE_TOKEN     the fencing token, for `palisade put --fence`
  PALISADE_CLAIM     the claim, for `palisade evict --claim`
  PALISADE_SLOT      the slot's number, from 0 (with --slots)
  PALISADE_TOKENS    one line `TOKEN NAME` for each resource (with --and)

The command runs in a process group of its own. If the lock is lost, the group gets TERM and then
KILL before anyone else can hold the lock (after an eviction: within a second). If palisade dies,
even by kill -9, the group is killed before the lock passes on. Descendants that left the group, as
with setsid, are killed too as long as they have PALISADE_CLAIM in their environment or, if palisade
died, a descriptor that the command inherited; not those of another user. What the command leaves
running when it ends is no longer under the lock. A helper process, lock-guardian, sees to all this:
if it and palisade are both killed or both stopped, the command runs on when the TTL is over.

Durations look like 500ms, 10s or 1m30s; a number alone is seconds.";

/// Run a command while holding a lock
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct Run {
    /// The resource
    pub(crate) name: String,
    /// Wait at most so long; for ever unless given
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait at all
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// How long a crash can hold others up, 50ms to 24h, 15s unless given; renewed while the command
    /// runs
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// Hold it together with others who share it
    #[arg(long, conflicts_with_all = ["slots", "at_least", "and"])]
    pub(crate) shared: bool,
    /// Hold one of N slots, at least 1
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with_all = ["at_least", "and"]
    )]
    pub(crate) slots: Option<u32>,
    /// Hold this one too: all or nothing; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "at_least")]
    pub(crate) and: Vec<String>,
    /// Begin no sooner than this after the last run with --at-least began, also if that one failed:
    /// cron without doubles. A run without this option does not look
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) at_least: Option<Duration>,
    /// Stop the command after this time: TERM, KILL 5s later, exit code 76
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) at_most: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Run a command while leading; stop it when deposed
#[derive(Debug, Args)]
pub(crate) struct Elect {
    /// The election
    pub(crate) name: String,
    /// What to publish, such as an address
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) value: String,
    /// Stand again when deposed and when the command has ended, until asked to end
    #[arg(long)]
    pub(crate) forever: bool,
    /// How long a crash can leave everyone without a leader, 50ms to 24h, 15s unless given
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// How to print.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Format {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say who leads; exit 1 if nobody does
#[derive(Debug, Args)]
pub(crate) struct Leader {
    /// The election
    pub(crate) name: String,
    /// Go on with every change
    #[arg(long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// List what is held or waited for; tab-separated below its headings unless on a terminal
#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Show who holds a resource and who waits for it
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// The resource
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Follow changes of resources and registers
#[derive(Debug, Args)]
pub(crate) struct Watch {
    /// Only names that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) prefix: String,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// End a claim by force; its holder is told why
#[derive(Debug, Args)]
pub(crate) struct Evict {
    /// The resource
    pub(crate) name: String,
    /// The claim, held or waiting; needed unless exactly one holds
    #[arg(long, value_name = "ID")]
    pub(crate) claim: Option<ClaimId>,
    /// What to tell the holder
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
}

/// Print a register's value; exit 1 if there is none
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The register
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Write a register, under a condition if one is given; a refused write exits 1 and says what is there
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The register
    pub(crate) key: String,
    /// The value; - reads standard input
    pub(crate) value: OsString,
    /// Only if there is no value
    #[arg(long)]
    pub(crate) absent: bool,
    /// Only if the version is this one
    #[arg(long, value_name = "V")]
    pub(crate) version: Option<Version>,
    /// Only if no later holder than this one has written, as in $PALISADE_TOKEN; a write without
    /// this option is not fenced, and passes
    #[arg(long, value_name = "TOKEN")]
    pub(crate) fence: Option<Token>,
    /// The slot of the token, as in $PALISADE_SLOT
    #[arg(long, value_name = "N", requires = "fence")]
    pub(crate) fence_slot: Option<u32>,
    /// Make the fence follow this engine's tokens from now on: after a move from another engine, or
    /// after its token file was lost
    #[arg(long, requires = "fence")]
    pub(crate) rebase: bool,
    /// Let the value go away by itself
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) expires: Option<Duration>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Delete a register; its version and fence stay
#[derive(Debug, Args)]
pub(crate) struct Del {
    /// The register
    pub(crate) key: String,
    /// Only if the version is this one
    #[arg(long, value_name = "V")]
    pub(crate) version: Option<Version>,
    /// Only if no later holder than this one has written, as in $PALISADE_TOKEN
    #[arg(long, value_name = "TOKEN")]
    pub(crate) fence: Option<Token>,
    /// The slot of the token, as in $PALISADE_SLOT
    #[arg(long, value_name = "N", requires = "fence")]
    pub(crate) fence_slot: Option<u32>,
    #[command(flatten)]
    pub(crate) format: Format,
}

const BENCH_HELP: &str = "\
Every shape takes turns with the raw limit of the same engine: the bare native commands it needs, over
the same client library. Read the ratios; absolute times belong to one machine.

  uncontended  one client takes and releases, one key and many
  throughput   64 tasks of one process do so, each its own key
  contended    16 and 64 want one key over and over; queues of 16 and 64 are drained
  keepalive    1,000 and 10,000 are held: what their renewal costs
  takeover     a holder is killed with -9: how long until the next one holds
  reserve      16 want one of a stock: by reservations, next to the same under a lock
  command      `palisade run NAME -- true`, next to what a script would use instead

The engine may be one in use: the bench keeps to a namespace of its own. local:file is an embedded
engine in a new folder that is deleted afterwards, and what is measured if no engine is named.";

/// Measure how fast an engine is, next to its raw limit
#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub(crate) struct Bench {
    /// What to measure; everything unless given
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) shape: Vec<palisade_bench::Shape>,
    /// Few rounds: see that it works, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure every engine that can be started here, one after the other
    #[arg(long)]
    pub(crate) all: bool,
    /// Exit 1 if the engine misses what the project wants of it
    #[arg(long, conflicts_with = "quick")]
    pub(crate) goals: bool,
    /// Write the engine's part of this Markdown page, and a chart beside it
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    pub(crate) write: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// List the engines and what each promises
#[derive(Debug, Args)]
pub(crate) struct Engines {
    #[command(flatten)]
    pub(crate) format: Format,
}

const SCHEMA_HELP: &str = "\
Palisade makes its schema by itself where it may. Where it may not, somebody who may runs this once:
  palisade schema | psql DATABASE
  GRANT USAGE ON SCHEMA palisade TO the user of the locks, who needs no other right.
On MySQL and MariaDB it is made in the database that is named:
  palisade schema mysql | mariadb DATABASE
  GRANT EXECUTE ON DATABASE.* TO the user of the locks, who needs no other right.";

/// Print the SQL that makes Palisade's tables and functions
#[derive(Debug, Args)]
#[command(after_help = SCHEMA_HELP)]
pub(crate) struct Schema {
    /// For which server
    #[arg(value_parser = ["postgres", "mysql"], default_value = "postgres")]
    pub(crate) server: String,
    /// The name of the schema; MySQL has none
    #[arg(long, value_name = "NAME", default_value = "palisade")]
    pub(crate) schema: String,
}

const VERIFY_HELP: &str = "\
Workers lock and write while they are stopped, killed and cancelled; then every operation is checked:
tokens rise, valid guards never overlap, nothing acknowledged is lost, each key is linearizable,
waiters are served in time, nothing is left. The engine is used in a namespace of its own.

  palisade verify --engine local:file --for 2m      an engine of its own, gone afterwards
  palisade verify --engine file:/var/lib/palisade   your own
  palisade verify --check history.jsonl             a saved history, again

Exit codes: 0 nothing violated and nothing undecided, 1 violated, 2 undecided.";

/// Try an engine under faults, and check everything that happened
#[derive(Debug, Args)]
#[command(after_help = VERIFY_HELP)]
pub(crate) struct Verify {
    /// For how long faults strike; checking comes on top
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, default_value = "2m")]
    pub(crate) duration: Duration,
    /// What workers do: mutex, rw, semaphore, election, fence, register, lock-set; all but lock-set
    /// unless given
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) workload: Vec<Workload>,
    /// What is done to them: pause, kill, cut, slow, clock, restart, cancel; all that can be done to
    /// the engine unless given; none for none
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) faults: Option<Vec<String>>,
    /// Do again what another run did; what the operating system decides differs
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The TTL of claims; 1s unless given, 2s for lock-set
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// Where registers are kept, for an engine that has none
    #[arg(long, value_name = "URL")]
    pub(crate) registers: Option<String>,
    /// Write report.html, history.jsonl and summary.json into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Check a saved history instead: Palisade's own, a Jepsen register log, or knossos' EDN
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["workload", "faults", "seed", "ttl", "registers", "report"]
    )]
    pub(crate) check: Option<PathBuf>,
    /// What the history should be one of: register, kv, mutex, owner-mutex, fenced-mutex, rw, permits
    /// (permits=N where the history does not say how many), versioned. Palisade's own need none: then
    /// every checker looks at it
    #[arg(long, value_name = "MODEL", requires = "check")]
    pub(crate) model: Option<String>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Print shell completions
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Parses the command line; help and version are printed here.
pub(crate) fn parse() -> Outcome<Cli> {
    parse_from(std::env::args_os()).map_err(|error| {
        let code = if error.use_stderr() { exit::USAGE } else { exit::OK };
        // Clap colours by itself, and a reader who left early is no failure.
        let _ = error.print();
        Failure::new(code, "")
    })
}

fn parse_from(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches_from(args)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    // An empty variable says nothing. An empty option is a mistake, such as `--engine "$UNSET"`, and stays one.
    if matches.value_source("engine") == Some(ValueSource::EnvVariable) {
        cli.global.engine = cli.global.engine.filter(|url| !url.is_empty());
    }
    Ok(cli)
}

/// What an evicted holder is told.
fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("a reason is needed: the holder is told it".to_owned());
    }
    Ok(text.to_owned())
}

/// `500ms`, `1m30s`, or seconds.
fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| *seconds >= 0.0);
    let parsed = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => humantime::parse_duration(text).ok(),
    };
    parsed.ok_or_else(|| "a duration looks like 500ms, 10s or 1m30s; a number alone is seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["", "-1", "NaN", "inf", "1e300", "soon", "99999999999999999999y"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
