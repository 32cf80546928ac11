use std::sync::Arc;

use palisade_core::{
    Busy, Claim, Claimed, Clock, Effect, Error, ErrorKind, GoneReason, Grant, Mode, Place, Result,
    SystemClock, Token,
};

use crate::claims::{Held, Knowledge, SeatNode, Stand};
use crate::engine::Inner;
use crate::error::{Code, code_of, contended, unexpected};
use crate::keys::{LEASES, Mark, QUEUE, floor};
use crate::line::{Entry, Line, Standing};
use crate::proto::{Kind, Part, agree, create, get_children, get_data, multi, sync};
use crate::record::Record;

/// How often something is tried again that others changed meanwhile.
pub(crate) const TRIES: usize = 16;

/// What a look at a claim of ours found.
pub(crate) enum Found {
    At(Line, usize),
    Gone(GoneReason),
}

impl Inner {
    pub(crate) async fn claim(self: &Arc<Self>, claim: &Arc<Claim>) -> Result<Claimed> {
        claim.mode.check_slots(None)?;
        for _ in 0..TRIES {
            match self.claims.get(claim.id).map(|known| known.stand) {
                Some(Stand::Gone(reason @ (GoneReason::Withdrawn | GoneReason::Evicted { .. }))) => {
                    return Err(lost(&reason));
                }
                Some(Stand::Gone(reason)) => self.claims.forget(claim.id, reason),
                Some(Stand::Lapsed { .. }) => return Err(lost(&GoneReason::Expired)),
                _ => {}
            }
            let session = self.session(claim.ttl).await?;
            let (known, fresh) = self.claims.asked(claim, &session, SystemClock.now());
            let _turn = known.gate.lock().await;
            let taken = self.take(claim, &known, fresh).await;
            if taken.is_err() {
                self.sweep(claim.id).await;
            }
            match taken {
                Ok(claimed) => return Ok(claimed),
                // With the session all that was on it is gone: it is asked for on another one.
                Err(error) if code_of(&error) == Some(Code::SESSION_EXPIRED) => {
                    self.claims.forget(claim.id, GoneReason::SessionLost);
                }
                Err(error) => {
                    let known = self.claims.get(claim.id);
                    let never_came = known.is_some_and(|known| known.seat.node.is_none());
                    if error.effect() == Effect::None && fresh && never_came {
                        self.claims.forget(claim.id, GoneReason::Unknown);
                    }
                    return Err(error);
                }
            }
        }
        Err(contended())
    }

    /// Deletes what came in of a claim that was ended meanwhile: it would be nobody's.
    async fn sweep(&self, claim: palisade_core::ClaimId) {
        let Some(known) = self.claims.get(claim) else { return };
        if known.is_gone() && known.seat.node.is_some() {
            // If that fails, its session has ended, or will have it deleted over the next connection.
            while let Err(error) = self.remove(&known).await {
                if !error.is_transient() || known.seat.session.is_over() || self.is_closed() {
                    return;
                }
            }
        }
    }

    async fn take(&self, claim: &Arc<Claim>, known: &Knowledge, fresh: bool) -> Result<Claimed> {
        // While the gate was waited for it may have come.
        let known = &self.claims.get(claim.id).unwrap_or_else(|| known.clone());
        if !known.is_live() {
            return Err(lost(&GoneReason::Withdrawn));
        }
        if known.seat.node.is_some() {
            return self.settle(claim, known, false).await;
        }
        // An earlier try may have come in without our hearing of it.
        if !fresh && let Some(node) = self.find(known).await? {
            self.claims.came(claim.id, node);
            return self.settle(claim, known, false).await;
        }
        if claim.will_wait {
            return self.join(claim, known).await;
        }
        match self.would_wait(claim).await? {
            Some(busy) => {
                self.claims.forget(claim.id, GoneReason::Unknown);
                Ok(busy)
            }
            None => self.enter(claim, known).await,
        }
    }

