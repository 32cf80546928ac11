use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::recorder::Recorder;
use super::teller::{Listener, Teller, now};
use super::worker::{self, Spec};
use crate::HelperProgram;
use crate::helper::Role;
use crate::history::{Event, Nanos, ProcessId};
use crate::launch::Target;
use crate::proxy::{Proxy, Weather};

/// The workers of one kind, each replaced when it is killed.
#[derive(Debug)]
pub(super) struct Crew {
    /// `None` if workers live in this process, because the engine does.
    helper: Option<HelperProgram>,
    target: Arc<dyn Target>,
    recorder: Arc<Recorder>,
    /// What new workers are told; the number is their own.
    orders: Spec,
    members: Vec<Member>,
    /// The number of the next worker; another crew counts from elsewhere.
    next: ProcessId,
    /// What is wrong with workers so far.
    problems: Vec<String>,
}

#[derive(Debug)]
struct Member {
    process: ProcessId,
    body: Body,
    /// Between it and the servers of the engine; they stay when it is replaced.
    links: Vec<Proxy>,
}

#[derive(Debug)]
enum Body {
    Process { child: Box<Child>, orders: ChildStdin, listening: JoinHandle<()> },
    Task { stop: watch::Sender<bool>, working: JoinHandle<Result<()>> },
}

impl Crew {
    /// Hires `count` workers.
    pub(super) async fn hire(
        helper: &HelperProgram,
        target: Arc<dyn Target>,
        recorder: Arc<Recorder>,
        orders: Spec,
        count: usize,
    ) -> Result<Self> {
        let next = orders.process;
        let helper = target.crosses_processes().then(|| helper.clone());
        let mut crew =
            Self { helper, target, recorder, orders, members: Vec::new(), next, problems: Vec::new() };
        for _ in 0..count {
            let links = crew.links().await?;
            let member = crew.member(links).await?;
            crew.members.push(member);
        }
        Ok(crew)
    }

    async fn links(&self) -> Result<Vec<Proxy>> {
        let mut links = Vec::new();
        for endpoint in self.target.endpoints() {
            links.push(Proxy::start_seeded(endpoint, self.orders.seed).await.context("no port for a proxy")?);
        }
        Ok(links)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// The number of a worker.
    pub(super) fn process(&self, member: usize) -> ProcessId {
        self.members[member].process
    }

    async fn member(&mut self, links: Vec<Proxy>) -> Result<Member> {
        let process = self.next;
        self.next += 1;
        let via: Vec<SocketAddr> = links.iter().map(Proxy::address).collect();
        let spec = Spec { process, url: self.target.url(&via), ..self.orders.clone() };
        let Some(helper) = &self.helper else {
            let (stop, stopped) = watch::channel(false);
            let teller = Teller::new(process, Listener::Here(Arc::clone(&self.recorder)));
            let working = tokio::spawn(worker::work(spec, teller, stopped));
            return Ok(Member { process, body: Body::Task { stop, working }, links });
        };
        let mut child = Command::from(helper.command(Role::Worker))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("a worker could not be started from {}", helper.path.display()))?;
        let mut orders = child.stdin.take().context("a worker without standard input")?;
        let said = child.stdout.take().context("a worker without standard output")?;
        let listening = tokio::spawn(listen(said, Arc::clone(&self.recorder)));
        let mut line = serde_json::to_string(&spec)?;
        line.push('\n');
        // A worker that is dead already is noticed with all others that end by themselves.
        let _ = orders.write_all(line.as_bytes()).await;
        Ok(Member { process, body: Body::Process { child: Box::new(child), orders, listening }, links })
    }

    /// Kills a worker (kill −9) and hires another in its place. What it told is kept.
    pub(super) async fn kill(&mut self, member: usize) -> Result<()> {
        let Body::Process { child, .. } = &mut self.members[member].body else { return Ok(()) };
        // Before the signal is sent: from then on its beliefs count for nothing.
        let at = now();
        child.start_kill().context("a worker could not be killed")?;
        child.wait().await?;
        self.replace(member, Some(at)).await
    }

