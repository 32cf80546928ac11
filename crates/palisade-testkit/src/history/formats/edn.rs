//! As much of EDN as histories need.

use std::fmt;

/// How deep values may be nested.
const DEEPEST: usize = 64;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Edn {
    Nil,
    /// A number, a symbol, a character, true or false, as written.
    Plain(String),
    Keyword(String),
    Text(String),
    /// A vector, a list or a set.
    List(Vec<Edn>),
    Map(Vec<(Edn, Edn)>),
}

impl Edn {
    /// What a map has under the keyword `key`.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Self::Map(entries) = self else { return None };
        entries.iter().find(|(name, _)| matches!(name, Self::Keyword(name) if name == key)).map(|(_, it)| it)
    }

    /// A number that is not negative.
    pub(super) fn number(&self) -> Option<u64> {
        if let Self::Plain(text) = self { text.parse().ok() } else { None }
    }

    /// The name of a keyword, or a text.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Keyword(name) | Self::Text(name) => Some(name),
            _ => None,
        }
    }

    /// The value, unless it is nil.
    pub(super) fn some(&self) -> Option<&Self> {
        (*self != Self::Nil).then_some(self)
    }
}

impl fmt::Display for Edn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Plain(text) | Self::Text(text) => f.write_str(text),
            Self::Keyword(name) => write!(f, ":{name}"),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(" "))
            }
            Self::Map(entries) => {
                let entries: Vec<String> =
                    entries.iter().map(|(key, value)| format!("{key} {value}")).collect();
                write!(f, "{{{}}}", entries.join(", "))
            }
        }
    }
}

/// Reads values one after the other.
#[derive(Debug)]
pub(super) struct Reader<'t> {
    rest: &'t str,
    line: usize,
}

impl<'t> Reader<'t> {
    /// A reader of `text`, whose first line has the number `line`.
    pub(super) const fn new(text: &'t str, line: usize) -> Self {
        Self { rest: text, line }
    }

    /// The number of the line it has come to.
    pub(super) const fn line(&self) -> usize {
        self.line
    }

    pub(super) fn wrong(&self, problem: impl fmt::Display) -> String {
        format!("line {}: {problem}", self.line)
    }

    fn take(&mut self) -> Option<char> {
        let first = self.rest.chars().next()?;
        self.rest = &self.rest[first.len_utf8()..];
        self.line += usize::from(first == '\n');
        Some(first)
    }

    /// The next character that means something; commas do not.
    pub(super) fn peek(&mut self) -> Option<char> {
        loop {
            match self.rest.chars().next()? {
                ';' => while self.take().is_some_and(|skipped| skipped != '\n') {},
                space if space.is_whitespace() || space == ',' => drop(self.take()),
                other => return Some(other),
            }
        }
    }

    /// Takes `wanted` if it is next.
    pub(super) fn accept(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.take();
        }
        found
    }

    /// The next value.
    pub(super) fn value(&mut self) -> Result<Edn, String> {
        self.nested(DEEPEST)
    }

    fn nested(&mut self, depth: usize) -> Result<Edn, String> {
        let depth = depth.checked_sub(1).ok_or_else(|| self.wrong("nested too deep"))?;
        let Some(first) = self.peek() else {
            return Err(self.wrong("the text ends where a value should be"));
        };
        match first {
            '[' => self.list(']', depth).map(Edn::List),
            '(' => self.list(')', depth).map(Edn::List),
            '{' => self.map(depth),
            '"' => self.text().map(Edn::Text),
            '#' => self.tagged(depth),
            ']' | ')' | '}' => Err(self.wrong(format_args!("{first:?} closes nothing"))),
            ':' => {
                self.take();
                Ok(Edn::Keyword(self.word()?))
            }
            _ => Ok(match self.word()? {
                nil if nil == "nil" => Edn::Nil,
                word => Edn::Plain(word),
            }),
        }
    }

    fn list(&mut self, close: char, depth: usize) -> Result<Vec<Edn>, String> {
        let began = self.line;
        self.take();
        let mut items = Vec::new();
        while !self.accept(close) {
            if self.peek().is_none() {
                return Err(self.wrong(format_args!("{close:?} is missing; it was opened in line {began}")));
            }
            items.push(self.nested(depth)?);
        }
        Ok(items)
    }

    fn map(&mut self, depth: usize) -> Result<Edn, String> {
        let items = self.list('}', depth)?;
        if !items.len().is_multiple_of(2) {
            return Err(self.wrong("a map has a key without a value"));
        }
        let mut items = items.into_iter();
        let mut entries = Vec::new();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            entries.push((key, value));
        }
        Ok(Edn::Map(entries))
    }

    /// A set, something to be left out, or a tag, which tells us nothing.
    fn tagged(&mut self, depth: usize) -> Result<Edn, String> {
        self.take();
        match self.rest.chars().next() {
            Some('{') => self.list('}', depth).map(Edn::List),
            Some('_') => {
                self.take();
                self.nested(depth)?;
                self.nested(depth)
            }
            _ => {
                self.word()?;
                self.nested(depth)
            }
        }
    }

    fn word(&mut self) -> Result<String, String> {
        let ends = |it: char| {
            it.is_whitespace() || matches!(it, ',' | '[' | ']' | '(' | ')' | '{' | '}' | '"' | ';')
        };
        let length = self.rest.find(ends).unwrap_or(self.rest.len());
        if length == 0 {
            return Err(self.wrong("a name or a number is missing"));
        }
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(word.to_owned())
    }

    fn text(&mut self) -> Result<String, String> {
        let began = self.line;
        self.take();
        let mut text = String::new();
        loop {
            match self.take() {
                Some('"') => return Ok(text),
                Some('\\') => match self.take() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(other) => text.push(other),
                    None => {}
                },
                Some(other) => text.push(other),
                None => return Err(format!("line {began}: a text is not closed")),
            }
        }
    }
}
