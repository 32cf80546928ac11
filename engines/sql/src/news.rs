use palisade_core::{ClaimId, GoneReason, Token};

use crate::claims::Held;
use crate::engine::Inner;

impl Inner {
    /// A message of one of our functions: `G ID TOKEN SLOT`, `X ID REASON`, or `H`. Called by the connection's own
    /// task, so it never waits.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "PostgreSQL alone"))]
    pub(crate) fn told(&self, message: &str) {
        if message == "H" {
            return self.heard.notify_waiters();
        }
        let mut parts = message.splitn(3, ' ');
        let (Some(kind), Some(Ok(claim)), rest) =
            (parts.next(), parts.next().map(str::parse::<ClaimId>), parts.next().unwrap_or_default())
        else {
            return;
        };
        match kind {
            "G" => {
                let (token, slot) = rest.split_once(' ').unwrap_or((rest, "-1"));
                self.came_in(claim, token.parse().ok(), slot.parse().ok());
            }
            "X" => self.is_gone(claim, GoneReason::Evicted { reason: rest.to_owned() }),
            _ => {}
        }
    }

    /// Notes that a claim was let in.
    pub(crate) fn came_in(&self, claim: ClaimId, token: Option<i64>, slot: Option<i32>) {
        if let Some(token) = token.and_then(|token| token.try_into().ok()).and_then(Token::new) {
            self.claims.holds(claim, Held { token, slot: slot.and_then(|slot| slot.try_into().ok()) });
        }
    }
}
