use std::env;
use std::fmt::Write;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::stray::Mark;

/// Cargo with `args`: the same one that runs us.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Steps that were taken, one after the other. A failed one does not keep the next from running:
/// one run tells all that is wrong.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

#[derive(Debug)]
struct Step {
    name: String,
    took: Duration,
    problem: Option<String>,
}

impl Steps {
    /// Takes a step.
    pub(crate) fn take(&mut self, name: impl Into<String>, step: impl FnOnce() -> Result<()>) {
        let name = name.into();
        println!("\n── {name}");
        let start = Instant::now();
        let problem = step().err().map(|error| format!("{error:#}"));
        if let Some(problem) = &problem {
            println!("FAILED {name}: {problem}");
        }
        self.0.push(Step { name, took: start.elapsed(), problem });
    }

    /// Takes a step that is one command.
    pub(crate) fn command(&mut self, name: impl Into<String>, mut command: Command) {
        self.take(name, || {
            let status = command.status().context("the command could not be started")?;
            ensure!(status.success(), "{status}");
            Ok(())
        });
    }

    /// Takes a step that is one command, with a time limit; what it leaves running fails it.
    pub(crate) fn bounded(&mut self, name: impl Into<String>, mut command: Command, limit: Duration) {
        self.take(name, || {
            let mark = Mark::put_on(&mut command);
            let child = command.spawn().context("the command could not be started")?;
            ended(child, limit, &mark)
        });
    }

    /// Prints what became of each step.
    ///
    /// # Errors
    /// If one failed.
    pub(crate) fn finish(self) -> Result<()> {
        println!("\n{}", self.summary());
        let failed = self.0.iter().filter(|step| step.problem.is_some()).count();
        ensure!(failed == 0, "{failed} of {} steps failed", self.0.len());
        Ok(())
    }

    fn summary(&self) -> String {
        let mut text = String::new();
        for step in &self.0 {
            let outcome = if step.problem.is_some() { "FAILED" } else { "ok" };
            let _ = writeln!(text, "{outcome:>6} {:>7.1} s  {}", step.took.as_secs_f64(), step.name);
        }
        let total: Duration = self.0.iter().map(|step| step.took).sum();
        let _ = write!(text, "{:>6} {:>7.1} s", "total", total.as_secs_f64());
        text
    }
}

/// Waits for a command and for all it started; what it leaves running is an error.
pub(crate) fn ended(child: Child, limit: Duration, mark: &Mark) -> Result<()> {
    let status = wait(child, limit, mark)?;
    let strays = mark.end_strays()?;
    ensure!(status.success(), "{status}");
    ensure!(strays.is_empty(), "it left processes running, now ended: {}", strays.join("; "));
    Ok(())
}

fn wait(mut child: Child, limit: Duration, mark: &Mark) -> Result<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= end {
            let ended = mark.end_all()?;
            child.wait()?;
            bail!("it was not done within {limit:?}; ended {}", ended.join("; "));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn every_step_runs_and_one_failure_fails_all() {
        let mut steps = Steps::default();
        steps.command("bad", shell("exit 3"));
        steps.command("good", shell("true"));
        let summary = steps.summary();
        assert!(summary.contains("FAILED") && summary.contains("ok"), "{summary}");
        assert_eq!(steps.finish().unwrap_err().to_string(), "1 of 2 steps failed");
    }

    #[test]
    fn what_takes_too_long_or_is_left_behind_is_ended_and_fails() {
        let mut steps = Steps::default();
        steps.bounded("slow", shell("sleep 600 & wait"), Duration::from_millis(300));
        steps.bounded("leaky", shell("sleep 600 & true"), Duration::from_mins(1));
        steps.bounded("clean", shell("true"), Duration::from_mins(1));
        let problems: Vec<String> =
            steps.0.into_iter().map(|step| step.problem.unwrap_or_default()).collect();
        assert!(problems[0].contains("not done within") && problems[0].contains("sleep 600"), "{problems:?}");
        assert!(problems[1].contains("left processes") && problems[1].contains("sleep 600"), "{problems:?}");
        assert_eq!(problems[2], "");
    }
}
