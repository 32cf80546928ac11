use std::time::Duration;

use palisade::{Client, OnceOutcome};

use crate::args::{Global, Run};
use crate::connect::{connect, leave};
use crate::exit::{Failure, LOST, NOT_OBTAINED, Outcome, SOFTWARE, by_signal};
use crate::held::Held;
use crate::process::{Ended, Job, Signals, die_by_key, supervise};
use crate::waiting::{Waited, turned_away, wait_for};

/// Runs a command while holding a lock.
pub(crate) async fn run(global: &Global, args: &Run) -> Outcome {
    let mut signals = Signals::listen().map_err(|problem| Failure::new(SOFTWARE, problem.to_string()))?;
    let client = connect(global, args.command.first().map(AsRef::as_ref)).await?;
    let mut end = End::default();
    let outcome = hold_and_run(global, args, &client, &mut signals, &mut end).await;
    if !end.unanswered && !outcome.as_ref().is_err_and(Failure::is_unavailable) {
        leave(client).await;
    }
    if let (Ok(code), true) = (&outcome, end.by_key) {
        die_by_key(*code);
    }
    outcome
}

/// What remains to be known of a run besides its outcome.
#[derive(Debug, Default)]
struct End {
    /// The command was ended by a key at the terminal.
    by_key: bool,
    /// The engine did not answer the release.
    unanswered: bool,
}

async fn hold_and_run(
    global: &Global,
    args: &Run,
    client: &Client,
    signals: &mut Signals,
    end: &mut End,
) -> Outcome {
    let names: Vec<&str> = std::iter::once(&args.name).chain(&args.and).map(String::as_str).collect();
    let taken = take(client, args, &names);
    let held = match wait_for(client, &names, global.verbose, taken, signals).await {
        Waited::Done(held) => held?,
        Waited::Signal(signal) => return Ok(by_signal(signal.as_raw())),
    };
    let job = Job {
        command: &args.command,
        exports: held.exports(&args.name),
        at_most: args.at_most,
        lifeline: client.engine().lifeline(),
    };
    match supervise(held, job, signals).await? {
        Ended::Command { code, by_key, released, .. } => {
            *end = End { by_key, unanswered: !released };
            Ok(code)
        }
        Ended::Lost { reason, released } => {
            end.unanswered = !released;
            let message = format!("{}: the lock was lost and the command was stopped: {reason}", args.name);
            Err(Failure::new(LOST, message))
        }
    }
}

/// Takes what the options ask for.
async fn take(client: &Client, args: &Run, names: &[&str]) -> Outcome<Held> {
    let limit = if args.no_wait { Some(Duration::ZERO) } else { args.wait };
    let taken = if let Some(at_least) = args.at_least {
        return once(client, args, at_least, limit).await;
    } else if args.shared {
        shared(client, args, limit).await?
    } else if let Some(slots) = args.slots {
        slot(client, args, slots, limit).await?
    } else if args.and.is_empty() {
        mutex(client, args, limit).await?
    } else {
        many(client, args, names, limit).await?
    };
    match taken {
        Some(held) => Ok(held),
        None => Err(Failure::new(NOT_OBTAINED, turned_away(client, names, limit.unwrap_or_default()).await)),
    }
}

/// Why a run with `--at-least` did not begin.
fn not_obtained(args: &Run, why: &str) -> Failure {
    Failure::new(NOT_OBTAINED, format!("{}: not obtained: {why}", args.name))
}

/// Asks the recipe with the patience that `limit` means.
macro_rules! within {
    ($recipe:expr, $ttl:expr, $limit:expr, $wait:ident, $try:ident, $within:ident, $held:path) => {{
        let mut recipe = $recipe;
        if let Some(ttl) = $ttl {
            recipe = recipe.ttl(ttl);
        }
        let guard = match $limit {
            None => Some(recipe.$wait().await?),
            Some(Duration::ZERO) => recipe.$try().await?,
            Some(limit) => recipe.$within(limit).await?,
        };
        Ok(guard.map($held))
    }};
}

type Taken = palisade::Result<Option<Held>>;

async fn mutex(client: &Client, args: &Run, limit: Option<Duration>) -> Taken {
    within!(client.mutex(&args.name)?, args.ttl, limit, acquire, try_acquire, acquire_within, Held::Mutex)
}

async fn shared(client: &Client, args: &Run, limit: Option<Duration>) -> Taken {
    within!(client.rw_lock(&args.name)?, args.ttl, limit, read, try_read, read_within, Held::Shared)
}

async fn slot(client: &Client, args: &Run, slots: u32, limit: Option<Duration>) -> Taken {
    let semaphore = client.semaphore(&args.name, slots)?;
    within!(semaphore, args.ttl, limit, acquire, try_acquire, acquire_within, Held::Slot)
}

async fn many(client: &Client, args: &Run, names: &[&str], limit: Option<Duration>) -> Taken {
    within!(client.many(names)?, args.ttl, limit, acquire, try_acquire, acquire_within, Held::Many)
}

async fn once(client: &Client, args: &Run, at_least: Duration, limit: Option<Duration>) -> Outcome<Held> {
    let mut job = client.once(&args.name)?.at_least(at_least);
    if let Some(ttl) = args.ttl {
        job = job.ttl(ttl);
    }
    match job.begin(limit).await? {
        OnceOutcome::Ran(guard) => Ok(Held::Mutex(guard)),
        OnceOutcome::Running => Err(not_obtained(args, "another runs it now")),
        OnceOutcome::TooSoon { ready_in } => {
            let ready_in = humantime::format_duration(Duration::from_millis(ready_in.as_millis() as u64));
            Err(not_obtained(
                args,
                &format!("the last run began too recently; the next is due in {ready_in}"),
            ))
        }
    }
}
