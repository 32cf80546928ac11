//! As much of Redis' protocol as it takes to look after a server.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::BoxFuture;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::bounded::bounded;

/// How long a server that is well may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A text, or a number in digits.
    Text(String),
    /// Nothing.
    Nil,
    /// Several answers.
    List(Vec<Reply>),
}

impl Reply {
    /// The text; empty for anything else.
    pub fn text(&self) -> &str {
        if let Self::Text(text) = self { text } else { "" }
    }

    /// The parts of a list; none for anything else.
    pub fn list(&self) -> &[Self] {
        if let Self::List(list) = self { list } else { &[] }
    }

    /// The value of a line `name:value`, as in what `INFO` answers.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.text().lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| *found == name).map(|(_, value)| value.trim_end())
    }

    /// Whether a list of names, each followed by its value, has all these.
    pub(super) fn has(&self, wanted: &[(&str, &str)]) -> bool {
        let is = |pair: &[Self], (name, value): (&str, &str)| matches!(pair, [a, b] if a.text() == name && b.text() == value);
        wanted.iter().all(|wanted| self.list().chunks(2).any(|pair| is(pair, *wanted)))
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Nil => f.write_str("nothing"),
            Self::List(list) => {
                let parts: Vec<String> = list.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", parts.join(", "))
            }
        }
    }
}

/// Asks a server one thing, over a connection of its own. `login` is a user and a password.
///
/// # Errors
/// The server cannot be reached, answers with an error, or not in time.
pub(super) async fn ask(
    address: SocketAddr,
    login: Option<&(String, String)>,
    command: &[&str],
) -> Result<Reply> {
    let what = format!("{} at {address}", command.first().unwrap_or(&"nothing"));
    let asking = async {
        let mut stream = BufReader::new(TcpStream::connect(address).await?);
        if let Some((user, password)) = login {
            call(&mut stream, &["AUTH", user, password]).await.context("the login failed")?;
        }
        call(&mut stream, command).await
    };
    bounded(PATIENCE, &what, asking).await?.with_context(|| what.clone())
}

async fn call(stream: &mut BufReader<TcpStream>, command: &[&str]) -> Result<Reply> {
    let mut request = format!("*{}\r\n", command.len());
    for part in command {
        let _ = write!(request, "${}\r\n{part}\r\n", part.len());
    }
    stream.write_all(request.as_bytes()).await?;
    read(stream).await
}

fn read<S: AsyncBufRead + Unpin + Send>(stream: &mut S) -> BoxFuture<'_, Result<Reply>> {
    Box::pin(async move {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let line = line.strip_suffix("\r\n").context("the server hung up")?;
        let rest = line.get(1..).unwrap_or_default();
        match line.as_bytes().first() {
            Some(b'+' | b':') => Ok(Reply::Text(rest.to_owned())),
            Some(b'-') => bail!("the server answered {rest:?}"),
            Some(b'$' | b'*') if rest == "-1" => Ok(Reply::Nil),
            Some(b'$') => {
                let mut bytes = vec![0; rest.parse::<usize>()? + 2];
                stream.read_exact(&mut bytes).await?;
                ensure!(bytes.ends_with(b"\r\n"), "the server's answer has no end");
                bytes.truncate(bytes.len() - 2);
                Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
            }
            Some(b'*') => {
                let mut list = Vec::new();
                for _ in 0..rest.parse::<usize>()? {
                    list.push(read(stream).await?);
                }
                Ok(Reply::List(list))
            }
            _ => bail!("the server answered {line:?}, which is no answer"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parsed(text: &str) -> Result<Reply> {
        read(&mut text.as_bytes()).await
    }

    #[tokio::test]
    async fn answers_are_read() {
        assert_eq!(parsed("+PONG\r\n").await.unwrap().text(), "PONG");
        assert_eq!(parsed(":12\r\n").await.unwrap().text(), "12");
        assert_eq!(parsed("$-1\r\n").await.unwrap(), Reply::Nil);
        let list = parsed("*2\r\n$3\r\na\r\n\r\n*0\r\n").await.unwrap();
        assert_eq!(list.list(), [Reply::Text("a\r\n".to_owned()), Reply::List(Vec::new())]);
        assert!(parsed("-ERR no\r\n").await.unwrap_err().to_string().contains("ERR no"));
        for bad in ["", "+PONG", "$3\r\nabc", "?\r\n", "$x\r\n"] {
            assert!(parsed(bad).await.is_err(), "{bad:?}");
        }
    }

    #[test]
    fn fields_are_found() {
        let info = Reply::Text("# Server\r\nprocess_id:12\r\nrole:master\r\n".to_owned());
        assert_eq!((info.field("process_id"), info.field("role")), (Some("12"), Some("master")));
        assert_eq!(info.field("process"), None);
    }
}
