use std::sync::Arc;
use std::time::Duration;

use palisade_core::{BootInstant, Claim, Clock, Grant, Result, SystemClock, Waited};

use crate::claims::{Look, Stand};
use crate::engine::Inner;
use crate::error::{closed, unexpected};
use crate::rows::How;
use crate::verbs::Said;

impl Inner {
    pub(crate) async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        let mut look = self.claims.take_look(claim.id);
        let mut failures = 0;
        loop {
            let turn = self.claims.turn(claim.id);
            let told = turn.as_ref().map(|turn| turn.notified());
            let mut told = std::pin::pin!(told);
            if let Some(told) = told.as_mut().as_pin_mut() {
                told.enable();
            }
            match self.claims.stand(claim.id) {
                Some((Stand::Held(held), valid_until)) => {
                    return Ok(Waited::Granted(Grant { token: held.token, slot: held.slot, valid_until }));
                }
                Some((Stand::Gone(reason), _)) => {
                    self.claims.forget(claim.id, reason.clone());
                    return Ok(Waited::Gone(reason));
                }
                Some(_) | None => {}
            }
            if self.link.is_closed() {
                return Err(closed());
            }
            let Some(next) = look.take() else {
                look = self.look(claim, &mut failures).await?;
                continue;
            };
            let Some(told) = told.as_mut().as_pin_mut() else { continue };
            let own_end = self.claims.stand(claim.id).map(|(_, until)| until);
            tokio::select! {
                () = told => {}
                () = self.link.until_closed() => return Err(closed()),
                () = until_due(&next, own_end) => {}
            }
        }
    }

    /// Looks how a claim stands at the server. `None` if that is noted now, or must be looked at again.
    async fn look(&self, claim: &Arc<Claim>, failures: &mut u32) -> Result<Option<Look>> {
        // Another connection may have asked for it: what is known of it here is what the server says.
        self.claims.looked_for(claim, SystemClock.now());
        match self.ask(claim, How::Known).await {
            Ok(Said::Queued(..) | Said::Granted(_)) => {
                *failures = 0;
                Ok(self.claims.take_look(claim.id))
            }
            Ok(Said::Busy(_)) => Err(unexpected()),
            Ok(Said::Gone(reason)) => {
                self.claims.gone(claim.id, reason);
                Ok(None)
            }
            // The place in line outlives a connection, and a server that cannot decide for a while.
            Err(error) if error.is_transient() => {
                tokio::time::sleep(pause(*failures)).await;
                *failures += 1;
                self.link.until_up().await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Before a look that failed is repeated.
fn pause(failures: u32) -> Duration {
    Duration::from_millis(10) * 2_u32.pow(failures.min(6))
}

/// Completes when somebody ahead could have expired, or the claim itself.
async fn until_due(look: &Look, own_end: Option<BootInstant>) {
    let own = own_end.map(|end| end + Duration::from_millis(1));
    match look.at.into_iter().chain(own).min() {
        // Not at once, whatever was said: a look costs a statement.
        Some(at) => SystemClock.sleep_until(at.max(SystemClock.now() + Duration::from_millis(1))).await,
        None => std::future::pending().await,
    }
}
