use bytes::Bytes;
use palisade_core::Result;

use crate::error::unexpected;
use crate::proto::{
    Compare, DeleteRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, Request, RequestOp, Response,
    ResponseOp, TxnRequest, TxnResponse, Wanted,
};

/// A transaction in the making: if all of `when`, then all of `then`, else all of `or_else`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Txn(TxnRequest);

impl Txn {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn when(mut self, compare: Compare) -> Self {
        self.0.compare.push(compare);
        self
    }

    pub(crate) fn then(mut self, request: Request) -> Self {
        self.0.success.push(RequestOp { request: Some(request) });
        self
    }

    pub(crate) fn or_else(mut self, request: Request) -> Self {
        self.0.failure.push(RequestOp { request: Some(request) });
        self
    }

    pub(crate) fn then_all(self, requests: impl IntoIterator<Item = Request>) -> Self {
        requests.into_iter().fold(self, Self::then)
    }

    pub(crate) fn or_else_all(self, requests: impl IntoIterator<Item = Request>) -> Self {
        requests.into_iter().fold(self, Self::or_else)
    }

    pub(crate) fn request(self) -> TxnRequest {
        self.0
    }

    /// As a part of another one.
    pub(crate) fn nested(self) -> Request {
        Request::Txn(self.0)
    }
}

/// The key was made at this revision; 0 if there is none.
pub(crate) fn created_at(key: Vec<u8>, revision: i64) -> Compare {
    Compare { result: 0, target: 1, key, wanted: Some(Wanted::Create(revision)), range_end: Vec::new() }
}

/// The key is there, and was made after this revision.
pub(crate) fn created_after(key: Vec<u8>, revision: i64) -> Compare {
    Compare { result: 1, ..created_at(key, revision) }
}

/// The key was last written at this revision; 0 if there is none.
pub(crate) fn written_at(key: Vec<u8>, revision: i64) -> Compare {
    Compare { result: 0, target: 2, key, wanted: Some(Wanted::Mod(revision)), range_end: Vec::new() }
}

/// There is no key that begins like this.
pub(crate) fn nothing_under(prefix: &[u8]) -> Compare {
    Compare { range_end: end_of(prefix), ..created_at(prefix.to_vec(), 0) }
}

/// No key that begins like this was written after a revision. Some may have been deleted.
pub(crate) fn nothing_new_under(prefix: &[u8], revision: i64) -> Compare {
    Compare {
        result: 2,
        target: 2,
        key: prefix.to_vec(),
        wanted: Some(Wanted::Mod(revision + 1)),
        range_end: end_of(prefix),
    }
}

pub(crate) fn put(key: Vec<u8>, value: impl Into<Bytes>, lease: i64) -> Request {
    Request::Put(PutRequest { key, value: value.into(), lease, ..PutRequest::default() })
}

/// Writes a key that is there as it is.
pub(crate) fn touch(key: Vec<u8>) -> Request {
    Request::Put(PutRequest { key, ignore_value: true, ignore_lease: true, ..PutRequest::default() })
}

pub(crate) fn delete(key: Vec<u8>) -> Request {
    Request::Delete(DeleteRequest { key })
}

pub(crate) fn get(key: Vec<u8>) -> Request {
    Request::Range(RangeRequest { key, ..RangeRequest::default() })
}

pub(crate) fn all_under(prefix: &[u8]) -> RangeRequest {
    RangeRequest { key: prefix.to_vec(), range_end: end_of(prefix), ..RangeRequest::default() }
}

/// At most `limit` keys that begin like this, the last that came first.
pub(crate) fn newest_under(prefix: &[u8], limit: i64) -> RangeRequest {
    RangeRequest { limit, sort_order: 2, sort_target: 2, ..all_under(prefix) }
}

/// The end of the range of all keys that begin with `prefix`.
pub(crate) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    // All keys there are.
    vec![0]
}

/// The answers to the parts of a transaction, in order.
pub(crate) struct Answers(std::vec::IntoIter<ResponseOp>);

impl Answers {
    pub(crate) fn of(response: TxnResponse) -> Self {
        Self(response.responses.into_iter())
    }

    fn next(&mut self) -> Result<Response> {
        self.0.next().and_then(|part| part.response).ok_or_else(unexpected)
    }

    pub(crate) fn range(&mut self) -> Result<RangeResponse> {
        match self.next()? {
            Response::Range(range) => Ok(range),
            _ => Err(unexpected()),
        }
    }

    /// A single key, if it is there.
    pub(crate) fn key(&mut self) -> Result<Option<KeyValue>> {
        Ok(self.range()?.kvs.into_iter().next())
    }

    /// How many keys were deleted.
    pub(crate) fn deleted(&mut self) -> Result<i64> {
        match self.next()? {
            Response::Delete(answer) => Ok(answer.deleted),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn txn(&mut self) -> Result<TxnResponse> {
        match self.next()? {
            Response::Txn(txn) => Ok(txn),
            _ => Err(unexpected()),
        }
    }

    /// Leaves out answers that say nothing.
    pub(crate) fn skip(&mut self, count: usize) -> Result<()> {
        (0..count).try_for_each(|_| self.next().map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff\xff"), b"\0");
        assert_eq!(end_of(b""), b"\0");
    }
}
