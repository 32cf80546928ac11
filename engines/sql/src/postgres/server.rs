//! Our verbs as statements.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use palisade_core::{BootInstant, Change, Claim, ClaimId, Fence, Name, Result, Source, StoredRegister};
use tokio_postgres::Row;
use uuid::Uuid;

use super::line::{Bound, Line};
use super::statement::Verb;
use crate::error::unexpected;
use crate::rows::{Answer, How, Leaving, Stored, family_column, in_micros, mode_columns, signed, ttl};

impl Line {
    /// Asks for claims of one owner.
    pub(crate) async fn ask(
        &self,
        namespace: &str,
        client: &str,
        owner: &str,
        asks: &[(&Claim, How)],
    ) -> Result<(Vec<Answer>, BootInstant)> {
        if let [(claim, how)] = asks {
            return self.take(namespace, client, owner, claim, *how).await;
        }
        let resources: Vec<&str> = asks.iter().map(|(claim, _)| claim.resource.as_str()).collect();
        let ids: Vec<Uuid> = asks.iter().map(|(claim, _)| uuid(claim.id)).collect();
        let hows: Vec<i16> = asks.iter().map(|(_, how)| *how as i16).collect();
        let families: Vec<i16> = asks.iter().map(|(claim, _)| family_column(claim.family)).collect();
        let modes: Vec<i16> = asks.iter().map(|(claim, _)| mode_columns(claim.mode).0).collect();
        let slots: Vec<i32> = asks.iter().map(|(claim, _)| mode_columns(claim.mode).1).collect();
        let ttls: Vec<i64> = asks.iter().map(|(claim, _)| ttl(claim)).collect();
        let floors: Vec<i64> = asks.iter().map(|(claim, _)| floor(claim)).collect();
        let values: Vec<Option<&[u8]>> = asks.iter().map(|(claim, _)| claim.value.as_deref()).collect();
        let bound: [Bound<'_>; 12] = [
            &namespace, &client, &owner, &resources, &ids, &hows, &families, &modes, &slots, &ttls, &floors,
            &values,
        ];
        let (rows, sent) = self.run(Verb::Ask, &bound).await?;
        Ok((in_order(&rows, asks.len())?, sent))
    }

