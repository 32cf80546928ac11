use std::fmt;

use palisade_core::ClaimId;
use rand::RngExt;

/// Where a client takes its chance from; simulations bring their own, so that a run can be
/// repeated exactly.
///
/// Ids must be unique among all clients of an engine for ever: two claims with one id are one.
pub trait Chance: Send + Sync + fmt::Debug + 'static {
    /// The id of a new claim.
    fn claim_id(&self) -> ClaimId;

    /// A number from 0 up to, but not including, 1: how far pauses are stretched, so that clients
    /// who collided do not collide again.
    fn part(&self) -> f64;
}

/// The chance of the process: random, as it should be.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    fn claim_id(&self) -> ClaimId {
        ClaimId::random()
    }

    fn part(&self) -> f64 {
        rand::rng().random_range(0.0..1.0)
    }
}
