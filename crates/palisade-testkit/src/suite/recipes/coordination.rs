//! Several at once, once per interval, together.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use palisade::{LostReason, OnceOutcome, Stopped};

use super::locks::until_nothing_left;
use crate::Context;
use crate::case::cases;
use crate::context::bounded;

cases! { "recipes" {
    many_are_taken_all_or_nothing [] "Several resources, held exclusively, all or nothing."
    overlapping_sets_never_deadlock [] "They are taken one after the other in the order of their names, whatever the order given, so that two programs that take overlapping sets never wait for each other."
    a_job_runs_once_per_interval [RegisterExpiry Registers] "Runs a job once per interval, however many hosts try: cron without doubles."
    a_job_is_stopped_in_the_end [RegisterExpiry Registers] "A run is stopped after this time."
    a_barrier_starts_and_ends_together [Shared Registers] "A double barrier: nobody starts before all have come, nobody is done before all are."
    a_latch_opens_at_zero [Registers] "A counter that only falls; everyone can wait until it is down to zero."
} }

async fn many_are_taken_all_or_nothing(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let blocker = two.mutex("b")?.acquire().await?;
    ensure!(one.many(["c", "a", "b"])?.try_acquire().await?.is_none(), "a held one was taken");
    for free in ["a", "c"] {
        let taken = bounded(context.patience(), "what was not kept", two.mutex(free)?.acquire()).await??;
        taken.release().await?;
    }
    blocker.release().await?;
    let all = bounded(context.patience(), "all of them", one.many(["c", "a", "b"])?.acquire()).await??;
    let names: Vec<String> = all.tokens().map(|(name, _)| name.to_string()).collect();
    ensure!(names == ["a", "b", "c"] && all.is_valid(), "they are {names:?}");
    ensure!(two.mutex("c")?.try_acquire().await?.is_none(), "one of them is free");
    all.release().await?;
    until_nothing_left(&context, &two).await
}

async fn overlapping_sets_never_deadlock(context: Context) -> Result<()> {
    let sets = [["a", "b"], ["b", "c"], ["c", "a"], ["b", "a"]];
    let workers = sets.map(|set| {
        let context = context.clone();
        tokio::spawn(async move {
            let many = context.client().await?.many(set)?;
            for _ in 0..context.effort(20, 10) {
                bounded(context.patience(), "an overlapping set", many.acquire()).await??.release().await?;
            }
            anyhow::Ok(())
        })
    });
    for worker in try_join_all(workers).await? {
        worker?;
    }
    until_nothing_left(&context, &context.client().await?).await
}

async fn a_job_runs_once_per_interval(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let job =
        |client: &palisade::Client| Ok::<_, anyhow::Error>(client.once("job")?.at_least(context.short()));
    let nested = job(&two)?;
    let ran = job(&one)?.run(|_| async move { nested.run(|_| async {}).await }).await?;
    let OnceOutcome::Ran(during) = ran else { anyhow::bail!("the first run was {ran:?}") };
    ensure!(during? == OnceOutcome::Running, "it ran twice at once");
    let soon = job(&two)?.run(|_| async {}).await?;
    ensure!(matches!(soon, OnceOutcome::TooSoon { .. }), "it ran twice in one interval: {soon:?}");
    let later = job(&two)?.begin(Some(context.until_expired())).await?;
    ensure!(matches!(later, OnceOutcome::Ran(_)), "it did not run in the next interval");
    Ok(())
}

async fn a_job_is_stopped_in_the_end(context: Context) -> Result<()> {
    let job = context.client().await?.once("job")?.at_most(Duration::from_millis(100));
    let endless = bounded(context.patience(), "the stop", job.run(|_| std::future::pending::<()>())).await?;
    ensure!(matches!(endless, Err(Stopped::Lost(LostReason::HeldTooLong))), "it ended with {endless:?}");
    Ok(())
}

async fn a_barrier_starts_and_ends_together(context: Context) -> Result<()> {
    let clients = try_join_all((0..3).map(|_| context.client())).await?;
    for _ in 0..2 {
        let barriers: Vec<_> =
            clients.iter().map(|client| client.barrier("start", 3)).collect::<Result<_, _>>()?;
        let mut first = Box::pin(barriers[0].enter());
        let alone = tokio::time::timeout(Duration::from_millis(50), first.as_mut()).await;
        ensure!(alone.is_err(), "one of three came through alone");
        let rest = try_join_all([barriers[1].enter(), barriers[2].enter()]);
        let all = async { futures::future::try_join(first, rest).await };
        let (first, rest) = bounded(context.patience(), "all to come", all).await??;
        let leaving = rest.into_iter().chain([first]).map(palisade::BarrierGuard::leave);
        bounded(context.patience(), "all to leave", try_join_all(leaving)).await??;
    }
    Ok(())
}

async fn a_latch_opens_at_zero(context: Context) -> Result<()> {
    let (one, two) = (context.client().await?, context.client().await?);
    let (counting, waiting) = (one.latch("ready", 8)?, two.latch("ready", 8)?);
    let mut opened = Box::pin(waiting.wait());
    let early = tokio::time::timeout(Duration::from_millis(50), opened.as_mut()).await;
    ensure!(early.is_err(), "it opened before anyone counted");
    try_join_all((0..8).map(|_| counting.count_down())).await?;
    bounded(context.patience(), "the latch", opened).await??;
    ensure!(waiting.count().await? == 0 && counting.count_down().await? == 0, "it fell below zero");
    Ok(())
}
