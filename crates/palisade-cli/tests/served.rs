//! The command on an engine that is a server: one that dies, refuses, or is none.

mod common;

use std::time::{Duration, Instant};

use common::{Sandbox, stderr, stdout, until};
use palisade_testkit::servers::{RedisOptions, RedisServer};
use tokio::runtime::Runtime;

/// A Redis server, a sandbox whose engine it is, and what drives both.
struct Served {
    sandbox: Sandbox,
    server: RedisServer,
    runtime: Runtime,
}

impl Served {
    fn new() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(RedisServer::start(RedisOptions::default())).unwrap();
        let sandbox = Sandbox::at(&format!("redis://{}", server.address()));
        Self { sandbox, server, runtime }
    }

    fn kill(&self) {
        self.runtime.block_on(self.server.kill()).unwrap();
    }
}

/// How long a machine that is busy with other tests may take for what takes no time.
const SLACK: Duration = Duration::from_secs(1);

#[test]
fn a_limited_wait_ends_in_time_although_the_server_died() {
    for stop in [false, true] {
        let served = Served::new();
        let holder = served.sandbox.start(["run", "x", "--", "sleep", "1000"]);
        served.sandbox.until("x", 1, 0);
        let began = Instant::now();
        let waiter = served.sandbox.start(["run", "x", "--wait", "2s", "--", "touch", "ran"]);
        served.sandbox.until("x", 1, 1);
        if stop {
            served.server.stop().unwrap();
        } else {
            served.kill();
        }
        let (code, said) = waiter.end();
        let took = began.elapsed();
        assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(3) + SLACK, "{took:?}: {said}");
        // Nobody can say that somebody else holds it.
        assert_eq!(code, Some(69), "{said}");
        assert!(said.contains("not obtained in time") && said.contains("redis"), "{said}");
        assert!(!served.sandbox.path("ran").exists());
        drop(holder);
    }
}

#[test]
fn who_waits_for_a_server_that_is_gone_is_told_so() {
    let served = Served::new();
    let holder = served.sandbox.start(["run", "x", "--ttl", "1s", "--", "sleep", "1000"]);
    served.sandbox.until("x", 1, 0);
    let waiter = served.sandbox.start_into("waiter", ["run", "x", "--", "touch", "ran"]);
    served.sandbox.until("x", 1, 1);
    served.kill();
    served.sandbox.until_written("waiter.err", "x: the engine is out of reach; waiting on until it is back");
    drop(holder);
    served.runtime.block_on(served.server.start_again(true)).unwrap();
    served.sandbox.until_written("waiter.err", "the engine is back; waiting on");
    until("it ran", || served.sandbox.path("ran").exists());
    drop(waiter);
}

#[test]
fn a_command_that_outlives_the_server_is_answered_for_promptly() {
    for stop in [false, true] {
        let served = Served::new();
        let command = "echo runs > runs; while ! test -e go; do sleep 0.02; done; exit 7";
        let runs = ["run", "x", "--and", "y", "--ttl", "60s", "--", "sh", "-c", command];
        let holder = served.sandbox.start(runs);
        served.sandbox.until_written("runs", "runs");
        if stop {
            served.server.stop().unwrap();
        } else {
            served.kill();
        }
        std::fs::write(served.sandbox.path("go"), "").unwrap();
        let began = Instant::now();
        let (code, said) = holder.end();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(2) + SLACK, "{took:?}: {said}");
        assert_eq!(code, Some(7), "the command's own: {said}");
        assert!(said.contains("x, y") && said.contains("not confirmed") && said.contains("1m"), "{said}");
    }
}

#[test]
fn who_lost_the_lock_with_its_server_is_told_what_became_of_the_renewals() {
    // Within its time limit, which may be longer than the TTL, a call waits for the server to come back.
    for (call_timeout, said_last) in [("200ms", "connect"), ("5s", "no answer to a renewal for ")] {
        for stop in [false, true] {
            let mut served = Served::new();
            served.sandbox =
                Sandbox::at(&format!("redis://{}?call-timeout={call_timeout}", served.server.address()));
            let command = "echo runs > runs; exec sleep 1000";
            let holder = served.sandbox.start(["run", "x", "--ttl", "3s", "--", "sh", "-c", command]);
            // What the server knows first is not enough: the answer may be on its way.
            served.sandbox.until_written("runs", "runs");
            if stop {
                served.server.stop().unwrap();
            } else {
                served.kill();
            }
            let (code, said) = holder.end();
            assert_eq!(code, Some(76), "{said}");
            let (what, why) = said.split_once("for too long: ").unwrap_or_else(|| panic!("{said}"));
            assert!(what.contains("x: the lock was lost"), "{said}");
            assert!(why.contains(said_last) && why.contains("(redis)"), "{said}");
        }
    }
}

