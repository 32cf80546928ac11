//! Our verbs as statements.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mysql_async::{Row, Value};
use palisade_core::{BootInstant, Change, Claim, ClaimId, Fence, Name, Result, Source, StoredRegister};
use serde_json::json;

use super::arrival::number;
use super::line::Line;
use crate::error::unexpected;
use crate::rows::{
    Answer, How, Leaving, Stored, bytes_of_hex, family_column, in_micros, mode_columns, signed, ttl,
};

impl Line {
    /// Asks for claims of one owner.
    pub(crate) async fn ask(
        &self,
        namespace: &str,
        client: &str,
        owner: &str,
        asks: &[(&Claim, How)],
    ) -> Result<(Vec<Answer>, BootInstant)> {
        let floor = |claim: &Claim| claim.token_floor.map_or(0, |floor| signed(floor.get()));
        let mut bound: Vec<Value> = vec![namespace.into(), client.into(), owner.into()];
        let sql = if let [(claim, how)] = asks {
            let (mode, slots) = mode_columns(claim.mode);
            bound.extend([
                claim.resource.as_str().into(),
                id(claim.id),
                (*how as i16).into(),
                family_column(claim.family).into(),
                mode.into(),
                slots.into(),
                ttl(claim).into(),
                floor(claim).into(),
                bytes(claim.value.as_deref()),
            ]);
            "CALL palisade_ask(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        } else {
            let each = asks.iter().map(|(claim, how)| {
                let (mode, slots) = mode_columns(claim.mode);
                let value = claim.value.as_deref();
                json!([
                    hex(claim.resource.as_str().as_bytes()),
                    hex(claim.id.as_bytes()),
                    *how as i16,
                    family_column(claim.family),
                    mode,
                    slots,
                    ttl(claim),
                    floor(claim),
                    i64::from(value.is_some()),
                    hex(value.unwrap_or_default())
                ])
            });
            bound.extend(list(each));
            "CALL palisade_ask_each(?, ?, ?, ?, ?)"
        };
        let (rows, sent) = self.call(sql, bound).await?;
        Ok((in_order(&rows, asks.len())?, sent))
    }

    pub(crate) async fn leave(
        &self,
        namespace: &str,
        client: &str,
        leaving: &[Leaving],
    ) -> Result<Vec<Answer>> {
        let mut bound: Vec<Value> = vec![namespace.into(), client.into()];
        let sql = if let [one] = leaving {
            bound.extend([
                one.claim.resource.as_str().into(),
                id(one.claim.id),
                one.seq.unwrap_or(-1).into(),
                i64::from(one.doubtful).into(),
                ttl(&one.claim).into(),
            ]);
            "CALL palisade_leave(?, ?, ?, ?, ?, ?, ?)"
        } else {
            bound.extend(list(leaving.iter().map(|one| {
                json!([
                    hex(one.claim.resource.as_str().as_bytes()),
                    hex(one.claim.id.as_bytes()),
                    one.seq.unwrap_or(-1),
                    i64::from(one.doubtful),
                    ttl(&one.claim)
                ])
            })));
            "CALL palisade_leave_each(?, ?, ?, ?)"
        };
        let (rows, _) = self.call(sql, bound).await?;
        in_order(&rows, leaving.len())
    }

    /// Renews claims, each with its place and the number of a new lease, if any: of all the same.
    pub(crate) async fn renew(
        &self,
        namespace: &str,
        client: &str,
        claims: &[(&Claim, Option<i64>, Option<i32>)],
    ) -> Result<(Vec<Answer>, BootInstant)> {
        let lease = claims.first().and_then(|(.., lease)| *lease);
        let mut bound: Vec<Value> = vec![namespace.into(), client.into(), lease.into()];
        bound.extend(list(claims.iter().map(|(claim, seq, _)| {
            json!([
                hex(claim.resource.as_str().as_bytes()),
                hex(claim.id.as_bytes()),
                seq.unwrap_or(-1),
                ttl(claim)
            ])
        })));
        let (rows, sent) = self.call("CALL palisade_renew(?, ?, ?, ?, ?)", bound).await?;
        Ok((in_order(&rows, claims.len())?, sent))
    }

