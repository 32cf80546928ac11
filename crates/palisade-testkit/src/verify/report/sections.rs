//! The parts of the page that are plain HTML.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::scene::{Scene, workload_of};
use super::text::{count, duration, html, thousands};
use super::{Latency, Page, Verdict};
use crate::check::Violation;
use crate::history::{FaultKind, Nanos};

/// The list of violations takes no more space; that of what is undecided a quarter of it.
const LIST_BYTES: usize = 800_000;
/// So many violations are open to see; the others are folded away.
const UNFOLDED: usize = 25;

/// How many of the violations are listed: all, unless there are thousands.
pub(super) fn listed(violations: &[Violation]) -> usize {
    let mut bytes = 0;
    let fits = |violation: &&Violation| {
        bytes += item(0, violation, 0).len();
        bytes <= LIST_BYTES
    };
    violations.iter().take_while(fits).count()
}

/// The HTML for one place of the template.
pub(super) fn section(place: &str, page: &Page<'_>, scene: &Scene<'_>, listed: usize) -> String {
    match place {
        "title" => format!("{}: {}", heading(page), html(page.title)),
        "kicker" => format!("{} <span>·</span> <bdi>{}</bdi>", html(page.title), html(page.engine)),
        "verdict-class" => class(page).to_owned(),
        "verdict" => heading(page),
        "lead" => lead(page, scene),
        "run" => run(page, scene),
        "command" => command(page.command),
        "facts" => facts(page, scene),
        "latencies" => latencies(page.latencies),
        "violations" => violations(page.violations, scene.start, listed),
        "undecided" => undecided(page),
        "proof" => proof(page),
        "footer" => format!("Palisade {} · one file, loads nothing", env!("CARGO_PKG_VERSION")),
        place => unreachable!("the template names {place}, which nobody fills"),
    }
}

