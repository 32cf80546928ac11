//! One view of a resource from those of its nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use palisade_core::{Busy, ClaimId, ClaimView, Inspection, Name, Page, ResourceView, Token};

use crate::attempt;
use crate::token::{Choice, choose};

/// What all nodes together show of one claim.
#[derive(Debug)]
struct Shown {
    view: ClaimView,
    /// When it ends at each node that lets it hold.
    ends: Vec<Option<Duration>>,
    /// Its votes: none if it is another client's lock.
    tokens: Vec<Token>,
    in_line: bool,
}

/// Merges what nodes answered to the same question.
///
/// Whom a majority lets hold holds. Whoever stands in line at some node waits, also where others let
/// it hold already. A few votes and no place in line are a claim that comes or goes: it is not shown.
pub(crate) fn merge(answers: Vec<Inspection>, page: &Page, majority: usize) -> Inspection {
    // Beyond the end of a node's page it may know more.
    let known_to = answers.iter().filter_map(|answer| answer.next.clone()).min();
    let mut names: BTreeMap<Name, Vec<ResourceView>> = BTreeMap::new();
    for view in answers.into_iter().flat_map(|answer| answer.resources) {
        names.entry(view.resource.clone()).or_default().push(view);
    }
    let all = names.len();
    let mut resources: Vec<ResourceView> = names
        .into_iter()
        .filter(|(name, _)| known_to.as_ref().is_none_or(|last| name <= last))
        .take(page.limit)
        .map(|(name, views)| resource(name, views, majority))
        .collect();
    let more = known_to.is_some() || all > page.limit;
    let next = resources.last().filter(|_| more).map(|last| last.resource.clone());
    resources.retain(|view| !(view.holders.is_empty() && view.waiters.is_empty()));
    Inspection { resources, next }
}

fn resource(name: Name, views: Vec<ResourceView>, majority: usize) -> ResourceView {
    let mut merged = ResourceView::free(name);
    let (holders, waiters): (Vec<_>, Vec<_>) =
        views.into_iter().map(|view| (view.holders, view.waiters)).unzip();
    let (mut order, mut shown) = (Vec::new(), BTreeMap::new());
    for view in holders.into_iter().flatten() {
        show(view, true, &mut order, &mut shown);
    }
    for view in waiters.into_iter().flatten() {
        show(view, false, &mut order, &mut shown);
    }
    for id in order {
        let Some(claim) = shown.remove(&id) else { continue };
        if claim.ends.len() >= majority {
            merged.holders.push(claim.holder(majority));
        } else if claim.in_line {
            merged.waiters.push(ClaimView { token: None, slot: None, ..claim.view });
        }
    }
    merged
}

fn show(mut view: ClaimView, holds: bool, order: &mut Vec<ClaimId>, shown: &mut BTreeMap<ClaimId, Shown>) {
    view.claim = attempt::base_of(view.claim);
    let (token, end) = (view.token, view.expires_in);
    let claim = shown.entry(view.claim).or_insert_with(|| {
        order.push(view.claim);
        Shown { view, ends: Vec::new(), tokens: Vec::new(), in_line: false }
    });
    if holds {
        claim.ends.push(end);
        claim.tokens.extend(token);
    } else {
        claim.in_line = true;
    }
}

impl Shown {
    fn is_clear(&self, majority: usize) -> bool {
        let agreed = || matches!(choose(&self.tokens, majority), Some(Choice::Agreed(_)));
        self.ends.len() >= majority && (self.tokens.is_empty() || agreed())
    }

    /// As a holder: the token in the middle, the end that a majority honours.
    ///
    /// That is the token handed out, if all nodes answer (see `token`). If one does not, it is the best guess: votes
    /// differ at nodes that were late, and those are few.
    fn holder(mut self, majority: usize) -> ClaimView {
        self.tokens.sort_unstable_by(|one, other| other.cmp(one));
        self.ends.sort_unstable_by(|one, other| other.cmp(one));
        let token = self.tokens.get(self.tokens.len() / 2).copied();
        let expires_in = self.ends.get(majority - 1).copied().flatten();
        ClaimView { token, expires_in, ..self.view }
    }
}

