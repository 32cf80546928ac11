//! The simulation can be trusted: it repeats itself exactly, it finds mistakes that were planted,
//! and it says what matters of them.

use std::process::Command;
use std::time::Duration;

use palisade_testkit::broken::Fault;
use palisade_testkit::history::{Answer, Call, Event, Nanos};
use palisade_testkit::sim::{
    Bug, Effect, End, Fault as Mishap, NodePlan, Patience, Plan, Step, Want, Way, run_seeds, shrink, simulate,
};

/// Mistakes, and how many seeds are enough to find each.
const PLANTED: &[(Bug, u64)] = &[
    (Bug::CountsFromReply, 500),
    (Bug::ClaimOutlivesWithdrawal, 100),
    (Bug::BrokenLineUnnoticed, 500),
    (Bug::RenewsOnPaper, 100),
    (Bug::ReleasesOnPaper, 100),
    (Bug::Server(Fault::DoubleGrant), 100),
    (Bug::Server(Fault::RareDoubleGrant), 100),
    (Bug::Server(Fault::TokenReused), 100),
    (Bug::Server(Fault::TokenForgotten), 100),
    (Bug::Server(Fault::ExpiryLost), 100),
    (Bug::Server(Fault::ForeignRelease), 100),
    (Bug::Server(Fault::LostWakeup), 100),
    (Bug::Server(Fault::WakeupBelieved), 100),
    (Bug::Server(Fault::WaiterLeaked), 100),
    (Bug::Server(Fault::OvertakesQueue), 100),
    (Bug::Server(Fault::BusyLeavesClaim), 100),
    (Bug::Server(Fault::AskedAgainCountsAnew), 100),
    (Bug::Server(Fault::RevivesExpired), 100),
    (Bug::Server(Fault::RenewalsOutOfOrder), 100),
    (Bug::Server(Fault::RenewalLosesPlace), 100),
    (Bug::Server(Fault::DeadlineTooLate), 100),
    (Bug::Server(Fault::SlotTwice), 100),
    (Bug::Server(Fault::StaleTokenAccepted), 100),
    (Bug::Server(Fault::OpeningDoesNotFence), 100),
    (Bug::Server(Fault::StaleRead), 100),
];

#[test]
fn planted_mistakes_are_found() {
    for (bug, enough) in PLANTED {
        let tally = run_seeds(0, *enough, 2, Some(*bug), &|_| ());
        let seed = tally.failed.unwrap_or_else(|| panic!("{bug:?} was not found in {enough} seeds"));
        let run = simulate(&Plan::new(seed), Some(*bug), false);
        println!("{bug:?}: seed {seed}: {}", run.violations[0].checker);
    }
}

#[test]
fn what_is_right_is_left_alone() {
    let tally = run_seeds(1_000_000, 300, 2, None, &|_| ());
    assert_eq!((tally.failed, tally.seeds), (None, 300));
    let must_be_seen = [
        "granted",
        "released",
        "released too late",
        "added",
        "refused by a fence",
        "failed: cancelled",
        "failed: not to be had",
        "failed: Timeout",
        "failed: Unavailable",
        "unknown: Timeout",
        "unknown: Unavailable",
        "unknown: cancelled",
        "unknown: dropped",
        "lost: it was not renewed in time",
        "lost: the engine could not be reached",
        "lost: this process stood still for too long",
        "lost: its longest hold is over",
        "lost: its client was closed",
    ];
    for sort in must_be_seen {
        assert!(tally.seen.contains_key(sort), "{sort:?} was never seen, but: {:#?}", tally.seen);
    }
}

const TTL: Duration = Duration::from_secs(1);

/// A mutex, held for 10 ms.
const STEP: Step = Step {
    after: Duration::ZERO,
    want: Want::Mutex,
    number: 0,
    patience: Patience::Forever,
    hold: Duration::from_millis(10),
    longest_hold: None,
    effect: Effect::None,
    end: End::Release,
    cancel: None,
};

/// One node with one task.
fn plan(steps: Vec<Step>, faults: Vec<Mishap>) -> Plan {
    let latency = (Duration::from_micros(100), Duration::from_millis(1));
    let node = NodePlan { ahead: Duration::ZERO, faster_ppm: 0, latency, tasks: vec![steps] };
    Plan { seed: 1, ttl: TTL, call_timeout: TTL, nodes: vec![node], faults }
}

