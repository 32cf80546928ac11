use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{BootInstant, Claim, ClaimId, Name, Renewed, Ttl};

use super::Hold;
use crate::guard::LostReason;

/// What the keeper knows: which claims to renew and when, and which to give back.
///
/// Plain data and decisions, no I/O; the keeper carries them out.
#[derive(Debug)]
pub(super) struct Book {
    /// In an order that does not depend on the process, so that a simulation can be repeated.
    entries: BTreeMap<ClaimId, Entry>,
    /// Every entry once, by the moment at which it next needs a look.
    due: BTreeSet<(BootInstant, ClaimId)>,
    releases: VecDeque<Release>,
    /// When the keeper will look by itself; an earlier need has to wake it.
    pub(super) next_look: BootInstant,
    /// Ended claims that were told before their guard was entered, the latest last.
    ended: VecDeque<(ClaimId, LostReason)>,
    closed: bool,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            due: BTreeSet::new(),
            releases: VecDeque::new(),
            next_look: BootInstant::FAR_FUTURE,
            ended: VecDeque::new(),
            closed: false,
        }
    }
}

#[derive(Debug)]
struct Entry {
    claim: Arc<Claim>,
    /// `None` while it waits in a queue.
    hold: Option<Arc<Hold>>,
    /// When the claim, or its place, ends without a renewal.
    deadline: BootInstant,
    /// While it is being renewed: when no answer counts as a failed try.
    renew_at: BootInstant,
    renewing: bool,
    /// When the last renewal was sent.
    sent: BootInstant,
    /// When the last renewal that reached the engine was sent.
    renewed: BootInstant,
    /// The last renewal did not reach the engine.
    unreachable: bool,
    look_at: BootInstant,
}

/// A claim to be withdrawn, until it cannot exist any more.
#[derive(Debug, Clone)]
pub(super) struct Release {
    pub(super) claim: Arc<Claim>,
    pub(super) give_up: BootInstant,
    pub(super) not_before: BootInstant,
    pub(super) tries: u32,
}

/// What the keeper is in the middle of.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    /// It was away for longer than planned.
    pub(super) paused: bool,
    /// A renewal has not come back yet.
    pub(super) renewing: bool,
}

/// What is to be done now.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) renew: Vec<Arc<Claim>>,
    pub(super) release: Vec<Release>,
    pub(super) lost: Vec<(Arc<Hold>, LostReason)>,
}

impl Book {
    /// How soon a failed release is tried again; later ones wait longer, up to 64 times as long.
    const RETRY: Duration = Duration::from_millis(50);
    /// More dropped guards than this wait for their TTL instead of a release.
    const RELEASES: usize = 65_536;

    /// How many ended claims are remembered for guards that are being made.
    const ENDED: usize = 256;

    /// Starts to renew a claim. Returns whether the keeper must be woken.
    ///
    /// # Errors
    /// Why the claim is lost already.
    pub(super) fn enter(
        &mut self,
        claim: &Arc<Claim>,
        hold: Option<Arc<Hold>>,
        deadline: BootInstant,
        now: BootInstant,
    ) -> Result<bool, LostReason> {
        self.forget(claim.id);
        if self.closed {
            return Err(LostReason::Closed);
        }
        if let Some((_, reason)) = self.ended.iter().find(|(ended, _)| *ended == claim.id) {
            return Err(reason.clone());
        }
        // A third of a TTL after the last refresh, which for a claim that was handed over while it
        // waited was its last renewal in the queue.
        let third = renewal_interval(claim.ttl);
        let renew_at = deadline.saturating_sub(third * 2).clamp(now, now + third);
        let mut entry = Entry {
            claim: Arc::clone(claim),
            hold,
            deadline,
            renew_at,
            renewing: false,
            sent: now,
            renewed: now,
            unreachable: false,
            look_at: now,
        };
        entry.schedule();
        let look_at = entry.look_at;
        self.due.insert((look_at, claim.id));
        self.entries.insert(claim.id, entry);
        Ok(look_at < self.next_look)
    }

    /// Takes in that the engine ended a claim. Returns its hold, if it has one by now.
    pub(super) fn end(&mut self, claim: ClaimId, reason: &LostReason) -> Option<Arc<Hold>> {
        let hold = self.forget(claim);
        if hold.is_none() {
            self.ended.push_back((claim, reason.clone()));
            if self.ended.len() > Self::ENDED {
                self.ended.pop_front();
            }
        }
        hold
    }

    /// Takes nothing in any more. Returns what was held; all of it is queued for withdrawal.
    pub(super) fn close(&mut self, now: BootInstant) -> Vec<Arc<Hold>> {
        self.closed = true;
        let holds: Vec<_> = self.holds().cloned().collect();
        for hold in &holds {
            self.release(&hold.claim(), now);
        }
        holds
    }

