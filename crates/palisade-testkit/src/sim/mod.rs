//! A deterministic simulation of clients that share one engine.
//!
//! Several real [`palisade::Client`]s, each in a simulated process with a clock of its own, talk to
//! one memory store over a simulated network. Time is virtual, chance follows from a seed: a run
//! can be repeated exactly, message by message. What is done to the nodes (pauses, crashes, cuts,
//! slow lines, messages lost, late or delivered twice, futures cancelled half-way) is a [`Plan`],
//! plain data; a plan that shows a mistake is shrunk to what matters.
//!
//! While faults strike, nothing unsafe may happen; once they are over, everyone is served, and in
//! the end nothing is left behind.
//!
//! # What it does not show
//!
//! - **Engines.** There is one memory store behind the lines, which never fails, restarts or loses
//!   anything. What a real engine does is up to its own tests.
//! - **Threads.** A node runs on one thread, and time stands still while it does: it is interrupted
//!   at an `await` only. Nodes that can run at one moment do so in the order of their numbers.
//! - **Every cancellation.** One step in five is cancelled, in one of its parts (to acquire, open,
//!   write or release), before its first poll or after up to seven. Parts that take more polls are
//!   not cancelled later than that.
//! - **Everything twice.** Only requests that can be repeated by contract arrive twice: claims,
//!   renewals, withdrawals, inspections. Waits, changes, reads, writes, deletions and evictions do
//!   not; no answer comes twice, and no unasked word of the server.
//! - **Lines that break under way.** A cut loses requests that are sent and answers that are given
//!   while it lasts, not what is on its way when it begins. Unasked words are lost with answers, and
//!   late by what is usual for the line; single ones are never lost or late by themselves.
//! - **Clocks that jump.** Each differs from the others by a fixed amount and runs at a fixed rate,
//!   at most 2000 ppm from the world's.
//! - **Size.** A seed has 2 to 4 nodes with 1 to 3 tasks of 1 to 5 steps, on 1 or 2 keys of each
//!   kind. Faults begin within the first 8 TTLs; those of single messages strike the first 40 of a
//!   node and delay them by 2 TTLs at most.
//!
//! Bounds are part of what is checked, and generous: with nothing in the way a free lock may take
//! 5 TTLs, two time limits of a call and 3 s to find its next holder, and in the calm all that is
//! planned may take as long as if one came after the other.
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
