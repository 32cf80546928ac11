use palisade_core::{Error, Result};
use redis::Value;

use crate::error::{failed, unexpected};
use crate::record::Shown;

/// An answer of a script, taken apart from front to back.
pub(crate) struct Reply(std::vec::IntoIter<Value>);

impl Reply {
    pub(crate) fn new(value: Value) -> Result<Self> {
        match value {
            Value::Array(values) => Ok(Self(values.into_iter())),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn next(&mut self) -> Result<Value> {
        self.0.next().ok_or_else(unexpected)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        text(self.next()?)
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>> {
        bytes(self.next()?)
    }

    pub(crate) fn number(&mut self) -> Result<i64> {
        number(&self.next()?)
    }

    /// A number that may be too large for a script to reckon with, and is text therefore.
    pub(crate) fn parsed<T: std::str::FromStr>(&mut self) -> Result<T> {
        self.text()?.parse().map_err(|_| unexpected())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.as_slice().is_empty()
    }
}

impl Iterator for Reply {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        self.0.next()
    }
}

/// What a batch says of each of its `count` claims: nothing if all is well, else a note.
pub(crate) fn each(value: Value, count: usize) -> Result<Vec<Option<String>>> {
    let answers: Vec<Option<String>> = Reply::new(value)?
        .map(|answer| match answer {
            Value::Int(1) => Ok(None),
            other => text(other).map(Some),
        })
        .collect::<Result<_>>()?;
    if answers.len() == count { Ok(answers) } else { Err(unexpected()) }
}

/// Why the server failed at one claim of many: `e` and what it said.
pub(crate) fn failure(value: Value) -> Error {
    let mut reply = match Reply::new(value) {
        Ok(reply) => reply,
        Err(error) => return error,
    };
    match (reply.text().as_deref(), reply.text()) {
        (Ok("e"), Ok(said)) => said_no(&said),
        _ => unexpected(),
    }
}

/// What a server said instead of doing what was asked.
pub(crate) fn said_no(said: &str) -> Error {
    let line = format!("-{}\r\n", said.replace(['\r', '\n'], " "));
    match redis::parse_redis_value(line.as_bytes()).and_then(Value::extract_error) {
        Err(error) => failed(error),
        Ok(_) => unexpected(),
    }
}

/// The claims of a resource.
pub(crate) fn shown(value: Value) -> Result<Vec<Shown>> {
    Reply::new(value)?
        .map(|one| {
            let mut one = Reply::new(one)?;
            Ok::<_, Error>(Shown {
                id: one.text()?,
                stored: one.bytes()?,
                left_millis: one.number()?,
                holds: one.number()? == 1,
                foreign: if one.is_over() { None } else { Some(one.bytes()?) },
            })
        })
        .collect()
}

pub(crate) fn text(value: Value) -> Result<String> {
    String::from_utf8(bytes(value)?).map_err(|_| unexpected())
}

pub(crate) fn bytes(value: Value) -> Result<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        Value::SimpleString(text) => Ok(text.into_bytes()),
        Value::Okay => Ok(b"OK".to_vec()),
        Value::Int(number) => Ok(number.to_string().into_bytes()),
        _ => Err(unexpected()),
    }
}

fn number(value: &Value) -> Result<i64> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::BulkString(bytes) => {
            std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or_else(unexpected)
        }
        _ => Err(unexpected()),
    }
}
