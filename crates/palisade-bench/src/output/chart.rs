use std::fmt::Write;

use super::columns::figure;
use crate::report::{Report, Row};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 240.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 64.0;
const STEP: f64 = 26.0;

/// The colours follow whoever looks: light or dark.
const STYLE: &str = "\
  <style>
    text { font: 13px system-ui, sans-serif; fill: #24292f }
    .title { font-weight: 600; font-size: 15px }
    .quiet { fill: #57606a; font-size: 12px }
    .bar { fill: #2f81f7 }
    .spread { stroke: #24292f; stroke-width: 1.5 }
    .limit { stroke: #57606a; stroke-dasharray: 4 3 }
    .ground { fill: #ffffff }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 }
      .quiet { fill: #9198a1 }
      .bar { fill: #4493f8 }
      .spread { stroke: #e6edf3 }
      .limit { stroke: #9198a1 }
      .ground { fill: #0d1117 }
    }
  </style>
";

/// How many times the raw limit each row costs: a bar from there to the median, a line for the spread.
pub(super) fn chart(report: &Report) -> String {
    let bars: Vec<(&Row, (f64, f64, f64))> =
        report.rows.iter().filter_map(|row| Some((row, row.cost()?))).collect();
    let greatest = bars.iter().map(|(_, (_, _, max))| *max).fold(2.0, f64::max);
    let height = TOP + STEP * crate::stats::amount(bars.len()) + 12.0;
    let scale = Scale { greatest };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"cost over the raw limit\">\n{STYLE}"
    );
    let _ = writeln!(svg, "  <rect class=\"ground\" width=\"100%\" height=\"100%\" rx=\"6\"/>");
    let title = format!("{}: times the cost of the raw limit", report.engine);
    let _ = writeln!(svg, "  <text class=\"title\" x=\"12\" y=\"24\">{title}</text>");
    let axis = if scale.is_logarithmic() { ", logarithmic" } else { "" };
    let legend =
        format!("dashed: the raw limit, 1; bar: from there to the median round; line: all rounds{axis}");
    let _ = writeln!(svg, "  <text class=\"quiet\" x=\"12\" y=\"44\">{legend}</text>");
    for (index, (row, cost)) in bars.iter().enumerate() {
        bar(&mut svg, TOP + STEP * crate::stats::amount(index), row, *cost, &scale);
    }
    let one = scale.x(1.0);
    let _ = writeln!(
        svg,
        "  <line class=\"limit\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"{:.0}\" y2=\"{:.0}\"/>",
        TOP - 8.0,
        height - 8.0
    );
    svg.push_str("</svg>\n");
    svg
}

fn bar(svg: &mut String, top: f64, row: &Row, (median, min, max): (f64, f64, f64), scale: &Scale) {
    let middle = top + STEP / 2.0 - 3.0;
    let _ = writeln!(
        svg,
        "  <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}: {}</text>",
        LEFT - 8.0,
        middle + 4.0,
        row.shape,
        escaped(&row.variant)
    );
    let (from, to) = (scale.x(median.min(1.0)), scale.x(median.max(1.0)));
    let _ = writeln!(
        svg,
        "  <rect class=\"bar\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.0}\" rx=\"2\"/>",
        (to - from).max(1.0),
        STEP - 8.0
    );
    let _ = writeln!(
        svg,
        "  <line class=\"spread\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\"/>",
        scale.x(min),
        scale.x(max)
    );
    let _ = writeln!(
        svg,
        "  <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        scale.x(max.max(1.0)) + 6.0,
        middle + 4.0,
        figure(median)
    );
}

/// Where a cost lies. Logarithmic once the greatest would press the others together.
struct Scale {
    greatest: f64,
}

impl Scale {
    /// The left end of a logarithmic axis: room for what is cheaper than its raw limit.
    const LEAST: f64 = 0.1;

    fn is_logarithmic(&self) -> bool {
        self.greatest > 12.0
    }

    fn x(&self, cost: f64) -> f64 {
        let part = if self.is_logarithmic() {
            (cost.max(Self::LEAST) / Self::LEAST).ln() / (self.greatest / Self::LEAST).ln()
        } else {
            cost / self.greatest
        };
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_begins_left_and_ends_before_the_edge() {
        for greatest in [2.0, 500.0] {
            let scale = Scale { greatest };
            assert!(scale.x(0.0) >= LEFT && (scale.x(greatest) - (WIDTH - RIGHT)).abs() < 0.1);
            assert!(scale.x(1.0) < scale.x(greatest));
        }
        assert_eq!(escaped("a<b & c"), "a&lt;b &amp; c");
    }
}
