use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::steps::cargo;

/// A package as `cargo metadata` tells it: one of ours, or one that ours need.
#[derive(Debug, Clone, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// An SPDX expression.
    pub(crate) licence: Option<String>,
    pub(crate) manifest: PathBuf,
    /// Where it lies in the repository; `None` for a package of others.
    pub(crate) folder: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// For tests and examples only.
    pub(crate) dev: bool,
}

/// All packages of the workspace and all they need on any platform.
pub(crate) fn read() -> Result<Vec<Package>> {
    let output = cargo(&["metadata", "--format-version", "1"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cargo metadata could not be started")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", output.status);
    let told: Value = serde_json::from_slice(&output.stdout).context("cargo metadata is no JSON")?;
    let root = text(&told, "workspace_root").context("cargo metadata names no workspace")?;
    let packages = told["packages"].as_array().context("cargo metadata lists no packages")?;
    let packages: Vec<Package> = packages
        .iter()
        .map(|package| parse(package, &root).context("a package without a name"))
        .collect::<Result<_>>()?;
    let built = built()?;
    Ok(packages
        .into_iter()
        .filter(|package| package.folder.is_some() || built.contains(&package.name))
        .collect())
}

/// The names of all packages that some build needs. The lock file also has those that no feature of
/// ours turns on.
fn built() -> Result<HashSet<String>> {
    let tree = ["tree", "--workspace", "--all-features", "--target", "all", "--edges", "all"];
    let output = cargo(&[&tree[..], &["--prefix", "none", "--format", "{p}"]].concat())
        .output()
        .context("cargo tree could not be started")?;
    ensure!(output.status.success(), "cargo tree failed: {}", output.status);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(lines.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect())
}

fn parse(package: &Value, root: &str) -> Option<Package> {
    let manifest = PathBuf::from(text(package, "manifest_path")?);
    let ours = package["source"].is_null();
    let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
    let dependencies = package["dependencies"].as_array()?;
    Some(Package {
        name: text(package, "name")?,
        licence: text(package, "license"),
        folder: folder.filter(|_| ours).map(|folder| folder.to_string_lossy().into_owned()),
        manifest,
        dependencies: dependencies.iter().filter_map(dependency).collect(),
    })
}

fn dependency(told: &Value) -> Option<Dependency> {
    Some(Dependency { name: text(told, "name")?, dev: told["kind"] == "dev" })
}

fn text(told: &Value, key: &str) -> Option<String> {
    told[key].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_packages_are_told_from_those_of_others() {
        let ours = serde_json::json!({
            "name": "palisade-redis", "license": "MIT", "source": null,
            "manifest_path": "/repo/engines/redis/Cargo.toml",
            "dependencies": [{"name": "palisade-core", "kind": null}, {"name": "tempfile", "kind": "dev"}],
        });
        let parsed = parse(&ours, "/repo").unwrap();
        assert_eq!(parsed.folder.as_deref(), Some("engines/redis"));
        let dev: Vec<bool> = parsed.dependencies.iter().map(|dependency| dependency.dev).collect();
        assert_eq!(dev, [false, true]);
        let mut theirs = ours;
        theirs["source"] = "registry".into();
        assert_eq!(parse(&theirs, "/repo").unwrap().folder, None);
    }
}
