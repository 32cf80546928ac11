//! What the script draws: compact JSON of bounded size.

use std::fmt::{Display, Write as _};

use super::scene::{Scene, is_momentary};
use super::text::{count, json, shown, thousands};
use super::{overview, sample};
use crate::history::{Answer, Call, Ended, FaultKind, Hold, HoldMode, Op};

/// No more holds are embedded.
const HOLDS: usize = 40_000;
/// No more operations that are no holds are embedded.
const OPS: usize = 12_000;
/// No more faults are embedded.
const FAULTS: usize = 6_000;
/// No more processes are embedded.
const WORKERS: usize = 4_000;
/// No more spans in which the machine stood still are embedded.
const STALLS: usize = 1_000;
/// No violation names more operations.
const OPS_OF_VIOLATION: usize = 24;
/// The density has no more buckets.
const BUCKETS: u64 = 1_500;
/// The longest name that the picture knows, in characters.
const NAME: usize = 120;
/// The data take no more space.
const BYTES: usize = 2_600_000;

/// The embedded data, and what it leaves out.
pub(super) struct Data {
    pub(super) json: String,
    /// As HTML.
    pub(super) notice: String,
}

impl Data {
    /// Puts together what is drawn; of the violations, those that the page lists.
    pub(super) fn new(scene: &Scene<'_>, listed: usize) -> Self {
        let (hold_ranks, op_ranks) = (scene.hold_ranks(), scene.op_ranks());
        let mut share = 1;
        loop {
            let data = Self::part(scene, listed, [&hold_ranks, &op_ranks], share);
            // Only names that are made to be long need a second round.
            if data.json.len() <= BYTES || share >= HOLDS {
                return data;
            }
            share *= 2;
        }
    }

    /// Puts together as much as is allowed, divided by `share`.
    fn part(scene: &Scene<'_>, listed: usize, ranks: [&[Option<u8>]; 2], share: usize) -> Self {
        let holds = sample::choose(ranks[0], HOLDS / share);
        let ops = sample::choose(ranks[1], OPS / share);
        let faults: Vec<usize> = (0..scene.history.faults.len()).collect();
        let faults: Vec<usize> = sample::evenly(&faults, FAULTS / share).collect();
        let mut out = String::with_capacity(1 << 20);
        let _ = write!(out, "{{\"span\":{}", scene.micros(scene.end));
        lanes(&mut out, scene);
        workers(&mut out, scene);
        out.push_str(",\"holds\":{");
        hold_columns(&mut out, scene, &holds);
        out.push_str("},\"ops\":{");
        op_columns(&mut out, scene, &ops);
        out.push('}');
        fault_rows(&mut out, scene, &faults);
        violations(&mut out, scene, listed);
        density(&mut out, scene);
        if holds.len() < scene.holds.len() {
            // So that a gap between sampled holds is not taken for a time in which nobody held.
            let digits =
                |levels: Vec<u8>| levels.iter().map(|level| char::from(b'0' + level)).collect::<String>();
            column(
                &mut out,
                ",\"busy\"",
                overview::busy(scene).into_iter().map(|levels| json(&digits(levels))),
            );
        }
        out.push('}');
        let parts = [
            (holds.len(), scene.holds.len(), "holds"),
            (ops.len(), ranks[1].iter().flatten().count(), "other operations"),
            (scene.lanes.len(), scene.keys, "keys"),
            (faults.len(), scene.history.faults.len(), "faults"),
            (scene.workers.len().min(WORKERS), scene.workers.len(), "processes"),
            (listed, scene.violations.len(), "violations"),
        ];
        Self { json: out, notice: notice(&parts) }
    }
}

/// Says in numbers what is drawn.
fn notice(parts: &[(usize, usize, &str)]) -> String {
    let left_out: Vec<_> = parts.iter().filter(|(drawn, all, _)| drawn < all).collect();
    if left_out.is_empty() {
        let holds = parts.first().map_or(0, |(drawn, _, _)| *drawn);
        return format!("<p class=\"note\">The picture shows all {}.</p>", count(holds, "hold", "holds"));
    }
    let list: Vec<String> = left_out
        .iter()
        .map(|(drawn, all, what)| {
            format!("<strong>{} of {}</strong> {what}", thousands(*drawn), thousands(*all))
        })
        .collect();
    format!(
        "<p class=\"note sampled\">To keep this page small, the picture shows {}. What touches a violation is \
         chosen first, then what is long or of a key that was seldom held, then, as far as there is room, what \
         touches a fault or did not end with a release; the rest is sampled evenly. Counts, verdict and the strip of grants above the picture are complete.</p>",
        list.join(", ")
    )
}

