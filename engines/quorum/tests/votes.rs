//! What one bad node changes (nothing), and what a bad majority does.

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::*;
use futures::future::FutureExt;
use palisade_core::{
    Change, Changed, Claimed, Clock, ConnectionState, Effect, Engine, ErrorKind, Evicted, GoneReason,
    ManualClock, Mode, Page, Renewed, Selector, Signal, Token, Waited, Withdrawn,
};
use palisade_quorum::{Node, QuorumConfig, QuorumEngine};
use palisade_testkit::CancelAfter;

#[tokio::test(start_paused = true)]
async fn validity_is_ttl_less_elapsed_less_drift() {
    let clock = ManualClock::new();
    let servers: Vec<_> = (0..5).map(|at| Server::on(at, Arc::new(clock.clone()))).collect();
    let mut nodes: Vec<Node> = servers.iter().map(Server::node).collect();
    // The first node takes 120 ms to answer.
    let (inner, hands) = (Arc::clone(&nodes[0].open), clock.clone());
    nodes[0].open = Arc::new(move || {
        let (inner, hands) = (Arc::clone(&inner), hands.clone());
        async move {
            let slow: Arc<dyn Engine> = Arc::new(Slow { inner: inner().await?, clock: hands });
            Ok(slow)
        }
        .boxed()
    });
    let mut config = QuorumConfig::new(nodes);
    (config.drift, config.drift_per_mille) = (Duration::from_millis(50), 10);
    let engine = QuorumEngine::open_on(config, Arc::new(clock.clone())).await.unwrap();
    let ttl = Duration::from_secs(10);
    let grant = take(&engine, &Arc::new(claim("a", ttl))).await;
    // As the client computes the deadline of a guard.
    let deadline = grant.valid_until.saturating_sub(engine.profile().drift.margin(ttl));
    assert_eq!(deadline.saturating_since(clock.now()), Duration::from_millis(9_730));
}

/// Who releases is told once a majority has let go. What the rest answers later was not listened to, and everything
/// known of the claim stayed in memory for two TTLs: half a gigabyte after seconds under load.
#[tokio::test(start_paused = true)]
async fn a_release_that_not_all_nodes_have_answered_yet_is_forgotten_all_the_same() {
    let servers = servers(5);
    let engine = open(&servers).await;
    for late in [0, 2] {
        for server in &servers[..late] {
            server.delay.store(2_000, Ordering::Relaxed);
        }
        let claim = long("a");
        take(&engine, &claim).await;
        assert_eq!(release(&engine, &claim).await, Withdrawn::Released);
        eventually("all to be forgotten", || async { Arc::strong_count(&claim) == 1 }).await;
        // Still withdrawn, for whoever asks again.
        assert_eq!(release(&engine, &claim).await, Withdrawn::AlreadyGone);
    }
    nothing_left(&servers).await;
    servers[4].silent.store(true, Ordering::Relaxed);
    let claim = long("a");
    take(&engine, &claim).await;
    assert_eq!(release(&engine, &claim).await, Withdrawn::Released);
    eventually("all but a silent node to be forgotten", || async { Arc::strong_count(&claim) == 1 }).await;
}

#[derive(Debug)]
struct Slow {
    inner: Arc<dyn Engine>,
    clock: ManualClock,
}

#[async_trait::async_trait]
impl palisade_core::Layer for Slow {
    fn inner(&self) -> &dyn Engine {
        &*self.inner
    }

    async fn claim(&self, claim: &Arc<palisade_core::Claim>) -> palisade_core::Result<Claimed> {
        self.clock.advance(Duration::from_millis(120));
        self.inner.claim(claim).await
    }
}

/// A majority is enough to be turned away, but of two votes that differ nobody knows which was handed out: a third tells.
#[tokio::test(start_paused = true)]
async fn who_is_turned_away_is_told_the_token_that_was_handed_out() {
    for late in 0..3 {
        let servers = servers(3);
        let (engine, rival) = (open(&servers).await, open(&servers).await);
        let last = once(&engine, "before").await.get();
        // Others were there, and did not reach all nodes.
        for (ahead, server) in servers.iter().enumerate().skip(1) {
            let mut other = claim("other", Duration::from_secs(25));
            other.token_floor = Token::new(last + 1_000_000_000_000 * ahead as u64);
            take(&*(server.node().open)().await.unwrap(), &Arc::new(other)).await;
        }
        let held = long("a");
        let grant = take(&engine, &held).await;
        servers[late].delay.store(5_000, Ordering::Relaxed);
        let refused = Arc::new(claim("a", Duration::from_secs(25)).no_wait());
        let Claimed::Busy(busy) = rival.claim(&refused).await.unwrap() else { panic!("it is held") };
        let shown: Vec<_> = busy.holders.iter().map(|view| (view.claim, view.token)).collect();
        assert_eq!(shown, [(held.id, Some(grant.token))], "server {late} is late");
    }
}

