//! A deterministic simulation of clients that share one engine.
//!
//! Several real [`palisade::Client`]s, each in a simulated process with a clock of its own, talk to
//! one memory store over a simulated network. Time is virtual, chance follows from a seed: a run
//! can be repeated exactly, message by message. What is done to the nodes (pauses, crashes, cuts,
//! slow lines, messages lost, late or delivered twice, futures cancelled at any await) is a
//! [`Plan`], plain data; a plan that shows a mistake is shrunk to what matters.
//!
//! While faults strike, nothing unsafe may happen; once they are over, everyone is served, and in
//! the end nothing is left behind.
//!
//! ```
//! use palisade_testkit::sim::{Plan, simulate};
//! let run = simulate(&Plan::new(1), None, false);
//! assert!(run.violations.is_empty());
//! ```

mod bug;
mod clock;
mod command;
mod dice;
mod generate;
mod held;
mod judge;
mod line;
mod node;
mod plan;
mod run;
mod seeds;
mod server;
mod shrink;
mod strike;
mod truth;
mod wire;
mod worker;
mod world;

pub use self::bug::Bug;
pub use self::command::main;
pub use self::plan::{Cancel, Effect, End, Fate, Fault, NodePlan, Patience, Phase, Plan, Step, Want, Way};
pub use self::run::{Run, simulate};
pub use self::seeds::{Tally, run_seeds};
pub use self::shrink::shrink;
