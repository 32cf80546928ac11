//! What is asked of every SQL server in the same way.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use palisade::{Client, ErrorKind, LostReason, Released};
use palisade_core::{Claim, Claimed, Mode, Name, Owner, Ttl};
use palisade_sql_trials::{soon, until};
use palisade_testkit::CancelAfter;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::Instant;

/// Has sixteen processes come to a server at the same moment, each to take a lock.
///
/// # Errors
/// One of them fails, or two have the same token.
pub(crate) async fn sixteen_come_at_once(url: &str) -> Result<()> {
    let url = format!("{url}?connect-timeout=30s&call-timeout=30s");
    let mut openers = Vec::new();
    for _ in 0..16 {
        let mut opener = Command::new(env!("CARGO_BIN_EXE_palisade-sql-opener"));
        opener
            .arg(&url)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        openers.push(opener.spawn()?);
    }
    let mut tokens = BTreeSet::new();
    for opener in openers {
        let output = opener.wait_with_output().await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        tokens.insert(String::from_utf8(output.stdout)?.trim().parse::<u64>()?);
    }
    ensure!(tokens.len() == 16, "two have one token: {tokens:?}");
    Ok(())
}

/// Takes a lock, waits for it and gives it back, by turns, while `cut` ends every connection again and again.
///
/// # Errors
/// A turn does not come, or a token falls, or two hold at once.
pub(crate) async fn turns_while_cut(
    one: &Client,
    two: &Client,
    cut: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    let (done, seen) = watch::channel(0);
    let work = async move {
        let mut last = None;
        for turn in 0..TURNS {
            let (client, other) = if turn % 2 == 0 { (one, two) } else { (two, one) };
            let guard = soon("a turn", client.mutex("orders")?.acquire()).await??;
            ensure!(last < Some(guard.token()), "the token fell");
            last = Some(guard.token());
            let lock = other.mutex("orders")?;
            let next = tokio::spawn(async move { lock.acquire().await });
            // Long enough for it to come in, if it could.
            tokio::time::sleep(Duration::from_millis(5)).await;
            ensure!(!next.is_finished(), "two hold at once");
            drop(guard);
            let guard = soon("the next turn", next).await???;
            ensure!(last < Some(guard.token()), "the token fell");
            last = Some(guard.token());
            drop(guard);
            done.send_replace(turn + 1);
        }
        anyhow::Ok(())
    };
    let (worked, cut) = futures::join!(work, cut_between(seen, TURNS, cut));
    worked?;
    cut
}

const TURNS: u32 = 60;

/// Cuts at two moments of each turn, whichever: faster than that, a slow server would never come to an end of one.
pub(crate) async fn cut_between(
    mut seen: watch::Receiver<u32>,
    turns: u32,
    cut: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    let mut took = Duration::from_millis(20);
    while *seen.borrow_and_update() < turns {
        let began = Instant::now();
        for _ in 0..2 {
            tokio::time::sleep(took.mul_f64(rand::random::<f64>() / 2.0)).await;
            cut().await?;
        }
        // An error of the work ends the turns.
        if seen.changed().await.is_err() {
            break;
        }
        took = began.elapsed();
    }
    Ok(())
}

/// Gives locks back and does not wait for it, at one step after the other, while another is held over the same connection.
///
/// # Errors
/// The other is lost, or one of them stays.
pub(crate) async fn a_dropped_release_concerns_no_other(one: &Client, two: &Client) -> Result<()> {
    const MOST: usize = 100;
    let kept = one.mutex("kept")?.acquire().await?;
    for polls in 0..MOST {
        let (name, owner) = (Name::new("orders")?, Arc::new(Owner::this_process()));
        let claim = Arc::new(Claim::new(name, Mode::Exclusive, Ttl::new(kept.ttl())?, owner));
        ensure!(matches!(one.engine().claim(&claim).await?, Claimed::Granted(_)), "it was free");
        // Only what others are shown takes two steps to be given back.
        until("others are shown it", async || Ok(two.show("orders").await?.holders.len() == 1)).await?;
        let released = CancelAfter::new(polls, one.engine().withdraw(slice::from_ref(&claim))).await;
        one.engine().withdraw(slice::from_ref(&claim)).await?;
        soon("a turn after it", two.mutex("orders")?.acquire()).await??.release().await?;
        ensure!(kept.is_valid(), "another lock of the same connection was lost by it");
        if released.is_ok() {
            return Ok(());
        }
    }
    anyhow::bail!("it paused more often than {MOST} times")
}

/// Ends the connections of a holder of session locks.
///
/// # Errors
/// It is not told, or what it had is in the way of the next.
pub(crate) async fn a_holder_whose_connection_ends_is_told(
    one: &Client,
    two: &Client,
    cut: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    let guards = [one.mutex("orders")?.acquire().await?, one.mutex("bills")?.acquire().await?];
    cut().await?;
    for guard in &guards {
        let why = soon("the loss", guard.lost()).await?;
        ensure!(why == LostReason::SessionLost, "it was lost because of {why:?}");
        ensure!(!guard.is_valid(), "it calls itself valid");
    }
    // Another has it, and the late release of the first does not touch it.
    let next = soon("the next turn", two.mutex("orders")?.acquire()).await??;
    ensure!(next.token() > guards[0].token(), "the token fell");
    for guard in guards {
        ensure!(guard.release().await? == Released::TooLate, "what was lost was released in time");
    }
    ensure!(one.mutex("orders")?.try_acquire().await?.is_none(), "two hold at once");
    next.release().await?;
    one.mutex("orders")?.acquire().await?.release().await?;
    Ok(())
}

/// Takes session locks by turns while `cut` ends every connection again and again.
///
/// # Errors
/// A turn does not come, or fails for another reason than a loss, or a token falls.
pub(crate) async fn session_turns_while_cut(
    one: &Client,
    two: &Client,
    turns: u32,
    cut: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    let (done, seen) = watch::channel(0);
    let work = async move {
        let mut last = None;
        for turn in 0..turns {
            let client = if turn % 2 == 0 { one } else { two };
            match soon("a turn", client.mutex("orders")?.acquire()).await? {
                Ok(guard) => {
                    ensure!(last < Some(guard.token()), "the token fell");
                    last = Some(guard.token());
                }
                // Its connection was cut before it could be told.
                Err(error) => ensure!(error.kind() == ErrorKind::Lost, "{error}"),
            }
            done.send_replace(turn + 1);
        }
        anyhow::Ok(())
    };
    let (worked, cut) = futures::join!(work, cut_between(seen, turns, cut));
    worked?;
    cut
}
