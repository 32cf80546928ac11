use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use palisade_core::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::config::{Auth, Login, ZooKeeperConfig};
use crate::dial::Wire;
use crate::error::{Code, over, refused};
use crate::jute::{Reader, Writer};
use crate::proto::op;
use crate::sasl;

/// What makes a session this one.
#[derive(Clone, Default)]
pub(crate) struct Identity {
    pub(crate) id: i64,
    password: Bytes,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}", self.id)
    }
}

/// Begins a session over a stream, or goes on with one, and logs in.
///
/// # Errors
/// [`Code::SESSION_EXPIRED`] is the source if the session is no more.
pub(crate) async fn greet(
    config: &ZooKeeperConfig,
    server: &str,
    wire: &mut Pin<Box<dyn Wire>>,
    session: &Identity,
    timeout: Duration,
    zxid: i64,
) -> Result<(Identity, Duration)> {
    const PASSWORD: usize = 16;
    let nobody = [0; PASSWORD];
    let password = if session.id == 0 { &nobody[..] } else { &session.password };
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // The last word is that a server that answers reads only will not do.
    let hello =
        Writer::default().int(0).long(zxid).int(timeout).long(session.id).buffer(password).bool(false);
    say(wire, server, hello.framed()).await?;
    let mut body = hear(wire, server).await?;
    let stranger = |_| strange(server);
    let (_version, granted) = (body.int().map_err(stranger)?, body.int().map_err(stranger)?);
    let (id, password) = (body.long().map_err(stranger)?, body.buffer().map_err(stranger)?);
    if id == 0 || granted <= 0 {
        return Err(over());
    }
    if password.len() != PASSWORD {
        return Err(strange(server));
    }
    if let Some(login) = &config.login {
        match config.auth {
            Auth::Digest => digest(wire, server, login).await?,
            Auth::Sasl => by_sasl(wire, server, login).await?,
        }
    }
    Ok((Identity { id, password }, Duration::from_millis(granted.unsigned_abs().into())))
}

async fn digest(wire: &mut Pin<Box<dyn Wire>>, server: &str, login: &Login) -> Result<()> {
    const AUTH: i32 = -4;
    let proof = format!("{}:{}", login.user, login.password);
    let body = Writer::default().int(AUTH).int(op::AUTH).int(0).text("digest").text(&proof);
    say(wire, server, body.framed()).await?;
    answered(wire, server).await.map(drop)
}

async fn by_sasl(wire: &mut Pin<Box<dyn Wire>>, server: &str, login: &Login) -> Result<()> {
    let mut token = Vec::new();
    // The server challenges, we prove, it proves.
    for xid in 0..3 {
        say(wire, server, Writer::default().int(xid).int(op::SASL).buffer(&token).framed()).await?;
        let mut body = answered(wire, server).await?;
        let challenge = body.buffer().map_err(|_| strange(server))?;
        match sasl::respond(login, &challenge) {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
    Err(refused(Code::AUTH_FAILED))
}

async fn answered(wire: &mut Pin<Box<dyn Wire>>, server: &str) -> Result<Reader> {
    // A server that refuses a login says so, or just hangs up.
    let hung_up = |error: Error| if error.is_transient() { refused(Code::AUTH_FAILED) } else { error };
    let mut body = hear(wire, server).await.map_err(hung_up)?;
    let stranger = |_| strange(server);
    let (_xid, _zxid) = (body.int().map_err(stranger)?, body.long().map_err(stranger)?);
    match Code(body.int().map_err(stranger)?) {
        Code::OK => Ok(body),
        code => Err(refused(code)),
    }
}

async fn say(wire: &mut Pin<Box<dyn Wire>>, server: &str, frame: Bytes) -> Result<()> {
    let sent = async {
        wire.write_all(&frame).await?;
        wire.flush().await
    };
    sent.await.map_err(|error| hung_up(server).because(error))
}

async fn hear(wire: &mut Pin<Box<dyn Wire>>, server: &str) -> Result<Reader> {
    // An answer to a greeting is short; other protocols' first letters would be a great length.
    const LONGEST: usize = 64 << 10;
    let mut length = [0; 4];
    wire.read_exact(&mut length).await.map_err(|error| hung_up(server).because(error))?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST {
        return Err(strange(server));
    }
    let mut frame = BytesMut::zeroed(length);
    wire.read_exact(&mut frame).await.map_err(|error| hung_up(server).because(error))?;
    Ok(Reader(frame.freeze()))
}

fn hung_up(server: &str) -> Error {
    let message = format!(
        "{server} ended the connection instead of answering; is it ZooKeeper (zks: for its encrypted port), and has it a leader?"
    );
    Error::new(ErrorKind::Unavailable, message)
}

fn strange(server: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!("{server} does not answer as ZooKeeper does; is it another server?"),
    )
}
