use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use palisade::Demand;
use palisade_bench::{Cancelled, Options, Report, Shape};
use tokio::sync::{Notify, oneshot};

use crate::args::{Bench, Global};
use crate::exit::{self, Failure, NO, OK, Outcome, complain};
use crate::output::{line, raw};
use crate::process::Signals;

/// Measures an engine next to its raw limit.
pub(crate) async fn bench(global: &Global, args: &Bench) -> Outcome {
    if cfg!(debug_assertions) && args.write.is_some() {
        return Err(Failure::usage("a debug build's figures are not worth a page; build with --release"));
    }
    let options = Options {
        engine: global.engine.clone().unwrap_or_else(|| "local:file".to_owned()),
        namespace: global.namespace.clone(),
        demand: global.demand.as_deref().map(Demand::parse).transpose()?.unwrap_or_default(),
        shapes: if args.shape.is_empty() { Shape::ALL.to_vec() } else { args.shape.clone() },
        quick: args.quick,
    };
    let report = measure(options).await?;
    if args.format.json {
        line(serde_json::to_string(&report).map_err(|problem| fault(&problem.into()))?)?;
    } else {
        raw(palisade_bench::text(&report).as_bytes())?;
    }
    if let Some(page) = &args.write {
        write(&report, page)?;
    }
    let missed = report.goals.iter().filter(|goal| !goal.met).count();
    if args.goals && missed > 0 {
        complain(&format!("{missed} of {} goals were missed", report.goals.len()));
        return Ok(NO);
    }
    Ok(OK)
}

/// Each shape has a runtime of its own, so the bench has a thread of its own.
async fn measure(options: Options) -> Outcome<Report> {
    let mut signals = Signals::listen().map_err(|problem| fault(&problem.into()))?;
    let cancel = Arc::new(Notify::new());
    let (done, outcome) = oneshot::channel();
    let thread = std::thread::spawn({
        let cancel = Arc::clone(&cancel);
        move || {
            let _ = done.send(palisade_bench::run(&options, &tell, &cancel));
        }
    });
    let mut ended_by = None;
    tokio::pin!(outcome);
    let outcome = loop {
        tokio::select! {
            outcome = &mut outcome => break outcome,
            signal = signals.next_ending() => {
                ended_by = Some(signal);
                cancel.notify_one();
            }
        }
    };
    clear();
    let _ = thread.join();
    let outcome = outcome.unwrap_or_else(|_| Err(Cancelled.into()));
    match ended_by {
        Some(signal) => Err(Failure::new(exit::by_signal(signal.as_raw()), "")),
        None => outcome.map_err(|problem| fault(&problem)),
    }
}

/// One line that is written over, if somebody watches.
fn tell(what: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r\x1b[K{what}");
        let _ = stderr.flush();
    }
}

fn clear() {
    tell("");
}

fn write(report: &Report, page: &Path) -> Outcome<()> {
    palisade_bench::write_page(report, page).map_err(|problem| Failure::usage(format!("{problem:#}")))
}

fn fault(problem: &anyhow::Error) -> Failure {
    match problem.chain().find_map(|cause| cause.downcast_ref::<palisade::Error>()) {
        Some(error) => Failure::new(exit::code_of(error.kind()), format!("{problem:#}")),
        None => Failure::new(exit::SOFTWARE, format!("{problem:#}")),
    }
}
