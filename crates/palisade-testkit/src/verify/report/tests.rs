use palisade_core::Token;

use super::*;
use crate::history::{Answer, Begin, Call, Event, FaultKind, HoldMode, Nanos, OpId};

const MS: Nanos = 1_000_000;
const HOSTILE: &str = "mutex/</script><script>alert(1)</script>\"'<!--&{{seed}}";

/// A run that is being made up.
#[derive(Default)]
struct Made {
    events: Vec<Event>,
    op: OpId,
}

impl Made {
    fn call(&mut self, process: u64, key: &str, call: Call, at: Nanos, end: Nanos, answer: Answer) -> OpId {
        self.op += 1;
        self.events.push(Event::Call { op: self.op, process, at, key: key.to_owned(), call });
        self.events.push(Event::Return { op: self.op, at: end, answer });
        self.op
    }

    /// A hold and its release.
    fn hold(&mut self, process: u64, key: &str, mode: HoldMode, [asked, from, until]: [Nanos; 3]) -> OpId {
        let answer = Answer::Granted { token: Token::new(self.op + 1), slot: None, until: None };
        let hold = self.call(process, key, Call::Acquire { mode }, asked, from, answer);
        let release = Call::Release { hold: Some(hold) };
        self.call(process, key, release, until, until + MS / 10, Answer::Released { in_time: true });
        hold
    }

    /// Holds of a few keys in turn, of `each` nanoseconds, over and over.
    fn busy(holds: u64, each: Nanos) -> Self {
        let mut made = Self::default();
        for n in 0..holds {
            let (process, key) = (n % 10, format!("{}/{}", ["mutex", "rw"][n as usize % 2], n % 8));
            let from = MS + n / 8 * each;
            made.hold(process, &key, HoldMode::Exclusive, [from - MS / 20, from, from + each / 2]);
        }
        made
    }

    fn history(self) -> History {
        History::from_events(self.events).unwrap()
    }
}

fn violation(key: &str, at: Nanos, what: &str, ops: Vec<OpId>) -> Violation {
    Violation { checker: "belief", key: key.to_owned(), at, what: what.to_owned(), ops }
}

fn page<'a>(history: &'a History, violations: &'a [Violation]) -> Page<'a> {
    Page {
        title: "palisade verify",
        engine: "memory:",
        history,
        violations,
        excuse: None,
        undecided: &[],
        facts: &[],
        latencies: &[],
        command: "palisade verify --engine memory: --seed 7",
        seed: 7,
    }
}

/// What the script reads.
fn data(html: &str) -> serde_json::Value {
    let from = html.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let to = from + html[from..].find("</script>").unwrap();
    serde_json::from_str(&html[from..to]).unwrap()
}

