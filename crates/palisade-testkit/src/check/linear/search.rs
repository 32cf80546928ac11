use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Instant;

use super::chain::Chain;
use super::hash::{Mixer, zobrist};
use super::{Budget, Haste, Model, Timed};

/// How a search ended.
#[derive(Debug)]
pub(super) enum End {
    /// All operations could be ordered.
    Ordered,
    /// They cannot; `due` is the operation whose answer no order gets past.
    Exhausted {
        /// Its place in the operations.
        due: usize,
    },
    /// Nobody knows.
    OutOfBudget {
        /// Why.
        why: String,
    },
}

/// What the search has ordered so far.
pub(super) struct Configuration<'s, S> {
    /// The state it leads to.
    pub(super) state: &'s S,
    /// The position behind the latest call that was ordered.
    pub(super) reach: u32,
    /// The position of the first answer that was not.
    pub(super) due: u32,
    /// Which operations in doubt were, by [`Search::doubts`].
    pub(super) doubts: Doubts,
}

/// Where to go on looking for what could come next.
#[derive(Debug, Clone, Copy)]
enum Cursor {
    /// From the beginning, with what need not wait.
    Hasty,
    /// With the operation whose answer is due first.
    Due,
    /// With this one of those that were answered.
    Answered(Option<u32>),
    /// With this one of those in doubt.
    Open(Option<u32>),
}

/// What could come next.
struct Next<S> {
    op: u32,
    state: S,
    /// Where to go on if it leads nowhere; `None` if nothing else can.
    then: Option<Cursor>,
}

/// One operation that was ordered, and all that is needed to take it back.
struct Frame<S> {
    op: u32,
    before: S,
    reach: u32,
    then: Option<Cursor>,
}

/// Which operations in doubt were ordered, among the last of them: a bit each.
pub(super) type Doubts = u128;

/// The sets of doubts with which a state was reached that no other set there is part of.
type Seen<S> = HashMap<(u128, S), Vec<Doubts>, std::hash::BuildHasherDefault<Mixer>>;

pub(super) struct Search<'m, M: Model> {
    model: &'m M,
    ops: &'m [Timed<M::Step>],
    budget: Budget,
    /// Where each call and each answer stands among all calls and answers.
    calls_at: Vec<u32>,
    returns_at: Vec<u32>,
    /// What is left: answered operations by call and by answer, those in doubt by call, and of all
    /// of them those that need not wait.
    calls: Chain,
    hasty: Chain,
    returns: Chain,
    open: Chain,
    /// The bit of each operation in doubt, for the last of them.
    bits: HashMap<u32, u32>,
    state: M::State,
    ordered: u128,
    doubts: Doubts,
    reach: u32,
    stack: Vec<Frame<M::State>>,
    seen: Seen<M::State>,
    furthest: Option<u32>,
    steps: u64,
    tries: u64,
}

/// The positions of calls and answers among all of them. Those of one moment count as concurrent,
/// so calls come first.
pub(super) fn positions<S>(ops: &[Timed<S>]) -> (Vec<u32>, Vec<u32>) {
    let mut moments: Vec<(u64, bool, u32)> = Vec::with_capacity(ops.len() * 2);
    for (op, index) in ops.iter().zip(0..) {
        moments.push((op.call, false, index));
        moments.extend(op.ret.map(|at| (at.max(op.call), true, index)));
    }
    moments.sort_unstable();
    let mut calls = vec![u32::MAX; ops.len()];
    let mut returns = vec![u32::MAX; ops.len()];
    for ((_, is_return, op), position) in moments.into_iter().zip(0..) {
        let list = if is_return { &mut returns } else { &mut calls };
        list[op as usize] = position;
    }
    (calls, returns)
}

