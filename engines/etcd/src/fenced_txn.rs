use palisade_core::{Error, ErrorKind, FencingToken, Result, TokenKind};

/// What a caller adds to an etcd transaction of their own, over any client, so that only the latest holder's takes
/// effect: two comparisons and a put of one key, the fence.
///
/// The fence holds the source and the greatest token that has been here. A holder *opens* it first: from then on no older
/// one's transaction passes. Tokens of another source do not compare, and do not pass either.
///
/// ```
/// use palisade_core::{FencingToken, Source, Token, TokenKind};
/// use palisade_etcd::FencedTxn;
/// let token = FencingToken {
///     token: Token::new(42).unwrap(),
///     kind: TokenKind::Exclusive,
///     slot: None,
///     source: Source::new("etcd-a1"),
/// };
/// let fenced = FencedTxn::new("orders-fence", &token)?;
/// // If: value(key) > above and value(key) < below; then: put key mark, and whatever is to be done.
/// assert_eq!(fenced.mark(), b"etcd-a1 00000000000000000042");
/// assert!(fenced.above() < fenced.mark() && fenced.mark() < fenced.below());
/// # Ok::<(), palisade_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedTxn {
    key: Vec<u8>,
    above: Vec<u8>,
    below: Vec<u8>,
    mark: Vec<u8>,
}

impl FencedTxn {
    /// Fences with `token`, at a key of the caller's choice that nothing else writes. Slots have keys of their own, beside it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a shared token: readers write nothing.
    pub fn new(key: impl Into<Vec<u8>>, token: &FencingToken) -> Result<Self> {
        if token.kind == TokenKind::Shared {
            return Err(Error::new(
                ErrorKind::Invalid,
                "a shared token fences no writes: hold the resource alone",
            ));
        }
        let mut key = key.into();
        if let Some(slot) = token.slot {
            key.extend(format!("/{slot}").bytes());
        }
        let (source, number) = (token.source.as_str(), token.token.get());
        // As wide as the greatest token, so that text compares as numbers do.
        let at = |number: u64| format!("{source} {number:020}").into_bytes();
        Ok(Self { key, above: at(0), below: at(number + 1), mark: at(number) })
    }

    /// The fence's key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value must be greater than this: it is of the same source.
    pub fn above(&self) -> &[u8] {
        &self.above
    }

    /// The value must be less than this: no later holder was here.
    pub fn below(&self) -> &[u8] {
        &self.below
    }

    /// What the transaction puts there. To open a fence that is not there yet: put it if the create revision is 0.
    pub fn mark(&self) -> &[u8] {
        &self.mark
    }
}

#[cfg(test)]
mod tests {
    use palisade_core::{Source, Token};

    use super::*;

    fn token(number: u64, source: &str) -> FencingToken {
        let token = Token::new(number).unwrap();
        FencingToken { token, kind: TokenKind::Exclusive, slot: None, source: Source::new(source) }
    }

    fn passes(new: &FencingToken, old: &FencingToken) -> bool {
        let (new, old) = (FencedTxn::new("k", new).unwrap(), FencedTxn::new("k", old).unwrap());
        old.mark() > new.above() && old.mark() < new.below()
    }

    #[test]
    fn later_and_equal_tokens_pass_older_and_strange_ones_do_not() {
        for (new, old, expected) in [(5, 5, true), (10, 9, true), (9, 10, false), (Token::MAX, 1, true)] {
            assert_eq!(passes(&token(new, "a"), &token(old, "a")), expected, "{new} after {old}");
        }
        assert!(!passes(&token(5, "a"), &token(4, "b")) && !passes(&token(5, "b"), &token(4, "a")));
        assert!(!passes(&token(5, "a"), &token(4, "a b")) && !passes(&token(5, "a b"), &token(4, "a")));
    }

    #[test]
    fn slots_are_fenced_apart_and_readers_not_at_all() {
        let slot = FencingToken { slot: Some(3), ..token(5, "a") };
        assert_eq!(FencedTxn::new("k", &slot).unwrap().key(), b"k/3");
        let shared = FencingToken { kind: TokenKind::Shared, ..token(5, "a") };
        assert!(FencedTxn::new("k", &shared).is_err());
    }
}
