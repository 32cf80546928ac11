//! Makes the connections, and makes them again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{
    BootInstant, Claim, ClaimId, Clock, ConnectionState, Error, ErrorKind, GoneReason, Result, Signal,
    SystemClock,
};
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior};

use crate::engine::{Hearing, Inner};
use crate::link::Lines;
#[cfg(feature = "postgres")]
use crate::postgres::{self, Listen, OnNews, PostgresConfig};
use crate::server::{Facts, Line, Server};
use crate::verbs::TOGETHER;

/// All connections of one engine while they last.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) lines: Arc<Lines>,
    /// Over which this client is told of its turns.
    ear: Option<Line>,
}

/// The last claims that turned out to be gone while they were held, the latest last: whoever renews one of them is told
/// the same reason.
#[derive(Debug, Default)]
pub(crate) struct Ended(Mutex<VecDeque<(ClaimId, GoneReason)>>);

impl Ended {
    const MOST: usize = 256;

    fn note(&self, claim: ClaimId, reason: &GoneReason) {
        let mut all = self.0.lock();
        all.push_back((claim, reason.clone()));
        if all.len() > Self::MOST {
            all.pop_front();
        }
    }

    fn reason(&self, claim: ClaimId) -> Option<GoneReason> {
        self.0.lock().iter().find(|(ended, _)| *ended == claim).map(|(_, reason)| reason.clone())
    }
}

/// Keeps connections up until the engine is closed.
pub(crate) async fn keep(inner: Arc<Inner>, mut session: Session) {
    loop {
        let mut end = inner.until_down(&session).await;
        if matches!(end, End::Deaf) && inner.listen_again(&mut session).await.is_ok() {
            continue;
        }
        if inner.link.is_closed() {
            end = End::Closed;
        }
        inner.link.broken(end.why());
        // The old connections end here, with everything that was under way on them.
        drop(session);
        if matches!(end, End::Closed) {
            return;
        }
        inner.signals.send(Signal::Connection(ConnectionState::Suspended));
        session = match inner.reconnect().await {
            Some(session) => session,
            None => return,
        };
    }
}

/// Why connections are of no use any more.
#[derive(Debug, Clone, Copy)]
enum End {
    Lost,
    Silent,
    /// Only the one over which this client is told.
    Deaf,
    Closed,
}

impl End {
    fn why(self) -> &'static str {
        match self {
            Self::Lost => "the connection was lost",
            Self::Silent => "the server did not answer in time",
            Self::Deaf => "the connection for news was lost",
            Self::Closed => "it was closed",
        }
    }
}

/// Asks how claims stand, where nobody tells.
pub(crate) async fn poll(inner: Arc<Inner>, every: Duration) {
    /// How often to look for claims that are held: they end unasked only if they are evicted.
    const HELD: Duration = Duration::from_secs(1);
    let mut held = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = inner.link.until_closed() => return,
        }
        let all = held.elapsed() >= HELD;
        if all {
            held = Instant::now();
        }
        let mut claims = inner.claims.standing(all);
        if claims.len() > TOGETHER {
            // Ten thousand would be twenty statements a second; of those on leases the next renewal tells as well.
            let on_lease = inner.groups.carried();
            claims.retain(|claim| !(on_lease(claim.id) && inner.claims.is_held(claim.id)));
        }
        if claims.is_empty() {
            continue;
        }
        if let Ok(line) = inner.link.line().await
            && let Err(error) = inner.look_at(&line, &claims, false).await
        {
            tracing::debug!(%error, "how claims stand could not be asked");
        }
    }
}

impl Inner {
    /// Completes once the connections are of no use any more, and says why.
    async fn until_down(&self, session: &Session) -> End {
        let ear_ends = async {
            match &session.ear {
                Some(ear) => ear.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = session.lines.ended() => End::Lost,
            () = ear_ends => End::Deaf,
            end = self.watch_over(session) => end,
            () = self.link.until_closed() => End::Closed,
        }
    }

    /// Watches over connections: whoever waits for an answer or a message would not notice a silent end.
    async fn watch_over(&self, session: &Session) -> End {
        let limit = (self.config.call_timeout / 2).clamp(Duration::from_millis(20), Duration::from_secs(2));
        let mut looks = tokio::time::interval((limit / 2).max(Duration::from_millis(10)));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            for line in session.lines.all() {
                if line.stuck() >= limit && !line.has_ended() && !self.look_after(session, &line, limit).await
                {
                    return End::Silent;
                }
            }
            if let Some(ear) = &session.ear
                && !self.claims.is_empty()
                && ear.silent() >= limit / 2
                && !ear.answers(limit).await
            {
                return End::Deaf;
            }
        }
    }

