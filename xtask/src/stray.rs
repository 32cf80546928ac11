use std::fs;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// A variable in the environment of a command and all it starts, by which they are found again,
/// also after their parent has ended.
#[derive(Debug)]
pub(crate) struct Mark(String);

const VARIABLE: &str = "PALISADE_XTASK_STEP";

impl Mark {
    /// Marks what `command` will start. Marks of steps within steps add up.
    pub(crate) fn put_on(command: &mut Command) -> Self {
        static STEPS: AtomicU32 = AtomicU32::new(0);
        let own = format!("{}.{}", process::id(), STEPS.fetch_add(1, Ordering::Relaxed));
        let outer = std::env::var(VARIABLE).unwrap_or_default();
        command.env(VARIABLE, format!("{outer}/{own}/"));
        Self(format!("/{own}/"))
    }

    /// Ends what is still running when it should all be over, and returns how each was called.
    ///
    /// A process that was told to end may need a moment for it; that is no stray.
    pub(crate) fn end_strays(&self) -> Result<Vec<String>> {
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            if self.alive().is_empty() {
                return Ok(Vec::new());
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.end_all()
    }

    /// Ends every marked process and returns how each was called.
    ///
    /// # Errors
    /// If one is still there after ten seconds.
    pub(crate) fn end_all(&self) -> Result<Vec<String>> {
        let found = self.alive();
        let names: Vec<String> = found.iter().map(|(pid, name)| format!("{pid} ({name})")).collect();
        let end = Instant::now() + Duration::from_secs(10);
        let mut left = found;
        while !left.is_empty() {
            ensure!(Instant::now() < end, "these processes do not end: {left:?}");
            // The shell's own `kill`: std has none for a bare id, and the program may be missing.
            let ids: Vec<String> = left.iter().map(|(pid, _)| pid.to_string()).collect();
            Command::new("sh")
                .args(["-c", "kill -KILL \"$@\" 2>/dev/null || true", "sh"])
                .args(ids)
                .status()?;
            thread::sleep(Duration::from_millis(10));
            left = self.alive();
        }
        Ok(names)
    }

    fn alive(&self) -> Vec<(u32, String)> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| self.carries(*pid))
            .map(|pid| (pid, command_line(pid)))
            .collect()
    }

    /// Whether the process carries the mark. One that has ended but was not waited for has no
    /// environment any more, and does not.
    fn carries(&self, pid: u32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).filter_map(|variable| std::str::from_utf8(variable).ok()).any(
            |variable| {
                variable
                    .split_once('=')
                    .is_some_and(|(name, value)| name == VARIABLE && value.contains(&self.0))
            },
        )
    }
}

fn command_line(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim().to_owned()
}
