use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};

use crate::pairing::{Expected, Report};

const HEADER: [&str; 9] = [
    "pairing",
    "turns",
    "overlaps",
    "lost updates",
    "ours ↔ theirs",
    "slowest had",
    "longest wait, ours",
    "theirs",
    "took",
];

/// All pairings, one line each.
pub(crate) fn of(reports: &[Report]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).force_no_tty();
    table.set_header(HEADER);
    for report in reports {
        let note = if report.expected == Expected::Lossy { " (does not lock: must lose)" } else { "" };
        table.add_row([
            format!("{}{note}", report.name),
            report.turns().to_string(),
            report.overlaps().to_string(),
            report.lost().to_string(),
            report.crossings().to_string(),
            format!("{} %", report.slowest_percent()),
            milliseconds(report.max_wait(true)),
            milliseconds(report.max_wait(false)),
            format!("{:.1} s", report.took.as_secs_f64()),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "\n{table}\n\nours ↔ theirs: how often the lock went from one of ours to one of theirs or back.\n\
         slowest had: how many of its turns the slowest process had when the fastest one was done.\n"
    )
}

pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}
