use std::time::{Duration, Instant};

use anyhow::Result;
use palisade::Client;

use super::{Shape, Tell};
use crate::effort::Effort;
use crate::peer::{Peer, PeerFigures};
use crate::raw::RawClient;
use crate::report::{Measure, Row};
use crate::stats::{Spread, amount, median, micros};
use crate::target::{Target, give, take};
use crate::usage;

/// One client takes and releases, next to the bare commands that this needs.
pub(super) async fn measure(target: &Target, effort: &Effort, tell: Tell<'_>) -> Result<Vec<Row>> {
    let mut rows = vec![
        variant(target, effort, "same key", Keys::Same, tell).await?,
        variant(target, effort, "distinct keys", Keys::Distinct, tell).await?,
    ];
    for setting in target.raw.settings()? {
        let name = setting.name;
        rows.push(variant(&target.with(setting), effort, name, Keys::Same, tell).await?);
    }
    Ok(rows)
}

/// How often the two sides take turns within a round.
const STEPS: usize = 10;

#[derive(Debug, Clone, Copy)]
enum Keys {
    Same,
    Distinct,
}

impl Keys {
    fn of(self, number: usize) -> String {
        match self {
            Self::Same => "bench".to_owned(),
            Self::Distinct => format!("bench/{number}"),
        }
    }
}

async fn variant(target: &Target, effort: &Effort, name: &str, keys: Keys, tell: Tell<'_>) -> Result<Row> {
    let (client, raw) = (target.client().await?, target.raw.client().await?);
    let each = warm_up(&client, &*raw, keys).await?;
    let step = effort.operations(each).div_ceil(STEPS);
    let (mut ours_us, mut raw_us) = (Vec::new(), Vec::new());
    let peers = if matches!(keys, Keys::Same) { target.raw.peers() } else { Vec::new() };
    let mut peer_times: Vec<(Vec<f64>, Vec<f64>)> = vec![Default::default(); peers.len()];
    let (mut ratios, mut cpu_us, mut rates, mut raw_rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 1..=effort.rounds {
        tell(&format!("uncontended, {name}: round {round} of {}", effort.rounds));
        let (mut ours_round, mut raw_round, mut cpu_round) = (Vec::new(), Vec::new(), Duration::ZERO);
        // In small steps, so that what else the machine does falls on both sides.
        for _ in 0..STEPS {
            let cpu = usage::cpu();
            ours_round.extend(ours(&client, keys, step).await?);
            cpu_round += usage::cpu().saturating_sub(cpu);
            raw_round.extend(bare(&*raw, keys, step).await?);
            // A place to end at if the user wants no more.
            tokio::task::yield_now().await;
        }
        for (peer, (times, ratios)) in peers.iter().zip(&mut peer_times) {
            let theirs = peer.pairs("bench-peer", step * 2).await?;
            ratios.extend(median(&ours_round).zip(median(&theirs)).map(|(ours, theirs)| ours / theirs));
            times.extend(theirs);
        }
        ratios.extend(median(&ours_round).zip(median(&raw_round)).map(|(ours, raw)| ours / raw));
        cpu_us.push(micros(cpu_round) / amount(ours_round.len()));
        rates.push(1e6 * amount(ours_round.len()) / ours_round.iter().sum::<f64>());
        raw_rates.push(1e6 * amount(raw_round.len()) / raw_round.iter().sum::<f64>());
        ours_us.extend(ours_round);
        raw_us.extend(raw_round);
    }
    client.close().await;
    let requests = target.count(100, async |client| ours(client, keys, 100).await.map(drop)).await?;
    let row = Row {
        raw: target.raw.floors().pair.to_owned(),
        per_second: median(&rates),
        raw_per_second: median(&raw_rates),
        cpu_us_per_op: median(&cpu_us),
        rss_mib: usage::rss_mib(),
        peers: peers
            .iter()
            .zip(&peer_times)
            .map(|(peer, (times, ratios))| figures(peer, times, ratios))
            .collect(),
        ..Row::new(Shape::Uncontended, name, "take + release")
    };
    Ok(row.times(&ours_us, &raw_us).ratios(Measure::Time, &ratios).requests(requests))
}

/// Fills caches on both sides; how long one pair of ours takes.
fn figures(peer: &Peer, times: &[f64], ratios: &[f64]) -> PeerFigures {
    PeerFigures { name: peer.name, p50_us: median(times), per_second: None, ratio: Spread::of(ratios) }
}

async fn warm_up(client: &Client, raw: &dyn RawClient, keys: Keys) -> Result<Duration> {
    const PAIRS: usize = 50;
    bare(raw, keys, PAIRS).await?;
    ours(client, keys, PAIRS).await?;
    let times = ours(client, keys, PAIRS).await?;
    Ok(Duration::from_secs_f64(median(&times).unwrap_or_default() / 1e6))
}

async fn ours(client: &Client, keys: Keys, pairs: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(pairs);
    for number in 0..pairs {
        let mutex = client.mutex(&keys.of(number))?;
        let start = Instant::now();
        give(take(&mutex).await?).await?;
        times.push(micros(start.elapsed()));
    }
    Ok(times)
}

async fn bare(raw: &dyn RawClient, keys: Keys, pairs: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(pairs);
    for number in 0..pairs {
        let key = keys.of(number);
        let start = Instant::now();
        raw.pair(&key).await?;
        times.push(micros(start.elapsed()));
    }
    Ok(times)
}
