use std::time::Duration;

use super::dice::Dice;
use super::plan::{Cancel, Effect, End, Fate, Fault, NodePlan, Patience, Phase, Plan, Step, Want, Way};

/// What a seed's plan is made from.
struct Maker {
    dice: Dice,
    ttl: Duration,
    /// How long faults may strike.
    length: Duration,
    /// Few keys make rivals.
    keys: u64,
    /// Which wants this seed is about.
    wants: Vec<Want>,
    /// Long holds and a lost message or two, which must cost nobody anything.
    gentle: bool,
}

impl Plan {
    /// The plan of `seed`.
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 0);
        let ttl = Duration::from_millis(dice.pick(&[300, 1000, 2000, 5000]));
        let all = [Want::Mutex, Want::Write, Want::Read, Want::Slot, Want::Lead];
        let mut wants: Vec<Want> = all.into_iter().filter(|_| dice.percent(45)).collect();
        if wants.is_empty() {
            wants.push(Want::Mutex);
        }
        let call_timeout = dice.pick(&[ttl / 4, ttl / 2, ttl, ttl * 2]);
        let (gentle, keys) = (dice.percent(10), dice.between(1, 2));
        let mut maker = Maker { ttl, length: ttl * Self::LENGTH, keys, wants, gentle, dice };
        let count = maker.dice.between(2, 4) as usize;
        let nodes = (0..count).map(|_| maker.node()).collect();
        let faults = maker.faults(count);
        Self { seed, ttl, call_timeout, nodes, faults }
    }
}

impl Maker {
    /// A time up to `longest`, more often short than long.
    fn time(&mut self, longest: Duration) -> Duration {
        let scale = self.dice.pick(&[1, 2, 8, 64]);
        Duration::from_nanos(self.dice.below((longest / scale).as_nanos() as u64))
    }

    /// A moment at which something strikes, with the time of day left to chance.
    fn moment(&mut self) -> Duration {
        Duration::from_nanos(self.dice.below(self.length.as_nanos() as u64))
    }

    /// How long an outage lasts: often about as long as a claim lives without a renewal.
    fn outage(&mut self) -> Duration {
        if self.dice.percent(50) { self.ttl * 7 / 10 + self.time(self.ttl) } else { self.time(self.ttl * 3) }
    }

    fn node(&mut self) -> NodePlan {
        // A round trip is well below every time limit, unless a fault makes it longer.
        let slowest = self.ttl / self.dice.pick(&[30, 100, 500]);
        let tasks = (0..self.dice.between(1, 3)).map(|_| self.task()).collect();
        NodePlan {
            ahead: Duration::from_secs(self.dice.below(1_000_000)),
            // Two clocks apart by at most 4 of 1000: what the profile's margin allows for.
            faster_ppm: self.dice.between(0, 4000) as i32 - 2000,
            latency: (Duration::from_micros(100), slowest),
            tasks,
        }
    }

    fn task(&mut self) -> Vec<Step> {
        (0..self.dice.between(1, 5)).map(|_| self.step()).collect()
    }

    fn step(&mut self) -> Step {
        let ttl = self.ttl;
        let patience = match self.dice.below(5) {
            0 => Patience::Once,
            1 | 2 => Patience::Within(self.time(ttl * 3)),
            _ => Patience::Forever,
        };
        let cancel = self.dice.percent(20).then(|| Cancel {
            phase: self.dice.pick(&[
                Phase::Acquire,
                Phase::Acquire,
                Phase::Open,
                Phase::Write,
                Phase::Release,
            ]),
            polls: self.dice.between(0, 7) as usize,
        });
        Step {
            after: self.time(ttl * 2),
            want: self.dice.pick(&self.wants.clone()),
            number: self.dice.below(self.keys) as u8,
            patience,
            hold: if self.gentle { ttl + self.time(ttl * 2) } else { self.time(ttl * 3) },
            longest_hold: self.dice.percent(10).then(|| self.time(ttl * 2)),
            effect: self.dice.pick(&[Effect::None, Effect::Checked, Effect::Zombie, Effect::Zombie]),
            end: self.dice.pick(&[End::Release, End::Release, End::Drop]),
            cancel,
        }
    }

    /// Each seed has its own mix: where all kinds strike all the time, some hide others.
    fn faults(&mut self, nodes: usize) -> Vec<Fault> {
        let mut faults = Vec::new();
        if self.gentle {
            for _ in 0..self.dice.between(1, 2) {
                let node = self.dice.below(nodes as u64) as usize;
                let lost = [Fate::RequestLost { silent: true }, Fate::AnswerLost { silent: true }];
                let (number, fate) = (self.dice.below(20), self.dice.pick(&lost));
                faults.push(Fault::Message { node, number, fate });
            }
            return faults;
        }
        let mut some = |maker: &mut Self, most: u64, make: fn(&mut Self, usize) -> Fault| {
            if maker.dice.percent(50) {
                for _ in 0..maker.dice.between(1, most) {
                    let node = maker.dice.below(nodes as u64) as usize;
                    faults.push(make(maker, node));
                }
            }
        };
        some(self, 3, Self::pause);
        some(self, 2, Self::crash);
        some(self, 1, Self::leave);
        some(self, 3, Self::cut);
        some(self, 3, Self::slow);
        some(self, 12, Self::message);
        faults
    }

    fn pause(&mut self, node: usize) -> Fault {
        Fault::Pause { node, at: self.moment(), lasts: self.outage() }
    }

    fn crash(&mut self, node: usize) -> Fault {
        Fault::Crash { node, at: self.moment(), gap: self.time(self.ttl * 2) }
    }

    fn leave(&mut self, node: usize) -> Fault {
        Fault::Leave { node, at: self.moment(), gap: self.time(self.ttl * 2) }
    }

    fn cut(&mut self, node: usize) -> Fault {
        let way = self.dice.pick(&[Way::Both, Way::There, Way::Back]);
        let silent = self.dice.percent(50);
        Fault::Cut { node, at: self.moment(), lasts: self.outage(), way, silent }
    }

    fn slow(&mut self, node: usize) -> Fault {
        Fault::Slow { node, at: self.moment(), lasts: self.time(self.ttl * 3), by: self.time(self.ttl * 2) }
    }

    fn message(&mut self, node: usize) -> Fault {
        let silent = self.dice.percent(50);
        let fate = match self.dice.below(5) {
            0 => Fate::RequestLost { silent },
            1 => Fate::AnswerLost { silent },
            2 => Fate::Twice { after: self.time(self.ttl * 2) },
            3 => Fate::RequestLate { by: self.time(self.ttl * 2) },
            _ => Fate::AnswerLate { by: self.time(self.ttl * 2) },
        };
        Fault::Message { node, number: self.dice.below(40), fate }
    }
}
