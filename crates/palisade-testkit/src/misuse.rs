use std::fmt;

/// Something was asked for that cannot be: the caller has to ask for something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misuse(pub String);

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// Returns early with a [`Misuse`].
macro_rules! misuse {
    ($($text:tt)*) => {
        return Err(anyhow::Error::new($crate::Misuse(format!($($text)*))))
    };
}
pub(crate) use misuse;
