use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};
use rand::RngExt;

/// Where ports are looked for: below those that the kernel gives to outgoing connections, which
/// could take the port of a server that is being restarted, and low enough for a Cluster's second
/// port, which is 10,000 above.
const PORTS: std::ops::Range<u16> = 10_000..22_000;
const BUS: u16 = 10_000;

/// A port that is free at the moment, and so is its second one.
pub(super) fn free() -> Result<u16> {
    const TRIES: usize = 200;
    let mut rng = rand::rng();
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    (0..TRIES)
        .map(|_| rng.random_range(PORTS))
        .find(|port| is_free(*port) && is_free(port + BUS))
        .context("no free port was found on the loopback interface")
}