impl<'m, M: Model> Search<'m, M> {
    pub(super) fn new(model: &'m M, ops: &'m [Timed<M::Step>], budget: Budget) -> Self {
        let (calls_at, returns_at) = positions(ops);
        let mut by_call: Vec<u32> = (0..ops.len() as u32).collect();
        by_call.sort_unstable_by_key(|op| calls_at[*op as usize]);
        let mut by_return = by_call.clone();
        by_return.sort_unstable_by_key(|op| returns_at[*op as usize]);
        let answered = |op: &u32| returns_at[*op as usize] != u32::MAX;
        // What may as well not have been need not be read.
        let is_hasty = |op: &u32| match model.haste(&ops[*op as usize].step) {
            Haste::None => false,
            Haste::Read => answered(op),
            Haste::Leave => true,
        };
        let in_doubt = |op: &u32| !answered(op);
        Self {
            calls: Chain::new(by_call.iter().copied().filter(answered), ops.len()),
            hasty: Chain::new(by_call.iter().copied().filter(is_hasty), ops.len()),
            returns: Chain::new(by_return.into_iter().filter(answered), ops.len()),
            open: Chain::new(by_call.iter().copied().filter(in_doubt), ops.len()),
            bits: by_call.iter().rev().copied().filter(in_doubt).zip(0..Doubts::BITS).collect(),
            state: model.initial(),
            model,
            ops,
            budget,
            calls_at,
            returns_at,
            ordered: 0,
            doubts: 0,
            reach: 0,
            stack: Vec::new(),
            seen: HashMap::default(),
            furthest: None,
            steps: 0,
            tries: 0,
        }
    }

    /// The last operations in doubt, each with its bit.
    pub(super) fn doubts(&self) -> impl Iterator<Item = (usize, Doubts)> {
        self.bits.iter().map(|(op, bit)| (*op as usize, 1 << bit))
    }

