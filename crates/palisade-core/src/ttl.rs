use std::fmt;
use std::time::Duration;

/// How long an engine honours a claim that is not renewed. There always is one.
///
/// ```
/// use std::time::Duration;
/// use palisade_core::Ttl;
/// assert_eq!(Ttl::default().as_duration(), Duration::from_secs(15));
/// assert!(Ttl::new(Duration::ZERO).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

impl Ttl {
    /// The shortest TTL: below it scheduling noise alone would lose locks.
    pub const MIN: Duration = Duration::from_millis(50);
    /// The longest TTL. Claims are renewed for as long as they are held, so that a longer one
    /// would only make a crash hurt longer.
    pub const MAX: Duration = Duration::from_hours(24);

    /// Validates `ttl`.
    ///
    /// # Errors
    /// [`InvalidTtl`] outside [`Ttl::MIN`] … [`Ttl::MAX`].
    pub const fn new(ttl: Duration) -> Result<Self, InvalidTtl> {
        if ttl.as_nanos() < Self::MIN.as_nanos() || ttl.as_nanos() > Self::MAX.as_nanos() {
            return Err(InvalidTtl(ttl));
        }
        Ok(Self(ttl))
    }

    /// The TTL as a duration.
    pub const fn as_duration(self) -> Duration {
        self.0
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self(Duration::from_secs(15))
    }
}

/// Why a duration is not a [`Ttl`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidTtl(Duration);

impl fmt::Display for InvalidTtl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a TTL lies between 50 ms and 24 h, this one is {:?}; held claims are renewed by themselves, so a short one is no limit",
            self.0
        )
    }
}

impl std::error::Error for InvalidTtl {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges() {
        assert!(Ttl::new(Ttl::MIN).is_ok());
        assert!(Ttl::new(Ttl::MAX).is_ok());
        for bad in
            [Duration::ZERO, Duration::from_nanos(1), Duration::from_hours(300 * 365 * 24), Duration::MAX]
        {
            assert!(Ttl::new(bad).unwrap_err().to_string().contains("between"));
        }
    }
}
