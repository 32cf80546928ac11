//! What is wanted of PostgreSQL; of one that waits for its disk under the name of its launcher.

use super::{Sense, Wanted, p50_over_raw};
use crate::report::Row;
use crate::shape::Shape;

pub(super) const GOALS: &[Wanted] = &[
    pair("postgres", 2.0),
    pair("postgres-synced", 1.3),
    many_tasks("postgres"),
    many_tasks("postgres-synced"),
    of_a_crowd("postgres", "16 processes on one resource, requests", Sense::AtMost, 4.0, |row| {
        row.requests_per_op
    }),
    of_a_crowd("postgres-synced", "16 processes on one resource, requests", Sense::AtMost, 4.0, |row| {
        row.requests_per_op
    }),
    of_a_crowd("postgres", "16 processes on one resource, Jain index", Sense::AtLeast, 0.99, |row| row.jain),
    of_a_crowd("postgres-synced", "16 processes on one resource, Jain index", Sense::AtLeast, 0.99, |row| {
        row.jain
    }),
    hand_over("postgres"),
    hand_over("postgres-synced"),
    held("postgres"),
    held("postgres-synced"),
    take_over("postgres"),
    take_over("postgres-synced"),
    Wanted {
        engine: "postgres-advisory",
        shape: Shape::Uncontended,
        variant: "same key",
        what: "take + release / pg_advisory_lock and unlock",
        unit: "x",
        sense: Sense::AtMost,
        limit: 1.25,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "postgres-advisory",
        shape: Shape::Throughput,
        variant: "64 tasks",
        what: "64 tasks / pg_advisory_lock and unlock",
        unit: "x",
        sense: Sense::AtLeast,
        limit: 0.7,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "postgres-advisory",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource / bare pg_advisory_lock",
        unit: "x",
        sense: Sense::AtLeast,
        limit: 0.85,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "postgres-advisory",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource, Jain index",
        unit: "",
        sense: Sense::AtLeast,
        limit: 0.99,
        figure: |row| row.jain,
    },
    Wanted {
        engine: "postgres-advisory",
        shape: Shape::Takeover,
        variant: "kill -9",
        what: "take-over after kill -9 of the holder",
        unit: "ms",
        sense: Sense::AtMost,
        limit: 50.0,
        figure: |row| row.takeover_ms,
    },
];

const fn pair(engine: &'static str, limit: f64) -> Wanted {
    Wanted {
        engine,
        shape: Shape::Uncontended,
        variant: "same key",
        what: "take + release / two bare commits of one row",
        unit: "x",
        sense: Sense::AtMost,
        limit,
        figure: |row| row.ratio_to_raw.median,
    }
}

const fn many_tasks(engine: &'static str) -> Wanted {
    Wanted {
        engine,
        shape: Shape::Throughput,
        variant: "64 tasks",
        what: "64 tasks / bare commits of one row, pipelined",
        unit: "x",
        sense: Sense::AtLeast,
        limit: 0.7,
        figure: |row| row.ratio_to_raw.median,
    }
}

const fn of_a_crowd(
    engine: &'static str,
    what: &'static str,
    sense: Sense,
    limit: f64,
    figure: fn(&Row) -> Option<f64>,
) -> Wanted {
    Wanted { engine, shape: Shape::Contended, variant: "16 waiters", what, unit: "", sense, limit, figure }
}

const fn hand_over(engine: &'static str) -> Wanted {
    Wanted {
        engine,
        shape: Shape::Contended,
        variant: "queue of 16",
        what: "hand-over in a queue of 16 / bare NOTIFY, p50",
        unit: "x",
        sense: Sense::AtMost,
        limit: 2.0,
        figure: p50_over_raw,
    }
}

/// How many rows one of them touches is for the tests of the engine.
const fn held(engine: &'static str) -> Wanted {
    Wanted {
        engine,
        shape: Shape::Keepalive,
        variant: "10000 held",
        what: "10000 held claims, renewals per interval",
        unit: "",
        sense: Sense::AtMost,
        limit: 1.5,
        figure: |row| row.requests_per_op,
    }
}

/// The TTL is that of the raw limit, two seconds.
const fn take_over(engine: &'static str) -> Wanted {
    Wanted {
        engine,
        shape: Shape::Takeover,
        variant: "kill -9",
        what: "take-over after kill -9 of the holder, TTL 2 s",
        unit: "ms",
        sense: Sense::AtMost,
        limit: 3_000.0,
        figure: |row| row.takeover_ms,
    }
}
