use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;
use tokio::time::{Instant, sleep_until};

use super::crew::Crew;
use super::recorder::Recorder;
use super::station::Chance;
use super::teller::now;
use crate::history::{Event, FaultKind};

/// Does faults to a crew at random moments, with calm spells in between.
#[derive(Debug)]
pub(super) struct Nemesis {
    recorder: Arc<Recorder>,
    chance: Chance,
    kinds: Vec<FaultKind>,
    ttl: Duration,
    /// How long a calm spell lasts: long enough for what must happen within its bound to show.
    calm: Duration,
    active: Vec<Active>,
    count: u64,
}

/// A fault that has to be healed.
#[derive(Debug)]
struct Active {
    fault: u64,
    heal_at: Instant,
    member: usize,
}

impl Nemesis {
    pub(super) fn new(
        recorder: Arc<Recorder>,
        seed: u64,
        kinds: &[FaultKind],
        ttl: Duration,
        calm: Duration,
    ) -> Self {
        // Futures are dropped by the workers themselves.
        let kinds = kinds.iter().copied().filter(|kind| *kind != FaultKind::Cancel).collect();
        Self { recorder, chance: Chance::new(seed, 0), kinds, ttl, calm, active: Vec::new(), count: 0 }
    }

    /// Strikes until `end`, then heals everything.
    pub(super) async fn rage(&mut self, crew: &mut Crew, end: Instant) -> Result<()> {
        while Instant::now() < end && !self.kinds.is_empty() && crew.len() > 0 {
            let storm = (Instant::now() + self.ttl * 8).min(end);
            self.storm(crew, storm).await?;
            self.heal(crew, None)?;
            sleep_until((Instant::now() + self.calm).min(end)).await;
        }
        sleep_until(end).await;
        self.heal(crew, None)
    }

    async fn storm(&mut self, crew: &mut Crew, end: Instant) -> Result<()> {
        let mut strike_at = Instant::now();
        while strike_at < end {
            let next_heal = self.active.iter().map(|active| active.heal_at).min();
            sleep_until(next_heal.map_or(strike_at, |heal| heal.min(strike_at)).min(end)).await;
            self.heal(crew, Some(Instant::now()))?;
            if Instant::now() >= strike_at {
                self.strike(crew).await?;
                strike_at = Instant::now() + self.ttl.mul_f64(0.1 + self.chance.fraction() * 0.7);
            }
        }
        Ok(())
    }

    async fn strike(&mut self, crew: &mut Crew) -> Result<()> {
        let kind = self.kinds[self.chance.below(self.kinds.len() as u32) as usize];
        let member = self.chance.below(crew.len() as u32) as usize;
        // One fault at a time to each; a worker that is stopped already stays so.
        if self.active.iter().any(|active| active.member == member) {
            return Ok(());
        }
        match kind {
            FaultKind::Pause => {
                let fault = self.tell(kind, crew, member);
                crew.signal(member, Signal::STOP)?;
                let heal_at = Instant::now() + self.how_long();
                self.active.push(Active { fault, heal_at, member });
            }
            FaultKind::Kill => {
                let fault = self.tell(kind, crew, member);
                crew.kill(member).await?;
                self.recorder.hear(Event::Healed { fault, at: now() });
            }
            FaultKind::Cut | FaultKind::Slow | FaultKind::Clock | FaultKind::Restart | FaultKind::Cancel => {}
        }
        Ok(())
    }

    /// Often short, often about a TTL, now and then long past it.
    fn how_long(&mut self) -> Duration {
        let ttls = match self.chance.below(10) {
            0..=3 => 0.02 + self.chance.fraction() * 0.2,
            4..=7 => 0.5 + self.chance.fraction(),
            _ => 2.0 + self.chance.fraction(),
        };
        self.ttl.mul_f64(ttls)
    }

    fn tell(&mut self, kind: FaultKind, crew: &Crew, member: usize) -> u64 {
        let process = crew.process(member);
        self.count += 1;
        let target = format!("worker {process}");
        self.recorder.hear(Event::Fault {
            fault: self.count,
            at: now(),
            kind,
            target,
            process: Some(process),
        });
        self.count
    }

    /// Heals what is due by `now`, or everything.
    fn heal(&mut self, crew: &Crew, due: Option<Instant>) -> Result<()> {
        let (healing, active) = std::mem::take(&mut self.active)
            .into_iter()
            .partition(|active| due.is_none_or(|due| active.heal_at <= due));
        self.active = active;
        for active in healing as Vec<Active> {
            crew.signal(active.member, Signal::CONT)?;
            self.recorder.hear(Event::Healed { fault: active.fault, at: now() });
        }
        Ok(())
    }
}

/// Stops each worker of `crew` for half of every `period`, one after the other, as Jepsen's
/// `lock-set` does: at any time about half of them stand still.
pub(super) async fn stop_half_of_the_time(
    recorder: &Recorder,
    crew: &Crew,
    period: Duration,
    end: Instant,
) -> Result<()> {
    /// Where the numbers of these faults begin, to be apart from those of a [`Nemesis`].
    const NUMBERS: u64 = 1 << 32;
    let start = Instant::now();
    let mut stopped: BTreeMap<usize, u64> = BTreeMap::new();
    let mut count = NUMBERS;
    loop {
        let over = Instant::now() >= end;
        let passed = start.elapsed().as_secs_f64() / period.as_secs_f64();
        for member in 0..crew.len() {
            let phase = (passed + shift(member, crew.len())).fract();
            let should_stand = phase >= 0.5 && !over;
            if should_stand && !stopped.contains_key(&member) {
                count += 1;
                let process = crew.process(member);
                recorder.hear(Event::Fault {
                    fault: count,
                    at: now(),
                    kind: FaultKind::Pause,
                    target: format!("worker {process}"),
                    process: Some(process),
                });
                crew.signal(member, Signal::STOP)?;
                stopped.insert(member, count);
            } else if !should_stand && let Some(fault) = stopped.remove(&member) {
                crew.signal(member, Signal::CONT)?;
                recorder.hear(Event::Healed { fault, at: now() });
            }
        }
        if over {
            return Ok(());
        }
        sleep_until((Instant::now() + period / 100).min(end)).await;
    }
}

/// Which part of the period a worker is ahead of the first.
#[allow(clippy::cast_precision_loss, reason = "there are few workers")]
fn shift(member: usize, of: usize) -> f64 {
    member as f64 / of as f64
}
