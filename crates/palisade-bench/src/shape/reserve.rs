use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use palisade::Client;
use tokio::task::JoinSet;

use super::{Shape, Tell};
use crate::effort::Effort;
use crate::report::{Measure, Row};
use crate::stats::{amount, median, micros};
use crate::stock::{Stock, open};
use crate::target::Target;

const CLIENTS: usize = 16;

/// 16 clients want one of a stock over and over: by reservations, which need no lock, and under a lock.
pub(super) async fn measure(target: &Target, effort: &Effort, tell: Tell<'_>) -> Result<Vec<Row>> {
    let name = format!("{}-stock", target.namespace);
    let Some(stocks) = open(&target.url, &name, CLIENTS).await? else {
        return Ok(vec![Row::not_applicable(Shape::Reserve, "it is measured on Redis and PostgreSQL")]);
    };
    let stocks: Vec<Arc<dyn Stock>> = stocks.into_iter().map(Arc::from).collect();
    let turns = (effort.crowd_grants / CLIENTS / 4).max(2);
    let client = target.client().await?;
    let (mut ours_us, mut locked_us) = (Vec::new(), Vec::new());
    let (mut ratios, mut rates, mut locked_rates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=effort.crowd_rounds {
        tell(&format!("reserve, {CLIENTS} clients: round {round} of {}", effort.crowd_rounds));
        let (rate, times) = all(&stocks, turns, round, None).await?;
        let (locked_rate, locked_times) = all(&stocks, turns, round, Some(&client)).await?;
        ratios.push(rate / locked_rate);
        rates.push(rate);
        locked_rates.push(locked_rate);
        ours_us.extend(times);
        locked_us.extend(locked_times);
    }
    client.close().await;
    let given = (CLIENTS * turns * effort.crowd_rounds) as u64;
    let (reserved, locked) = stocks[0].taken().await?;
    stocks[0].remove().await?;
    ensure!(
        reserved == given && locked == given,
        "{given} were given away each way, but {reserved} and {locked} are taken"
    );
    let row = Row {
        raw: "the same under a lock of this engine: how many are taken is read, and one more written"
            .to_owned(),
        per_second: median(&rates),
        raw_per_second: median(&locked_rates),
        ..Row::new(Shape::Reserve, format!("{CLIENTS} clients"), "one of a stock reserved")
    };
    Ok(vec![row.times(&ours_us, &locked_us).ratios(Measure::Rate, &ratios)])
}

/// Has every client take so many, under a lock if `locked`: how many per second, and how long each took.
async fn all(
    stocks: &[Arc<dyn Stock>],
    turns: usize,
    round: usize,
    locked: Option<&Client>,
) -> Result<(f64, Vec<f64>)> {
    let start = Instant::now();
    let tasks = stocks.iter().enumerate().map(|(place, stock)| {
        let (stock, locked) = (Arc::clone(stock), locked.cloned());
        async move { take(&*stock, turns, &format!("{round}-{place}"), locked.as_ref()).await }
    });
    let mut running: JoinSet<_> = tasks.collect();
    let mut times = Vec::new();
    while let Some(done) = running.join_next().await {
        times.extend(done??);
    }
    Ok((amount(stocks.len() * turns) / start.elapsed().as_secs_f64(), times))
}

async fn take(stock: &dyn Stock, turns: usize, who: &str, locked: Option<&Client>) -> Result<Vec<f64>> {
    let mutex = locked.map(|client| client.mutex("bench/stock")).transpose()?;
    let mut times = Vec::with_capacity(turns);
    for turn in 0..turns {
        let request = format!("{who}-{turn}");
        let start = Instant::now();
        match &mutex {
            None => stock.reserve(&request).await?,
            Some(mutex) => {
                let guard = mutex.acquire().await?;
                stock.read_and_write(&request).await?;
                guard.release().await?;
            }
        }
        times.push(micros(start.elapsed()));
    }
    Ok(times)
}