    /// Renews leases, from which those claims leave that come with their places and the number of their lease.
    pub(crate) async fn keep(
        &self,
        namespace: &str,
        client: &str,
        leases: &[(i32, Duration)],
        left: &[(&Claim, Option<i64>, i32)],
    ) -> Result<(Vec<i32>, BootInstant)> {
        let mut leases = leases.to_vec();
        leases.sort_unstable();
        let mut bound: Vec<Value> = vec![namespace.into(), client.into()];
        bound.extend(list(leases.iter().map(|(number, ttl)| json!([number, in_micros(*ttl)]))));
        bound.extend(list(left.iter().map(|(claim, seq, lease)| {
            json!([
                hex(claim.resource.as_str().as_bytes()),
                hex(claim.id.as_bytes()),
                seq.unwrap_or(-1),
                lease
            ])
        })));
        let (rows, sent) = self.call("CALL palisade_keep(?, ?, ?, ?, ?, ?)", bound).await?;
        // None at all is NULL.
        let kept = rows.first().and_then(|row| text(row, 0)).unwrap_or_default();
        let numbers = kept.lines().map(|number| number.parse().map_err(|_| unexpected()));
        Ok((numbers.collect::<Result<_>>()?, sent))
    }

    pub(crate) async fn change(&self, namespace: &str, claim: &Claim, change: &Change) -> Result<Answer> {
        let ((mode, slots), value) = match change {
            Change::Mode(mode) => (mode_columns(*mode), None),
            Change::Value(value) => ((-1, 0), value.as_deref()),
        };
        let bound = vec![
            namespace.into(),
            claim.resource.as_str().into(),
            id(claim.id),
            mode.into(),
            slots.into(),
            bytes(value),
        ];
        let (rows, _) = self.call("CALL palisade_change(?, ?, ?, ?, ?, ?)", bound).await?;
        in_order(&rows, 1)?.pop().ok_or_else(unexpected)
    }

    pub(crate) async fn evict(
        &self,
        namespace: &str,
        resource: &Name,
        claim: ClaimId,
        reason: &str,
    ) -> Result<bool> {
        let bound = vec![namespace.into(), resource.as_str().into(), id(claim), reason.into()];
        let (rows, _) = self.call("CALL palisade_evict(?, ?, ?, ?)", bound).await?;
        truth(&rows)
    }

    pub(crate) async fn stand(
        &self,
        namespace: &str,
        claims: &[Arc<Claim>],
    ) -> Result<(Vec<Answer>, BootInstant)> {
        let [_, claimed] = list(
            claims
                .iter()
                .map(|claim| json!([hex(claim.resource.as_str().as_bytes()), hex(claim.id.as_bytes())])),
        );
        let (rows, sent) = self.call("CALL palisade_stand(?, ?)", vec![namespace.into(), claimed]).await?;
        Ok((in_order(&rows, claims.len())?, sent))
    }

    /// Resources and claims, by name and arrival.
    pub(crate) async fn show(
        &self,
        namespace: &str,
        exact: Option<&str>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, String)>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let bound = vec![namespace.into(), exact.into(), prefix.into(), after.into(), limit.into()];
        let (rows, _) = self.call("CALL palisade_show(?, ?, ?, ?, ?)", bound).await?;
        rows.iter().map(|row| text(row, 0).zip(text(row, 1)).ok_or_else(unexpected)).collect()
    }

    pub(crate) async fn fetch(&self, namespace: &str, name: &Name) -> Result<Stored> {
        let bound = vec![namespace.into(), name.as_str().into()];
        let (rows, _) = self.call("CALL palisade_fetch(?, ?)", bound).await?;
        stored(rows.first().ok_or_else(unexpected)?)
    }

    pub(crate) async fn fetch_all(&self, namespace: &str, prefix: &str) -> Result<Vec<Stored>> {
        let bound = vec![namespace.into(), prefix.into()];
        let (rows, _) = self.call("CALL palisade_fetch_all(?, ?)", bound).await?;
        rows.iter().map(stored).collect()
    }

    /// Stores a register unless it was changed since it was read.
    pub(crate) async fn store(&self, namespace: &str, changed: &Stored) -> Result<bool> {
        let register = &changed.register;
        let cells: Vec<_> =
            register.fence.to_cells().map(|(slot, source, marks)| (slot, source.as_str(), marks)).collect();
        let fence = serde_json::to_string(&cells).map_err(|error| unexpected().because(error))?;
        // To the next microsecond: a value is gone after its time, and not before.
        let expires = register.expires.map(|at| signed(at.div_ceil(1000)));
        let bound = vec![
            namespace.into(),
            changed.name.as_str().into(),
            changed.revision.into(),
            bytes(register.value.as_deref()),
            signed(register.version).into(),
            register.stamp.map(u64::cast_signed).into(),
            fence.into(),
            expires.into(),
        ];
        let (rows, _) = self.call("CALL palisade_store(?, ?, ?, ?, ?, ?, ?, ?)", bound).await?;
        truth(&rows)
    }

    /// Removes what clients that are gone have left.
    pub(crate) async fn sweep(&self) -> Result<()> {
        self.call("CALL palisade_sweep()", Vec::new()).await.map(drop)
    }
}