/// Whether every element that is opened is closed, in order. Attributes never hold `<` or `>` here.
fn is_well_formed(xml: &str) -> bool {
    let mut open: Vec<&str> = Vec::new();
    for tag in xml.split('<').skip(1) {
        let Some((tag, text)) = tag.split_once('>') else { return false };
        if text.contains('>') || tag.matches('"').count() % 2 != 0 {
            return false;
        }
        let name = tag.trim_matches('/').split(' ').next().unwrap_or_default();
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    open.is_empty()
}

fn svg(html: &str) -> &str {
    let from = html.find("<figure id=\"overview\">").unwrap() + "<figure id=\"overview\">".len();
    &html[from..from + html[from..].find("<figcaption>").unwrap()]
}

#[test]
fn hostile_text_is_inert() {
    let mut made = Made::default();
    let op = made.hold(1, HOSTILE, HoldMode::Exclusive, [0, MS, 2 * MS]);
    made.events.push(Event::Fault {
        fault: 1,
        at: MS,
        kind: FaultKind::Cut,
        target: HOSTILE.to_owned(),
        process: None,
    });
    let history = made.history();
    let violations = [violation(HOSTILE, MS, HOSTILE, vec![op])];
    let undecided = [Undecided { checker: "search", key: HOSTILE.to_owned(), why: HOSTILE.to_owned() }];
    let facts = [(HOSTILE.to_owned(), HOSTILE.to_owned())];
    let time = Duration::from_millis(1);
    let latencies = [Latency { what: HOSTILE.to_owned(), count: 1, p50: time, p99: time, max: time }];
    let hostile = Page {
        title: HOSTILE,
        engine: HOSTILE,
        undecided: &undecided,
        facts: &facts,
        latencies: &latencies,
        command: HOSTILE,
        ..page(&history, &violations)
    };
    let html = render(&hostile);
    assert_eq!(html.matches("<script").count(), 2, "the data and the script");
    assert_eq!(html.matches("</script").count(), 2);
    assert_eq!(html.matches("<!--").count(), 0);
    assert!(!html.contains("alert(1)</script>"));
    assert_eq!(data(&html)["keys"][0], HOSTILE, "the script sees the name as it is");
    assert!(is_well_formed(svg(&html)), "{}", svg(&html));
}

#[test]
fn the_policy_allows_what_the_page_brings_and_nothing_else() {
    let history = Made::busy(10, MS).history();
    let html = render(&page(&history, &[]));
    let policy = format!("script-src '{}'; style-src '{}'", digest::source(SCRIPT), digest::source(STYLE));
    assert!(html.contains(&policy) && html.contains("default-src 'none'"));
    assert!(html.contains(&format!("<script>{SCRIPT}</script>")), "the digest is that of the whole element");
    assert!(html.contains(&format!("<style>{STYLE}</style>")));
    for way_out in ["src=", "@import", "url(", "style=\"", "onclick=", "innerHTML", "fetch("] {
        assert!(!html.contains(way_out), "{way_out}");
    }
    assert_eq!(html.matches("://").count(), 1, "but for the namespace of SVG");
}

#[test]
fn every_violation_is_listed_with_its_place_in_the_picture() {
    let history = Made::busy(400, MS).history();
    let violations: Vec<Violation> =
        (1..=300).map(|n| violation("mutex/0", n * MS / 10, &format!("sentence {n}."), vec![n])).collect();
    let html = render(&page(&history, &violations));
    for n in 1..=300 {
        assert_eq!(html.matches(&format!("sentence {n}.")).count(), 1);
        assert!(html.contains(&format!("<li id=\"v{n}\">")));
        assert!(html.contains(&format!("data-violation=\"{}\"", n - 1)));
    }
    assert!(html.contains("<h1>300 violations</h1>"));
    assert!(!html.contains("violations are not listed"));
    assert_eq!(data(&html)["violations"].as_array().unwrap().len(), 300);
}

#[test]
fn the_verdict_follows_from_what_was_found() {
    let history = Made::busy(10, MS).history();
    assert!(render(&page(&history, &[])).contains("<h1>Nothing was violated</h1>"));
    let undecided = [Undecided { checker: "search", key: "k".to_owned(), why: "out of time".to_owned() }];
    let open = Page { undecided: &undecided, ..page(&history, &[]) };
    let html = render(&open);
    assert!(html.contains("<h1>Undecided</h1>") && html.contains("out of time"));
    let found = [violation("mutex/0", MS, "Two held it.", vec![1])];
    assert!(render(&page(&history, &found)).contains("<h1>1 violation</h1>"));
    assert_eq!(Page { undecided: &undecided, ..page(&history, &found) }.verdict(), Verdict::Violated);
    let nothing = History::default();
    assert_eq!(page(&nothing, &[]).verdict(), Verdict::Undecided, "a run without operations passes nothing");
    assert!(render(&page(&nothing, &[])).contains("nothing was checked"));
}

#[test]
fn why_holders_may_overlap_is_said() {
    let history = Made::busy(10, MS).history();
    let html = render(&Page { excuse: Some("its clock <jumped>"), ..page(&history, &[]) });
    assert!(html.contains("Holders that overlapped are no violation here: its clock &lt;jumped&gt;."));
    assert!(!render(&page(&history, &[])).contains("Holders that overlapped"));
}

#[test]
fn how_to_run_it_again_is_said() {
    let mut made = Made::busy(10, MS);
    let command = "palisade verify --seed 18446744073709551615".to_owned();
    let begin = Begin {
        format: 1,
        engine: "memory:".to_owned(),
        seed: u64::MAX,
        command: command.clone(),
        ttl_ms: 2_000,
        voids_exclusion: std::collections::BTreeMap::new(),
    };
    made.events.insert(0, Event::Begin(begin));
    let history = made.history();
    let html = render(&Page { command: &command, seed: u64::MAX, ..page(&history, &[]) });
    assert!(html.contains("<code><span>palisade</span> <span>verify</span> <span>--seed</span> <span>18446744073709551615</span></code>"));
    assert!(html.contains("<code>18446744073709551615</code>"));
    assert!(html.contains("<dd>2 s</dd>"), "the TTL");
}

#[test]
fn a_long_run_makes_a_page_of_bounded_size_that_says_what_it_leaves_out() {
    let mut made = Made::busy(100_000, 4 * MS);
    // Long compared to others, broken off, and struck: all of them are drawn.
    let long = made.hold(11, "rw/1", HoldMode::Shared, [5 * MS, 6 * MS, 9_000 * MS]);
    made.events.push(Event::Fault {
        fault: 1,
        at: 30_000 * MS,
        kind: FaultKind::Pause,
        target: "a worker".to_owned(),
        process: Some(3),
    });
    made.events.push(Event::Healed { fault: 1, at: 30_100 * MS });
    let history = made.history();
    let violations = [violation("mutex/0", 101 * MS, "Two held it.", vec![801])];
    let html = render(&page(&history, &violations));
    assert!(html.len() < PAGE_BYTES, "{}", html.len());
    assert!(html.contains("<strong>40,000 of 100,001</strong> holds"));
    let data = data(&html);
    let drawn = data["holds"]["op"].as_array().unwrap();
    assert_eq!(drawn.len(), 40_000);
    assert!(drawn.contains(&long.into()) && drawn.contains(&801.into()));
    let counted: u64 = data["density"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|list| list.as_array().unwrap())
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(counted, 100_001, "the strip of grants is complete");
    assert_eq!(data["busy"].as_array().unwrap().len(), data["keys"].as_array().unwrap().len());
    assert!(is_well_formed(svg(&html)));
}

#[test]
fn the_same_run_gives_the_same_page() {
    let history = || Made::busy(2_000, MS).history();
    let violations = [violation("mutex/0", 10 * MS, "Two held it.", vec![81])];
    assert_eq!(render(&page(&history(), &violations)), render(&page(&history(), &violations)));
}

#[test]
fn names_and_sentences_made_to_be_long_do_not_make_the_page_long() {
    let mut made = Made::default();
    let name = "<".repeat(3_000);
    for n in 0..8_000 {
        let key = format!("mutex/{n}{name}");
        made.hold(n, &key, HoldMode::Exclusive, [n * MS, n * MS + 1, n * MS + 2]);
        made.events.push(Event::Fault {
            fault: n,
            at: n * MS,
            kind: FaultKind::Cut,
            target: key,
            process: None,
        });
    }
    let history = made.history();
    let violations: Vec<Violation> = (0..5_000).map(|n| violation(&name, n, &name, vec![n; 100])).collect();
    let undecided = vec![Undecided { checker: "search", key: name.clone(), why: name.clone() }; 5_000];
    let html = render(&Page { undecided: &undecided, ..page(&history, &violations) });
    assert!(html.len() < PAGE_BYTES, "{}", html.len());
    assert!(html.contains("violations are not listed") && html.contains("</strong> keys"));
    data(&html);
}

#[test]
fn a_record_whose_times_make_no_sense_is_shown_all_the_same() {
    let mut made = Made::default();
    made.hold(1, "mutex/a", HoldMode::Exclusive, [9 * MS, 2 * MS, MS]);
    let write = Call::Write { value: String::new(), version: None, token: None };
    made.call(2, "mutex/a", write, 8 * MS, 0, Answer::Done { version: None });
    made.events.push(Event::Fault {
        fault: 1,
        at: 20 * MS,
        kind: FaultKind::Pause,
        target: String::new(),
        process: Some(1),
    });
    made.events.push(Event::Healed { fault: 1, at: 3 * MS });
    made.events.push(Event::Died { process: 2, at: 1 });
    let history = made.history();
    let violations = [violation("elsewhere", Nanos::MAX, "Nobody knows.", vec![1, 99])];
    let html = render(&page(&history, &violations));
    assert_eq!(data(&html)["violations"][0][1], -1, "a key without a lane");
}

#[test]
fn holds_that_overlap_stand_in_rows_of_their_own() {
    let mut made = Made::default();
    made.hold(1, "rw/a", HoldMode::Shared, [0, MS, 10 * MS]);
    made.hold(2, "rw/a", HoldMode::Shared, [0, 2 * MS, 5 * MS]);
    made.hold(3, "rw/a", HoldMode::Shared, [0, 6 * MS, 7 * MS]);
    let history = made.history();
    let data = data(&render(&page(&history, &[])));
    assert_eq!(data["holds"]["row"], serde_json::json!([0, 1, 1]));
    assert_eq!(data["rows"], serde_json::json!([2]));
}

#[test]
fn a_new_process_takes_the_lane_of_a_dead_one() {
    let mut made = Made::default();
    made.hold(1, "mutex/a", HoldMode::Exclusive, [0, MS, 2 * MS]);
    made.hold(2, "mutex/b", HoldMode::Exclusive, [0, MS, 2 * MS]);
    made.events.push(Event::Died { process: 1, at: 3 * MS });
    made.hold(3, "mutex/a", HoldMode::Exclusive, [4 * MS, 5 * MS, 6 * MS]);
    let history = made.history();
    let data = data(&render(&page(&history, &[])));
    let lanes: Vec<_> =
        data["workers"].as_array().unwrap().iter().map(|worker| worker[1].as_u64().unwrap()).collect();
    assert_eq!(lanes, [0, 1, 0]);
}
