use std::sync::Arc;

use palisade::Demand;
use palisade_bench::{Cancelled, Options, Report, Shape};
use tokio::sync::{Notify, oneshot};

use crate::args::{Bench, Global};
use crate::exit::{self, Failure, NO, OK, Outcome, complain};
use crate::output::{line, raw};
use crate::process::Signals;
use crate::trial::{engine, failure, helper, tell};

/// Measures an engine next to its raw limit.
pub(crate) async fn bench(global: &Global, args: &Bench) -> Outcome {
    if cfg!(debug_assertions) && args.write.is_some() {
        return Err(Failure::usage("a debug build's figures are not worth a page; build with --release"));
    }
    if let Some(page) = &args.write {
        palisade_bench::check_page(page).map_err(|problem| Failure::usage(format!("{problem:#}")))?;
    }
    let mut missed = 0;
    let mut reports = Vec::new();
    for engine in engines(global, args) {
        let report = measure(options(global, args, engine)?).await?;
        if !args.format.json {
            raw(palisade_bench::text(&report).as_bytes())?;
        }
        if let Some(page) = &args.write {
            palisade_bench::write_page(&report, page)
                .map_err(|problem| Failure::usage(format!("{problem:#}")))?;
        }
        missed += report.goals.iter().filter(|goal| !goal.met).count();
        reports.push(report);
    }
    if args.format.json {
        let json =
            if args.all { serde_json::to_string(&reports) } else { serde_json::to_string(&reports[0]) };
        line(json.map_err(|problem| failure(problem.into()))?)?;
    }
    if args.goals && missed > 0 {
        complain(&format!("goals missed in this run: {missed}"));
        return Ok(NO);
    }
    Ok(OK)
}

fn engines(global: &Global, args: &Bench) -> Vec<String> {
    if args.all { palisade_bench::startable() } else { vec![engine(global)] }
}

fn options(global: &Global, args: &Bench, engine: String) -> Outcome<Options> {
    let asked = |shape: &Shape| args.shape.is_empty() || args.shape.contains(shape);
    Ok(Options {
        engine,
        namespace: global.namespace.clone(),
        demand: global.demand.as_deref().map(Demand::parse).transpose()?.unwrap_or_default(),
        shapes: Shape::ALL.into_iter().filter(asked).collect(),
        helper: helper()?,
        quick: args.quick,
    })
}

/// Each shape has a runtime of its own, so the bench has a thread of its own.
async fn measure(options: Options) -> Outcome<Report> {
    let mut signals = Signals::listen().map_err(|problem| failure(problem.into()))?;
    let cancel = Arc::new(Notify::new());
    let (done, mut outcome) = oneshot::channel();
    let thread = std::thread::spawn({
        let cancel = Arc::clone(&cancel);
        move || {
            let _ = done.send(palisade_bench::run(&options, &tell, &cancel));
        }
    });
    let mut ended_by = None;
    let outcome = loop {
        tokio::select! {
            outcome = &mut outcome => break outcome,
            signal = signals.next_ending() => {
                ended_by = Some(signal);
                cancel.notify_one();
            }
        }
    };
    tell("");
    // Folders and processes of the run are gone once its thread is.
    let _ = thread.join();
    match ended_by {
        Some(signal) => Err(Failure::new(exit::by_signal(signal.as_raw()), "")),
        None => outcome.unwrap_or_else(|_| Err(Cancelled.into())).map_err(failure),
    }
}