    /// Stops renewing a claim.
    pub(super) fn forget(&mut self, claim: ClaimId) -> Option<Arc<Hold>> {
        let entry = self.entries.remove(&claim)?;
        self.due.remove(&(entry.look_at, claim));
        entry.hold
    }

    pub(super) fn holds(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.entries.values().filter_map(|entry| entry.hold.as_ref())
    }

    /// How many claims of `resource` this task holds.
    pub(super) fn held_by_this_task(&self, resource: &Name) -> usize {
        self.holds().filter(|hold| hold.claim().resource == *resource && hold.is_of_this_task()).count()
    }

    /// Until when the place of a queued claim stands.
    pub(super) fn deadline(&self, claim: ClaimId) -> Option<BootInstant> {
        self.entries.get(&claim).map(|entry| entry.deadline)
    }

    /// Queues a claim for withdrawal.
    pub(super) fn release(&mut self, claim: &Arc<Claim>, now: BootInstant) {
        self.forget(claim.id);
        if self.releases.len() < Self::RELEASES {
            let give_up = now + claim.ttl.as_duration() * 2;
            self.releases.push_back(Release { claim: Arc::clone(claim), give_up, not_before: now, tries: 0 });
        }
        self.next_look = BootInstant::from_nanos(0);
    }

    /// Puts back what could not be withdrawn, to be tried again a little later.
    pub(super) fn release_again(&mut self, failed: Vec<Release>, now: BootInstant) {
        let again = failed.into_iter().filter(|release| release.give_up > now).map(|release| {
            let pause = Self::RETRY * 2u32.pow(release.tries.min(6));
            Release { not_before: now + pause, tries: release.tries + 1, ..release }
        });
        self.releases.extend(again);
    }

    pub(super) fn is_releasing(&self) -> bool {
        !self.releases.is_empty()
    }

    /// Renews everything at the next look: the engine may have told something we missed.
    pub(super) fn renew_all(&mut self, now: BootInstant) {
        let ids: Vec<ClaimId> = self.entries.keys().copied().collect();
        for id in ids {
            self.update(id, |entry| entry.renew_at = now);
        }
    }

    /// What is to be done at `now`, in the light of what is under way.
    pub(super) fn work(&mut self, now: BootInstant, state: State) -> Work {
        let mut work = Work::default();
        self.take_releases(now, &mut work);
        let first_due = self.due.first().is_some_and(|(at, _)| *at <= now);
        if first_due {
            // Renewals that are due soon ride along, so that many guards cost few calls.
            let horizon = now + Ttl::MAX / 6;
            let near: Vec<ClaimId> =
                self.due.iter().take_while(|(at, _)| *at <= horizon).map(|(_, id)| *id).collect();
            for id in near {
                self.look_at(id, now, state, &mut work);
            }
        }
        let retry = self.releases.iter().map(|release| release.not_before).min();
        let next_due = self.due.first().map(|(at, _)| *at);
        self.next_look = retry.into_iter().chain(next_due).min().unwrap_or(BootInstant::FAR_FUTURE);
        work
    }

    fn take_releases(&mut self, now: BootInstant, work: &mut Work) {
        let (ready, later): (Vec<_>, Vec<_>) =
            self.releases.drain(..).partition(|release| release.not_before <= now);
        self.releases.extend(later);
        work.release = ready;
    }

    fn look_at(&mut self, id: ClaimId, now: BootInstant, state: State, work: &mut Work) {
        let Some(entry) = self.entries.get(&id) else { return };
        if let Some(reason) = entry.lost_at(now, state.paused) {
            let claim = Arc::clone(&entry.claim);
            if let Some(hold) = self.forget(id) {
                work.lost.push((hold, reason));
                self.release(&claim, now);
            }
            return;
        }
        let ttl = entry.claim.ttl.as_duration();
        let unanswered = entry.renewing && entry.renew_at <= now;
        let is_due = if entry.renewing { unanswered } else { entry.renew_at <= now + ttl / 6 };
        if !is_due {
            return;
        }
        let has_time = entry.deadline > now + ttl / 3;
        if state.renewing && has_time && !unanswered {
            // Rides with the next call, once this one is back, so that a slow engine does not get a
            // call for each of many guards.
            if entry.renew_at <= now {
                self.update(id, |entry| entry.renew_at = now + ttl / 24);
            }
        } else {
            work.renew
                .push(entry.hold.as_ref().map_or_else(|| Arc::clone(&entry.claim), |hold| hold.claim()));
            self.update(id, |entry| {
                if let Some(hold) = entry.hold.as_ref().filter(|_| unanswered) {
                    hold.unanswered(entry.sent);
                }
                entry.renewing = true;
                entry.sent = now;
                entry.renew_at = entry.retry_at();
            });
        }
    }

