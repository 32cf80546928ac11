use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The name of a resource or a register, validated once.
///
/// Any UTF-8 text of 1 to [`Name::MAX_BYTES`] bytes without control characters is a name: `../`,
/// quotes, `*` and emoji are ordinary text and are never interpreted. Two names are the same only
/// if their bytes are; engines encode them injectively.
///
/// ```
/// use palisade_core::Name;
/// assert!(Name::new("orders/42 🚲").is_ok());
/// assert!(Name::new("two\nlines").unwrap_err().to_string().contains("control character"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name in bytes. Short enough for every engine's key limit after encoding.
    pub const MAX_BYTES: usize = 512;

    /// Marks names that recipes make for their own use. A control character, so that no user's
    /// name can collide with one.
    const INTERNAL_MARK: char = '\u{1}';

    /// Validates `text`.
    ///
    /// # Errors
    /// [`InvalidName`] says which rule was broken, without repeating an overlong name.
    pub fn new(text: impl AsRef<str>) -> Result<Self, InvalidName> {
        let text = text.as_ref();
        check(text)?;
        Ok(Self(text.into()))
    }

    /// Makes a name in the recipes' own space, such as the register behind `Once`.
    ///
    /// `kind` tells recipes apart; the name can be as long as a user's own.
    pub fn internal(kind: &str, of: &Name) -> Self {
        Self(format!("{}{kind}/{}", Self::INTERNAL_MARK, of.0).into())
    }

    /// Rebuilds a name that an engine stored earlier, internal ones included.
    ///
    /// # Errors
    /// [`InvalidName`] if what was stored was never a name: the store is not ours, or corrupt.
    pub fn from_stored(text: &str) -> Result<Self, InvalidName> {
        check(text.strip_prefix(Self::INTERNAL_MARK).unwrap_or(text)).or_else(|problem| match problem {
            // An internal name is its user's name and a short kind.
            InvalidName::TooLong { bytes } if bytes <= Self::MAX_BYTES + 64 => Ok(()),
            other => Err(other),
        })?;
        Ok(Self(text.into()))
    }

    /// Whether a recipe made this name for its own use; listings for people leave it out.
    pub fn is_internal(&self) -> bool {
        self.0.starts_with(Self::INTERNAL_MARK)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn check(text: &str) -> Result<(), InvalidName> {
    if text.is_empty() {
        return Err(InvalidName::Empty);
    }
    if text.len() > Name::MAX_BYTES {
        return Err(InvalidName::TooLong { bytes: text.len() });
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((at, found)) => Err(InvalidName::Control { at, found }),
        None => Ok(()),
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

/// Why a text is not a [`Name`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidName {
    /// The text is empty.
    Empty,
    /// The text has more than [`Name::MAX_BYTES`] bytes.
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// The text holds a control character, such as NUL or a line break.
    Control {
        /// Its byte offset.
        at: usize,
        /// The character.
        found: char,
    },
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a name must not be empty"),
            Self::TooLong { bytes } => {
                write!(f, "a name has at most {} bytes, this one has {bytes}", Name::MAX_BYTES)
            }
            Self::Control { at, found } => write!(
                f,
                "a name must not hold control characters, this one has {} at byte {at}",
                found.escape_default()
            ),
        }
    }
}

impl std::error::Error for InvalidName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_is_either_a_name_or_a_clear_error() {
        for good in ["a", "../../etc/passwd", "a b", "'; DROP TABLE claim; --", "🦀", "%_*?[]{}"] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a\0b", "a\nb", "\u{1}once/x", "\u{7f}", &"x".repeat(513), &"x".repeat(1 << 20)] {
            let message = Name::new(bad).unwrap_err().to_string();
            assert!(message.len() < 120, "{message}");
        }
    }

    #[test]
    fn internal_names_survive_storage_and_never_collide() {
        let long = Name::new("x".repeat(Name::MAX_BYTES)).unwrap();
        let internal = Name::internal("once", &long);
        assert!(internal.is_internal());
        assert_eq!(Name::from_stored(internal.as_str()).unwrap(), internal);
        assert!(Name::new(internal.as_str()).is_err());
        assert!(Name::from_stored("a\nb").is_err());
    }
}
