use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, poll};
use palisade::Client;
use palisade_core::{
    Claim, Claimed, Clock, ConnectionState, Effect, Engine, Error, ErrorKind, Evicted, GoneReason, Mode,
    Owner, Page, Renewed, Selector, Signal, SystemClock, Token, Ttl, Waited, Withdrawn,
};
use tokio::net::TcpListener;
use tokio::sync::broadcast::Receiver;
use tokio::task::AbortHandle;

use super::{RemoteConfig, RemoteEngine, ServerOptions, serve};
use crate::bounded::{bounded, eventually};
use crate::context::name;
use crate::proxy::{Proxy, Weather};

const PATIENCE: Duration = Duration::from_secs(10);
/// How long a call may take: short, so that a dead line shows soon.
const LIMIT: Duration = Duration::from_millis(400);

struct Server {
    address: SocketAddr,
    task: AbortHandle,
}

impl Server {
    async fn start(options: ServerOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { address, task: tokio::spawn(serve(listener, options)).abort_handle() }
    }

    async fn connect(&self) -> RemoteEngine {
        RemoteEngine::connect(self.address, "").await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server, a proxy before it, and a client on either side of the proxy.
struct Setting {
    server: Server,
    proxy: Proxy,
    far: RemoteEngine,
    near: RemoteEngine,
}

impl Setting {
    async fn new() -> Self {
        Self::with(ServerOptions::default()).await
    }

    async fn with(options: ServerOptions) -> Self {
        let server = Server::start(options).await;
        let proxy = Proxy::start(server.address).await.unwrap();
        let config = RemoteConfig::new(proxy.address(), "").call_timeout(LIMIT);
        let (far, near) = (RemoteEngine::open(config).await.unwrap(), server.connect().await);
        Self { server, proxy, far, near }
    }

    /// Another server in the place of the first.
    async fn replace_server(&mut self, options: ServerOptions) {
        self.server = Server::start(options).await;
        self.proxy.retarget(self.server.address);
        self.near = self.server.connect().await;
        self.proxy.set(Weather::Cut);
        self.proxy.set(Weather::Clear);
    }

    async fn claims_left(&self) -> usize {
        let all = self.near.inspect(&Selector::resources(""), &Page::default()).await.unwrap();
        all.resources.iter().map(|view| view.holders.len() + view.waiters.len()).sum()
    }
}

fn claim_for(ttl: Duration) -> Arc<Claim> {
    let owner = Arc::new(Owner::this_process());
    Arc::new(Claim::new(name("a"), Mode::Exclusive, Ttl::new(ttl).unwrap(), owner))
}

fn claim() -> Arc<Claim> {
    claim_for(Duration::from_mins(2))
}

fn token(claimed: Result<Claimed, Error>) -> Token {
    match claimed {
        Ok(Claimed::Granted(grant)) => grant.token,
        other => panic!("a grant was expected, not {other:?}"),
    }
}

async fn next<T>(signals: &mut Receiver<Signal>, pick: impl Fn(&Signal) -> Option<T>) -> T {
    let heard = async {
        loop {
            if let Some(picked) = pick(&signals.recv().await.unwrap()) {
                return picked;
            }
        }
    };
    bounded(PATIENCE, "the signal", heard).await.unwrap()
}

async fn next_state(signals: &mut Receiver<Signal>) -> ConnectionState {
    next(signals, |signal| match signal {
        Signal::Connection(state) => Some(*state),
        _ => None,
    })
    .await
}

/// Renews until an answer comes through.
async fn renewed(engine: &RemoteEngine, claim: &Arc<Claim>) -> Renewed {
    let renewed = || async { Ok(engine.renew(std::slice::from_ref(claim)).await.ok()) };
    eventually(PATIENCE, "a renewal", renewed).await.unwrap().remove(0)
}

#[tokio::test]
async fn after_a_lost_answer_asking_again_gives_the_same_grant() {
    let setting = Setting::new().await;
    let claim = claim();
    setting.proxy.set(Weather::CutAfterForwarding);
    let error = setting.far.claim(&claim).await.unwrap_err();
    assert!(error.is_transient() && error.effect() == Effect::Unknown, "{error:?}");
    let held = setting.near.inspect(&Selector::resources(""), &Page::default()).await.unwrap();
    let granted = held.resources[0].holders[0].token;
    assert_eq!(Some(token(setting.far.claim(&claim).await)), granted);
    // The same for a release: asked again it has been done, and frees nobody else.
    setting.proxy.set(Weather::CutAfterForwarding);
    let withdraw = || setting.far.withdraw(std::slice::from_ref(&claim));
    assert_eq!(withdraw().await.unwrap_err().effect(), Effect::Unknown);
    let successor = self::claim();
    token(setting.near.claim(&successor).await);
    assert_eq!(withdraw().await.unwrap(), [Withdrawn::AlreadyGone]);
    assert_eq!(setting.claims_left().await, 1);
}

#[tokio::test]
async fn a_withdrawal_wins_over_a_claim_on_an_older_connection() {
    let setting = Setting::new().await;
    let claim = claim();
    setting.proxy.set(Weather::Stranded);
    let error = setting.far.claim(&claim).await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    // Over a new connection, while the claim is still under way in the old one.
    let withdrawn = setting.far.withdraw(std::slice::from_ref(&claim)).await.unwrap();
    assert_eq!(withdrawn, [Withdrawn::AlreadyGone]);
    setting.proxy.set(Weather::Clear);
    // The proxy is done with the old connection once the server has read all of it, and ended it too.
    let closed = || async { Ok((setting.proxy.connections() == 1).then_some(())) };
    eventually(PATIENCE, "the old connection's end", closed).await.unwrap();
    assert_eq!(setting.claims_left().await, 0);
    assert_eq!(setting.far.claim(&claim).await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_silent_line_is_given_up_and_found_again() {
    let setting = Setting::new().await;
    let (claim, mut signals) = (claim(), setting.far.signals().subscribe());
    token(setting.far.claim(&claim).await);
    setting.proxy.set(Weather::Silent);
    let started = SystemClock.now();
    let error = setting.far.renew(std::slice::from_ref(&claim)).await.unwrap_err();
    assert!(error.is_transient() && error.effect() == Effect::Unknown, "{error:?}");
    let error = setting.far.renew(std::slice::from_ref(&claim)).await.unwrap_err();
    assert!(error.is_transient() && error.effect() == Effect::None, "{error:?}");
    let took = SystemClock.now().saturating_since(started);
    assert!(took < LIMIT * 6, "two calls took {took:?}");
    assert_eq!(next_state(&mut signals).await, ConnectionState::Suspended);
    setting.proxy.set(Weather::Clear);
    assert!(matches!(renewed(&setting.far, &claim).await, Renewed::Valid { .. }));
    assert_eq!(next_state(&mut signals).await, ConnectionState::Reconnected);
}

#[tokio::test]
async fn what_was_evicted_while_the_line_was_down_is_told() {
    let setting = Setting::new().await;
    let (evicted, mut signals) = (claim(), setting.far.signals().subscribe());
    token(setting.far.claim(&evicted).await);
    setting.proxy.set(Weather::Cut);
    assert_eq!(next_state(&mut signals).await, ConnectionState::Suspended);
    let found = setting.near.evict(&evicted.resource, evicted.id, "meanwhile").await.unwrap();
    assert_eq!(found, Evicted::Done);
    setting.proxy.set(Weather::Clear);
    setting.far.read(&name("anything"), None).await.unwrap();
    let (claim, reason) = next(&mut signals, gone).await;
    assert_eq!((claim, reason), (evicted.id, GoneReason::Evicted { reason: "meanwhile".to_owned() }));
    // The session is the same one: what ends from here on is told as before.
    let second = self::claim();
    token(setting.far.claim(&second).await);
    setting.near.evict(&second.resource, second.id, "now").await.unwrap();
    assert_eq!(next(&mut signals, gone).await.0, second.id);
}

fn gone(signal: &Signal) -> Option<(palisade_core::ClaimId, GoneReason)> {
    match signal {
        Signal::Gone { claim, reason } => Some((*claim, reason.clone())),
        _ => None,
    }
}

#[tokio::test]
async fn a_wait_survives_a_broken_line() {
    let setting = Setting::new().await;
    let (held, queued, mut signals) = (claim(), claim(), setting.far.signals().subscribe());
    token(setting.near.claim(&held).await);
    assert!(matches!(setting.far.claim(&queued).await, Ok(Claimed::Queued(_))));
    for weather in [Weather::Cut, Weather::Stranded] {
        let mut wait = std::pin::pin!(setting.far.wait(&queued));
        assert!(poll!(wait.as_mut()).is_pending());
        setting.proxy.set(weather);
        let state = async {
            tokio::select! {
                waited = &mut wait => panic!("it ended with {waited:?}"),
                state = next_state(&mut signals) => state,
            }
        };
        assert_eq!(state.await, ConnectionState::Suspended);
        setting.proxy.set(Weather::Clear);
        let state = async {
            tokio::select! {
                waited = &mut wait => panic!("it ended with {waited:?}"),
                state = next_state(&mut signals) => state,
            }
        };
        assert_eq!(state.await, ConnectionState::Reconnected);
    }
    let waiters = setting.near.inspect(&Selector::resources(""), &Page::default()).await.unwrap();
    assert_eq!(waiters.resources[0].waiters.len(), 1, "the place was kept, and no second one made");
    setting.near.withdraw(&[held]).await.unwrap();
    let waited = bounded(PATIENCE, "the turn", setting.far.wait(&queued)).await.unwrap();
    assert!(matches!(waited, Ok(Waited::Granted(_))), "{waited:?}");
}

/// Until when the server honours the only claim, at the latest.
async fn honoured(setting: &Setting) -> palisade_core::BootInstant {
    let seen = setting.near.inspect(&Selector::resources(""), &Page::default()).await.unwrap();
    SystemClock.now() + seen.resources[0].holders[0].expires_in.unwrap()
}

#[tokio::test]
async fn a_grant_over_a_slow_line_is_not_believed_for_too_long() {
    let setting = Setting::new().await;
    let by = Duration::from_millis(40);
    setting.proxy.set(Weather::Delay { by, jitter: Duration::from_millis(10) });
    let (first, second) = (claim_for(Duration::from_secs(2)), claim_for(Duration::from_secs(2)));
    let Claimed::Granted(grant) = setting.far.claim(&first).await.unwrap() else { panic!("not granted") };
    assert!(grant.valid_until <= honoured(&setting).await);
    let Claimed::Granted(again) = setting.far.claim(&first).await.unwrap() else { panic!("not granted") };
    assert!(again.valid_until <= honoured(&setting).await, "asking again refreshes nothing");
    let Renewed::Valid { until } = renewed(&setting.far, &first).await else { panic!("gone") };
    assert!(until <= honoured(&setting).await && until > grant.valid_until);
    assert!(matches!(setting.far.claim(&second).await, Ok(Claimed::Queued(_))));
    let withdrawn = async {
        let waiting = || async { Ok((setting.claims_left().await == 2).then_some(())) };
        eventually(PATIENCE, "the queue", waiting).await.unwrap();
        setting.near.withdraw(std::slice::from_ref(&first)).await.unwrap()
    };
    let (waited, _) = tokio::join!(setting.far.wait(&second), withdrawn);
    let Ok(Waited::Granted(grant)) = waited else { panic!("{waited:?}") };
    assert!(grant.valid_until <= honoured(&setting).await);
}

#[tokio::test]
async fn a_guard_behind_a_silent_line_ends_before_its_resource_passes_on() {
    let setting = Setting::new().await;
    let config = RemoteConfig::new(setting.proxy.address(), "").call_timeout(LIMIT);
    let engine = Arc::new(RemoteEngine::open(config).await.unwrap());
    let client = Client::builder().ttl(Duration::from_millis(900)).over(engine).unwrap();
    let guard = client.mutex("a").unwrap().acquire().await.unwrap();
    setting.proxy.set(Weather::Silent);
    let next = claim();
    assert!(matches!(setting.near.claim(&next).await, Ok(Claimed::Queued(_))));
    let waited = bounded(PATIENCE, "the turn", setting.near.wait(&next)).await.unwrap();
    assert!(!guard.is_valid(), "two believe to hold it");
    assert!(matches!(waited, Ok(Waited::Granted(_))), "{waited:?}");
    let lost = bounded(PATIENCE, "the loss", guard.lost()).await.unwrap();
    assert!(!lost.to_string().is_empty());
    setting.proxy.set(Weather::Clear);
    drop(guard);
    client.close().await;
    assert_eq!(setting.claims_left().await, 1, "the successor's claim, and no other");
}

#[tokio::test]
async fn a_successor_with_a_greater_epoch_counts_on_and_knows_no_claims() {
    let options = |epoch| ServerOptions { source: Some("s".to_owned()), epoch, ..ServerOptions::default() };
    let mut setting = Setting::with(options(3)).await;
    let (held, mut signals) = (claim(), setting.far.signals().subscribe());
    let first = token(setting.far.claim(&held).await);
    setting.replace_server(options(4)).await;
    assert!(matches!(renewed(&setting.far, &held).await, Renewed::Gone(_)));
    assert_eq!(next(&mut signals, gone).await.0, held.id);
    assert!(token(setting.far.claim(&claim()).await) > first);
    // The same epoch again is a server that forgot: what a checker must find.
    setting.replace_server(options(3)).await;
    assert_eq!(token(setting.near.claim(&claim()).await), first);
}

#[tokio::test]
async fn a_server_that_counts_other_tokens_is_refused() {
    let mut setting = Setting::new().await;
    let (held, mut signals) = (claim(), setting.far.signals().subscribe());
    token(setting.far.claim(&held).await);
    setting.replace_server(ServerOptions::default()).await;
    let refused = || async {
        let error = setting.far.renew(std::slice::from_ref(&held)).await.unwrap_err();
        Ok((!error.is_transient()).then_some(error))
    };
    let error = eventually(PATIENCE, "the refusal", refused).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::SourceMismatch, "{error}");
    let lost = |signal: &Signal| matches!(signal, Signal::Connection(ConnectionState::Lost)).then_some(());
    next(&mut signals, lost).await;
    assert_eq!(setting.far.claim(&claim()).await.unwrap_err().kind(), ErrorKind::SourceMismatch);
}

#[tokio::test]
async fn a_new_server_can_wait_for_the_claims_of_the_one_before() {
    let grace = Duration::from_millis(300);
    let started = SystemClock.now();
    let setting = Setting::with(ServerOptions { grace, ..ServerOptions::default() }).await;
    let claim = claim();
    let granted = || async {
        match setting.near.claim(&claim).await {
            Err(error) if error.is_transient() && error.effect() == Effect::None => Ok(None),
            answer => Ok(Some(answer?)),
        }
    };
    eventually(PATIENCE, "the first grant", granted).await.unwrap();
    assert!(SystemClock.now().saturating_since(started) >= grace);
}

#[tokio::test]
async fn a_watch_ends_with_its_connection_and_can_be_made_anew() {
    let setting = Setting::new().await;
    let all = Selector::everything("");
    let mut events = setting.far.watch(&all).await.unwrap();
    let held = claim();
    token(setting.near.claim(&held).await);
    assert!(bounded(PATIENCE, "the first event", events.next()).await.unwrap().unwrap().is_ok());
    setting.proxy.set(Weather::Cut);
    let error = bounded(PATIENCE, "the watch's end", events.next()).await.unwrap().unwrap().unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(events.next().await.is_none());
    setting.proxy.set(Weather::Clear);
    let mut events = setting.far.watch(&all).await.unwrap();
    assert!(bounded(PATIENCE, "the present state", events.next()).await.unwrap().unwrap().is_ok());
}

#[tokio::test]
async fn closing_ends_what_is_under_way() {
    let setting = Setting::new().await;
    let (held, queued) = (claim(), claim());
    token(setting.near.claim(&held).await);
    setting.far.claim(&queued).await.unwrap();
    setting.proxy.set(Weather::Silent);
    let reading = name("r");
    let mut wait = std::pin::pin!(setting.far.wait(&queued));
    let mut read = std::pin::pin!(setting.far.read(&reading, None));
    assert!(poll!(wait.as_mut()).is_pending() && poll!(read.as_mut()).is_pending());
    setting.far.close().await;
    let wait = bounded(PATIENCE, "the wait's end", wait).await.unwrap();
    let read = bounded(PATIENCE, "the read's end", read).await.unwrap();
    assert_eq!(wait.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(read.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn hostile_requests_are_answered_with_errors() {
    let setting = Setting::new().await;
    let mut greedy = Claim::clone(&claim());
    greedy.token_floor = Token::new(Token::MAX);
    let error = setting.near.claim(&Arc::new(greedy)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    // Nobody to say hello to: the connection ends, the server stays.
    let mut stranger = tokio::net::TcpStream::connect(setting.server.address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stranger, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let end = tokio::io::AsyncReadExt::read_to_end(&mut stranger, &mut said);
    let _ = bounded(PATIENCE, "the stranger's end", end).await.unwrap();
    token(setting.near.claim(&claim()).await);
}
