//! The end of a run: everything must be free again, and what was acknowledged must be there.

use std::time::Duration;

use anyhow::{Context, Result};
use palisade::{Client, Condition};

use super::station::Station;
use super::teller::now;
use super::workload::Workload;
use crate::check::Violation;
use crate::history::{Answer, Call};

/// Takes every resource once more, and reads every register, as last operations.
pub(super) async fn last_words(
    at: &Station,
    workloads: &[Workload],
    bound: Duration,
) -> Result<Vec<Violation>> {
    let mut violations = Vec::new();
    for workload in workloads {
        for key in workload.resources() {
            if !workload.take_once(at, &key, bound).await {
                let what = format!("{bound:?} after everything was over, it still could not be had");
                violations.push(violation("progress", &key, what));
            }
        }
        for key in workload.registers() {
            let op = at.teller.call(&key, Call::Read);
            let register = at.registers.register(&key)?;
            let entry = at_last(async || register.read().await).await.context("a last read failed")?;
            let value = entry.value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            at.teller.answer(op, Answer::Value { value, version: Some(entry.version.get()) });
            // The engine may be the user's own. Version and fence stay, as the contract has it.
            let deleted = at_last(async || register.delete(Condition::always()).await).await;
            deleted.context("a register could not be deleted")?;
        }
    }
    Ok(violations)
}

/// What is still claimed after all clients closed, and stays so for `bound`.
pub(super) async fn leaks(client: &Client, bound: Duration) -> Result<Vec<Violation>> {
    let end = tokio::time::Instant::now() + bound;
    loop {
        let left = at_last(async || client.list("").await).await;
        let left = left.context("the engine could not be asked what is left")?;
        if left.is_empty() {
            return Ok(Vec::new());
        }
        if tokio::time::Instant::now() >= end {
            let what = |view: &palisade::ResourceView| {
                let (holders, waiters) = (view.holders.len(), view.waiters.len());
                format!("{holders} holders and {waiters} waiters are left although everyone has gone")
            };
            return Ok(left
                .iter()
                .map(|view| violation("leaks", view.resource.as_str(), what(view)))
                .collect());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Asks again while the engine is just slow: a run is not lost because its last question came late.
async fn at_last<T>(ask: impl AsyncFn() -> palisade::Result<T>) -> palisade::Result<T> {
    const PATIENCE: Duration = Duration::from_secs(30);
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        match ask().await {
            Err(error) if error.is_transient() && tokio::time::Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer,
        }
    }
}

pub(super) fn violation(checker: &'static str, key: &str, what: String) -> Violation {
    Violation { checker, key: key.to_owned(), at: now(), what, ops: Vec::new() }
}
