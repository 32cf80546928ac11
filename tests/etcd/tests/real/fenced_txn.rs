//! A transaction of the caller's own, through `etcdctl`, behind a fence.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use palisade_core::FencingToken;
use palisade_etcd::FencedTxn;
use palisade_etcd_trials::{client, one, url};
use palisade_testkit::servers::EtcdSet;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs a transaction as a person would type it. Returns whether it passed.
async fn txn(set: &EtcdSet, compares: &[String], puts: &[String]) -> Result<bool> {
    let mut command = Command::new("etcdctl");
    command.arg(format!("--endpoints={}", set.hosts())).arg("txn").env("ETCDCTL_API", "3");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let text = format!("{}\n\n{}\n\n\n", compares.join("\n"), puts.join("\n"));
    child.stdin.take().context("its input")?.write_all(text.as_bytes()).await?;
    let output = child.wait_with_output().await?;
    ensure!(output.status.success(), "etcdctl failed");
    Ok(String::from_utf8_lossy(&output.stdout).starts_with("SUCCESS"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Puts the fence there, if it is not yet.
async fn open(set: &EtcdSet, fenced: &FencedTxn) -> Result<()> {
    let key = text(fenced.key());
    let new = format!("c(\"{key}\") = \"0\"");
    let mark = format!("put {key} \"{}\"", text(fenced.mark()));
    if !txn(set, &[new], std::slice::from_ref(&mark)).await? {
        ensure!(write(set, fenced, "opened", "yes").await?, "the fence refuses its latest holder");
    }
    Ok(())
}

async fn write(set: &EtcdSet, fenced: &FencedTxn, key: &str, value: &str) -> Result<bool> {
    let fence = text(fenced.key());
    let compares = [
        format!("val(\"{fence}\") > \"{}\"", text(fenced.above())),
        format!("val(\"{fence}\") < \"{}\"", text(fenced.below())),
    ];
    let puts = [format!("put {fence} \"{}\"", text(fenced.mark())), format!("put {key} {value}")];
    txn(set, &compares, &puts).await
}

#[tokio::test]
async fn only_the_latest_holder_writes() -> Result<()> {
    let set = one().await?;
    let client = client(&url(&set)).await?;
    let lock = client.mutex("orders")?;
    let mut holders = Vec::new();
    for _ in 0..2 {
        let guard = lock.acquire().await?;
        let token: FencingToken = guard.fencing_token();
        let fenced = FencedTxn::new("orders-fence", &token)?;
        open(&set, &fenced).await?;
        ensure!(write(&set, &fenced, "balance", &guard.token().to_string()).await?, "the holder is refused");
        guard.release().await?;
        holders.push(fenced);
    }
    ensure!(!write(&set, &holders[0], "balance", "late").await?, "a stale holder wrote");
    ensure!(write(&set, &holders[1], "balance", "again").await?, "equal tokens pass");
    let stored = set.servers[0].ctl(&["get", "balance", "--print-value-only"]).await?;
    ensure!(stored.trim() == "again", "{stored}");
    Ok(())
}
