//! Runs a command while something is held, and stops it in time when it no longer is.

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use palisade::{BootInstant, Clock, LostReason, Released, SystemClock};
use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

use super::child::Child;
use super::guardian::Guardian;
use super::signals::{Signals, asks_to_end};
use crate::exit::{CANNOT_RUN, Failure, NO_COMMAND, Outcome, SOFTWARE, by_signal, complain, is_by_key};
use crate::held::Held;
use crate::output::printable;

/// What to run.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) exports: Vec<(&'static str, String)>,
    /// After this time it is stopped.
    pub(crate) at_most: Option<Duration>,
    /// See [`palisade::Engine::lifeline`].
    pub(crate) lifeline: Option<BorrowedFd<'a>>,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The command ended with this code.
    Command {
        code: u8,
        /// palisade was asked to end meanwhile.
        asked: bool,
        /// It was ended by a key at the terminal.
        by_key: bool,
        /// The engine answered the release.
        released: bool,
    },
    /// The command was stopped.
    Lost {
        /// Because of this.
        reason: String,
        /// The engine answered the release.
        released: bool,
    },
}

/// Runs the job while `held` is held, then gives it back. When this returns, the command has ended.
pub(crate) async fn supervise(held: Held, job: Job<'_>, signals: &mut Signals) -> Outcome<Ended> {
    let deaths = unix::signal(SignalKind::child()).map_err(cannot_start)?;
    let inherited = inheritable(job.lifeline).map_err(cannot_start)?;
    let mut guardian = Guardian::spawn().map_err(cannot_start)?;
    let limits = Limits::of(&held, job.at_most);
    guardian.tell_lifeline(inherited.as_ref());
    guardian.tell_exports(&job.exports);
    guardian.tell_until(limits.kill_at(&held));
    let child = match Child::spawn(job.command, &job.exports, &mut guardian) {
        Ok(child) => child,
        Err(problem) => {
            drop(guardian.end());
            let _ = held.release().await;
            return Err(cannot_run(job.command, &problem));
        }
    };
    drop(inherited);
    let mut run = Run { held, child, guardian, limits, stop: None, asked: false, deaths };
    let code = run.until_end(signals).await;
    Ok(run.finish(code).await)
}

fn cannot_start(problem: impl Into<io::Error>) -> Failure {
    Failure::new(SOFTWARE, format!("cannot start the guardian: {}", problem.into()))
}

/// As a shell says it.
fn cannot_run(command: &[OsString], problem: &io::Error) -> Failure {
    let name = command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    match problem.kind() {
        io::ErrorKind::NotFound => Failure::new(NO_COMMAND, format!("{name}: command not found")),
        io::ErrorKind::PermissionDenied => Failure::new(CANNOT_RUN, format!("{name}: permission denied")),
        _ => Failure::new(CANNOT_RUN, format!("{name}: {problem}")),
    }
}

/// A copy of the lifeline that is not closed on exec.
fn inheritable(lifeline: Option<BorrowedFd<'_>>) -> rustix::io::Result<Option<OwnedFd>> {
    lifeline.map(rustix::io::dup).transpose()
}

/// When what happens.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Time between TERM and KILL.
    grace: Duration,
    /// Time between KILL and the deadline.
    margin: Duration,
    /// How often to look whether the deadline has moved.
    look: Duration,
    /// The end of the longest hold.
    end: BootInstant,
}

impl Limits {
    const GRACE: Duration = Duration::from_secs(5);
    /// An evicted command runs beside its successor; it gets just enough time to clean up.
    const EVICTED: Duration = Duration::from_secs(1);
    /// How long to wait for the answer to a release. The command has ended: whoever started us waits
    /// for its exit code, and an engine that is down may not come back for hours.
    const RELEASE: Duration = Duration::from_secs(2);
    /// The same for what is lost already.
    const LAST_TRY: Duration = Duration::from_secs(1);

    fn of(held: &Held, at_most: Option<Duration>) -> Self {
        let ttl = held.ttl();
        let grace = (ttl / 4).min(Self::GRACE);
        Self {
            grace,
            margin: (ttl / 20).max(Duration::from_millis(100)).min(grace / 2),
            look: (ttl / 12).clamp(Duration::from_millis(5), Duration::from_secs(1)),
            end: at_most.map_or(BootInstant::FAR_FUTURE, |at_most| SystemClock.now() + at_most),
        }
    }

    fn kill_at(&self, held: &Held) -> BootInstant {
        match held.deadline() {
            BootInstant::FAR_FUTURE => BootInstant::FAR_FUTURE,
            deadline => deadline.saturating_sub(self.margin),
        }
    }
}

/// Why and by when the command is to end.
#[derive(Debug)]
struct Stop {
    reason: String,
    kill_at: BootInstant,
    killed: bool,
}

struct Run {
    held: Held,
    child: Child,
    guardian: Guardian,
    limits: Limits,
    stop: Option<Stop>,
    asked: bool,
    /// Tells that a child ended or stopped.
    deaths: unix::Signal,
}

