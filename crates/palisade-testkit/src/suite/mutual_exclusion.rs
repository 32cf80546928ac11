//! Many at once: never two inside, tokens in order, nothing lost.

use std::sync::Arc;

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
    a_fenced_counter_loses_nothing [Registers] "A token passes if no later one has been seen"
} }

fn workload(context: &Context) -> Workload {
    Workload { connections: 4, tasks: context.effort(16, 8), rounds: context.effort(15, 8) }
}

async fn never_two_inside(context: Context) -> Result<()> {
    workload(&context).alone(&context).await
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
