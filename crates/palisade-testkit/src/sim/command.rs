use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::{Plan, Run, Tally, run_seeds, shrink, simulate};
use crate::check::Violation;

/// How many runs shrinking may take.
const SHRINK_TRIES: usize = 2000;

const HELP: &str = "\
Runs deterministic simulations of Palisade's clients, each from a seed.

Usage: palisade-simulate [--seeds N] [--from SEED] [--threads N]
       palisade-simulate --seed SEED [--trace | --digest]

  --seeds N     how many seeds to run (10000)
  --from SEED   the first of them (0)
  --threads N   on how many threads (2)
  --seed SEED   run one seed; if it fails, it is shrunk and shown
  --digest      with --seed: show only the digest of every message, to compare two runs
  --trace       with --seed: show every message, also of a run that is right

Exit status: 0 if all was right, 1 if a seed showed a mistake, 2 for a wrong argument.";

#[derive(Debug)]
struct Arguments {
    seeds: u64,
    from: u64,
    threads: usize,
    seed: Option<u64>,
    trace: bool,
    digest: bool,
}

/// The `palisade-simulate` command.
pub fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            say(HELP);
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("{problem}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match arguments.seed {
        Some(seed) if arguments.digest => {
            say(&format!("{:016x}", simulate(&Plan::new(seed), None, true).digest()));
            ExitCode::SUCCESS
        }
        Some(seed) => one(seed, arguments.trace),
        None => many(&arguments),
    }
}

/// Prints a line. A reader who left early wanted no more.
fn say(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut arguments =
        Arguments { seeds: 10_000, from: 0, threads: 2, seed: None, trace: false, digest: false };
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or_else(|| format!("{word} needs a number"))?;
            value.parse::<u64>().map_err(|_| format!("{word}: {value} is no whole number"))
        };
        match word.as_str() {
            "--seeds" => arguments.seeds = number()?,
            "--from" => arguments.from = number()?,
            "--threads" => arguments.threads = number()? as usize,
            "--seed" => arguments.seed = Some(number()?),
            "--digest" => arguments.digest = true,
            "--trace" => arguments.trace = true,
            "--help" | "-h" => return Ok(None),
            other => return Err(format!("unknown argument {other}")),
        }
    }
    if arguments.seeds == 0 || arguments.threads == 0 {
        return Err("at least one seed, on at least one thread".to_owned());
    }
    Ok(Some(arguments))
}

fn many(arguments: &Arguments) -> ExitCode {
    let started = Instant::now();
    let tell = |done: u64| eprint!("\r{done} of {} seeds, {:.0?} ", arguments.seeds, started.elapsed());
    let tally = run_seeds(arguments.from, arguments.seeds, arguments.threads, None, &tell);
    eprintln!("\r{}", summary(&tally, started.elapsed()));
    for (sort, count) in &tally.seen {
        say(&format!("{count:>9} {sort}"));
    }
    match tally.failed {
        None => ExitCode::SUCCESS,
        Some(seed) => {
            one(seed, false);
            ExitCode::FAILURE
        }
    }
}

fn summary(tally: &Tally, took: Duration) -> String {
    format!(
        "{} seeds in {took:.1?}: {:.1} simulated hours, {} happenings, {} events on record",
        tally.seeds,
        tally.time.as_secs_f64() / 3600.0,
        tally.happenings,
        tally.events
    )
}

fn one(seed: u64, trace: bool) -> ExitCode {
    let plan = Plan::new(seed);
    let run = simulate(&plan, None, true);
    let Some(first) = run.violations.first() else {
        if trace {
            say(&format!("{plan:#?}\n{}", run.trace.join("\n")));
        }
        say(&format!("seed {seed}: right, {:.1?} simulated, {} happenings", run.time, run.happenings));
        return ExitCode::SUCCESS;
    };
    let small = shrink(&plan, first.checker, None, SHRINK_TRIES);
    say(&format!("seed {seed} shows a mistake. Shrunk, with what happens in it:\n"));
    say(&show(&small, &simulate(&small, None, true)));
    say(&format!("To run it again: palisade-simulate --seed {seed}"));
    ExitCode::FAILURE
}

/// A failing plan for a person: what was planned, what happened, what was wrong.
pub(super) fn show(plan: &Plan, run: &Run) -> String {
    let mut text = format!("{plan:#?}\n\n{}\n\n", run.trace.join("\n"));
    for violation in &run.violations {
        let Violation { checker, key, what, ops, .. } = violation;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{checker}: {key}: {what} (operations {ops:?})");
    }
    text
}