#[test]
fn a_watch_goes_on_once_the_server_is_back() {
    let served = Served::new();
    let sandbox = &served.sandbox;
    let _watch = sandbox.start_into("watch", ["watch"]);
    let _leader = sandbox.start_into("leader", ["leader", "e", "--watch"]);
    let holder = sandbox.start(["run", "x", "--", "sleep", "1000"]);
    sandbox.until_written("watch.out", "x\theld by");
    sandbox.until_written("leader.out", "nobody leads");
    served.kill();
    for said in ["watch.err", "leader.err"] {
        sandbox.until_written(said, "the connection was lost (redis)");
        sandbox.until_written(said, "watching on once the engine is back");
        sandbox.until_written(said, "check host and port");
    }
    drop(holder);
    served.runtime.block_on(served.server.start_again(true)).unwrap();
    for said in ["watch.err", "leader.err"] {
        sandbox.until_written(said, "the engine is back");
    }
    sandbox.until_written("watch.out", "x\tfree");
    let _elected = sandbox.start(["elect", "e", "--ttl", "1s", "--value", "later", "--", "sleep", "1000"]);
    sandbox.until_written("leader.out", "later");
    sandbox.until_written("watch.out", "e\theld by");
}

#[test]
fn a_server_that_comes_back_in_time_costs_nothing() {
    let served = Served::new();
    let command = "echo runs > runs; while ! test -e go; do sleep 0.02; done";
    let holder = served.sandbox.start(["run", "x", "--ttl", "60s", "--", "sh", "-c", command]);
    served.sandbox.until_written("runs", "runs");
    served.server.stop().unwrap();
    std::fs::write(served.sandbox.path("go"), "").unwrap();
    served.server.go_on().unwrap();
    assert_eq!(holder.end(), (Some(0), String::new()));
    until("it is free", || served.sandbox.json(["ls", "--json"]) == serde_json::json!([]));
}

#[test]
fn whom_the_server_refuses_learns_it_by_the_exit_code() {
    let served = Served::new();
    let address = served.server.address();
    let ask = |command: &[&str]| served.runtime.block_on(served.server.ask(command)).unwrap();
    ask(&["ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "&*", "+@read", "+@connection", "+info"]);
    ask(&["ACL", "SETUSER", "locks", "on", ">hunter2", "~*", "&*", "+@all"]);
    let code_of = |user: &str| {
        let sandbox = Sandbox::at(&format!("redis://{user}@{address}"));
        let output = sandbox.run(["run", "x", "--", "touch", "ran"]);
        let said = stderr(&output);
        assert!(!said.contains("hunter2"), "{said}");
        (output.status.code(), sandbox.path("ran").exists(), said.lines().count())
    };
    assert_eq!(code_of("locks:hunter2"), (Some(0), true, 0));
    assert_eq!(code_of("locks:hunter3"), (Some(77), false, 1));
    assert_eq!(code_of("nobody:hunter2"), (Some(77), false, 1));
    assert_eq!(code_of("reader:hunter2"), (Some(77), false, 1));
    // Somebody who is not there is another matter.
    served.kill();
    assert_eq!(code_of("locks:hunter2"), (Some(69), false, 1));
}

#[test]
fn what_is_not_known_of_another_clients_lock_is_not_made_up() {
    let served = Served::new();
    let set = ["SET", "x", "another-client", "PX", "60000"];
    served.runtime.block_on(served.server.ask(&set)).unwrap();
    let text = stdout(&served.sandbox.run(["show", "x"]));
    let (headings, row) = text.trim_end().split_once('\n').unwrap();
    let at = headings.split('\t').position(|heading| heading == "FOR").unwrap();
    assert_eq!(row.split('\t').nth(at), Some("-"), "{text}");
    let holder = &served.sandbox.json(["show", "x", "--json"])["holders"][0];
    assert!(holder["age_ms"].is_null() && holder["expires_in_ms"].is_u64(), "{holder}");
}

#[test]
fn what_outlives_a_crash_is_the_servers_matter() {
    let sandbox = Sandbox::new();
    let text = stdout(&sandbox.run(["engines"]));
    let (_, redis) = text.split_once("redis://host").unwrap();
    let durability = redis.lines().find(|line| line.contains("durability")).unwrap();
    assert!(durability.contains("the server's persistence"), "{durability}");
    let served = Served::new();
    let refused = served.sandbox.run(["--demand", "crash-safe", "ls"]);
    assert_eq!(refused.status.code(), Some(64), "{}", stderr(&refused));
}
