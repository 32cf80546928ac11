use crate::error::{Error, ErrorKind, Result};

/// Reads text in which `%` and two hexadecimal digits stand for a byte, as in URLs.
///
/// ```
/// assert_eq!(palisade_core::percent_decode("p%40ss%25").unwrap(), "p@ss%");
/// assert!(palisade_core::percent_decode("100%").is_err());
/// ```
///
/// # Errors
/// [`ErrorKind::Invalid`], without repeating the text: it may be a password.
pub fn percent_decode(text: &str) -> Result<String> {
    let invalid = |message: &str| Error::new(ErrorKind::Invalid, message);
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part
            .split_at_checked(2)
            // Numbers may have a sign, bytes of a URL may not.
            .filter(|(digits, _)| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
            .ok_or_else(|| invalid("a % in a URL is followed by two hexadecimal digits; write %25 for %"))?;
        bytes.extend(u8::from_str_radix(digits, 16));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).map_err(|_| invalid("a URL is UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_comes_back_and_nothing_else_changes() {
        for (text, decoded) in [
            ("", ""),
            ("plain+text", "plain+text"),
            ("%25", "%"),
            ("%252f", "%2f"),
            ("a%C3%a9b", "aéb"),
            ("é%20", "é "),
        ] {
            assert_eq!(percent_decode(text).unwrap(), decoded);
        }
    }

    #[test]
    fn nonsense_is_refused_without_being_repeated() {
        for bad in ["%", "hunter2%", "hunter2%4", "hunter2%zz", "hunter2%+f", "hunter2%é1", "hunter2%ff"] {
            let message = percent_decode(bad).unwrap_err().to_string();
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
