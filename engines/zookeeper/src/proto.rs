use bytes::Bytes;
use palisade_core::Result;

use crate::error::{Code, refused, unexpected};
use crate::jute::{Reader, Stat, Writer};

/// What kinds of requests there are, by their number on the wire.
pub(crate) mod op {
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const GET_CHILDREN: i32 = 12;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE: i32 = 15;
    pub(crate) const CREATE_CONTAINER: i32 = 19;
    pub(crate) const MULTI_READ: i32 = 22;
    pub(crate) const AUTH: i32 = 100;
    pub(crate) const SASL: i32 = 102;
    pub(crate) const GET_EPHEMERALS: i32 = 103;
    pub(crate) const ADD_WATCH: i32 = 106;
    pub(crate) const CLOSE: i32 = -11;
    /// What closes the list of a multi.
    pub(crate) const END: i32 = -1;
}

/// A request without its header.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) op: i32,
    pub(crate) body: Writer,
    /// Whether a majority of servers has agreed once it is answered.
    pub(crate) agreed: bool,
}

impl Request {
    fn read(op: i32, body: Writer) -> Self {
        Self { op, body, agreed: false }
    }

    fn write(op: i32, body: Writer) -> Self {
        Self { op, body, agreed: true }
    }
}

/// How long a node stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Persistent,
    /// Ends with the session.
    Ephemeral,
    /// The same, and its name gets a number.
    Sequential,
    /// Ends some time after its last child has.
    Container,
}

impl Kind {
    fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::Sequential => 3,
            Self::Container => 4,
        }
    }

    fn op(self) -> i32 {
        if self == Self::Container { op::CREATE_CONTAINER } else { op::CREATE }
    }
}

/// Who may do what with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Acl {
    /// Everybody may do everything, as with Curator and kazoo unless told otherwise.
    #[default]
    Open,
    /// Only whoever has logged in as we have.
    Creator,
}

fn created(path: &str, data: &[u8], kind: Kind, acl: Acl) -> Writer {
    const ALL: i32 = 31;
    let (scheme, id) = match acl {
        Acl::Open => ("world", "anyone"),
        Acl::Creator => ("auth", ""),
    };
    let body = Writer::default().text(path).buffer(data);
    body.int(1).int(ALL).text(scheme).text(id).int(kind.flags())
}

pub(crate) fn create(path: &str, data: &[u8], kind: Kind, acl: Acl) -> Request {
    Request::write(kind.op(), Writer::request().append(&created(path, data, kind, acl)))
}

pub(crate) fn delete(path: &str) -> Request {
    Request::write(op::DELETE, Writer::request().text(path).int(-1))
}

pub(crate) fn set_data(path: &str, data: &[u8], version: i32) -> Request {
    Request::write(op::SET_DATA, Writer::request().text(path).buffer(data).int(version))
}

pub(crate) fn get_data(path: &str, watch: bool) -> Request {
    Request::read(op::GET_DATA, Writer::request().text(path).bool(watch))
}

pub(crate) fn get_children(path: &str, watch: bool) -> Request {
    Request::read(op::GET_CHILDREN, Writer::request().text(path).bool(watch))
}

/// Has the server catch up with the leader before what follows.
pub(crate) fn sync(path: &str) -> Request {
    Request::read(op::SYNC, Writer::request().text(path))
}

pub(crate) fn get_ephemerals(prefix: &str) -> Request {
    Request::read(op::GET_EPHEMERALS, Writer::request().text(prefix))
}

/// Watches a node and all below it, again and again.
pub(crate) fn watch_all(path: &str) -> Request {
    const PERSISTENT_RECURSIVE: i32 = 1;
    Request::read(op::ADD_WATCH, Writer::request().text(path).int(PERSISTENT_RECURSIVE))
}

/// Changes nothing, but is agreed upon like everything that does: whatever was agreed upon before it
/// was sent is there to be read after its answer, and its session lived.
pub(crate) fn agree() -> Request {
    multi(&[Part::Check { path: "/", version: -1 }])
}

