use std::collections::VecDeque;
use std::io::Read;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::failures::{Failure, read_failures};
use super::programs::TestProgram;
use super::stalls::Stalls;
use crate::steps::ended;
use crate::stray::Mark;

/// Far above what any of them takes.
const LIMIT: Duration = Duration::from_mins(15);

/// Above what two programs do to each other, below the shortest limit of a test on a real server.
const STALL: Duration = Duration::from_millis(250);

/// Runs all programs, two at a time (most tests wait, for servers, for TTLs, for each other), and says at the end what each that failed said.
///
/// A test that failed while the machine stood still is run again, alone, and said to be: its limits were the machine's. If it
/// fails once more, or if the machine did not stand still, it has failed.
///
/// # Errors
/// If a test failed.
pub(crate) fn run(programs: &[TestProgram]) -> Result<()> {
    ensure!(!programs.is_empty(), "there are no tests to run");
    let stalls = Stalls::watch(STALL);
    let mut runs = side_by_side(programs, &stalls);
    runs.sort_by_key(|run| std::cmp::Reverse(run.took));
    println!("\nThe programs that took longest:");
    for run in runs.iter().take(12) {
        println!("{:>7.1} s  {}", run.took.as_secs_f64(), run.program.name);
    }
    let failed: Vec<String> = runs.iter().flat_map(|run| failures(run, &stalls)).collect();
    if !failed.is_empty() {
        println!("\nThe tests that failed said:\n{}\n", failed.join("\n"));
        bail!(
            "{} of {} programs failed",
            runs.iter().filter(|run| run.problem.is_some()).count(),
            runs.len()
        );
    }
    Ok(())
}

/// What became of a program.
#[derive(Debug)]
struct Run<'a> {
    program: &'a TestProgram,
    took: Duration,
    problem: Option<String>,
    failures: Vec<Failure>,
    stall: Option<Duration>,
}

fn side_by_side<'a>(programs: &'a [TestProgram], stalls: &Stalls) -> Vec<Run<'a>> {
    let waiting = Mutex::new(programs.iter().collect());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for from in [VecDeque::pop_front, VecDeque::pop_back] {
            let (waiting, done) = (&waiting, &done);
            scope.spawn(move || {
                while let Some(program) = next(waiting, from) {
                    let (run, output) = run_one(program, &[], stalls);
                    // Under the lock, so that the lines of two programs do not mix.
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    println!("     Running {} ({:.1} s)\n{output}", program.name, run.took.as_secs_f64());
                    done.push(run);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Those of one kind stand together: from both ends, two that start the same servers seldom meet.
fn next<'a>(
    waiting: &Mutex<VecDeque<&'a TestProgram>>,
    from: fn(&mut VecDeque<&'a TestProgram>) -> Option<&'a TestProgram>,
) -> Option<&'a TestProgram> {
    from(&mut waiting.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs a program to its end, and returns what it printed, too.
fn run_one<'a>(program: &'a TestProgram, args: &[&str], stalls: &Stalls) -> (Run<'a>, String) {
    let began = Instant::now();
    let mut output = String::new();
    let problem = captured(program, args, &mut output).err().map(|error| format!("{error:#}"));
    let failures = read_failures(&output);
    let stall = stalls.longest_since(began);
    (Run { program, took: began.elapsed(), problem, failures, stall }, output)
}

fn captured(program: &TestProgram, args: &[&str], output: &mut String) -> Result<()> {
    let (mut from, to) = std::io::pipe()?;
    let mut command = Command::new(&program.path);
    command.args(args).current_dir(&program.folder).env("CARGO_MANIFEST_DIR", &program.folder);
    // Of an async test it shows the runtime only, and buries what the test said.
    command.env("RUST_BACKTRACE", "0");
    command.stdout(to.try_clone()?).stderr(to);
    let mark = Mark::put_on(&mut command);
    let child = command.spawn()?;
    // Has the other end of the pipe, too: the reader would wait for it.
    drop(command);
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let outcome = ended(child, LIMIT, &mark);
    // Nobody is left who could write.
    *output = reader.join().unwrap_or_default();
    outcome
}

/// What is to be told of a run that failed, and still fails without a stall.
fn failures(run: &Run<'_>, stalls: &Stalls) -> Vec<String> {
    let Some(problem) = &run.problem else { return Vec::new() };
    let name = &run.program.name;
    if run.failures.is_empty() {
        return vec![format!("{name}: {problem}")];
    }
    let Some(stall) = run.stall else { return told(name, &run.failures) };
    println!(
        "\n{name}: {} tests failed; the machine stood still for {stall:?} meanwhile:",
        run.failures.len()
    );
    let again = run.failures.iter().filter(|failure| {
        println!("{}\nRunning it again, alone.", failure.said.join("\n"));
        let (again, output) = run_one(run.program, &[&failure.test, "--exact"], stalls);
        println!("{output}");
        again.problem.is_some()
    });
    told(name, &again.cloned().collect::<Vec<_>>())
}

fn told(program: &str, failures: &[Failure]) -> Vec<String> {
    failures
        .iter()
        .map(|failure| format!("{program}: {}\n{}", failure.test, failure.said.join("\n")))
        .collect()
}
