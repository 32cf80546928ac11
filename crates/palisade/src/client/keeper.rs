use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use palisade_core::{
    BootInstant, Claim, ClaimId, Clock, ConnectionState, Effect, Engine, Error, ErrorKind, Name, Renewed,
    Result, Signal, Withdrawn,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, watch};

use super::Hold;
use super::book::{Book, Release, State};
use crate::guard::LostReason;

/// The one task of a client: it renews all claims in batches, gives back what was dropped, and
/// declares guards lost before the engine can give their resources away.
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    done: watch::Receiver<bool>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    book: Mutex<Book>,
    wake: Notify,
    /// The client is gone or closed: release what is queued, then end.
    ending: Mutex<Ending>,
    connection: watch::Sender<ConnectionState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    No,
    /// The last handle and the last guard are gone.
    Dropped,
    /// Closed by hand, perhaps with live guards.
    Closed,
}

impl Keeper {
    pub(super) fn start(runtime: &Handle, engine: Arc<dyn Engine>, clock: Arc<dyn Clock>) -> Self {
        let shared = Arc::new(Shared {
            clock,
            book: Mutex::default(),
            wake: Notify::new(),
            ending: Mutex::new(Ending::No),
            connection: watch::Sender::new(ConnectionState::Connected),
        });
        let (finished, done) = watch::channel(false);
        let signals = engine.signals().subscribe();
        let round = Round {
            shared: Arc::clone(&shared),
            engine,
            signals: Some(signals),
            flights: FuturesUnordered::new(),
            renewing: 0,
        };
        runtime.spawn(async move {
            round.run().await;
            finished.send_replace(true);
        });
        Self { shared, done }
    }

    /// Starts to renew a held claim.
    ///
    /// # Errors
    /// If it is lost already: the client was closed, or the engine ended the claim meanwhile.
    pub(super) fn hold(&self, hold: Arc<Hold>) -> Result<()> {
        let (claim, deadline) = (hold.claim(), hold.deadline());
        self.enter(&claim, Some(hold), deadline)
    }

    /// Starts to renew a queued claim. Errors as [`Keeper::hold`].
    pub(super) fn queue(&self, claim: &Arc<Claim>, until: BootInstant) -> Result<()> {
        self.enter(claim, None, until)
    }

    fn enter(&self, claim: &Arc<Claim>, hold: Option<Arc<Hold>>, deadline: BootInstant) -> Result<()> {
        let now = self.shared.clock.now();
        match self.shared.book.lock().enter(claim, hold, deadline, now) {
            Ok(true) => self.shared.wake.notify_one(),
            Ok(false) => {}
            Err(LostReason::Closed) => return Err(Error::new(ErrorKind::Closed, "the client was closed")),
            Err(reason) => {
                return Err(Error::new(ErrorKind::Lost, format!("lost as soon as it was granted: {reason}")));
            }
        }
        Ok(())
    }

    /// Stops renewing a claim.
    pub(super) fn forget(&self, claim: ClaimId) {
        self.shared.book.lock().forget(claim);
    }

    /// Gives a claim back in the background.
    pub(super) fn release(&self, claim: &Arc<Claim>) {
        self.shared.book.lock().release(claim, self.shared.clock.now());
        self.shared.wake.notify_one();
    }

    /// Until when the place of a queued claim stands.
    pub(super) fn deadline(&self, claim: ClaimId) -> Option<BootInstant> {
        self.shared.book.lock().deadline(claim)
    }

    pub(super) fn held_by_this_task(&self, resource: &Name) -> usize {
        self.shared.book.lock().held_by_this_task(resource)
    }

