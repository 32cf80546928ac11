use std::collections::{HashMap, HashSet};
use std::fmt;

use super::search::{Doubts, Search, positions};
use super::{Budget, Model, Timed};
use crate::history::{Nanos, OpId, ProcessId};

/// How many moments before the contradiction are tried as a beginning.
const WINDOW: u32 = 400;
/// A part of more operations than this is cut where operations are under way.
const READABLE: usize = 16;
/// How many states are named.
const STATES: usize = 8;

/// The smallest part of a history that is not linearizable.
///
/// Its end is the first answer that no order gets past. Its beginning is a moment such that from
/// every state that what went before can have led to, the rest cannot be ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The states that were possible when it begins, in words; at most a few.
    pub states: Vec<String>,
    /// How many more there were.
    pub more_states: usize,
    /// Its operations, by the time of their calls.
    pub rows: Vec<Row>,
    /// Which of them has the answer that cannot be explained.
    pub unexplained: usize,
    /// How many operations came before it begins.
    pub before: usize,
}

/// An operation of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The operation.
    pub op: OpId,
    /// Who asked.
    pub process: ProcessId,
    /// When it was called.
    pub call: Nanos,
    /// When it was answered, if it was.
    pub ret: Option<Nanos>,
    /// What was asked.
    pub asked: String,
    /// What was answered.
    pub answered: String,
}

/// A beginning: a moment, and how things can stand then.
struct Cut<S> {
    at: u32,
    /// The states, each with the operations in doubt that have had their effect.
    states: HashSet<(S, Doubts)>,
}

/// What can have happened up to a contradiction.
struct Prefix<'m, M: Model> {
    model: &'m M,
    ops: Vec<Timed<M::Step>>,
    calls: Vec<u32>,
    /// The positions of answers, also of those that came after the end.
    returns: Vec<u32>,
    /// The operation whose answer nothing gets past: its place, and the position of that answer.
    due: usize,
    end: u32,
}

/// The smallest part of `ops` that is not linearizable, where no order gets past the answer of the
/// operation `due`.
pub(super) fn smallest<M: Model>(model: &M, ops: &[Timed<M::Step>], due: usize, budget: Budget) -> Part {
    let (calls, returns) = positions(ops);
    let end = returns[due];
    let inside: Vec<usize> = (0..ops.len()).filter(|op| calls[*op] < end).collect();
    let prefix = Prefix {
        model,
        ops: inside.iter().map(|op| ops[*op].clone()).collect(),
        calls: inside.iter().map(|op| calls[*op]).collect(),
        returns: inside.iter().map(|op| returns[*op]).collect(),
        due: inside.iter().position(|op| *op == due).unwrap_or(0),
        end,
    };
    prefix.cut(budget)
}