    /// The node of a claim that may be there. Nothing that was sent before can arrive after this: the session's
    /// requests are served in order, and those of a connection that was left are refused.
    pub(crate) async fn find(&self, known: &Knowledge) -> Result<Option<SeatNode>> {
        let folder = self.layout.resource(&known.claim.resource);
        let session = &known.seat.session;
        let conn = session.conn().await?;
        let agreed = conn.send(agree());
        session.answer(agreed).await?.ok()?;
        let line = self.list(session, &folder, matches!(known.claim.mode, Mode::Slot { .. })).await?;
        let Some(at) = line.place_of(known.claim.id) else { return Ok(None) };
        let name = line.entries[at].name.clone();
        let node = session.ask(get_data(&format!("{folder}/{name}"), false)).await?.node()?;
        Ok(node.map(|node| SeatNode { name, created: node.stat.created }))
    }

    /// Gets in line, which for a free resource is to hold it.
    async fn join(&self, claim: &Arc<Claim>, known: &Knowledge) -> Result<Claimed> {
        let folder = self.layout.resource(&claim.resource);
        let path = format!("{folder}/{}", self.layout.claim(claim.id, claim.family, claim.mode));
        let data = Record::of(claim, &self.client, None).bytes(claim.value.as_deref().unwrap_or_default());
        let session = &known.seat.session;
        for _ in 0..TRIES {
            let conn = session.conn().await?;
            let created = conn.send(create(&path, &data, Kind::Sequential, self.acl()));
            let look = conn.send(get_children(&folder, false));
            let created = session.answer(created).await?;
            if created.code == Code::NO_NODE {
                // Nobody was here yet, or the folder was swept away because it was empty.
                if matches!(claim.mode, Mode::Slot { .. }) {
                    self.make_below(session, &folder, QUEUE).await?;
                } else {
                    self.make_folder(session, &folder).await?;
                }
                continue;
            }
            let (path, stat) = created.created()?;
            let name = path[folder.len()..].trim_start_matches('/').to_owned();
            self.claims.came(claim.id, SeatNode { name, created: stat.created });
            let names = session.answer(look).await?.children()?.unwrap_or_default();
            let line = Line::of_names(names);
            let Some(at) = line.place_of(claim.id) else { return self.settle(claim, known, true).await };
            let simple = line.floor.is_none() && claim.token_floor.is_none();
            if simple && line.is_plain(at) && line.standing(at) == (Standing::Holds { slot: None }) {
                return self.granted(claim, stat.created);
            }
            if claim.mode == Mode::Exclusive && at > 0 && line.is_plain(at) && line.all_alone(at) {
                self.claims.came_behind(claim.id, line.entries[at - 1].name.clone());
                return self.queued(claim, at as u32 - 1);
            }
            return self.settle(claim, known, true).await;
        }
        Err(contended())
    }

    /// Says who holds if a claim that will not wait would have to.
    async fn would_wait(&self, claim: &Claim) -> Result<Option<Claimed>> {
        let line = self.line_of(&claim.resource).await?;
        claim.mode.check_slots(line.slots_in_force())?;
        if line.admits(claim.mode).is_some() {
            return Ok(None);
        }
        Ok(Some(Claimed::Busy(Busy { holders: line.holders()?, look_again_in: None })))
    }

    /// Gets in line only to hold at once, and leaves it if others were faster.
    async fn enter(&self, claim: &Arc<Claim>, known: &Knowledge) -> Result<Claimed> {
        match self.join(claim, known).await? {
            Claimed::Queued(_) => {
                let known = self.claims.get(claim.id).ok_or_else(|| lost(&GoneReason::Withdrawn))?;
                self.remove(&known).await?;
                self.claims.forget(claim.id, GoneReason::Unknown);
                let holders = self.line_of(&claim.resource).await?.holders()?;
                Ok(Claimed::Busy(Busy { holders, look_again_in: None }))
            }
            claimed => Ok(claimed),
        }
    }

    fn queued(&self, claim: &Claim, ahead: u32) -> Result<Claimed> {
        let known = self.claims.get(claim.id).ok_or_else(|| lost(&GoneReason::Withdrawn))?;
        Ok(Claimed::Queued(Place { ahead, valid_until: known.until }))
    }

    fn granted(&self, claim: &Claim, created: i64) -> Result<Claimed> {
        let token = u64::try_from(created).ok().and_then(Token::new).ok_or_else(unexpected)?;
        self.grant_of(claim, Held { token, slot: None }).map(Claimed::Granted)
    }

