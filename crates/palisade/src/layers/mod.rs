//! Wrappers around an engine that say or bound the same thing for all of them.

mod bounded;
mod traced;

pub(crate) use bounded::Bounded;
pub(crate) use traced::Traced;
