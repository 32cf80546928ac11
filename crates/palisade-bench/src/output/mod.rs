//! A report as people read it: a table in the terminal, a page with a chart.

mod chart;
mod columns;
mod page;

use std::fmt::Write;

pub use self::page::{check_page, write_page};

use self::columns::Table;
use crate::goals::{Goal, Sense};
use crate::report::Report;
use crate::shape::Shape;

/// The report for a terminal.
pub fn text(report: &Report) -> String {
    let mut text = format!("{}\n", headline(report));
    for shape in Shape::ALL {
        let table = Table::of(report, shape);
        if !table.is_empty() {
            table.write_aligned(&mut text);
        }
    }
    if !report.goals.is_empty() {
        text.push_str("\ngoals\n");
    }
    for goal in &report.goals {
        let verdict = if goal.met { "met   " } else { "MISSED" };
        let found = format!("{:.3} {}", goal.found, goal.unit);
        let _ = writeln!(text, "  {verdict} {:<44} {found:<10} (goal {})", goal.what, limit(goal));
    }
    text.push('\n');
    text
}

/// What ran where; nothing that tells whose machine it is.
fn headline(report: &Report) -> String {
    let machine = &report.machine;
    let mut line = format!(
        "{} engine, palisade {}, {} cores {}, {}, {}",
        report.engine, report.version, machine.cores, machine.arch, machine.kernel, report.began
    );
    if report.build == "debug" {
        line.push_str("\na debug build: the figures say little, the ratios not much more");
    }
    if report.quick {
        line.push_str("\na quick run: it shows that everything works, not how fast");
    }
    line
}

fn limit(goal: &Goal) -> String {
    let sign = match goal.sense {
        Sense::AtMost => "<=",
        Sense::AtLeast => ">=",
    };
    format!("{sign} {}", goal.limit)
}
