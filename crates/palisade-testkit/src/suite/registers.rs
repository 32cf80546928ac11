//! Registers: conditions, versions, expiry.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use palisade_core::{
    Condition, Entry, ErrorKind, MAX_VALUE_BYTES, RefusalReason, Selector, Version, WatchEvent, Written,
};

use super::watch::next_where;
use crate::case::cases;
use crate::context::{eventually, name, now};
use crate::{Context, Session};

cases! { "registers" {
    a_new_register_is_empty [Registers] "A register that was never written has no value and version 0."
    reads_are_fresh [Registers] "Sees every write that was acknowledged before."
    absent_means_no_value [Registers] "All parts of the condition are checked and the value is written in one step."
    a_version_must_match [Registers] "A refused write has no effect and returns what is there."
    all_parts_must_hold [Registers] "All parts of the condition are checked and the value is written in one step."
    versions_never_come_back [Registers] "Versions rise by every write and never come back, not even after a delete or an expiry."
    only_newer_stamps_are_written [Registers] "With `newer`, only a greater stamp is written."
    a_value_expires_and_not_before [Registers RegisterExpiry] "A value with an expiry is gone after it, and not before."
    versions_rise_over_an_expiry [Registers RegisterExpiry] "Versions rise by every write and never come back, not even after a delete or an expiry."
    an_expiry_is_watched [Registers RegisterExpiry] "Every change that lasts is told"
    deleting_nothing_changes_nothing [Registers] "Deleting what is not there is done, and changes nothing."
    a_delete_obeys_its_condition [Registers] "A refused write has no effect and returns what is there."
    any_bytes_are_a_value [Registers] "Sees every write that was acknowledged before."
    no_increment_is_lost [Registers] "All parts of the condition are checked and the value is written in one step."
} }

fn text(entry: &Entry) -> Option<&str> {
    entry.value.as_deref().and_then(|value| std::str::from_utf8(value).ok())
}

async fn a_new_register_is_empty(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let entry = session.entry(&name("a")).await?;
    ensure!(entry.value.is_none() && entry.version == Version::NEVER, "it is {entry:?}");
    ensure!(entry.stamp.is_none() && entry.fence.is_empty() && entry.expires_in.is_none(), "it is {entry:?}");
    Ok(())
}

async fn reads_are_fresh(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    for round in 0..context.effort(50, 20) {
        let (writer, reader) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let version = writer.put(&name("a"), &round.to_string(), &Condition::always()).await?;
        let entry = reader.entry(&name("a")).await?;
        ensure!(text(&entry) == Some(&round.to_string()), "round {round} reads {entry:?}");
        ensure!(entry.version == version, "written as {version}, read as {}", entry.version);
    }
    Ok(())
}

async fn absent_means_no_value(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (register, absent) = (name("a"), Condition::always().absent());
    one.put(&register, "first", &absent).await?;
    let refusal = two.refused(&register, "second", &absent).await?;
    ensure!(refusal.reason == RefusalReason::Exists, "the reason is {:?}", refusal.reason);
    ensure!(text(&refusal.current) == Some("first"), "it says {:?} is there", refusal.current);
    one.delete(&register, &Condition::always()).await?;
    two.put(&register, "third", &absent).await?;
    Ok(())
}

async fn a_version_must_match(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let register = name("a");
    let never = Condition::always().version(Version::NEVER);
    let first = one.put(&register, "first", &never).await?;
    let second = two.put(&register, "second", &Condition::always().version(first)).await?;
    for stale in [Version::NEVER, first, Version::new(second.get() + 1)] {
        let refusal = one.refused(&register, "late", &Condition::always().version(stale)).await?;
        ensure!(refusal.reason == RefusalReason::OtherVersion, "the reason is {:?}", refusal.reason);
        ensure!(refusal.current.version == second, "it says version {}", refusal.current.version);
        ensure!(text(&refusal.current) == Some("second"), "it says {:?} is there", refusal.current);
    }
    let entry = two.entry(&register).await?;
    ensure!(entry.version == second && text(&entry) == Some("second"), "a refused write left {entry:?}");
    Ok(())
}

