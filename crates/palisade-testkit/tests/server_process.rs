//! The remote engine's server as a process: killed, started again, and gone with its parent.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Claim, Claimed, Engine, Mode, Name, Owner, Renewed, Token, Ttl};
use palisade_testkit::remote::{RemoteEngine, ServerOptions, ServerProcess};

const PROGRAM: &str = env!("CARGO_BIN_EXE_palisade-remote");

fn options(epoch: u32) -> ServerOptions {
    ServerOptions { source: Some("kept".to_owned()), epoch, ..ServerOptions::default() }
}

fn claim() -> Arc<Claim> {
    let owner = Arc::new(Owner::this_process());
    Arc::new(Claim::new(Name::new("a").unwrap(), Mode::Exclusive, Ttl::default(), owner))
}

async fn take(engine: &RemoteEngine, claim: &Arc<Claim>) -> Token {
    match engine.claim(claim).await.unwrap() {
        Claimed::Granted(grant) => grant.token,
        other => panic!("a grant was expected, not {other:?}"),
    }
}

#[tokio::test]
async fn a_client_finds_the_server_that_was_started_again() {
    let server = ServerProcess::start(Command::new(PROGRAM), None, &options(1)).await.unwrap();
    let address = server.address();
    let engine = RemoteEngine::connect(address, "").await.unwrap();
    let held = claim();
    let first = take(&engine, &held).await;
    server.kill().await.unwrap();
    let down = engine.renew(std::slice::from_ref(&held)).await.unwrap_err();
    assert!(down.is_transient(), "{down}");
    let server = ServerProcess::start(Command::new(PROGRAM), Some(address), &options(2)).await.unwrap();
    let renewed = engine.renew(std::slice::from_ref(&held)).await.unwrap();
    assert!(matches!(renewed[..], [Renewed::Gone(_)]), "{renewed:?}");
    assert!(take(&engine, &claim()).await > first);
    server.kill().await.unwrap();
}

#[test]
fn it_ends_with_whoever_started_it() {
    let mut server = Command::new(PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    drop(server.stdin.take());
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(server.wait()));
    let status = end.recv_timeout(Duration::from_secs(20)).expect("it ends");
    assert!(status.unwrap().success());
}
