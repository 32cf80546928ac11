//! The rules of this repository that no compiler checks.

mod edges;
mod licences;
mod manifests;
mod metadata;
mod size;
mod source;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Checks every rule and reports all that is broken.
pub(crate) fn run() -> Result<()> {
    let packages = metadata::read()?;
    let mut problems = Vec::new();
    problems.extend(edges::check(&packages));
    problems.extend(manifests::check(&packages)?);
    problems.extend(licences::check(&packages));
    for path in files(Path::new("."))? {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let path = path.strip_prefix(".").unwrap_or(&path);
        problems.extend(words::check(path, &text));
        if path.extension().is_some_and(|extension| extension == "rs") {
            problems.extend(size::check(path, &text));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{} rules are broken:\n  {}", problems.len(), problems.join("\n  "))
}

/// Hidden folders that are ours.
const OURS: [&str; 2] = [".ci", ".cargo"];

/// Every file of the repository, whether committed or not, without asking git: it may be missing,
/// or refuse a folder that belongs to another user.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let (name, kind) = (entry.file_name(), entry.file_type()?);
        let name = name.to_string_lossy();
        let foreign = name == "target" || (name.starts_with('.') && !OURS.contains(&name.as_ref()));
        if kind.is_dir() && !foreign {
            found.extend(files(&entry.path())?);
        // In a worktree it is a file, which says where the repository is.
        } else if kind.is_file() && name != ".git" {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}
