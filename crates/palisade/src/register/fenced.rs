use std::fmt;

use bytes::Bytes;
use palisade_core::{
    Condition, Entry, Error, ErrorKind, FencingToken, Name, Refusal, RefusalReason, Result, Token, Version,
    Written,
};

use super::Register;

/// A register opened by the holder of a lock: its writes carry the token and are refused once a
/// later holder has opened or written the same register.
///
/// This is what makes a lock safe when its holder is paused: the zombie's write does not land.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// use palisade::Stale;
/// # let client = palisade::connect("memory:").await?;
/// let (mutex, file) = (client.mutex("file")?, client.register("file")?);
/// let zombie = mutex.acquire().await?;
/// let zombie_file = file.fenced(&zombie).await?;
/// zombie.release().await?; // or paused past its TTL
///
/// let next = mutex.acquire().await?;
/// file.fenced(&next).await?.write("new").await?;
/// assert!(matches!(zombie_file.write("old").await, Err(Stale::Fenced { .. })));
/// # next.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Fenced {
    register: Register,
    token: FencingToken,
    opened: Entry,
    strict: bool,
}

impl Fenced {
    pub(super) fn new(register: Register, token: FencingToken, opened: Entry) -> Self {
        Self { register, token, opened, strict: false }
    }

    /// The register as it was when it was opened.
    pub fn opened(&self) -> &Entry {
        &self.opened
    }

    /// Allows one write per token: a write that is repeated by mistake is refused.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Writes the register.
    ///
    /// # Errors
    /// [`Stale::Fenced`] if a later holder has been here; [`Stale::Failed`] if the engine could
    /// not be asked.
    ///
    /// # Cancel safety
    /// Not safe: the write may have been made. It carries the token, so writing again is right.
    pub async fn write(&self, value: impl Into<Bytes>) -> Result<Version, Stale> {
        self.write_if(value, Condition::always()).await
    }

    /// Writes the register if `condition` holds too.
    ///
    /// # Errors
    /// As [`Fenced::write`]; [`Stale::Refused`] if the condition does not hold.
    pub async fn write_if(&self, value: impl Into<Bytes>, condition: Condition) -> Result<Version, Stale> {
        let written = self.register.write(value, self.condition(condition)).await?;
        self.outcome(written)
    }

    /// Deletes the register. The fence stays.
    ///
    /// # Errors
    /// As [`Fenced::write`].
    pub async fn delete(&self) -> Result<Version, Stale> {
        let written = self.register.delete(self.condition(Condition::always())).await?;
        self.outcome(written)
    }

    fn condition(&self, condition: Condition) -> Condition {
        let condition = condition.token(self.token.clone());
        if self.strict { condition.strict() } else { condition }
    }

    fn outcome(&self, written: Written) -> Result<Version, Stale> {
        match written {
            Written::Done(version) => Ok(version),
            Written::Refused(refusal) => Err(Stale::from_refusal(self.register.name(), refusal)),
        }
    }
}

/// Why a fenced register was not opened or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stale {
    /// A later holder has been here: this one's lock is gone, whatever its guard says.
    Fenced {
        /// The token that counts now.
        current: Token,
        /// What the register holds.
        found: Entry,
        /// Which register.
        register: Name,
    },
    /// The token is right, but another part of the condition did not hold.
    Refused(Refusal),
    /// The engine could not be asked.
    Failed(Error),
}

impl Stale {
    pub(super) fn from_refusal(register: &Name, refusal: Refusal) -> Self {
        match refusal.reason {
            RefusalReason::StaleToken { current } | RefusalReason::SpentToken { current } => {
                Self::Fenced { current, found: refusal.current, register: register.clone() }
            }
            _ => Self::Refused(refusal),
        }
    }
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced { current, register, .. } => {
                write!(f, "the token is stale: {current} has been at {register:?} since")
            }
            Self::Refused(refusal) => write!(f, "refused: {}", refusal.reason),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Stale {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Failed(error) => error.source(),
            _ => None,
        }
    }
}

impl From<Error> for Stale {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Stale> for Error {
    fn from(stale: Stale) -> Self {
        match stale {
            Stale::Failed(error) => error,
            Stale::Fenced { ref register, .. } => {
                let register = register.clone();
                Self::new(ErrorKind::Lost, stale.to_string()).about(&register)
            }
            Stale::Refused(_) => Self::new(ErrorKind::Conflict, stale.to_string()),
        }
    }
}
