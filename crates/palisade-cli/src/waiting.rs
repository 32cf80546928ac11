//! Waiting for a lock: saying for whom, and leaving when asked to.

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use palisade::{ClaimId, ClaimView, Client, ResourceView};
use rustix::process::Signal;

use crate::output::{age, known_age, printable, who};
use crate::process::Signals;

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Waited<T> {
    /// What was waited for is here.
    Done(T),
    /// A signal asked to leave; nothing is waited for any more.
    Signal(Signal),
}

/// Waits for `work`, which takes `names`. On a terminal, or if told to, says each second who
/// holds them.
pub(crate) async fn wait_for<T>(
    client: &Client,
    names: &[&str],
    verbose: bool,
    work: impl Future<Output = T>,
    signals: &mut Signals,
) -> Waited<T> {
    let terminal = io::stderr().is_terminal();
    let mut work = std::pin::pin!(work);
    let mut line = Line { terminal, shown: Vec::new() };
    let mut news = std::pin::pin!(async {
        if !terminal && !verbose {
            std::future::pending::<()>().await;
        }
        loop {
            tokio::time::sleep(Line::EVERY).await;
            if let Some(view) = whom(client, names).await {
                line.show(client, &view);
            }
        }
    });
    tokio::select! {
        biased;
        done = &mut work => Waited::Done(done),
        signal = signals.next_ending() => Waited::Signal(signal),
        () = &mut news => unreachable!("the news never end"),
    }
}

/// The line that says for whom we wait.
#[derive(Debug)]
struct Line {
    terminal: bool,
    /// Those who held it at the last line.
    shown: Vec<ClaimId>,
}

impl Line {
    const EVERY: Duration = Duration::from_secs(1);

    /// A terminal's line is written anew; elsewhere only another holder is worth a line.
    fn show(&mut self, client: &Client, view: &ResourceView) {
        let holders: Vec<ClaimId> = view.holders.iter().map(|holder| holder.claim).collect();
        let news = std::mem::replace(&mut self.shown, holders.clone()) != holders;
        let text = describe(client, view);
        let mut stderr = io::stderr();
        // Nobody reading it is no reason to stop waiting.
        if self.terminal {
            let _ = write!(stderr, "\r\x1b[K{text}");
        } else if news {
            let _ = writeln!(stderr, "{text}");
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.terminal && !self.shown.is_empty() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// For whom we wait, if the engine tells.
async fn whom(client: &Client, names: &[&str]) -> Option<ResourceView> {
    for name in names {
        let view = client.show(name).await.ok()?;
        let others = view.holders.iter().any(|holder| holder.owner.client != client.owner().client);
        if others {
            return Some(view);
        }
    }
    None
}

/// By whom one was turned away; they may have gone since. The wait is over: an engine that does not
/// answer now is not waited for.
pub(crate) async fn by_whom(client: &Client, names: &[&str]) -> String {
    const PATIENCE: Duration = Duration::from_secs(1);
    match tokio::time::timeout(PATIENCE, whom(client, names)).await {
        Ok(Some(view)) => format!("held by {}", holders(&view)),
        Ok(None) | Err(_) => "held by others".to_owned(),
    }
}

fn describe(client: &Client, view: &ResourceView) -> String {
    let ahead = view.waiters.iter().take_while(|waiter| waiter.owner.client != client.owner().client).count();
    let ahead = if ahead == 0 { String::new() } else { format!(", {ahead} ahead") };
    format!("waiting for {}: held by {}{ahead}", printable(view.resource.as_str()), holders(view))
}

fn holders(view: &ResourceView) -> String {
    let mut holders: Vec<String> = view.holders.iter().take(3).map(holder).collect();
    if view.holders.len() > holders.len() {
        holders.push(format!("{} more", view.holders.len() - holders.len()));
    }
    holders.join(", ")
}

fn holder(claim: &ClaimView) -> String {
    let owner = &claim.owner;
    let trace =
        owner.trace.as_ref().map(|trace| format!(" (trace {})", printable(trace))).unwrap_or_default();
    let since = known_age(claim).map(|known| format!(" for {}", age(known))).unwrap_or_default();
    format!("{}{since}{trace}", who(owner))
}
