//! Many that want the same: nobody starves the others, and it costs little.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use palisade_core::{Claim, Claimed, Engine, Waited, Withdrawn};
use palisade_quorum::{QuorumConfig, QuorumEngine};
use parking_lot::Mutex;
use tokio::time::Instant;

/// What happened while rivals took turns.
#[derive(Debug)]
struct Turns {
    requests_per_turn: f64,
    longest_gap: Duration,
}

/// Every engine takes the same resource so many times, one at a time.
async fn take_turns(servers: &[Arc<Server>], engines: Vec<QuorumEngine>, rounds: u32) -> Turns {
    let inside = Arc::new(AtomicBool::new(false));
    let last = Arc::new(Mutex::new((Instant::now(), Duration::ZERO, 0_u64)));
    let total = engines.len() as u32 * rounds;
    let turns = Arc::new(AtomicU64::new(0));
    let before: u64 = servers.iter().map(|server| server.requests.load(Ordering::Relaxed)).sum();
    let engines: Vec<_> = engines.into_iter().map(Arc::new).collect();
    let tasks = engines.iter().map(|engine| {
        let (engine, inside, last, turns) =
            (Arc::clone(engine), Arc::clone(&inside), Arc::clone(&last), Arc::clone(&turns));
        tokio::spawn(async move {
            for _ in 0..rounds {
                let asked = long("a");
                let grant = acquire(&*engine, &asked).await;
                assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                {
                    let mut last = last.lock();
                    assert!(grant.token.get() > last.2, "token {} after {}", grant.token, last.2);
                    *last = (Instant::now(), last.1.max(last.0.elapsed()), grant.token.get());
                }
                tokio::task::yield_now().await;
                turns.fetch_add(1, Ordering::Relaxed);
                inside.store(false, Ordering::SeqCst);
                assert_eq!(release(&*engine, &asked).await, Withdrawn::Released);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let after: u64 = servers.iter().map(|server| server.requests.load(Ordering::Relaxed)).sum();
    nothing_left(servers).await;
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    Turns { requests_per_turn: (after - before) as f64 / f64::from(total), longest_gap: last.lock().1 }
}

async fn rivals(servers: &[Arc<Server>], count: usize) -> Vec<QuorumEngine> {
    let mut engines = Vec::new();
    for _ in 0..count {
        engines.push(open(servers).await);
    }
    engines
}

#[tokio::test(start_paused = true)]
async fn sixteen_waiters_cost_at_most_thirty_requests_per_hand_over() {
    let servers = servers(5);
    for server in &servers {
        server.delay.store(200, Ordering::Relaxed);
    }
    let turns = take_turns(&servers, rivals(&servers, 16).await, 20).await;
    println!("16 waiters: {turns:?}");
    assert!(turns.requests_per_turn <= 30.0, "{turns:?}");
    assert!(turns.longest_gap < Duration::from_secs(3), "{turns:?}");
}

#[tokio::test(start_paused = true)]
async fn sixty_four_rivals_do_not_split_the_vote_for_ever() {
    let servers = servers(5);
    for (at, server) in servers.iter().enumerate() {
        // Different ways, so that rivals arrive in a different order at each node.
        server.delay.store(100 + 150 * at as u64, Ordering::Relaxed);
    }
    let turns = take_turns(&servers, rivals(&servers, 64).await, 5).await;
    println!("64 rivals: {turns:?}");
    assert!(turns.requests_per_turn <= 30.0, "{turns:?}");
    assert!(turns.longest_gap < Duration::from_secs(3), "{turns:?}");
}

#[tokio::test(start_paused = true)]
async fn rivals_that_see_different_nodes_make_progress() {
    let servers = servers(5);
    let mut engines = Vec::new();
    for at in 0..8 {
        let nodes = servers.iter().enumerate();
        // Each client is cut off from another node, so that they stand in line at different ones.
        let nodes =
            nodes.map(|(node, server)| if node == at % 3 { server.out_of_reach() } else { server.node() });
        engines.push(open_as(QuorumConfig::new(nodes.collect())).await);
    }
    let turns = take_turns(&servers, engines, 5).await;
    println!("8 rivals that see different nodes: {turns:?}");
    assert!(turns.longest_gap < Duration::from_secs(10), "{turns:?}");
}

/// Late answers send rivals to different gates. When all is calm again, each must not keep the node it got to for ever.
#[tokio::test(start_paused = true)]
async fn rivals_scattered_by_late_answers_find_together_again() {
    const LIMIT: Duration = Duration::from_millis(10);
    const ROUNDS: u32 = 4;
    let servers = servers(5);
    let mut engines = Vec::new();
    for _ in 0..24 {
        let mut hasty = config(&servers);
        hasty.node_timeout = LIMIT;
        engines.push(Arc::new(open_as(hasty).await));
    }
    let turns = Arc::new(AtomicU64::new(0));
    let tasks = engines.iter().map(|engine| {
        let (engine, turns) = (Arc::clone(engine), Arc::clone(&turns));
        tokio::spawn(async move {
            let mut had = 0;
            while had < ROUNDS {
                let asked = long("a");
                if try_to_acquire(&*engine, &asked).await {
                    had += 1;
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                let _ = engine.withdraw(&[asked]).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    for wave in 0..60_usize {
        for (at, server) in servers.iter().enumerate() {
            let late = (wave * 7 + at * 3) % 5 < 2;
            server.delay.store(if late { 2 * LIMIT.as_micros() as u64 } else { 100 }, Ordering::Relaxed);
        }
        tokio::time::sleep(LIMIT).await;
    }
    for server in &servers {
        server.delay.store(100, Ordering::Relaxed);
    }
    // Before claims expire, which nobody renews here: that would set all free.
    let all = tokio::time::timeout(Duration::from_secs(20), futures::future::join_all(tasks));
    let all = all.await.unwrap_or_else(|_| panic!("stuck after {} turns", turns.load(Ordering::Relaxed)));
    for task in all {
        task.unwrap();
    }
    nothing_left(&servers).await;
}

/// A waiter of whom three of five nodes were late is let in at its gate before it looks again. How long after they answer
/// again, so much later, it has the lock.
async fn let_in_while_most_nodes_are_late(still_late: Duration) -> Duration {
    let servers = servers(5);
    let waiter = open(&servers).await;
    let gate = (servers[0].node().open)().await.unwrap();
    let (held, asked) = (long("a"), long("a"));
    take(&*gate, &held).await;
    let silence = |silent: bool| {
        for server in &servers[1..4] {
            server.silent.store(silent, Ordering::Relaxed);
        }
    };
    silence(true);
    // Told once the first of them are late, after 50 ms.
    assert!(matches!(waiter.claim(&asked).await.unwrap(), Claimed::Queued(_)));
    // What it gives back to them is late as well: from then on too few have answered, and it looks after 50 ms at the earliest.
    tokio::time::sleep(Duration::from_millis(70)).await;
    assert_eq!(release(&*gate, &held).await, Withdrawn::Released);
    tokio::time::sleep(still_late).await;
    silence(false);
    let answering = Instant::now();
    let outcome = waiter.wait(&asked).await;
    let took = answering.elapsed();
    assert!(matches!(outcome, Ok(Waited::Granted(_))), "{outcome:?}");
    release(&waiter, &asked).await;
    nothing_left(&servers).await;
    took
}

/// Who is let in at the gate keeps all others waiting until it has the other nodes.
#[tokio::test(start_paused = true)]
async fn who_is_let_in_when_most_nodes_have_just_been_late_asks_them_again_soon() {
    let took = let_in_while_most_nodes_are_late(Duration::ZERO).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// Its pauses grow, but no faster than the trouble lasts: twice as long each time, by a random part.
#[tokio::test(start_paused = true)]
async fn who_is_let_in_while_most_nodes_are_late_for_long_asks_them_soon_after() {
    const TIMES: u32 = 400;
    let mut all = Duration::ZERO;
    for _ in 0..TIMES {
        all += let_in_while_most_nodes_are_late(Duration::from_millis(1200)).await;
    }
    assert!(all / TIMES < Duration::from_secs(1), "{:?} on average", all / TIMES);
}

/// Whether it was granted; if not, something went wrong on the way, as it may.
async fn try_to_acquire(engine: &dyn Engine, claim: &Arc<Claim>) -> bool {
    match engine.claim(claim).await {
        Ok(Claimed::Granted(_)) => true,
        Ok(Claimed::Queued(_)) => matches!(engine.wait(claim).await, Ok(Waited::Granted(_))),
        _ => false,
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_will_not_wait_leave_nothing_behind() {
    let servers = servers(5);
    let engines: Vec<_> = rivals(&servers, 16).await.into_iter().map(Arc::new).collect();
    let won = Arc::new(AtomicU64::new(0));
    let tasks = engines.iter().map(|engine| {
        let (engine, won) = (Arc::clone(engine), Arc::clone(&won));
        tokio::spawn(async move {
            for _ in 0..50 {
                let asked = Arc::new(claim("a", Duration::from_secs(25)).no_wait());
                if matches!(engine.claim(&asked).await.unwrap(), Claimed::Granted(_)) {
                    won.fetch_add(1, Ordering::Relaxed);
                    release(&*engine, &asked).await;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    assert!(won.load(Ordering::Relaxed) > 0);
    nothing_left(&servers).await;
}
