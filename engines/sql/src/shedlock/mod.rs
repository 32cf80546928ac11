//! Lease rows beside ShedLock: whoever holds a lock of ours also has its row in ShedLock's table.
//!
//! The claim comes first, with its queue, its fairness and its token; then the row, by the same server's clock. So of ours
//! one at most ever asks for a row: the one that has the claim. What is known of rows is in `rows.rs`, how they are
//! taken and freed in `together.rs`, what is shown of them in `show.rs`, how a row is signed in `signature.rs`; the
//! statements are in `postgres/shedlock.rs` and `mysql/shedlock.rs`, behind `table.rs`.

mod rows;
mod show;
mod signature;
mod table;
mod together;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use palisade_core::{
    Busy, Change, Changed, Claim, ClaimId, Claimed, Engine, Error, ErrorKind, Evicted, GoneReason, Grant,
    Inspection, Layer, Mode, Modes, Name, Page, Place, Profile, Renewed, Result, Selector, Token, Trips,
    Waited, WatchStream, Withdrawn, look_again,
};

use self::rows::{Rows, Stands};
pub(crate) use self::signature::{Held, Row, Signature};
pub(crate) use self::table::{Ending, Statements, Table, Taken};
use crate::engine::SqlEngine;
use crate::error::closed;
#[cfg(feature = "mysql")]
use crate::mysql::{self, MySqlConfig};
#[cfg(feature = "postgres")]
use crate::postgres::{self, PostgresConfig};

/// One client of a database, which contends with clients of ShedLock, too. It grants exclusive claims only, as they do.
#[derive(Debug)]
pub struct ShedlockEngine {
    /// Declared first: it ends before what it has done to rows is forgotten.
    claims: SqlEngine,
    rows: Arc<Rows>,
    profile: Profile,
}

impl ShedlockEngine {
    /// Connects as [`SqlEngine::postgres`] does, and looks for ShedLock's table, which belongs to others: it is not made.
    ///
    /// # Errors
    /// As there; [`ErrorKind::Invalid`] if there is no such table, with the statement that makes it, or if `config` has a
    /// namespace, of which ShedLock knows nothing.
    ///
    /// # Cancel safety
    /// As there.
    #[cfg(feature = "postgres")]
    pub async fn postgres(config: PostgresConfig, table: &str) -> Result<Self> {
        no_namespace(&config.namespace).map_err(|error| error.on_engine("postgres"))?;
        let claims = SqlEngine::postgres(config.clone()).await?;
        let found = async {
            let line = claims.inner.link.line().await?;
            postgres::find_shedlock(&config, line.postgres()?, &claims.source(), table).await
        };
        let table = found.await.map_err(|error| error.on_engine("postgres"))?;
        Ok(Self::new(claims, table))
    }

    /// As [`ShedlockEngine::postgres`], on MySQL or MariaDB.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    #[cfg(feature = "mysql")]
    pub async fn mysql(config: MySqlConfig, table: &str) -> Result<Self> {
        no_namespace(&config.namespace).map_err(|error| error.on_engine("mysql"))?;
        let claims = SqlEngine::mysql(config).await?;
        let found = async {
            let line = claims.inner.link.line().await?;
            mysql::find_shedlock(line.mysql()?, &claims.source(), table).await
        };
        let table = found.await.map_err(|error| error.on_engine("mysql"))?;
        Ok(Self::new(claims, table))
    }

    fn new(claims: SqlEngine, table: Table) -> Self {
        let mut profile = claims.profile().clone();
        profile.modes = Modes { shared: false, slots: false };
        profile.trips = Trips { claim: 2, withdraw: 2, renew: 2 };
        let rows = Arc::new(Rows::new(Arc::clone(&claims.inner), table));
        Self { claims, rows, profile }
    }

