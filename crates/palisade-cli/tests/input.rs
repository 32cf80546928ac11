//! Bad input gets a clear error and the right code, never a panic.

mod common;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use common::{Sandbox, no_panic, stderr, stdout};

#[test]
fn usage_errors_are_64() {
    let sandbox = Sandbox::new();
    let bad: &[&[&str]] = &[
        &[],
        &["dance"],
        &["run", "x"],
        &["run", "x", "true"],
        &["run", "x", "--"],
        &["run", "", "--", "true"],
        &["run", "two\nlines", "--", "true"],
        &["run", "tab\there", "--", "true"],
        &["run", "x", "--ttl", "0", "--", "true"],
        &["run", "x", "--ttl", "300y", "--", "true"],
        &["run", "x", "--ttl", "-1s", "--", "true"],
        &["run", "x", "--ttl", "soon", "--", "true"],
        &["run", "x", "--wait", "99999999999999999999999y", "--", "true"],
        &["run", "x", "--wait", "1s", "--no-wait", "--", "true"],
        &["run", "x", "--slots", "0", "--", "true"],
        &["run", "x", "--slots", "-1", "--", "true"],
        &["run", "x", "--slots", "99999999999", "--", "true"],
        &["run", "x", "--shared", "--slots", "2", "--", "true"],
        &["run", "x", "--at-least", "1s", "--and", "y", "--", "true"],
        &["run", "x", "--at-least", "1s", "--shared", "--", "true"],
        &["run", "x", "--and", "two\nlines", "--", "true"],
        &["-e", "carrier-pigeon:", "ls"],
        &["-e", "nonsense", "ls"],
        &["-e", "file:", "ls"],
        &["-e", "memory:?colour=red", "ls"],
        &["--demand", "fast", "ls"],
        &["--demand", "network", "ls"],
        &["--namespace", "a\nb", "ls"],
        &["evict", "x"],
        &["evict", "x", "--claim", "zzz", "--reason", "r"],
        &["put", "k", "v", "--fence", "0"],
        &["put", "k", "v", "--fence", "99999999999999999999"],
        &["put", "k", "v", "--version", "x"],
        &["get", "two\nlines"],
        &["show", ""],
        &["completions", "cmd.exe"],
    ];
    for args in bad {
        let output = sandbox.run(*args);
        no_panic(&output);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {}", stderr(&output));
        assert!(!output.stderr.is_empty(), "{args:?} says why");
    }
}

#[test]
fn usage_errors_say_what_to_write_and_no_secret() {
    let sandbox = Sandbox::new();
    // Nobody listens there: none of these gets so far as to ask.
    let redis = |options: &str| format!("redis://127.0.0.1:1?{options}");
    let both = "redis://u:hunter2@127.0.0.1:1?password-env=FULL";
    for (args, said) in [
        (vec!["run", "x", "--slots", "0", "--", "true"], "1..=4294967295"),
        (vec!["run", "x", "--slots", "99999999999", "--", "true"], "1..=4294967295"),
        (vec!["evict", "x", "--reason", ""], "a reason is needed"),
        (vec!["evict", "x", "--reason", " "], "a reason is needed"),
        (vec!["-e", "", "ls"], "no scheme"),
        (vec!["-e", &redis("ttl=5s&ttl=6s"), "ls"], "\"ttl\" is given twice"),
        (vec!["-e", &redis("ttl=0s"), "ls"], "between 50 ms and 24 h"),
        (vec!["-e", &redis("call-timeout=0"), "ls"], "call-timeout must be above zero"),
        (vec!["-e", &redis("connect-timeout=0s"), "ls"], "connect-timeout must be above zero"),
        (vec!["-e", &redis("password-env=FULL&password-file=x"), "ls"], "only one of"),
        (vec!["-e", &redis("password-env="), "ls"], "lacks a name"),
        (vec!["-e", &redis("password-env=EMPTY"), "ls"], "EMPTY, which is empty"),
        (vec!["-e", &redis("password-env=BYTES"), "ls"], "not UTF-8"),
        (vec!["-e", &redis("password-file=/dev/null"), "ls"], "which is empty"),
        (vec!["-e", both, "ls"], "a password is in the URL"),
    ] {
        let not_text = OsStr::from_bytes(b"hunter2\xff");
        let mut command = sandbox.palisade(&args);
        command.env("FULL", "hunter3").env("EMPTY", "").env("BYTES", not_text);
        let output = command.output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(64), "{args:?}: {message}");
        assert!(message.contains(said) && !message.contains("hunter"), "{args:?}: {message}");
    }
    for scheme in ["etcd", "zk", "postgres", "mysql"] {
        for options in ["password-env=FULL", "connect-timeout=0s"] {
            let url = format!("{scheme}://u:hunter2@127.0.0.1:1?{options}");
            let output = sandbox.palisade(["-e", &url, "ls"]).env("FULL", "hunter3").output().unwrap();
            assert_eq!(output.status.code(), Some(64), "{url}: {}", stderr(&output));
            assert!(!stderr(&output).contains("hunter"), "{url}: {}", stderr(&output));
        }
    }
}

