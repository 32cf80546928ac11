//! The real binary over a folder of its own.
#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long anything may take before a test gives up; never waited for in a test that passes.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// An engine and a place for files.
pub(crate) struct Sandbox {
    folder: tempfile::TempDir,
    /// The embedded engine in the folder unless set.
    url: Option<String>,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), url: None }
    }

    /// Over another engine.
    pub(crate) fn at(url: &str) -> Self {
        Self { url: Some(url.to_owned()), ..Self::new() }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone().unwrap_or_else(|| format!("file:{}", self.path("engine").display()))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a command wrote there; nothing if it has not yet.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// `palisade` with these arguments; commands run in the sandbox's folder.
    pub(crate) fn palisade<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("env");
        command
            // Whoever runs the tests in the background may have made signals ignored, which every
            // program inherits and palisade respects.
            .args(["--default-signal", env!("CARGO_BIN_EXE_palisade")])
            .args(args)
            .env("PALISADE_ENGINE", self.url())
            .env_remove("PALISADE_NAMESPACE")
            .env_remove("TRACEPARENT")
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.palisade(args).output().unwrap()
    }

    /// Runs it to its end; its exit code.
    pub(crate) fn code<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> i32 {
        let output = self.run(args);
        no_panic(&output);
        output.status.code().expect("ended by itself")
    }

    /// Runs it to its end; what it printed as JSON.
    pub(crate) fn json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Value {
        let output = self.run(args);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|problem| panic!("{problem}: {}{}", stdout(&output), stderr(&output)))
    }

    /// Starts it in the background.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        let child = self.palisade(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        Running(child)
    }

    /// Starts it in the background; what it prints is in the files `NAME.out` and `NAME.err`.
    pub(crate) fn start_into<S: AsRef<OsStr>>(
        &self,
        name: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Running {
        let file = |kind: &str| fs::File::create(self.path(&format!("{name}.{kind}"))).unwrap();
        Running(self.palisade(args).stdout(file("out")).stderr(file("err")).spawn().unwrap())
    }

    /// Waits until `name` has so many holders and waiters.
    pub(crate) fn until(&self, name: &str, holders: usize, waiters: usize) {
        until("the claims to settle", || {
            let view = self.json(["show", name, "--json"]);
            let count = |kind: &str| view[kind].as_array().map_or(0, Vec::len);
            count("holders") == holders && count("waiters") == waiters
        });
    }

    /// Waits until a command has written `text` to the file called `name`.
    pub(crate) fn until_written(&self, name: &str, text: &str) {
        until(&format!("{text:?} in {name}"), || self.read(name).contains(text));
    }
}

/// A `palisade` in the background; ended with the test, and its command with it.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end; exit code and what it said.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        until("palisade to end", || self.0.try_wait().unwrap().is_some());
        let status = self.0.wait().unwrap();
        let mut said = String::new();
        if let Some(mut stderr) = self.0.stderr.take() {
            use std::io::Read;
            stderr.read_to_string(&mut said).unwrap();
        }
        assert!(!said.contains("panicked"), "{said}");
        (status.code(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks again and again until `condition` holds.
#[track_caller]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < BOUND, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the process can still run.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub(crate) fn no_panic(output: &Output) {
    assert!(!stderr(output).contains("panicked"), "{}", stderr(output));
}
