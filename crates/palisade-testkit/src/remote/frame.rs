use std::io;

use palisade_core::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// The longest message. A batch of claims or a page of resources is far below it.
const LONGEST: usize = 64 << 20;

/// A message as it is sent: its length in four bytes, then JSON.
pub(super) fn encode(message: &impl Serialize) -> Result<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)
        .map_err(|error| Error::new(ErrorKind::Internal, "a message cannot be written").because(error))?;
    let length = frame.len() - 4;
    if length > LONGEST {
        return Err(Error::new(ErrorKind::Invalid, "too much was asked for at once"));
    }
    frame[..4].copy_from_slice(&(length as u32).to_be_bytes());
    Ok(frame)
}

/// The next message; `None` where the other side ended between two.
///
/// Not cancel safe: a part of a message may have been read.
pub(super) async fn read<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    if from.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    from.read_exact(&mut length[1..]).await?;
    let length = u32::from_be_bytes(length);
    if length as usize > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
    }
    // Grows with what arrives, not with what was announced.
    let mut message = Vec::new();
    if from.take(length.into()).read_to_end(&mut message).await? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(serde_json::from_slice(&message)?))
}

/// Writes messages as they come, those that are ready together in one go.
pub(super) async fn write_all(
    mut messages: mpsc::Receiver<Vec<u8>>,
    to: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    while let Some(mut batch) = messages.recv().await {
        while batch.len() < 64 << 10
            && let Ok(more) = messages.try_recv()
        {
            batch.extend_from_slice(&more);
        }
        to.write_all(&batch).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_message_is_an_error() {
        for bad in [&b"\xff\xff\xff\xff"[..], b"\0\0", b"\0\0\0\x05ab", b"\0\0\0\x02{]"] {
            assert!(read::<u64>(&mut &*bad).await.is_err(), "{bad:?}");
        }
        assert_eq!(read::<u64>(&mut &b""[..]).await.unwrap(), None);
        assert_eq!(read::<u64>(&mut &*encode(&7_u64).unwrap()).await.unwrap(), Some(7));
    }
}
