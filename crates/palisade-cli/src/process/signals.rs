//! The signals that palisade passes on.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use nix::sys::signal::{SigSet, SigmaskHow, Signal as Blocked};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Those that people and shells send to a job.
const FORWARDED: [Signal; 8] = [
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TERM,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
];

/// Signals as they come in, from when this was made.
#[derive(Debug)]
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Listens, except to what our parent made us ignore: under `nohup` both we and the command
    /// go on ignoring it.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        FORWARDED
            .into_iter()
            .filter(|signal| ignored & (1 << (signal.as_raw() - 1)) == 0)
            .map(|signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?)))
            .collect::<io::Result<_>>()
            .map(Self)
    }

    /// The next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that asks to end.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if asks_to_end(signal) {
                return signal;
            }
        }
    }
}

/// Whether the signal means: stop what you do.
pub(crate) fn asks_to_end(signal: Signal) -> bool {
    matches!(signal, Signal::HUP | Signal::INT | Signal::QUIT | Signal::TERM)
}

/// Does `work`, such as starting a process that inherits this, with these signals blocked.
pub(super) fn while_blocked<T>(signals: &[Blocked], work: impl FnOnce() -> T) -> T {
    let signals: SigSet = signals.iter().copied().collect();
    let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let done = work();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    done
}

/// The set of ignored signals as the kernel tells it; nobody else does without `unsafe`.
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}
