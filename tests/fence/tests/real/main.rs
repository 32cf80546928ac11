//! What only real databases can show of the side that checks.

#![allow(clippy::duplicate_mod, reason = "the examples have a module in common")]

mod campaign;
mod examples;
mod fence;
mod http;
mod on_redis;
mod optimistic;
mod reserve;
mod row_lock;
mod trouble;
