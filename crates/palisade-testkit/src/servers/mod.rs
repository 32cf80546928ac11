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

#[cfg(feature = "certificates")]
mod certificates;
mod children;
mod clock;
mod cluster;
mod etcd;
mod mariadb;
mod newer;
mod peer_net;
mod pgbouncer;
mod ports;
mod postgres;
mod process;
mod redis;
mod resp;
mod sentinel;
mod zookeeper;

#[cfg(feature = "certificates")]
pub use self::certificates::Authority;
pub use self::children::children;
pub use self::cluster::ClusterSet;
pub use self::etcd::{EtcdOptions, EtcdServer, EtcdSet, newer_etcd};
pub use self::mariadb::{MariaDbOptions, MariaDbServer, newer_mysql};
pub use self::pgbouncer::PgBouncer;
pub use self::postgres::{PostgresOptions, PostgresServer, newer_postgres};
pub use self::redis::{Persistence, RedisOptions, RedisServer, TlsFiles};
pub use self::resp::Reply;
pub use self::sentinel::SentinelSet;
pub use self::zookeeper::{ZooKeeperOptions, ZooKeeperServer, ZooKeeperSet, newer_zookeeper};
