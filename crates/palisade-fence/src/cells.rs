//! The cells of a fence as text, a line each: slot or `-`, exclusive mark, shared mark, written, source.

use palisade_core::{Fence, Source, Token};

use crate::{DbError, DbErrorKind};

pub(crate) fn encode(fence: &Fence) -> String {
    let lines: Vec<String> = fence
        .to_cells()
        .map(|(slot, source, [exclusive, shared, written])| {
            let slot = slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string());
            // A source is any text; a line must stay one.
            let source = source.as_str().replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r");
            format!("{slot} {exclusive} {shared} {written} {source}")
        })
        .collect();
    lines.join("\n")
}

pub(crate) fn decode(text: &str) -> Result<Fence, DbError> {
    let cells: Option<Vec<_>> = text.lines().map(cell).collect();
    let corrupt = || DbError::new(DbErrorKind::Corrupt, "the cells of a fence cannot be read");
    cells.map(Fence::from_cells).ok_or_else(corrupt)
}

fn cell(line: &str) -> Option<(Option<u32>, Source, [u64; 3])> {
    let mut parts = line.splitn(5, ' ');
    let slot = match parts.next()? {
        "-" => None,
        slot => Some(slot.parse().ok()?),
    };
    let mut mark = || parts.next()?.parse().ok().filter(|mark| *mark <= Token::MAX);
    let marks = [mark()?, mark()?, mark()?];
    Some((slot, Source::new(unescape(parts.next()?)?), marks))
}

fn unescape(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        plain.push(match letter {
            '\\' => match letters.next()? {
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use palisade_core::{FencingToken, TokenKind};

    use super::*;

    #[test]
    fn a_fence_comes_back_as_it_was() {
        let mut fence = Fence::default();
        assert_eq!(decode(&encode(&fence)).unwrap(), fence);
        for (number, slot, source) in [
            (7, None, "a b\\n\nc\\"),
            (9, Some(3), ""),
            (Token::MAX, Some(0), "ü x"),
            (5, Some(4), "a\r"),
            (6, Some(5), "\r\nb\r\n"),
        ] {
            let token = Token::new(number).unwrap();
            let token = FencingToken { token, kind: TokenKind::Exclusive, slot, source: Source::new(source) };
            fence.record_write(&token);
        }
        assert_eq!(decode(&encode(&fence)).unwrap(), fence);
    }

    #[test]
    fn what_is_no_fence_is_not_read_as_one() {
        for bad in ["x", "- 1 2", "- 1 2 x a", "- 1 2 9223372036854775808 a", "- 1 2 3 a\\x"] {
            assert!(decode(bad).is_err(), "{bad}");
        }
    }
}
