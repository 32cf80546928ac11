//! Histories that other programs recorded. Which program is told from the content.

mod edn;
mod jepsen;
mod knossos;
mod record;

use super::History;

/// Who wrote a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// We did: JSON lines.
    Own,
    /// Jepsen: a log of a register. Times are places in the file.
    Jepsen,
    /// Knossos, or whoever writes EDN maps. Times are places in the file.
    Edn,
}

impl Format {
    /// The format of `text`, if it is one of them.
    pub fn of(text: &str) -> Option<Self> {
        let start = text.trim_start_matches('\u{feff}').trim_start();
        if text.lines().take(50).any(|line| jepsen::fields(line).is_some()) {
            return Some(Self::Jepsen);
        }
        match start.strip_prefix('{').map(str::trim_start) {
            Some(inside) if inside.starts_with('"') => Some(Self::Own),
            // A tag or a set; a heading of a document has a space there.
            _ if start.starts_with('#') => {
                start[1..].starts_with(|next: char| !next.is_whitespace() && next != '#').then_some(Self::Edn)
            }
            _ => start.starts_with(['{', '[', '(', ';']).then_some(Self::Edn),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "palisade",
            Self::Jepsen => "jepsen",
            Self::Edn => "edn",
        }
    }
}

impl History {
    /// Reads a history in any format.
    ///
    /// # Errors
    /// If the text is no history; with the number of the first line that is wrong.
    pub fn read(text: &str) -> Result<(Self, Format), String> {
        let Some(format) = Format::of(text) else {
            return Err("this is no history: neither JSON lines, nor a Jepsen log, nor EDN".to_owned());
        };
        let history = match format {
            Format::Own => Self::from_lines(text)?,
            Format::Jepsen => record::assemble(jepsen::records(text)?)?,
            Format::Edn => record::assemble(knossos::records(text)?)?,
        };
        Ok((history, format))
    }
}

#[cfg(test)]
mod tests;
