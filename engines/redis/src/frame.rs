use redis::{PushKind, RedisResult, Value};

/// The first whole answer in `bytes`, and how long it is; `None` if the rest is yet to come.
///
/// What servers answer most is read here; anything else is left to the library, which makes itself a buffer of
/// 8 KiB for each answer.
pub(crate) fn first(bytes: &[u8]) -> RedisResult<Option<(Value, usize)>> {
    let Some(length) = length(bytes, 0)? else { return Ok(None) };
    match usual(&bytes[..length]) {
        Some((value, read)) if read == length => Ok(Some((value, length))),
        _ => redis::parse_redis_value(&bytes[..length]).map(|value| Some((value, length))),
    }
}

/// The first answer in `bytes`, which are whole, and how long it is; `None` if it is of a kind that is rare.
fn usual(bytes: &[u8]) -> Option<(Value, usize)> {
    let start = line_end(bytes)?;
    let line = bytes.get(1..start)?.strip_suffix(b"\r\n")?;
    match (bytes[0], line) {
        (b'+', b"OK") => Some((Value::Okay, start)),
        (b'_', b"") | (b'$' | b'*', b"-1") => Some((Value::Nil, start)),
        (b':', _) => Some((Value::Int(number(line)?), start)),
        (b'$', _) => {
            let end = start.checked_add(usize::try_from(number(line)?).ok()?)?;
            let text = bytes.get(start..end + 2)?.strip_suffix(b"\r\n")?;
            Some((Value::BulkString(text.to_vec()), end + 2))
        }
        (b'*', _) => parts(bytes, start, number(line)?).map(|(parts, end)| (Value::Array(parts), end)),
        (b'>', _) => {
            let (mut data, end) = parts(bytes, start, number(line)?)?;
            let is_message = matches!(data.first(), Some(Value::BulkString(kind)) if kind == b"message");
            is_message.then(|| {
                data.remove(0);
                (Value::Push { kind: PushKind::Message, data }, end)
            })
        }
        _ => None,
    }
}

/// So many answers, one behind the other, and where they end.
fn parts(bytes: &[u8], start: usize, count: i64) -> Option<(Vec<Value>, usize)> {
    let (mut parts, mut end) = (Vec::with_capacity(usize::try_from(count).ok()?), start);
    for _ in 0..count {
        let (part, length) = usual(&bytes[end..])?;
        parts.push(part);
        end += length;
    }
    Some((parts, end))
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
        let cases: [&[u8]; 16] = [
            b"+OK\r\n",
            b"+QUEUED\r\n",
            b":-42\r\n",
            b"*0\r\n",
            b"*-1\r\n",
            b"*3\r\n$2\r\n\r\n\r\n_\r\n*1\r\n$-1\r\n",
            b"*2\r\n+OK\r\n-ERR no\r\n",
            b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n",
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
        let others: [&[u8]; 10] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"*x\r\n",
            b"*\n",
            b":\n",
            b"\x15\x03\x01\x00\x02\x02",
            b"+OKx\n",
            b"$-1x\n",
            b":1x\n",
            b"$2\r\nabXX",
            b"*1\r\n$2\r\nabXX",
        ];
        for other in others {
            assert!(first(other).is_err(), "{other:?}");
        }
        let deep = b"*1\r\n".repeat(100_000);
        assert!(first(&deep).is_err());
    }
}
