use palisade_core::Result;
use redis::{FromRedisValue, RedisResult};

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
    pub(crate) async fn find(line: &mut Line, run: &str) -> Option<Self> {
        let Line::Plain(_) = line else { return None };
        let info = line.send(redis::cmd("CLIENT").arg("INFO")).await.ok()?;
        let here = Self::parse(&String::from_redis_value(info).ok()?, run)?;
        // Kills nobody: it is tried out whether we may.
        here.kill(line).await.is_ok().then_some(here)
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
        match self.kill(line).await {
            Err(error) if error.code().is_none() => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// By number *and* address, so that it is nobody else.
    async fn kill(&self, line: &mut Line) -> RedisResult<()> {
        let mut command = redis::cmd("CLIENT");
        command.arg("KILL").arg("ID").arg(&self.id).arg("ADDR").arg(&self.address).arg("SKIPME").arg("yes");
        line.send(&command).await.map(drop)
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
