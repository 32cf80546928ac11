use std::sync::Arc;

use palisade_core::{Claim, Error, ErrorKind, Result, Withdrawn};

use super::Client;

/// A claim that may exist on the engine and must not be forgotten.
///
/// Made before the first await that could create the claim, so that a future dropped at any
/// point leaves nothing behind: dropping this hands the claim to the release queue.
#[derive(Debug)]
pub(crate) struct Pending {
    client: Client,
    claim: Arc<Claim>,
    armed: bool,
}

impl Pending {
    pub(crate) fn new(client: Client, claim: Arc<Claim>) -> Self {
        Self { client, claim, armed: true }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// Nothing was left on the engine.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
        self.client.keeper().forget(self.claim.id);
    }

    /// Withdraws at once. If that fails, or is cancelled, the release queue goes on with it.
    pub(crate) async fn withdraw(mut self) -> Result<Withdrawn> {
        self.client.keeper().forget(self.claim.id);
        let answers = self.client.engine().withdraw(std::slice::from_ref(&self.claim)).await?;
        self.armed = false;
        answers
            .first()
            .copied()
            .ok_or_else(|| Error::new(ErrorKind::Internal, "an engine gave no answer to a withdrawal"))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.armed {
            self.client.keeper().release(&self.claim);
        }
    }
}
