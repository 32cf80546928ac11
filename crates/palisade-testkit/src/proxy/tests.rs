use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::{Direction, Proxy, Weather};
use crate::bounded::{bounded, eventually};

const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing must come through.
const QUIET: Duration = Duration::from_millis(100);

/// Says everything back, and counts it.
struct Echo {
    address: SocketAddr,
    heard: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&heard);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let counted = Arc::clone(&counted);
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                        counted.fetch_add(count as u64, Ordering::SeqCst);
                        if stream.write_all(&buffer[..count]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, heard, task: task.abort_handle() }
    }

    async fn hears(&self, bytes: u64) {
        let heard = || async { Ok((self.heard.load(Ordering::SeqCst) >= bytes).then_some(())) };
        eventually(PATIENCE, "the server", heard).await.unwrap();
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn setting() -> (Echo, Proxy, TcpStream) {
    let echo = Echo::start().await;
    let proxy = Proxy::start_seeded(echo.address, 7).await.unwrap();
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    (echo, proxy, client)
}

async fn say(client: &mut TcpStream, text: &str) {
    client.write_all(text.as_bytes()).await.unwrap();
}

async fn hear(client: &mut TcpStream, text: &str) {
    let mut heard = vec![0; text.len()];
    bounded(PATIENCE, "the answer", client.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(heard, text.as_bytes());
}

async fn round_trip(client: &mut TcpStream, text: &str) {
    say(client, text).await;
    hear(client, text).await;
}

async fn hears_nothing(client: &mut TcpStream) {
    let heard = tokio::time::timeout(QUIET, client.read_u8()).await;
    assert!(heard.is_err(), "it heard {heard:?}");
}

/// What the client reads when its connection is no more.
async fn ended(client: &mut TcpStream) -> ErrorKind {
    let read = bounded(PATIENCE, "the end", client.read_u8()).await.unwrap();
    read.expect_err("nothing more was sent").kind()
}

async fn no_connections(proxy: &Proxy) {
    let none = || async { Ok((proxy.connections() == 0).then_some(())) };
    eventually(PATIENCE, "the last connection's end", none).await.unwrap();
}

#[tokio::test]
async fn in_clear_weather_everything_passes_and_is_counted() {
    let (_echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    assert_eq!((proxy.connections(), proxy.bytes()), (1, (5, 5)));
    drop(client);
    no_connections(&proxy).await;
}

#[tokio::test]
async fn a_cut_is_a_reset_for_old_and_new_connections() {
    let (_echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    proxy.set(Weather::Cut);
    assert_eq!(ended(&mut client).await, ErrorKind::ConnectionReset);
    let refused = match TcpStream::connect(proxy.address()).await {
        Ok(mut late) => ended(&mut late).await,
        Err(error) => error.kind(),
    };
    assert_eq!(refused, ErrorKind::ConnectionReset);
    no_connections(&proxy).await;
    proxy.set(Weather::Clear);
    round_trip(&mut TcpStream::connect(proxy.address()).await.unwrap(), "again").await;
}

#[tokio::test]
async fn a_cut_that_is_over_at_once_still_cuts() {
    let (_echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    proxy.set(Weather::Cut);
    proxy.set(Weather::Clear);
    assert_eq!(ended(&mut client).await, ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn in_silence_nothing_passes_and_all_of_it_comes_late() {
    let (echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    proxy.set(Weather::Silent);
    say(&mut client, "late").await;
    let mut newcomer = TcpStream::connect(proxy.address()).await.unwrap();
    say(&mut newcomer, "new").await;
    hears_nothing(&mut client).await;
    hears_nothing(&mut newcomer).await;
    assert_eq!(echo.heard.load(Ordering::SeqCst), 5);
    proxy.set(Weather::Clear);
    hear(&mut client, "late").await;
    hear(&mut newcomer, "new").await;
}

#[tokio::test]
async fn what_a_client_said_before_it_left_comes_late_too() {
    let (echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    proxy.set(Weather::Silent);
    say(&mut client, "last words").await;
    drop(client);
    assert_eq!(echo.heard.load(Ordering::SeqCst), 5);
    proxy.set(Weather::Clear);
    echo.hears(15).await;
    no_connections(&proxy).await;
}

#[tokio::test]
async fn one_way_is_one_way() {
    let (echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    proxy.set(Weather::OneWay(Direction::ToClient));
    say(&mut client, "heard").await;
    echo.hears(10).await;
    hears_nothing(&mut client).await;
    proxy.set(Weather::OneWay(Direction::ToServer));
    hear(&mut client, "heard").await;
    say(&mut client, "unheard").await;
    hears_nothing(&mut client).await;
    assert_eq!(echo.heard.load(Ordering::SeqCst), 10);
    proxy.set(Weather::Clear);
    hear(&mut client, "unheard").await;
}

#[tokio::test]
async fn stranded_connections_are_silent_and_new_ones_pass() {
    let (echo, proxy, mut old) = setting().await;
    round_trip(&mut old, "hello").await;
    proxy.set(Weather::Stranded);
    say(&mut old, "late").await;
    round_trip(&mut TcpStream::connect(proxy.address()).await.unwrap(), "overtaking").await;
    hears_nothing(&mut old).await;
    assert_eq!(echo.heard.load(Ordering::SeqCst), 15);
    proxy.set(Weather::Clear);
    hear(&mut old, "late").await;
}

#[tokio::test]
async fn a_delay_holds_every_chunk_and_keeps_the_order() {
    let (_echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    let by = Duration::from_millis(60);
    proxy.set(Weather::Delay { by, jitter: Duration::from_millis(20) });
    let started = Instant::now();
    for text in ["one ", "two ", "three"] {
        say(&mut client, text).await;
    }
    hear(&mut client, "one two three").await;
    assert!(started.elapsed() >= by * 2, "there and back took {:?}", started.elapsed());
    // Chunks are under way at the same time: it is a long line, not a slow one.
    proxy.set(Weather::Delay { by: Duration::MAX, jitter: Duration::MAX });
    say(&mut client, "held").await;
    hears_nothing(&mut client).await;
    proxy.set(Weather::Clear);
    hear(&mut client, "held").await;
}

#[tokio::test]
async fn a_trickle_takes_its_time() {
    let (_echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    let every = Duration::from_millis(10);
    proxy.set(Weather::Trickle { bytes: 2, every });
    let started = Instant::now();
    round_trip(&mut client, "twelve bytes").await;
    // Six pieces are five pauses; those of the way back run beside them but for the first.
    assert!(started.elapsed() >= every * 5, "it took {:?}", started.elapsed());
    proxy.set(Weather::Trickle { bytes: 0, every: Duration::ZERO });
    round_trip(&mut client, "x").await;
}

#[tokio::test]
async fn after_forwarding_only_the_answer_is_lost() {
    let (echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    let mut other = TcpStream::connect(proxy.address()).await.unwrap();
    proxy.set(Weather::CutAfterForwarding);
    say(&mut client, "did I get it?").await;
    assert_eq!(ended(&mut client).await, ErrorKind::ConnectionReset);
    echo.hears(18).await;
    assert_eq!(proxy.weather(), Weather::Clear);
    round_trip(&mut other, "unharmed").await;
}

#[tokio::test]
async fn many_connections_at_once() {
    let (_echo, proxy, first) = setting().await;
    drop(first);
    proxy.set(Weather::Delay { by: Duration::ZERO, jitter: Duration::from_millis(5) });
    let address = proxy.address();
    let all = join_all((0..100).map(|at| async move {
        let mut client = TcpStream::connect(address).await.unwrap();
        for round in 0..5 {
            round_trip(&mut client, &format!("client {at}, round {round}")).await;
        }
        client
    }));
    let clients = bounded(PATIENCE, "all of them", all).await.unwrap();
    let counted = || async { Ok((proxy.connections() == 100).then_some(())) };
    eventually(PATIENCE, "the count", counted).await.unwrap();
    drop(clients);
    no_connections(&proxy).await;
}

#[tokio::test]
async fn what_is_held_back_is_bounded() {
    let (echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    proxy.set(Weather::Silent);
    let much = vec![b'x'; 64 << 20];
    let held_up = tokio::time::timeout(Duration::from_millis(500), client.write_all(&much)).await;
    assert!(held_up.is_err(), "64 MiB went into a silent line");
    assert_eq!(echo.heard.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn a_server_that_is_gone_refuses_and_one_that_moved_is_found() {
    let (echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    proxy.retarget(nobody);
    let mut late = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(ended(&mut late).await, ErrorKind::ConnectionReset);
    proxy.retarget(echo.address);
    round_trip(&mut TcpStream::connect(proxy.address()).await.unwrap(), "found").await;
}

#[tokio::test]
async fn a_patient_proxy_waits_for_a_server_that_comes() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let proxy = Proxy::start_patient(gone, PATIENCE).await.unwrap();
    let mut early = TcpStream::connect(proxy.address()).await.unwrap();
    hears_nothing(&mut early).await;
    let echo = Echo::start().await;
    proxy.retarget(echo.address);
    round_trip(&mut early, "found").await;
}

#[tokio::test]
async fn dropping_the_proxy_closes_everything() {
    let (_echo, proxy, mut client) = setting().await;
    round_trip(&mut client, "hello").await;
    let address = proxy.address();
    drop(proxy);
    let end = ended(&mut client).await;
    assert!(matches!(end, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{end:?}");
    let refused = || async { Ok(TcpStream::connect(address).await.err()) };
    eventually(PATIENCE, "the port's end", refused).await.unwrap();
}
