use bytes::{Buf, BufMut, Bytes, BytesMut};
use palisade_core::Result;

use crate::error::unexpected;

/// Writes what ZooKeeper's wire format (jute) is made of: big-endian numbers, and everything else
/// after its length.
#[derive(Debug, Default)]
pub(crate) struct Writer(BytesMut);

impl Writer {
    pub(crate) fn int(mut self, value: i32) -> Self {
        self.0.put_i32(value);
        self
    }

    pub(crate) fn long(mut self, value: i64) -> Self {
        self.0.put_i64(value);
        self
    }

    pub(crate) fn bool(mut self, value: bool) -> Self {
        self.0.put_u8(u8::from(value));
        self
    }

    pub(crate) fn buffer(mut self, value: &[u8]) -> Self {
        self.0.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.0.put_slice(value);
        self
    }

    pub(crate) fn text(self, value: &str) -> Self {
        self.buffer(value.as_bytes())
    }

    /// What was written, with its length before it.
    pub(crate) fn framed(self) -> Bytes {
        let mut frame = BytesMut::with_capacity(self.0.len() + 4);
        frame.put_i32(i32::try_from(self.0.len()).unwrap_or(i32::MAX));
        frame.put_slice(&self.0);
        frame.freeze()
    }

    /// A request in the making: room for its length, its number and its kind comes first.
    pub(crate) fn request() -> Self {
        Self(BytesMut::from(&[0; 12][..]))
    }

    /// The finished request.
    pub(crate) fn numbered(mut self, number: i32, kind: i32) -> Bytes {
        let length = i32::try_from(self.0.len() - 4).unwrap_or(i32::MAX);
        for (at, value) in [length, number, kind].into_iter().enumerate() {
            self.0[at * 4..at * 4 + 4].copy_from_slice(&value.to_be_bytes());
        }
        self.0.freeze()
    }

    pub(crate) fn append(mut self, more: &Self) -> Self {
        self.0.put_slice(&more.0);
        self
    }
}

/// Reads it again. What is too short is an error, never a panic.
#[derive(Debug)]
pub(crate) struct Reader(pub(crate) Bytes);

impl Reader {
    pub(crate) fn int(&mut self) -> Result<i32> {
        if self.0.len() < 4 {
            return Err(unexpected());
        }
        Ok(self.0.get_i32())
    }

    pub(crate) fn long(&mut self) -> Result<i64> {
        if self.0.len() < 8 {
            return Err(unexpected());
        }
        Ok(self.0.get_i64())
    }

    pub(crate) fn bool(&mut self) -> Result<bool> {
        if self.0.is_empty() {
            return Err(unexpected());
        }
        Ok(self.0.get_u8() != 0)
    }

    /// A length of -1 stands for none, which is as good as empty to us.
    pub(crate) fn buffer(&mut self) -> Result<Bytes> {
        let Ok(length) = usize::try_from(self.int()?) else { return Ok(Bytes::new()) };
        if self.0.len() < length {
            return Err(unexpected());
        }
        Ok(self.0.split_to(length))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        String::from_utf8(self.buffer()?.to_vec()).map_err(|_| unexpected())
    }

    pub(crate) fn texts(&mut self) -> Result<Vec<String>> {
        let count = self.int()?.max(0);
        (0..count).map(|_| self.text()).collect()
    }

    pub(crate) fn stat(&mut self) -> Result<Stat> {
        let (created, written) = (self.long()?, self.long()?);
        let (_created_at, _written_at) = (self.long()?, self.long()?);
        let (version, _children, _acl) = (self.int()?, self.int()?, self.int()?);
        let owner = self.long()?;
        let (_length, _count, _last) = (self.int()?, self.int()?, self.long()?);
        Ok(Stat { created, written, version, owner })
    }
}

/// What is told of a node beside its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stat {
    /// The transaction that made it (czxid).
    pub(crate) created: i64,
    /// The one that wrote it last (mzxid).
    pub(crate) written: i64,
    /// How often it was written.
    pub(crate) version: i32,
    /// The session that it ends with, or 0.
    pub(crate) owner: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let bytes = Writer::default().int(-7).long(1 << 40).bool(true).text("é").buffer(b"").framed();
        let mut reader = Reader(bytes);
        assert_eq!(reader.int().unwrap(), 4 + 8 + 1 + 4 + 2 + 4);
        assert_eq!((reader.int().unwrap(), reader.long().unwrap()), (-7, 1 << 40));
        assert_eq!((reader.bool().unwrap(), reader.text().unwrap()), (true, "é".to_owned()));
        assert!(reader.buffer().unwrap().is_empty());
        assert!(reader.int().is_err() && reader.bool().is_err() && reader.stat().is_err());
    }

    #[test]
    fn a_length_that_is_too_great_is_an_error() {
        let mut reader = Reader(Bytes::from_static(b"\x7f\xff\xff\xff1234"));
        assert!(reader.buffer().is_err());
    }
}
