//! What only a real ZooKeeper can show.

mod arrival;
mod fenced_multi;
mod foreign;
mod nodes;
mod partition;
mod tls;
mod trouble;
