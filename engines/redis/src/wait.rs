use std::sync::Arc;
use std::time::Duration;

use palisade_core::{BootInstant, Claim, Clock, Grant, Result, SystemClock, Waited, look_again};

use crate::claims::{Look, Stand};
use crate::engine::Inner;
use crate::error::{closed, unexpected};
use crate::verbs::Said;

impl Inner {
    pub(crate) async fn wait(&self, claim: &Arc<Claim>) -> Result<Waited> {
        let mut look = self.claims.take_look(claim.id);
        let mut tries = 0;
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
                look = self.look(claim, tries).await?;
                tries += 1;
                continue;
            };
            let Some(told) = told.as_mut().as_pin_mut() else { continue };
            let own_end = self.claims.stand(claim.id).map(|(_, until)| until);
            tokio::select! {
                () = told => {}
                () = self.link.until_closed() => return Err(closed()),
                () = until_due(&next, own_end) => {}
                () = self.until_foreign_leaves(claim, &next, tries) => {}
            }
        }
    }

    /// Looks how a claim stands at the server. `None` if that is noted now, or must be looked at again.
    async fn look(&self, claim: &Arc<Claim>, tries: u32) -> Result<Option<Look>> {
        // Another connection may have asked for it: what is known of it here is what the server says.
        if !self.claims.asked(claim, SystemClock.now()) {
            // Who only looks sends no copy that could come in.
            self.claims.answered_again(claim.id);
        }
        match self.ask(claim, 'a').await {
            Ok(Said::Queued(..) | Said::Granted(_)) => Ok(self.claims.take_look(claim.id)),
            Ok(Said::Busy(_)) => Err(unexpected()),
            Ok(Said::Gone(reason)) => {
                self.claims.gone(claim.id, reason);
                Ok(None)
            }
            // The place in line outlives a connection, and a server that cannot decide for a while.
            Err(error) if error.is_transient() => {
                tokio::time::sleep(look_again(tries, rand::random())).await;
                self.link.until_up().await?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn until_foreign_leaves(&self, claim: &Claim, look: &Look, tries: u32) {
        if !look.foreign {
            return std::future::pending().await;
        }
        self.until_changed(&self.layout.lock(&claim.resource), tries).await;
    }
}

/// Completes when whoever is ahead could have expired, or the claim itself.
async fn until_due(look: &Look, own_end: Option<BootInstant>) {
    let own = own_end.map(|end| end + Duration::from_millis(1));
    match look.at.into_iter().chain(own).min() {
        // Not at once, whatever was said: a look costs a request.
        Some(at) => SystemClock.sleep_until(at.max(SystemClock.now() + Duration::from_millis(1))).await,
        None => std::future::pending().await,
    }
}
