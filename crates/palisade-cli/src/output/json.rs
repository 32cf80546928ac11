//! The JSON of things that several verbs print.
//!
//! Tokens and versions are text: 2^53 is where other languages round.

use palisade::{ClaimView, Entry, Leader, Mode, Owner, ResourceView};
use serde_json::{Map, Value, json};

use super::known_age;

/// A resource with holders and waiters.
pub(crate) fn resource_json(view: &ResourceView) -> Value {
    let claims = |claims: &[ClaimView]| claims.iter().map(claim).collect::<Vec<_>>();
    json!({
        "resource": view.resource.as_str(),
        "holders": claims(&view.holders),
        "waiters": claims(&view.waiters),
    })
}

fn claim(view: &ClaimView) -> Value {
    let mut fields = Map::new();
    fields.insert("claim".into(), view.claim.to_string().into());
    fields.insert("mode".into(), view.mode.to_string().into());
    fields.insert("slot".into(), view.slot.into());
    if let Mode::Slot { of } = view.mode {
        fields.insert("slots".into(), of.into());
    }
    if let Some(token) = view.token {
        fields.insert("token".into(), token.to_string().into());
    }
    fields.insert("owner".into(), owner(&view.owner));
    if let Some(value) = &view.value {
        text_fields(&mut fields, "value", Some(value));
    }
    fields.insert("age_ms".into(), known_age(view).map_or(Value::Null, millis));
    fields.insert("expires_in_ms".into(), view.expires_in.map_or(Value::Null, millis));
    fields.into()
}

fn owner(owner: &Owner) -> Value {
    json!({
        "client": owner.client,
        "host": owner.host,
        "pid": owner.pid,
        "label": owner.label,
        "trace": owner.trace,
    })
}

/// An election; all fields but its name are null while nobody leads.
pub(crate) fn leader_json(name: &str, leader: Option<&Leader>) -> Value {
    let mut fields = Map::new();
    fields.insert("resource".into(), name.into());
    text_fields(&mut fields, "value", leader.map(|leader| &leader.value[..]));
    fields.insert("token".into(), leader.map(|leader| leader.token.to_string()).into());
    fields.insert("claim".into(), leader.map(|leader| leader.claim.to_string()).into());
    fields.insert("owner".into(), leader.map_or(Value::Null, |leader| owner(&leader.owner)));
    fields.insert("age_ms".into(), leader.map_or(Value::Null, |leader| millis(leader.age)));
    fields.into()
}

/// A register. The fence is the greatest token seen by a holder without a slot.
pub(crate) fn register_json(key: &str, entry: &Entry) -> Value {
    let mut fields = Map::new();
    fields.insert("key".into(), key.into());
    text_fields(&mut fields, "value", entry.value.as_deref());
    fields.insert("version".into(), entry.version.to_string().into());
    fields.insert("fence".into(), entry.fence.mark(None).map(|token| token.to_string()).into());
    fields.insert("expires_in_ms".into(), entry.expires_in.map_or(Value::Null, millis));
    fields.into()
}

/// Puts bytes in as text; what is no text as `NAME_base64` beside a null.
pub(crate) fn text_fields(fields: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    let text = bytes.map(std::str::from_utf8);
    fields.insert(name.into(), text.and_then(Result::ok).into());
    if let (Some(bytes), Some(Err(_))) = (bytes, text) {
        fields.insert(format!("{name}_base64"), base64(bytes).into());
    }
}

fn millis(duration: std::time::Duration) -> Value {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).into()
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte));
        let group = group << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = DIGITS[(group >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_in_the_rfc() {
        for (plain, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn bytes_that_are_no_text_get_a_field_of_their_own() {
        let mut fields = Map::new();
        text_fields(&mut fields, "value", Some(&[0xff]));
        assert_eq!(Value::from(fields), json!({"value": null, "value_base64": "/w=="}));
    }
}
