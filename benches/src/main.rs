//! How fast the embedded engine is, next to what it is made of, in one run.
//!
//! `cargo xtask bench [SHAPE…]`. Every shape interleaves Palisade with its raw limit and prints
//! ratios with their spread: absolute times belong to one machine, ratios travel.

mod command;
mod crowd;
mod keepalive;
mod queue;
mod stats;
mod takeover;
mod uncontended;
mod worker;

use anyhow::{Result, bail};
use stats::Figure;

/// The folder that a shape runs in, on disk, gone afterwards.
pub(crate) fn folder() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("palisade-bench").tempdir()?)
}

pub(crate) fn url(folder: &tempfile::TempDir) -> String {
    format!("file:{}", folder.path().display())
}

const SHAPES: [&str; 7] = ["uncontended", "synced", "queue", "crowd", "takeover", "keepalive", "command"];

async fn measure(shape: &str) -> Result<Vec<Figure>> {
    match shape {
        "uncontended" => uncontended::measure(uncontended::Sync::Off).await,
        "synced" => uncontended::measure(uncontended::Sync::Full).await,
        "queue" => queue::measure().await,
        "crowd" => crowd::measure().await,
        "takeover" => takeover::measure().await,
        "keepalive" => keepalive::measure().await,
        "command" => command::measure(),
        other => bail!("there is no shape {other:?}; there are {}", SHAPES.join(", ")),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == worker::ROLE) {
        return worker::main(&arguments[1..]).await;
    }
    let shapes: Vec<&str> = match arguments.as_slice() {
        [] => SHAPES.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let mut missed = 0;
    for shape in shapes {
        for figure in measure(shape).await? {
            println!("{figure}");
            missed += usize::from(!figure.is_met());
        }
    }
    if missed > 0 {
        bail!("{missed} goals were missed in this run");
    }
    Ok(())
}
