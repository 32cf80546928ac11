//! Which claims are renewed by which lease.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use palisade_core::{BootInstant, Claim, ClaimId};
use parking_lot::Mutex;

/// The leases of one client, each with the claims that it was told to carry.
///
/// The server has the last word on which claim is on which lease. Here it is known what was asked for: a claim is taken
/// to be on a lease from before that is sent, and the lease is used once the server has answered. What is in doubt is
/// given up: its claims move on to a new lease, and it ends by itself.
#[derive(Debug, Default)]
pub(crate) struct Groups(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last: i32,
    of: HashMap<ClaimId, i32>,
    all: BTreeMap<i32, Group>,
}

#[derive(Debug)]
struct Group {
    ttl: Duration,
    members: HashMap<ClaimId, Arc<Claim>>,
    /// How many changes of who is in it have not been answered by the server.
    open: u32,
    /// Whether somebody was to move on from it to another lease: the server may have that one still on this.
    left_behind: bool,
    /// When it was last renewed, or made.
    used: BootInstant,
}

/// What a renewal asks for.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) keep: Vec<Kept>,
    /// Claims that are not renewed though their lease is, with its number.
    pub(crate) left: Vec<(Arc<Claim>, i32)>,
    /// Statements for claims that are renewed one by one, by their places among those asked for.
    pub(crate) each: Vec<Joining>,
}

/// A lease that is renewed.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) number: i32,
    pub(crate) ttl: Duration,
    /// The places of its claims among those asked for.
    pub(crate) places: Vec<usize>,
    /// Whether others leave it by this.
    changes: bool,
}

/// Claims that are renewed one by one, and by one lease from then on if there is a number.
#[derive(Debug)]
pub(crate) struct Joining {
    pub(crate) number: Option<i32>,
    pub(crate) places: Vec<usize>,
}

impl Groups {
    /// How many claims share a lease at most.
    const MOST: usize = 2_000;
    /// A claim that cannot be on a lease of this client.
    const NEVER: i32 = 0;

    /// How to renew these claims; `own` says which were asked for by this client.
    pub(crate) fn plan(
        &self,
        claims: &[Arc<Claim>],
        own: impl Fn(ClaimId) -> bool,
        now: BootInstant,
    ) -> Plan {
        let mut table = self.0.lock();
        table.forget_unused(now);
        let asked: HashSet<ClaimId> = claims.iter().map(|claim| claim.id).collect();
        let mut plan = Plan::default();
        let mut pools: BTreeMap<Duration, Vec<usize>> = BTreeMap::new();
        let mut by_lease: BTreeMap<i32, Vec<usize>> = BTreeMap::new();
        let mut alone = Vec::new();
        for (place, claim) in claims.iter().enumerate() {
            let ttl = claim.ttl.as_duration();
            match table.of.get(&claim.id) {
                Some(number) if table.is_sound(*number, ttl) => {
                    by_lease.entry(*number).or_default().push(place);
                }
                Some(&Self::NEVER) => alone.push(place),
                None if !own(claim.id) => alone.push(place),
                Some(_) | None => pools.entry(ttl).or_default().push(place),
            }
        }
        for (number, places) in by_lease {
            table.keep(number, places, &asked, &mut plan, &mut pools);
        }
        for (ttl, pool) in &mut pools {
            plan.merge(*ttl, pool);
        }
        for (ttl, pool) in pools {
            for places in pool.chunks(Self::MOST) {
                let number = (places.len() > 1).then(|| table.make(ttl, places, claims, now));
                plan.each.push(Joining { number, places: places.to_vec() });
            }
        }
        plan.each
            .extend(alone.chunks(Self::MOST).map(|some| Joining { number: None, places: some.to_vec() }));
        for kept in &plan.keep {
            table.changes(kept, &plan.left);
        }
        plan
    }

    /// Takes in that a lease was renewed. Says whether a claim is still on it: it may have moved on since that was sent.
    pub(crate) fn kept(&self, kept: &Kept, now: BootInstant) -> impl Fn(ClaimId) -> bool {
        let mut table = self.0.lock();
        let members: HashSet<ClaimId> = match table.all.get_mut(&kept.number) {
            Some(group) => {
                group.open = group.open.saturating_sub(u32::from(kept.changes));
                group.used = now;
                group.members.keys().copied().collect()
            }
            None => HashSet::new(),
        };
        move |claim| members.contains(&claim)
    }

    /// Gives all leases up: the server may have another idea of who is on them.
    pub(crate) fn clear(&self) {
        let mut table = self.0.lock();
        let all: Vec<i32> = table.all.keys().copied().collect();
        for number in all {
            table.dissolve(number);
        }
    }

    /// Takes in that a lease is no more, or not whole: each of its claims must be asked for.
    pub(crate) fn is_gone(&self, number: i32) {
        self.0.lock().dissolve(number);
    }

