//! Real servers as child processes, to be killed, stopped, wiped and put out of time.
//!
//! Each server has a loopback port and a folder of its own, and cannot outlive the process that
//! started it.
//!
//! ```no_run
//! use palisade_testkit::servers::{Persistence, RedisOptions, RedisServer};
//! # async fn example() -> anyhow::Result<()> {
//! let options = RedisOptions { persistence: Persistence::EveryWrite, ..RedisOptions::default() };
//! let server = RedisServer::start(options).await?;
//! println!("redis://{}", server.address());
//! server.kill().await?;
//! server.start_again(false).await?;
//! # Ok(())
//! # }
//! ```

mod clock;
mod cluster;
mod ports;
mod process;
mod redis;
mod resp;
mod sentinel;

pub use self::cluster::ClusterSet;
pub use self::redis::{Persistence, RedisOptions, RedisServer, TlsFiles};
pub use self::resp::Reply;
pub use self::sentinel::SentinelSet;
