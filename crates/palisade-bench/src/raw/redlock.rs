//! The floor of a quorum of Redis servers: the bare commands at all of them at once.

use std::sync::Arc;

use anyhow::{Context, Result};
use palisade_core::percent_decode;

use super::redis::{Redis, Server};
use super::{Floors, RawLimit};

pub(super) fn open(url: &str) -> Result<Arc<dyn RawLimit>> {
    let rest = url.split_once(':').context("an engine URL has a scheme")?.1;
    let nodes = rest.split_once('?').map_or(rest, |(nodes, _)| nodes).split(',');
    let servers = nodes.map(|node| Server::of_url(&percent_decode(node)?)).collect::<Result<_>>()?;
    Ok(Arc::new(Redis::new(servers, FLOORS)))
}

pub(super) fn attach(address: &str) -> Result<Arc<dyn RawLimit>> {
    Ok(Arc::new(Redis::attach(address, FLOORS)?))
}

const FLOORS: Floors = Floors {
    pair: "SET NX PX at all servers at once, then a script at all that compares and deletes",
    turn: "tokens at all servers at once: RPUSH by one process, BLPOP by the next",
    hold: "SET NX PX at all servers at once, tried again when the keys' time is up",
    keep: "a script at all servers that compares and renews 500 keys",
};
