//! Several clients on one lock, each behind a proxy with weather of its own.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use palisade::{Client, MutexGuard};
use palisade_core::{BootInstant, Clock, SystemClock, Token};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::{RemoteConfig, RemoteEngine, ServerOptions, serve};
use crate::proxy::{Direction, Proxy, Weather};

const CLIENTS: usize = 4;
const TTL: Duration = Duration::from_millis(400);
const LIMIT: Duration = Duration::from_millis(200);
const TOOK: Duration = Duration::from_secs(8);

/// What one client saw of one turn.
#[derive(Debug, Clone)]
struct Turn {
    asked: BootInstant,
    came: BootInstant,
    /// From when on it did not believe to hold the lock any more.
    left: BootInstant,
    token: Token,
    /// Its write was acknowledged.
    written: bool,
}

/// The weather of the `step`th moment.
fn weather(step: usize) -> Weather {
    let some = Duration::from_millis(15);
    let all = [
        Weather::Silent,
        Weather::CutAfterForwarding,
        Weather::Cut,
        Weather::Stranded,
        Weather::OneWay(Direction::ToClient),
        Weather::Delay { by: some, jitter: some },
        Weather::OneWay(Direction::ToServer),
        Weather::Trickle { bytes: 64, every: Duration::from_millis(1) },
        Weather::CutAfterForwarding,
    ];
    all[step % all.len()]
}

/// Turns the weather of one proxy after the other.
async fn make_weather(proxies: &[Proxy], end: BootInstant) {
    let mut step = 0;
    while SystemClock.now() < end {
        let proxy = &proxies[step % proxies.len()];
        proxy.set(weather(step / 2));
        tokio::time::sleep(Duration::from_millis([60, 150, 30, 260][step % 4])).await;
        // Every third one lasts until the next round, which is longer than a TTL.
        if !step.is_multiple_of(3) {
            proxy.set(Weather::Clear);
        }
        step += 1;
    }
    for proxy in proxies {
        proxy.set(Weather::Clear);
    }
}

/// Adds the guard's token to the fenced list.
async fn add(client: &Client, guard: &MutexGuard) -> bool {
    let Ok(register) = client.register("list") else { return false };
    let Ok(list) = register.fenced(guard).await else { return false };
    let before = list.opened().value.clone().unwrap_or_default();
    let after = format!("{}{} ", String::from_utf8_lossy(&before), guard.token());
    list.write(after).await.is_ok()
}

async fn take_turns(client: &Client, turns: &Mutex<Vec<Turn>>, end: BootInstant) {
    let lock = client.mutex("lock").unwrap();
    let mut work = [Duration::ZERO, TTL / 20, TTL * 2].into_iter().cycle();
    while SystemClock.now() < end {
        let asked = SystemClock.now();
        let Ok(Some(guard)) = lock.acquire_within(Duration::from_secs(1)).await else { continue };
        let (came, token) = (SystemClock.now(), guard.token());
        // Long work is what a partition falls into.
        let _ = tokio::time::timeout(work.next().unwrap_or_default(), guard.lost()).await;
        let written = add(client, &guard).await;
        let left = SystemClock.now().min(guard.deadline().unwrap_or(BootInstant::FAR_FUTURE));
        turns.lock().push(Turn { asked, came, left, token, written });
        let _ = guard.release().await;
    }
}

fn check(mut turns: Vec<Turn>, list: &str) {
    let listed: Vec<u64> = list.split_whitespace().map(|token| token.parse().unwrap()).collect();
    assert!(listed.is_sorted_by(|a, b| a < b), "writes landed out of order: {listed:?}");
    turns.sort_by_key(|turn| turn.came);
    for (at, turn) in turns.iter().enumerate() {
        assert!(
            !turn.written || listed.contains(&turn.token.get()),
            "an acknowledged write is lost: {turn:?}"
        );
        for later in &turns[at + 1..] {
            assert!(turn.left <= later.came, "two believed to hold it: {turn:?}, {later:?}");
            assert!(later.asked <= turn.came || later.token > turn.token, "tokens fell: {turn:?}, {later:?}");
            assert_ne!(turn.token, later.token);
        }
    }
    let written = turns.iter().filter(|turn| turn.written).count();
    assert!(written >= 5, "hardly anyone got through: {written} of {}", turns.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_any_weather_one_at_a_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener, ServerOptions::default()));
    let (mut proxies, mut clients) = (Vec::new(), Vec::new());
    for seed in 0..CLIENTS {
        let proxy = Proxy::start_seeded(address, seed as u64).await.unwrap();
        let config = RemoteConfig::new(proxy.address(), "").call_timeout(LIMIT);
        let engine = Arc::new(RemoteEngine::open(config).await.unwrap());
        clients.push(Client::builder().ttl(TTL).over(engine).unwrap());
        proxies.push(proxy);
    }
    let (turns, end) = (Mutex::new(Vec::new()), SystemClock.now() + TOOK);
    let all = join_all(clients.iter().map(|client| take_turns(client, &turns, end)));
    tokio::join!(all, make_weather(&proxies, end));
    let near = RemoteEngine::connect(address, "").await.unwrap();
    let near = Client::builder().over(Arc::new(near)).unwrap();
    // Whatever was left in a line is gone one TTL later, and the lock is free.
    let guard = near.mutex("lock").unwrap().acquire_within(TTL * 5).await.unwrap();
    guard.expect("the lock comes free").release().await.unwrap();
    let list = near.register("list").unwrap().read().await.unwrap().value.unwrap_or_default();
    check(turns.into_inner(), &String::from_utf8_lossy(&list));
    server.abort();
}