fn lanes(out: &mut String, scene: &Scene<'_>) {
    column(out, ",\"keys\"", scene.lanes.iter().map(|lane| json(&shown(&lane.key, NAME))));
    column(out, ",\"loadOf\"", scene.lanes.iter().map(|lane| lane.workload));
    column(out, ",\"rows\"", scene.lanes.iter().map(|lane| lane.rows));
    column(out, ",\"loads\"", scene.workloads.iter().map(|name| json(&shown(name, NAME))));
}

fn workers(out: &mut String, scene: &Scene<'_>) {
    let rows = scene.workers.iter().take(WORKERS).map(|worker| {
        let (born, until) = (scene.micros(worker.born), scene.micros(worker.until));
        format!("[{},{},{born},{until},{}]", number(worker.process), worker.lane, u8::from(worker.died))
    });
    column(out, ",\"workers\"", rows);
}

fn hold_columns(out: &mut String, scene: &Scene<'_>, places: &[usize]) {
    let holds = || places.iter().map(|place| &scene.holds[*place]);
    let from = |hold: &Hold| scene.micros(hold.from);
    column(out, "\"key\"", holds().map(|hold| scene.lane(&hold.key).unwrap_or(0)));
    column(out, ",\"proc\"", holds().map(|hold| number(hold.process)));
    let mut before = 0;
    column(out, ",\"from\"", holds().map(|hold| from(hold) - std::mem::replace(&mut before, from(hold))));
    column(out, ",\"wait\"", holds().map(|hold| from(hold) - scene.micros(hold.asked).min(from(hold))));
    column(out, ",\"len\"", holds().map(|hold| scene.micros(hold.until) - from(hold)));
    column(
        out,
        ",\"token\"",
        holds().map(|hold| hold.token.map_or("0".to_owned(), |token| number(token.get()))),
    );
    column(out, ",\"mode\"", holds().map(|hold| mode(hold.mode)));
    column(out, ",\"slot\"", holds().map(|hold| hold.slot.map_or(-1, i64::from)));
    column(out, ",\"ended\"", holds().map(|hold| ended(hold.ended)));
    column(out, ",\"row\"", places.iter().map(|place| scene.rows[*place]));
    column(out, ",\"op\"", holds().map(|hold| number(hold.op)));
}

fn op_columns(out: &mut String, scene: &Scene<'_>, places: &[usize]) {
    let ops = || places.iter().map(|place| &scene.history.ops[*place]);
    let at = |op: &Op| scene.micros(op.start);
    column(out, "\"key\"", ops().map(|op| scene.lane(&op.key).unwrap_or(0)));
    column(out, ",\"proc\"", ops().map(|op| number(op.process)));
    let mut before = 0;
    column(out, ",\"at\"", ops().map(|op| at(op) - std::mem::replace(&mut before, at(op))));
    column(out, ",\"len\"", ops().map(|op| op.end.map_or(0, |end| scene.micros(end).saturating_sub(at(op)))));
    column(out, ",\"call\"", ops().map(|op| call(&op.call)));
    column(out, ",\"answer\"", ops().map(|op| answer(&op.answer)));
    column(out, ",\"op\"", ops().map(|op| number(op.id)));
}

