//! Following changes.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt;
use palisade_core::{
    Clock, Condition, ErrorKind, Name, ResourceView, Selector, SystemClock, WatchEvent, WatchStream,
};

use crate::Context;
use crate::case::cases;
use crate::context::{bounded, name};

cases! { "watch" {
    it_begins_with_what_is [] "Begins with the present state of what exists."
    claims_are_told [] "Every change that lasts is told; states that came and went may be left out."
    an_expiry_is_told [] "Every change that lasts is told; states that came and went may be left out."
    it_tells_what_was_selected_only [] "Every change that lasts is told"
    registers_are_told [Registers] "Every change that lasts is told; states that came and went may be left out."
    a_quiet_watch_rests [Registers] "Every change that lasts is told; states that came and went may be left out."
    it_ends_with_its_connection [] "After an error the stream ends."
    the_latest_state_is_told [Registers] "Every change that lasts is told; states that came and went may be left out."
} }

/// The next event that `wanted` picks, bounded.
pub(super) async fn next_where(
    context: &Context,
    events: &mut WatchStream,
    wanted: impl Fn(&WatchEvent) -> bool,
) -> Result<WatchEvent> {
    bounded(context.patience(), "the watch", async {
        loop {
            let event = events.next().await.context("the watch ended")??;
            if wanted(&event) {
                return Ok(event);
            }
        }
    })
    .await?
}

fn resource(event: &WatchEvent, matches: impl Fn(&ResourceView) -> bool) -> bool {
    matches!(event, WatchEvent::Resource(view) if matches(view))
}

fn register(event: &WatchEvent, wanted: &Name, value: Option<&str>) -> bool {
    matches!(event, WatchEvent::Register(name, entry)
        if name == wanted && entry.value.as_deref() == value.map(str::as_bytes))
}

async fn it_ends_with_its_connection(context: Context) -> Result<()> {
    let session = context.connect().await?;
    session.take(&Arc::new(context.alone(&name("a")))).await?;
    let mut events = session.watch(&Selector::resources("")).await?;
    next_where(&context, &mut events, |_| true).await?;
    session.close().await;
    let (said, after) = bounded(context.patience(), "the watch of a closed connection", async {
        loop {
            match events.next().await {
                Some(Ok(_)) => {}
                other => return (other, events.next().await),
            }
        }
    })
    .await?;
    ensure!(matches!(said, Some(Err(ref error)) if error.kind() == ErrorKind::Closed), "it said {said:?}");
    ensure!(after.is_none(), "after the error came {after:?}");
    Ok(())
}

async fn it_begins_with_what_is(context: Context) -> Result<()> {
    let session = context.connect().await?;
    for text in ["a", "b"] {
        session.take(&Arc::new(context.alone(&name(text)))).await?;
    }
    let mut events = session.watch(&Selector::resources("")).await?;
    let mut seen = Vec::new();
    for _ in 0..2 {
        if let WatchEvent::Resource(view) = next_where(&context, &mut events, |_| true).await? {
            ensure!(view.holders.len() == 1, "it begins with {view:?}");
            seen.push(view.resource);
        }
    }
    seen.sort();
    ensure!(seen == [name("a"), name("b")], "it begins with {seen:?}");
    Ok(())
}

async fn claims_are_told(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (first, second) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    let mut events = two.watch(&Selector::resource(name("a"))).await?;
    let grant = one.take(&first).await?;
    next_where(&context, &mut events, |event| {
        resource(event, |view| view.holders.iter().any(|holder| holder.token == Some(grant.token)))
    })
    .await?;
    one.queue(&second).await?;
    next_where(&context, &mut events, |event| resource(event, |view| view.waiters.len() == 1)).await?;
    one.release(&first).await?;
    next_where(&context, &mut events, |event| {
        resource(event, |view| view.holders.iter().any(|holder| holder.claim == second.id))
    })
    .await?;
    one.release(&second).await?;
    next_where(&context, &mut events, |event| resource(event, |view| view.holders.is_empty())).await?;
    Ok(())
}

async fn an_expiry_is_told(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    one.take(&Arc::new(context.alone_briefly(&name("a")))).await?;
    let mut events = two.watch(&Selector::resource(name("a"))).await?;
    let free = next_where(&context, &mut events, |event| resource(event, |view| view.holders.is_empty()));
    bounded(context.until_expired(), "the expiry", free).await??;
    Ok(())
}

async fn it_tells_what_was_selected_only(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let mut events = session.watch(&Selector::resources("b")).await?;
    for text in ["a", "c", "B", "b1"] {
        session.take(&Arc::new(context.alone(&name(text)))).await?;
    }
    let first = next_where(&context, &mut events, |_| true).await?;
    ensure!(resource(&first, |view| view.resource == name("b1")), "it tells {first:?}");
    Ok(())
}

async fn registers_are_told(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let wanted = name("a");
    one.put(&wanted, "before", &Condition::always()).await?;
    let mut events = two.watch(&Selector::register(wanted.clone())).await?;
    next_where(&context, &mut events, |event| register(event, &wanted, Some("before"))).await?;
    one.put(&wanted, "after", &Condition::always()).await?;
    next_where(&context, &mut events, |event| register(event, &wanted, Some("after"))).await?;
    one.delete(&wanted, &Condition::always()).await?;
    next_where(&context, &mut events, |event| register(event, &wanted, None)).await?;
    Ok(())
}

async fn the_latest_state_is_told(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let mut events = two.watch(&Selector::everything("")).await?;
    for round in 0..context.effort(10, 5) {
        for text in ["a", "b", "c"] {
            // Several writes in a row: those between may be left out, the last may not.
            for step in 0..5 {
                one.put(&name(text), &format!("{round} {step}"), &Condition::always()).await?;
            }
            let last = format!("{round} 4");
            next_where(&context, &mut events, |event| register(event, &name(text), Some(&last))).await?;
        }
    }
    Ok(())
}

/// A claim that expired unnoticed must not keep a watch of registers looking for ever.
async fn a_quiet_watch_rests(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let end = session.take(&Arc::new(context.alone_briefly(&name("a")))).await?.valid_until;
    let mut events = session.watch(&Selector::register(name("r"))).await?;
    SystemClock.sleep_until(end).await;
    // On a thread of its own: a watch that never pauses would take a whole worker with it.
    let (short, (told, heard)) = (context.short(), tokio::sync::oneshot::channel());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let quiet = async { tokio::time::timeout(short, events.next()).await.is_err() };
        let _ = told.send(runtime.is_ok_and(|runtime| runtime.block_on(quiet)));
    });
    let rested = bounded(context.until_expired(), "a watch that has nothing to tell", heard).await;
    // Ends a watch that still spins.
    session.put(&name("r"), "wake up", &Condition::always()).await?;
    ensure!(rested??, "it told something although nothing changed");
    Ok(())
}
