//! Waiting for a lock: saying for whom, and leaving when asked to.

use std::convert::Infallible;
use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use futures::StreamExt;
use palisade::{ClaimId, ClaimView, Client, ConnectionState, ResourceView};
use rustix::process::Signal;
use tokio::time::{Instant, MissedTickBehavior};

use crate::exit::{complain, explained};
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

/// Waits for `work`, which takes `names`. On a terminal, or if told to, says each second who holds them; always, if the
/// engine is out of reach for longer than that.
pub(crate) async fn wait_for<T>(
    client: &Client,
    names: &[&str],
    verbose: bool,
    work: impl Future<Output = T>,
    signals: &mut Signals,
) -> Waited<T> {
    let mut work = std::pin::pin!(work);
    let mut news = std::pin::pin!(tell_news(client, names, verbose));
    tokio::select! {
        biased;
        done = &mut work => Waited::Done(done),
        signal = signals.next_ending() => Waited::Signal(signal),
        never = &mut news => match never {},
    }
}

async fn tell_news(client: &Client, names: &[&str], verbose: bool) -> Infallible {
    let mut states = Box::pin(client.connection().fuse());
    let mut line = Line { terminal: io::stderr().is_terminal(), shown: String::new() };
    let (mut down, mut said) = (false, false);
    let mut looks = tokio::time::interval_at(Instant::now() + Line::EVERY, Line::EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let look = async {
            looks.tick().await;
            // One that is out of reach would be waited for.
            let looks_at = !down && (line.terminal || verbose);
            if looks_at { Some(whom(client, names).await) } else { None }
        };
        tokio::select! {
            biased;
            Some(state) = states.next() => {
                down = matches!(state, ConnectionState::Suspended | ConnectionState::Lost);
                looks.reset();
                if said && !down {
                    said = false;
                    line.complain("the engine is back; waiting on");
                }
            }
            looked = look => match looked {
                Some(Ok(Some(view))) => {
                    let holders: Vec<ClaimId> = view.holders.iter().map(|holder| holder.claim).collect();
                    line.show(&format!("{holders:?}"), &describe(client, &view));
                }
                Some(Ok(None)) => line.show_why(names, "nobody is shown to hold it"),
                Some(Err(error)) => line.show_why(names, &explained(&error)),
                None if down && !said => {
                    said = true;
                    let names = printable(&names.join(", "));
                    line.complain(&format!("{names}: the engine is out of reach; waiting on until it is back"));
                }
                None => {}
            }
        }
    }
}

/// The line that says for whom we wait.
#[derive(Debug)]
struct Line {
    terminal: bool,
    /// What it says, but for what goes on changing.
    shown: String,
}

impl Line {
    const EVERY: Duration = Duration::from_secs(1);

    /// A terminal's line is written anew; elsewhere only what is news, as `about` tells, is worth a line.
    fn show(&mut self, about: &str, text: &str) {
        let is_news = self.shown != about;
        about.clone_into(&mut self.shown);
        let mut stderr = io::stderr();
        // Nobody reading it is no reason to stop waiting.
        if self.terminal {
            let _ = write!(stderr, "\r\x1b[K{text}");
        } else if is_news {
            let _ = writeln!(stderr, "{text}");
        }
    }

    /// Says why those are waited for of whom nobody is shown.
    fn show_why(&mut self, names: &[&str], why: &str) {
        self.show(why, &format!("waiting for {}: {why}", printable(&names.join(", "))));
    }

    /// Says what stays on the screen.
    fn complain(&mut self, message: &str) {
        self.clear();
        complain(message);
    }

    fn clear(&mut self) {
        if self.terminal && !self.shown.is_empty() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        self.shown.clear();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The first of `names` that others are shown to hold.
async fn whom(client: &Client, names: &[&str]) -> palisade::Result<Option<ResourceView>> {
    for name in names {
        let view = client.show(name).await?;
        let others = view.holders.iter().any(|holder| holder.owner.client != client.owner().client);
        if others {
            return Ok(Some(view));
        }
    }
    Ok(None)
}

/// What was not obtained within `limit`, and by whom one was turned away; they may have gone since.
/// The wait is over: an engine that does not answer now is not waited for.
pub(crate) async fn turned_away(client: &Client, names: &[&str], limit: Duration) -> String {
    const PATIENCE: Duration = Duration::from_secs(1);
    let looked = tokio::time::timeout(PATIENCE, whom(client, names)).await;
    if let Ok(Ok(Some(view))) = &looked {
        let name = printable(view.resource.as_str());
        return format!("{name}: not obtained: held by {}", holders(view));
    }
    let limit = match limit {
        Duration::ZERO => "at once".to_owned(),
        limit => format!("within {}", humantime::format_duration(limit)),
    };
    let holders = match looked {
        Ok(Ok(_)) => "nobody is shown to hold it now; try again, or wait longer",
        Ok(Err(_)) | Err(_) => "the engine does not say who holds it",
    };
    format!("{}: not obtained {limit}: {holders}", printable(&names.join(", ")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_is_made_up_who_might_hold_it() {
        let client = palisade::connect("memory:").await.unwrap();
        let said = turned_away(&client, &["x"], Duration::from_secs(2)).await;
        assert!(said.starts_with("x: not obtained within 2s: nobody is shown to hold it"), "{said}");
        let said = turned_away(&client, &["x", "y"], Duration::ZERO).await;
        assert!(said.starts_with("x, y: not obtained at once: nobody"), "{said}");
        client.close().await;
        let rival = palisade::connect("memory:turned-away").await.unwrap();
        let held = rival.mutex("y").unwrap().acquire().await.unwrap();
        let client = palisade::connect("memory:turned-away").await.unwrap();
        let said = turned_away(&client, &["x", "y"], Duration::ZERO).await;
        assert!(said.starts_with("y: not obtained: held by "), "{said}");
        held.release().await.unwrap();
    }
}
