use std::collections::HashSet;
use std::fmt;

use super::search::{Search, positions};
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

/// A beginning.
struct Cut<S> {
    at: u32,
    states: HashSet<S>,
}

/// The smallest part of `ops` that is not linearizable, where no order gets past the answer of the
/// operation `due`.
pub(super) fn smallest<M: Model>(model: &M, ops: &[Timed<M::Step>], due: usize, budget: Budget) -> Part {
    let (calls, returns) = positions(ops);
    let end = returns[due];
    let prefix = (0..ops.len()).filter(|op| calls[*op] < end);
    let (ids, ops): (Vec<usize>, Vec<Timed<M::Step>>) = prefix.map(|op| (op, ops[op].clone())).unzip();
    let (ids, calls, returns) = (&ids, &calls, &returns);
    let cuts = reachable(model, &ops, ids, end, returns, budget);

    let first = end.saturating_sub(WINDOW);
    let recent: Vec<usize> = (0..ops.len()).filter(|op| returns[ids[*op]] >= first).collect();
    let from = |at: u32| recent.iter().copied().filter(move |op| returns[ids[*op]] >= at);
    let under_way = |at: u32| from(at).any(|op| calls[ids[op]] < at && returns[ids[op]] != u32::MAX);
    let quiet = cuts.iter().rev().find(|cut| cut.at <= calls[due] && !under_way(cut.at));
    let cut = match quiet {
        Some(cut) if from(cut.at).count() <= READABLE => Some(cut),
        _ => cuts.iter().min_by_key(|cut| from(cut.at).count() + 2 * cut.states.len()),
    };
    let (mut chosen, states): (Vec<usize>, Vec<&M::State>) = match cut {
        Some(cut) => (from(cut.at).collect(), cut.states.iter().collect()),
        None => ((0..ops.len()).collect(), Vec::new()),
    };
    let mut states: Vec<String> = states.into_iter().map(|state| model.state_in_words(state)).collect();
    if states.is_empty() {
        states.push(model.state_in_words(&model.initial()));
    }
    states.sort_unstable();
    states.dedup();
    let more_states = states.len().saturating_sub(STATES);
    states.truncate(STATES);
    chosen.sort_by_key(|op| calls[ids[*op]]);
    let rows: Vec<Row> = chosen.iter().map(|op| row(model, &ops[*op])).collect();
    let unexplained = chosen.iter().position(|op| ids[*op] == due).unwrap_or(0);
    Part { states, more_states, before: ops.len() - rows.len(), rows, unexplained }
}

fn row<M: Model>(model: &M, op: &Timed<M::Step>) -> Row {
    let (asked, answered) = model.step_in_words(&op.step);
    Row { op: op.id, process: op.process, call: op.call, ret: op.ret, asked, answered }
}

/// The states that are possible at each of the last moments before `end`: all that was answered
/// before is ordered, nothing that was called later is.
fn reachable<M: Model>(
    model: &M,
    ops: &[Timed<M::Step>],
    ids: &[usize],
    end: u32,
    returns: &[u32],
    budget: Budget,
) -> Vec<Cut<M::State>> {
    let first = end.saturating_sub(WINDOW);
    let mut cuts: Vec<Cut<M::State>> = (first..=end).map(|at| Cut { at, states: HashSet::new() }).collect();
    // What was answered later need not be ordered by the end; its answer is known all the same.
    let mut prefix = ops.to_vec();
    for (op, id) in prefix.iter_mut().zip(ids) {
        op.ret = op.ret.filter(|_| returns[*id] <= end);
    }
    Search::new(model, &prefix, budget).run(|configuration| {
        for at in configuration.reach.max(first)..=configuration.due.min(end) {
            let states = &mut cuts[(at - first) as usize].states;
            if !states.contains(configuration.state) {
                states.insert(configuration.state.clone());
            }
        }
    });
    cuts.retain(|cut| !cut.states.is_empty());
    cuts
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
            "no order explains the answer to process {}: {}: {} (operation {})",
            row.process, row.asked, row.answered, row.op
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
        write!(f, "  {}", self.sentence())
    }
}

fn cells(row: &Row) -> [String; 6] {
    let ret = row.ret.map_or_else(|| "never".to_owned(), |at| at.to_string());
    let call = row.call.to_string();
    [row.op.to_string(), row.process.to_string(), call, ret, row.asked.clone(), row.answered.clone()]
}
