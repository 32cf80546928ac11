//! Registers as users see them.

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use futures::StreamExt;
use futures::future::try_join_all;
use palisade::{Condition, Stale, Updated};

use crate::Context;
use crate::case::cases;
use crate::context::bounded;

cases! { "recipes" {
    updates_lose_nothing [Registers] "Reads, computes and writes back, again with growing random pauses while others write in between, at most [`Register::UPDATE_TRIES`] times."
    a_conflict_names_both_versions [Registers] "Giving up is [`Updated::Conflict`], with both versions."
    a_register_is_watched [Registers] "Its value as it changes, beginning with now."
}
each_way {
    a_later_holder_shuts_the_earlier_out [Registers] "Opens the register for the holder of `guard`: from now on no older holder can write it."
    one_write_per_token_if_strict [Registers] "Allows one write per token: a write that is repeated by mistake is refused."
} }

fn number(value: Option<&Bytes>) -> u64 {
    value.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()).unwrap_or(0)
}

async fn updates_lose_nothing(context: Context) -> Result<()> {
    let (tasks, rounds) = (4_u64, u64::from(context.effort(20, 10)));
    let workers = (0..tasks).map(|_| {
        let context = context.clone();
        tokio::spawn(async move {
            let register = context.client().await?.register("count")?;
            let mut done = 0;
            while done < rounds {
                let updated = register.update(|old| (number(old) + 1).to_string()).await?;
                // Giving up is allowed to any one call; the caller tries again.
                done += u64::from(matches!(updated, Updated::Done(_)));
            }
            anyhow::Ok(())
        })
    });
    for worker in try_join_all(workers).await? {
        worker?;
    }
    let entry = context.client().await?.register("count")?.read().await?;
    ensure!(number(entry.value.as_ref()) == tasks * rounds, "{:?} of {}", entry.value, tasks * rounds);
    Ok(())
}

async fn a_conflict_names_both_versions(context: Context) -> Result<()> {
    let (one, two) = (context.connect().await?, context.client().await?);
    let name = crate::context::name("contended");
    let before = one.put(&name, "theirs", &Condition::always()).await?;
    let register = two.register("contended")?;
    // Another writes while the new value is computed. The closure is sync and waits for it, which no thread may do that
    // has tasks to run: among them may be the one that brings the answer.
    let handle = tokio::runtime::Handle::current();
    let updating = tokio::task::spawn_blocking(move || {
        let update = register.update_within(1, |_| {
            let (one, name) = (one.clone(), name.clone());
            let (tell, told) = std::sync::mpsc::channel();
            handle.spawn(async move { tell.send(one.put(&name, "between", &Condition::always()).await) });
            let _ = told.recv();
            "mine"
        });
        handle.block_on(update)
    });
    let updated = bounded(context.patience(), "the update", updating).await???;
    let Updated::Conflict { ours, theirs } = updated else { bail!("it says {updated:?}") };
    ensure!(ours == before && theirs.version > ours, "it names {ours} and {}", theirs.version);
    ensure!(theirs.value.as_deref() == Some(b"between"), "it shows {theirs:?}");
    Ok(())
}

async fn a_register_is_watched(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let (written, watched) = (one.register("a")?, two.register("a")?);
    written.write("first", Condition::always()).await?;
    let mut values = watched.watch().await?;
    for value in ["first", "second", "third"] {
        if value != "first" {
            written.write(value, Condition::always()).await?;
        }
        let next = bounded(context.patience(), "the watch", values.next()).await?.context("it ended")??;
        ensure!(next.value.as_deref() == Some(value.as_bytes()), "{value:?} was written, {next:?} is told");
    }
    Ok(())
}

async fn a_later_holder_shuts_the_earlier_out(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let zombie = context.lock(&one, "lock")?.acquire().await?;
    let old = one.register("file")?.fenced(&zombie).await?;
    old.write("by the first").await?;
    zombie.release().await?;
    let next = context.lock(&two, "lock")?.acquire().await?;
    let new = two.register("file")?.fenced(&next).await?;
    ensure!(new.opened().value.as_deref() == Some(b"by the first"), "it opened {:?}", new.opened());
    let late = old.write("late").await;
    let current = match late {
        Err(Stale::Fenced { current, .. }) => current,
        other => bail!("the zombie's write says {other:?}"),
    };
    ensure!(current == next.token(), "the token that counts is {current}, not {}", next.token());
    new.write("by the second").await?;
    Ok(())
}

async fn one_write_per_token_if_strict(context: Context) -> Result<()> {
    let client = context.client().await?;
    let guard = context.lock(&client, "lock")?.acquire().await?;
    let file = client.register("file")?.fenced(&guard).await?.strict();
    file.write("once").await?;
    let again = file.write("twice").await;
    ensure!(matches!(again, Err(Stale::Fenced { .. })), "a repeated write says {again:?}");
    Ok(())
}