/// Whether the token of whoever holds a majority is known, and no guess: votes differ where rivals count in another
/// order at each node, and the answer of one more node may tell which of them was handed out.
pub(crate) fn is_clear(answers: &[Busy], majority: usize) -> bool {
    let (_, shown) = holders(answers);
    shown.values().any(|claim| claim.is_clear(majority))
}

/// Why a claim was turned away: whoever holds a majority, or all that hold a vote.
pub(crate) fn busy(answers: &[Busy], majority: usize) -> Busy {
    let (order, mut shown) = holders(answers);
    let winner = shown.values().any(|claim| claim.ends.len() >= majority);
    let holders = order.into_iter().filter_map(|id| shown.remove(&id));
    let holders = holders.filter(|claim| !winner || claim.ends.len() >= majority);
    let look_again_in = answers.iter().filter_map(|answer| answer.look_again_in).min();
    Busy { holders: holders.map(|claim| claim.holder(majority)).collect(), look_again_in }
}

/// Who holds a vote by these answers, in the order in which they were first named.
fn holders(answers: &[Busy]) -> (Vec<ClaimId>, BTreeMap<ClaimId, Shown>) {
    let (mut order, mut shown) = (Vec::new(), BTreeMap::new());
    for view in answers.iter().flat_map(|answer| answer.holders.iter().cloned()) {
        show(view, true, &mut order, &mut shown);
    }
    (order, shown)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use palisade_core::{Family, Mode, Owner};

    use super::*;

    /// What one node shows: who holds there, with which vote.
    fn voting(token: u64, claim: ClaimId) -> Inspection {
        let mut resource = ResourceView::free("a".parse().unwrap());
        resource.holders.push(ClaimView {
            claim,
            family: Family::Mutex,
            mode: Mode::Exclusive,
            slot: None,
            token: Token::new(token),
            owner: Arc::new(Owner::this_process()),
            value: None,
            age: Duration::ZERO,
            expires_in: None,
        });
        Inspection { resources: vec![resource], next: None }
    }

    #[test]
    fn a_node_that_is_behind_does_not_change_the_token_shown() {
        let one = ClaimId::random();
        // Of five nodes: the others did not answer.
        let answers = vec![voting(3, one), voting(7, one), voting(7, one)];
        let merged = merge(answers, &Page::default(), 3);
        assert_eq!(merged.resources[0].holders[0].token, Token::new(7));
    }

    /// What nodes say who turn a claim away: who holds there, with which vote.
    fn refusing(votes: &[u64], claim: ClaimId) -> Vec<Busy> {
        let holders = |vote: &u64| voting(*vote, claim).resources.remove(0).holders;
        votes.iter().map(|vote| Busy { holders: holders(vote), look_again_in: None }).collect()
    }

    /// Such a lock has no token of ours.
    #[test]
    fn another_clients_lock_is_held_where_a_majority_shows_it() {
        let foreign = |mut shown: Inspection| {
            shown.resources[0].holders.iter_mut().for_each(|view| view.token = None);
            shown
        };
        let one = ClaimId::random();
        let answers = || vec![foreign(voting(1, one)), foreign(voting(1, one))];
        let merged = merge(answers(), &Page::default(), 2);
        assert_eq!((merged.resources[0].holders.len(), merged.resources[0].waiters.len()), (1, 0));
        let refusals: Vec<Busy> = answers()
            .into_iter()
            .map(|mut shown| Busy { holders: shown.resources.remove(0).holders, look_again_in: None })
            .collect();
        assert!(is_clear(&refusals, 2) && busy(&refusals, 2).holders.len() == 1);
    }

    #[test]
    fn votes_that_differ_are_clear_once_enough_are_known() {
        let one = ClaimId::random();
        for (votes, clear) in [(&[5, 3][..], false), (&[5, 5], true), (&[9, 5, 3], true), (&[5], false)] {
            assert_eq!(is_clear(&refusing(votes, one), 2), clear, "{votes:?}");
        }
        assert!(!is_clear(&refusing(&[3, 5, 9], one), 3), "of five nodes, two more may change it");
        assert_eq!(busy(&refusing(&[9, 3, 5], one), 2).holders[0].token, Token::new(5));
    }
}
