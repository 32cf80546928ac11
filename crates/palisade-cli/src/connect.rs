//! From options to a client.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use palisade::{Client, Demand, Reach};

use crate::args::Global;
use crate::exit::{Outcome, complain};

/// Connects as the options say. `doing` labels the client for those who wait, unless one was given.
pub(crate) async fn connect(global: &Global, doing: Option<&OsStr>) -> Outcome<Client> {
    let url = match &global.engine {
        Some(url) => url.clone(),
        None => palisade::default_url()?,
    };
    let mut builder = Client::builder();
    if let Some(namespace) = &global.namespace {
        builder = builder.namespace(namespace);
    }
    if let Some(demand) = &global.demand {
        builder = builder.demand(Demand::parse(demand)?);
    }
    if let Some(label) = global.label.clone().or_else(|| doing.and_then(program)) {
        builder = builder.label(label);
    }
    if let Some(trace) = std::env::var("TRACEPARENT").ok().filter(|trace| !trace.is_empty()) {
        builder = builder.trace(trace);
    }
    let client = builder.connect(&url).await?;
    if client.profile().reach == Reach::Process {
        complain("this engine lives in this process only: it keeps nobody else out, and nothing is kept");
    }
    Ok(client)
}

/// Ends the connection, without waiting for an engine that does not answer: the end of this
/// process, or a TTL, does the rest. Who has just waited in vain for an answer does not call it.
pub(crate) async fn leave(client: Client) {
    const PATIENCE: Duration = Duration::from_secs(1);
    let _ = tokio::time::timeout(PATIENCE, client.close()).await;
}

/// A command's name without its folder; its arguments may hold secrets and are shown to nobody.
fn program(command: &OsStr) -> Option<String> {
    Some(Path::new(command).file_name()?.to_string_lossy().into_owned())
}