/// Else the first claims of a new client would be judged by a bare majority, whose votes may differ.
#[tokio::test(start_paused = true)]
async fn a_node_has_as_long_to_connect_as_to_answer() {
    let servers = servers(3);
    servers[2].delay.store(200_000, Ordering::Relaxed);
    let mut config = config(&servers);
    config.node_timeout = Duration::from_millis(500);
    let engine = open_as(config).await;
    take(&engine, &long("a")).await;
    assert_eq!(servers[2].requests.load(Ordering::Relaxed), 1, "it was not connected yet");
}

async fn works(engine: &QuorumEngine, rival: &QuorumEngine) {
    let mut last: Option<Token> = None;
    for _ in 0..5 {
        let (held, next) = (long("a"), long("a"));
        let grant = take(engine, &held).await;
        assert!(Some(grant.token) > last);
        let busy = Arc::new(claim("a", Duration::from_secs(25)).no_wait());
        assert!(matches!(rival.claim(&busy).await.unwrap(), Claimed::Busy(_)));
        assert!(matches!(rival.claim(&next).await.unwrap(), Claimed::Queued(_)));
        let renewed = engine.renew(std::slice::from_ref(&held)).await.unwrap();
        assert!(matches!(renewed[0], Renewed::Valid { until } if until >= grant.valid_until));
        assert_eq!(release(engine, &held).await, Withdrawn::Released);
        let second = acquire(rival, &next).await;
        assert!(second.token > grant.token);
        assert_eq!(release(rival, &next).await, Withdrawn::Released);
        last = Some(second.token);
    }
}