    /// What a claim comes to that was let in among ours.
    async fn let_in(&self, claim: &Arc<Claim>, grant: Grant) -> Result<Claimed> {
        // Whatever goes wrong from here on, the claim is there.
        let began = Instant::now();
        let taken = self.rows.take(claim, grant.token).await.map_err(Error::with_unknown_effect)?;
        match taken {
            Taken::Ours(_) if began.elapsed() < PROMPT => Ok(Claimed::Granted(self.rows.bound(claim, grant))),
            Taken::Ours(_) => {
                match self.has_waited_for_row(claim, grant).await.map_err(Error::with_unknown_effect)? {
                    Waited::Granted(grant) => Ok(Claimed::Granted(grant)),
                    Waited::Gone(reason) => Err(lost(&reason)),
                }
            }
            Taken::NotHeld => match self.end_of(claim).await? {
                Some(reason) => Err(lost(&reason)),
                // It is being withdrawn, by somebody who asked for that before.
                None => {
                    let message = "the claim is about to leave; ask again";
                    Err(Error::new(ErrorKind::Unavailable, message).with_unknown_effect())
                }
            },
            Taken::Others(_) if claim.will_wait => {
                Ok(Claimed::Queued(Place { ahead: 1, valid_until: grant.valid_until }))
            }
            Taken::Others(held) => {
                Layer::withdraw(self, std::slice::from_ref(claim))
                    .await
                    .map_err(Error::with_unknown_effect)?;
                let holders = held.iter().map(show::foreign).collect();
                Ok(Claimed::Busy(Busy { holders, look_again_in: None }))
            }
        }
    }

    /// Why a claim that is not held any more ended; `None` if it stands.
    async fn end_of(&self, claim: &Arc<Claim>) -> Result<Option<GoneReason>> {
        match self.claims.renew(std::slice::from_ref(claim)).await?.pop() {
            Some(Renewed::Gone(reason)) => {
                self.rows.forget(claim.id);
                Ok(Some(reason))
            }
            _ => Ok(None),
        }
    }

    /// Ends claims whose rows were taken away: others of ours may have them now, once their rows are free.
    async fn give_up(&self, lost: &[Arc<Claim>]) {
        if lost.is_empty() {
            return;
        }
        // If this fails, their TTLs end them.
        if let Err(error) = self.claims.withdraw(lost).await {
            tracing::debug!(%error, "claims whose rows were taken away could not be withdrawn");
        }
        self.rows.forget_each(lost);
    }

    /// Waits for a row that somebody else has, for a while. `Some` if the claim ended meanwhile.
    async fn wait_for_row(&self, claim: &Arc<Claim>, token: Token, tries: u32) -> Result<Option<GoneReason>> {
        let ends = match self.rows.take(claim, token).await {
            Ok(Taken::Ours(_)) => return Ok(None),
            Ok(Taken::NotHeld) => {
                if let Some(reason) = self.end_of(claim).await? {
                    return Ok(Some(reason));
                }
                Duration::MAX
            }
            // A little later than it ends: two clocks.
            Ok(Taken::Others(held)) => {
                held.map_or(Duration::MAX, |held| held.remains + Duration::from_millis(1))
            }
            // The claim outlives a connection, and somebody else's transaction that has the row.
            Err(error) if error.is_transient() => Duration::MAX,
            Err(error) => return Err(error),
        };
        self.pause(look_again(tries, rand::random()).min(ends)).await.map(|()| None)
    }

    async fn pause(&self, pause: Duration) -> Result<()> {
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = self.claims.inner.link.until_closed() => Err(closed()),
        }
    }

    /// What became of a claim that has its row now.
    async fn has_row_now(&self, claim: &Arc<Claim>, grant: Grant, tries: u32) -> Result<Option<Waited>> {
        if tries <= 1 {
            return Ok(Some(Waited::Granted(self.rows.bound(claim, grant))));
        }
        match self.has_waited_for_row(claim, grant).await {
            Ok(waited) => Ok(Some(waited)),
            Err(error) if error.is_transient() => {
                self.pause(look_again(tries, rand::random())).await.map(|()| None)
            }
            Err(error) => Err(error),
        }
    }

    /// What became of a claim that waited for the row that it has now. What this client knows of it may be old: what was
    /// ended by force meanwhile must not come in, beside whoever did.
    async fn has_waited_for_row(&self, claim: &Arc<Claim>, grant: Grant) -> Result<Waited> {
        let Some(reason) = self.end_of(claim).await? else {
            return Ok(Waited::Granted(self.rows.bound(claim, grant)));
        };
        // If this fails, the next of ours takes it all the same, and its TTL ends it for others.
        if let Err(error) = self.rows.free(std::slice::from_ref(claim)).await {
            tracing::debug!(%error, "the row of a claim that ended could not be freed");
        }
        Ok(Waited::Gone(reason))
    }
}

/// Whoever asked for a row for longer may have waited for it.
const PROMPT: Duration = Duration::from_millis(100);

fn lost(reason: &GoneReason) -> Error {
    let message = match reason {
        GoneReason::Evicted { reason } => format!("the claim was evicted: {reason}"),
        _ => "the claim ended before it was of use".to_owned(),
    };
    Error::new(ErrorKind::Lost, message)
}

