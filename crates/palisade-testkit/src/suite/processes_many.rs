//! Sixteen processes on one lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use palisade_core::Token;

use crate::Context;
use crate::case::cases;
use crate::context::{eventually, name};
use crate::taker::{Event, Taker};

cases! { "processes" {}
each_way {
    sixteen_take_turns [Processes Registers Fifo] "A claim that will wait is queued behind all who came before"
} }

const LOCK: &str = "lock";
const PROCESSES: usize = 16;

async fn sixteen_take_turns(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let rounds = context.effort(12, 6);
    let held = Arc::new(context.alone(&name(LOCK)));
    session.take(&held).await?;
    let ttl = context.short().max(std::time::Duration::from_secs(5));
    let mut takers = try_join_all((0..PROCESSES).map(|_| Taker::start(&context, LOCK, ttl))).await?;
    for taker in &mut takers {
        taker.tell(&format!("rounds {rounds}")).await?;
    }
    for taker in &mut takers {
        ensure!(taker.next().await? == Event::Waiting, "a taker does not begin");
    }
    // All are in line before the first comes in, so that nobody has a head start.
    let queued = eventually(context.patience() * 2, "the queue", || async {
        Ok((session.waiters(&held.resource).await?.len() == PROCESSES).then_some(()))
    });
    // A taker that failed says more than a queue that is too short.
    let failed = futures::future::select_all(takers.iter_mut().map(|taker| Box::pin(taker.next())));
    tokio::select! {
        queued = queued => queued?,
        (event, ..) = failed => bail!("a taker did not wait: {:?}", event?),
    }
    session.release(&held).await?;
    let tokens = try_join_all(takers.iter_mut().map(|taker| collect(taker, rounds))).await?;
    let total = session.entry(&name("count")).await?.value.unwrap_or_default();
    let expected = (PROCESSES as u32 * rounds).to_string();
    ensure!(total == expected.as_bytes(), "{total:?} of {expected} rounds are counted");
    ensure!(fairness(&tokens) >= 0.99, "Jain's index is {}", fairness(&tokens));
    session.nothing_left().await
}

/// The tokens of one taker's rounds, which must rise.
async fn collect(taker: &mut Taker, rounds: u32) -> Result<Vec<Token>> {
    let mut tokens: Vec<Token> = Vec::new();
    for _ in 0..rounds {
        let token = taker.granted().await?;
        ensure!(tokens.last() < Some(&token), "token {token} came after {:?}", tokens.last());
        tokens.push(token);
        ensure!(taker.answer().await? == Event::Released { in_time: true }, "a holder was too late");
    }
    Ok(tokens)
}

/// Jain's index over the grants up to the moment at which the first process had all of its own:
/// later, those that still want are served for lack of others.
fn fairness(tokens: &[Vec<Token>]) -> f64 {
    let order: BTreeMap<Token, usize> = tokens
        .iter()
        .enumerate()
        .flat_map(|(at, tokens)| tokens.iter().map(move |token| (*token, at)))
        .collect();
    let (mut counts, wanted) = (vec![0_u32; tokens.len()], tokens.first().map_or(0, Vec::len));
    for at in order.into_values() {
        counts[at] += 1;
        if counts[at] as usize == wanted {
            break;
        }
    }
    let sum: f64 = counts.iter().map(|count| f64::from(*count)).sum();
    let squares: f64 = counts.iter().map(|count| f64::from(*count).powi(2)).sum();
    sum.powi(2) / (f64::from(u32::try_from(counts.len()).unwrap_or(u32::MAX)) * squares)
}
