//! Everything one does in this repository: `cargo xtask test`, `lint`, `bench`, `interop`.

mod bench;
mod interop;
mod lint;
mod newer;
mod setup;
mod steps;
mod stray;
mod test;
mod tidy;
mod trials;
mod valkey;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

const USAGE: &str = "\
cargo xtask test [--times N]   install what is missing, lint, then run every test and example (N times)
cargo xtask setup              install and fetch what is missing: tools, and the servers of the tests
cargo xtask lint               format, clippy, rustdoc, features, and the rules of this repository
cargo xtask bench [ARGS]       run `palisade bench` for all engines in release mode; ARGS are its options
cargo xtask interop [ARGS]     let lock clients of others contend with Palisade; ARGS go to `palisade-interop run`";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    // Relative paths below are meant from here, wherever the command was typed.
    std::env::set_current_dir(root()).context("the repository has moved since xtask was built")?;
    match args.split_first() {
        Some((verb, rest)) if verb == "test" => test::run(test::parse(rest)?),
        Some((verb, [])) if verb == "setup" => setup::run(),
        Some((verb, [])) if verb == "lint" => lint::run(),
        Some((verb, rest)) if verb == "bench" => bench::run(rest),
        Some((verb, rest)) if verb == "interop" => interop::run(rest),
        _ => anyhow::bail!("there is no such task; there are\n{USAGE}"),
    }
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned).unwrap_or_default()
}
