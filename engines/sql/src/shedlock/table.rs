//! ShedLock's table, whichever server it is on.

use palisade_core::{BootInstant, Claim, ClaimId, Error, ErrorKind, Name, Result, Token};

use super::signature::{Held, Signature};
#[cfg(feature = "mysql")]
use crate::mysql;
#[cfg(feature = "postgres")]
use crate::postgres;
use crate::server::Line;

/// A table that was found fit. What the statements do is said in each dialect's `shedlock.rs`.
#[derive(Debug)]
pub(crate) struct Table {
    /// As it was named.
    pub(crate) called: String,
    pub(crate) signature: Signature,
    /// How many characters a name may have.
    pub(crate) longest: Option<usize>,
    pub(crate) statements: Statements,
}

/// The statements about it.
#[derive(Debug)]
pub(crate) enum Statements {
    #[cfg(feature = "postgres")]
    Postgres(postgres::ShedlockStatements),
    #[cfg(feature = "mysql")]
    MySql(mysql::ShedlockStatements),
}

/// What came of asking for a row.
#[derive(Debug)]
pub(crate) enum Taken {
    /// It is the claim's. When that was asked for.
    Ours(BootInstant),
    /// Somebody else's, for so long if that was seen.
    Others(Option<Held>),
    /// The claim itself does not hold any more.
    NotHeld,
}

/// A hold that is to end: of a name, by whoever is beside it: all of `locked_by`, or the id of a claim.
pub(crate) type Ending<'a> = (&'a str, String);

/// Has whichever dialect it is do something over its connection.
macro_rules! each {
    ($self:expr, $line:expr, |$statements:ident, $own:ident| $call:expr) => {
        match &$self.statements {
            #[cfg(feature = "postgres")]
            Statements::Postgres($statements) => {
                let $own = $line.postgres()?;
                $call
            }
            #[cfg(feature = "mysql")]
            Statements::MySql($statements) => {
                let $own = $line.mysql()?;
                $call
            }
        }
    };
}

impl Table {
    /// Refuses a name that the table has no room for, or cannot hold.
    pub(crate) fn check(&self, name: &Name) -> Result<()> {
        let length = name.as_str().chars().count();
        match self.longest {
            Some(longest) if length > longest => {
                let message = format!(
                    "ShedLock's table {:?} takes names of at most {longest} characters, this one has {length}",
                    self.called
                );
                return Err(Error::new(ErrorKind::Invalid, message));
            }
            _ => {}
        }
        match &self.statements {
            #[cfg(feature = "postgres")]
            Statements::Postgres(_) => Ok(()),
            #[cfg(feature = "mysql")]
            Statements::MySql(statements) => statements.check(&self.called, name),
        }
    }

    /// Takes the rows of claims with their tokens, of those that nobody else has.
    pub(crate) async fn take(&self, line: &Line, claims: &[(&Claim, Token)]) -> Result<Vec<Taken>> {
        each!(self, line, |statements, line| statements.take(&self.signature, line, claims).await)
    }

    /// Has the rows of claims last for their TTL from now on. Says which of them are theirs still, and when that was asked.
    pub(crate) async fn extend(&self, line: &Line, claims: &[&Claim]) -> Result<Vec<Option<BootInstant>>> {
        each!(self, line, |statements, line| statements.extend(&self.signature, line, claims).await)
    }

    pub(crate) async fn free(&self, line: &Line, holds: &[Ending<'_>]) -> Result<()> {
        each!(self, line, |statements, line| statements.free(line, holds).await)
    }

    /// Who has rows, of those names.
    pub(crate) async fn look(&self, line: &Line, names: &[&str]) -> Result<Vec<Held>> {
        each!(self, line, |statements, line| statements.look(&self.signature, line, names).await)
    }

    /// How the hold of a claim is named that is to end.
    pub(crate) fn ending(name: &Name, claim: ClaimId) -> Ending<'_> {
        (name.as_str(), claim.to_string())
    }
}
