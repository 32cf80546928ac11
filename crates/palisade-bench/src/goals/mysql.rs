//! What is wanted of MySQL's and MariaDB's session locks.

use super::{Sense, Wanted};
use crate::shape::Shape;

pub(super) const GOALS: &[Wanted] = &[
    Wanted {
        engine: "mysql-advisory",
        shape: Shape::Uncontended,
        variant: "same key",
        what: "take + release / GET_LOCK and RELEASE_LOCK",
        unit: "x",
        sense: Sense::AtMost,
        limit: 1.3,
        figure: |row| row.ratio_to_raw.median,
    },
    Wanted {
        engine: "mysql-advisory",
        shape: Shape::Contended,
        variant: "16 waiters",
        what: "16 processes on one resource / bare GET_LOCK",
        unit: "x",
        sense: Sense::AtLeast,
        limit: 0.8,
        figure: |row| row.ratio_to_raw.median,
    },
];
