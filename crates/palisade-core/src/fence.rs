use std::collections::BTreeMap;

use crate::{FencingToken, Source, Token, TokenKind};

/// What a register remembers of the tokens it has seen: one cell per slot.
///
/// A cell has two marks. A shared token is refused iff it lies below the exclusive mark, so that
/// two readers do not fence each other out; an exclusive one iff it lies below either. Equal
/// tokens pass: the same holder writes again. Opening raises the marks, not only writing, or a
/// late write of the old holder could land before the new one's first.
///
/// Slots do not fence each other: they are held at the same time. Who held the whole resource and
/// who held a slot of it never did, so their marks count for each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fence(BTreeMap<Option<u32>, Cell>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    source: Source,
    exclusive: u64,
    shared: u64,
    /// The greatest token that has written, for strict mode: one write per token.
    written: u64,
}

/// Why a fence turns a token away.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FenceRefusal {
    /// A later grant has been here.
    Stale {
        /// The token that counts now.
        current: Token,
    },
    /// Strict mode: this token, or a later one, has written already.
    Spent {
        /// The token that wrote.
        current: Token,
    },
    /// The fence follows another source; the two do not compare until an operator rebases it.
    OtherSource {
        /// The source it follows.
        current: Source,
    },
}

impl Fence {
    /// Whether `token` may pass; `strict` allows one write per token.
    ///
    /// # Errors
    /// The refusal, with what counts instead.
    pub fn check(&self, token: &FencingToken, strict: bool) -> Result<(), FenceRefusal> {
        let number = token.token.get();
        for (slot, cell) in
            self.0.iter().filter(|(slot, _)| **slot == token.slot || slot.is_none() != token.slot.is_none())
        {
            if cell.source != token.source {
                return Err(FenceRefusal::OtherSource { current: cell.source.clone() });
            }
            let mark = match token.kind {
                TokenKind::Shared if *slot == token.slot => cell.exclusive,
                TokenKind::Shared | TokenKind::Exclusive => cell.exclusive.max(cell.shared),
            };
            if let Some(current) = Token::new(mark).filter(|_| number < mark) {
                return Err(FenceRefusal::Stale { current });
            }
        }
        let written = self.0.get(&token.slot).map_or(0, |cell| cell.written);
        match Token::new(written) {
            Some(current) if strict && number <= written => Err(FenceRefusal::Spent { current }),
            _ => Ok(()),
        }
    }

    /// Raises the marks to `token`. Never lowers one.
    pub fn raise(&mut self, token: &FencingToken) {
        let cell = self.cell(token);
        let mark = match token.kind {
            TokenKind::Exclusive => &mut cell.exclusive,
            TokenKind::Shared => &mut cell.shared,
        };
        *mark = (*mark).max(token.token.get());
    }

    /// Remembers that `token` wrote.
    pub fn record_write(&mut self, token: &FencingToken) {
        self.raise(token);
        let cell = self.cell(token);
        cell.written = cell.written.max(token.token.get());
    }

    /// Starts anew from the token's source, and forgets all others: an operator's decision after a
    /// move from one engine to another.
    pub fn rebase(&mut self, token: &FencingToken) {
        self.0.retain(|slot, cell| *slot != token.slot && cell.source == token.source);
        self.raise(token);
    }

    /// The greatest token seen for `slot`.
    pub fn mark(&self, slot: Option<u32>) -> Option<Token> {
        self.0.get(&slot).and_then(|cell| Token::new(cell.exclusive.max(cell.shared)))
    }

    /// Whether no token was ever seen.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The cells for storage, each with its slot.
    pub fn to_cells(&self) -> impl Iterator<Item = (Option<u32>, &Source, [u64; 3])> {
        self.0.iter().map(|(slot, cell)| (*slot, &cell.source, [cell.exclusive, cell.shared, cell.written]))
    }