    /// Takes in what a renewal brought. Returns holds that turned out to be lost.
    pub(super) fn renewed(
        &mut self,
        claim: &Claim,
        answer: Renewed,
        margin: Duration,
        sent: BootInstant,
        now: BootInstant,
    ) -> Option<(Arc<Hold>, LostReason)> {
        let entry = self.entries.get(&claim.id)?;
        match answer {
            // A guard that said it is invalid never becomes valid again.
            Renewed::Valid { .. } if entry.deadline <= now => None,
            Renewed::Valid { until } => {
                let deadline = until.saturating_sub(margin);
                // It stands, and that is all that could be found out.
                let in_vain = deadline <= entry.deadline;
                if entry.hold.as_ref().is_some_and(|hold| !hold.raise_deadline(deadline)) {
                    let claim = Arc::clone(&entry.claim);
                    let hold = self.forget(claim.id)?;
                    self.release(&claim, now);
                    return Some((hold, LostReason::Expired));
                }
                self.update(claim.id, |entry| {
                    if let Some(hold) = &entry.hold {
                        hold.answered();
                        if entry.unreachable {
                            hold.set_trouble(None);
                        }
                    }
                    entry.deadline = entry.deadline.max(deadline);
                    entry.renewed = entry.renewed.max(sent);
                    entry.unreachable = false;
                    // A later one that is still under way counts on, and needs no other beside it.
                    entry.renewing &= entry.sent > entry.renewed;
                    entry.renew_at = if entry.renewing {
                        entry.retry_at()
                    } else if in_vain {
                        entry.try_soon(sent, now)
                    } else {
                        entry.renewed + renewal_interval(entry.claim.ttl)
                    };
                });
                None
            }
            Renewed::Gone(reason) => Some((self.forget(claim.id)?, reason.into())),
        }
    }

    /// A renewal did not reach the engine: try again soon, long before the deadline. Returns whether
    /// that is news: the claim may be gone, and a later renewal under way or back already.
    pub(super) fn renewal_failed(
        &mut self,
        claim: ClaimId,
        trouble: &Arc<str>,
        sent: BootInstant,
        now: BootInstant,
    ) -> bool {
        // A later one was also sent later, so that this covers one that reached the engine.
        if self.entries.get(&claim).is_none_or(|entry| entry.sent > sent) {
            return false;
        }
        self.update(claim, |entry| {
            if let Some(hold) = &entry.hold {
                hold.answered();
                hold.set_trouble(Some(Arc::clone(trouble)));
            }
            entry.renew_at = entry.try_soon(sent, now);
            entry.renewing = false;
            entry.unreachable = true;
        });
        true
    }

    fn update(&mut self, id: ClaimId, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        self.due.remove(&(entry.look_at, id));
        change(entry);
        entry.schedule();
        self.due.insert((entry.look_at, id));
        self.next_look = self.next_look.min(entry.look_at);
    }
}

impl Entry {
    fn schedule(&mut self) {
        let ends = self.hold.as_ref().map_or(BootInstant::FAR_FUTURE, |hold| hold.ends);
        self.look_at = self.renew_at.min(self.deadline).min(ends);
    }

    /// When a renewal that was sent counts as a failed try if there is no answer yet.
    ///
    /// A quarter of the TTL leaves room for two such before the deadline. With more than about half of
    /// the TTL left there is no hurry, and an engine that takes its time is not asked twice; it is a
    /// little more than half so that those that rode along with older ones go with them again.
    fn retry_at(&self) -> BootInstant {
        let ttl = self.claim.ttl.as_duration();
        (self.sent + ttl / 4).max(self.deadline.saturating_sub(ttl * 7 / 12))
    }

    /// When to try again after a renewal in vain: at once where the try itself took long, so that there is room for one more.
    fn try_soon(&self, sent: BootInstant, now: BootInstant) -> BootInstant {
        let ttl = self.claim.ttl.as_duration();
        (sent + ttl / 4).clamp(now, now + ttl / 12)
    }

    fn lost_at(&self, now: BootInstant, paused: bool) -> Option<LostReason> {
        if self.hold.as_ref().is_some_and(|hold| hold.ends <= now) {
            return Some(LostReason::HeldTooLong);
        }
        (self.deadline <= now).then_some(match (paused, self.unreachable || self.renewing) {
            (true, _) => LostReason::PausedTooLong,
            (false, true) => LostReason::EngineUnreachable,
            (false, false) => LostReason::Expired,
        })
    }
}

/// A third of the TTL leaves room for two failed tries, also for ones that are never answered.
fn renewal_interval(ttl: Ttl) -> Duration {
    ttl.as_duration() / 3
}
