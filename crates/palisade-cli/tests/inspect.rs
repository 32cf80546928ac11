//! What `ls`, `show`, `watch`, `leader` and `engines` print.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;

use common::{BOUND, Sandbox, stderr, stdout, until};
use serde_json::Value;

#[test]
fn resources_have_holders_and_waiters() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start(["--label", "first", "run", "a", "--", "sleep", "1000"]);
    sandbox.until("a", 1, 0);
    let _waiter = sandbox.start(["run", "a", "--", "true"]);
    sandbox.until("a", 1, 1);

    let all = sandbox.json(["ls", "--json"]);
    assert_eq!(all.as_array().unwrap().len(), 1);
    let view = sandbox.json(["show", "a", "--json"]);
    for view in [&all[0], &view] {
        assert_eq!(view["resource"], "a");
        let (holder, waiter) = (&view["holders"][0], &view["waiters"][0]);
        assert_eq!(holder["mode"], "exclusive");
        assert_eq!(holder["slot"], Value::Null);
        assert!(holder["token"].as_str().unwrap().parse::<u64>().unwrap() > 0, "tokens are text");
        assert_eq!(holder["claim"].as_str().unwrap().len(), 32);
        assert_eq!(holder["owner"]["label"], "first");
        assert!(holder["owner"]["pid"].is_u64() && holder["owner"]["host"].is_string());
        assert!(holder["owner"]["client"].is_string());
        assert!(holder["age_ms"].is_u64() && holder["expires_in_ms"].is_u64());
        assert_eq!(waiter["owner"]["label"], "true", "the command's name unless told otherwise");
        assert!(waiter.get("token").is_none());
    }
    assert_eq!(sandbox.json(["ls", "b", "--json"]), serde_json::json!([]));
    let text = stdout(&sandbox.run(["ls"]));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].starts_with("RESOURCE\tMODE\t") && lines[1].starts_with("a\texclusive\t"), "{text}");
    assert_eq!(lines[0].split('\t').count(), lines[1].split('\t').count(), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    let text = stdout(&sandbox.run(["show", "a"]));
    assert!(text.starts_with("DOES\tMODE\t") && text.contains("waits\texclusive"), "{text}");
    assert_eq!(stdout(&sandbox.run(["ls", "b"])), "", "nothing is nothing");
    assert_eq!(stdout(&sandbox.run(["show", "b"])), "free\n");
}

