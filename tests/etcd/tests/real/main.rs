//! What only a real etcd can show.

mod arrival;
mod fenced_txn;
mod foreign;
mod handover;
mod restored;
mod slow;
mod tls;
mod trouble;