fn class(page: &Page<'_>) -> &'static str {
    match page.verdict() {
        Verdict::Passed => "passed",
        Verdict::Violated => "violated",
        Verdict::Undecided => "undecided",
    }
}

fn heading(page: &Page<'_>) -> String {
    match page.verdict() {
        Verdict::Passed => "Nothing was violated".to_owned(),
        Verdict::Violated => count(page.violations.len(), "violation", "violations"),
        Verdict::Undecided if page.undecided.is_empty() => "Undecided: nothing was checked".to_owned(),
        Verdict::Undecided => "Undecided".to_owned(),
    }
}

fn lead(page: &Page<'_>, scene: &Scene<'_>) -> String {
    let checked = format!(
        "{} by {} on {} in {}",
        count(page.history.ops.len(), "operation", "operations"),
        count(scene.workers.len(), "process", "processes"),
        count(scene.keys, "key", "keys"),
        duration(Duration::from_nanos(scene.end - scene.start)),
    );
    let struck = match page.history.faults.len() {
        0 => "no fault struck".to_owned(),
        faults => format!("{} struck", count(faults, "fault", "faults")),
    };
    let found = match (page.verdict(), page.undecided.len()) {
        (Verdict::Passed, _) => "every checker came to an end and found nothing.".to_owned(),
        (Verdict::Violated, 0) => "each violation is told below.".to_owned(),
        (Verdict::Violated, open) => {
            format!("each violation is told below; {} undecided.", count(open, "check is", "checks are"))
        }
        (Verdict::Undecided, 0) => "a run without operations shows nothing.".to_owned(),
        (Verdict::Undecided, open) => {
            format!(
                "no violation was found, but {} not be decided.",
                count(open, "check could", "checks could")
            )
        }
    };
    let excuse =
        page.excuse.map(|why| format!(" Holders that overlapped are no violation here: {}.", html(why)));
    format!("{checked}; {struck}; {found}{}", excuse.unwrap_or_default())
}

/// The command, whose lines break between arguments only.
fn command(command: &str) -> String {
    let words: Vec<String> = command.split(' ').map(|word| format!("<span>{}</span>", html(word))).collect();
    words.join(" ")
}

fn run(page: &Page<'_>, scene: &Scene<'_>) -> String {
    let mut workloads: Vec<&str> = page.history.ops.iter().map(|op| workload_of(&op.key)).collect();
    workloads.dedup();
    workloads.sort_unstable();
    workloads.dedup();
    let more = workloads.len().saturating_sub(20);
    let mut names: Vec<String> =
        workloads.iter().take(20).map(|name| format!("<bdi>{}</bdi>", html(name))).collect();
    if more > 0 {
        names.push(format!("and {} more", thousands(more)));
    }
    let mut struck: BTreeMap<FaultKind, usize> = BTreeMap::new();
    for fault in &page.history.faults {
        *struck.entry(fault.kind).or_default() += 1;
    }
    let struck: Vec<String> =
        struck.into_iter().map(|(kind, times)| format!("{} × {}", kind.name(), thousands(times))).collect();
    let none = |list: Vec<String>| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    let mut rows = vec![
        ("Engine", format!("<bdi>{}</bdi>", html(page.engine))),
        ("Workloads", none(names)),
        ("Faults that struck", none(struck)),
        ("Duration", duration(Duration::from_nanos(scene.end - scene.start))),
    ];
    if let Some(begin) = &page.history.begin {
        rows.push(("TTL of claims", whole(&duration(Duration::from_millis(begin.ttl_ms)))));
    }
    rows.push(("Seed", format!("<code>{}</code>", page.seed)));
    rows.iter().fold(String::new(), |mut list, (name, value)| {
        let _ = write!(list, "<div><dt>{name}</dt><dd>{value}</dd></div>");
        list
    })
}

fn facts(page: &Page<'_>, scene: &Scene<'_>) -> String {
    let own = [("Operations", page.history.ops.len()), ("Grants", scene.holds.len())];
    let given = |name: &str| page.facts.iter().any(|(fact, _)| fact.eq_ignore_ascii_case(name));
    let own = own.into_iter().filter(|(name, _)| !given(name));
    let own = own.map(|(name, number)| (name.to_owned(), thousands(number)));
    own.chain(page.facts.iter().cloned()).fold(String::new(), |mut tiles, (name, value)| {
        let _ = write!(tiles, "<div><dt>{}</dt><dd>{}</dd></div>", html(&name), html(&value));
        tiles
    })
}

fn latencies(latencies: &[Latency]) -> String {
    if latencies.is_empty() {
        return String::new();
    }
    let least = latencies.iter().map(|latency| micros(latency.p50)).fold(f64::INFINITY, f64::min);
    let most = latencies.iter().map(|latency| micros(latency.max)).fold(0.0, f64::max);
    // Whole powers of ten, so that a step to the right is always ten times as long.
    let (low, high) = (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0));
    let mut rows = String::new();
    for latency in latencies {
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"plot\">{}</td></tr>",
            html(&latency.what),
            thousands(latency.count),
            duration(latency.p50),
            duration(latency.p99),
            duration(latency.max),
            plot(latency, low, high),
        );
    }
    format!(
        "<section aria-labelledby=\"h-times\"><h2 id=\"h-times\">Latencies</h2><div class=\"scroll\"><table>\
         <thead><tr><th scope=\"col\">what</th><th scope=\"col\">count</th><th scope=\"col\">p50</th>\
         <th scope=\"col\">p99</th><th scope=\"col\">max</th><th scope=\"col\" class=\"plot\">{}</th></tr></thead>\
         <tbody>{rows}</tbody></table></div></section>",
        scale(low, high),
    )
}

/// What the two ends of the plots stand for.
fn scale(low: f64, high: f64) -> String {
    let end = |power: f64| duration(Duration::from_secs_f64(10_f64.powf(power.clamp(-3.0, 15.0)) / 1e6));
    format!("<span>{}</span><span>{}</span>", whole(&end(low)), whole(&end(high)))
}

/// `1.00 ms` is `1 ms` where it was not measured.
fn whole(duration: &str) -> String {
    duration.replace(".00 ", " ").replace(".0 ", " ")
}

/// From p50 over p99 to the maximum, on a scale of powers of ten.
fn plot(latency: &Latency, low: f64, high: f64) -> String {
    let x = |time: Duration| 4.0 + 192.0 * ((micros(time).log10() - low) / (high - low)).clamp(0.0, 1.0);
    let (p50, p99, max) = (x(latency.p50), x(latency.p99), x(latency.max));
    format!(
        "<svg viewBox=\"0 0 200 14\" aria-hidden=\"true\"><path class=\"p-axis\" d=\"M0 7h200\"/>\
         <path class=\"p-rest\" d=\"M{p99:.1} 7H{max:.1}\"/><path class=\"p-most\" d=\"M{p50:.1} 7H{p99:.1}\"/>\
         <path class=\"p-max\" d=\"M{max:.1} 3v8\"/><circle class=\"p-half\" cx=\"{p50:.1}\" cy=\"7\" r=\"4\"/></svg>"
    )
}

fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).max(0.001)
}

fn violations(violations: &[Violation], start: Nanos, listed: usize) -> String {
    if violations.is_empty() {
        return String::new();
    }
    let items = |from: usize, to: usize| -> String {
        (from..to).map(|place| item(place, &violations[place], start)).collect()
    };
    let open = listed.min(UNFOLDED);
    let mut html = format!(
        "<section aria-labelledby=\"h-violations\"><h2 id=\"h-violations\">{}</h2><ol class=\"found\">{}</ol>",
        count(violations.len(), "violation", "violations"),
        items(0, open),
    );
    if listed > open {
        let _ = write!(
            html,
            "<details><summary>{} more</summary><ol class=\"found\" start=\"{}\">{}</ol></details>",
            thousands(listed - open),
            open + 1,
            items(open, listed),
        );
    }
    if listed < violations.len() {
        let left = violations.len() - listed;
        let _ = write!(
            html,
            "<p class=\"note sampled\">To keep this page small, {} of {} violations are not listed.</p>",
            thousands(left),
            thousands(violations.len()),
        );
    }
    html.push_str("</section>");
    html
}

/// One violation, with the link that zooms the picture to it.
fn item(place: usize, violation: &Violation, start: Nanos) -> String {
    let number = place + 1;
    let seconds = Duration::from_nanos(violation.at.saturating_sub(start)).as_secs_f64();
    format!(
        "<li id=\"v{number}\"><p class=\"what\">{}</p><p class=\"where\"><span class=\"tag\">{}</span> \
         <bdi><code>{}</code></bdi> at {seconds:.6} s · <a href=\"#picture\" data-violation=\"{place}\">show in the \
         picture</a></p></li>\n",
        html(&violation.what),
        html(violation.checker),
        html(&violation.key),
    )
}

fn undecided(page: &Page<'_>) -> String {
    if page.undecided.is_empty() {
        return String::new();
    }
    let (mut items, mut listed) = (String::new(), 0);
    for open in page.undecided {
        if items.len() > LIST_BYTES / 4 {
            break;
        }
        let _ = write!(
            items,
            "<li><p class=\"what\">{}</p><p class=\"where\"><span class=\"tag\">{}</span> \
             <bdi><code>{}</code></bdi></p></li>",
            html(&open.why),
            html(open.checker),
            html(&open.key),
        );
        listed += 1;
    }
    let left = page.undecided.len() - listed;
    let rest = if left == 0 {
        String::new()
    } else {
        format!(
            "<p class=\"note sampled\">To keep this page small, {} more are not listed.</p>",
            thousands(left)
        )
    };
    format!(
        "<section aria-labelledby=\"h-undecided\"><h2 id=\"h-undecided\">{} undecided</h2>\
         <p class=\"note\">A check that could not be decided counts as a failure.</p><ol class=\"found open\">{items}</ol>{rest}</section>",
        count(page.undecided.len(), "check is", "checks are"),
    )
}

fn proof(page: &Page<'_>) -> String {
    let verdict = match page.verdict() {
        Verdict::Passed => {
            "<p><strong>Nothing was violated</strong> means that in this run, under the faults it names, every operation \
             that was recorded is explained by locks that work, and that every check came to an end. It is evidence, not \
             a proof: another seed, a longer run or a fault that was not tried may show what this one did not.</p>"
        }
        Verdict::Violated => {
            "<p>A <strong>violation</strong> is certain as far as the record is: belief windows are never drawn longer \
             than what a holder believed for sure, and an answer that never came is never held against the engine. One \
             is enough: the locks failed in this run. The seed chooses workloads and faults anew in the same way; the \
             timing of real processes differs from run to run, so it may take more than one to see it again.</p>"
        }
        Verdict::Undecided => {
            "<p><strong>Undecided</strong> means that nothing was found, but that some check gave up before it had looked \
             at everything. It says neither that the locks work nor that they do not, and counts as a failure.</p>"
        }
    };
    format!(
        "{verdict}<p>All times come from one clock of the machine that ran the workers, which runs on while it sleeps. Times \
         in the picture count from the first operation or fault.</p>"
    )
}