    /// Waits until `end`, with an eye on the workers.
    pub(super) async fn watch_until(&mut self, end: Instant) -> Result<()> {
        const LOOK_AGAIN: Duration = Duration::from_millis(50);
        loop {
            self.notice_ended().await?;
            if Instant::now() >= end {
                return Ok(());
            }
            tokio::time::sleep_until((Instant::now() + LOOK_AGAIN).min(end)).await;
        }
    }

    /// Notices workers that ended by themselves, which no right client does, and replaces them.
    async fn notice_ended(&mut self) -> Result<()> {
        for member in 0..self.members.len() {
            let Body::Process { child, .. } = &mut self.members[member].body else { continue };
            if let Some(status) = child.try_wait()? {
                let process = self.members[member].process;
                self.problems.push(format!(
                    "worker {process} ended with {status}, which was not our doing: a crash, or somebody killed it"
                ));
                // Nobody knows when it died; it believed nothing for sure after its last word.
                self.replace(member, None).await?;
            }
        }
        Ok(())
    }

    /// Hires another in the place of one that died, at `at` if that is known.
    async fn replace(&mut self, member: usize, at: Option<Nanos>) -> Result<()> {
        let process = self.members[member].process;
        let links = std::mem::take(&mut self.members[member].links);
        let next = self.member(links).await?;
        let dead = std::mem::replace(&mut self.members[member], next);
        if let Body::Process { listening, .. } = dead.body {
            // The pipe ends with its last writer, so this does too.
            let _ = listening.await;
        }
        let at = at.or_else(|| self.recorder.last_word(process)).unwrap_or_else(now);
        self.recorder.hear(Event::Died { process, at });
        Ok(())
    }

    /// Turns the weather between a worker and one of the servers.
    pub(super) fn weather(&self, member: usize, server: usize, weather: Weather) {
        if let Some(link) = self.members[member].links.get(server) {
            link.set(weather);
        }
    }

    /// To how many servers each worker speaks.
    pub(super) fn servers(&self) -> usize {
        self.members.first().map_or(0, |member| member.links.len())
    }

    /// Stops a worker, or lets it go on.
    pub(super) fn signal(&self, member: usize, signal: Signal) -> Result<()> {
        let Body::Process { child, .. } = &self.members[member].body else { return Ok(()) };
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.with_context(|| format!("worker {} ended by itself", self.members[member].process))?;
        Ok(kill_process(pid, signal)?)
    }

    /// Tells all workers to end, and waits until they have; returns what is wrong with those that
    /// did not end well.
    pub(super) async fn dismiss(self, patience: Duration) -> Vec<String> {
        let end = Instant::now() + patience;
        let mut leaving = Vec::new();
        for member in self.members {
            let process = member.process;
            leaving.push((process, tokio::spawn(member.leave())));
        }
        let mut problems = self.problems;
        for (process, left) in leaving {
            match tokio::time::timeout_at(end, left).await {
                Ok(Ok(Ok(()))) => {}
                Ok(Ok(Err(problem))) => problems.push(format!("worker {process}: {problem:#}")),
                Ok(Err(panic)) => problems.push(format!("worker {process}: {panic}")),
                Err(_) => {
                    problems.push(format!("worker {process} did not end within {patience:?} when asked to"));
                }
            }
        }
        problems
    }
}

impl Member {
    async fn leave(self) -> Result<()> {
        match self.body {
            Body::Task { stop, working } => {
                let _ = stop.send(true);
                working.await?
            }
            Body::Process { mut child, orders, listening } => {
                drop(orders);
                let status = child.wait().await?;
                listening.await?;
                anyhow::ensure!(status.success(), "it ended with {status}");
                Ok(())
            }
        }
    }
}

async fn listen(said: ChildStdout, recorder: Arc<Recorder>) {
    let mut said = BufReader::with_capacity(1 << 16, said);
    let mut line = String::new();
    loop {
        line.clear();
        match said.read_line(&mut line).await {
            Ok(0) | Err(_) => return,
            // Without an end it was cut off by the death of its writer.
            Ok(_) => match line.strip_suffix('\n') {
                Some(line) => recorder.hear_line(line),
                None => return,
            },
        }
    }
}
