//! Processes that are killed, stopped and cancelled while they hold or wait.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use palisade_core::{Claim, Liveness, Name, Raise, Token};
use rustix::process::{Pid, Signal, kill_process};

use crate::case::cases;
use crate::context::{bounded, eventually, name};
use crate::taker::{Event, Taker};
use crate::{Context, Session};

cases! { "processes" {
    a_command_keeps_its_lock_after_the_process_died [Processes Lifeline] "While any process holds a copy, claims do not pass on because their own process died; their TTL still bounds them."
    a_command_does_not_keep_its_lock_past_the_ttl [Processes Lifeline] "their TTL still bounds them. A program that starts a command under a lock lets the command inherit it, and sees to it that the command is gone by the deadline."
}
each_way {
    a_killed_holder_passes_on [Processes] "Completes when every claim ahead has left: released, withdrawn, evicted, expired or dead."
    a_stopped_holder_passes_on_and_is_fenced_off [Processes Registers] "A claim that was not renewed within its TTL is gone, and its resource passes on."
    a_killed_waiter_stalls_nobody [Processes] "Completes when every claim ahead has left: released, withdrawn, evicted, expired or dead."
    a_cancelled_waiter_leaves_nothing [Processes] "Dropping the future leaves the claim in doubt; the caller withdraws it."
    a_terminated_holder_leaves_nothing [Processes] "Dropping the future leaves the claim in doubt; the caller withdraws it."
} }

const LOCK: &str = "lock";

/// Long enough to start a process in, short enough to wait for.
fn ttl(context: &Context) -> Duration {
    context.short().max(Duration::from_secs(1))
}

/// How soon a resource must pass on after its process was killed.
fn until_dead(context: &Context) -> Duration {
    match context.profile.liveness {
        Liveness::Kernel => Duration::from_secs(1),
        _ => ttl(context) + context.fixture.slack(),
    }
}

fn follows(next: Token, last: Token) -> Result<()> {
    ensure!(next > last, "token {next} came after {last}");
    Ok(())
}

async fn until_waiting(context: &Context, session: &Session, resource: &Name, count: usize) -> Result<()> {
    eventually(context.patience(), "the queue", || async {
        Ok((session.waiters(resource).await?.len() == count).then_some(()))
    })
    .await
}

async fn a_killed_holder_passes_on(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let (holder, first) = Taker::holding(&context, LOCK, ttl(&context)).await?;
    let next = Arc::new(context.alone(&name(LOCK)));
    session.queue(&next).await?;
    holder.kill().await?;
    let second = session.turn_within(&next, until_dead(&context)).await?.token;
    follows(second, first)?;
    session.release(&next).await?;
    session.nothing_left().await
}

async fn a_stopped_holder_passes_on_and_is_fenced_off(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let (mut holder, first) = Taker::holding(&context, LOCK, ttl(&context)).await?;
    holder.tell("write before").await?;
    ensure!(holder.answer().await? == Event::Written, "the holder's own write was refused");
    let next = Arc::new(context.alone(&name(LOCK)));
    session.queue(&next).await?;
    holder.stop()?;
    let grant = session.turn_within(&next, ttl(&context) + context.fixture.slack()).await?;
    follows(grant.token, first)?;
    let token = session.fencing(&next, &grant);
    session.read(&name("guarded"), Some(&Raise { token, rebase: false })).await?;
    holder.resume()?;
    told_lost(&mut holder).await?;
    holder.tell("write late").await?;
    let answer = holder.answer().await?;
    ensure!(matches!(answer, Event::Refused { .. }), "the zombie's write was answered with {answer:?}");
    holder.tell("release").await?;
    ensure!(holder.answer().await? == Event::Released { in_time: false }, "the zombie released in time");
    successor_stands(&session, &next).await?;
    ensure!(session.entry(&name("guarded")).await?.value.as_deref() == Some(b"before"), "the zombie wrote");
    Ok(())
}

async fn told_lost(holder: &mut Taker) -> Result<()> {
    let lost = holder.answer().await?;
    let Event::Lost { valid, .. } = lost else { anyhow::bail!("the zombie was told {lost:?}") };
    ensure!(!valid, "its guard called itself valid after the loss");
    Ok(())
}

async fn successor_stands(session: &Session, next: &Arc<Claim>) -> Result<()> {
    ensure!(session.holders(&next.resource).await? == [next.id], "the zombie freed its successor");
    Ok(())
}

async fn a_killed_waiter_stalls_nobody(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let (held, last) = (Arc::new(context.alone(&name(LOCK))), Arc::new(context.alone(&name(LOCK))));
    session.take(&held).await?;
    let mut middle = Taker::start(&context, LOCK, ttl(&context)).await?;
    middle.tell("acquire").await?;
    until_waiting(&context, &session, &held.resource, 1).await?;
    session.queue(&last).await?;
    middle.kill().await?;
    session.release(&held).await?;
    session.turn_within(&last, until_dead(&context)).await?;
    session.release(&last).await?;
    // An engine may pass over a waiter that it cannot tell, which then keeps its place for a TTL.
    eventually(until_dead(&context), "the dead waiter's end", || async {
        Ok(session.everything().await?.resources.is_empty().then_some(()))
    })
    .await
}

async fn a_cancelled_waiter_leaves_nothing(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let held = Arc::new(context.alone(&name(LOCK)));
    session.take(&held).await?;
    let mut waiter = Taker::start(&context, LOCK, ttl(&context)).await?;
    waiter.tell("acquire").await?;
    until_waiting(&context, &session, &held.resource, 1).await?;
    waiter.terminate().await?;
    ensure!(session.waiters(&held.resource).await?.is_empty(), "it is still in the queue");
    session.release(&held).await?;
    session.nothing_left().await
}

async fn a_terminated_holder_leaves_nothing(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let (holder, first) = Taker::holding(&context, LOCK, ttl(&context)).await?;
    holder.terminate().await?;
    session.nothing_left().await?;
    follows(session.take(&Arc::new(context.alone(&name(LOCK)))).await?.token, first)
}

/// Starts a taker that holds the lock and a command under it, and kills the taker.
async fn orphaned_command(context: &Context, ttl: Duration) -> Result<Pid> {
    let (mut holder, _) = Taker::holding(context, LOCK, ttl).await?;
    holder.tell("child").await?;
    let Event::Child { pid } = holder.answer().await? else { anyhow::bail!("no command was started") };
    holder.kill().await?;
    Pid::from_raw(pid).context("no process")
}

async fn a_command_keeps_its_lock_after_the_process_died(context: Context) -> Result<()> {
    let session = context.connect().await?;
    // So long that an expiry cannot be mistaken for a death.
    let command = orphaned_command(&context, Duration::from_mins(1)).await?;
    let next = Arc::new(context.alone(&name(LOCK)));
    session.queue(&next).await?;
    let early = session.turn_within(&next, Duration::from_millis(500)).await;
    ensure!(early.is_err(), "the lock passed on while the command still ran");
    kill_process(command, Signal::KILL)?;
    session.turn_within(&next, until_dead(&context)).await?;
    Ok(())
}

async fn a_command_does_not_keep_its_lock_past_the_ttl(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let command = orphaned_command(&context, ttl(&context)).await?;
    let next = Arc::new(context.alone(&name(LOCK)));
    let turn = async {
        session.acquire(&next).await?;
        anyhow::Ok(())
    };
    let passed_on = bounded(ttl(&context) + context.fixture.slack(), "the TTL", turn).await;
    kill_process(command, Signal::KILL)?;
    passed_on?
}
