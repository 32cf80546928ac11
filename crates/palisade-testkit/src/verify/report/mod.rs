//! The page that shows a run: one self-contained HTML file.
//!
//! Everything but the zoomable picture works without JavaScript. The page loads nothing, and its
//! policy allows its own script and style alone; whatever a run recorded is shown as text. However
//! long the run, the page stays below [`PAGE_BYTES`]: the picture then draws a part of what was
//! recorded, and the page says which.

mod data;
mod digest;
mod overview;
mod sample;
mod scene;
mod sections;
mod text;

#[cfg(test)]
mod tests;

use std::time::Duration;

use self::data::Data;
use self::scene::Scene;
use crate::check::{Undecided, Violation};
use crate::history::History;

/// No page is larger.
pub const PAGE_BYTES: usize = 4_000_000;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("timeline.js");

/// What a page shows.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// Its title, such as `palisade verify`.
    pub title: &'a str,
    /// Which engine was tried, without secrets.
    pub engine: &'a str,
    /// What happened.
    pub history: &'a History,
    /// What must never be, and was.
    pub violations: &'a [Violation],
    /// Why holders that overlapped are no violation, if a fault broke what exclusion rests on.
    pub excuse: Option<&'a str>,
    /// What could not be decided.
    pub undecided: &'a [Undecided],
    /// Counts, each with its name: operations per second, lost updates, stale writes refused.
    pub facts: &'a [(String, String)],
    /// How long things took.
    pub latencies: &'a [Latency],
    /// The command to run it again.
    pub command: &'a str,
    /// The seed to run it again.
    pub seed: u64,
}

/// How long one kind of thing took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latency {
    /// What, such as `acquire, uncontended`.
    pub what: String,
    /// How often it was measured.
    pub count: usize,
    /// Half of them took no longer.
    pub p50: Duration,
    /// 99 of 100 took no longer.
    pub p99: Duration,
    /// None took longer.
    pub max: Duration,
}

/// What came of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing was violated.
    Passed,
    /// Something was.
    Violated,
    /// Nothing was found, but not everything could be decided, or there was nothing to check.
    Undecided,
}

impl Page<'_> {
    /// The verdict, which follows from what was found and is never told apart from it.
    pub fn verdict(&self) -> Verdict {
        if !self.violations.is_empty() {
            Verdict::Violated
        } else if !self.undecided.is_empty() || self.history.ops.is_empty() {
            Verdict::Undecided
        } else {
            Verdict::Passed
        }
    }
}

/// Writes the page. The same run gives the same page, byte for byte.
pub fn render(page: &Page<'_>) -> String {
    let listed = sections::listed(page.violations);
    let scene = Scene::new(page.history, page.violations);
    let data = Data::new(&scene, listed);
    text::fill(TEMPLATE, |place| match place {
        "policy" => policy(),
        "style" => STYLE.to_owned(),
        "script" => SCRIPT.to_owned(),
        "data" => data.json.clone(),
        "overview" => overview::svg(&scene),
        "drawn" => data.notice.clone(),
        place => sections::section(place, page, &scene, listed),
    })
}

/// What the page may do: run this script, use this style, and nothing else.
fn policy() -> String {
    let (script, style) = (digest::source(SCRIPT), digest::source(STYLE));
    format!(
        "default-src 'none'; script-src '{script}'; style-src '{style}'; base-uri 'none'; form-action 'none'"
    )
}
