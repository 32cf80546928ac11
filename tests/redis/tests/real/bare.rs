//! Locks of a quorum that are taken without a script: what the script would have done must come out.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use palisade_core::{
    Claim, Claimed, Effect, Engine, ErrorKind, Mode, Name, Owner, Page, Selector, Token, Ttl, Waited,
};
use palisade_redis::{RedisConfig, RedisEngine};
use palisade_redis_trials::{server, soon, until, url};
use palisade_testkit::servers::RedisServer;

/// After which a server that stands still is given up.
const SHORT: Duration = Duration::from_millis(500);

/// An engine that knows the last token of its server, as one of a quorum does after its first claim.
struct Node {
    engine: RedisEngine,
    last: Token,
}

impl Node {
    async fn open(server: &RedisServer) -> Result<Self> {
        let mut config = RedisConfig::parse(&url(server))?;
        (config.call_timeout, config.connect_timeout) = (SHORT, SHORT);
        let engine = RedisEngine::open(config).await?;
        let first = Arc::new(claim("first", None)?);
        let last = granted(engine.claim(&first).await?)?;
        engine.withdraw(&[first]).await?;
        Ok(Self { engine, last })
    }

    /// A claim such as a quorum sends: its floor is the last token, so that the next one is known.
    fn claim(&self, resource: &str) -> Result<Arc<Claim>> {
        Ok(Arc::new(claim(resource, Some(self.last))?))
    }
}

fn claim(resource: &str, floor: Option<Token>) -> Result<Claim> {
    let ttl = Ttl::new(Duration::from_secs(5))?;
    let mut claim = Claim::new(Name::new(resource)?, Mode::Exclusive, ttl, Arc::new(Owner::this_process()));
    claim.token_floor = floor;
    Ok(claim)
}

fn granted(claimed: Claimed) -> Result<Token> {
    match claimed {
        Claimed::Granted(grant) => Ok(grant.token),
        other => bail!("not granted: {other:?}"),
    }
}

/// How often clients sent the command that only bare claims have.
async fn bare_claims(server: &RedisServer) -> Result<u64> {
    let info = server.ask(&["INFO", "commandstats"]).await?;
    let line = info.text().lines().find_map(|line| line.strip_prefix("cmdstat_incr:calls="));
    line.map_or(Ok(0), |rest| {
        rest.split(',').next().context("a number of calls")?.parse().map_err(Into::into)
    })
}

async fn is_free(server: &RedisServer, key: &str) -> Result<bool> {
    Ok(server.ask(&["EXISTS", key]).await?.text() == "0")
}

#[tokio::test]
async fn the_next_token_is_written_and_the_record_with_it() -> Result<()> {
    let server = server().await?;
    let node = Node::open(&server).await?;
    let claim = node.claim("orders")?;
    let before = bare_claims(&server).await?;
    let token = granted(node.engine.claim(&claim).await?)?;
    ensure!(token.get() == node.last.get() + 1, "{token} does not follow {}", node.last);
    ensure!(bare_claims(&server).await? == before + 1, "a script was called");
    ensure!(granted(node.engine.claim(&claim).await?)? == token, "asked again, it is another token");
    let other = RedisEngine::open(RedisConfig::parse(&url(&server))?).await?;
    let seen = other.inspect(&Selector::resource(claim.resource.clone()), &Page::default()).await?;
    let holder = seen.resources.first().and_then(|resource| resource.holders.first()).context("a holder")?;
    ensure!((holder.claim, holder.token) == (claim.id, Some(token)), "{holder:?}");
    node.engine.withdraw(&[claim]).await?;
    ensure!(is_free(&server, "orders").await?, "it was not given back");
    Ok(())
}

#[tokio::test]
async fn a_token_is_above_all_that_others_made_meanwhile() -> Result<()> {
    let server = server().await?;
    let node = Node::open(&server).await?;
    // Somebody held this very lock meanwhile.
    server.ask(&["INCRBY", "palisade:t", "50"]).await?;
    let claim = node.claim("orders")?;
    let before = bare_claims(&server).await?;
    let token = granted(node.engine.claim(&claim).await?)?;
    ensure!(bare_claims(&server).await? > before, "it was not tried without a script");
    ensure!(token.get() > node.last.get() + 50, "{token} is one of an earlier holder");
    ensure!(granted(node.engine.claim(&claim).await?)? == token, "asked again, it is another token");
    Ok(())
}

