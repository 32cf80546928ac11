mod etcd;
mod mysql;
mod postgres;

use serde::Serialize;

use crate::effort::Effort;
use crate::raw::zookeeper::CURATOR;
use crate::report::Row;
use crate::shape::Shape;

/// What the project wants of an engine, and what a run found.
#[derive(Debug, Clone, Serialize)]
pub struct Goal {
    /// What was measured.
    pub what: &'static str,
    /// What was found.
    pub found: f64,
    /// The unit, if it has one.
    pub unit: &'static str,
    /// `at most` or `at least`.
    pub sense: Sense,
    /// This much.
    pub limit: f64,
    /// Whether it is.
    pub met: bool,
}

/// Which side of its limit a figure should be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// No more than the limit.
    AtMost,
    /// No less than the limit.
    AtLeast,
}

/// One line of the table of goals.
struct Wanted {
    engine: &'static str,
    shape: Shape,
    variant: &'static str,
    what: &'static str,
    unit: &'static str,
    sense: Sense,
    limit: f64,
    figure: fn(&Row) -> Option<f64>,
}

/// What is wanted of which engine. A figure that a run did not measure is not judged.
const GOALS: &[Wanted] = &[
    Wanted {
        engine: "embedded",
        shape: Shape::Uncontended,
        variant: "same key",
        what: "take + release / two bare commits",
        unit: "x",
        sense: Sense::AtMost,
        limit: 2.2,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "embedded",
        shape: Shape::Uncontended,
        variant: "same key, synced",
        what: "take + release / two bare commits, synced",
        unit: "x",
        sense: Sense::AtMost,
        limit: 1.4,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "embedded",
        shape: Shape::Contended,
        variant: "queue of 16",
        what: "queue of 16 processes drained, per waiter",
        unit: "ms",
        sense: Sense::AtMost,
        limit: 1.0,
        figure: |row| row.per_second.map(|rate| 1e3 / rate),
    },
    Wanted {
        engine: "embedded",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource, Jain index",
        unit: "",
        sense: Sense::AtLeast,
        limit: 0.99,
        figure: |row| row.jain,
    },
    Wanted {
        engine: "embedded",
        shape: Shape::Contended,
        variant: "64 waiters",
        what: "64 processes on one resource, Jain index",
        unit: "",
        sense: Sense::AtLeast,
        limit: 0.99,
        figure: |row| row.jain,
    },
    Wanted {
        engine: "embedded",
        shape: Shape::Keepalive,
        variant: "10000 held",
        what: "10000 held claims, commits per interval",
        unit: "",
        sense: Sense::AtMost,
        limit: 1.5,
        figure: |row| row.requests_per_op,
    },
    Wanted {
        engine: "embedded",
        shape: Shape::Takeover,
        variant: "kill -9",
        what: "take-over after kill -9 of the holder",
        unit: "ms",
        sense: Sense::AtMost,
        limit: 50.0,
        figure: |row| row.takeover_ms,
    },
    Wanted {
        engine: "embedded",
        shape: Shape::Command,
        variant: "run NAME -- true",
        what: "palisade run NAME -- true / flock FILE true",
        unit: "x",
        sense: Sense::AtMost,
        limit: 3.0,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Uncontended,
        variant: "same key",
        what: "take + release / SET and script",
        unit: "x",
        sense: Sense::AtMost,
        limit: 1.2,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Uncontended,
        variant: "same key",
        what: "take + release, requests",
        unit: "",
        sense: Sense::AtMost,
        limit: 2.0,
        figure: |row| row.requests_per_op,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Throughput,
        variant: "64 tasks",
        what: "64 tasks / SET and script",
        unit: "x",
        sense: Sense::AtLeast,
        limit: 0.9,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource / BLPOP and RPUSH",
        unit: "x",
        sense: Sense::AtLeast,
        limit: 0.45,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource, requests",
        unit: "",
        sense: Sense::AtMost,
        limit: 3.0,
        figure: |row| row.requests_per_op,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource, Jain index",
        unit: "",
        sense: Sense::AtLeast,
        limit: 0.99,
        figure: |row| row.jain,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Contended,
        variant: "queue of 16",
        what: "hand-over in a queue of 16 / bare notify, p50",
        unit: "x",
        sense: Sense::AtMost,
        limit: 1.8,
        figure: p50_over_raw,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Contended,
        variant: "64 waiters",
        what: "64 processes on one resource / BLPOP and RPUSH",
        unit: "x",
        sense: Sense::AtLeast,
        limit: 0.45,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Contended,
        variant: "64 waiters",
        what: "64 processes on one resource, requests",
        unit: "",
        sense: Sense::AtMost,
        limit: 3.0,
        figure: |row| row.requests_per_op,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Contended,
        variant: "64 waiters",
        what: "64 processes on one resource, Jain index",
        unit: "",
        sense: Sense::AtLeast,
        limit: 0.99,
        figure: |row| row.jain,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Contended,
        variant: "queue of 64",
        what: "hand-over in a queue of 64 / bare notify, p50",
        unit: "x",
        sense: Sense::AtMost,
        limit: 1.8,
        figure: p50_over_raw,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Keepalive,
        variant: "10000 held",
        what: "10000 held claims, requests per second",
        unit: "",
        sense: Sense::AtMost,
        limit: 10.0,
        figure: |row| row.requests_per_op.map(|requests| requests / Effort::FULL.interval().as_secs_f64()),
    },
    Wanted {
        engine: "redis",
        shape: Shape::Keepalive,
        variant: "10000 held",
        what: "10000 held claims, memory of the client",
        unit: "MiB",
        sense: Sense::AtMost,
        limit: 25.0,
        figure: |row| row.rss_mib,
    },
    Wanted {
        engine: "redis",
        shape: Shape::Command,
        variant: "run NAME -- true",
        what: "palisade run NAME -- true / redis-cli ping",
        unit: "x",
        sense: Sense::AtMost,
        limit: 2.0,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "redlock",
        shape: Shape::Uncontended,
        variant: "same key",
        what: "take + release / SET and script at all servers",
        unit: "x",
        sense: Sense::AtMost,
        limit: 1.2,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "redlock",
        shape: Shape::Throughput,
        variant: "64 tasks",
        what: "64 tasks / SET and script at all servers",
        unit: "x",
        sense: Sense::AtLeast,
        limit: 0.75,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "redlock",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource, requests per hand-over",
        unit: "",
        sense: Sense::AtMost,
        limit: 30.0,
        figure: requests_per_handoff,
    },
    Wanted {
        engine: "redlock",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource, longest wait below a TTL",
        unit: "ms",
        sense: Sense::AtMost,
        limit: 15_000.0,
        figure: |row| row.worst_wait_ms,
    },
    Wanted {
        engine: "redlock",
        shape: Shape::Contended,
        variant: "64 waiters",
        what: "64 processes on one resource, longest wait below a TTL",
        unit: "ms",
        sense: Sense::AtMost,
        limit: 15_000.0,
        figure: |row| row.worst_wait_ms,
    },
    Wanted {
        engine: "zookeeper",
        shape: Shape::Uncontended,
        variant: "same key",
        what: "take + release / a node made and deleted",
        unit: "x",
        sense: Sense::AtMost,
        limit: 1.4,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "zookeeper",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 clients of one process on one resource / Curator's InterProcessMutex",
        unit: "x",
        sense: Sense::AtLeast,
        limit: 1.5,
        figure: |row| row.ratio_to(CURATOR),
    },
    Wanted {
        engine: "zookeeper",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource, requests, pings among them",
        unit: "",
        sense: Sense::AtMost,
        limit: 5.0,
        figure: |row| row.requests_per_op,
    },
    Wanted {
        engine: "zookeeper",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource, Jain index",
        unit: "",
        sense: Sense::AtLeast,
        limit: 0.99,
        figure: |row| row.jain,
    },
];

