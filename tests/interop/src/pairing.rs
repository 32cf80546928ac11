use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use redis::AsyncCommands;

use crate::server::Server;
use crate::worker::{Client, Outcome};

/// The key all contend for.
const KEY: &str = "job";

/// Processes of each foreign client.
const PROCESSES: u32 = 2;

/// The longest wait of ours. Foreign locks have a TTL of 10 s: a wait near it missed a wake-up.
const OUR_WAIT: Duration = Duration::from_secs(5);

/// Of ours, what remains without a TTL: token counters, and since when the server remembers.
const TOKEN_COUNTER: &str = ":t";
const BORN: &str = "palisade:born";

/// Some clients that contend, several processes each.
#[derive(Debug)]
pub(crate) struct Pairing {
    pub(crate) name: String,
    ours: Client,
    theirs: Vec<Client>,
    pace: Pace,
    expected: Expected,
}

/// How often and how densely a process takes its turns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) turns: u32,
    /// The pause between two turns, on average.
    pub(crate) pause_us: u64,
    /// How many processes of ours there are.
    pub(crate) ours: u32,
}

/// What a pairing must come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Nothing is lost.
    Excluded,
    /// Updates are lost, since somebody does not lock: the proof that the counter notices.
    Lossy,
}

/// Every pairing with these foreign clients.
pub(crate) fn all(clients: &[Client], pace: Pace) -> Result<Vec<Pairing>> {
    let ours = Client::of_our_own("palisade")?;
    let in_hashes = Client::of_our_own("palisade-redisson")?;
    let (redisson, plain): (Vec<&Client>, Vec<&Client>) =
        clients.iter().partition(|client| client.name == "redisson");
    let pairing = |ours: &Client, theirs: &[&Client], pace: Pace, expected| Pairing {
        name: name(ours, theirs),
        ours: ours.clone(),
        theirs: theirs.iter().map(|client| (*client).clone()).collect(),
        pace,
        expected,
    };
    let mut all = vec![pairing(&ours, &[&Client::of_our_own("bare")?], pace, Expected::Lossy)];
    all.extend(plain.iter().map(|client| pairing(&ours, &[client], pace, Expected::Excluded)));
    all.extend(redisson.iter().map(|client| pairing(&in_hashes, &[client], pace, Expected::Excluded)));
    if plain.len() > 1 {
        all.push(pairing(&ours, &plain, Pace { turns: pace.turns / 2, ..pace }, Expected::Excluded));
    }
    Ok(all)
}

fn name(ours: &Client, theirs: &[&Client]) -> String {
    match theirs {
        [one] => format!("{} × {}", ours.name, one.name),
        many => format!("{} × all {}", ours.name, many.len()),
    }
}

impl Pairing {
    /// Lets all contend, and looks at what is there afterwards.
    pub(crate) async fn run(&self, server: &Server) -> Result<Report> {
        server.clear().await?;
        let mut workers = Vec::new();
        let theirs = self.theirs.iter().map(|client| (client, PROCESSES));
        for (client, processes) in std::iter::once((&self.ours, self.pace.ours)).chain(theirs) {
            for number in 1..=processes {
                let name = format!("{}#{number}", client.name);
                let (turns, pause) = (self.pace.turns.to_string(), self.pace.pause_us.to_string());
                let task = ["turns", turns.as_str(), pause.as_str(), name.as_str()];
                let worker = client.start(server.port(), KEY, &task).await?;
                workers.push((name, worker));
            }
        }
        let start = Instant::now();
        for (_, worker) in &mut workers {
            worker.go().await?;
        }
        let mut outcomes = Vec::new();
        for (name, worker) in workers {
            outcomes.push((name, worker.outcome().await?));
        }
        let took = start.elapsed();
        let mut connection = server.connect().await?;
        Ok(Report {
            name: self.name.clone(),
            expected: self.expected,
            ours: self.ours.name.clone(),
            outcomes,
            counter: connection.get("counter").await?,
            order: connection.lrange("order", 0, -1).await?,
            left: left(&mut connection).await?,
            took,
        })
    }
}

/// Keys that should not be there any more.
async fn left(connection: &mut redis::aio::MultiplexedConnection) -> Result<Vec<String>> {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(connection).await?;
    let mut left = Vec::new();
    for key in keys {
        let ttl: i64 = connection.pttl(&key).await?;
        let lasting = key.ends_with(TOKEN_COUNTER) || key == BORN;
        let ours = key.starts_with("palisade:") && (ttl >= 0 || lasting);
        let stays = ours || key == "counter" || key == "order";
        if !stays && ttl != -2 {
            left.push(key);
        }
    }
    Ok(left)
}

/// What came of a pairing.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) name: String,
    pub(crate) expected: Expected,
    ours: String,
    outcomes: Vec<(String, Outcome)>,
    counter: u64,
    /// Who was inside, in that order.
    order: Vec<String>,
    left: Vec<String>,
    pub(crate) took: Duration,
}

