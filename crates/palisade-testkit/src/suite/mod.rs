//! The cases, one file per theme.

mod cancel;
mod change;
mod claims;
mod connection;
mod evict;
mod inspect;
mod mutual_exclusion;
mod names;
mod processes;
mod processes_many;
mod recipes;
mod registers;
mod registers_fenced;
mod renewal;
mod tokens;
mod waiting;
mod watch;
mod withdraw;

use crate::Case;

/// All cases, by theme.
pub fn cases() -> Vec<Case> {
    [
        connection::cases(),
        claims::cases(),
        names::cases(),
        waiting::cases(),
        renewal::cases(),
        withdraw::cases(),
        change::cases(),
        inspect::cases(),
        evict::cases(),
        watch::cases(),
        registers::cases(),
        registers_fenced::cases(),
        tokens::cases(),
        cancel::cases(),
        mutual_exclusion::cases(),
        processes::cases(),
        processes_many::cases(),
        recipes::cases(),
    ]
    .concat()
}

#[cfg(test)]
mod clauses;
