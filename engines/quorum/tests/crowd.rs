//! Many tasks of one client at once, whose claims and withdrawals go together.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::*;
use palisade_core::{Claimed, Engine, Token, Withdrawn};
use palisade_quorum::QuorumEngine;
use palisade_testkit::CancelAfter;
use tokio::task::JoinSet;
use tokio::time::Instant;

const TASKS: usize = 100;

/// Every task takes and gives back a resource of its own, over and over; the tokens rise.
async fn all_take_their_own(engine: &Arc<QuorumEngine>, turns: usize) {
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let engine = Arc::clone(engine);
        tasks.spawn(async move {
            let mut tokens: Vec<Token> = Vec::new();
            for _ in 0..turns {
                let claim = long(&format!("own {task}"));
                tokens.push(take(&*engine, &claim).await.token);
                assert_eq!(release(&*engine, &claim).await, Withdrawn::Released);
            }
            assert!(tokens.windows(2).all(|two| two[0] < two[1]), "{tokens:?}");
        });
    }
    tasks.join_all().await;
}

/// Nobody is given up but the node that is silent, not one that a busy machine keeps from its turn.
async fn open_patient(servers: &[Arc<Server>]) -> QuorumEngine {
    let mut patient = config(servers);
    patient.node_timeout = Duration::from_secs(6);
    open_as(patient).await
}

fn slow_down(servers: &[Arc<Server>]) {
    // So that there is always something under way, and the others go together.
    for server in servers {
        server.delay.store(300, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_crowd_gets_what_each_wants_whichever_node_is_bad() {
    for bad in [None, Some(0), Some(4)] {
        let servers = servers(5);
        let engine = Arc::new(open_patient(&servers).await);
        slow_down(&servers);
        if let Some(bad) = bad {
            servers[bad].silent.store(true, Ordering::Relaxed);
        }
        all_take_their_own(&engine, 5).await;
        if bad.is_none() {
            nothing_left(&servers).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_slow_holds_nobody_up_who_gives_back() {
    let servers = servers(5);
    let slowest = Duration::from_secs(3);
    let engine = Arc::new(open_patient(&servers).await);
    slow_down(&servers);
    servers[4].delay.store(3_000_000, Ordering::Relaxed);
    let began = Instant::now();
    all_take_their_own(&engine, 5).await;
    assert!(began.elapsed() < slowest, "nobody waits for the slowest: {:?}", began.elapsed());
    nothing_left(&servers).await;
}

#[tokio::test(start_paused = true)]
async fn rivals_that_go_together_come_in_one_by_one() {
    let servers = servers(5);
    let engine = Arc::new(open_patient(&servers).await);
    slow_down(&servers);
    let inside: Arc<Vec<AtomicUsize>> = Arc::new((0..4).map(|_| AtomicUsize::new(0)).collect());
    let mut tasks = JoinSet::new();
    for task in 0..40 {
        let (engine, inside) = (Arc::clone(&engine), Arc::clone(&inside));
        tasks.spawn(async move {
            for _ in 0..3 {
                let claim = long(&format!("shared {}", task % 4));
                acquire(&*engine, &claim).await;
                assert_eq!(inside[task % 4].fetch_add(1, Ordering::SeqCst), 0, "one at a time");
                tokio::task::yield_now().await;
                inside[task % 4].fetch_sub(1, Ordering::SeqCst);
                assert_eq!(release(&*engine, &claim).await, Withdrawn::Released);
            }
        });
    }
    tasks.join_all().await;
    nothing_left(&servers).await;
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_in_a_crowd_leaves_nothing_behind() {
    let servers = servers(5);
    let engine = Arc::new(open_patient(&servers).await);
    slow_down(&servers);
    for polls in 1..6 {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            let engine = Arc::clone(&engine);
            tasks.spawn(async move {
                let claim = long(&format!("own {task}"));
                let limit = if task % 2 == 0 { polls } else { usize::MAX };
                let granted = CancelAfter::new(limit, engine.claim(&claim)).await;
                if task % 2 == 1 {
                    assert!(matches!(granted, Ok(Ok(Claimed::Granted(_)))), "{granted:?}");
                }
                engine.withdraw(&[claim]).await.unwrap();
            });
        }
        tasks.join_all().await;
        nothing_left(&servers).await;
    }
}
