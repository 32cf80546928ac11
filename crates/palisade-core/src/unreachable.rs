use std::error::Error as StdError;
use std::io;

use crate::{Error, ErrorKind};

impl Error {
    /// Nobody could be reached at `place`: why, and what to check. Says the innermost cause only: clients of servers wrap it
    /// in their own words, and repeat it in each.
    ///
    /// ```
    /// use palisade_core::Error;
    /// let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    /// let error = Error::unreachable("db:5432", &refused);
    /// assert!(error.is_transient() && error.message().starts_with("db:5432 cannot be reached: nobody listens there"));
    /// ```
    pub fn unreachable(place: &str, cause: &(dyn StdError + 'static)) -> Self {
        let innermost = innermost(cause);
        let said = innermost.to_string();
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        let why = if innermost.downcast_ref().is_some_and(refused) {
            "nobody listens there; check host and port, and that the server runs".to_owned()
        } else if said.contains("lookup address") {
            format!("there is no such host ({said}); check its name")
        } else {
            said
        };
        Self::new(ErrorKind::Unavailable, format!("{place} cannot be reached: {why}"))
    }
}

fn innermost<'a>(mut error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Wrapped(io::Error);

    impl fmt::Display for Wrapped {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "I/O: {}", self.0)
        }
    }

    impl StdError for Wrapped {
        fn source(&self) -> Option<&(dyn StdError + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn causes_are_told_once_with_what_to_check() {
        let refused = Wrapped(io::ErrorKind::ConnectionRefused.into());
        let message = Error::unreachable("db:1", &refused).to_string();
        assert!(message.contains("nobody listens there; check host and port") && !message.contains("I/O"));
        let unknown = io::Error::other("failed to lookup address information: Name or service not known");
        assert!(Error::unreachable("db:1", &unknown).to_string().contains("no such host"));
        let reset = Wrapped(io::Error::other("reset"));
        assert_eq!(Error::unreachable("db:1", &reset).to_string(), "db:1 cannot be reached: reset");
    }
}
