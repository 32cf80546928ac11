/// Rust source with everything that is not code blanked out: comments, texts and characters become
/// spaces, lines stay where they are. Enough to count braces; not a parser.
pub(crate) fn code_of(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match not_code(rest, out.chars().next_back()) {
            Some(length) => {
                out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
                rest = &rest[length..];
            }
            None => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    out
}

/// How many bytes of something other than code `rest` begins with.
fn not_code(rest: &str, before: Option<char>) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return Some(block_comment(rest));
    }
    if rest.starts_with('"') {
        return Some(quoted(rest, '"').unwrap_or(rest.len()));
    }
    if rest.starts_with('\'') {
        return character(rest);
    }
    // `r` begins a raw text only where no name goes on: `for"x"` is none in any source we keep.
    let in_a_name = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if in_a_name { None } else { raw_text(rest) }
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest[at..];
        if here.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of a text between `quote`s, from the first one.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + quote.len_utf8()),
            _ => {}
        }
    }
    None
}

/// A character, as opposed to a lifetime.
fn character(rest: &str) -> Option<usize> {
    let mut chars = rest.chars().skip(1);
    let (first, second) = (chars.next()?, chars.next()?);
    if first == '\\' || second == '\'' { quoted(rest, '\'') } else { None }
}

/// A raw text: `r"…"`, `r#"…"#`, `br"…"`, `cr#"…"#`.
fn raw_text(rest: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        rest.strip_prefix(prefix).is_some_and(|rest| rest.trim_start_matches('#').starts_with('"'))
    })?;
    let hashes = rest[prefix.len()..].chars().take_while(|c| *c == '#').count();
    let open = prefix.len() + hashes + 1;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(rest[open..].find(&close).map_or(rest.len(), |at| open + at + close.len()))
}

#[cfg(test)]
mod tests {
    use super::code_of;

    #[test]
    fn only_code_stays() {
        for (source, braces) in [
            ("fn a() { /* { /* { */ */ }", "{}"),
            ("fn a() { // {\n }", "{}"),
            (r#"fn a() { "{ \" {" }"#, "{}"),
            (r##"fn a() { r#"{ " {"# }"##, "{}"),
            (r##"fn a() { br"{" ; cr#"{"# }"##, "{}"),
            (r"fn a() { '{' ; '\'' ; '\u{7f}' ; b'{' }", "{}"),
            ("fn a<'a>(x: &'a str) { 'outer: loop { break 'outer } }", "{{}}"),
            ("let var = r; { \"unclosed {", "{"),
        ] {
            let code = code_of(source);
            let found: String = code.chars().filter(|c| "{}".contains(*c)).collect();
            assert_eq!(found, braces, "{source}");
            assert_eq!(code.lines().count(), source.lines().count());
        }
    }
}