impl Run {
    async fn until_end(&mut self, signals: &mut Signals) -> u8 {
        let mut lost = self.held.lost();
        let mut told_lost = false;
        loop {
            if let Some(code) = self.child.ended() {
                return code;
            }
            self.act(SystemClock.now());
            tokio::select! {
                _ = self.deaths.recv() => {}
                signal = signals.next() => self.pass_on(signal),
                reason = &mut lost, if !told_lost => {
                    told_lost = true;
                    self.lost(&reason);
                }
                () = tokio::time::sleep(self.limits.look) => {}
            }
        }
    }

    /// Does what is due.
    fn act(&mut self, now: BootInstant) {
        self.guardian.wake();
        let kill_at = self.limits.kill_at(&self.held);
        if self.stop.is_none() {
            // The margin's distance to KILL is the deadline's to TERM, and then some.
            if now >= kill_at.saturating_sub(self.limits.grace.saturating_sub(self.limits.margin)) {
                self.stop(&self.held.why_not_renewed(), kill_at);
            } else if now >= self.limits.end {
                self.stop(&LostReason::HeldTooLong.to_string(), now + Limits::GRACE);
            } else if !self.guardian.is_alive() {
                self.stop("its guardian process was killed", now);
            }
        }
        let kill_at = self.stop.as_ref().map_or(kill_at, |stop| stop.kill_at.min(kill_at));
        if let Some(stop) = &mut self.stop
            && now >= kill_at
            && !stop.killed
        {
            stop.killed = true;
            self.child.signal(Signal::KILL);
        }
        self.guardian.tell_until(kill_at);
    }

    fn lost(&mut self, reason: &LostReason) {
        let now = SystemClock.now();
        // Everything but an eviction is told at the deadline, when there is no time left.
        let time = match reason {
            LostReason::Evicted { .. } => Limits::EVICTED,
            _ => Duration::ZERO,
        };
        let trouble = match reason {
            LostReason::EngineUnreachable => self.held.trouble(),
            _ => String::new(),
        };
        self.stop(&format!("{reason}{trouble}"), now + time);
    }

    /// Asks the command to end, and kills it at `kill_at` if it has not. Being asked to stop
    /// twice, the first reason and the earlier moment count.
    fn stop(&mut self, reason: &str, kill_at: BootInstant) {
        match &mut self.stop {
            Some(stop) => stop.kill_at = stop.kill_at.min(kill_at),
            None => {
                // Operators and servers have their words in it.
                self.stop = Some(Stop { reason: printable(reason), kill_at, killed: false });
                self.child.signal(Signal::TERM);
                // A stopped process does not see the request.
                self.child.signal(Signal::CONT);
            }
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        self.asked |= asks_to_end(signal);
        if signal == Signal::CONT {
            self.child.give_terminal();
        }
        self.child.signal(signal);
    }

    async fn finish(self, code: u8) -> Ended {
        let Self { held, child, guardian, stop, asked, mut deaths, .. } = self;
        if stop.is_some() {
            // What the command left running has lost the lock too.
            child.kill_rest().await;
        }
        // A key may be pressed before the command has the terminal: then it reaches us, and we pass
        // it on.
        let heard = child.has_terminal() || (asked && child.is_at_terminal());
        let by_key = heard && is_by_key(code);
        drop(child);
        let (killed_by_guardian, _dying) = if code == by_signal(Signal::KILL.as_raw()) {
            (guardian.dismiss(&mut deaths).await, None)
        } else {
            (false, Some(guardian.end()))
        };
        if let Some(stop) = stop {
            let released = matches!(tokio::time::timeout(Limits::LAST_TRY, held.release()).await, Ok(Ok(_)));
            return Ended::Lost { reason: stop.reason, released };
        }
        let answer = give_back(held).await;
        let released = answer.is_some();
        if killed_by_guardian {
            return Ended::Lost { reason: LostReason::PausedTooLong.to_string(), released };
        }
        match answer {
            Some(Released::TooLate) => {
                Ended::Lost { reason: "it was gone before the command ended".to_owned(), released }
            }
            Some(Released::InTime) | None => Ended::Command { code, asked, by_key, released },
        }
    }
}

/// Releases what was held until the command ended. `None`, and why is said, if no answer came: the
/// command ended in time, and others wait for one TTL at most.
async fn give_back(held: Held) -> Option<Released> {
    let names: Vec<String> = held.guards().iter().map(|guard| printable(guard.resource().as_str())).collect();
    let ttl = humantime::format_duration(held.ttl());
    let trouble = held.trouble();
    let why = match tokio::time::timeout(Limits::RELEASE, held.release()).await {
        Ok(Ok(released)) => return Some(released),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("the engine did not answer within {:?}{trouble}", Limits::RELEASE),
    };
    complain(&format!(
        "{}: the command ended, but the release is not confirmed: {}; others wait for {ttl} at most",
        names.join(", "),
        printable(&why)
    ));
    None
}