    /// Asks beside a connection on which nothing comes: a statement may be at work for long, as a commit is that waits
    /// for another server, and to leave it would only leave its process behind. If the server knows nothing of it, this
    /// one connection is given up. `false` if the server does not answer at all.
    async fn look_after(&self, session: &Session, line: &Line, limit: Duration) -> bool {
        let Ok(other) = session.lines.beside(line, limit).await else { return false };
        let Some(at_work) = other.sees_at_work(line, limit).await else { return other.silent() < limit };
        // Behind a pooler the server cannot say, and the pooler itself may have to wait.
        let patience = if line.keeps_statements() { limit } else { limit * 2 };
        if !at_work && line.stuck() >= patience {
            tracing::debug!("a connection went silent");
            line.end();
        }
        true
    }

    /// Listens anew after the connection for that was lost, and asks for what was told meanwhile.
    async fn listen_again(self: &Arc<Self>, session: &mut Session) -> Result<()> {
        session.ear = None;
        let line = self.link.line().await?;
        match &self.config.server {
            // A name may lead elsewhere by now.
            #[cfg(feature = "postgres")]
            Server::Postgres(config) => session.ear = Some(self.hear(config, &line, true).await?),
            #[cfg(feature = "mysql")]
            Server::MySql(_) => {}
        }
        self.look_at(&line, &self.claims.standing(true), true).await?;
        self.claims.wake_all();
        Ok(())
    }

    /// Makes connections that are ready to serve.
    ///
    /// `arrived`: one to begin with, if there is any.
    pub(crate) async fn connect(
        self: &Arc<Self>,
        arrived: Option<(Line, Facts)>,
    ) -> Result<(Session, Facts)> {
        let limit = self.config.connect_timeout * 3;
        tokio::time::timeout(limit, self.make(arrived)).await.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Unavailable, format!("the server did not answer within {limit:?}")))
        })
    }

    async fn make(self: &Arc<Self>, arrived: Option<(Line, Facts)>) -> Result<(Session, Facts)> {
        let named = self.hearing == Hearing::Told { pooled: false };
        // A name may lead elsewhere by now: to a pooler that forgets who listens.
        let anew = arrived.is_none();
        let (line, facts) = match arrived {
            Some(arrived) => arrived,
            None => {
                let line = self.config.server.dial(named).await?;
                let facts = self.config.server.arrive(&line).await?;
                (line, facts)
            }
        };
        let ear = match (&self.hearing, &self.config.server) {
            #[cfg(feature = "postgres")]
            (Hearing::Told { .. }, Server::Postgres(config)) => {
                Some(self.hear(config, &line, anew || matches!(config.listen, Listen::At(_))).await?)
            }
            _ => None,
        };
        Ok((Session { lines: Lines::new(&self.config, named, line, &facts), ear }, facts))
    }
}

#[cfg(feature = "postgres")]
impl Inner {
    /// A connection over which this client is told of its turns; `checked`: whether what is told over `line` is heard there.
    async fn hear(self: &Arc<Self>, config: &PostgresConfig, line: &Line, checked: bool) -> Result<Line> {
        let at = match &config.listen {
            Listen::At(at) => at,
            _ => config,
        };
        let ear = self.listen_at(at).await?;
        if checked {
            self.is_heard(line.postgres()?).await?;
        }
        Ok(Line::Postgres(ear))
    }

    async fn listen_at(self: &Arc<Self>, config: &PostgresConfig) -> Result<postgres::Line> {
        let weak = Arc::downgrade(self);
        let on_news: OnNews = Arc::new(move |news| {
            if let Some(inner) = weak.upgrade() {
                inner.told(news);
            }
        });
        let ear = postgres::dial(config, false, on_news).await?;
        ear.listen(&self.channel()).await?;
        Ok(ear)
    }