#[tokio::test(start_paused = true)]
async fn one_silent_node_of_five_changes_nothing() {
    for bad in [0, 4] {
        let servers = servers(5);
        let (engine, rival) = (open(&servers).await, open(&servers).await);
        servers[bad].silent.store(true, Ordering::Relaxed);
        works(&engine, &rival).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_node_of_five_that_cannot_be_reached_changes_nothing_and_joins_later() {
    let servers = servers(5);
    servers[0].dead.store(true, Ordering::Relaxed);
    let (engine, rival) = (open(&servers).await, open(&servers).await);
    works(&engine, &rival).await;
    servers[0].dead.store(false, Ordering::Relaxed);
    eventually("the node to vote", || async {
        once(&engine, "b").await;
        servers[0].requests.load(Ordering::Relaxed) > 0
    })
    .await;
    nothing_left(&servers).await;
}

#[tokio::test(start_paused = true)]
async fn one_node_of_five_whose_clock_jumps_changes_nothing() {
    let mut servers = servers(5);
    let wrong = Arc::new(WrongClock::default());
    servers[0] = Server::on(0, wrong.clone());
    let (engine, rival) = (open(&servers).await, open(&servers).await);
    let jumping = tokio::spawn(async move {
        loop {
            wrong.jump(Duration::from_hours(1));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    works(&engine, &rival).await;
    jumping.abort();
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_nothing_is_granted_and_nothing_left() {
    let servers = servers(5);
    let engine = open(&servers).await;
    for bad in [1, 2, 4] {
        servers[bad].dead.store(true, Ordering::Relaxed);
    }
    for wait in [true, false] {
        let mut asked = claim("a", Duration::from_secs(25));
        asked.will_wait = wait;
        let error = engine.claim(&Arc::new(asked)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("2 of 5") && error.message().contains("server 4"), "{error}");
    }
    nothing_left(&servers).await;
    let refused = QuorumEngine::open_on(config(&servers), Arc::new(RuntimeClock)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(refused.message().contains("server 1: connection refused"), "{refused}");
    for bad in [1, 2, 4] {
        servers[bad].dead.store(false, Ordering::Relaxed);
    }
    once(&engine, "a").await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_failed_can_be_asked_for_again() {
    let servers = servers(3);
    let engine = open(&servers).await;
    servers[0].silent.store(true, Ordering::Relaxed);
    servers[1].silent.store(true, Ordering::Relaxed);
    let asked = long("a");
    engine.claim(&asked).await.unwrap_err();
    servers[0].silent.store(false, Ordering::Relaxed);
    servers[1].silent.store(false, Ordering::Relaxed);
    acquire(&engine, &asked).await;
    assert_eq!(release(&engine, &asked).await, Withdrawn::Released);
    nothing_left(&servers).await;
}

#[tokio::test(start_paused = true)]
async fn tokens_rise_across_wipes_of_minorities() {
    let servers = servers(5);
    let mut last = None;
    for round in 0..20 {
        let engine = open(&servers).await;
        let token = once(&engine, "a").await;
        assert!(Some(token) > last, "round {round}: {token} after {last:?}");
        last = Some(token);
        for bad in [round % 5, (round * 2 + 1) % 5] {
            servers[bad].wipe();
            servers[bad].forgot_before(Duration::from_secs(31));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_disagree_are_written_to_before_the_token_is_handed_out() {
    let servers = servers(3);
    // One node has counted far ahead.
    let ahead = open(&servers).await;
    let mut far = claim("a", Duration::from_secs(25));
    far.token_floor = Token::new(1 << 60);
    servers[1].dead.store(true, Ordering::Relaxed);
    servers[2].dead.store(true, Ordering::Relaxed);
    ahead.claim(&Arc::new(far)).await.unwrap_err();
    nothing_left(&servers).await;
    servers[1].dead.store(false, Ordering::Relaxed);
    let engine = open(&servers[..]).await;
    let token = once(&engine, "a").await;
    assert!(token.get() > 1 << 60, "{token} is behind one of the two that voted");
    // Both store it: without the first one the next token is greater still.
    servers[2].dead.store(false, Ordering::Relaxed);
    servers[0].dead.store(true, Ordering::Relaxed);
    let other = open(&servers).await;
    assert!(once(&other, "a").await > token);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_may_have_forgotten_does_not_vote() {
    let servers = servers(3);
    let (holder, rival) = (open(&servers).await, open(&servers).await);
    let held = long("a");
    take(&holder, &held).await;
    servers[0].wipe();
    servers[1].wipe();
    let asked = Arc::new(claim("a", Duration::from_secs(25)).no_wait());
    let answer = rival.claim(&asked).await;
    assert!(!matches!(answer, Ok(Claimed::Granted(_))), "two hold: {answer:?}");
    // While the third one is free as well, nobody is granted anything, and it says why.
    release(&holder, &held).await;
    let asked = Arc::new(claim("b", Duration::from_secs(25)).no_wait());
    let error = rival.claim(&asked).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("forgotten") && error.message().contains("server 1"), "{error}");
    servers[0].forgot_before(Duration::from_secs(31));
    servers[1].forgot_before(Duration::from_secs(31));
    once(&rival, "b").await;
}

/// What they let hold was shown as held, with a token that nobody had been handed.
#[tokio::test(start_paused = true)]
async fn nobody_holds_by_nodes_that_do_not_vote() {
    let servers = servers(3);
    for server in &servers[..2] {
        server.forgot_before(Duration::from_secs(1));
    }
    let (engine, rival) = (open(&servers).await, open(&servers).await);
    let waiting = long("a");
    let asked = engine.claim(&waiting).await.unwrap();
    assert!(matches!(asked, Claimed::Queued(_)), "{asked:?}");
    let seen = rival.inspect(&Selector::resource(name("a")), &Page::default()).await.unwrap();
    let shown: Vec<_> = seen.resources.iter().map(|view| (view.holders.len(), view.waiters.len())).collect();
    assert_eq!(shown, [(0, 1)]);
    let error = rival.claim(&Arc::new(claim("a", Duration::from_secs(25)).no_wait())).await.unwrap_err();
    assert!(error.message().contains("forgotten") && error.message().contains("server 0"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_let_in_once_the_node_votes_again() {
    let servers = servers(3);
    for server in &servers[..2] {
        server.forgot_before(Duration::from_millis(29_700));
    }
    let engine = open(&servers).await;
    let started = RuntimeClock.now();
    acquire(&engine, &long("a")).await;
    assert!(RuntimeClock.now().saturating_since(started) >= Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn a_holder_is_seeded_where_it_was_lost() {
    let servers = servers(3);
    let engine = open(&servers).await;
    let held = long("a");
    take(&engine, &held).await;
    for wiped in [0, 1, 2] {
        servers[wiped].wipe();
        eventually("the claim to be back", || async {
            let renewed = engine.renew(std::slice::from_ref(&held)).await.unwrap();
            assert!(matches!(renewed[0], Renewed::Valid { .. }), "{renewed:?}");
            servers[wiped].claims().await == 1
        })
        .await;
    }
    assert_eq!(release(&engine, &held).await, Withdrawn::Released);
    nothing_left(&servers).await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_finds_a_claim_under_any_of_its_ids() {
    let servers = servers(3);
    let (engine, operator) = (open(&servers).await, open(&servers).await);
    let mut signals = engine.signals().subscribe();
    let held = long("a");
    take(&engine, &held).await;
    // Lost and seeded anew, it has another id there.
    servers[0].wipe();
    eventually("the claim to be back", || async {
        engine.renew(std::slice::from_ref(&held)).await.unwrap();
        servers[0].claims().await == 1
    })
    .await;
    assert_eq!(operator.evict(&held.resource, held.id, "enough").await.unwrap(), Evicted::Done);
    for server in &servers {
        assert_eq!(server.claims().await, 0);
    }
    let told = async {
        loop {
            if let Signal::Gone { claim, reason } = signals.recv().await.unwrap() {
                return (claim, reason);
            }
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(5), told).await.unwrap();
    assert_eq!(told, (held.id, GoneReason::Evicted { reason: "enough".to_owned() }));
}

#[tokio::test(start_paused = true)]
async fn dropped_anywhere_nothing_is_left() {
    let servers = servers(5);
    for server in &servers {
        server.delay.store(300, Ordering::Relaxed);
    }
    let (engine, other) = (open(&servers).await, open(&servers).await);
    let held = long("a");
    for contended in [false, true] {
        if contended {
            take(&other, &held).await;
        }
        for polls in 0..12 {
            let asked = long("a");
            let _ = tokio::time::timeout(
                Duration::from_millis(20),
                CancelAfter::new(polls, acquire(&engine, &asked)),
            )
            .await;
            release(&engine, &asked).await;
        }
    }
    release(&other, &held).await;
    nothing_left(&servers).await;
}

/// One would go on with fewer nodes than one believes to have, without a word.
#[tokio::test(start_paused = true)]
async fn one_node_of_five_whose_settings_are_wrong_is_refused() {
    let mut wrong = config(&servers(5));
    let open = || async { Err(palisade_core::Error::new(ErrorKind::Invalid, "there is no such option")) };
    wrong.nodes[3].open = Arc::new(move || open().boxed());
    let error = QuorumEngine::open(wrong).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("server 3") && error.message().contains("no such option"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_promised_is_refused() {
    for count in [0, 1, 2, 4] {
        let error = QuorumEngine::open(config(&servers(count))).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{count} nodes: {error}");
    }
    let servers = servers(3);
    let with = |change: fn(&mut QuorumConfig)| {
        let mut config = config(&servers);
        change(&mut config);
        async move { QuorumEngine::open(config).await.unwrap_err().kind() }
    };
    assert_eq!(with(|config| config.node_timeout = Duration::ZERO).await, ErrorKind::Invalid);
    assert_eq!(with(|config| config.node_timeout = config.longest_ttl).await, ErrorKind::Invalid);
    assert_eq!(with(|config| config.drift_per_mille = 1000).await, ErrorKind::Invalid);
    assert_eq!(with(|config| config.nodes[1] = config.nodes[0].clone()).await, ErrorKind::Invalid);
    let engine = open(&servers).await;
    for mode in [Mode::Shared, Mode::Slot { of: 3 }] {
        let mut asked = claim("a", Duration::from_secs(5));
        asked.mode = mode;
        assert_eq!(engine.claim(&Arc::new(asked)).await.unwrap_err().kind(), ErrorKind::Unsupported);
    }
    let error = engine.claim(&Arc::new(claim("a", Duration::from_secs(31)))).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.message().contains("longest-ttl"), "{error}");
    let mut adrift = config(&servers);
    adrift.drift = Duration::from_secs(14);
    let asked = Arc::new(claim("a", Duration::from_secs(15)));
    let error = open_as(adrift).await.claim(&asked).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.message().contains("drift"), "{error}");
    assert_eq!(engine.read(&name("r"), None).await.unwrap_err().kind(), ErrorKind::Unsupported);
    let held = long("a");
    take(&engine, &held).await;
    let changed = engine.change(&held, &Change::Mode(Mode::Shared)).await.unwrap();
    assert!(matches!(changed, Changed::Refused(_)), "{changed:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_at_a_node_that_dies_goes_to_another() {
    let servers = servers(3);
    let (holder, rival) = (open(&servers).await, Arc::new(open(&servers).await));
    let (held, next) = (long("a"), long("a"));
    take(&holder, &held).await;
    assert!(matches!(rival.claim(&next).await.unwrap(), Claimed::Queued(_)));
    let turn = tokio::spawn({
        let (rival, next) = (Arc::clone(&rival), Arc::clone(&next));
        async move { rival.wait(&next).await.unwrap() }
    });
    servers[0].silent.store(true, Ordering::Relaxed);
    // As the client does at a third of the TTL.
    let renewed = rival.renew(std::slice::from_ref(&next)).await.unwrap();
    assert!(matches!(renewed[0], Renewed::Valid { .. }), "{renewed:?}");
    eventually("the waiter to stand in line elsewhere", || async { servers[1].claims().await == 2 }).await;
    assert_eq!(release(&holder, &held).await, Withdrawn::Released);
    let turn = tokio::time::timeout(Duration::from_secs(5), turn).await.unwrap().unwrap();
    assert!(matches!(turn, Waited::Granted(_)), "{turn:?}");
    servers[0].silent.store(false, Ordering::Relaxed);
    assert_eq!(release(&*rival, &next).await, Withdrawn::Released);
    nothing_left(&servers).await;
}

#[tokio::test(start_paused = true)]
async fn losing_a_majority_of_the_nodes_is_told_and_so_is_their_return() {
    let servers = servers(3);
    let engine = open(&servers).await;
    let mut signals = engine.signals().subscribe();
    let held = long("a");
    take(&engine, &held).await;
    for state in [ConnectionState::Suspended, ConnectionState::Reconnected] {
        let dead = state == ConnectionState::Suspended;
        servers[0].dead.store(dead, Ordering::Relaxed);
        servers[2].dead.store(dead, Ordering::Relaxed);
        let renewed = engine.renew(std::slice::from_ref(&held)).await;
        if dead {
            let error = renewed.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
        } else {
            assert!(matches!(renewed.unwrap()[0], Renewed::Valid { .. }));
        }
        assert_eq!(signals.recv().await.unwrap(), Signal::Connection(state));
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_that_are_dropped_or_closed_end() {
    let servers = servers(3);
    let (holder, rival) = (open(&servers).await, Arc::new(open(&servers).await));
    take(&holder, &long("a")).await;
    let next = long("a");
    assert!(matches!(rival.claim(&next).await.unwrap(), Claimed::Queued(_)));
    let turn = tokio::spawn({
        let (rival, next) = (Arc::clone(&rival), Arc::clone(&next));
        async move { rival.wait(&next).await.unwrap_err().kind() }
    });
    tokio::task::yield_now().await;
    rival.close().await;
    assert_eq!(tokio::time::timeout(Duration::from_secs(5), turn).await.unwrap().unwrap(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_new_value_goes_along_to_where_the_claim_is_seeded() {
    let servers = servers(3);
    let engine = open(&servers).await;
    let held = Arc::new(claim("a", Duration::from_secs(25)).value("old"));
    take(&engine, &held).await;
    let change = Change::Value(Some("new".into()));
    assert_eq!(engine.change(&held, &change).await.unwrap(), Changed::Done);
    for wiped in [0, 1, 2] {
        servers[wiped].wipe();
        eventually("the claim to be back", || async {
            engine.renew(std::slice::from_ref(&held)).await.unwrap();
            servers[wiped].claims().await == 1
        })
        .await;
    }
    // Long enough ago for them to vote, and their holders to be shown.
    for server in &servers {
        server.forgot_before(Duration::from_secs(31));
    }
    let seen = engine.inspect(&Selector::resource(name("a")), &Page::default()).await.unwrap();
    assert_eq!(seen.resources[0].holders[0].value.as_deref(), Some(&b"new"[..]));
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_does_not_hold_up_an_inspection() {
    let servers = servers(5);
    let engine = open(&servers).await;
    let held = long("a");
    let token = take(&engine, &held).await.token;
    servers[1].silent.store(true, Ordering::Relaxed);
    let (selector, page) = (Selector::resource(name("a")), Page::default());
    let seen = engine.inspect(&selector, &page);
    let seen = tokio::time::timeout(Duration::from_secs(1), seen).await.unwrap().unwrap();
    let holder = &seen.resources[0].holders[0];
    assert_eq!((holder.claim, holder.token), (held.id, Some(token)));
}
