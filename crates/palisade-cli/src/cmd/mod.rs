//! One file per verb.

mod bench;
mod completions;
mod del;
mod elect;
mod engines;
mod evict;
mod get;
mod leader;
mod ls;
mod put;
mod run;
mod schema;
mod show;
mod verify;
mod verify_check;
mod watch;

use crate::args::{Cli, Verb};
use crate::exit::Outcome;

/// Carries out what the command line says.
pub(crate) async fn dispatch(cli: Cli) -> Outcome {
    let global = &cli.global;
    match cli.verb {
        Verb::Run(verb) => run::run(global, &verb).await,
        Verb::Elect(verb) => elect::elect(global, &verb).await,
        Verb::Leader(verb) => leader::leader(global, &verb).await,
        Verb::Ls(verb) => ls::ls(global, &verb).await,
        Verb::Show(verb) => show::show(global, &verb).await,
        Verb::Watch(verb) => watch::watch(global, &verb).await,
        Verb::Evict(verb) => evict::evict(global, &verb).await,
        Verb::Get(verb) => get::get(global, &verb).await,
        Verb::Put(verb) => put::put(global, verb).await,
        Verb::Del(verb) => del::del(global, &verb).await,
        Verb::Bench(verb) => bench::bench(global, &verb).await,
        Verb::Engines(verb) => engines::engines(&verb),
        Verb::Schema(verb) => schema::schema(&verb),
        Verb::Verify(verb) => verify::verify(global, &verb).await,
        Verb::Completions(verb) => completions::completions(&verb),
    }
}
