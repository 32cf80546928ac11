//! The static picture: an overview in SVG, for those who run no script.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt::Write as _;

use super::scene::{Scene, is_momentary};
use super::text::{count, html, shown};
use crate::history::Nanos;

/// No more lanes for keys are drawn.
const LANES: usize = 24;
/// Time is cut into so many columns.
const COLUMNS: usize = 420;
/// How wide a column is.
const STEP: usize = 2;
/// Where the lanes begin, to the right of their names.
const LEFT: usize = 150;
const LANE: usize = 18;
const BAR: usize = 12;
const TOP: usize = 26;
/// No more violations are marked.
const MARKS: usize = 500;

/// The whole run at a glance: how busy each key was, faults, violations.
pub(super) fn svg(scene: &Scene<'_>) -> String {
    let lanes = busiest(scene);
    let (width, bottom) = (LEFT + COLUMNS * STEP + 30, TOP + (lanes.len() + 1) * LANE);
    let mut out = format!(
        "<svg viewBox=\"0 0 {width} {}\" role=\"img\" aria-label=\"Overview of the run\" \
         xmlns=\"http://www.w3.org/2000/svg\">",
        bottom + 22
    );
    axis(&mut out, scene, bottom);
    faults(&mut out, scene);
    let levels = busy(scene);
    for (place, lane) in lanes.iter().enumerate() {
        name(&mut out, &scene.lanes[*lane].key, place + 1);
        for level in 1..=3 {
            runs(&mut out, &levels[*lane], level, TOP + (place + 1) * LANE);
        }
    }
    marks(&mut out, scene, bottom);
    if lanes.len() < scene.lanes.len() {
        let left = count(scene.lanes.len() - lanes.len(), "more key", "more keys");
        let _ = write!(out, "<text class=\"o-text\" x=\"0\" y=\"{}\">{left}</text>", bottom + 14);
    }
    out.push_str("</svg>");
    out
}

/// The lanes that are drawn, in order: those with violations, then those that were held most often.
fn busiest(scene: &Scene<'_>) -> Vec<usize> {
    let violated: HashSet<&str> = scene.violations.iter().map(|violation| &*violation.key).collect();
    let mut holds = vec![0_usize; scene.lanes.len()];
    scene.holds.iter().filter_map(|hold| scene.lane(&hold.key)).for_each(|lane| holds[lane] += 1);
    let mut lanes: Vec<usize> = (0..holds.len()).collect();
    lanes.sort_by_key(|lane| (!violated.contains(&*scene.lanes[*lane].key), Reverse(holds[*lane])));
    lanes.truncate(LANES);
    lanes.sort_unstable();
    lanes
}

fn column(scene: &Scene<'_>, at: Nanos) -> usize {
    let span = scene.micros(scene.end).max(1);
    let place = scene.micros(at) * COLUMNS as u64 / span;
    usize::try_from(place).unwrap_or(0).min(COLUMNS - 1)
}

fn name(out: &mut String, name: &str, lane: usize) {
    let y = TOP + lane * LANE + BAR - 2;
    let _ = write!(out, "<text class=\"o-text\" x=\"0\" y=\"{y}\">{}</text>", html(&shown(name, 22)));
}

/// Time since the start, in quarters of the run.
fn axis(out: &mut String, scene: &Scene<'_>, bottom: usize) {
    let end = LEFT + COLUMNS * STEP;
    let _ = write!(out, "<path class=\"o-line\" d=\"M{LEFT} {bottom}H{end}\"/>");
    for part in 0..=4_u64 {
        let at = scene.start + (scene.end - scene.start) / 4 * part;
        let x = LEFT + column(scene, at) * STEP;
        let tenths = scene.micros(at) / 100_000;
        let _ = write!(
            out,
            "<path class=\"o-line\" d=\"M{x} {bottom}v4\"/><text class=\"o-text o-mid\" x=\"{x}\" y=\"{}\">{}.{} s</text>",
            bottom + 16,
            tenths / 10,
            tenths % 10,
        );
    }
}

fn faults(out: &mut String, scene: &Scene<'_>) {
    let mut struck = vec![0_u8; COLUMNS];
    for fault in &scene.history.faults {
        let lasting = if is_momentary(fault.kind) { fault.from } else { scene.end };
        let until = fault.until.unwrap_or(lasting).max(fault.from);
        struck[column(scene, fault.from)..=column(scene, until)].fill(4);
    }
    name(out, "faults", 0);
    runs(out, &struck, 4, TOP);
}

/// How busy each lane was in each column: 0 for not at all, 3 for most of the time.
pub(super) fn busy(scene: &Scene<'_>) -> Vec<Vec<u8>> {
    let width = (scene.micros(scene.end) / COLUMNS as u64).max(1);
    let mut held = vec![vec![0_u64; COLUMNS]; scene.lanes.len()];
    for hold in &scene.holds {
        let Some(lane) = scene.lane(&hold.key) else { continue };
        let held = &mut held[lane];
        let (from, until) = (scene.micros(hold.from), scene.micros(hold.until));
        let (first, last) = (column(scene, hold.from), column(scene, hold.until));
        if first == last {
            held[first] += (until - from).max(1);
        } else {
            held[first..=last].iter_mut().for_each(|held| *held += width);
        }
    }
    let level = |held: u64| match held * 100 / width {
        _ if held == 0 => 0,
        0..25 => 1,
        25..65 => 2,
        _ => 3,
    };
    held.into_iter().map(|held| held.into_iter().map(level).collect()).collect()
}

/// Draws the stretches of one level as one path.
fn runs(out: &mut String, levels: &[u8], level: u8, y: usize) {
    let mut path = String::new();
    let mut place = 0;
    for run in levels.chunk_by(|a, b| a == b) {
        if run[0] == level {
            let (x, w) = (LEFT + place * STEP, run.len() * STEP);
            let _ = write!(path, "M{x} {y}h{w}v{BAR}h-{w}z");
        }
        place += run.len();
    }
    if !path.is_empty() {
        let _ = write!(out, "<path class=\"o-{level}\" d=\"{path}\"/>");
    }
}

fn marks(out: &mut String, scene: &Scene<'_>, bottom: usize) {
    for (place, violation) in scene.violations.iter().take(MARKS).enumerate() {
        let x = LEFT + column(scene, violation.at) * STEP;
        let (line, number) = (bottom - TOP + 4, place + 1);
        let _ = write!(
            out,
            "<a href=\"#v{number}\"><title>violation {number}</title><path class=\"o-mark\" d=\"M{} {}h10l-5 8z\"/>\
             <path class=\"o-cut\" d=\"M{x} {}v{line}\"/></a>",
            x.saturating_sub(5),
            TOP - 14,
            TOP - 4,
        );
    }
}