    pub(super) const fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs to the end; tells of every configuration on the way.
    pub(super) fn run(&mut self, mut visit: impl FnMut(&Configuration<'_, M::State>)) -> End {
        let started = Instant::now();
        let mut cursor = Cursor::Hasty;
        loop {
            let Some(due) = self.returns.first() else { return End::Ordered };
            let due_at = self.returns_at[due as usize];
            if matches!(cursor, Cursor::Hasty) {
                let (state, reach, doubts) = (&self.state, self.reach, self.doubts);
                visit(&Configuration { state, reach, due: due_at, doubts });
                if self.furthest.is_none_or(|furthest| due_at > self.returns_at[furthest as usize]) {
                    self.furthest = Some(due);
                }
            }
            let hopeless = matches!(cursor, Cursor::Hasty) && self.is_hopeless(due_at);
            match if hopeless { None } else { self.next(cursor, due, due_at) } {
                Some(next) => {
                    self.order(next);
                    cursor = Cursor::Hasty;
                }
                None => match self.back() {
                    Some(then) => cursor = then,
                    None => return End::Exhausted { due: self.furthest.unwrap_or(due) as usize },
                },
            }
            self.tries += 1;
            if self.tries.is_multiple_of(1024) && started.elapsed() > self.budget.time {
                return self.out_of(&format!("{:?}", self.budget.time));
            }
            if self.seen.len() > self.budget.configurations {
                return self.out_of(&format!("{} configurations", self.budget.configurations));
            }
        }
    }

    fn out_of(&self, what: &str) -> End {
        let why = format!(
            "neither an order nor a contradiction was found within {what}, for {} operations, {} of them in doubt",
            self.ops.len(),
            self.returns_at.iter().filter(|at| **at == u32::MAX).count()
        );
        End::OutOfBudget { why }
    }

    /// What could come next, from `cursor` on: called before the first answer that is due, possible
    /// in this state, and leading to where the search has not been.
    fn next(&mut self, cursor: Cursor, due: u32, due_at: u32) -> Option<Next<M::State>> {
        let mut cursor = cursor;
        loop {
            cursor = match cursor {
                Cursor::Hasty => {
                    if let Some((op, state)) = self.hasty(due_at) {
                        return self.fresh(op, &state).then_some(Next { op, state, then: None });
                    }
                    Cursor::Due
                }
                Cursor::Due => {
                    let then = Cursor::Answered(self.calls.first());
                    if let Some(next) = self.possible(due, then) {
                        return Some(next);
                    }
                    then
                }
                Cursor::Answered(Some(op)) if self.calls_at[op as usize] < due_at => {
                    let then = Cursor::Answered(self.calls.after(op));
                    if op != due
                        && let Some(next) = self.possible(op, then)
                    {
                        return Some(next);
                    }
                    then
                }
                Cursor::Answered(_) => Cursor::Open(self.open.first()),
                Cursor::Open(Some(op)) if self.calls_at[op as usize] < due_at => {
                    let then = Cursor::Open(self.open.after(op));
                    if let Some(next) = self.possible(op, then) {
                        return Some(next);
                    }
                    then
                }
                Cursor::Open(_) => return None,
            };
        }
    }

    /// Whether something that was called before the next answer is due has missed its time.
    fn is_hopeless(&self, due_at: u32) -> bool {
        let mut op = self.calls.first();
        while let Some(candidate) = op.filter(|op| self.calls_at[*op as usize] < due_at) {
            if self.model.is_too_late(&self.state, &self.ops[candidate as usize].step) {
                return true;
            }
            op = self.calls.after(candidate);
        }
        false
    }

    /// Something that is possible and need not wait, and what comes of it.
    fn hasty(&self, due_at: u32) -> Option<(u32, M::State)> {
        let mut op = self.hasty.first();
        while let Some(candidate) = op.filter(|op| self.calls_at[*op as usize] < due_at) {
            let step = &self.ops[candidate as usize].step;
            if let Some(after) = self.model.apply(&self.state, step)
                && (after == self.state || self.model.haste(step) == Haste::Leave)
            {
                return Some((candidate, after));
            }
            op = self.hasty.after(candidate);
        }
        None
    }

    fn possible(&mut self, op: u32, then: Cursor) -> Option<Next<M::State>> {
        let state = self.model.apply(&self.state, &self.ops[op as usize].step)?;
        // What may as well not have happened need not have.
        let idle = self.returns_at[op as usize] == u32::MAX && state == self.state;
        (!idle && self.fresh(op, &state)).then_some(Next { op, state, then: Some(then) })
    }

    /// The hash of what is ordered, and the doubts, once `op` is ordered or taken back.
    fn toggled(&self, op: u32) -> (u128, Doubts) {
        match self.bits.get(&op) {
            Some(bit) => (self.ordered, self.doubts ^ (1 << bit)),
            None => (self.ordered ^ zobrist(op), self.doubts),
        }
    }

    /// Whether the search has not been where `op` leads, nor where more was left to choose from.
    fn fresh(&mut self, op: u32, state: &M::State) -> bool {
        let (ordered, doubts) = self.toggled(op);
        match self.seen.entry((ordered, state.clone())) {
            Entry::Vacant(place) => {
                // Without doubts nothing can be left out: an empty list says that.
                place.insert(if doubts == 0 { Vec::new() } else { vec![doubts] });
                true
            }
            Entry::Occupied(mut place) => {
                let known = place.get_mut();
                if known.is_empty() || known.iter().any(|known| known & doubts == *known) {
                    return false;
                }
                if doubts == 0 {
                    *known = Vec::new();
                } else {
                    known.retain(|known| known & doubts != doubts);
                    known.push(doubts);
                }
                true
            }
        }
    }

    fn order(&mut self, next: Next<M::State>) {
        let Next { op, state, then } = next;
        (self.ordered, self.doubts) = self.toggled(op);
        if self.returns_at[op as usize] == u32::MAX {
            self.open.take(op);
        } else {
            self.calls.take(op);
            self.returns.take(op);
        }
        self.hasty.take(op);
        let before = std::mem::replace(&mut self.state, state);
        self.stack.push(Frame { op, before, reach: self.reach, then });
        self.reach = self.reach.max(self.calls_at[op as usize] + 1);
        self.steps += 1;
    }

    /// Takes back up to the last choice; says where to go on.
    fn back(&mut self) -> Option<Cursor> {
        loop {
            let Frame { op, before, reach, then } = self.stack.pop()?;
            (self.ordered, self.doubts) = self.toggled(op);
            self.hasty.put_back(op);
            if self.returns_at[op as usize] == u32::MAX {
                self.open.put_back(op);
            } else {
                self.returns.put_back(op);
                self.calls.put_back(op);
            }
            self.state = before;
            self.reach = reach;
            if let Some(then) = then {
                return Some(then);
            }
        }
    }
}
