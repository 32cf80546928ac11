//! What only a real SQL server can show.

mod advisory;
mod advisory_trouble;
mod alike;
mod blocked;
mod doubt;
mod leases;
mod mariadb;
mod mariadb_advisory;
mod mariadb_advisory_trouble;
mod mariadb_trouble;
mod mariadb_wake;
mod multiplexer;
mod names;
mod plans;
mod promoted;
mod rights;
mod schema;
mod shedlock;
mod tls;
mod trouble;
mod waiters;
