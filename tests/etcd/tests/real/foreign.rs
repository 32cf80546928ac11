//! etcd's own tools on the same locks, as processes of their own.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade_etcd_trials::{client, one, soon, until, url};
use palisade_testkit::servers::EtcdSet;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// `etcdctl lock NAME`, or `elect`, and the lines that it prints.
struct Ctl {
    child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl Ctl {
    fn start(set: &EtcdSet, args: &[&str]) -> Result<Self> {
        let mut command = Command::new("etcdctl");
        command.arg(format!("--endpoints={}", set.hosts())).args(args).env("ETCDCTL_API", "3");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        Ok(Self { child, lines })
    }

    async fn line(&mut self) -> Result<String> {
        soon("etcdctl says something", self.lines.next_line()).await??.context("it has ended")
    }

    /// Ends it as a person does, so that it gives its lock back.
    async fn interrupt(mut self) -> Result<()> {
        let pid = self.child.id().context("it runs")?.to_string();
        Command::new("kill").args(["-INT", &pid]).status().await?;
        soon("etcdctl ends", self.child.wait()).await??;
        Ok(())
    }
}

#[tokio::test]
async fn etcdctl_lock_keeps_us_out_and_hands_over() -> Result<()> {
    let set = one().await?;
    let client = client(&url(&set)).await?;
    let lock = client.mutex("orders")?;
    let mut theirs = Ctl::start(&set, &["lock", "orders"])?;
    let key = theirs.line().await?;
    ensure!(key.starts_with("orders/"), "{key}");
    ensure!(lock.try_acquire().await?.is_none(), "two hold at once");
    let shown = client.show("orders").await?;
    let label = shown.holders[0].owner.label.clone().unwrap_or_default();
    ensure!(label.contains("not a Palisade client"), "{shown:?}");
    let mut waiting = Box::pin(lock.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err(),
        "two hold at once"
    );
    theirs.interrupt().await?;
    soon("our turn", waiting).await??.release().await?;
    Ok(())
}

#[tokio::test]
async fn etcdctl_lock_waits_for_us_and_is_told() -> Result<()> {
    let set = one().await?;
    let client = client(&url(&set)).await?;
    for shared in [false, true] {
        let lock = client.rw_lock("orders")?;
        let (writer, reader) =
            if shared { (None, Some(lock.read().await?)) } else { (Some(lock.write().await?), None) };
        let mut theirs = Ctl::start(&set, &["lock", "orders"])?;
        let early = tokio::time::timeout(Duration::from_millis(500), theirs.lines.next_line()).await;
        ensure!(early.is_err(), "two hold at once: {early:?}");
        // Who comes later waits behind it.
        ensure!(lock.try_write().await?.is_none(), "we came in before it");
        if let Some(guard) = writer {
            guard.release().await?;
        }
        if let Some(guard) = reader {
            guard.release().await?;
        }
        ensure!(theirs.line().await?.starts_with("orders/"), "it has another lock");
        theirs.interrupt().await?;
    }
    Ok(())
}

#[tokio::test]
async fn etcdctl_elect_sees_our_leader_and_follows_it() -> Result<()> {
    let set = one().await?;
    let client = client(&url(&set)).await?;
    let election = client.election("primary")?;
    let leader = election.campaign("10.0.0.7:80").await?;
    let mut watching = Ctl::start(&set, &["elect", "--listen", "primary"])?;
    let (key, value) = (watching.line().await?, watching.line().await?);
    ensure!(key.starts_with("primary/") && value == "10.0.0.7:80", "{key} {value}");
    leader.proclaim("10.0.0.8:80").await?;
    let (_, value) = (watching.line().await?, watching.line().await?);
    ensure!(value == "10.0.0.8:80", "{value}");
    let mut theirs = Ctl::start(&set, &["elect", "primary", "10.0.0.9:80"])?;
    until("it stands for election", || async { Ok(client.show("primary").await?.waiters.len() == 1) })
        .await?;
    leader.resign().await?;
    let (_, value) = (theirs.line().await?, theirs.line().await?);
    ensure!(value == "10.0.0.9:80", "{value}");
    let shown = client.show("primary").await?;
    ensure!(shown.holders[0].value.as_deref() == Some(b"10.0.0.9:80"), "{shown:?}");
    theirs.interrupt().await
}

#[tokio::test]
async fn a_lock_with_slashes_is_reached_by_a_prefix() -> Result<()> {
    let set = one().await?;
    let mut theirs = Ctl::start(&set, &["lock", "/app/locks/orders"])?;
    theirs.line().await?;
    let client = client(&format!("{}?prefix=/app/locks/", url(&set))).await?;
    ensure!(client.mutex("orders")?.try_acquire().await?.is_none(), "two hold at once");
    // And one below it is another one.
    ensure!(client.mutex("orders/1")?.try_acquire().await?.is_some(), "they have nothing in common");
    theirs.interrupt().await
}

/// Asks the server's own lock service, through its HTTP gateway.
async fn rpc(set: &EtcdSet, verb: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(set.servers[0].address()).await?;
    let length = body.len();
    let request = format!("POST /v3/lock/{verb} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.starts_with("HTTP/1.0 200") || answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(answer)
}

#[tokio::test]
async fn the_lock_rpc_stands_in_the_same_line() -> Result<()> {
    let set = one().await?;
    let client = client(&url(&set)).await?;
    let lock = client.mutex("orders")?;
    let guard = lock.acquire().await?;
    // "orders" in base64.
    let mut theirs = Box::pin(rpc(&set, "lock", r#"{"name":"b3JkZXJz"}"#));
    ensure!(tokio::time::timeout(Duration::from_millis(500), &mut theirs).await.is_err(), "two hold at once");
    guard.release().await?;
    let answer = soon("its turn", theirs).await??;
    ensure!(lock.try_acquire().await?.is_none(), "two hold at once");
    let mut waiting = Box::pin(lock.acquire());
    ensure!(
        tokio::time::timeout(Duration::from_millis(300), &mut waiting).await.is_err(),
        "two hold at once"
    );
    let (_, key) = answer.rsplit_once("\"key\":\"").context("it names its key")?;
    let key = key.split('"').next().context("it names its key")?;
    rpc(&set, "unlock", &format!(r#"{{"key":"{key}"}}"#)).await?;
    soon("our turn", waiting).await??.release().await?;
    Ok(())
}
