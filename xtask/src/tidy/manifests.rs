use std::fs;

use anyhow::{Context, Result};

use super::metadata::Package;

/// Checks that every crate of ours follows the workspace's lints.
pub(crate) fn check(packages: &[Package]) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for package in packages.iter().filter(|package| package.folder.is_some()) {
        let manifest = fs::read_to_string(&package.manifest)
            .with_context(|| format!("cannot read {}", package.manifest.display()))?;
        if !follows_workspace_lints(&manifest) {
            problems.push(format!("{} lacks `[lints] workspace = true`", package.name));
        }
    }
    Ok(problems)
}

fn follows_workspace_lints(manifest: &str) -> bool {
    let mut table = "";
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            table = line;
        }
        let setting: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        (table == "[lints]" && setting == "workspace=true") || setting == "lints.workspace=true"
    })
}

#[cfg(test)]
mod tests {
    use super::follows_workspace_lints;

    #[test]
    fn only_the_lints_table_counts() {
        assert!(follows_workspace_lints("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"));
        assert!(!follows_workspace_lints("[lints]\n\n[dependencies.serde]\nworkspace = true\n"));
        assert!(!follows_workspace_lints("[package]\nname = \"a\"\n"));
    }
}
