//! `get`, `put` and `del`.

mod common;

use std::io::Write;
use std::process::Stdio;

use common::{Sandbox, stderr, stdout, until};
use serde_json::Value;

#[test]
fn a_value_is_printed_as_it_was_written() {
    let sandbox = Sandbox::new();
    let missing = sandbox.run(["get", "k"]);
    assert_eq!((missing.status.code(), stdout(&missing).as_str()), (Some(1), ""));
    assert_eq!(sandbox.code(["put", "k", "a\nb"]), 0);
    assert_eq!(stdout(&sandbox.run(["get", "k"])), "a\nb");
    let entry = sandbox.json(["get", "k", "--json"]);
    assert_eq!((&entry["key"], &entry["value"]), (&"k".into(), &"a\nb".into()));
    assert!(entry["version"].is_string());
    assert_eq!((&entry["fence"], &entry["expires_in_ms"]), (&Value::Null, &Value::Null));
    assert_eq!(sandbox.code(["del", "k"]), 0);
    assert_eq!(sandbox.code(["get", "k"]), 1);
}

#[test]
fn bytes_come_in_through_standard_input() {
    let sandbox = Sandbox::new();
    let mut put = sandbox.palisade(["put", "k", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(&[0xff, 0, 1]).unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(sandbox.run(["get", "k"]).stdout, [0xff, 0, 1]);
    let entry = sandbox.json(["get", "k", "--json"]);
    assert_eq!((&entry["value"], &entry["value_base64"]), (&Value::Null, &"/wAB".into()));
}

#[test]
fn a_refused_write_says_what_is_there() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.code(["put", "k", "one", "--absent"]), 0);
    let refused = sandbox.run(["put", "k", "two", "--absent"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("one"), "{}", stderr(&refused));

    let version = sandbox.json(["get", "k", "--json"])["version"].as_str().unwrap().to_owned();
    let written = sandbox.json(["put", "k", "two", "--version", &version, "--json"]);
    assert!(written["version"].as_str().unwrap() > version.as_str());
    let current = sandbox.json(["put", "k", "three", "--version", &version, "--json"]);
    assert_eq!(current["value"], "two");
    assert_eq!(sandbox.code(["del", "k", "--version", &version]), 1);
    assert_eq!(stdout(&sandbox.run(["get", "k"])), "two");
}

#[test]
fn an_older_holder_cannot_write() {
    let sandbox = Sandbox::new();
    let write = "exec \"$0\" put k \"$1\" --fence $PALISADE_TOKEN";
    let program = env!("CARGO_BIN_EXE_palisade");
    let token = stdout(&sandbox.run(["run", "x", "--", "sh", "-c", "echo $PALISADE_TOKEN"]));
    assert_eq!(sandbox.code(["run", "x", "--", "sh", "-c", write, program, "new"]), 0);
    let stale = sandbox.run(["put", "k", "old", "--fence", token.trim()]);
    assert_eq!(stale.status.code(), Some(1));
    assert!(stderr(&stale).contains("stale"), "{}", stderr(&stale));
    assert_eq!(stdout(&sandbox.run(["get", "k"])), "new");
    assert!(sandbox.json(["get", "k", "--json"])["fence"].is_string());
    assert_eq!(sandbox.code(["del", "k", "--fence", token.trim()]), 1);
}

#[test]
fn a_value_can_expire() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.code(["put", "k", "v", "--expires", "1s"]), 0);
    until("the value to expire", || sandbox.code(["get", "k"]) == 1);
}

#[test]
fn a_fence_of_another_source_is_refused_until_it_is_rebased() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.code(["put", "k", "old", "--fence", "50"]), 0);
    // What the docs tell to do after restoring a backup: tokens then come from a new source.
    std::fs::remove_file(sandbox.path("engine/tokens")).unwrap();
    let refused = sandbox.run(["put", "k", "new", "--fence", "7"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("rebased"), "{}", stderr(&refused));
    assert_eq!(sandbox.code(["put", "k", "new", "--fence", "7", "--rebase"]), 0);
    assert_eq!(sandbox.code(["put", "k", "late", "--fence", "6"]), 1);
    assert_eq!(sandbox.code(["put", "k", "newer", "--fence", "8"]), 0);
}
