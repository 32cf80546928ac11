//! Who joins a line by the shortcut stands apart from those who came before, until somebody has to look at all of them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail, ensure};
use palisade_core::{
    Claim, ClaimId, Claimed, Engine, Mode, Name, Owner, Page, Renewed, Selector, Token, Ttl, Waited,
    Withdrawn,
};
use palisade_redis::{RedisConfig, RedisEngine};
use palisade_redis_trials::{server, soon, until, url};
use palisade_testkit::servers::{RedisOptions, RedisServer};

/// Clients that want one lock: the first holds it, the others stand in line behind it in this order.
struct Line {
    server: RedisServer,
    members: Vec<(RedisEngine, Arc<Claim>)>,
}

impl Line {
    async fn of(size: usize) -> Result<Self> {
        Self::at(server().await?, size).await
    }

    async fn at(server: RedisServer, size: usize) -> Result<Self> {
        let mut line = Self { server, members: Vec::new() };
        for _ in 0..size {
            line.join().await?;
        }
        Ok(line)
    }

    /// One more comes.
    async fn join(&mut self) -> Result<()> {
        let engine = RedisEngine::open(RedisConfig::parse(&url(&self.server))?).await?;
        let (ttl, owner) = (Ttl::new(Duration::from_secs(30))?, Arc::new(Owner::this_process()));
        let claim = Arc::new(Claim::new(Name::new("orders")?, Mode::Exclusive, ttl, owner));
        match (engine.claim(&claim).await?, self.members.len()) {
            (Claimed::Granted(_), 0) => {}
            (Claimed::Queued(place), at) if place.ahead as usize + 1 == at => {}
            (other, at) => bail!("number {at} of the line is {other:?}"),
        }
        self.members.push((engine, claim));
        Ok(())
    }

    async fn count(&self, command: &str, key: &str) -> Result<usize> {
        Ok(self.server.ask(&[command, key]).await?.text().parse()?)
    }

    /// How many came by the shortcut, and were not put in their place yet.
    async fn apart(&self) -> Result<usize> {
        self.count("LLEN", "palisade:{orders}:q").await
    }

    /// How many the server could tell something.
    async fn connected(&self) -> Result<usize> {
        let list = self.server.ask(&["CLIENT", "LIST"]).await?;
        Ok(list.text().lines().filter(|client| client.contains(" sub=1 ")).count())
    }

    /// Waits for the turn of the first, after which it gives back what it got.
    async fn serve_first(&mut self) -> Result<Token> {
        let (engine, claim) = self.members.remove(0);
        let Waited::Granted(grant) = soon("the next has its turn", engine.wait(&claim)).await?? else {
            bail!("the next in line is gone")
        };
        let answer = engine.withdraw(&[claim]).await?;
        ensure!(answer == [Withdrawn::Released], "it was held, but its withdrawal says {answer:?}");
        Ok(grant.token)
    }

    /// Gives back what the first holds; then all others must have their turns, each with a greater token.
    async fn serve_all(&mut self) -> Result<()> {
        let mut last = None;
        while !self.members.is_empty() {
            let token = Some(self.serve_first().await?);
            ensure!(token > last, "{token:?} came after {last:?}");
            last = token;
        }
        for key in ["orders", "palisade:{orders}:q", "palisade:{orders}:w", "palisade:{orders}:e"] {
            ensure!(self.count("EXISTS", key).await? == 0, "{key} was left");
        }
        Ok(())
    }

    /// Who waits, as anybody sees it.
    async fn waiters(&self) -> Result<Vec<ClaimId>> {
        let (engine, claim) = &self.members[0];
        let seen = engine.inspect(&Selector::resource(claim.resource.clone()), &Page::default()).await?;
        let waiters = seen.resources.iter().flat_map(|view| &view.waiters);
        Ok(waiters.map(|waiter| waiter.claim).collect())
    }

    /// Looks, and finds all that wait in their order, each once.
    async fn is_in_order(&self) -> Result<()> {
        let (seen, expected) = (self.waiters().await?, &self.ids()[1..]);
        ensure!(seen == expected, "in line are {seen:?}, and should be {expected:?}");
        Ok(())
    }

    /// One that waits leaves, and stays connected for as long as its engine is kept.
    async fn leaves(&mut self, at: usize) -> Result<RedisEngine> {
        let (engine, claim) = self.members.remove(at);
        let answer = engine.withdraw(&[claim]).await?;
        ensure!(answer == [Withdrawn::LeftQueue], "it was in line, but its withdrawal says {answer:?}");
        Ok(engine)
    }

    /// What stands for one of those who stand apart.
    async fn entry(&self, at: &str) -> Result<String> {
        Ok(self.server.ask(&["LINDEX", "palisade:{orders}:q", at]).await?.text().to_owned())
    }

    fn ids(&self) -> Vec<ClaimId> {
        self.members.iter().map(|(_, claim)| claim.id).collect()
    }
}

#[tokio::test]
async fn all_are_served_in_the_order_in_which_they_came() -> Result<()> {
    let mut line = Line::of(8).await?;
    ensure!(line.apart().await? == 6, "only the first in line takes the long way");
    line.serve_all().await
}