    pub(super) fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.shared.connection.subscribe()
    }

    /// Releases everything and ends the task. Guards that still live are lost.
    pub(super) async fn close(&self) {
        // Under one lock: whoever is granted something from here on learns that it is too late.
        let holds = self.shared.book.lock().close(self.shared.clock.now());
        for hold in holds {
            hold.lose(LostReason::Closed);
        }
        self.end(Ending::Closed);
        let mut done = self.done.clone();
        // An error means that the runtime dropped the task: it is done too.
        let _ = done.wait_for(|done| *done).await;
    }

    fn end(&self, how: Ending) {
        *self.shared.ending.lock() = how;
        self.shared.wake.notify_one();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let how = *self.shared.ending.lock();
        if how == Ending::No {
            self.end(Ending::Dropped);
        }
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

/// The running task.
struct Round {
    shared: Arc<Shared>,
    engine: Arc<dyn Engine>,
    /// `None` once the engine has nothing more to say.
    signals: Option<broadcast::Receiver<Signal>>,
    flights: FuturesUnordered<BoxFuture<'static, Flight>>,
    /// How many of them are renewals.
    renewing: usize,
}

/// A call to the engine that has come back.
enum Flight {
    Renewed { claims: Vec<Arc<Claim>>, sent: BootInstant, answer: Result<Vec<Renewed>> },
    Released { releases: Vec<Release>, answer: Result<Vec<Withdrawn>> },
}

impl Round {
    /// While anything is held the keeper looks at the clock this often: a suspended machine's
    /// timers stand still, the boot-time clock does not.
    const LOOK: Duration = Duration::from_secs(1);
    /// A look that comes later than planned by this much means that the process stood still.
    const PAUSE: Duration = Duration::from_millis(500);
    /// After the client is gone, releases are tried for this long; then TTLs bound the rest.
    const LAST_TRIES: Duration = Duration::from_secs(5);

    async fn run(mut self) {
        let mut planned = BootInstant::FAR_FUTURE;
        let mut last_tries_end = None;
        loop {
            let now = self.shared.clock.now();
            let paused = now.saturating_since(planned) > Self::PAUSE;
            let (next_look, idle) = self.act(now, paused);
            let ending = *self.shared.ending.lock();
            if ending != Ending::No {
                let end = *last_tries_end.get_or_insert(now + Self::LAST_TRIES);
                if (idle && self.flights.is_empty()) || now >= end {
                    break;
                }
            }
            planned = next_look;
            self.sleep(next_look).await;
        }
    }

    /// Does what is due; returns when to look again, and whether no release is queued.
    fn act(&mut self, now: BootInstant, paused: bool) -> (BootInstant, bool) {
        let (work, next_look, idle) = {
            let mut book = self.shared.book.lock();
            let work = book.work(now, State { paused, renewing: self.renewing > 0 });
            book.next_look = book.next_look.min(now + Self::LOOK);
            (work, book.next_look, !book.is_releasing())
        };
        for (hold, reason) in work.lost {
            hold.lose(reason);
        }
        let batch = self.engine.profile().batch.max(1);
        for claims in work.renew.chunks(batch) {
            self.send_renewal(claims.to_vec(), now);
        }
        for releases in work.release.chunks(batch) {
            self.send_release(releases.to_vec());
        }
        (next_look, idle)
    }

    fn send_renewal(&mut self, claims: Vec<Arc<Claim>>, sent: BootInstant) {
        self.renewing += 1;
        let engine = Arc::clone(&self.engine);
        self.flights.push(Box::pin(async move {
            let answer = engine.renew(&claims).await;
            Flight::Renewed { claims, sent, answer }
        }));
    }

    fn send_release(&mut self, releases: Vec<Release>) {
        let engine = Arc::clone(&self.engine);
        self.flights.push(Box::pin(async move {
            let claims: Vec<_> = releases.iter().map(|release| Arc::clone(&release.claim)).collect();
            let answer = engine.withdraw(&claims).await;
            Flight::Released { releases, answer }
        }));
    }

    async fn sleep(&mut self, until: BootInstant) {
        let shared = Arc::clone(&self.shared);
        let signal = async {
            match &mut self.signals {
                Some(signals) => signals.recv().await,
                None => std::future::pending().await,
            }
        };
        // In this order: bad news first, and neither of the upper two can be starved by those below.
        // Being woken and being late need no turn of their own, as `act` follows every branch; of
        // signals there is at most one per held claim, of flights none but what `act` sent.
        tokio::select! {
            biased;
            signal = signal => self.hear(signal),
            Some(flight) = self.flights.next(), if !self.flights.is_empty() => self.land(flight),
            () = shared.wake.notified() => {}
            () = shared.clock.sleep_until(until) => {}
        }
    }

    fn land(&mut self, flight: Flight) {
        let now = self.shared.clock.now();
        self.renewing -= usize::from(matches!(flight, Flight::Renewed { .. }));
        match flight {
            Flight::Renewed { claims, sent, answer: Ok(answers) } => {
                self.reached(true);
                let drift = self.engine.profile().drift;
                let mut lost = Vec::new();
                let mut book = self.shared.book.lock();
                for (claim, answer) in claims.iter().zip(answers) {
                    lost.extend(book.renewed(
                        claim,
                        answer,
                        drift.margin(claim.ttl.as_duration()),
                        sent,
                        now,
                    ));
                }
                drop(book);
                for (hold, reason) in lost {
                    hold.lose(reason);
                }
            }
            Flight::Renewed { claims, sent, answer: Err(error) } => {
                tracing::debug!(%error, claims = claims.len(), "renewal failed");
                let trouble: Arc<str> = error.to_string().into();
                let mut book = self.shared.book.lock();
                let failed = claims.iter().filter(|claim| book.renewal_failed(claim.id, &trouble, sent, now));
                let news = failed.count() > 0;
                drop(book);
                if news {
                    self.reached(!error.is_transient());
                }
            }
            Flight::Released { answer: Ok(_), .. } => {}
            Flight::Released { releases, answer: Err(error) } => {
                tracing::debug!(%error, claims = releases.len(), "release failed");
                if error.is_transient() || error.effect() == Effect::Unknown {
                    self.shared.book.lock().release_again(releases, now);
                }
            }
        }
    }

    fn hear(&mut self, signal: Result<Signal, broadcast::error::RecvError>) {
        match signal {
            Ok(Signal::Gone { claim, reason }) => {
                let reason = LostReason::from(reason);
                let hold = self.shared.book.lock().end(claim, &reason);
                if let Some(hold) = hold {
                    hold.lose(reason);
                }
            }
            Ok(Signal::Connection(state)) => self.connection(state),
            Ok(_) => {}
            Err(broadcast::error::RecvError::Lagged(_)) => {
                self.shared.book.lock().renew_all(self.shared.clock.now());
            }
            Err(broadcast::error::RecvError::Closed) => self.signals = None,
        }
    }

    fn connection(&mut self, state: ConnectionState) {
        self.shared.connection.send_replace(state);
        if state == ConnectionState::Lost {
            let holds: Vec<_> = self.shared.book.lock().holds().cloned().collect();
            for hold in holds {
                self.shared.book.lock().forget(hold.claim().id);
                hold.lose(LostReason::SessionLost);
            }
        }
    }

    /// Notes whether renewals reach the engine, for engines that do not tell by themselves.
    fn reached(&self, reached: bool) {
        use ConnectionState::{Connected, Reconnected, Suspended};
        self.shared.connection.send_if_modified(|state| {
            let next = match (reached, *state) {
                (true, Suspended) => Reconnected,
                (false, Connected | Reconnected) => Suspended,
                _ => return false,
            };
            *state = next;
            true
        });
    }
}