    /// Takes in that the server has put claims on a new lease; `on` says which of them it did.
    pub(crate) fn joined(&self, number: i32, on: impl Fn(ClaimId) -> bool) {
        let mut table = self.0.lock();
        let Table { of, all, .. } = &mut *table;
        let Some(group) = all.get_mut(&number) else { return };
        group.open = group.open.saturating_sub(1);
        group.members.retain(|claim, _| {
            let is_on = on(*claim);
            if !is_on {
                of.insert(*claim, Self::NEVER);
            }
            is_on
        });
    }

    /// Which claims are renewed by a lease.
    pub(crate) fn carried(&self) -> impl Fn(ClaimId) -> bool {
        let table = self.0.lock();
        let on: HashSet<ClaimId> =
            table.all.values().flat_map(|group| group.members.keys().copied()).collect();
        move |claim| on.contains(&claim)
    }

    /// Forgets a claim that the server does not have any more.
    pub(crate) fn forget(&self, claim: ClaimId) {
        self.0.lock().take_out(claim);
    }
}

impl Plan {
    /// Takes small groups into a pool that is about to become one, so that there are never many of them. Only those that
    /// are not much larger than the pool: a claim moves few times, however many come.
    fn merge(&mut self, ttl: Duration, pool: &mut Vec<usize>) {
        let alike = self.keep.iter().filter(|kept| kept.ttl == ttl);
        let mut small: Vec<(usize, i32)> = alike.map(|kept| (kept.places.len(), kept.number)).collect();
        small.sort_unstable();
        for (size, number) in small {
            if size > pool.len() * 2 || size + pool.len() > Groups::MOST {
                return;
            }
            let Some(at) = self.keep.iter().position(|kept| kept.number == number) else { continue };
            pool.extend(self.keep.remove(at).places);
            self.left.retain(|(_, of)| *of != number);
        }
    }
}

impl Table {
    fn is_sound(&self, number: i32, ttl: Duration) -> bool {
        let sound = |group: &Group| group.open == 0 && !group.left_behind && group.ttl == ttl;
        self.all.get(&number).is_some_and(sound)
    }

    /// Renews a lease with most of its claims; or, if only few are asked for, moves these to another.
    fn keep(
        &self,
        number: i32,
        places: Vec<usize>,
        asked: &HashSet<ClaimId>,
        plan: &mut Plan,
        pools: &mut BTreeMap<Duration, Vec<usize>>,
    ) {
        let Some(group) = self.all.get(&number) else { return };
        let left: Vec<_> = group.members.values().filter(|claim| !asked.contains(&claim.id)).collect();
        if left.len() > places.len() {
            return pools.entry(group.ttl).or_default().extend(places);
        }
        plan.keep.push(Kept { number, ttl: group.ttl, places, changes: !left.is_empty() });
        plan.left.extend(left.into_iter().map(|claim| (Arc::clone(claim), number)));
    }

    fn make(&mut self, ttl: Duration, places: &[usize], claims: &[Arc<Claim>], now: BootInstant) -> i32 {
        self.last += 1;
        let number = self.last;
        let mut members = HashMap::with_capacity(places.len());
        for claim in places.iter().map(|place| &claims[*place]) {
            if let Some(from) = self.take_out(claim.id) {
                from.left_behind = true;
            }
            self.of.insert(claim.id, number);
            members.insert(claim.id, Arc::clone(claim));
        }
        self.all.insert(number, Group { ttl, members, open: 1, left_behind: false, used: now });
        number
    }

    /// Notes who leaves a lease, before it is sent.
    fn changes(&mut self, kept: &Kept, left: &[(Arc<Claim>, i32)]) {
        if !kept.changes {
            return;
        }
        if let Some(group) = self.all.get_mut(&kept.number) {
            group.open += 1;
        }
        for (claim, _) in left.iter().filter(|(_, of)| *of == kept.number) {
            self.take_out(claim.id);
        }
    }

    /// Returns the group that the claim was in, if others are.
    fn take_out(&mut self, claim: ClaimId) -> Option<&mut Group> {
        let number = self.of.remove(&claim)?;
        let group = self.all.get_mut(&number)?;
        group.members.remove(&claim);
        if group.members.is_empty() {
            self.all.remove(&number);
        }
        self.all.get_mut(&number)
    }

    fn dissolve(&mut self, number: i32) {
        let Some(group) = self.all.remove(&number) else { return };
        for claim in group.members.keys() {
            self.of.remove(claim);
        }
    }

