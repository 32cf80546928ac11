use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use parking_lot::Mutex;

use crate::history::{Answer, Builder, Event, History, Nanos, ProcessId};

/// Hears what all workers tell, keeps it, and writes it down.
///
/// It lives in the parent: whatever happens to a worker, what it told is not lost.
#[derive(Debug)]
pub(super) struct Recorder(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    builder: Builder,
    file: Option<BufWriter<File>>,
    counts: Counts,
    /// When each process last began something.
    last_words: HashMap<ProcessId, Nanos>,
    problem: Option<String>,
}

/// How much happened so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) ops: u64,
    pub(super) grants: u64,
    pub(super) faults: u64,
}

impl Recorder {
    /// A recorder that writes to `file` too, if there is one.
    pub(super) fn new(file: Option<&Path>) -> Result<Self> {
        let file = file
            .map(|path| File::create(path).with_context(|| format!("cannot write {}", path.display())))
            .transpose()?;
        Ok(Self(Mutex::new(Inner {
            builder: Builder::default(),
            file: file.map(BufWriter::new),
            counts: Counts::default(),
            last_words: HashMap::new(),
            problem: None,
        })))
    }

    /// Hears a line from a worker. One that was cut off by its death is left out.
    pub(super) fn hear_line(&self, line: &str) {
        match serde_json::from_str(line) {
            Ok(event) => self.0.lock().hear(event, Some(line)),
            Err(problem) => {
                self.0.lock().problem.get_or_insert_with(|| format!("a worker said {line:?}: {problem}"));
            }
        }
    }

    /// Hears an event.
    pub(super) fn hear(&self, event: Event) {
        self.0.lock().hear(event, None);
    }

    /// The last moment at which a process is known to have lived.
    pub(super) fn last_word(&self, process: ProcessId) -> Option<Nanos> {
        self.0.lock().last_words.get(&process).copied()
    }

    pub(super) fn counts(&self) -> Counts {
        self.0.lock().counts
    }

    /// The whole history.
    ///
    /// # Errors
    /// If something was told that cannot be, or could not be written down.
    pub(super) fn finish(&self) -> Result<History> {
        let mut inner = self.0.lock();
        if let Some(mut file) = inner.file.take() {
            file.flush().context("the history could not be written")?;
        }
        match inner.problem.take() {
            Some(problem) => Err(anyhow!(problem)),
            None => Ok(std::mem::take(&mut inner.builder).finish()),
        }
    }
}

impl Inner {
    fn hear(&mut self, event: Event, line: Option<&str>) {
        if let Err(problem) = self.write(&event, line) {
            self.problem.get_or_insert(format!("the history could not be written: {problem}"));
        }
        match &event {
            Event::Return { answer, .. } => {
                self.counts.ops += 1;
                self.counts.grants += u64::from(matches!(answer, Answer::Granted { .. }));
            }
            Event::Call { process, at, .. } => drop(self.last_words.insert(*process, *at)),
            Event::Fault { .. } => self.counts.faults += 1,
            _ => {}
        }
        if let Err(problem) = self.builder.add(event) {
            self.problem.get_or_insert(problem);
        }
    }

    fn write(&mut self, event: &Event, line: Option<&str>) -> std::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        match line {
            Some(line) => file.write_all(line.as_bytes())?,
            None => serde_json::to_writer(&mut *file, event)?,
        }
        file.write_all(b"\n")
    }
}
