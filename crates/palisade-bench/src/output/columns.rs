use std::fmt::Write;

use crate::peer::PeerFigures;
use crate::report::{Measure, Report, Row};
use crate::shape::Shape;
use crate::stats::Spread;

/// One figure of a row.
struct Column {
    heading: &'static str,
    cell: fn(&Row) -> Option<String>,
}

const COLUMNS: &[Column] = &[
    Column { heading: "ratio to raw", cell: ratio },
    Column { heading: "p50 µs", cell: |row| row.p50_us.map(figure) },
    Column { heading: "raw p50", cell: |row| row.raw_p50_us.map(figure) },
    Column { heading: "p99 µs", cell: |row| row.p99_us.map(figure) },
    Column { heading: "per second", cell: |row| row.per_second.map(figure) },
    Column { heading: "raw", cell: |row| row.raw_per_second.map(figure) },
    Column { heading: "hand-offs/s", cell: |row| row.handoffs_per_second.map(figure) },
    Column { heading: "take-over ms", cell: |row| row.takeover_ms.map(figure) },
    Column { heading: "raw ms", cell: |row| row.raw_takeover_ms.map(figure) },
    Column { heading: "requests/op", cell: |row| row.requests_per_op.map(|count| format!("{count:.2}")) },
    Column { heading: "calls/op", cell: |row| row.calls_per_op.map(|count| format!("{count:.2}")) },
    Column { heading: "Jain", cell: |row| row.jain.map(|index| format!("{index:.3}")) },
    Column { heading: "worst/mean wait", cell: |row| row.worst_over_mean_wait.map(figure) },
    Column { heading: "worst wait ms", cell: |row| row.worst_wait_ms.map(figure) },
    Column { heading: "CPU µs/op", cell: |row| row.cpu_us_per_op.map(figure) },
    Column { heading: "RSS MiB", cell: |row| row.rss_mib.map(|mib| format!("{mib:.1}")) },
];

/// `time × 1.74 (1.66 – 1.85)`.
fn ratio(row: &Row) -> Option<String> {
    let Spread { median: Some(median), min: Some(min), max: Some(max) } = row.ratio_to_raw else {
        return None;
    };
    let of = match row.ratio_of {
        Measure::Time => "time",
        Measure::Rate => "rate",
        Measure::Cpu => "CPU",
    };
    Some(format!("{of} × {} ({} – {})", figure(median), figure(min), figure(max)))
}

/// `Go's Mutex: rate × 4.10 (3.90 – 4.33), 155 per second`.
fn beside(row: &Row, peer: &PeerFigures) -> String {
    let ratio = ratio(&Row { ratio_to_raw: peer.ratio, ..row.clone() }).unwrap_or_default();
    let time = peer.p50_us.map(|us| format!(", p50 {} µs", figure(us))).unwrap_or_default();
    let rate = peer.per_second.map(|rate| format!(", {} per second", figure(rate))).unwrap_or_default();
    format!("{}: {ratio}{time}{rate}", peer.name)
}

/// Three digits are as many as a loaded machine repeats.
pub(super) fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => grouped(&format!("{value:.0}")),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// `1234567` as `1,234,567`.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The rows of one shape, with the columns that at least one of them has.
pub(super) struct Table<'a> {
    shape: Shape,
    rows: Vec<&'a Row>,
    columns: Vec<&'static Column>,
}

impl<'a> Table<'a> {
    pub(super) fn of(report: &'a Report, shape: Shape) -> Self {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.shape == shape).collect();
        let used = |column: &&Column| rows.iter().any(|row| (column.cell)(row).is_some());
        let columns = COLUMNS.iter().filter(used).collect();
        Self { shape, rows, columns }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What the raw limit did; none if nothing was compared.
    pub(super) fn raw(&self) -> Option<&str> {
        self.rows.iter().map(|row| row.raw.as_str()).find(|raw| !raw.is_empty())
    }

    /// What the rows say besides their figures, each once.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for row in &self.rows {
            let Some(note) = &row.note else { continue };
            let everyone = self.rows.iter().all(|other| other.note.as_ref() == Some(note));
            let note = if everyone { note.clone() } else { format!("{}: {note}", row.variant) };
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        for row in &self.rows {
            notes.extend(
                row.peers.iter().map(|peer| format!("{}, next to {}", row.variant, beside(row, peer))),
            );
        }
        notes
    }

    pub(super) fn write_aligned(&self, text: &mut String) {
        let raw = self.raw().map(|raw| format!("; raw limit: {raw}")).unwrap_or_default();
        let _ = writeln!(text, "\n{}{raw}", self.shape);
        let lines = if self.columns.is_empty() { Vec::new() } else { self.lines() };
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..=self.columns.len()).map(width).collect();
        for line in &lines {
            let first = format!("  {:<width$}", line[0], width = widths[0]);
            let others = line.iter().zip(&widths).skip(1).map(|(cell, width)| format!("  {cell:>width$}"));
            let _ = writeln!(text, "{first}{}", others.collect::<String>());
        }
        for note in self.notes() {
            let _ = writeln!(text, "  {note}");
        }
    }

    pub(super) fn write_markdown(&self, text: &mut String) {
        let _ = writeln!(text, "### {}\n", self.shape);
        if let Some(raw) = self.raw() {
            let _ = writeln!(text, "Raw limit: {raw}.\n");
        }
        if !self.columns.is_empty() {
            let mut lines = self.lines().into_iter().map(|line| format!("| {} |\n", line.join(" | ")));
            text.push_str(&lines.next().unwrap_or_default());
            let _ = writeln!(text, "|---|{}", "---:|".repeat(self.columns.len()));
            text.extend(lines);
            text.push('\n');
        }
        for note in self.notes() {
            let _ = writeln!(text, "{note}.\n");
        }
    }

    /// The headings, then the rows.
    fn lines(&self) -> Vec<Vec<String>> {
        let headings = self.columns.iter().map(|column| column.heading.to_owned());
        let mut lines = vec![std::iter::once(String::new()).chain(headings).collect::<Vec<_>>()];
        for row in &self.rows {
            let cells =
                self.columns.iter().map(|column| (column.cell)(row).unwrap_or_else(|| "-".to_owned()));
            lines.push(std::iter::once(row.variant.clone()).chain(cells).collect());
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_large_ones_are_grouped() {
        let shown = [0.1234, 12.34, 123.4, 1234.0, 1_234_567.0].map(figure);
        assert_eq!(shown, ["0.12", "12.3", "123", "1,234", "1,234,567"]);
    }
}