/// A part of a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    Check { path: &'a str, version: i32 },
    Create { path: &'a str, data: &'a [u8], kind: Kind, acl: Acl },
    Set { path: &'a str, data: &'a [u8], version: i32 },
    Delete { path: &'a str },
}

/// All of it or nothing.
pub(crate) fn multi(parts: &[Part<'_>]) -> Request {
    let header = |writer: Writer, op: i32| writer.int(op).bool(false).int(-1);
    let mut body = Writer::request();
    for part in parts {
        body = match *part {
            Part::Check { path, version } => header(body, op::CHECK).text(path).int(version),
            Part::Create { path, data, kind, acl } => {
                header(body, kind.op()).append(&created(path, data, kind, acl))
            }
            Part::Set { path, data, version } => {
                header(body, op::SET_DATA).text(path).buffer(data).int(version)
            }
            Part::Delete { path } => header(body, op::DELETE).text(path).int(-1),
        };
    }
    Request::write(op::MULTI, body.int(op::END).bool(true).int(-1))
}

/// Many readings in one go, which see the same state.
pub(crate) fn get_all(paths: &[String]) -> Request {
    let mut body = Writer::request();
    for path in paths {
        body = body.int(op::GET_DATA).bool(false).int(-1).text(path).bool(false);
    }
    Request::read(op::MULTI_READ, body.int(op::END).bool(true).int(-1))
}

/// What a node holds.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) data: Bytes,
    pub(crate) stat: Stat,
}

/// An answer, to be read as what was asked for.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: Code,
    pub(crate) body: Reader,
}

impl Reply {
    /// The answer, unless it is no.
    pub(crate) fn ok(self) -> Result<Reader> {
        if self.code == Code::OK { Ok(self.body) } else { Err(refused(self.code)) }
    }

    /// The answer, or `None` if there is no such node.
    pub(crate) fn found(self) -> Result<Option<Reader>> {
        if self.code == Code::NO_NODE { Ok(None) } else { self.ok().map(Some) }
    }

    pub(crate) fn created(self) -> Result<(String, Stat)> {
        let mut body = self.ok()?;
        Ok((body.text()?, body.stat()?))
    }

    pub(crate) fn node(self) -> Result<Option<Node>> {
        let Some(mut body) = self.found()? else { return Ok(None) };
        Ok(Some(Node { data: body.buffer()?, stat: body.stat()? }))
    }

    /// The children, or `None` if there is no such node.
    pub(crate) fn children(self) -> Result<Option<Vec<String>>> {
        let Some(mut body) = self.found()? else { return Ok(None) };
        body.texts().map(Some)
    }

    pub(crate) fn stat(self) -> Result<Stat> {
        self.ok()?.stat()
    }

    /// What of many was there.
    pub(crate) fn nodes(self) -> Result<Vec<Option<Node>>> {
        let mut body = self.ok()?;
        let mut nodes = Vec::new();
        loop {
            let (kind, done, _) = (body.int()?, body.bool()?, body.int()?);
            match kind {
                _ if done => return Ok(nodes),
                op::GET_DATA => nodes.push(Some(Node { data: body.buffer()?, stat: body.stat()? })),
                op::END => {
                    let code = Code(body.int()?);
                    if code != Code::NO_NODE {
                        return Err(refused(code));
                    }
                    nodes.push(None);
                }
                _ => return Err(unexpected()),
            }
        }
    }

    /// Whether a transaction was made: no if a part of it did not apply, which has this number.
    pub(crate) fn applied(self) -> Result<Result<(), (usize, Code)>> {
        let mut body = self.ok()?;
        for at in 0.. {
            let (kind, done, _) = (body.int()?, body.bool()?, body.int()?);
            if kind != op::END || done {
                return Ok(Ok(()));
            }
            // Parts before the one that failed are told as well, and so are those after it.
            match Code(body.int()?) {
                Code::OK | Code::NOT_TRIED => {}
                code if code.is_condition() => return Ok(Err((at, code))),
                code => return Err(refused(code)),
            }
        }
        Err(unexpected())
    }
}