#[tokio::test]
async fn whoever_looks_puts_all_in_their_place() -> Result<()> {
    let mut line = Line::of(6).await?;
    for _ in 0..2 {
        line.serve_first().await?;
    }
    ensure!(line.apart().await? == 3, "those who came by the shortcut are let in one by one");
    line.is_in_order().await?;
    ensure!(line.apart().await? == 0, "somebody still stands apart");
    line.serve_all().await
}

/// Those who come after a look stand behind those whom it put in their place.
#[tokio::test]
async fn a_look_in_between_changes_nothing() -> Result<()> {
    let mut line = Line::of(4).await?;
    line.waiters().await?;
    for _ in 0..2 {
        line.join().await?;
    }
    ensure!(line.apart().await? == 2, "they did not come by the shortcut");
    line.serve_all().await
}

#[tokio::test]
async fn a_claim_that_is_asked_for_again_stands_in_line_once() -> Result<()> {
    let mut line = Line::of(5).await?;
    let (engine, claim) = &line.members[3];
    let Claimed::Queued(place) = engine.claim(claim).await? else { bail!("it has left the line") };
    ensure!(place.ahead == 2, "its place moved: {} wait ahead of it", place.ahead);
    line.is_in_order().await?;
    line.serve_all().await
}

/// As over a connection that broke: the first copy of a claim comes after the second one.
#[tokio::test]
async fn a_copy_that_comes_late_is_no_second_claim() -> Result<()> {
    let mut line = Line::of(5).await?;
    let copy = line.entry("1").await?;
    line.server.ask(&["RPUSH", "palisade:{orders}:q", &copy]).await?;
    line.is_in_order().await?;
    // And one of whoever holds.
    let own = format!("{}{}", line.ids()[0], &copy[32..]);
    line.server.ask(&["RPUSH", "palisade:{orders}:q", &own]).await?;
    line.is_in_order().await?;
    line.serve_all().await
}

/// As if the same claim were asked for over two engines.
#[tokio::test]
async fn who_stands_apart_twice_has_one_turn() -> Result<()> {
    let mut line = Line::of(3).await?;
    let copy = line.entry("0").await?;
    line.server.ask(&["RPUSH", "palisade:{orders}:q", &copy]).await?;
    line.serve_all().await
}

/// A clock that jumps, or a hand, can take the mark away that says that somebody waits.
#[tokio::test]
async fn who_stands_apart_is_found_without_the_mark() -> Result<()> {
    let mut line = Line::of(5).await?;
    line.server.ask(&["DEL", "palisade:m"]).await?;
    let _left = line.leaves(2).await?;
    let (engine, claim) = &line.members[3];
    let answer = engine.renew(&[Arc::clone(claim)]).await?;
    ensure!(matches!(answer[0], Renewed::Valid { .. }), "it waits, but its renewal says {answer:?}");
    line.serve_all().await
}

/// A server without a clock of its own begins in 1970, where times are shorter.
#[tokio::test]
async fn a_line_stands_on_a_server_that_believes_in_1973() -> Result<()> {
    let server = RedisServer::start(RedisOptions { clock: true, ..RedisOptions::default() }).await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    server.shift_clock(100_000_000 - i64::try_from(now)?)?;
    let mut line = Line::at(server, 6).await?;
    ensure!(line.apart().await? == 4, "they did not come by the shortcut");
    line.serve_first().await?;
    line.is_in_order().await?;
    line.serve_all().await
}

#[tokio::test]
async fn what_somebody_else_wrote_fails_no_other_claim() -> Result<()> {
    let mut line = Line::of(4).await?;
    line.server.ask(&["LPUSH", "palisade:{orders}:q", "x"]).await?;
    line.server.ask(&["SET", "palisade:{other}:q", "x"]).await?;
    let (engine, claim) = &line.members[0];
    let mut other = (**claim).clone();
    (other.id, other.resource) = (ClaimId::random(), Name::new("other")?);
    let both = [Arc::new(other), Arc::clone(claim)];
    ensure!(matches!(engine.claim(&both[0]).await?, Claimed::Granted(_)), "it is free");
    let answers = engine.renew(&both).await?;
    ensure!(answers.iter().all(|answer| matches!(answer, Renewed::Valid { .. })), "{answers:?}");
    ensure!(engine.withdraw(&both[..1]).await? == [Withdrawn::Released], "it was held");
    line.is_in_order().await?;
    line.serve_all().await
}

#[tokio::test]
async fn whoever_leaves_or_dies_stalls_nobody() -> Result<()> {
    let mut line = Line::of(8).await?;
    // Dies, and its connection with it.
    drop(line.members.remove(5));
    let _left = line.leaves(3).await?;
    drop(line.members.remove(1));
    // What is told to somebody who ends at that moment is told in vain, and stands until its TTL.
    until("the server has noticed", async || Ok(line.connected().await? == line.members.len() + 1)).await?;
    while !line.members.is_empty() {
        line.serve_first().await?;
    }
    Ok(())
}