    /// Notes a grant, and says until when it stands.
    pub(crate) fn grant_of(&self, claim: &Claim, held: Held) -> Result<Grant> {
        self.claims.holds(claim.id, held);
        let known = self.claims.get(claim.id).ok_or_else(|| lost(&GoneReason::Withdrawn))?;
        match known.stand {
            Stand::Held(_) => Ok(Grant { token: held.token, slot: held.slot, valid_until: known.until }),
            Stand::Gone(reason) => Err(lost(&reason)),
            _ => Err(lost(&GoneReason::Expired)),
        }
    }

    /// Looks how a claim that came in stands. One that came `just` now may be refused yet.
    async fn settle(&self, claim: &Arc<Claim>, known: &Knowledge, just: bool) -> Result<Claimed> {
        for _ in 0..TRIES {
            let (line, at) = match self.look(claim, false).await? {
                Found::At(line, at) => (line, at),
                Found::Gone(reason) => {
                    self.is_gone(claim.id, reason.clone());
                    return Err(lost(&reason));
                }
            };
            if just && let Err(conflict) = claim.mode.check_slots(line.slots_in_force()) {
                let known = self.claims.get(claim.id).unwrap_or_else(|| known.clone());
                self.remove(&known).await?;
                self.claims.forget(claim.id, GoneReason::Unknown);
                return Err(conflict);
            }
            match self.advance(claim, &line, at).await? {
                Some(Standing::Holds { slot }) => {
                    let token = line.token(at).ok_or_else(unexpected)?;
                    return self.grant_of(claim, Held { token, slot }).map(Claimed::Granted);
                }
                Some(_) => return self.queued(claim, line.waiting_ahead(at)),
                None => {}
            }
        }
        Err(contended())
    }

    /// Takes the slot or the token that a claim has coming. `None` if it must be looked at again.
    pub(crate) async fn advance(&self, claim: &Claim, line: &Line, at: usize) -> Result<Option<Standing>> {
        let standing = line.standing(at);
        let folder = self.layout.resource(&claim.resource);
        let entry = &line.entries[at];
        let Some(inside) = &entry.inside else { return Ok(Some(standing)) };
        // Somebody wrote over it: then its name tells all there is.
        let mut record = inside.record.clone().unwrap_or_else(|| Record::of(claim, &self.client, None));
        let token = match standing {
            Standing::Waits(_) => return Ok(Some(standing)),
            Standing::MayTake { slot } => {
                record.slot = Some(slot);
                record.set_mode(line.mode(at));
                record.came = Some(inside.stat.created);
                return self.take_slot(claim, line, at, &record).await.map(|()| None);
            }
            Standing::Holds { .. } => {
                let Some(token) = lifted(claim, line, at) else { return Ok(Some(standing)) };
                token
            }
        };
        record.token = Some(token);
        let old = line.floor.map(|token| format!("{folder}/{}", floor(token)));
        let new = format!("{folder}/{}", floor(token));
        let (path, data) = (format!("{folder}/{}", entry.name), record.bytes(&inside.value));
        let mut parts = vec![Part::Set { path: &path, data: &data, version: inside.stat.version }];
        parts.extend(old.as_ref().map(|path| Part::Delete { path }));
        parts.push(Part::Create { path: &new, data: b"", kind: Kind::Persistent, acl: self.acl() });
        let known = self.claims.get(claim.id).ok_or_else(|| lost(&GoneReason::Withdrawn))?;
        let _either_way = known.seat.session.ask(multi(&parts)).await?.applied()?;
        Ok(None)
    }

