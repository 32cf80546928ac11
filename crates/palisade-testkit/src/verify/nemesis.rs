use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use rustix::process::Signal;
use tokio::time::{Instant, sleep_until};

use super::crew::Crew;
use super::outage::Outage;
use super::recorder::Recorder;
use super::station::Chance;
use super::teller::now;
use crate::history::{Event, FaultKind, ProcessId};
use crate::launch::{Survives, Target};
use crate::proxy::{Direction, Weather};

/// Does faults to a crew at random moments, with calm spells in between.
#[derive(Debug)]
pub(super) struct Nemesis {
    recorder: Arc<Recorder>,
    chance: Chance,
    kinds: Vec<FaultKind>,
    ttl: Duration,
    /// How long a calm spell lasts: long enough for what must happen within its bound to show.
    calm: Duration,
    target: Arc<dyn Target>,
    active: Vec<Active>,
    outage: Outage,
    count: u64,
}

/// A fault that has to be healed.
#[derive(Debug)]
struct Active {
    fault: u64,
    heal_at: Instant,
    what: Struck,
}

/// What a fault was done to, which is how it is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Struck {
    /// A worker, stopped.
    Worker(usize),
    /// The line between a worker and a server.
    Line { worker: usize, server: usize },
    /// A server, stopped.
    Stopped(usize),
    /// A server, cut off from the others.
    CutOff(usize),
    /// A server, killed.
    Killed { server: usize, wiped: bool },
    /// The clock of a server, shifted.
    Clock(usize),
}

impl Nemesis {
    pub(super) fn new(
        recorder: Arc<Recorder>,
        target: Arc<dyn Target>,
        seed: u64,
        kinds: &[FaultKind],
        ttl: Duration,
        calm: Duration,
    ) -> Self {
        // Futures are dropped by the workers themselves.
        let kinds = kinds.iter().copied().filter(|kind| *kind != FaultKind::Cancel).collect();
        let chance = Chance::new(seed, 0);
        let outage = Outage::new(target.at_once());
        Self { recorder, chance, kinds, ttl, calm, target, active: Vec::new(), outage, count: 0 }
    }

    /// Strikes until `end`, then heals everything.
    pub(super) async fn rage(&mut self, crew: &mut Crew, end: Instant) -> Result<()> {
        while Instant::now() < end {
            let storm = (Instant::now() + self.ttl * 8).min(end);
            self.storm(crew, storm).await?;
            self.heal(crew, None).await?;
            crew.watch_until((Instant::now() + self.calm).min(end)).await?;
        }
        Ok(())
    }

    async fn storm(&mut self, crew: &mut Crew, end: Instant) -> Result<()> {
        let mut strike_at = Instant::now();
        while strike_at < end {
            let next_heal = self.active.iter().map(|active| active.heal_at).min();
            crew.watch_until(next_heal.map_or(strike_at, |heal| heal.min(strike_at)).min(end)).await?;
            self.heal(crew, Some(Instant::now())).await?;
            if Instant::now() >= strike_at {
                self.strike(crew).await?;
                strike_at = Instant::now() + self.ttl.mul_f64(0.1 + self.chance.fraction() * 0.7);
            }
        }
        Ok(())
    }

    async fn strike(&mut self, crew: &mut Crew) -> Result<()> {
        if self.kinds.is_empty() {
            return Ok(());
        }
        let kind = self.kinds[self.chance.below(self.kinds.len() as u32) as usize];
        match kind {
            FaultKind::Pause => self.pause(crew),
            FaultKind::Kill => self.kill(crew).await,
            FaultKind::Cut | FaultKind::Slow => {
                self.line(crew, kind);
                Ok(())
            }
            FaultKind::Restart => self.restart().await,
            FaultKind::Clock => self.shift_clock().await,
            // Workers drop futures themselves.
            FaultKind::Cancel => Ok(()),
        }
    }

    /// One of the workers, unless something is done to it already.
    fn worker(&mut self, crew: &Crew) -> Option<usize> {
        let worker = self.chance.below(crew.len() as u32) as usize;
        let busy = self.active.iter().any(|active| match active.what {
            Struck::Worker(other) | Struck::Line { worker: other, .. } => other == worker,
            Struck::Stopped(_) | Struck::CutOff(_) | Struck::Killed { .. } | Struck::Clock(_) => false,
        });
        (!busy).then_some(worker)
    }

    fn pause(&mut self, crew: &Crew) -> Result<()> {
        let Some(worker) = self.worker(crew) else { return Ok(()) };
        let process = crew.process(worker);
        self.strike_for_a_while(
            FaultKind::Pause,
            format!("worker {process}"),
            Some(process),
            Struck::Worker(worker),
        );
        crew.signal(worker, Signal::STOP)
    }

    async fn kill(&mut self, crew: &mut Crew) -> Result<()> {
        let Some(worker) = self.worker(crew) else { return Ok(()) };
        let process = crew.process(worker);
        let fault = self.tell(FaultKind::Kill, format!("worker {process}"), Some(process));
        crew.kill(worker).await?;
        self.recorder.hear(Event::Healed { fault, at: now() });
        Ok(())
    }