    async fn take(
        &self,
        namespace: &str,
        client: &str,
        owner: &str,
        claim: &Claim,
        how: How,
    ) -> Result<(Vec<Answer>, BootInstant)> {
        let (resource, id, how) = (claim.resource.as_str(), uuid(claim.id), how as i16);
        let (family, (mode, slots)) = (family_column(claim.family), mode_columns(claim.mode));
        let (ttl, floor, value) = (ttl(claim), floor(claim), claim.value.as_deref());
        let bound: [Bound<'_>; 12] =
            [&namespace, &client, &owner, &resource, &id, &how, &family, &mode, &slots, &ttl, &floor, &value];
        let (rows, sent) = self.run(Verb::Take, &bound).await?;
        Ok((vec![only_answer(&rows)?], sent))
    }

    pub(crate) async fn leave(
        &self,
        namespace: &str,
        client: &str,
        leaving: &[Leaving],
    ) -> Result<Vec<Answer>> {
        if let [Leaving { claim, doubtful, seq }] = leaving {
            let (resource, id, ttl) = (claim.resource.as_str(), uuid(claim.id), ttl(claim));
            let bound: [Bound<'_>; 7] = [&namespace, &client, &resource, &id, seq, doubtful, &ttl];
            let (rows, _) = self.run(Verb::Give, &bound).await?;
            return Ok(vec![only_answer(&rows)?]);
        }
        let resources: Vec<&str> = leaving.iter().map(|one| one.claim.resource.as_str()).collect();
        let ids: Vec<Uuid> = leaving.iter().map(|one| uuid(one.claim.id)).collect();
        let seqs: Vec<Option<i64>> = leaving.iter().map(|one| one.seq).collect();
        let doubts: Vec<bool> = leaving.iter().map(|one| one.doubtful).collect();
        let ttls: Vec<i64> = leaving.iter().map(|one| ttl(&one.claim)).collect();
        let bound: [Bound<'_>; 7] = [&namespace, &client, &resources, &ids, &seqs, &doubts, &ttls];
        let (rows, _) = self.run(Verb::Leave, &bound).await?;
        in_order(&rows, leaving.len())
    }

    /// Renews claims, each with its place and the number of a new lease, if any.
    pub(crate) async fn renew(
        &self,
        namespace: &str,
        client: &str,
        claims: &[(&Claim, Option<i64>, Option<i32>)],
    ) -> Result<(Vec<Answer>, BootInstant)> {
        let resources: Vec<&str> = claims.iter().map(|(claim, ..)| claim.resource.as_str()).collect();
        let ids: Vec<Uuid> = claims.iter().map(|(claim, ..)| uuid(claim.id)).collect();
        let seqs: Vec<Option<i64>> = claims.iter().map(|(_, seq, _)| *seq).collect();
        let ttls: Vec<i64> = claims.iter().map(|(claim, ..)| ttl(claim)).collect();
        let leases: Vec<Option<i32>> = claims.iter().map(|(.., lease)| *lease).collect();
        let bound: [Bound<'_>; 7] = [&namespace, &client, &resources, &ids, &seqs, &ttls, &leases];
        let (rows, sent) = self.run(Verb::Renew, &bound).await?;
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
        let numbers: Vec<i32> = leases.iter().map(|(number, _)| *number).collect();
        let ttls: Vec<i64> = leases.iter().map(|(_, ttl)| in_micros(*ttl)).collect();
        let resources: Vec<&str> = left.iter().map(|(claim, ..)| claim.resource.as_str()).collect();
        let ids: Vec<Uuid> = left.iter().map(|(claim, ..)| uuid(claim.id)).collect();
        let seqs: Vec<Option<i64>> = left.iter().map(|(_, seq, _)| *seq).collect();
        let of: Vec<i32> = left.iter().map(|(.., lease)| *lease).collect();
        let bound: [Bound<'_>; 8] = [&namespace, &client, &numbers, &ttls, &resources, &ids, &seqs, &of];
        let (rows, sent) = self.run(Verb::Keep, &bound).await?;
        Ok((rows.iter().map(|row| get(row, 0)).collect::<Result<_>>()?, sent))
    }

    pub(crate) async fn change(&self, namespace: &str, claim: &Claim, change: &Change) -> Result<Answer> {
        let (mode, value) = match change {
            Change::Mode(mode) => (Some(mode_columns(*mode)), None),
            Change::Value(value) => (None, value.as_deref()),
        };
        let (mode, slots) = (mode.map(|mode| mode.0), mode.map(|mode| mode.1));
        let (resource, id) = (claim.resource.as_str(), uuid(claim.id));
        let bound: [Bound<'_>; 6] = [&namespace, &resource, &id, &mode, &slots, &value];
        let (rows, _) = self.run(Verb::Change, &bound).await?;
        answer(rows.first().ok_or_else(unexpected)?)
    }

    pub(crate) async fn evict(
        &self,
        namespace: &str,
        resource: &Name,
        claim: ClaimId,
        reason: &str,
    ) -> Result<bool> {
        // The one character that a text cannot hold here.
        let (resource, id, reason) = (resource.as_str(), uuid(claim), reason.replace('\0', " "));
        let bound: [Bound<'_>; 4] = [&namespace, &resource, &id, &reason];
        let (rows, _) = self.run(Verb::Evict, &bound).await?;
        get(rows.first().ok_or_else(unexpected)?, 0)
    }

    pub(crate) async fn stand(
        &self,
        namespace: &str,
        claims: &[Arc<Claim>],
    ) -> Result<(Vec<Answer>, BootInstant)> {
        let resources: Vec<&str> = claims.iter().map(|claim| claim.resource.as_str()).collect();
        let ids: Vec<Uuid> = claims.iter().map(|claim| uuid(claim.id)).collect();
        let bound: [Bound<'_>; 3] = [&namespace, &resources, &ids];
        let (rows, sent) = self.run(Verb::Stand, &bound).await?;
        Ok((in_order(&rows, claims.len())?, sent))
    }

    /// Resources and claims as the view `shown` has them, by name and arrival.
    pub(crate) async fn show(
        &self,
        namespace: &str,
        exact: Option<&str>,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, String)>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let bound: [Bound<'_>; 5] = [&namespace, &exact, &prefix, &after, &limit];
        let (rows, _) = self.run(Verb::Show, &bound).await?;
        rows.iter().map(|row| Ok((get(row, 0)?, get(row, 1)?))).collect()
    }

    pub(crate) async fn fetch(&self, namespace: &str, name: &Name) -> Result<Stored> {
        let name = name.as_str();
        let (rows, _) = self.run(Verb::Fetch, &[&namespace, &name]).await?;
        stored(rows.first().ok_or_else(unexpected)?)
    }

    pub(crate) async fn fetch_all(&self, namespace: &str, prefix: &str) -> Result<Vec<Stored>> {
        let (rows, _) = self.run(Verb::FetchAll, &[&namespace, &prefix]).await?;
        rows.iter().map(stored).collect()
    }

    /// Stores a register unless it was changed since it was read.
    pub(crate) async fn store(&self, namespace: &str, changed: &Stored) -> Result<bool> {
        let register = &changed.register;
        let cells: Vec<_> =
            register.fence.to_cells().map(|(slot, source, marks)| (slot, source.as_str(), marks)).collect();
        let fence = serde_json::to_string(&cells).map_err(|error| unexpected().because(error))?;
        let (value, version) = (register.value.as_deref(), signed(register.version));
        let stamp = register.stamp.map(u64::cast_signed);
        // To the next microsecond: a value is gone after its time, and not before.
        let expires = register.expires.map(|at| signed(at.div_ceil(1000)));
        let bound: [Bound<'_>; 8] =
            [&namespace, &changed.name, &changed.revision, &value, &version, &stamp, &fence, &expires];
        let (rows, _) = self.run(Verb::Store, &bound).await?;
        get(rows.first().ok_or_else(unexpected)?, 0)
    }

    /// Removes what clients that are gone have left.
    pub(crate) async fn sweep(&self) -> Result<()> {
        self.run(Verb::Sweep, &[]).await.map(drop)
    }

    /// Has the server make ready what is asked for most, where it can keep that for this connection.
    pub(crate) async fn warm(&self) {
        if !self.keeps_statements() {
            return;
        }
        let warmed = async {
            self.run(Verb::SetUpSession, &[]).await?;
            for verb in [Verb::Take, Verb::Give] {
                self.prepare(verb).await.map_err(super::error::failed)?;
            }
            self.run(Verb::Warm, &[]).await
        };
        if let Err(error) = warmed.await {
            tracing::debug!(%error, "statements will take longer");
        }
    }

    /// Listens on a channel of our own, whose name needs no quotes.
    pub(crate) async fn listen(&self, channel: &str) -> Result<()> {
        self.text(&format!("LISTEN {channel}")).await.map(drop).map_err(super::error::failed)
    }

    pub(crate) async fn notify(&self, channel: &str, message: &str) -> Result<()> {
        self.run(Verb::Notify, &[&channel, &message]).await.map(drop)
    }
}

fn uuid(id: ClaimId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

fn floor(claim: &Claim) -> i64 {
    claim.token_floor.map_or(0, |floor| signed(floor.get()))
}

fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| unexpected().because(error))
}

fn answer(row: &Row) -> Result<Answer> {
    let verdict: &str = get(row, 1)?;
    Ok(Answer {
        at: get::<Option<i32>>(row, 0)?.and_then(|at| at.try_into().ok()).unwrap_or(1),
        verdict: verdict.as_bytes().first().copied().unwrap_or(b'?'),
        seq: get(row, 2)?,
        token: get(row, 3)?,
        slot: get(row, 4)?,
        remains: get(row, 5)?,
        look: get(row, 6)?,
        ahead: get(row, 7)?,
        note: get(row, 8)?,
    })
}

/// The answer about one claim: a text, by the function `text_of`.
fn only_answer(rows: &[Row]) -> Result<Answer> {
    let text: &str = get(rows.first().ok_or_else(unexpected)?, 0)?;
    Answer::parse(text).ok_or_else(unexpected)
}

/// Answers in the order asked: the server decides in an order of its own.
fn in_order(rows: &[Row], count: usize) -> Result<Vec<Answer>> {
    let mut answers = rows.iter().map(answer).collect::<Result<Vec<_>>>()?;
    answers.sort_by_key(|answer| answer.at);
    let whole = answers.len() == count && answers.iter().zip(1..).all(|(answer, at)| answer.at == at);
    if whole { Ok(answers) } else { Err(unexpected()) }
}

fn stored(row: &Row) -> Result<Stored> {
    let nanos = |micros: i64| u64::try_from(micros).unwrap_or(0).saturating_mul(1000);
    let name: &str = get(row, 0)?;
    let mut stored = Stored {
        name: name.to_owned(),
        revision: get::<Option<i64>>(row, 1)?.unwrap_or(0),
        register: StoredRegister::default(),
        now: nanos(get(row, 7)?),
    };
    if stored.revision == 0 {
        return Ok(stored);
    }
    let fence: &str = get(row, 5)?;
    let cells: Vec<(Option<u32>, String, [u64; 3])> =
        serde_json::from_str(fence).map_err(|error| unexpected().because(error))?;
    stored.register = StoredRegister {
        value: get::<Option<&[u8]>>(row, 2)?.map(Bytes::copy_from_slice),
        version: get::<i64>(row, 3)?.try_into().map_err(|_| unexpected())?,
        stamp: get::<Option<i64>>(row, 4)?.map(i64::cast_unsigned),
        fence: Fence::from_cells(
            cells.into_iter().map(|(slot, source, marks)| (slot, Source::new(source), marks)),
        ),
        expires: get::<Option<i64>>(row, 6)?.map(nanos),
    };
    Ok(stored)
}