impl<M: Model> Prefix<'_, M> {
    fn cut(&self, budget: Budget) -> Part {
        let (cuts, bits) = self.reachable(budget);
        let first = self.end.saturating_sub(WINDOW);
        let recent: Vec<usize> = (0..self.ops.len()).filter(|op| self.returns[*op] >= first).collect();
        let rows = |cut: &Cut<M::State>| self.rows(cut, &recent, &bits);
        let under_way = |op: &usize, at| self.calls[*op] < at && self.returns[*op] != u32::MAX;
        let quiescent = |cut: &&Cut<M::State>| {
            cut.at <= self.calls[self.due] && !rows(cut).iter().any(|op| under_way(op, cut.at))
        };
        let cut = match cuts.iter().rev().find(quiescent) {
            Some(cut) if rows(cut).len() <= READABLE => Some(cut),
            _ => cuts.iter().min_by_key(|cut| rows(cut).len() + 2 * cut.states.len()),
        };
        let Some(cut) = cut else {
            let initial = vec![self.model.state_in_words(&self.model.initial())];
            return self.part(initial, (0..self.ops.len()).collect());
        };
        let rows = rows(cut);
        self.part(self.states(cut, &rows, &bits), rows)
    }

    /// What is not over at a cut: not answered yet, and in doubt whether it has had its effect.
    fn rows(&self, cut: &Cut<M::State>, recent: &[usize], bits: &HashMap<usize, Doubts>) -> Vec<usize> {
        let over = cut.states.iter().fold(Doubts::MAX, |over, (_, doubts)| over & doubts);
        // Of what has been in doubt for too long to have a bit nothing is known; there it is tacitly
        // taken for over.
        let forgotten = |op: &usize| self.returns[*op] == u32::MAX;
        let is_over = |op: &usize| bits.get(op).map_or_else(|| forgotten(op), |bit| over & bit != 0);
        recent.iter().copied().filter(|op| self.returns[*op] >= cut.at && !is_over(op)).collect()
    }

    /// The states at a cut, and what of its operations has had its effect in each.
    fn states(&self, cut: &Cut<M::State>, rows: &[usize], bits: &HashMap<usize, Doubts>) -> Vec<String> {
        let words = |(state, doubts): &(M::State, Doubts)| {
            let done = rows.iter().filter(|op| bits.get(*op).is_some_and(|bit| doubts & bit != 0));
            let done: Vec<String> = done.map(|op| self.ops[*op].id.to_string()).collect();
            let state = self.model.state_in_words(state);
            if done.is_empty() { state } else { format!("{state} (with {})", done.join(", ")) }
        };
        // Where the same state comes with less used up, more can follow from that one.
        let is_less = |(state, doubts): &(M::State, Doubts)| {
            let less = |(other, fewer): &(M::State, Doubts)| {
                other == state && fewer != doubts && fewer & doubts == *fewer
            };
            cut.states.iter().any(less)
        };
        cut.states.iter().filter(|state| !is_less(state)).map(words).collect()
    }

    fn part(&self, mut states: Vec<String>, mut chosen: Vec<usize>) -> Part {
        states.sort_unstable();
        states.dedup();
        let more_states = states.len().saturating_sub(STATES);
        states.truncate(STATES);
        chosen.sort_by_key(|op| self.calls[*op]);
        let unexplained = chosen.iter().position(|op| *op == self.due).unwrap_or(0);
        let rows: Vec<Row> = chosen.iter().map(|op| row(self.model, &self.ops[*op])).collect();
        Part { states, more_states, before: self.ops.len() - rows.len(), rows, unexplained }
    }

    /// How things can stand at each of the last moments before the end: all that was answered before
    /// is ordered, nothing that was called later is. And the bits of the operations in doubt.
    fn reachable(&self, budget: Budget) -> (Vec<Cut<M::State>>, HashMap<usize, Doubts>) {
        let first = self.end.saturating_sub(WINDOW);
        let mut cuts: Vec<Cut<M::State>> =
            (first..=self.end).map(|at| Cut { at, states: HashSet::new() }).collect();
        // What was answered later need not be ordered by the end; its answer is known all the same.
        let mut ops = self.ops.clone();
        for (op, returned) in ops.iter_mut().zip(&self.returns) {
            op.ret = op.ret.filter(|_| *returned <= self.end);
        }
        let mut search = Search::new(self.model, &ops, budget);
        let bits = search.doubts().collect();
        search.run(|configuration| {
            for at in configuration.reach.max(first)..=configuration.due.min(self.end) {
                let states = &mut cuts[(at - first) as usize].states;
                states.insert((configuration.state.clone(), configuration.doubts));
            }
        });
        cuts.retain(|cut| !cut.states.is_empty());
        (cuts, bits)
    }
}

fn row<M: Model>(model: &M, op: &Timed<M::Step>) -> Row {
    let (asked, answered) = model.step_in_words(&op.step);
    Row { op: op.id, process: op.process, call: op.call, ret: op.ret, asked, answered }
}

impl Part {
    /// Its operations.
    pub fn ops(&self) -> Vec<OpId> {
        let mut ops: Vec<OpId> = self.rows.iter().map(|row| row.op).collect();
        ops.dedup();
        ops
    }

    /// What cannot be explained, in one sentence.
    pub fn sentence(&self) -> String {
        let Some(row) = self.rows.get(self.unexplained) else {
            return "no order explains these operations".to_owned();
        };
        format!(
            "no order explains the answer to process {}: {}: {} (operation {}); before, it can have been: {}",
            row.process,
            row.asked,
            row.answered,
            row.op,
            self.states.join(" | ")
        )
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.rows.len() == 1 { "operation" } else { "operations" };
        writeln!(f, "not linearizable: {} {noun} that no order explains", self.rows.len())?;
        write!(f, "  {} came before and can have led to: {}", self.before, self.states.join(" | "))?;
        match self.more_states {
            0 => writeln!(f)?,
            more => writeln!(f, " | {more} more")?,
        }
        let head = ["op", "process", "called", "answered", "asked", "answer"].map(str::to_owned);
        let lines: Vec<[String; 6]> = std::iter::once(head).chain(self.rows.iter().map(cells)).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        for (number, line) in lines.iter().enumerate() {
            let mark = if number == self.unexplained + 1 { '>' } else { ' ' };
            let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "{mark} {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        let row = self.rows.get(self.unexplained).map_or(0, |row| row.op);
        write!(f, "  the answer to operation {row} cannot be explained")
    }
}

fn cells(row: &Row) -> [String; 6] {
    let ret = row.ret.map_or_else(|| "never".to_owned(), |at| at.to_string());
    let call = row.call.to_string();
    [row.op.to_string(), row.process.to_string(), call, ret, row.asked.clone(), row.answered.clone()]
}