    /// Cuts or slows the line of a worker to one of the servers.
    fn line(&mut self, crew: &Crew, kind: FaultKind) {
        let Some(worker) = self.worker(crew) else { return };
        let server = self.chance.below(crew.servers() as u32) as usize;
        let moment = self.ttl.mul_f64(0.02 + self.chance.fraction() * 0.3);
        let weather = match (kind, self.chance.below(6)) {
            (FaultKind::Slow, 0..=3) => Weather::Delay { by: moment, jitter: moment },
            (FaultKind::Slow, _) => Weather::Trickle { bytes: 40, every: Duration::from_millis(20) },
            (_, 0) => Weather::Cut,
            (_, 1) => Weather::Silent,
            (_, 2) => Weather::OneWay(Direction::ToServer),
            (_, 3) => Weather::OneWay(Direction::ToClient),
            (_, 4) => Weather::Stranded,
            _ => Weather::CutAfterForwarding,
        };
        let process = crew.process(worker);
        let target = format!("worker {process}: {weather:?}");
        self.strike_for_a_while(kind, target, Some(process), Struck::Line { worker, server });
        crew.weather(worker, server, weather);
    }

    /// Stops a server for a while, or cuts it off from the others; kills it, or wipes it, if the engine survives that.
    async fn restart(&mut self) -> Result<()> {
        let target = Arc::clone(&self.target);
        let Some(server) = self.server() else { return Ok(()) };
        let found = &target.servers()[server];
        let ways = if found.can_be_cut_off() { 4 } else { 3 };
        let (done, struck) = match (self.chance.below(ways), target.survives()) {
            (3, _) => ("cut off from the others", Struck::CutOff(server)),
            (0, _) | (_, Survives::Stop) => ("stopped", Struck::Stopped(server)),
            (1, _) | (_, Survives::Kill) => ("killed", Struck::Killed { server, wiped: false }),
            (_, Survives::Wipe) => ("wiped", Struck::Killed { server, wiped: true }),
        };
        self.strike_for_a_while(FaultKind::Restart, format!("{} {done}", found.name()), None, struck);
        match struck {
            Struck::Stopped(_) => found.stop().await,
            Struck::CutOff(_) => found.cut_off().await,
            _ => found.kill().await,
        }
    }

    /// Shifts the clock of a server by up to some minutes, as Jepsen does.
    async fn shift_clock(&mut self) -> Result<()> {
        let target = Arc::clone(&self.target);
        let Some(server) = self.server() else { return Ok(()) };
        let found = &target.servers()[server];
        let seconds = i64::from(self.chance.below(2 * 288)) - 288;
        let what = format!("{} by {seconds} s", found.name());
        self.strike_for_a_while(FaultKind::Clock, what, None, Struck::Clock(server));
        found.shift_clock(seconds).await
    }

    /// One of the servers, unless something is done to it already, or to too many others.
    fn server(&mut self) -> Option<usize> {
        let servers = self.target.servers().len();
        let server = self.chance.below(servers as u32) as usize;
        (server < servers && self.outage.strike(server, Instant::now())).then_some(server)
    }

    fn strike_for_a_while(
        &mut self,
        kind: FaultKind,
        target: String,
        process: Option<ProcessId>,
        what: Struck,
    ) {
        let fault = self.tell(kind, target, process);
        let heal_at = Instant::now() + self.how_long();
        self.active.push(Active { fault, heal_at, what });
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

    fn tell(&mut self, kind: FaultKind, target: String, process: Option<ProcessId>) -> u64 {
        self.count += 1;
        self.recorder.hear(Event::Fault { fault: self.count, at: now(), kind, target, process });
        self.count
    }

    /// Heals what is due, or everything.
    async fn heal(&mut self, crew: &Crew, due: Option<Instant>) -> Result<()> {
        let (healing, active): (Vec<Active>, Vec<Active>) = std::mem::take(&mut self.active)
            .into_iter()
            .partition(|active| due.is_none_or(|due| active.heal_at <= due));
        self.active = active;
        for active in healing {
            match active.what {
                Struck::Worker(worker) => crew.signal(worker, Signal::CONT)?,
                Struck::Line { worker, server } => crew.weather(worker, server, Weather::Clear),
                Struck::Stopped(server) => self.target.servers()[server].go_on().await?,
                Struck::CutOff(server) => self.target.servers()[server].rejoin().await?,
                Struck::Killed { server, wiped } => self.target.servers()[server].start(wiped).await?,
                Struck::Clock(server) => self.target.servers()[server].shift_clock(0).await?,
            }
            match active.what {
                Struck::Worker(_) | Struck::Line { .. } => {}
                Struck::Stopped(server)
                | Struck::CutOff(server)
                | Struck::Killed { server, wiped: false } => {
                    self.outage.heal(server, Instant::now());
                }
                // What it had granted is gone, or ended early, and who was granted it does not know.
                Struck::Killed { server, wiped: true } | Struck::Clock(server) => {
                    self.outage.heal(server, Instant::now() + self.target.recovery());
                }
            }
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
