use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use crate::bounded::eventually;
use crate::servers::children;
use crate::servers::process::Process;

/// A server that has a process per connection, each in a group of its own. All are killed when this is dropped.
#[derive(Debug)]
pub(super) struct Family {
    /// `None` once it was told to end.
    first: Option<Process>,
    id: u32,
}

impl Family {
    pub(super) fn new(first: Process) -> Self {
        Self { id: first.id(), first: Some(first) }
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.first.as_mut().map_or(Ok(None), Process::ended)
    }

    pub(super) fn stop(&self) -> Result<()> {
        // The first one first: then no further process can come.
        self.signal_first(Signal::STOP)?;
        signal_all(&children(self.id), Signal::STOP);
        Ok(())
    }

    pub(super) fn go_on(&self) -> Result<()> {
        signal_all(&children(self.id), Signal::CONT);
        self.signal_first(Signal::CONT)
    }

    fn signal_first(&self, signal: Signal) -> Result<()> {
        self.first.as_ref().map_or(Ok(()), |first| first.signal(signal))
    }

    pub(super) async fn kill(mut self) -> Result<()> {
        const PATIENCE: Duration = Duration::from_secs(20);
        self.stop()?;
        let children = children(self.id);
        signal_all(&children, Signal::KILL);
        if let Some(first) = self.first.take() {
            first.end(Signal::KILL).await?;
        }
        // The shared memory of those that still die would keep the next server from starting.
        eventually(PATIENCE, "the death of a server's processes", async || {
            Ok(children.iter().all(|child| !lives(*child)).then_some(()))
        })
        .await
    }

    pub(super) async fn end(mut self, signal: Signal) -> Result<()> {
        self.go_on()?;
        match self.first.take() {
            Some(first) => first.end(signal).await,
            None => Ok(()),
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if self.first.is_some() {
            let _ = self.stop();
            signal_all(&children(self.id), Signal::KILL);
        }
    }
}

fn signal_all(processes: &[i32], signal: Signal) {
    for pid in processes.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        // It may have ended by itself.
        let _ = kill_process(pid, signal);
    }
}

fn lives(pid: i32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
