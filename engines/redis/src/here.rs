use palisade_core::Result;
use redis::{FromRedisValue, RedisResult, Value};

use crate::dial::Line;
use crate::error::failed;

/// A connection as its server knows it, so that the next one can end it: what was sent over a connection that broke may
/// otherwise arrive at any later time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Here {
    /// The run of the server: the next one numbers its connections anew.
    run: String,
    id: String,
    address: String,
}

impl Here {
    /// Asks who we are. `None` where another connection could not end this one: for want of rights, or because there is
    /// something between us and the server, or more servers than one.
    ///
    /// # Errors
    /// If there is no answer: then nothing is known.
    pub(crate) async fn find(line: &mut Line, run: &str) -> Result<Option<Self>> {
        let Line::Plain(_) = line else { return Ok(None) };
        let Some(info) = said(line.send(redis::cmd("CLIENT").arg("INFO")).await)? else { return Ok(None) };
        let info = String::from_redis_value(info).unwrap_or_default();
        let Some(here) = Self::parse(&info, run) else { return Ok(None) };
        // Kills nobody: it is tried out whether we may. Who is another one by the next command is behind a pool.
        Ok((said(here.kill(line).await)? == Some(Value::Int(0))).then_some(here))
    }

    fn parse(info: &str, run: &str) -> Option<Self> {
        let of = |name: &str| {
            let mut fields = info.split_ascii_whitespace().filter_map(|field| field.split_once('='));
            fields.find_map(|(known, value)| (known == name && !value.is_empty()).then(|| value.to_owned()))
        };
        Some(Self { run: run.to_owned(), id: of("id")?, address: of("addr")? })
    }

    /// Ends this connection by way of another one to the same run of the server.
    ///
    /// # Errors
    /// If there is no answer. A server that refuses has changed our rights since: then what is on its way may arrive.
    pub(crate) async fn end(&self, line: &mut Line, now: &Self) -> Result<()> {
        if self.run != now.run {
            return Ok(());
        }
        said(self.kill(line).await).map(drop)
    }

    /// By number *and* address, so that it is nobody else.
    async fn kill(&self, line: &mut Line) -> RedisResult<Value> {
        let mut command = redis::cmd("CLIENT");
        command.arg("KILL").arg("ID").arg(&self.id).arg("ADDR").arg(&self.address).arg("SKIPME").arg("yes");
        line.send(&command).await
    }
}

/// What a server said; `None` if it refused. An error if it said nothing.
fn said(answer: RedisResult<Value>) -> Result<Option<Value>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code().is_some() => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_named_by_number_and_address() {
        let info = "id=7 addr=127.0.0.1:6000 laddr=127.0.0.1:6379 fd=8 name= age=0\n";
        let here = Here { run: "r".into(), id: "7".into(), address: "127.0.0.1:6000".into() };
        assert_eq!(Here::parse(info, "r"), Some(here));
        assert_eq!(Here::parse("id=7", "r"), None);
    }
}
