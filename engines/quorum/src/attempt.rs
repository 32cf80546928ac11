//! The ids under which one claim of the quorum stands on its nodes.
//!
//! A claim that gave a vote back comes again under another id, because a node buries the old one:
//! a withdrawal wins over everything that arrives later. The ids of one claim differ in six bits
//! only, those that say *random* in every UUID of that kind. So whoever sees one knows the claim
//! it belongs to, also another client that inspects or evicts.

use palisade_core::ClaimId;

/// How many ids a claim has on each node.
pub(crate) const ATTEMPTS: u8 = 64;

/// The six bits of a random UUID: version 4, variant 2.
const FIRST: u8 = 4 << 2 | 2;

/// What all ids of one claim have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Family([u8; 16]);

pub(crate) fn family(id: ClaimId) -> Family {
    Family(*with_bits(id, 0).as_bytes())
}

/// The id of the `attempt`th try of the claim `base`; the first one is `base` itself.
pub(crate) fn nth(base: ClaimId, attempt: u8) -> ClaimId {
    with_bits(base, (bits(base) + attempt) % ATTEMPTS)
}

/// The claim to which an id on a node belongs, as its client made it.
pub(crate) fn base_of(id: ClaimId) -> ClaimId {
    with_bits(id, FIRST)
}

fn bits(id: ClaimId) -> u8 {
    let bytes = id.as_bytes();
    bytes[6] >> 4 << 2 | bytes[8] >> 6
}

fn with_bits(id: ClaimId, bits: u8) -> ClaimId {
    let mut bytes = *id.as_bytes();
    bytes[6] = bytes[6] & 0x0f | bits >> 2 << 4;
    bytes[8] = bytes[8] & 0x3f | bits << 6;
    ClaimId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn all_ids_of_a_claim_differ_and_lead_back_to_it() {
        let base = ClaimId::random();
        assert_eq!(nth(base, 0), base);
        let all: HashSet<_> = (0..ATTEMPTS).map(|attempt| nth(base, attempt)).collect();
        assert_eq!(all.len(), usize::from(ATTEMPTS));
        assert!(all.iter().all(|id| base_of(*id) == base && family(*id) == family(base)));
        assert_ne!(family(ClaimId::random()), family(base));
    }
}
