use std::time::Instant;

use anyhow::Result;
use rusqlite::Connection;

use crate::stats::{Figure, Goal, median, micros, spread};
use crate::{folder, url};

/// Whether commits reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    Off,
    Full,
}

/// Take + release by one client, next to the two bare commits that they need.
pub(crate) async fn measure(sync: Sync) -> Result<Vec<Figure>> {
    let (rounds, pairs, goal, options) = match sync {
        Sync::Off => (15, 2000, 2.2, ""),
        Sync::Full => (7, 100, 1.4, "?sync=full"),
    };
    let (ours, bare) = (folder()?, folder()?);
    let client = palisade::connect(&format!("{}{options}", url(&ours))).await?;
    let mutex = client.mutex("bench")?;
    let raw = Raw::open(bare.path(), sync)?;
    let (mut ratios, mut ours_us, mut raw_us) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut times = Vec::with_capacity(pairs);
        for _ in 0..pairs {
            let start = Instant::now();
            let guard = mutex.acquire().await?;
            guard.release().await?;
            times.push(micros(start.elapsed()));
        }
        let mut raw_times = Vec::with_capacity(pairs);
        for number in 0..pairs {
            let start = Instant::now();
            raw.pair(round * pairs + number)?;
            raw_times.push(micros(start.elapsed()));
        }
        let (ours, raw) = (median(&mut times), median(&mut raw_times));
        ratios.push(ours / raw);
        ours_us.push(ours);
        raw_us.push(raw);
    }
    client.close().await;
    let (low, high) = spread(&ratios);
    let what = match sync {
        Sync::Off => "take + release / two bare commits",
        Sync::Full => "take + release / two bare commits, synced",
    };
    Ok(vec![Figure {
        what: what.to_owned(),
        value: median(&mut ratios),
        unit: "x",
        goal: Goal::AtMost(goal),
        detail: format!(
            "{:.1} us / {:.1} us, ratio {low:.2}-{high:.2}",
            median(&mut ours_us),
            median(&mut raw_us)
        ),
    }])
}

/// The bare commits: the same row, the same settings, nothing else.
struct Raw(Connection);

impl Raw {
    fn open(folder: &std::path::Path, sync: Sync) -> Result<Self> {
        let database = Connection::open(folder.join("raw.db"))?;
        // The engine's own choices, so that the ratio shows what it adds and not what it chose.
        database.pragma_update(None, "page_size", 1024)?;
        database.pragma_update(None, "journal_mode", "wal")?;
        database.pragma_update(None, "synchronous", if sync == Sync::Full { "full" } else { "off" })?;
        database.execute_batch(
            "CREATE TABLE claim(namespace TEXT, resource TEXT, seq INTEGER, id BLOB, session TEXT, state INTEGER,
                token INTEGER, expires INTEGER, owner TEXT, PRIMARY KEY(namespace, resource, seq)) WITHOUT ROWID",
        )?;
        Ok(Self(database))
    }

    fn pair(&self, number: usize) -> Result<()> {
        let run = |sql: &str| -> rusqlite::Result<usize> { self.0.prepare_cached(sql)?.execute([]) };
        let sequence = i64::try_from(number)?;
        run("BEGIN IMMEDIATE")?;
        self.0
            .prepare_cached("INSERT INTO claim VALUES('', 'bench', ?1, x'00112233445566778899aabbccddeeff', 'session', 1, ?1, ?1, ?2)")?
            .execute((sequence, OWNER))?;
        run("COMMIT")?;
        run("BEGIN IMMEDIATE")?;
        self.0
            .prepare_cached("DELETE FROM claim WHERE namespace = '' AND resource = 'bench' AND seq = ?1")?
            .execute([sequence])?;
        run("COMMIT")?;
        Ok(())
    }
}

/// As long as a real owner.
const OWNER: &str = r#"{"client":"0123456789ab","host":"bench-host","pid":12345}"#;