    /// Checks that what is told over one connection is heard over the other.
    async fn is_heard(&self, line: &postgres::Line) -> Result<()> {
        let heard = self.heard.notified();
        let mut heard = std::pin::pin!(heard);
        heard.as_mut().enable();
        line.notify(&self.channel(), "H").await?;
        tokio::time::timeout(self.config.connect_timeout, heard).await.map_err(|_| {
            let message =
                "what is told is not heard at `listen`: it must lead to the same database, and past any pooler";
            Error::new(ErrorKind::Unavailable, message)
        })
    }

    fn channel(&self) -> String {
        format!("palisade_{}", self.client)
    }
}

impl Inner {
    /// Tries until there are connections, with pauses in between. `None` if the engine was closed.
    async fn reconnect(self: &Arc<Self>) -> Option<Session> {
        const FIRST_PAUSE: Duration = Duration::from_millis(5);
        const LONGEST_PAUSE: Duration = Duration::from_millis(500);
        let mut pause = FIRST_PAUSE;
        loop {
            let back = async {
                let (session, facts) = self.connect(None).await?;
                // Connections that do not get as far as this are none.
                self.look_at(session.lines.first(), &self.claims.standing(true), true).await?;
                Ok::<_, Error>((session, facts))
            };
            match back.await {
                Ok((session, facts)) => return self.return_to_service(session, facts),
                Err(error) => {
                    tracing::debug!(%error, "no connection yet");
                    self.link.still_down(&error.to_string());
                }
            }
            // Not all at the same moment: a server that comes back has enough to do.
            tokio::time::sleep(pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
            if self.link.is_closed() {
                return None;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn return_to_service(&self, session: Session, mut facts: Facts) -> Option<Session> {
        let mut known = self.facts.lock();
        if known.source != facts.source {
            tracing::warn!(was = %known.source, now = %facts.source, "another database answers");
            facts.forgot_at = SystemClock.now();
        }
        *known = facts;
        drop(known);
        // One that was promoted may have claims on them that were given back.
        self.groups.clear();
        if !self.link.up(&session.lines) {
            return None;
        }
        self.signals.send(Signal::Connection(ConnectionState::Reconnected));
        self.claims.wake_all();
        Some(session)
    }

    /// Asks how claims stand, and takes the answers in. `anew`: over connections that were just made. Otherwise of what
    /// is held only what was ended by somebody is told: what expired is noticed here, too, and renewing it says why.
    pub(crate) async fn look_at(&self, line: &Line, claims: &[Arc<Claim>], anew: bool) -> Result<()> {
        for some in claims.chunks(TOGETHER) {
            let looking = line.stand(&self.config.namespace, some);
            let limit = self.config.call_timeout;
            let (answers, _) = tokio::time::timeout(limit, looking).await.map_err(|_| {
                Error::new(ErrorKind::Timeout, format!("the server did not answer within {limit:?}"))
            })??;
            let now = SystemClock.now();
            for (claim, answer) in some.iter().zip(answers) {
                match answer.verdict {
                    b'g' => self.came_in(claim.id, answer.token, answer.slot),
                    b'u' if !anew && answer.note.is_none() && self.claims.is_held(claim.id) => {}
                    b'u' => self.is_gone(claim.id, self.why(claim.id, answer.note.as_deref(), now)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Notes that a claim is no more, and tells its client if it was held.
    pub(crate) fn is_gone(&self, claim: ClaimId, reason: GoneReason) {
        if self.claims.gone(claim, reason.clone()) {
            self.ended.note(claim, &reason);
            self.signals.send(Signal::Gone { claim, reason });
        }
    }

    /// Why a claim is gone: by what the server noted, else by what we know.
    pub(crate) fn why(&self, claim: ClaimId, note: Option<&str>, now: BootInstant) -> GoneReason {
        match note.map(|note| note.split_once(' ').unwrap_or((note, ""))) {
            Some(("evicted", reason)) => GoneReason::Evicted { reason: reason.to_owned() },
            Some(("withdrawn", _)) => GoneReason::Withdrawn,
            _ => self.ended.reason(claim).unwrap_or_else(|| self.claims.why_unknown(claim, now)),
        }
    }
}
