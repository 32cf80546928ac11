//! Palisade's Redis engine: one server, Sentinel or Cluster.

mod address;
mod config;

pub use address::HostPort;
pub use config::{Dialect, KeyPattern, Login, RedisConfig, Servers, Tls};
mod engine;
pub use engine::{RedisEngine, profile};
