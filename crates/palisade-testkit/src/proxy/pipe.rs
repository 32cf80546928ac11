use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::weather::{Direction, Sky, Weather};

/// How much is read at once.
const CHUNK: usize = 16 * 1024;
/// How many chunks may be under way. More stay with the sender, which is then held up by TCP.
const UNDER_WAY: usize = 32;

/// One direction of one connection.
pub(super) struct Pipe<'a> {
    shared: &'a Shared,
    sky: watch::Receiver<Sky>,
    direction: Direction,
    /// The sky under which the connection began.
    born: u64,
    forwarded: &'a watch::Sender<Forwarded>,
    dice: Dice,
}

/// How far a connection came with the request whose answer is to be lost.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Forwarded {
    /// The sky under which it was begun.
    begun: Option<u64>,
    /// It has been written.
    done: bool,
}

struct Chunk {
    bytes: Vec<u8>,
    arrived: Instant,
}

impl<'a> Pipe<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        direction: Direction,
        born: u64,
        forwarded: &'a watch::Sender<Forwarded>,
        dice: Dice,
    ) -> Self {
        Self { shared, sky: shared.sky.subscribe(), direction, born, forwarded, dice }
    }

    /// Passes everything on until the sender is done.
    ///
    /// # Errors
    /// One of the two is gone, or the answer is to be lost.
    pub(super) async fn run(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
        let (queue, mut waiting) = mpsc::channel(UNDER_WAY);
        let read = std::pin::pin!(read(&mut from, queue));
        let write = std::pin::pin!(async {
            while let Some(chunk) = waiting.recv().await {
                self.pass(chunk, &mut to).await?;
            }
            // The end is held back like everything else.
            self.until_heard().await;
            to.shutdown().await
        });
        match select(read, write).await {
            // Whatever came before the end, also before a reset, is still delivered.
            Either::Left((read, write)) => write.await.and(read),
            Either::Right((written, read)) => {
                written?;
                read.await
            }
        }
    }

    async fn pass(&mut self, chunk: Chunk, to: &mut WriteHalf<'_>) -> io::Result<()> {
        let (mut rest, luck) = (chunk.bytes.as_slice(), self.dice.throw());
        while !rest.is_empty() {
            let sky = *self.sky.borrow_and_update();
            match sky.weather {
                _ if sky.is_silent(self.direction, self.born) => self.until_changed().await,
                Weather::Delay { by, jitter } => {
                    let due = later(chunk.arrived, by.saturating_add(share(jitter, luck)));
                    if self.sleeps_until(due).await {
                        self.write(&mut rest, usize::MAX, to).await?;
                    }
                }
                Weather::Trickle { bytes, every } => {
                    self.write(&mut rest, bytes.max(1), to).await?;
                    self.sleeps_until(later(Instant::now(), every)).await;
                }
                Weather::CutAfterForwarding => self.forward(sky.number, &mut rest, to).await?,
                _ => self.write(&mut rest, usize::MAX, to).await?,
            }
        }
        Ok(())
    }

    /// Passes a request, or loses the answer to one.
    async fn forward(&mut self, number: u64, rest: &mut &[u8], to: &mut WriteHalf<'_>) -> io::Result<()> {
        if self.direction == Direction::ToServer {
            // Said before a byte leaves: the server may answer before the write returns here.
            self.forwarded.send_replace(Forwarded { begun: Some(number), done: false });
            let written = self.write(rest, usize::MAX, to).await;
            self.forwarded.send_modify(|forwarded| forwarded.done = true);
            return written;
        }
        if self.forwarded.borrow().begun != Some(number) {
            // It answers something that was asked before.
            return self.write(rest, usize::MAX, to).await;
        }
        let _ = self.forwarded.subscribe().wait_for(|forwarded| forwarded.done).await;
        let mine = self.shared.sky.send_if_modified(|sky| {
            let mine = sky.number == number;
            if mine {
                sky.turn(Weather::Clear);
            }
            mine
        });
        // Another connection lost its answer first: this one goes on under the new sky.
        if mine { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }

    async fn write(&self, rest: &mut &[u8], most: usize, to: &mut WriteHalf<'_>) -> io::Result<()> {
        let (now, later) = rest.split_at(most.min(rest.len()));
        to.write_all(now).await?;
        self.counter().fetch_add(now.len() as u64, Ordering::Relaxed);
        *rest = later;
        Ok(())
    }

    fn counter(&self) -> &'a AtomicU64 {
        match self.direction {
            Direction::ToServer => &self.shared.to_server,
            Direction::ToClient => &self.shared.to_client,
        }
    }

    async fn until_heard(&mut self) {
        let (direction, born) = (self.direction, self.born);
        let _ = self.sky.wait_for(|sky| !sky.is_silent(direction, born)).await;
    }

    async fn until_changed(&mut self) {
        // An error means that the proxy is gone, and this task with it.
        let _ = self.sky.changed().await;
    }

    /// `false` if the weather changed before.
    async fn sleeps_until(&mut self, due: Instant) -> bool {
        tokio::select! {
            biased;
            () = self.until_changed() => false,
            () = sleep_until(due) => true,
        }
    }
}

async fn read(from: &mut ReadHalf<'_>, queue: mpsc::Sender<Chunk>) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = from.read(&mut buffer).await?;
        let chunk = Chunk { bytes: buffer[..count].to_vec(), arrived: Instant::now() };
        if count == 0 || queue.send(chunk).await.is_err() {
            return Ok(());
        }
    }
}

/// `after` has no bound of its own; a year is for ever.
fn later(from: Instant, after: Duration) -> Instant {
    from + after.min(Duration::from_hours(365 * 24))
}

/// A part of `whole`, by luck.
fn share(whole: Duration, luck: u64) -> Duration {
    let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(luck % nanos.saturating_add(1).max(1))
}

/// The same numbers for the same seed (`SplitMix64`).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
