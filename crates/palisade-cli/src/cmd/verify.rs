use std::io::{self, IsTerminal};
use std::time::Duration;

use palisade::Demand;
use palisade_testkit::history::FaultKind;
use palisade_testkit::verify::{Progress, Settings, Verdict, verify as run};

use super::verify_check::verify_check;
use crate::args::{Global, Verify};
use crate::exit::{self, Failure, Outcome, complain};
use crate::output::line;
use crate::trial::{engine, failure, helper, tell, until_signalled};

/// Tries an engine under faults, or checks a saved history.
pub(crate) async fn verify(global: &Global, args: &Verify) -> Outcome {
    if let Some(file) = &args.check {
        return verify_check(file, args.model.as_deref(), args.format.json);
    }
    let settings = settings(global, args)?;
    let outcome = until_signalled(run(&settings, &progress_line(settings.duration))).await;
    tell("");
    let outcome = outcome?.map_err(failure)?;
    if args.format.json {
        line(outcome.to_json())?;
    } else {
        line(&outcome)?;
        if let Some(folder) = &args.report {
            line(format_args!("report: {}", folder.join("report.html").display()))?;
        }
    }
    Ok(match outcome.verdict() {
        Verdict::Passed => exit::OK,
        Verdict::Violated => exit::NO,
        Verdict::Undecided => exit::UNDECIDED,
    })
}

fn settings(global: &Global, args: &Verify) -> Outcome<Settings> {
    let engine = engine(global);
    if let Some(demand) = &global.demand {
        Demand::parse(demand)?;
        return Err(Failure::usage(
            "verify demands nothing of an engine but what it promises; leave --demand out",
        ));
    }
    let seed = args.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    Ok(Settings {
        command: command(&engine, args, seed),
        engine,
        registers: args.registers.clone(),
        duration: args.duration,
        workloads: args.workload.clone(),
        faults: args.faults.as_deref().map(faults).transpose()?,
        seed,
        ttl: args.ttl,
        report: args.report.clone(),
        helper: helper()?,
        bug: None,
    })
}

fn faults(names: &[String]) -> Outcome<Vec<FaultKind>> {
    if names == ["none"] {
        return Ok(Vec::new());
    }
    let known = || FaultKind::ALL.map(FaultKind::name).join(", ");
    let find = |name: &String| {
        FaultKind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            Failure::usage(format!("there is no fault {name:?}; there are {}, or none alone", known()))
        })
    };
    names.iter().map(find).collect()
}

/// The command that does this again.
fn command(engine: &str, args: &Verify, seed: u64) -> String {
    // A user's own URL can hold a password; the report is for others to read.
    let shown = |url: &str| if url.contains('@') { "URL".to_owned() } else { quoted(url) };
    let mut words = vec![
        format!("palisade verify --engine {}", shown(engine)),
        format!("--for {}", humantime::format_duration(args.duration).to_string().replace(' ', "")),
    ];
    if !args.workload.is_empty() {
        let names: Vec<&str> = args.workload.iter().map(|workload| workload.name()).collect();
        words.push(format!("--workload {}", names.join(",")));
    }
    if let Some(faults) = &args.faults {
        words.push(format!("--faults {}", faults.join(",")));
    }
    if let Some(ttl) = args.ttl {
        words.push(format!("--ttl {}", humantime::format_duration(ttl).to_string().replace(' ', "")));
    }
    if let Some(registers) = &args.registers {
        words.push(format!("--registers {}", shown(registers)));
    }
    words.push(format!("--seed {seed}"));
    words.join(" ")
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:,=+@%".contains(letter);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Tells people how far it is: one line that changes on a terminal, one every ten seconds elsewhere.
fn progress_line(whole: Duration) -> impl Fn(Progress) {
    let terminal = io::stderr().is_terminal();
    move |progress| {
        let seconds = progress.passed.as_secs();
        let phase = if progress.passed < whole {
            format!("{seconds} of {} s", whole.as_secs())
        } else {
            "closing".to_owned()
        };
        let text = format!(
            "{phase}: {} operations, {} grants, {} faults",
            progress.ops, progress.grants, progress.faults
        );
        tell(&text);
        if !terminal && seconds.is_multiple_of(10) {
            complain(&text);
        }
    }
}
