//! What only a real Redis can show.

mod arrival;
mod bare;
mod clock;
mod crowd;
mod failover;
mod fenced_script;
mod foreign;
mod line;
mod loss;
mod tls;
mod trouble;
