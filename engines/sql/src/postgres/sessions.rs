//! What is noted of session locks, and who has them.

use palisade_core::{ClaimId, Result};
use tokio_postgres::Row;
use uuid::Uuid;

use super::line::{Bound, Line};
use super::statement::Verb;
use crate::advisory::{Note, Seen};
use crate::error::unexpected;

impl Line {
    /// Forgets what was noted of some claims, and notes others.
    pub(crate) async fn note(&self, namespace: &str, gone: &[ClaimId], notes: &[Note]) -> Result<()> {
        let uuid = |id: ClaimId| Uuid::from_bytes(*id.as_bytes());
        let gone: Vec<Uuid> = gone.iter().map(|id| uuid(*id)).collect();
        let ids: Vec<Uuid> = notes.iter().map(|note| uuid(note.id)).collect();
        let seats: Vec<&str> = notes.iter().map(|note| note.seat.as_str()).collect();
        let keys: Vec<i64> = notes.iter().map(|note| note.key).collect();
        let resources: Vec<&str> = notes.iter().map(|note| note.resource.as_str()).collect();
        let families: Vec<i16> = notes.iter().map(|note| note.family).collect();
        let tokens: Vec<Option<i64>> = notes.iter().map(|note| note.token).collect();
        let ages: Vec<i64> = notes.iter().map(|note| note.age).collect();
        let owners: Vec<&str> = notes.iter().map(|note| &*note.owner).collect();
        let values: Vec<Option<&[u8]>> = notes.iter().map(|note| note.value.as_deref()).collect();
        let bound: [Bound<'_>; 11] =
            [&namespace, &gone, &ids, &seats, &keys, &resources, &families, &tokens, &ages, &owners, &values];
        self.run(Verb::Note, &bound).await.map(drop)
    }

    /// Who has a lock and who waits for it; all of the connections whose names begin with `seats` if there is no key.
    pub(crate) async fn sessions(&self, namespace: &str, key: Option<i64>, seats: &str) -> Result<Vec<Seen>> {
        let (rows, _) = self.run(Verb::Sessions, &[&namespace, &key, &seats]).await?;
        rows.iter().map(seen).collect()
    }

    /// Forgets what was noted by connections that are gone.
    pub(crate) async fn sweep_sessions(&self) -> Result<()> {
        self.run(Verb::SweepSessions, &[]).await.map(drop)
    }
}

fn seen(row: &Row) -> Result<Seen> {
    fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T> {
        row.try_get(at).map_err(|error| unexpected().because(error))
    }
    let resource: Option<String> = get(row, 5)?;
    Ok(Seen {
        pid: i64::from(get::<i32>(row, 0)?),
        seat: get::<Option<String>>(row, 1)?.unwrap_or_default(),
        key: get(row, 2)?,
        granted: get(row, 3)?,
        exclusive: get(row, 4)?,
        noted: resource.zip(get(row, 6)?),
    })
}