impl Report {
    pub(crate) fn turns(&self) -> u64 {
        self.outcomes.iter().map(|(_, outcome)| u64::from(outcome.turns)).sum()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.turns().saturating_sub(self.counter)
    }

    pub(crate) fn overlaps(&self) -> u32 {
        self.outcomes.iter().map(|(_, outcome)| outcome.overlaps).sum()
    }

    /// The longest wait of our processes, or of the others.
    pub(crate) fn max_wait(&self, ours: bool) -> Duration {
        let those = self.outcomes.iter().filter(|(name, _)| self.is_ours(name) == ours);
        those.map(|(_, outcome)| outcome.max_wait).max().unwrap_or_default()
    }

    /// How often the lock went from one of ours to one of theirs, or back.
    pub(crate) fn crossings(&self) -> usize {
        self.order.windows(2).filter(|pair| self.is_ours(&pair[0]) != self.is_ours(&pair[1])).count()
    }

    /// How many of its turns, in percent, the slowest process had when the fastest one was done.
    pub(crate) fn slowest_percent(&self) -> u32 {
        let mut done: HashMap<&str, u32> = HashMap::new();
        for name in &self.order {
            let turns = done.entry(name).or_default();
            *turns += 1;
            if self.outcomes.iter().any(|(other, outcome)| other == name && outcome.turns == *turns) {
                break;
            }
        }
        let share = |(name, outcome): &(String, Outcome)| {
            100 * done.get(name.as_str()).copied().unwrap_or(0) / outcome.turns.max(1)
        };
        self.outcomes.iter().map(share).min().unwrap_or(0)
    }

    fn is_ours(&self, process: &str) -> bool {
        process.split_once('#').is_some_and(|(client, _)| client == self.ours)
    }

    /// What is not as it must be.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |fine: bool, problem: String| {
            if !fine {
                problems.push(format!("{}: {problem}", self.name));
            }
        };
        let (lost, overlaps) = (self.lost(), self.overlaps());
        if self.expected == Expected::Lossy {
            check(
                lost > 0 && overlaps > 0,
                "nothing was lost without a lock: the counter is blind".to_owned(),
            );
            return problems;
        }
        check(self.counter == self.turns(), format!("{lost} of {} updates were lost", self.turns()));
        check(overlaps == 0, format!("{overlaps} times two were inside"));
        check(self.order.len() as u64 == self.turns(), format!("{} turns were signed", self.order.len()));
        check(self.crossings() >= 4, format!("the lock crossed over {} times", self.crossings()));
        check(self.slowest_percent() > 0, "one did not get in while others were at it".to_owned());
        let wait = self.max_wait(true);
        check(wait <= OUR_WAIT, format!("one of ours waited for {wait:?}"));
        check(self.left.is_empty(), format!("these keys were left behind: {}", self.left.join(", ")));
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(counter: u64, overlaps: u32, order: &[&str]) -> Report {
        let outcome = |overlaps| Outcome { turns: 4, overlaps, max_wait: Duration::from_millis(3) };
        Report {
            name: "x".to_owned(),
            expected: Expected::Excluded,
            ours: "palisade".to_owned(),
            outcomes: vec![
                ("palisade#1".to_owned(), outcome(overlaps)),
                ("redis-py#1".to_owned(), outcome(0)),
            ],
            counter,
            order: order.iter().map(|name| format!("{name}#1")).collect(),
            left: Vec::new(),
            took: Duration::from_secs(1),
        }
    }

    const A: &str = "palisade";
    const B: &str = "redis-py";
    const MIXED: [&str; 8] = [A, B, A, A, B, A, B, B];

    #[test]
    fn a_clean_run_has_no_problems() {
        let clean = report(8, 0, &MIXED);
        assert_eq!(clean.problems(), Vec::<String>::new());
        assert_eq!((clean.crossings(), clean.slowest_percent()), (5, 50));
    }

    #[test]
    fn losses_overlaps_and_starving_are_told() {
        let found = |report: &Report| report.problems().join("; ");
        assert!(found(&report(7, 0, &MIXED)).contains("1 of 8 updates were lost"));
        assert!(found(&report(8, 1, &MIXED)).contains("two were inside"));
        assert!(found(&report(8, 0, &[A, A, A, A, B, B, B, B])).contains("did not get in"));
        let mut late = report(8, 0, &MIXED);
        late.outcomes[0].1.max_wait = Duration::from_secs(9);
        assert!(found(&late).contains("waited for 9s"));
        late.left.push("palisade:{x}:q:x".to_owned());
        assert!(found(&late).contains("left behind"));
    }

    #[test]
    fn a_control_that_loses_nothing_is_no_control() {
        let control = Report { expected: Expected::Lossy, ..report(8, 0, &MIXED) };
        assert!(control.problems()[0].contains("blind"));
        let control = Report { expected: Expected::Lossy, ..report(5, 2, &MIXED) };
        assert!(control.problems().is_empty());
    }
}
