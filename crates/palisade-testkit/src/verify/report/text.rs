use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// The longest text of others, in characters, that the page shows in full.
pub(super) const LONGEST: usize = 1_000;

/// Text as HTML, for content and for quoted attributes.
pub(super) fn html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    for c in shown(text, LONGEST).chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Text as a JSON string that is inert inside a `<script>` element: no `<` can end the element or
/// begin a comment.
pub(super) fn json(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in shown(text, LONGEST).chars() {
        match c {
            '<' | '>' | '&' | '"' | '\\' | '\u{0}'..='\u{1f}' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Text with its end cut off if it is long, and with what would be invisible, or turn the text
/// around it, made visible.
pub(super) fn shown(text: &str, longest: usize) -> Cow<'_, str> {
    let plain = text.len() <= longest && !text.chars().any(is_hidden);
    if plain {
        return Cow::Borrowed(text);
    }
    let mut visible = String::new();
    for (place, c) in text.chars().enumerate() {
        if place == longest {
            visible.push('…');
            break;
        }
        if is_hidden(c) {
            visible.extend(c.escape_unicode());
        } else {
            visible.push(c);
        }
    }
    Cow::Owned(visible)
}

fn is_hidden(c: char) -> bool {
    let turns = matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\n' && c != '\t') || turns || c == '\u{feff}'
}

/// A number with its thousands set apart.
pub(super) fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut apart = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

/// A number of things, in words.
pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", thousands(number), if number == 1 { one } else { many })
}

/// A span of time with three digits that matter.
pub(super) fn duration(time: Duration) -> String {
    let nanos = time.as_nanos();
    let (unit, name) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (1e-6, "µs"),
        1_000_000..1_000_000_000 => (1e-3, "ms"),
        1_000_000_000..120_000_000_000 => (1.0, "s"),
        _ if time.as_secs().is_multiple_of(60) => return format!("{} min", time.as_secs() / 60),
        _ => return format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
    };
    let value = time.as_secs_f64() / unit;
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {name}")
}

/// Puts values into the `{{places}}` of a template, in one pass: what is put in is not looked at
/// again, so no value can name a place.
pub(super) fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = template.split("{{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        filled.push_str(&value(name));
        filled.push_str(rest);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(html("<b a='1' c=\"2\">&"), "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;");
    }

    #[test]
    fn json_cannot_end_a_script_and_still_says_the_same() {
        let hostile = "</script><!-- \"\\\u{2028} & ü\n";
        let quoted = json(hostile);
        assert!(!quoted.contains(['<', '>', '&', '\u{2028}', '\n']), "{quoted}");
        assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), hostile);
    }

    #[test]
    fn what_is_invisible_is_made_visible() {
        assert_eq!(html("a\u{202e}b\u{0}"), "a\\u{202e}b\\u{0}");
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(html(&"ü".repeat(LONGEST + 5)).chars().count(), LONGEST + 1);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(count(1, "fault", "faults"), "1 fault");
        assert_eq!(duration(Duration::from_nanos(5)), "5 ns");
        assert_eq!(duration(Duration::from_micros(412)), "412 µs");
        assert_eq!(duration(Duration::from_micros(1_250)), "1.25 ms");
        assert_eq!(duration(Duration::from_secs(90)), "90.0 s");
        assert_eq!(duration(Duration::from_secs(123)), "2 min 3 s");
        assert_eq!(duration(Duration::from_mins(2)), "2 min");
    }

    #[test]
    fn values_name_no_places() {
        let filled = fill("a {{x}} b {{y}} c", |name| format!("<{name}{{{{y}}}}>"));
        assert_eq!(filled, "a <x{{y}}> b <y{{y}}> c");
    }
}
