//! `palisade verify`: a run on a real engine, under faults, and what became of it.

pub mod report;