/// Lines as they come.
struct Lines {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Lines {
    fn of(sandbox: &Sandbox, args: &[&str]) -> Self {
        let mut child = sandbox.palisade(args).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// The next line that `wanted` accepts.
    #[track_caller]
    fn find(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.recv_timeout(BOUND).unwrap_or_else(|_| panic!("waited in vain for {what}"));
            let value: Value = serde_json::from_str(&line).unwrap();
            if wanted(&value) {
                return value;
            }
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn watch_tells_every_change_on_a_line_of_its_own() {
    let sandbox = Sandbox::new();
    let mut watch = Lines::of(&sandbox, &["watch", "w", "--json"]);
    let holder = sandbox.start(["run", "w1", "--", "sh", "-c", "until [ -e go ]; do sleep 0.02; done"]);
    let held = watch
        .find("a holder", |line| line["resource"] == "w1" && line["holders"].as_array().unwrap().len() == 1);
    assert_eq!(held["kind"], "resource");
    std::fs::write(sandbox.path("go"), "").unwrap();
    watch.find("a free resource", |line| {
        line["resource"] == "w1" && line["holders"].as_array().unwrap().is_empty()
    });
    assert_eq!(holder.end().0, Some(0));
    assert_eq!(sandbox.code(["put", "w2", "hello"]), 0);
    let written = watch.find("a register", |line| line["kind"] == "register");
    assert_eq!((&written["key"], &written["value"]), (&"w2".into(), &"hello".into()));
    assert!(written["version"].is_string());
}

#[test]
fn elections_have_leaders() {
    let sandbox = Sandbox::new();
    let nobody = sandbox.run(["leader", "e", "--json"]);
    assert_eq!(nobody.status.code(), Some(1));
    assert_eq!(serde_json::from_slice::<Value>(&nobody.stdout).unwrap()["value"], Value::Null);

    let mut watch = Lines::of(&sandbox, &["leader", "e", "--watch", "--json"]);
    watch.find("nobody", |line| line["value"].is_null());
    let first = sandbox.start(["elect", "e", "--value", "one", "--", "sleep", "1000"]);
    watch.find("the first leader", |line| line["value"] == "one");
    let second = sandbox.start([
        "elect",
        "e",
        "--value",
        "two",
        "--",
        "sh",
        "-c",
        "echo $PALISADE_TOKEN > token; exec sleep 1000",
    ]);
    sandbox.until("e", 1, 1);
    let leader = sandbox.json(["leader", "e", "--json"]);
    assert_eq!((&leader["resource"], &leader["value"]), (&"e".into(), &"one".into()));
    assert!(leader["token"].is_string() && leader["owner"]["pid"].is_u64() && leader["age_ms"].is_u64());

    assert_eq!(sandbox.code(["evict", "e", "--reason", "coup"]), 0);
    let (code, said) = first.end();
    assert_eq!(code, Some(76));
    assert!(said.contains("coup"), "{said}");
    let next = watch.find("the second leader", |line| line["value"] == "two");
    until("the new leader's command", || !sandbox.read("token").is_empty());
    assert_eq!(next["token"], sandbox.read("token").trim());
    second.signal(rustix::process::Signal::TERM);
    assert_eq!(second.end().0, Some(128 + 15));
    watch.find("nobody again", |line| line["value"].is_null());
}

#[test]
fn who_stands_forever_stands_again() {
    let sandbox = Sandbox::new();
    let run = sandbox.start([
        "elect",
        "e",
        "--forever",
        "--",
        "sh",
        "-c",
        "echo $PALISADE_TOKEN >> log; exec sleep 1000",
    ]);
    until("the first term", || sandbox.read("log").lines().count() == 1);
    assert_eq!(sandbox.code(["evict", "e", "--reason", "again"]), 0);
    until("the second term", || sandbox.read("log").lines().count() == 2);
    run.signal(rustix::process::Signal::TERM);
    assert_eq!(run.end().0, Some(128 + 15));
}

#[test]
fn evicting_needs_to_know_whom() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.code(["evict", "s", "--reason", "r"]), 1, "nobody holds it");
    let first = sandbox.start(["run", "s", "--slots", "2", "--", "sleep", "1000"]);
    let second = sandbox.start(["run", "s", "--slots", "2", "--", "sleep", "1000"]);
    sandbox.until("s", 2, 0);
    let ambiguous = sandbox.run(["evict", "s", "--reason", "r"]);
    assert_eq!(ambiguous.status.code(), Some(64));
    for holder in sandbox.json(["show", "s", "--json"])["holders"].as_array().unwrap() {
        let claim = holder["claim"].as_str().unwrap();
        assert!(stderr(&ambiguous).contains(claim));
        assert_eq!(sandbox.code(["evict", "s", "--claim", claim, "--reason", "r"]), 0);
        assert_eq!(sandbox.code(["evict", "s", "--claim", claim, "--reason", "r"]), 1, "it is gone");
    }
    assert_eq!((first.end().0, second.end().0), (Some(76), Some(76)));
}

#[test]
fn engines_say_what_they_promise() {
    let sandbox = Sandbox::new();
    let engines = sandbox.json(["engines", "--json"]);
    let embedded = engines.as_array().unwrap().iter().find(|engine| engine["engine"] == "embedded").unwrap();
    assert_eq!(embedded["profile"]["consistency"], "linearizable");
    assert!(stdout(&sandbox.run(["engines"])).contains("file:"));
}

#[test]
fn a_reader_who_leaves_is_no_failure() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .palisade(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "");
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&sandbox.run(["completions", "bash"])).contains("palisade"));
    for shell in ["zsh", "fish"] {
        assert_eq!(sandbox.code(["completions", shell]), 0);
    }
}
