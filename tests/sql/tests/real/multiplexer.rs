//! What poolers of MySQL connections do to sessions, at a real server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Has two connections to a server for each of a client's, and gives it the one or the other. For users without a password.
pub(crate) struct Multiplexer {
    address: SocketAddr,
    swapped: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Drop for Multiplexer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Multiplexer {
    /// Begins to stand before `server`; with `numbers` of its own for sessions, or with the server's.
    pub(crate) async fn start(server: SocketAddr, numbers: bool) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, swapped) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let theirs = Arc::clone(&swapped);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A client that leaves is no concern of the others.
                tokio::spawn(serve(client, server, numbers, Arc::clone(&theirs)));
            }
        });
        Ok(Self { address, swapped, task: task.abort_handle() })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on every client has the other session.
    pub(crate) fn swap(&self) {
        self.swapped.store(true, Ordering::SeqCst);
    }
}

async fn serve(client: TcpStream, server: SocketAddr, numbers: bool, swapped: Arc<AtomicBool>) -> Result<()> {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_one, mut to_one) = TcpStream::connect(server).await?.into_split();
    let (mut from_other, mut to_other) = TcpStream::connect(server).await?.into_split();
    let mut greeting = packet(&mut from_one).await?;
    packet(&mut from_other).await?;
    if numbers {
        // Behind the header, the protocol's version and the server's, which ends with a zero.
        let version = greeting.iter().skip(5).position(|byte| *byte == 0).context("a version")?;
        greeting[5 + version + 1] ^= 0x55;
    }
    to_client.write_all(&greeting).await?;
    let login = packet(&mut from_client).await?;
    to_one.write_all(&login).await?;
    to_other.write_all(&login).await?;
    to_client.write_all(&packet(&mut from_one).await?).await?;
    packet(&mut from_other).await?;
    let answers = async {
        tokio::select! {
            done = relay(&mut from_one, &mut to_client) => done,
            () = until(&swapped) => relay(&mut from_other, &mut to_client).await,
        }
    };
    let questions = async {
        loop {
            let question = packet(&mut from_client).await?;
            let to = if swapped.load(Ordering::SeqCst) { &mut to_other } else { &mut to_one };
            to.write_all(&question).await?;
        }
    };
    tokio::select! {
        done = answers => done,
        done = questions => done,
    }
}

async fn until(swapped: &AtomicBool) {
    while !swapped.load(Ordering::SeqCst) {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}

async fn relay(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) -> Result<()> {
    tokio::io::copy(from, to).await?;
    Ok(())
}

/// One packet: three bytes of length, a number, and what is in it.
async fn packet(from: &mut OwnedReadHalf) -> Result<Vec<u8>> {
    let mut packet = vec![0; 4];
    from.read_exact(&mut packet).await?;
    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]) as usize;
    packet.resize(4 + length, 0);
    from.read_exact(&mut packet[4..]).await?;
    Ok(packet)
}
