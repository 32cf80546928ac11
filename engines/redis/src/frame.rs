use redis::{RedisResult, Value};

/// The first whole answer in `bytes`, and how long it is; `None` if the rest is yet to come.
///
/// What the scripts answer most is read here; anything else is left to the library.
pub(crate) fn first(bytes: &[u8]) -> RedisResult<Option<(Value, usize)>> {
    let Some(length) = length(bytes, 0)? else { return Ok(None) };
    let frame = &bytes[..length];
    let value = match frame[0] {
        b':' => frame.get(1..length - 2).and_then(number).map(Value::Int),
        b'$' => line_end(frame).filter(|end| *end < length).map(|start| {
            let text = &frame[start..length - 2];
            Value::BulkString(text.to_vec())
        }),
        _ => None,
    };
    match value {
        Some(value) => Ok(Some((value, length))),
        None => redis::parse_redis_value(frame).map(|value| Some((value, length))),
    }
}

/// How deep an answer may be nested: far more than any is, far less than a stack holds.
const DEEPEST: usize = 32;

/// How long the first answer in `bytes` is.
fn length(bytes: &[u8], depth: usize) -> RedisResult<Option<usize>> {
    let Some(&kind) = bytes.first() else { return Ok(None) };
    if depth > DEEPEST || !b"+-:_#,($=!*~>%|".contains(&kind) {
        return Err(unspoken(kind));
    }
    let Some(start) = line_end(bytes) else { return Ok(None) };
    if b"+-:_#,(".contains(&kind) {
        return Ok(Some(start));
    }
    let count = bytes.get(1..start - 2).and_then(number).ok_or_else(|| unspoken(kind))?;
    // Nothing, as older protocols say it.
    let Ok(count) = usize::try_from(count) else { return Ok(Some(start)) };
    let parts = match kind {
        b'$' | b'=' | b'!' => {
            let end = count.saturating_add(start + 2);
            return Ok((bytes.len() >= end).then_some(end));
        }
        b'%' => count.saturating_mul(2),
        b'|' => count.saturating_mul(2).saturating_add(1),
        _ => count,
    };
    let mut end = start;
    for _ in 0..parts {
        match length(&bytes[end..], depth + 1)? {
            Some(part) => end += part,
            None => return Ok(None),
        }
    }
    Ok(Some(end))
}

/// Where the line after the first one begins.
fn line_end(bytes: &[u8]) -> Option<usize> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    (end > 0).then_some(end + 1)
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// What answers is no Redis. In the library's own words, by which it is told what it is instead.
fn unspoken(byte: u8) -> redis::RedisError {
    (redis::ErrorKind::Parse, "not the protocol of Redis", format!("Unexpected `{byte}`")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_once_it_is_there_and_not_before() {
        let cases: [&[u8]; 10] = [
            b"+OK\r\n",
            b":-42\r\n",
            b"$5\r\na\r\nbc\r\n",
            b"$-1\r\n",
            b"_\r\n",
            b"-NOSCRIPT no such script\r\n",
            b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            b"%1\r\n+a\r\n:1\r\n",
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n",
            b"|1\r\n+a\r\n:1\r\n$2\r\nok\r\n",
        ];
        for case in cases {
            for cut in 0..case.len() {
                assert!(first(&case[..cut]).unwrap().is_none(), "{cut} bytes of {case:?}");
            }
            let more = [case, b"+next\r\n"].concat();
            let (value, length) = first(&more).unwrap().unwrap();
            assert_eq!(length, case.len());
            assert_eq!(value, redis::parse_redis_value(case).unwrap());
        }
    }

    #[test]
    fn what_is_no_redis_is_said_to_be_none() {
        for other in
            [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"*x\r\n", b"*\n", b":\n", b"\x15\x03\x01\x00\x02\x02"]
        {
            assert!(first(other).is_err());
        }
        let deep = b"*1\r\n".repeat(100_000);
        assert!(first(&deep).is_err());
    }
}