#[test]
fn names_of_any_size_and_kind() {
    let sandbox = Sandbox::new();
    // The longest that the kernel lets through as one argument.
    let long = "x".repeat(128 * 1024 - 1);
    for args in [
        vec!["run", &long, "--", "true"],
        vec!["show", &long],
        vec!["put", &long, "v"],
        vec!["evict", &long, "--reason", "r"],
    ] {
        let output = sandbox.run(&args);
        no_panic(&output);
        assert_eq!(output.status.code(), Some(64));
        assert!(output.stderr.len() < 1000, "an overlong name is not repeated");
    }
    for name in ["../../etc/passwd", "a b", "'; DROP TABLE claims; --", "%s%n", "*", "🚲", "-", "a=b"] {
        assert_eq!(sandbox.code(["run", name, "--", "true"]), 0, "{name}");
    }
    let not_text = OsStr::from_bytes(b"\xff");
    assert_eq!(sandbox.code([OsStr::new("show"), not_text]), 64);
    let output = sandbox.run([OsStr::new("run"), "x".as_ref(), "--".as_ref(), "echo".as_ref(), not_text]);
    assert_eq!(output.stdout, b"\xff\n", "a command's arguments need not be text");
}

#[test]
fn an_address_at_which_nobody_listens_is_told_once_with_what_to_check() {
    let address = "127.0.0.1:1";
    for url in
        ["redis://ADDRESS", "etcd://ADDRESS", "zk://ADDRESS", "postgres://u@ADDRESS/d", "mysql://u@ADDRESS/d"]
    {
        let url = url.replace("ADDRESS", address);
        let output = Sandbox::at(&url).run(["run", "x", "--", "true"]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(69), "{url}: {said}");
        assert!(said.contains(address) && said.contains("check host and port"), "{url}: {said}");
        assert!(!said.contains("os error"), "{url}: {said}");
    }
}

#[test]
fn an_engine_that_cannot_serve_is_69() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.code(["run", "x", "--", "true"]), 0);
    for entry in std::fs::read_dir(sandbox.path("engine")).unwrap().flatten() {
        if entry.file_type().unwrap().is_file() {
            std::fs::write(entry.path(), "this is no database, and never was one; it is long enough, though")
                .unwrap();
        }
    }
    for args in [vec!["run", "x", "--", "touch", "ran"], vec!["ls"], vec!["get", "k"]] {
        let output = sandbox.run(&args);
        no_panic(&output);
        assert_eq!(output.status.code(), Some(69), "{args:?}: {}", stderr(&output));
    }
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn a_folder_that_is_none_is_refused() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("file"), "x").unwrap();
    let url = format!("file:{}", sandbox.path("file").display());
    for url in [url.as_str(), "file:/proc/nothing/here"] {
        let output = sandbox.run(["-e", url, "run", "x", "--", "touch", "ran"]);
        no_panic(&output);
        assert!(matches!(output.status.code(), Some(64 | 69)), "{url}: {}", stderr(&output));
    }
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn help_tells_the_exit_codes() {
    let sandbox = Sandbox::new();
    let help = sandbox.run(["--help"]);
    assert_eq!(help.status.code(), Some(0));
    let text = stdout(&help);
    for code in ["64", "69", "75", "76", "126", "127", "128 + n"] {
        assert!(text.contains(code), "{code} is in\n{text}");
    }
    assert!(stdout(&sandbox.run(["run", "--help"])).contains("PALISADE_TOKEN"));
    assert_eq!(sandbox.code(["--version"]), 0);
}

#[test]
fn without_an_engine_the_state_folder_is_used() {
    for engine in [None, Some("")] {
        let sandbox = Sandbox::new();
        let mut command = sandbox.palisade(["run", "x", "--", "true"]);
        command.env_remove("PALISADE_ENGINE").env("XDG_STATE_HOME", sandbox.path("state"));
        let status = command.envs(engine.map(|engine| ("PALISADE_ENGINE", engine))).status().unwrap();
        assert!(status.success(), "{engine:?}");
        assert!(sandbox.path("state").join("palisade").is_dir());
    }
}

#[test]
fn namespaces_do_not_see_each_other() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.start(["--namespace", "one", "run", "x", "--", "sleep", "1000"]);
    common::until("the lock to be held", || {
        sandbox.json(["--namespace", "one", "ls", "--json"])[0]["resource"] == "x"
    });
    assert_eq!(sandbox.code(["--namespace", "two", "run", "x", "--no-wait", "--", "true"]), 0);
    assert_eq!(sandbox.json(["--namespace", "two", "ls", "--json"]), serde_json::json!([]));
}

#[test]
fn a_namespace_that_contradicts_the_url_is_refused() {
    let sandbox = Sandbox::new();
    let url = format!("{}?namespace=jobs", sandbox.url());
    let asked = |namespace: &str| sandbox.run(["-e", &url, "--namespace", namespace, "ls"]);
    assert_eq!(asked("jobs").status.code(), Some(0));
    let refused = asked("shop");
    assert_eq!(refused.status.code(), Some(64));
    assert!(stderr(&refused).contains("--namespace"), "{}", stderr(&refused));
    let by_environment =
        sandbox.palisade(["-e", &url, "ls"]).env("PALISADE_NAMESPACE", "shop").output().unwrap();
    assert_eq!(by_environment.status.code(), Some(64));
    let unset = sandbox.palisade(["-e", &url, "ls"]).env("PALISADE_NAMESPACE", "").output().unwrap();
    assert_eq!(unset.status.code(), Some(0), "an empty variable says nothing");
}
