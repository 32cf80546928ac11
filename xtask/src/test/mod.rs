mod failures;
mod programs;
mod side_by_side;
mod stalls;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::steps::{Steps, cargo};
use crate::{lint, setup, trials};

/// The crates that have examples.
const EXAMPLES: [&str; 2] = ["palisade", "palisade-fence"];

/// Far above what they take; a hang should not take the rest of the day.
const DOC_LIMIT: Duration = Duration::from_mins(30);
const EXAMPLE_LIMIT: Duration = Duration::from_mins(2);

/// What `cargo xtask test` was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    /// How often the tests run.
    times: u32,
}

/// Reads the arguments of `cargo xtask test`.
pub(crate) fn parse(args: &[String]) -> Result<Options> {
    let times = match args {
        [] => 1,
        [flag, times] if flag == "--times" => {
            times.parse().ok().filter(|times| *times > 0).context("--times takes a number from 1")?
        }
        _ => bail!("test takes nothing but --times N"),
    };
    Ok(Options { times })
}

/// Installs what is missing, lints, then runs every test and example.
pub(crate) fn run(options: Options) -> Result<()> {
    setup::run()?;
    let mut steps = Steps::default();
    lint::take(&mut steps);
    let examples = examples(Path::new("."))?;
    for round in 1..=options.times {
        let round =
            if options.times == 1 { String::new() } else { format!(" ({round} of {})", options.times) };
        take(&mut steps, &examples, &round);
        trials::take(&mut steps, &round);
    }
    steps.finish()
}

fn take(steps: &mut Steps, examples: &[(&str, String)], round: &str) {
    let mut programs = Vec::new();
    // Apart, and without a limit: on a fresh machine it may take as long as the tests.
    steps.take(format!("a build of the tests{round}"), || {
        programs = programs::build()?;
        Ok(())
    });
    steps.take(format!("tests{round}"), || side_by_side::run(&programs));
    let doc = ["test", "--workspace", "--doc", "--no-fail-fast"];
    steps.bounded(format!("examples in the docs{round}"), cargo(&doc), DOC_LIMIT);
    // All at once, and with what tests need: by itself, with fewer features, each would have all it uses built again.
    let build = ["build", "--workspace", "--bins", "--examples"];
    steps.command(format!("a build of the commands and examples{round}"), cargo(&build));
    for (_, example) in examples {
        let run = Command::new(Path::new("target/debug/examples").join(example));
        steps.bounded(format!("example {example}{round}"), run, EXAMPLE_LIMIT);
    }
}

/// The names of all examples of each crate, in order.
fn examples(root: &Path) -> Result<Vec<(&'static str, String)>> {
    let mut all = Vec::new();
    for package in EXAMPLES {
        let folder = root.join("crates").join(package).join("examples");
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let names = entries
            .flatten()
            .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned()));
        all.extend(names.map(|name| (package, name)));
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str]) -> Result<Options> {
        parse(&args.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn arguments() {
        assert_eq!(parsed(&[]).unwrap().times, 1);
        assert_eq!(parsed(&["--times", "3"]).unwrap().times, 3);
        for bad in [&["--times"][..], &["--times", "0"], &["--times", "x"], &["--fast"]] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_example_is_found() {
        let found = examples(&crate::root()).unwrap();
        for example in [("palisade", "mutex"), ("palisade-fence", "lost_update")] {
            assert!(found.contains(&(example.0, example.1.to_owned())), "{found:?}");
        }
    }
}