/// Where who releases may have it again at once, and not every grant is a hand-over.
fn requests_per_handoff(row: &Row) -> Option<f64> {
    let per_grant = row.per_second?.max(1.0) / row.handoffs_per_second?.max(1.0);
    Some(row.requests_per_op? * per_grant)
}

fn p50_over_raw(row: &Row) -> Option<f64> {
    row.p50_us.zip(row.raw_p50_us).map(|(ours, raw)| ours / raw)
}

fn all() -> impl Iterator<Item = &'static Wanted> {
    GOALS.iter().chain(etcd::GOALS).chain(postgres::GOALS).chain(mysql::GOALS)
}

/// Judges the rows of one engine that was started by this URL: by goals of its own, if a launcher has any.
pub(crate) fn judge(url: &str, engine: &str, rows: &[Row]) -> Vec<Goal> {
    let launcher = url.strip_prefix("local:").filter(|name| all().any(|goal| goal.engine == *name));
    let name = launcher.unwrap_or(engine);
    all().filter(|goal| goal.engine == name).filter_map(|goal| goal.judge(rows)).collect()
}

impl Wanted {
    fn judge(&self, rows: &[Row]) -> Option<Goal> {
        let row = rows.iter().find(|row| row.shape == self.shape && row.variant == self.variant)?;
        let found = (self.figure)(row)?;
        let met = match self.sense {
            Sense::AtMost => found <= self.limit,
            Sense::AtLeast => found >= self.limit,
        };
        Some(Goal { what: self.what, found, unit: self.unit, sense: self.sense, limit: self.limit, met })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_judged_and_nothing_else() {
        let mut row = Row::new(Shape::Takeover, "kill -9", "");
        assert!(judge("embedded:", "embedded", std::slice::from_ref(&row)).is_empty());
        row.takeover_ms = Some(51.0);
        assert!(!judge("embedded:", "embedded", std::slice::from_ref(&row))[0].met);
        row.takeover_ms = Some(50.0);
        assert!(judge("embedded:", "embedded", std::slice::from_ref(&row))[0].met);
        assert!(judge("memory:", "memory", &[row]).is_empty());
    }

    #[test]
    fn a_launcher_may_have_goals_of_its_own() {
        let mut row = Row::new(Shape::Uncontended, "same key", "");
        row.ratio_to_raw.median = Some(1.5);
        assert!(judge("local:postgres", "postgres", std::slice::from_ref(&row))[0].met);
        assert!(judge("postgres://h", "postgres", std::slice::from_ref(&row))[0].met);
        let synced = judge("local:postgres-synced", "postgres", &[row]);
        assert!(synced.len() == 1 && !synced[0].met);
    }
}
