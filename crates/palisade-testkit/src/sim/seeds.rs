use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Bug, Plan, Run, simulate};
use crate::history::{Answer, Event};

/// What many seeds showed.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// How many seeds were run.
    pub seeds: u64,
    /// How much time passed in them.
    pub time: Duration,
    /// How many operations they recorded.
    pub events: u64,
    /// How many things happened in them: messages, timers, faults.
    pub happenings: u64,
    /// How often what was seen, to see that nothing is left out.
    pub seen: BTreeMap<String, u64>,
    /// The smallest seed that showed a mistake, if one did.
    pub failed: Option<u64>,
}

impl Tally {
    fn add(&mut self, seed: u64, run: &Run) {
        self.seeds += 1;
        self.time += run.time;
        self.events += run.events.len() as u64;
        self.happenings += run.happenings;
        for event in &run.events {
            if let Some(sort) = sort(event) {
                *self.seen.entry(sort).or_default() += 1;
            }
        }
        if !run.violations.is_empty() {
            self.failed = Some(self.failed.map_or(seed, |other| other.min(seed)));
        }
    }
}

/// What sort of thing an event shows, in a few words; `None` for what is everywhere.
fn sort(event: &Event) -> Option<String> {
    match event {
        Event::Return { answer, .. } => match answer {
            Answer::Granted { .. } => Some("granted".to_owned()),
            Answer::Released { in_time: true } => Some("released".to_owned()),
            Answer::Released { in_time: false } => Some("released too late".to_owned()),
            Answer::Done { .. } => Some("added".to_owned()),
            Answer::Refused { .. } => Some("refused by a fence".to_owned()),
            Answer::Failed { reason } => Some(format!("failed: {reason}")),
            Answer::Unknown { reason } => Some(format!("unknown: {reason}")),
            Answer::Value { .. } => None,
        },
        Event::Lost { reason, .. } => Some(format!("lost: {reason}")),
        Event::Fault { kind, .. } => Some(format!("fault: {}", kind.name())),
        _ => None,
    }
}

/// Runs `count` seeds from `first` on, on `threads` threads, until one fails. `tell` hears how many
/// are done, now and then.
pub fn run_seeds(
    first: u64,
    count: u64,
    threads: usize,
    bug: Option<Bug>,
    tell: &(dyn Fn(u64) + Sync),
) -> Tally {
    let (next, stop, tally) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let seed = first + number;
                    let run = simulate(&Plan::new(seed), bug, false);
                    let mut tally = tally.lock();
                    tally.add(seed, &run);
                    if tally.failed.is_some() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    if tally.seeds.is_multiple_of(500) {
                        tell(tally.seeds);
                    }
                }
            });
        }
    });
    tally.into_inner()
}
