use bytes::Bytes;
use futures::StreamExt;
use palisade_core::{Condition, Entry, Error, ErrorKind, Name, Result};

use crate::client::Client;
use crate::register::{Register, Update, Updated};

/// A counter that only falls; everyone can wait until it is down to zero.
///
/// It begins at the number given, the first time anyone counts down, and stays at zero until it
/// is [reset](Latch::reset). A count that was made stays made when its process dies.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> palisade::Result<()> {
/// # let client = palisade::connect("memory:").await?;
/// let ready = client.latch("migrations-done", 2)?;
/// assert_eq!(ready.count_down().await?, 1);
/// assert_eq!(ready.count_down().await?, 0);
/// ready.wait().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Latch {
    register: Register,
    from: u64,
}

impl Client {
    /// The latch called `name` that counts down from `from`.
    ///
    /// # Errors
    /// If `name` is no [`Name`], or the engine keeps no registers.
    pub fn latch(&self, name: &str, from: u64) -> Result<Latch> {
        let register = self.register_called(Name::internal("latch", &Name::new(name)?))?;
        Ok(Latch { register, from })
    }
}

impl Latch {
    /// How far it is from zero.
    pub async fn count(&self) -> Result<u64> {
        self.parse(self.register.read().await?.value.as_ref())
    }

    /// Counts one down and returns what is left; at zero it stays.
    ///
    /// # Errors
    /// If the engine cannot be reached, or so many count at once that none gets through.
    ///
    /// # Cancel safety
    /// Not safe: the count may have been made.
    pub async fn count_down(&self) -> Result<u64> {
        let mut left = Ok(0);
        let updated = self
            .register
            .update(|old| {
                left = self.parse(old);
                match &mut left {
                    Ok(left) if *left > 0 => {
                        *left -= 1;
                        Update::Write(Bytes::from(left.to_string()))
                    }
                    _ => Update::Keep,
                }
            })
            .await?;
        match updated {
            Updated::Conflict { .. } => {
                Err(Error::new(ErrorKind::Conflict, "too many count down at once; try again"))
            }
            _ => left,
        }
    }

    /// Waits until it is down to zero.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn wait(&self) -> Result<()> {
        let mut changes = self.register.watch().await?;
        while let Some(change) = changes.next().await {
            let Entry { value, .. } = change?;
            if self.parse(value.as_ref())? == 0 {
                return Ok(());
            }
        }
        Err(Error::new(ErrorKind::Closed, "the client was closed"))
    }

    /// Puts it back to its beginning.
    pub async fn reset(&self) -> Result<()> {
        self.register.delete(Condition::always()).await.map(drop)
    }

    fn parse(&self, value: Option<&Bytes>) -> Result<u64> {
        let Some(value) = value else { return Ok(self.from) };
        std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "the latch holds no number").about(self.register.name())
        })
    }
}