    /// Takes a slot, if all is still as it was seen: the node by which the claim waited, which nobody is ahead of,
    /// becomes one by which it holds. Nobody else makes one of those meanwhile.
    async fn take_slot(&self, claim: &Claim, line: &Line, at: usize, record: &Record) -> Result<()> {
        const LEASE: usize = 2;
        let folder = self.layout.resource(&claim.resource);
        let Some(inside) = &line.entries[at].inside else { return Ok(()) };
        let (waited, lease) = (
            format!("{folder}/{}", line.entries[at].name),
            format!("{folder}/{}", crate::keys::Layout::lease(claim.id)),
        );
        let (data, kind) = (record.bytes(&inside.value), Kind::Sequential);
        let parts = [
            Part::Check { path: &waited, version: inside.stat.version },
            Part::Delete { path: &waited },
            Part::Create { path: &lease, data: &data, kind, acl: self.acl() },
            // The number of slots must still be the one that was seen.
            Part::Check { path: &folder, version: line.version },
        ];
        let known = self.claims.get(claim.id).ok_or_else(|| lost(&GoneReason::Withdrawn))?;
        let session = &known.seat.session;
        if session.ask(multi(&parts)).await?.applied()? == Err((LEASE, Code::NO_NODE)) {
            self.make_below(session, &folder, LEASES).await?;
        }
        Ok(())
    }

    /// Looks at a claim that came in; only at the names of nodes where that is enough, if `narrow`.
    pub(crate) async fn look(&self, claim: &Claim, narrow: bool) -> Result<Found> {
        let Some(known) = self.claims.get(claim.id) else { return Ok(Found::Gone(GoneReason::Unknown)) };
        if let Stand::Gone(reason) = known.stand {
            return Ok(Found::Gone(reason));
        }
        let folder = self.layout.resource(&claim.resource);
        let session = &known.seat.session;
        for _ in 0..TRIES {
            let mut line = self.list(session, &folder, matches!(claim.mode, Mode::Slot { .. })).await?;
            let Some(at) = line.place_of(claim.id) else { break };
            let simple = line.floor.is_none() && claim.token_floor.is_none();
            if narrow && simple && line.is_plain(at) {
                return Ok(Found::At(line, at));
            }
            let count = if line.is_mixed() { line.entries.len() } else { at + 1 };
            let whole = self.fill(session, &folder, &mut line, count).await?;
            let Some(at) = line.place_of(claim.id) else { break };
            // Whoever may have been overlooked makes no difference to one that waits for somebody else anyway.
            if !whole && !line.is_queued_before(at) {
                continue;
            }
            // With its slot it got another node. What is known of that must not be forgotten by a look from before.
            if let Entry { name, inside: Some(inside), called } = &line.entries[at]
                && called.mark == Mark::Leased
            {
                self.claims.came(claim.id, SeatNode { name: name.clone(), created: inside.stat.created });
            }
            return Ok(Found::At(line, at));
        }
        if self.find(&known).await?.is_some() {
            return Err(contended());
        }
        Ok(Found::Gone(self.why_gone(claim.id).await?))
    }

    /// A whole line as it is now.
    pub(crate) async fn line_of(&self, resource: &palisade_core::Name) -> Result<Line> {
        let folder = self.layout.resource(resource);
        let main = self.main();
        let conn = main.conn().await?;
        let caught_up = conn.send(sync(&folder));
        let (caught_up, line) = tokio::join!(main.answer(caught_up), self.list(&main, &folder, false));
        caught_up?.found()?;
        let mut line = line?;
        for _ in 0..TRIES {
            let all = line.entries.len();
            if self.fill(&main, &folder, &mut line, all).await? {
                return Ok(line);
            }
            line = self.list(&main, &folder, true).await?;
        }
        Err(contended())
    }
}

/// The token that a grant must get instead of its own.
fn lifted(claim: &Claim, line: &Line, at: usize) -> Option<u64> {
    let token = line.token(at)?.get();
    let created = line.entries[at].came().unsigned_abs();
    let asked = claim.token_floor.map_or(0, Token::get);
    let floor = line.floor.unwrap_or(0);
    // A token that was lifted is what the floor says, or less: others came after.
    let behind = token == created && floor >= token;
    (asked >= token || behind).then(|| created.max(floor + 1).max(asked + 1))
}

pub(crate) fn lost(reason: &GoneReason) -> Error {
    let message = match reason {
        GoneReason::Evicted { reason } => format!("the claim was evicted: {reason}"),
        GoneReason::Withdrawn => "the claim was withdrawn before it arrived".to_owned(),
        GoneReason::Expired => "the claim was not renewed in time".to_owned(),
        _ => "the claim is gone".to_owned(),
    };
    Error::new(ErrorKind::Lost, message)
}
