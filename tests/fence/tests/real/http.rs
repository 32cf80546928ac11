//! The layer before HTTP handlers, on a real server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::Extension;
use axum::routing::post;
use palisade_core::Name;
use palisade_fence::http::{FenceLayer, Fences, MemoryFences, TokenHeader};
use palisade_fence::{Database, Fence, Transaction};
use palisade_fence_trials::{Place, SqlxPostgres, number, soon, token};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A service that counts how often its handler ran.
struct Served {
    address: SocketAddr,
    ran: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve<F: Fences>(layer: FenceLayer<F>) -> Result<Served> {
    let ran = Arc::new(AtomicU32::new(0));
    let count = ran.clone();
    let charge = move |token: Option<Extension<TokenHeader>>| async move {
        count.fetch_add(1, Ordering::Relaxed);
        token.map_or_else(|| "none".to_owned(), |Extension(header)| header.token().token.to_string())
    };
    let router: Router = Router::new().route("/cards/{id}/charge", post(charge)).layer(layer);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(Served { address, ran, task })
}

impl Served {
    /// The status, and all of the answer.
    async fn post(&self, headers: &[String]) -> Result<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).await?;
        let lines: Vec<String> = headers.iter().map(|line| format!("palisade-token: {line}\r\n")).collect();
        let lines = lines.concat();
        let request = format!(
            "POST /cards/7/charge HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n{lines}\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        soon("an answer", stream.read_to_string(&mut answer)).await??;
        let status = answer.split(' ').nth(1).context("a status")?.parse()?;
        Ok((status, answer))
    }

    async fn charge(&self, number: u64, source: &str, resource: &str) -> Result<(u16, String)> {
        let header = TokenHeader::new(&Name::new(resource)?, token(number, source));
        self.post(&[header.to_string()]).await
    }
}

fn of_card(request: &axum::http::request::Parts) -> Option<Name> {
    Name::new(format!("card:{}", request.uri.path().split('/').nth(2)?)).ok()
}

async fn refuses_stale_requests<F: Fences>(fences: F) -> Result<()> {
    let served = serve(FenceLayer::new(fences).resource(of_card)).await?;
    let (status, answer) = served.charge(33, "a", "card:7").await?;
    ensure!(status == 200 && answer.ends_with("33"), "{answer}");
    ensure!(served.charge(34, "a", "card:7").await?.0 == 200, "the next holder");
    ensure!(served.charge(34, "a", "card:7").await?.0 == 200, "again");
    let (status, answer) = served.charge(33, "a", "card:7").await?;
    ensure!(status == 412 && answer.contains("palisade-token-current: 34"), "{answer}");
    ensure!(answer.ends_with(r#"{"error":"stale","yours":"33","current":"34"}"#), "{answer}");
    let (status, answer) = served.charge(35, "b", "card:7").await?;
    ensure!(status == 409 && answer.contains("other-source"), "{answer}");
    ensure!(served.charge(99, "a", "card:8").await?.0 == 400, "of another resource");
    ensure!(served.post(&[]).await?.0 == 428, "missing");
    ensure!(served.post(&["x".to_owned()]).await?.0 == 400, "malformed");
    let twice = "50; resource=card%3A7; source=a".to_owned();
    ensure!(served.post(&[twice.clone(), twice]).await?.0 == 400, "which of the two?");
    ensure!(served.ran.load(Ordering::Relaxed) == 3, "the handler ran for no other request");
    Ok(())
}

#[tokio::test]
async fn a_stale_request_never_reaches_its_handler() -> Result<()> {
    refuses_stale_requests(MemoryFences::default()).await
}

#[tokio::test]
async fn instances_share_what_a_database_keeps() -> Result<()> {
    let place = SqlxPostgres::new().await?;
    let mut database = place.open().await?;
    let mut tx = Database::begin(&mut database).await?;
    Fence::create(&mut tx).await?;
    Transaction::commit(tx).await?;
    refuses_stale_requests(database.clone()).await?;
    let another = serve(FenceLayer::new(place.open().await?)).await?;
    ensure!(another.charge(33, "a", "card:7").await?.0 == 412, "what one has seen the other knows");
    Ok(())
}

#[tokio::test]
async fn a_fence_that_cannot_be_asked_lets_nobody_in() -> Result<()> {
    let served = serve(FenceLayer::new(MemoryFences::default().at_most(0))).await?;
    let (status, answer) = served.charge(1, "a", "card:7").await?;
    ensure!(status == 503 && answer.ends_with(r#"{"error":"unavailable"}"#), "{answer}");
    Ok(())
}

/// Slots and sources that a client invents do not grow what is remembered without bound.
#[tokio::test]
async fn what_a_client_invents_is_bounded() -> Result<()> {
    let place = SqlxPostgres::new().await?;
    let mut database = place.open().await?;
    let mut tx = Database::begin(&mut database).await?;
    Fence::create(&mut tx).await?;
    Transaction::commit(tx).await?;
    let served = [
        serve(FenceLayer::new(database.clone())).await?,
        serve(FenceLayer::new(database.clone()).slots(3)).await?,
    ];
    for (layer, slot, expected) in
        [(0, 0, 200), (0, 1023, 200), (0, 1024, 400), (0, u32::MAX, 400), (1, 2, 200), (1, 3, 400)]
    {
        let (status, answer) = served[layer].post(&[format!("7; resource=r; source=a; slot={slot}")]).await?;
        ensure!(status == expected, "{slot}: {answer}");
    }
    let cells = "SELECT CAST(LENGTH(cells) AS BIGINT) FROM palisade_fence";
    ensure!(number(&mut database, cells).await? < 100, "three slots");
    let long = format!("7; resource=s; source={}", "a".repeat(256));
    ensure!(served[0].post(&[long]).await?.0 == 400, "a source that is too long");
    ensure!(
        number(&mut database, "SELECT COUNT(*) FROM palisade_fence").await? == 1,
        "nothing of it is kept"
    );
    Ok(())
}

#[tokio::test]
async fn strict_and_optional() -> Result<()> {
    let served = serve(FenceLayer::new(MemoryFences::default()).strict().optional()).await?;
    ensure!(served.charge(1, "a", "any").await?.0 == 200, "once");
    let (status, answer) = served.charge(1, "a", "any").await?;
    ensure!(status == 409 && answer.contains("spent"), "{answer}");
    let (status, answer) = served.post(&[]).await?;
    ensure!(status == 200 && answer.ends_with("none"), "{answer}");
    Ok(())
}