    /// Rebuilds a fence from stored cells.
    pub fn from_cells(cells: impl IntoIterator<Item = (Option<u32>, Source, [u64; 3])>) -> Self {
        Self(
            cells
                .into_iter()
                .map(|(slot, source, [exclusive, shared, written])| {
                    (slot, Cell { source, exclusive, shared, written })
                })
                .collect(),
        )
    }

    fn cell(&mut self, token: &FencingToken) -> &mut Cell {
        self.0.entry(token.slot).or_insert_with(|| Cell {
            source: token.source.clone(),
            exclusive: 0,
            shared: 0,
            written: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64, kind: TokenKind, slot: Option<u32>) -> FencingToken {
        FencingToken { token: Token::new(number).unwrap(), kind, slot, source: Source::new("a") }
    }

    #[test]
    fn readers_do_not_fence_each_other_but_writers_do() {
        let mut fence = Fence::default();
        fence.raise(&token(7, TokenKind::Shared, None));
        assert!(fence.check(&token(6, TokenKind::Shared, None), false).is_ok());
        assert!(matches!(
            fence.check(&token(6, TokenKind::Exclusive, None), false),
            Err(FenceRefusal::Stale { .. })
        ));
        fence.raise(&token(8, TokenKind::Exclusive, None));
        assert_eq!(
            fence.check(&token(7, TokenKind::Shared, None), false),
            Err(FenceRefusal::Stale { current: Token::new(8).unwrap() })
        );
        assert!(fence.check(&token(8, TokenKind::Exclusive, None), false).is_ok());
        // A downgraded writer keeps its token and goes on as a reader.
        assert!(fence.check(&token(8, TokenKind::Shared, None), false).is_ok());
    }

    #[test]
    fn slots_are_fenced_apart() {
        let mut fence = Fence::default();
        fence.raise(&token(9, TokenKind::Exclusive, Some(1)));
        assert!(fence.check(&token(5, TokenKind::Exclusive, Some(0)), false).is_ok());
        assert!(fence.check(&token(5, TokenKind::Exclusive, Some(1)), false).is_err());
        assert_eq!(fence.mark(Some(1)), Token::new(9));
    }

    #[test]
    fn a_slot_and_the_whole_fence_each_other() {
        let mut fence = Fence::default();
        fence.raise(&token(5, TokenKind::Exclusive, Some(0)));
        fence.raise(&token(6, TokenKind::Exclusive, Some(1)));
        fence.raise(&token(7, TokenKind::Exclusive, None));
        for slot in [0, 1, 2] {
            assert!(fence.check(&token(6, TokenKind::Exclusive, Some(slot)), false).is_err());
            assert!(fence.check(&token(8, TokenKind::Exclusive, Some(slot)), false).is_ok());
        }
        fence.raise(&token(9, TokenKind::Exclusive, Some(1)));
        assert!(fence.check(&token(8, TokenKind::Exclusive, Some(0)), false).is_ok());
        assert!(fence.check(&token(8, TokenKind::Exclusive, None), false).is_err());
        assert!(fence.check(&token(8, TokenKind::Shared, None), false).is_err());
    }

    #[test]
    fn strict_allows_one_write_per_token_even_after_opening() {
        let mut fence = Fence::default();
        let holder = token(3, TokenKind::Exclusive, None);
        fence.raise(&holder);
        assert!(fence.check(&holder, true).is_ok());
        fence.record_write(&holder);
        assert!(matches!(fence.check(&holder, true), Err(FenceRefusal::Spent { .. })));
        assert!(fence.check(&holder, false).is_ok());
    }

    #[test]
    fn sources_do_not_compare_until_rebased() {
        let mut fence = Fence::default();
        fence.raise(&token(1_800_000_000_000_000, TokenKind::Exclusive, None));
        let moved = FencingToken { source: Source::new("b"), ..token(4000, TokenKind::Exclusive, None) };
        assert!(matches!(fence.check(&moved, false), Err(FenceRefusal::OtherSource { .. })));
        fence.rebase(&moved);
        assert!(fence.check(&moved, false).is_ok());
        assert_eq!(fence.mark(None), Token::new(4000));
    }
}