#[test]
fn who_gives_back_what_it_was_told_to_have_lost_was_not_robbed() {
    // Lost soon after it called itself valid, and by its own client.
    let hasty = Step { longest_hold: Some(Duration::from_micros(500)), ..STEP };
    let run = simulate(&plan(vec![hasty; 20], Vec::new()), None, false);
    let late =
        |event: &&Event| matches!(event, Event::Return { answer: Answer::Released { in_time: false }, .. });
    assert!(run.events.iter().any(|event| late(&event)), "nothing was released too late");
    assert_eq!(run.violations, []);
}

#[test]
fn a_line_is_whole_again_when_its_last_fault_is_over() {
    let cut = |at: u64, lasts: u64, way| Mishap::Cut {
        node: 0,
        at: Duration::from_millis(at),
        lasts: Duration::from_millis(lasts),
        way,
        silent: false,
    };
    for (first, second) in [(Way::Both, Way::Both), (Way::Back, Way::There), (Way::Both, Way::Back)] {
        let step = Step { after: Duration::from_millis(20), ..STEP };
        let faults = vec![cut(5, 95, first), cut(10, 2990, second)];
        let run = simulate(&plan(vec![step], faults), None, false);
        assert_eq!(run.violations, []);
        let asked = run.events.iter().find_map(|event| match event {
            Event::Call { at, call: Call::Acquire { .. }, .. } => Some(*at),
            _ => None,
        });
        let granted = run.events.iter().find_map(|event| match event {
            Event::Return { at, answer: Answer::Granted { .. }, .. } => Some(*at),
            _ => None,
        });
        let waited = Duration::from_nanos(granted.unwrap() - asked.unwrap() as Nanos);
        assert!(waited > Duration::from_millis(2900), "{first:?}, then {second:?}: {waited:?}");
    }
}

#[test]
fn claims_of_the_dead_are_looked_at_in_the_end() {
    // It dies while it holds the only slot that anybody took, so that nobody has to wait for it.
    let step = Step { want: Want::Slot, hold: TTL * 3, ..STEP };
    let crash = Mishap::Crash { node: 0, at: TTL, gap: TTL };
    let plan = plan(vec![step], vec![crash]);
    assert_eq!(simulate(&plan, None, false).violations, []);
    let bug = Some(Bug::Server(Fault::ExpiryLost));
    let found = simulate(&plan, bug, false).violations;
    let leak = |checker: &str, what: &str| checker == "leak" && what.contains("the last TTL is over");
    assert!(found.iter().any(|found| leak(found.checker, &found.what)), "{found:#?}");
}

#[test]
fn a_seed_repeats_itself_line_by_line() {
    for seed in 0..200 {
        let plan = Plan::new(seed);
        let (first, second) = (simulate(&plan, None, true), simulate(&Plan::new(seed), None, true));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert!(first.trace.len() > 10, "seed {seed}");
    }
}

#[test]
fn a_seed_repeats_itself_in_another_process() {
    for seed in 0..20 {
        let output = Command::new(env!("CARGO_BIN_EXE_palisade-simulate"))
            .args(["--digest", "--seed", &seed.to_string()])
            .output()
            .unwrap();
        let here = format!("{:016x}", simulate(&Plan::new(seed), None, true).digest());
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), here, "seed {seed}");
    }
}

#[test]
fn a_failing_plan_is_shrunk_to_what_matters() {
    let bug = Some(Bug::CountsFromReply);
    let seed = run_seeds(0, 1000, 2, bug, &|_| ()).failed.unwrap();
    let plan = Plan::new(seed);
    let checker = simulate(&plan, bug, false).violations[0].checker;
    let small = shrink(&plan, checker, bug, 2000);
    let size = |plan: &Plan| {
        let steps: usize = plan.nodes.iter().flat_map(|node| &node.tasks).map(Vec::len).sum();
        (steps, plan.faults.len())
    };
    let run = simulate(&small, bug, true);
    assert!(run.violations.iter().any(|violation| violation.checker == checker));
    println!("{:?} became {:?}:\n{small:#?}\n{}", size(&plan), size(&small), run.trace.join("\n"));
    assert!(size(&small).0 <= 3 && size(&small).1 <= 3, "{small:#?}");
}

#[test]
fn the_command_knows_its_arguments() {
    let run =
        |words: &[&str]| Command::new(env!("CARGO_BIN_EXE_palisade-simulate")).args(words).output().unwrap();
    let few = run(&["--seeds", "20", "--from", "7", "--threads", "1"]);
    assert!(few.status.success());
    assert!(String::from_utf8_lossy(&few.stderr).contains("20 seeds"));
    assert!(
        String::from_utf8_lossy(&run(&["--seed", "3", "--trace"]).stdout).contains("node 0 sends message 0")
    );
    assert_eq!(run(&["--seed", "x"]).status.code(), Some(2));
    assert!(run(&["--help"]).status.success());
}
