//! What users hold in their hands, over every engine. The clauses are quoted from the recipes' own
//! documentation.

mod coordination;
mod data;
mod election;
mod guards;
mod locks;
mod shared;

use crate::Case;

pub(super) fn cases() -> Vec<Case> {
    [
        locks::cases(),
        guards::cases(),
        shared::cases(),
        election::cases(),
        coordination::cases(),
        data::cases(),
    ]
    .concat()
}
