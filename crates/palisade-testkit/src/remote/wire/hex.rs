use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes as text of hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::remote) struct Hex(pub(in crate::remote) Bytes);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
        let text: String = self.0.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect();
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let bytes: Option<Vec<u8>> =
            pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect();
        match bytes {
            Some(bytes) if rest.is_empty() => Ok(Self(bytes.into())),
            _ => Err(de::Error::custom("not a text of hexadecimal digits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_and_nonsense_does_not() {
        let all = Hex((0..=255).collect());
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Hex>(&text).unwrap(), all);
        for bad in ["\"0\"", "\"zz\"", "\"é\"", "7"] {
            assert!(serde_json::from_str::<Hex>(bad).is_err(), "{bad}");
        }
    }
}
