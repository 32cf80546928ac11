//! Many at once: never two inside, tokens in order, nothing lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use palisade_core::{Condition, FencingToken, Raise, Reading, Written};

use crate::case::cases;
use crate::context::name;
use crate::workload::Workload;
use crate::{Context, Session};

cases! { "mutual_exclusion" {
    readers_and_writers_never_meet [Shared] "An exclusive claim excludes every other; shared claims exclude exclusive ones and slots"
    slots_are_never_held_twice [Slots] "at most N slots are held at once, each number once."
}
each_way {
    never_two_inside [] "An exclusive claim excludes every other"
    a_crowd_over_one_connection_never_meets [] "An exclusive claim excludes every other"
    a_fenced_counter_loses_nothing [Registers] "A token passes if no later one has been seen"
} }

fn workload(context: &Context) -> Workload {
    Workload { connections: 4, tasks: context.effort(16, 8), rounds: context.effort(15, 8) }
}

async fn never_two_inside(context: Context) -> Result<()> {
    workload(&context).alone(&context).await
}

/// What is asked for over one connection at the same time may be sent in one, some of it for the same resource.
async fn a_crowd_over_one_connection_never_meets(context: Context) -> Result<()> {
    const EACH: u32 = 2;
    let (resources, rounds) = (context.effort(24, 8), context.effort(4, 2));
    let session = Arc::new(context.connect().await?);
    let tasks = (0..resources).flat_map(|number| {
        // Whether one is inside, and the last token.
        let seen = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
        (0..EACH).map(move |_| (name(&format!("r{number}")), Arc::clone(&seen)))
    });
    let tasks: Vec<_> = tasks
        .map(|(resource, seen)| {
            let (context, session) = (context.clone(), Arc::clone(&session));
            tokio::spawn(async move {
                for _ in 0..rounds {
                    let claim = Arc::new(context.alone(&resource));
                    let token = session.acquire(&claim).await?.token.get();
                    ensure!(!seen.0.swap(true, Ordering::SeqCst), "two are inside {resource}");
                    let last = seen.1.swap(token, Ordering::SeqCst);
                    ensure!(last < token, "{resource}: token {token} comes after {last}");
                    tokio::task::yield_now().await;
                    seen.0.store(false, Ordering::SeqCst);
                    session.release(&claim).await?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for task in futures::future::try_join_all(tasks).await? {
        task?;
    }
    session.nothing_left().await
}

async fn readers_and_writers_never_meet(context: Context) -> Result<()> {
    workload(&context).readers_and_writers(&context).await
}

async fn slots_are_never_held_twice(context: Context) -> Result<()> {
    workload(&context).slots(&context).await
}

/// Reads and writes under the lock, without a version: only the lock and its fence protect it.
async fn a_fenced_counter_loses_nothing(context: Context) -> Result<()> {
    let (tasks, rounds) = (context.effort(8, 4), context.effort(10, 5));
    let workers = (0..tasks).map(|_| {
        let context = context.clone();
        tokio::spawn(async move {
            let session = context.connect().await?;
            for _ in 0..rounds {
                let claim = Arc::new(context.alone(&name("lock")));
                let grant = session.acquire(&claim).await?;
                count(&session, session.fencing(&claim, &grant)).await?;
                session.release(&claim).await?;
            }
            anyhow::Ok(())
        })
    });
    for worker in futures::future::try_join_all(workers).await? {
        worker?;
    }
    let total = context.connect().await?.entry(&name("count")).await?.value.unwrap_or_default();
    let expected = (tasks * rounds).to_string();
    ensure!(total == expected.as_bytes(), "{total:?} of {expected} are there");
    Ok(())
}

async fn count(session: &Session, token: FencingToken) -> Result<()> {
    let raise = Raise { token: token.clone(), rebase: false };
    let Reading::Fresh(entry) = session.read(&name("count"), Some(&raise)).await? else {
        bail!("the holder's own token was refused");
    };
    let before: u64 = match &entry.value {
        Some(value) => std::str::from_utf8(value)?.parse()?,
        None => 0,
    };
    tokio::task::yield_now().await;
    let value = Bytes::from((before + 1).to_string());
    match session.write(&name("count"), value, &Condition::always().token(token), None).await? {
        Written::Done(_) => Ok(()),
        Written::Refused(refusal) => bail!("the holder was refused: {refusal:?}"),
    }
}
