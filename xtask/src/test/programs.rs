use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::steps::cargo;

/// A program that runs tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// Its package and target, as `palisade-redis-trials/real`.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Where Cargo would run it: the folder of its package.
    pub(crate) folder: PathBuf,
}

/// Builds every test of the workspace.
pub(crate) fn build() -> Result<Vec<TestProgram>> {
    let args =
        ["test", "--workspace", "--all-targets", "--no-run", "--message-format=json-render-diagnostics"];
    let built = cargo(&args).stderr(Stdio::inherit()).output().context("cargo could not be started")?;
    ensure!(built.status.success(), "{}", built.status);
    let messages = String::from_utf8(built.stdout).context("cargo's messages are not UTF-8")?;
    read(&messages)
}

/// Reads what Cargo says of what it built.
fn read(messages: &str) -> Result<Vec<TestProgram>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).with_context(|| format!("not a message: {line}"))?;
        programs.extend(program(&message));
    }
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(programs)
}

fn program(message: &Value) -> Option<TestProgram> {
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    // Examples and commands are built beside, and run by themselves.
    if message["profile"]["test"] != true {
        return None;
    }
    let package = folder.file_name()?.to_str()?;
    let name = format!("{package}/{}", message["target"]["name"].as_str()?);
    Some(TestProgram { name, path, folder })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_are_read() {
        let messages = [
            r#"{"reason":"compiler-artifact","manifest_path":"/w/engines/sql/Cargo.toml","target":{"name":"real"},"profile":{"test":true},"executable":"/t/real-1"}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/w/engines/sql/Cargo.toml","target":{"name":"show"},"profile":{"test":false},"executable":"/t/show"}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/w/engines/sql/Cargo.toml","target":{"name":"sql"},"profile":{"test":false},"executable":null}"#,
            r#"{"reason":"build-finished","success":true}"#,
        ];
        let read = read(&messages.join("\n")).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(
            (read[0].name.as_str(), read[0].folder.as_path()),
            ("sql/real", "/w/engines/sql".as_ref())
        );
        assert!(super::read("error: no").is_err());
    }
}