fn fault_rows(out: &mut String, scene: &Scene<'_>, places: &[usize]) {
    column(out, ",\"kinds\"", FaultKind::ALL.iter().map(|kind| json(kind.name())));
    let rows = places.iter().map(|place| {
        let fault = &scene.history.faults[*place];
        let lasting = if is_momentary(fault.kind) { fault.from } else { scene.end };
        let kind = FaultKind::ALL.iter().position(|kind| *kind == fault.kind).unwrap_or(0);
        let process = fault.process.map_or("-1".to_owned(), number);
        let (from, until) = (scene.micros(fault.from), scene.micros(fault.until.unwrap_or(lasting)));
        format!("[{kind},{process},{from},{until},{}]", json(&shown(&fault.target, NAME)))
    });
    column(out, ",\"faults\"", rows);
    let stalls: Vec<_> = sample::evenly(&scene.history.stalls, STALLS).collect();
    let spans =
        stalls.iter().map(|(from, until)| format!("[{},{}]", scene.micros(*from), scene.micros(*until)));
    column(out, ",\"stalls\"", spans);
    let calm = scene.history.calm_since.map_or(-1, |at| scene.micros(at).cast_signed());
    let _ = write!(out, ",\"calm\":{calm}");
}

fn violations(out: &mut String, scene: &Scene<'_>, listed: usize) {
    let rows = scene.violations.iter().take(listed).map(|violation| {
        let lane = scene.lane(&violation.key).map_or("-1".to_owned(), |lane| lane.to_string());
        let ops: Vec<String> = violation.ops.iter().take(OPS_OF_VIOLATION).map(|op| number(*op)).collect();
        format!("[{},{lane},[{}]]", scene.micros(violation.at), ops.join(","))
    });
    column(out, ",\"violations\"", rows);
}

/// How many holds began in each stretch of time, for each workload: of all, drawn or not.
fn density(out: &mut String, scene: &Scene<'_>) {
    let span = scene.micros(scene.end);
    let steps = [1, 2, 5].into_iter().cycle().zip((0..).flat_map(|power| [power; 3]));
    let mut widths = steps.map(|(digit, power)| digit * 10_u64.pow(power));
    // Never finer than a millisecond: below that a bucket holds one grant or none.
    let width = widths.find(|width| *width >= 1_000 && span / width < BUCKETS).unwrap_or(span);
    let buckets = usize::try_from(span / width).unwrap_or(0) + 1;
    let mut counts = vec![vec![0_u32; buckets]; scene.workloads.len()];
    for hold in &scene.holds {
        // A key without a lane counts with the last workload rather than not at all.
        let load = scene.lane(&hold.key).map_or(counts.len() - 1, |lane| scene.lanes[lane].workload);
        counts[load][usize::try_from(scene.micros(hold.from) / width).unwrap_or(0)] += 1;
    }
    let _ = write!(out, ",\"bucket\":{width}");
    column(
        out,
        ",\"density\"",
        counts.iter().map(|counts| {
            let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
            format!("[{}]", counts.join(","))
        }),
    );
}

fn column<T: Display>(out: &mut String, name: &str, values: impl Iterator<Item = T>) {
    let _ = write!(out, "{name}:[");
    for (place, value) in values.enumerate() {
        let _ = write!(out, "{}{value}", if place == 0 { "" } else { "," });
    }
    out.push(']');
}

/// A number that a script reads as it is: as text where it would round it.
fn number(number: u64) -> String {
    if number < 1 << 53 { number.to_string() } else { format!("\"{number}\"") }
}

/// 0 exclusive, −1 shared, N one of N slots.
fn mode(mode: HoldMode) -> i64 {
    match mode {
        HoldMode::Exclusive => 0,
        HoldMode::Shared => -1,
        HoldMode::Slot(of) => i64::from(of),
    }
}

fn ended(ended: Ended) -> u8 {
    match ended {
        Ended::Released => 0,
        Ended::Deadline => 1,
        Ended::Lost => 2,
        Ended::Died => 3,
        Ended::Open => 4,
    }
}

fn call(call: &Call) -> u8 {
    match call {
        Call::Acquire { .. } => 0,
        Call::Release { .. } => 1,
        Call::Read | Call::Open { .. } => 2,
        Call::Write { .. } => 3,
        Call::Cas { .. } => 4,
        Call::Append { .. } => 5,
        Call::Add { .. } => 6,
    }
}

fn answer(answer: &Answer) -> u8 {
    match answer {
        Answer::Granted { .. } | Answer::Released { .. } | Answer::Value { .. } | Answer::Done { .. } => 0,
        Answer::Refused { stale: false, .. } => 1,
        Answer::Refused { stale: true, .. } => 2,
        Answer::Failed { .. } => 3,
        Answer::Unknown { .. } => 4,
    }
}