#[tokio::test]
async fn whoever_waits_is_not_overtaken() -> Result<()> {
    let server = server().await?;
    let [holder, second] = [Node::open(&server).await?, Node::open(&server).await?];
    let held = node_claim(&holder, "orders").await?;
    let waiting = Arc::new(claim("orders", None)?);
    ensure!(matches!(second.engine.claim(&waiting).await?, Claimed::Queued(_)), "{held:?} is not held");
    let late = Node::open(&server).await?;
    // The lock is free, and whoever waits does not know yet.
    server.ask(&["DEL", "orders"]).await?;
    let claim = late.claim("orders")?;
    let before = bare_claims(&server).await?;
    let place = late.engine.claim(&claim).await?;
    ensure!(bare_claims(&server).await? > before, "it was not tried without a script");
    ensure!(matches!(place, Claimed::Queued(_)), "it came in ahead of who waited: {place:?}");
    let turn = soon("the first in line has its turn", second.engine.wait(&waiting)).await??;
    ensure!(matches!(turn, Waited::Granted(_)), "{turn:?}");
    second.engine.withdraw(&[waiting]).await?;
    let turn = soon("the next in line has its turn", late.engine.wait(&claim)).await??;
    ensure!(matches!(turn, Waited::Granted(_)), "{turn:?}");
    Ok(())
}

#[tokio::test]
async fn whoever_looks_marks_a_lock_that_was_taken_ahead_of_it() -> Result<()> {
    let server = server().await?;
    let [holder, second] = [Node::open(&server).await?, Node::open(&server).await?];
    node_claim(&holder, "orders").await?;
    let waiting = Arc::new(claim("orders", None)?);
    ensure!(matches!(second.engine.claim(&waiting).await?, Claimed::Queued(_)), "it is not held");
    // As bare commands would have written it: unmarked, so that who gives it back would wake nobody.
    let marked = server.ask(&["GET", "orders"]).await?.text().to_owned();
    let (id, rest) = marked.split_once('+').context("the mark")?;
    server.ask(&["SET", "orders", &format!("{id} {rest}"), "PX", "5000"]).await?;
    second.engine.claim(&waiting).await?;
    let value = server.ask(&["GETRANGE", "orders", "0", "32"]).await?;
    ensure!(value.text().ends_with('+'), "{value:?} is not marked");
    Ok(())
}

async fn node_claim(node: &Node, resource: &str) -> Result<Arc<Claim>> {
    let claim = Arc::new(claim(resource, None)?);
    granted(node.engine.claim(&claim).await?)?;
    Ok(claim)
}

#[tokio::test]
async fn a_claim_that_was_withdrawn_before_it_came_does_not_come_in() -> Result<()> {
    let server = server().await?;
    let [other, node] = [Node::open(&server).await?, Node::open(&server).await?];
    let claim = node.claim("orders")?;
    other.engine.withdraw(&[Arc::clone(&claim)]).await?;
    let before = bare_claims(&server).await?;
    let Err(error) = node.engine.claim(&claim).await else { bail!("it came in") };
    ensure!(error.kind() == ErrorKind::Lost, "{error}");
    ensure!(bare_claims(&server).await? > before, "it was not tried without a script");
    ensure!(is_free(&server, "orders").await?, "it stands in the way of others");
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_counted_is_not_taken() -> Result<()> {
    let server = server().await?;
    let node = Node::open(&server).await?;
    server.ask(&["SET", "palisade:t", "no number"]).await?;
    let claim = node.claim("orders")?;
    let before = bare_claims(&server).await?;
    ensure!(node.engine.claim(&claim).await.is_err(), "a token out of nothing");
    ensure!(bare_claims(&server).await? > before, "it was not tried without a script");
    ensure!(is_free(&server, "orders").await?, "it failed, and stands in the way of others");
    Ok(())
}

#[tokio::test]
async fn an_answer_that_never_came_is_asked_for_again() -> Result<()> {
    let server = server().await?;
    let node = Node::open(&server).await?;
    let claim = node.claim("orders")?;
    server.stop()?;
    let unheard = soon("the connection is given up", node.engine.claim(&claim)).await?;
    server.go_on()?;
    let Err(error) = unheard else { bail!("a server that stands still has answered") };
    ensure!(error.effect() == Effect::Unknown, "{error}");
    // The server reads what was sent while it stood, or drops it with the connection: both are right.
    let again = || async {
        match node.engine.claim(&claim).await {
            Ok(claimed) => Ok(granted(claimed)? > node.last),
            Err(error) if error.is_transient() => Ok(false),
            Err(error) => Err(error.into()),
        }
    };
    until("the server is asked again, and grants a later token", again).await?;
    node.engine.withdraw(&[claim]).await?;
    ensure!(is_free(&server, "orders").await?, "something was left behind");
    Ok(())
}
