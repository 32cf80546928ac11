use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::select_all;
use palisade_core::{Claim, Clock, GoneReason, Mode, Result, SystemClock, Token, Waited};

use crate::claims::{Held, Knowledge, Stand};
use crate::conn::Ear;
use crate::engine::Inner;
use crate::error::{Code, closed, code_of, unexpected};
use crate::keys::LEASES;
use crate::line::{Blocker, Standing};
use crate::proto::{get_children, get_data};
use crate::take::Found;

impl Inner {
    /// Looks, watches whoever is in the way, and looks again when something has happened there.
    pub(crate) async fn wait(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Waited> {
        loop {
            if self.is_closed() {
                return Err(closed());
            }
            let Some(known) = self.claims.get(claim.id) else {
                return Ok(Waited::Gone(GoneReason::Unknown));
            };
            let told = known.turn.notified();
            let mut told = std::pin::pin!(told);
            told.as_mut().enable();
            match known.stand {
                Stand::Held(held) => return self.grant_of(claim, held).map(Waited::Granted),
                Stand::Gone(reason) => return Ok(Waited::Gone(reason)),
                // It is being deleted; its end is told.
                Stand::Lapsed { .. } => {
                    tokio::select! {
                        () = told => {}
                        () = self.until_closed() => {}
                    }
                    continue;
                }
                Stand::Asked | Stand::Waiting => {}
            }
            let ears = match self.turn(claim, &known).await {
                Ok(Turn::Over(waited)) => return Ok(waited),
                Ok(Turn::LookAgain) => continue,
                Ok(Turn::Listen(ears)) => ears,
                // What becomes of its claims is told by whoever attends its end.
                Err(error) if code_of(&error) == Some(Code::SESSION_EXPIRED) => {
                    tokio::select! {
                        () = told => {}
                        () = tokio::time::sleep(PAUSE) => {}
                        () = self.until_closed() => {}
                    }
                    continue;
                }
                // The place in line outlives a connection, and servers that cannot decide for a while.
                Err(error) if error.is_transient() => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            tokio::select! {
                // A watch ends with its connection; then it is looked again over the next one.
                _ = select_all(ears.iter().map(|ear| ear.something().boxed())) => {}
                () = told => {}
                () = self.until_closed() => {}
            }
        }
    }

    /// Looks once, and begins to listen if there is nothing else to do.
    async fn turn(&self, claim: &Arc<Claim>, known: &Knowledge) -> Result<Turn> {
        // Whoever was ahead when the claim came is mostly still there.
        if let Some(ahead) = self.claims.take_ahead(claim.id) {
            return self.listen(claim, known, Blocker::Node(ahead)).await;
        }
        // A session that may have run out unnoticed is asked after before anything is said.
        if known.until <= SystemClock.now() {
            known.seat.session.beat().await?;
        }
        let (line, at) = match self.look(claim, true).await? {
            Found::At(line, at) => (line, at),
            Found::Gone(reason) => {
                self.is_gone(claim.id, reason.clone());
                return Ok(Turn::Over(Waited::Gone(reason)));
            }
        };
        match self.advance(claim, &line, at).await? {
            None => Ok(Turn::LookAgain),
            Some(Standing::Holds { slot }) => {
                let created = known.seat.node.as_ref().and_then(|node| u64::try_from(node.created).ok());
                let own = created.and_then(Token::new);
                let token = line.token(at).or(own).ok_or_else(unexpected)?;
                self.grant_of(claim, Held { token, slot }).map(|grant| Turn::Over(Waited::Granted(grant)))
            }
            Some(Standing::Waits(blocker)) => self.listen(claim, known, blocker).await,
            Some(Standing::MayTake { .. }) => Err(unexpected()),
        }
    }

    /// Has the server tell of what happens to a blocker.
    async fn listen(&self, claim: &Claim, known: &Knowledge, blocker: Blocker) -> Result<Turn> {
        let folder = self.layout.resource(&claim.resource);
        let session = &known.seat.session;
        let conn = session.conn().await?;
        let (ears, watches) = match &blocker {
            Blocker::Node(name) => {
                let path = format!("{folder}/{name}");
                let ear = conn.listen(&path);
                (vec![ear], vec![conn.send(get_data(&path, true))])
            }
            Blocker::Anyone => {
                let leases = format!("{folder}/{LEASES}");
                let ears = vec![conn.listen(&leases), conn.listen(&folder)];
                // Whoever leaves, and another number of slots.
                (ears, vec![conn.send(get_children(&leases, true)), conn.send(get_data(&folder, true))])
            }
        };
        for watch in watches {
            if session.answer(watch).await?.found()?.is_none() {
                return Ok(Turn::LookAgain);
            }
        }
        if claim.mode == Mode::Shared || blocker == Blocker::Anyone {
            // It may have been written, and not only deleted, before the watch stood.
            return self.look_once_more(claim, &blocker, ears).await;
        }
        Ok(Turn::Listen(ears))
    }

    /// Listens only if it is still the same that is in the way.
    async fn look_once_more(&self, claim: &Claim, blocker: &Blocker, ears: Vec<Arc<Ear>>) -> Result<Turn> {
        match self.look(claim, true).await? {
            Found::At(line, at) if line.standing(at) == Standing::Waits(blocker.clone()) => {
                Ok(Turn::Listen(ears))
            }
            _ => Ok(Turn::LookAgain),
        }
    }
}

/// What is to be done next.
enum Turn {
    Over(Waited),
    LookAgain,
    Listen(Vec<Arc<Ear>>),
}

/// Before the next try, where the last one failed.
const PAUSE: Duration = Duration::from_millis(20);