fn no_namespace(namespace: &str) -> Result<()> {
    if namespace.is_empty() {
        return Ok(());
    }
    let message = "ShedLock knows no namespaces: two of them would share its rows; name another table for each, and no namespace";
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Whether a resource has a row: recipes have names of their own, which nobody else uses.
fn has_row(resource: &Name) -> bool {
    !resource.is_internal()
}

#[async_trait]
impl Layer for ShedlockEngine {
    fn inner(&self) -> &dyn Engine {
        &self.claims
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn claim(&self, claim: &Arc<Claim>) -> Result<Claimed> {
        let done = async {
            if claim.mode != Mode::Exclusive {
                let message =
                    format!("ShedLock knows exclusive locks only, not {}; leave out shedlock=", claim.mode);
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
            if has_row(&claim.resource) {
                self.rows.check(&claim.resource)?;
            }
            match self.claims.claim(claim).await? {
                Claimed::Granted(grant) if has_row(&claim.resource) => self.let_in(claim, grant).await,
                other => Ok(other),
            }
        };
        done.await.map_err(|error| error.about(&claim.resource))
    }

    async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        let mut tries = 0;
        loop {
            let grant = match self.claims.wait(claim).await? {
                Waited::Granted(grant) if has_row(&claim.resource) => grant,
                Waited::Gone(reason) => {
                    self.rows.forget(claim.id);
                    return Ok(Waited::Gone(reason));
                }
                granted @ Waited::Granted(_) => return Ok(granted),
            };
            let waited = if self.rows.is_taken(claim.id) {
                self.has_row_now(claim, grant, tries).await
            } else {
                let (began, token) = (Instant::now(), grant.token);
                let gone = self.wait_for_row(claim, token, tries).await;
                tries = if began.elapsed() < PROMPT { tries } else { tries.max(1) };
                gone.map(|gone| gone.map(Waited::Gone))
            };
            if let Some(waited) = waited.map_err(|error| error.about(&claim.resource))? {
                return Ok(waited);
            }
            tries += 1;
        }
    }

    async fn change(&self, claim: &Arc<Claim>, change: &Change) -> Result<Changed> {
        match change {
            Change::Mode(mode) if *mode != Mode::Exclusive => {
                Ok(Changed::Refused("ShedLock knows exclusive locks only".into()))
            }
            _ => self.claims.change(claim, change).await,
        }
    }

    async fn renew(&self, claims: &[Arc<Claim>]) -> Result<Vec<Renewed>> {
        let (renewed, rows) = futures::join!(self.claims.renew(claims), self.rows.extend(claims));
        let mut renewed = renewed?;
        let (mut lost, mut news) = (Vec::new(), false);
        for (claim, renewed) in claims.iter().zip(&mut renewed) {
            let Renewed::Valid { until } = renewed else {
                news = true;
                self.rows.forget(claim.id);
                continue;
            };
            match self.rows.stands(claim.id) {
                Stands::Until(row) => *until = row.min(*until),
                Stands::Elsewhere => news = true,
                Stands::Lost(reason) => {
                    *renewed = Renewed::Gone(reason);
                    lost.push(Arc::clone(claim));
                }
            }
        }
        self.give_up(&lost).await;
        match rows {
            // Of no claim is anything known that was not before.
            Err(error) if !news && lost.is_empty() => Err(error),
            _ => Ok(renewed),
        }
    }

    async fn withdraw(&self, claims: &[Arc<Claim>]) -> Result<Vec<Withdrawn>> {
        let waited: Vec<bool> = claims.iter().map(|claim| self.rows.only_waits(claim.id)).collect();
        self.rows.free(claims).await?;
        let mut withdrawn = self.claims.withdraw(claims).await?;
        for (withdrawn, _) in withdrawn.iter_mut().zip(waited).filter(|(_, waited)| *waited) {
            if *withdrawn == Withdrawn::Released {
                *withdrawn = Withdrawn::LeftQueue;
            }
        }
        self.rows.forget_each(claims);
        Ok(withdrawn)
    }

    async fn inspect(&self, selector: &Selector, page: &Page) -> Result<Inspection> {
        self.rows.inspect(selector, page).await
    }

    async fn evict(&self, resource: &Name, claim: ClaimId, reason: &str) -> Result<Evicted> {
        let evicted = self.claims.evict(resource, claim, reason).await?;
        if !has_row(resource) {
            return Ok(evicted);
        }
        let ended = self.rows.end(resource, claim, evicted == Evicted::Done).await;
        ended.map_err(|error| error.about(resource))
    }

    async fn watch(&self, selector: &Selector) -> Result<WatchStream> {
        self.rows.watch(selector).await
    }
}
