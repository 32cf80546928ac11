use std::time::Duration;

use palisade::{Client, Clock, Election, SystemClock};

use crate::args::{Elect, Global};
use crate::connect::{connect, leave};
use crate::exit::{Failure, LOST, Outcome, SOFTWARE, by_signal, complain, is_by_key};
use crate::held::Held;
use crate::process::{Ended, Job, Signals, supervise};
use crate::waiting::{Waited, wait_for};

/// A term that ends by itself sooner than this is followed by a pause: a command that fails at
/// once must not keep the engine busy.
const SHORTEST_TERM: Duration = Duration::from_secs(1);

/// Runs a command while leading.
pub(crate) async fn elect(global: &Global, args: &Elect) -> Outcome {
    let mut signals = Signals::listen().map_err(|problem| Failure::new(SOFTWARE, problem.to_string()))?;
    let client = connect(global, args.command.first().map(AsRef::as_ref)).await?;
    let outcome = terms(global, args, &client, &mut signals).await;
    leave(client).await;
    outcome
}

async fn terms(global: &Global, args: &Elect, client: &Client, signals: &mut Signals) -> Outcome {
    let mut election = client.election(&args.name)?;
    if let Some(ttl) = args.ttl {
        election = election.ttl(ttl);
    }
    loop {
        let began = SystemClock.now();
        match term(global, args, client, &election, signals).await? {
            Term::Over(outcome) if !args.forever => return outcome,
            Term::Over(Err(lost)) => drop(lost.report()),
            Term::Over(Ok(code)) => complain(&format!("{}: the command ended with {code}", args.name)),
            Term::Left(code) => return Ok(code),
        }
        if SystemClock.now().saturating_since(began) < SHORTEST_TERM {
            tokio::select! {
                () = tokio::time::sleep(SHORTEST_TERM) => {}
                signal = signals.next_ending() => return Ok(by_signal(signal.as_raw())),
            }
        }
    }
}

/// How a term ended.
enum Term {
    /// The command ended, or we were deposed.
    Over(Outcome),
    /// We were asked to leave.
    Left(u8),
}

async fn term(
    global: &Global,
    args: &Elect,
    client: &Client,
    election: &Election,
    signals: &mut Signals,
) -> Outcome<Term> {
    let campaign = election.campaign(args.value.clone());
    let leadership = match wait_for(client, &[&args.name], global.verbose, campaign, signals).await {
        Waited::Done(leadership) => leadership?,
        Waited::Signal(signal) => return Ok(Term::Left(by_signal(signal.as_raw()))),
    };
    let held = Held::Leader(leadership);
    let job = Job {
        command: &args.command,
        exports: held.exports(&args.name),
        at_most: None,
        lifeline: client.engine().lifeline(),
    };
    Ok(match supervise(held, job, signals).await? {
        Ended::Command { code, asked, .. } if asked || is_by_key(code) => Term::Left(code),
        Ended::Command { code, .. } => Term::Over(Ok(code)),
        Ended::Lost { reason, .. } => Term::Over(Err(Failure::new(
            LOST,
            format!("{}: deposed, and the command was stopped: {reason}", args.name),
        ))),
    })
}
