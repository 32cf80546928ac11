use std::time::Duration;

use palisade_core::{ClaimId, Source, Token};
use sha2::{Digest, Sha256};

use crate::rows::micros;

/// How rows of Palisade's begin in `locked_by`.
const PALISADE: &str = "palisade:";

/// What claims of one schema are called in `locked_by`: `palisade:`, a mark of the schema, the token and the claim's id.
///
/// The token has a fixed width, so that it compares as a text. Without it, a statement that comes late, for a claim that
/// ended, could not tell the row of the next holder from one that it may take.
#[derive(Debug)]
pub(crate) struct Signature {
    ours: String,
}

impl Signature {
    /// How many digits a token has: as many as the greatest one.
    pub(crate) const TOKEN: usize = 19;
    /// How many digits a claim's id has.
    pub(crate) const CLAIM: usize = 32;

    /// Claims are those whose tokens `source` counts.
    pub(crate) fn new(source: &Source) -> Self {
        let digest = Sha256::digest(source.as_str().as_bytes());
        let mut mark = [0; 8];
        mark.copy_from_slice(&digest[..8]);
        Self { ours: format!("{PALISADE}{:016x}:", u64::from_be_bytes(mark)) }
    }

    /// How rows of this schema's claims begin.
    pub(crate) fn ours(&self) -> &str {
        &self.ours
    }

    /// At which character a token begins, counted from 1.
    pub(crate) fn token_at(&self) -> usize {
        self.ours.len() + 1
    }

    /// How many characters it takes.
    pub(crate) fn length(&self) -> usize {
        self.ours.len() + Self::TOKEN + 1 + Self::CLAIM
    }

    /// What a claim is called: unique, so that asking twice takes its row once.
    pub(crate) fn of(&self, claim: ClaimId, token: Token) -> String {
        format!("{}{:0width$}:{claim}", self.ours, token.get(), width = Self::TOKEN)
    }

    /// Whether a row is a claim's, whatever token that had when it was taken.
    pub(crate) fn is_of(&self, by: &str, claim: ClaimId) -> bool {
        by.strip_prefix(&self.ours).is_some_and(|rest| rest.ends_with(&claim.to_string()))
    }

    /// The token of a row of this schema's; 0 if an earlier version wrote it, which named none.
    fn token(&self, by: &str) -> Option<u64> {
        let (token, _) = by.strip_prefix(&self.ours)?.split_once(':').unwrap_or(("0", ""));
        token.parse().ok()
    }

    /// Whether a row is one that a later holder of this schema has: whoever asks with this token holds no more.
    pub(crate) fn is_later(&self, held: &Held, than: Token) -> bool {
        held.whose == Whose::Ours && self.token(&held.by).is_some_and(|token| token > than.get())
    }

    /// Reads who has the row of a name that was asked for. Times are microseconds; since when it is so counts from anywhere.
    pub(crate) fn held(&self, name: &str, row: &Row<'_>) -> Held {
        let mut hash = Sha256::new();
        for part in [row.name.as_bytes(), row.by.as_bytes(), &row.since.to_be_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        let whose = if !row.by.starts_with(PALISADE) {
            Whose::Strangers
        } else if !row.by.starts_with(&self.ours) {
            Whose::OtherSchemas
        } else if row.name == name {
            Whose::Ours
        } else {
            Whose::OtherNames(row.name.to_owned())
        };
        Held {
            name: name.to_owned(),
            by: row.by.to_owned(),
            id: ClaimId::from_bytes(id),
            age: micros(Some(row.age)),
            remains: micros(Some(row.remains)),
            whose,
        }
    }
}

/// A row as a server has it.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    pub(crate) by: &'a str,
    pub(crate) remains: i64,
    pub(crate) age: i64,
    pub(crate) since: i64,
}

/// Who has a row, by the server's clock.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// As it was asked for.
    pub(crate) name: String,
    pub(crate) by: String,
    /// Stands for this hold, where an id is needed.
    pub(crate) id: ClaimId,
    pub(crate) age: Duration,
    pub(crate) remains: Duration,
    pub(crate) whose: Whose,
}

/// What is known of who has a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A claim of this schema.
    Ours,
    /// A claim of this schema on another name, which the table takes for the same.
    OtherNames(String),
    OtherSchemas,
    /// Not Palisade.
    Strangers,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row<'a>(name: &'a str, by: &'a str) -> Row<'a> {
        Row { name, by, remains: 5, age: 1, since: 7 }
    }

    #[test]
    fn a_row_tells_whose_it_is_and_which_of_two_is_later() {
        let (one, other) = (Signature::new(&Source::new("one")), Signature::new(&Source::new("other")));
        let (claim, token) = (ClaimId::random(), |number| Token::new(number).unwrap());
        let by = one.of(claim, token(9));
        assert_eq!(by.len(), one.length());
        assert!(by.len() <= 255 && one.of(claim, token(10)) > by, "it does not compare as a text");
        assert_eq!(one.of(claim, token(Token::MAX)).len(), one.length());
        assert!(one.is_of(&by, claim) && !one.is_of(&by, ClaimId::random()) && !other.is_of(&by, claim));
        let held = one.held("orders", &row("orders", &by));
        assert!(one.is_later(&held, token(8)) && !one.is_later(&held, token(9)));
        assert_eq!(other.held("orders", &row("orders", &by)).whose, Whose::OtherSchemas);
        let folded = one.held("orders", &row("Orders", &by));
        assert_eq!(folded.whose, Whose::OtherNames("Orders".to_owned()));
        assert!(!one.is_later(&folded, token(8)), "tokens of two names do not compare");
        assert_eq!(one.held("orders", &row("orders", "a-host")).whose, Whose::Strangers);
    }

    #[test]
    fn rows_of_an_earlier_version_are_older_than_any() {
        let (one, claim) = (Signature::new(&Source::new("one")), ClaimId::random());
        let by = format!("{}{claim}", one.ours());
        assert!(one.is_of(&by, claim));
        let held = one.held("orders", &row("orders", &by));
        assert!(held.whose == Whose::Ours && !one.is_later(&held, Token::new(1).unwrap()));
    }
}