async fn all_parts_must_hold(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let register = name("a");
    let version = session.put(&register, "first", &Condition::always().newer(5)).await?;
    let good = Condition::always().version(version).newer(6);
    let bad = [
        good.clone().absent(),
        good.clone().version(Version::new(version.get() + 7)),
        good.clone().newer(5),
        Condition::always().version(version).newer(4),
    ];
    for condition in bad {
        session.refused(&register, "late", &condition).await?;
    }
    let entry = session.entry(&register).await?;
    ensure!((entry.version, entry.stamp) == (version, Some(5)), "refused writes left {entry:?}");
    session.put(&register, "second", &good).await?;
    Ok(())
}

async fn versions_never_come_back(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (register, mut seen) = (name("a"), BTreeSet::new());
    for round in 0..5 {
        let written = one.put(&register, "x", &Condition::always()).await?;
        ensure!(seen.iter().all(|old| *old < written), "round {round}: {written} came back");
        seen.insert(written);
        ensure!(
            matches!(two.delete(&register, &Condition::always()).await?, Written::Done(_)),
            "not deleted"
        );
        let deleted = one.entry(&register).await?;
        ensure!(deleted.value.is_none(), "it is there after its delete: {deleted:?}");
        ensure!(deleted.version > written, "a delete must change the version, or a stale write passes");
        let stale = Condition::always().version(written);
        one.refused(&register, "late", &stale).await?;
        seen.insert(deleted.version);
    }
    Ok(())
}

async fn only_newer_stamps_are_written(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let register = name("a");
    session.put(&register, "10", &Condition::always().newer(10)).await?;
    for stale in [9, 10] {
        let refusal = session.refused(&register, "late", &Condition::always().newer(stale)).await?;
        ensure!(refusal.reason == RefusalReason::NotNewer { current: 10 }, "it says {:?}", refusal.reason);
    }
    session.put(&register, "plain", &Condition::always()).await?;
    ensure!(session.entry(&register).await?.stamp == Some(10), "a plain write took the stamp away");
    session.delete(&register, &Condition::always()).await?;
    session.refused(&register, "late", &Condition::always().newer(10)).await?;
    session.put(&register, "11", &Condition::always().newer(11)).await?;
    Ok(())
}

async fn brief(context: &Context, session: &Session, value: &'static str) -> Result<Version> {
    let value = Bytes::from_static(value.as_bytes());
    let written = session.write(&name("a"), value, &Condition::always(), Some(context.short())).await?;
    match written {
        Written::Done(version) => Ok(version),
        Written::Refused(refusal) => anyhow::bail!("it was refused: {refusal:?}"),
    }
}

async fn until_gone(context: &Context, session: &Session) -> Result<Entry> {
    eventually(context.until_expired(), "the value's expiry", || async {
        Ok(Some(session.entry(&name("a")).await?).filter(|entry| entry.value.is_none()))
    })
    .await
}

async fn a_value_expires_and_not_before(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let before = now();
    brief(&context, &one, "brief").await?;
    let left = two.entry(&name("a")).await?.expires_in.context("no expiry is shown")?;
    ensure!(left <= context.short(), "{left:?} are left");
    until_gone(&context, &two).await?;
    ensure!(now() >= before + context.short(), "gone before its time");
    // A plain write ends the expiry of the value it replaces.
    brief(&context, &one, "brief again").await?;
    one.put(&name("a"), "lasting", &Condition::always()).await?;
    ensure!(two.entry(&name("a")).await?.expires_in.is_none(), "the lasting value expires too");
    Ok(())
}

async fn versions_rise_over_an_expiry(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let written = brief(&context, &one, "brief").await?;
    let gone = until_gone(&context, &two).await?;
    ensure!(gone.version > written, "the expiry kept version {written}: a stale write would pass");
    one.refused(&name("a"), "late", &Condition::always().version(written)).await?;
    let next = two.put(&name("a"), "new", &Condition::always().absent()).await?;
    ensure!(next > gone.version, "{next} came back after {}", gone.version);
    Ok(())
}

