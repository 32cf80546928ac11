//! How fast an engine is, next to what it is made of, in one run.
//!
//! Every [`Shape`] interleaves Palisade with the raw limit of the same engine and tells ratios with
//! their spread: absolute times belong to one machine, ratios travel. `palisade bench` prints what
//! [`run`] reports.
//!
//! An engine adds a launcher (in the testkit) and a raw limit (`raw/`), nothing else.

mod crowd;
mod effort;
mod goals;
mod machine;
mod one_core;
mod output;
mod peer;
mod raw;
mod report;
mod shape;
mod stats;
mod stock;
mod target;
mod usage;
mod worker;

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result};
use palisade::Demand;
use palisade_testkit::HelperProgram;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

pub use crate::goals::Goal;
pub use crate::machine::Machine;
pub use crate::output::{check_page, text, write_page};
pub use crate::peer::{Peer, PeerFigures};
pub use crate::raw::{Floors, RawClient, RawLimit, Setting};
pub use crate::report::{Measure, Report, Row};
pub use crate::shape::Shape;
pub use crate::stats::Spread;
pub use crate::worker::{WORKER, worker_main};

use crate::effort::Effort;
use crate::one_core::OneCore;
use crate::target::Target;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// The engine's URL; `local:file` starts one for this run.
    pub engine: String,
    /// The namespace to use instead of a new one.
    pub namespace: Option<String>,
    /// What the engine must promise.
    pub demand: Demand,
    /// Which shapes, in this order.
    pub shapes: Vec<Shape>,
    /// The program that is also the bench's worker, if [`WORKER`] is its first argument, and the server of
    /// an engine that the testkit brings: the `palisade` command itself.
    pub helper: HelperProgram,
    /// Only few rounds: to see that everything runs, not how fast.
    pub quick: bool,
}

/// All engines that a run can start by itself, as URLs.
pub fn startable() -> Vec<String> {
    raw::Entry::startable().map(str::to_owned).collect()
}

/// The run was ended because the caller wanted no more.
#[derive(Debug)]
pub struct Cancelled;

impl std::error::Error for Cancelled {}

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the bench was ended before it was done")
    }
}

/// Measures all that `options` ask for. Call outside of any runtime: each shape has its own.
///
/// `tell` is called with what is being done; notifying `cancel` ends the run, and with it the
/// processes and folders that it made.
///
/// # Errors
/// A [`palisade::Error`] if the engine does not serve, [`Cancelled`], or another one if something
/// went wrong in the bench itself.
pub fn run(options: &Options, tell: &(dyn Fn(&str) + Send + Sync), cancel: &Arc<Notify>) -> Result<Report> {
    let began = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
    let setup = runtime(false)?;
    let target = setup.block_on(Target::open(options))?;
    let mut rows = Vec::new();
    for shape in &options.shapes {
        let one_core = (target.is_beside && shape.is_turns()).then(OneCore::enter).transpose()?;
        let runtime = runtime(shape.is_parallel())?;
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = shape.measure(&target, &effort, tell) => outcome,
                () = cancel.notified() => Err(Cancelled.into()),
            }
        });
        // What still waits in the kernel has nothing to say any more.
        runtime.shutdown_background();
        one_core.map_or(Ok(()), OneCore::leave)?;
        rows.extend(outcome?);
    }
    let goals = if options.quick { Vec::new() } else { goals::judge(&options.engine, target.engine, &rows) };
    Ok(Report {
        engine: target.engine,
        version: env!("CARGO_PKG_VERSION"),
        build: if cfg!(debug_assertions) { "debug" } else { "release" },
        quick: options.quick,
        began,
        machine: Machine::this(),
        rows,
        goals,
    })
}

fn runtime(parallel: bool) -> Result<Runtime> {
    let mut builder = if parallel { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().build().context("cannot start")
}