fn id(id: ClaimId) -> Value {
    Value::Bytes(id.as_bytes().to_vec())
}

fn bytes(value: Option<&[u8]>) -> Value {
    value.map_or(Value::NULL, |value| Value::Bytes(value.to_vec()))
}

/// How many there are, and all of them as JSON.
pub(super) fn list(each: impl Iterator<Item = serde_json::Value>) -> [Value; 2] {
    let all: Vec<serde_json::Value> = each.collect();
    [(all.len() as u64).into(), serde_json::Value::from(all).to_string().into()]
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn text(row: &Row, at: usize) -> Option<String> {
    match row.as_ref(at)? {
        Value::Bytes(text) => String::from_utf8(text.clone()).ok(),
        _ => None,
    }
}

fn truth(rows: &[Row]) -> Result<bool> {
    rows.first().and_then(|row| number(row, 0)).map(|number| number > 0).ok_or_else(unexpected)
}

/// Answers in the order asked: the server decides in an order of its own.
fn in_order(rows: &[Row], count: usize) -> Result<Vec<Answer>> {
    let mut answers = Vec::with_capacity(count);
    for row in rows {
        let said = text(row, 0).ok_or_else(unexpected)?;
        for line in said.lines() {
            answers.push(answer(line)?);
        }
    }
    answers.sort_by_key(|answer| answer.at);
    let whole = answers.len() == count && answers.iter().zip(1..).all(|(answer, at)| answer.at == at);
    if whole { Ok(answers) } else { Err(unexpected()) }
}

/// An answer as `palisade_decide` writes it.
fn answer(line: &str) -> Result<Answer> {
    let parts: Vec<&str> = line.split('|').collect();
    let [at, verdict, seq, token, slot, remains, look, ahead, note] = parts[..] else {
        return Err(unexpected());
    };
    let note = match note.strip_prefix('x') {
        Some(digits) => Some(String::from_utf8(bytes_of_hex(digits)?.into()).map_err(|_| unexpected())?),
        None => None,
    };
    Ok(Answer {
        at: at.parse().map_err(|_| unexpected())?,
        verdict: verdict.bytes().next().unwrap_or(b'?'),
        seq: seq.parse().ok(),
        token: token.parse().ok(),
        slot: slot.parse().ok(),
        remains: remains.parse().ok(),
        look: look.parse().ok(),
        ahead: ahead.parse().ok(),
        note,
    })
}

fn stored(row: &Row) -> Result<Stored> {
    let nanos = |micros: i64| u64::try_from(micros).unwrap_or(0).saturating_mul(1000);
    let mut stored = Stored {
        name: text(row, 0).ok_or_else(unexpected)?,
        revision: number(row, 1).unwrap_or(0),
        register: StoredRegister::default(),
        now: nanos(number(row, 7).ok_or_else(unexpected)?),
    };
    if stored.revision == 0 {
        return Ok(stored);
    }
    let fence = text(row, 5).ok_or_else(unexpected)?;
    let cells: Vec<(Option<u32>, String, [u64; 3])> =
        serde_json::from_str(&fence).map_err(|error| unexpected().because(error))?;
    stored.register = StoredRegister {
        value: match row.as_ref(2) {
            Some(Value::Bytes(value)) => Some(Bytes::copy_from_slice(value)),
            _ => None,
        },
        version: number(row, 3).and_then(|version| version.try_into().ok()).ok_or_else(unexpected)?,
        stamp: number(row, 4).map(i64::cast_unsigned),
        fence: Fence::from_cells(
            cells.into_iter().map(|(slot, source, marks)| (slot, Source::new(source), marks)),
        ),
        expires: number(row, 6).map(nanos),
    };
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let said = answer("2|q|17|||15000000|900|3|").unwrap();
        assert_eq!((said.at, said.verdict, said.seq, said.token), (2, b'q', Some(17), None));
        assert_eq!((said.look, said.ahead, said.note), (Some(900), Some(3), None));
        let noted = answer("1|l|||||||x657669637465642061").unwrap();
        assert_eq!(noted.note.as_deref(), Some("evicted a"));
        assert!(answer("1|g|2").is_err() && answer("1|l|||||||xzz").is_err());
    }
}
