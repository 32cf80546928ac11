use clap::CommandFactory;

use crate::args::{Cli, Completions};
use crate::exit::{OK, Outcome};
use crate::output::raw;

/// Prints shell completions.
pub(crate) fn completions(args: &Completions) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "palisade", &mut text);
    raw(&text)?;
    Ok(OK)
}