async fn an_expiry_is_watched(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let mut events = two.watch(&Selector::register(name("a"))).await?;
    brief(&context, &one, "brief").await?;
    let shown = |there: bool| move |event: &WatchEvent| matches!(event, WatchEvent::Register(_, entry) if entry.value.is_some() == there);
    next_where(&context, &mut events, shown(true)).await?;
    next_where(&context, &mut events, shown(false)).await?;
    Ok(())
}

async fn deleting_nothing_changes_nothing(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let register = name("a");
    for _ in 0..2 {
        let deleted = session.delete(&register, &Condition::always()).await?;
        ensure!(deleted == Written::Done(Version::NEVER), "deleting nothing says {deleted:?}");
    }
    session.put(&register, "x", &Condition::always().version(Version::NEVER)).await?;
    session.delete(&register, &Condition::always()).await?;
    let version = session.entry(&register).await?.version;
    session.delete(&register, &Condition::always()).await?;
    session.put(&register, "y", &Condition::always().version(version)).await?;
    Ok(())
}

async fn a_delete_obeys_its_condition(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let register = name("a");
    let version = session.put(&register, "x", &Condition::always()).await?;
    let stale = Condition::always().version(Version::new(version.get() + 1));
    let refused = session.delete(&register, &stale).await?;
    ensure!(matches!(refused, Written::Refused(_)), "a delete of another version says {refused:?}");
    ensure!(text(&session.entry(&register).await?) == Some("x"), "a refused delete had an effect");
    let done = session.delete(&register, &Condition::always().version(version)).await?;
    ensure!(matches!(done, Written::Done(_)), "the delete says {done:?}");
    Ok(())
}

async fn any_bytes_are_a_value(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let longest: Vec<u8> = (0..MAX_VALUE_BYTES).map(|at| (at % 251) as u8).collect();
    let values = [vec![], vec![0], vec![0, 255, 10, 13], b"\xff\xfe'\"\\%".to_vec(), longest];
    for value in values {
        let value = Bytes::from(value);
        one.write(&name("a"), value.clone(), &Condition::always(), None).await?;
        let read = two.entry(&name("a")).await?.value;
        ensure!(read.as_ref() == Some(&value), "{} bytes came back changed", value.len());
    }
    let too_long = Bytes::from(vec![0; MAX_VALUE_BYTES + 1]);
    let error = one.write(&name("a"), too_long, &Condition::always(), None).await.err();
    let kind = error.map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::Invalid), "a value that is too long says {kind:?}");
    Ok(())
}

async fn no_increment_is_lost(context: Context) -> Result<()> {
    let (tasks, rounds) = (context.effort(8, 4), context.effort(20, 10));
    let register = name("count");
    let workers = (0..tasks).map(|_| {
        let (context, register) = (context.clone(), register.clone());
        tokio::spawn(async move {
            let session = context.connect().await?;
            for _ in 0..rounds {
                increment(&session, &register).await?;
            }
            anyhow::Ok(())
        })
    });
    for worker in futures::future::try_join_all(workers).await? {
        worker?;
    }
    let session = Arc::new(context.connect().await?);
    let total = text(&session.entry(&register).await?).unwrap_or_default().to_owned();
    ensure!(total == (tasks * rounds).to_string(), "{total} of {} increments are there", tasks * rounds);
    Ok(())
}

async fn increment(session: &Session, register: &palisade_core::Name) -> Result<()> {
    // Bounded: a refusal means that another one succeeded, or that the engine is wrong.
    for _ in 0..10_000 {
        let entry = session.entry(register).await?;
        let next = text(&entry).unwrap_or("0").parse::<u64>()? + 1;
        let condition = Condition::always().version(entry.version);
        let value = Bytes::from(next.to_string());
        if let Written::Done(_) = session.write(register, value, &condition, None).await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    anyhow::bail!("10,000 attempts were refused")
}
