use palisade_core::{ClaimId, GoneReason, Token};
use redis::{PushInfo, PushKind, Value};

use crate::claims::Held;
use crate::engine::Inner;
use crate::reply;

impl Inner {
    /// Takes in what the server says unasked. Called by the connection's own task, so it never waits.
    pub(crate) fn hear(&self, connection: u64, info: PushInfo) {
        match info.kind {
            PushKind::Disconnection => self.link.broken(connection, "the connection was lost"),
            PushKind::Message => {
                if let Some(Value::BulkString(message)) = info.data.get(1)
                    && let Ok(message) = std::str::from_utf8(message)
                {
                    self.told(message);
                }
            }
            PushKind::Invalidate => match info.data.into_iter().next() {
                Some(Value::Array(keys)) => {
                    for key in keys {
                        if let Ok(key) = reply::bytes(key) {
                            self.foreign.changed(&key);
                        }
                    }
                }
                // Everything was flushed.
                _ => self.foreign.wake_all(),
            },
            _ => {}
        }
    }

    /// A message of one of our scripts: `G ID TOKEN SLOT`, or `X ID REASON`.
    fn told(&self, message: &str) {
        let mut parts = message.splitn(3, ' ');
        let (Some(kind), Some(Ok(claim)), Some(rest)) =
            (parts.next(), parts.next().map(str::parse::<ClaimId>), parts.next())
        else {
            return;
        };
        match kind {
            "G" => {
                let (token, slot) = rest.split_once(' ').unwrap_or((rest, "-"));
                if let Some(token) = token.parse().ok().and_then(Token::new) {
                    self.claims.holds(claim, Held { token, slot: slot.parse().ok() });
                }
            }
            "X" => self.is_gone(claim, GoneReason::Evicted { reason: rest.to_owned() }),
            _ => {}
        }
    }
}
