//! Turns of several programs at a counter that nothing but a lock protects: a folder that must not be there while somebody
//! is inside, and a number in a file.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Result, bail, ensure};
use tokio::process::Command;

/// Begins to count in a folder.
///
/// # Errors
/// It cannot be written.
pub fn begin(folder: &Path) -> Result<()> {
    Ok(fs::write(folder.join("count"), "0")?)
}

/// Takes a turn, as the other programs do.
///
/// # Errors
/// Somebody else is inside.
pub fn count(folder: &Path) -> Result<()> {
    let inside = folder.join("inside");
    if fs::create_dir(&inside).is_err() {
        bail!("two are inside at once");
    }
    fs::write(folder.join("count"), (counted(folder)? + 1).to_string())?;
    Ok(fs::remove_dir(inside)?)
}

/// How many turns were counted.
///
/// # Errors
/// Nobody began to count there.
pub fn counted(folder: &Path) -> Result<u32> {
    Ok(fs::read_to_string(folder.join("count"))?.trim().parse()?)
}

/// Runs another program so many times, which takes turns of its own.
///
/// # Errors
/// It fails; with what it said.
pub async fn run(mut command: Command, times: u32) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    for _ in 0..times {
        let output = command.output().await?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{command:?}: {said}");
    }
    Ok(())
}