    /// Forgets leases that ended long ago because none of their claims was renewed.
    fn forget_unused(&mut self, now: BootInstant) {
        let unused = self.all.iter().filter(|(_, group)| group.used + group.ttl * 2 < now);
        let unused: Vec<i32> = unused.map(|(number, _)| *number).collect();
        for number in unused {
            self.dissolve(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::{Mode, Name, Owner, Ttl};

    use super::*;

    fn at(secs: u64) -> BootInstant {
        BootInstant::from_nanos(secs * 1_000_000_000)
    }

    fn claims(count: usize) -> Vec<Arc<Claim>> {
        let owner = Arc::new(Owner::this_process());
        let claim =
            |_| Claim::new(Name::new("a").unwrap(), Mode::Exclusive, Ttl::default(), Arc::clone(&owner));
        (0..count).map(claim).map(Arc::new).collect()
    }

    /// Renews them, as a server does that has all of them. Returns which leases were renewed, who left, and how many
    /// claims were renewed one by one.
    fn renew(groups: &Groups, claims: &[Arc<Claim>]) -> (Vec<i32>, usize, usize) {
        let plan = groups.plan(claims, |_| true, at(1));
        plan.keep.iter().for_each(|kept| drop(groups.kept(kept, at(1))));
        plan.each.iter().filter_map(|some| some.number).for_each(|number| groups.joined(number, |_| true));
        let each = plan.each.iter().map(|some| some.places.len()).sum();
        (plan.keep.iter().map(|kept| kept.number).collect(), plan.left.len(), each)
    }

    #[test]
    fn what_is_renewed_together_shares_a_lease_from_then_on() {
        let (groups, claims) = (Groups::default(), claims(3));
        assert_eq!(renew(&groups, &claims[..1]), (vec![], 0, 1), "one needs no lease");
        assert_eq!(renew(&groups, &claims), (vec![], 0, 3));
        assert_eq!(renew(&groups, &claims), (vec![1], 0, 0));
        groups.forget(claims[0].id);
        assert_eq!(renew(&groups, &claims[1..]), (vec![1], 0, 0), "who was withdrawn needs no word");
    }

    #[test]
    fn who_is_not_renewed_leaves_and_few_leave_many() {
        let (groups, claims) = (Groups::default(), claims(5));
        renew(&groups, &claims);
        assert_eq!(renew(&groups, &claims[1..]), (vec![1], 1, 0));
        assert_eq!(renew(&groups, &claims[1..]), (vec![1], 0, 0), "it is told once");
        assert_eq!(renew(&groups, &claims[1..2]), (vec![], 0, 1), "three would have to leave for one");
        assert_eq!(renew(&groups, &claims[2..]), (vec![1], 1, 0));
    }

    #[test]
    fn who_moved_on_is_not_renewed_by_the_lease_it_left() {
        let (groups, claims) = (Groups::default(), claims(5));
        renew(&groups, &claims);
        let early = groups.plan(&claims, |_| true, at(1));
        // Two move on, while the renewal of all five is under way; whether they do is never told.
        groups.plan(&claims[..2], |_| true, at(1));
        let still = groups.kept(&early.keep[0], at(1));
        assert!(!still(claims[0].id) && still(claims[4].id));
        assert_eq!(renew(&groups, &claims[2..]), (vec![], 0, 3), "the two may be on it still");
        groups.clear();
        assert_eq!(renew(&groups, &claims[2..]), (vec![], 0, 3), "nobody knows what another server has");
    }

    #[test]
    fn what_is_in_doubt_is_given_up() {
        let (groups, claims) = (Groups::default(), claims(4));
        groups.plan(&claims, |_| true, at(1));
        assert_eq!(renew(&groups, &claims), (vec![], 0, 4), "nobody knows who is on the first");
        assert_eq!(renew(&groups, &claims), (vec![2], 0, 0));
        groups.plan(&claims[1..], |_| true, at(1));
        assert_eq!(renew(&groups, &claims[1..]), (vec![], 0, 3), "nobody knows who left");
        groups.is_gone(3);
        assert_eq!(renew(&groups, &claims[1..]), (vec![], 0, 3));
    }

    #[test]
    fn a_lease_that_is_late_to_be_answered_has_no_claim_that_moved_on() {
        let (groups, claims) = (Groups::default(), claims(3));
        groups.plan(&claims, |_| true, at(1));
        groups.plan(&claims[..2], |_| true, at(1));
        groups.joined(1, |_| true);
        assert_eq!(renew(&groups, &claims), (vec![], 0, 3), "two of them are in doubt, and are joined");
        assert_eq!(renew(&groups, &claims), (vec![3], 0, 0));
    }

    #[test]
    fn many_need_few_leases_however_they_came() {
        let (groups, claims) = (Groups::default(), claims(10_000));
        let mut known = 0;
        for some in [3_000, 17, 1, 1, 4_000, 500, 81, 2_400] {
            known += some;
            renew(&groups, &claims[..known]);
        }
        let (leases, left, each) = renew(&groups, &claims);
        assert!(leases.len() <= 10, "{leases:?}");
        assert_eq!((left, each), (0, 0));
    }

    #[test]
    fn claims_of_others_are_on_no_lease_of_ours() {
        let (groups, claims) = (Groups::default(), claims(3));
        let plan = groups.plan(&claims, |claim| claim != claims[0].id, at(1));
        assert_eq!(plan.each.iter().filter(|some| some.number.is_some()).count(), 1);
        groups.joined(1, |claim| claim == claims[1].id);
        assert_eq!(renew(&groups, &claims[1..]), (vec![1], 0, 1), "the server said so of the last");
        assert!(groups.plan(&claims[1..2], |_| true, at(100)).keep.is_empty(), "it ended long ago");
    }
}
