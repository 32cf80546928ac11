use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::chart::chart;
use super::columns::Table;
use super::{headline, limit};
use crate::report::Report;
use crate::shape::Shape;

/// How a page of ours begins.
const TITLE: &str = "# Benchmarks\n\nWritten by `palisade bench";

const INTRODUCTION: &str = "\
# Benchmarks

Written by `palisade bench --engine URL --write FILE`, never by hand; `cargo xtask bench` writes all of it anew.

Each figure of ours was taken in turn with the *raw limit* of the same engine: the bare native commands that the
operation needs, over the same client library, in the same run. Read the ratios, with their smallest and greatest round:
absolute times belong to one machine. A ratio of *time* or *CPU* above 1 and a ratio of *rate* below 1 is what Palisade
costs. *requests/op* is what the server or database counted (where it does not count, our calls), *calls/op* what our
client asked of the engine: a herd or a poll would show there. Redis counts what a script calls like what a client
sends; only the latter counts here, all servers of a quorum together. RSS is that of the largest client process. `-`
was not measured. An *operation* is one taking and releasing; of `keepalive`, one renewal interval of all that is held.
A server that `local:` starts for a run writes nothing to a disk meanwhile: waiting for it would hide what Palisade adds.
With such a server, *uncontended* and *contended* run on one processor, all together: waking another one takes longer than
a request on many a virtual machine, and whether it must be woken is chance.
";

/// Says whether a page can be written at `path`, before anything is measured.
///
/// # Errors
/// If there is no such folder, or a file that is no page of ours.
pub fn check_page(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    ensure!(folder.is_dir(), "there is no folder {}", folder.display());
    let old = read(path)?;
    ensure!(
        old.is_empty() || old.starts_with(TITLE),
        "{} is no page that was written by the bench, and will not be written over",
        path.display()
    );
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(problem) => Err(problem).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Writes the report's part of the page at `path`, and a chart beside it; parts of other engines stay.
///
/// # Errors
/// If a file cannot be read or written.
pub fn write_page(report: &Report, path: &Path) -> Result<()> {
    check_page(path)?;
    let old = read(path)?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let picture = format!("{stem}-{}.svg", report.engine);
    let put = |path: &Path, text: String| {
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    put(&path.with_file_name(&picture), chart(report))?;
    put(path, with_part(&old, report.engine, &part(report, &picture)))
}

/// The page with the part of `engine` replaced, or added in the order of names.
fn with_part(page: &str, engine: &str, part: &str) -> String {
    let mut parts: Vec<(String, String)> = page
        .split("<!-- engine: ")
        .skip(1)
        .filter_map(|part| {
            let (engine, text) = part.split_once(" -->\n")?;
            Some((engine.to_owned(), text.trim().to_owned()))
        })
        .filter(|(other, _)| other != engine)
        .collect();
    parts.push((engine.to_owned(), part.trim().to_owned()));
    parts.sort();
    let mut text = INTRODUCTION.to_owned();
    for (engine, part) in parts {
        let _ = write!(text, "\n<!-- engine: {engine} -->\n{part}\n");
    }
    text
}

fn part(report: &Report, picture: &str) -> String {
    let mut text = format!("## {}\n\n{}.\n\n", report.engine, headline(report).replace('\n', "; "));
    let _ = writeln!(text, "![How many times the raw limit each operation costs]({picture})\n");
    for shape in Shape::ALL {
        let table = Table::of(report, shape);
        if !table.is_empty() {
            table.write_markdown(&mut text);
        }
    }
    if !report.goals.is_empty() {
        text.push_str("### goals\n\n| | found | goal | |\n|---|---:|---:|---|\n");
    }
    for goal in &report.goals {
        let verdict = if goal.met { "met" } else { "**missed**" };
        let (found, unit) = (goal.found, goal.unit);
        let _ = writeln!(text, "| {} | {found:.3} {unit} | {} | {verdict} |", goal.what, limit(goal));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_ours_is_written_over() {
        assert!(INTRODUCTION.starts_with(TITLE));
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("notes.md");
        assert!(check_page(&page).is_ok());
        std::fs::write(&page, "# my notes\n").unwrap();
        assert!(check_page(&page).unwrap_err().to_string().contains("will not be written over"));
        std::fs::write(&page, INTRODUCTION).unwrap();
        assert!(check_page(&page).is_ok());
        assert!(check_page(&folder.path().join("none/page.md")).is_err());
    }

    #[test]
    fn a_part_is_replaced_and_the_others_stay() {
        let page = with_part("", "redis", "fast");
        let page = with_part(&page, "embedded", "old");
        let page = with_part(&page, "embedded", "new");
        assert!(page.starts_with("# Benchmarks"));
        assert_eq!(page.matches("<!-- engine: ").count(), 2);
        assert!(page.contains("new") && page.contains("fast") && !page.contains("old"), "{page}");
        assert!(page.find("embedded -->") < page.find("redis -->"));
        assert_eq!(with_part(&page, "embedded", "new"), page, "writing it again changes nothing");
    }
}
