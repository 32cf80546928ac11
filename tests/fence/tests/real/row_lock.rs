//! Row locks in the caller's transaction.

use anyhow::{Result, ensure};
use palisade_fence::{Database, DbErrorKind, RowLock, RowLocked, Transaction, Value};
use palisade_fence_trials::{Place, Rusqlite, run, soon};

async fn prepared<P: Place>(place: &P) -> Result<P::Db> {
    let mut database = place.open().await?;
    let table = "CREATE TABLE job (id INT PRIMARY KEY, state VARCHAR(20) NOT NULL, price DECIMAL(8, 2))";
    let rows = "INSERT INTO job VALUES (1, 'new', 1.50), (2, 'new', NULL), (3, 'new', 3), (4, 'done', 4)";
    run(&mut database, &[table, rows]).await?;
    Ok(database)
}

fn job(id: i64) -> Result<RowLock> {
    Ok(RowLock::on("job")?.key("id", id)?.column("state")?.column_as_text("price")?)
}

async fn a_row_is_locked_busy_or_absent<P: Place>(place: P) -> Result<()> {
    let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
    let (mut holder, mut other) = (one.begin().await?, two.begin().await?);
    let locked = job(1)?.lock(&mut holder).await?;
    ensure!(locked == RowLocked::Locked(vec!["new".into(), "1.50".into()]), "{locked:?}");
    ensure!(job(1)?.try_lock(&mut other).await? == RowLocked::Busy, "nowait");
    ensure!(job(1)?.skip_locked(&mut other).await? == RowLocked::Busy, "skip locked");
    for absent in [job(9)?.lock(&mut other).await?, job(9)?.try_lock(&mut other).await?] {
        ensure!(absent == RowLocked::Absent, "{absent:?}");
    }
    ensure!(job(9)?.skip_locked(&mut other).await? == RowLocked::Absent, "skip locked");
    // The transaction that was told *busy* goes on.
    let second = job(2)?.try_lock(&mut other).await?;
    ensure!(second == RowLocked::Locked(vec!["new".into(), Value::Null]), "{second:?}");
    other.execute("UPDATE job SET state = 'taken' WHERE id = 2", &[]).await?;
    other.commit().await?;
    holder.commit().await?;
    let mut tx = two.begin().await?;
    let freed = job(1)?.try_lock(&mut tx).await?;
    ensure!(matches!(freed, RowLocked::Locked(_)), "{freed:?}");
    Ok(())
}

async fn who_waits_sees_what_the_holder_wrote<P: Place>(place: P) -> Result<()> {
    let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
    let mut holder = one.begin().await?;
    job(1)?.lock(&mut holder).await?;
    let waits = async {
        let mut tx = two.begin().await?;
        let locked = job(1)?.lock(&mut tx).await?;
        anyhow::Ok(locked)
    };
    let writes = async {
        holder.execute("UPDATE job SET state = 'written' WHERE id = 1", &[]).await?;
        holder.commit().await?;
        anyhow::Ok(())
    };
    let (locked, written) = soon("both", futures::future::join(waits, writes)).await?;
    written?;
    ensure!(locked? == RowLocked::Locked(vec!["written".into(), "1.50".into()]), "the latest is read");
    Ok(())
}

async fn workers_take_jobs_of_their_own<P: Place>(place: P) -> Result<()> {
    let (mut one, mut two) = (prepared(&place).await?, place.open().await?);
    let jobs = RowLock::on("job")?.key("state", "new")?.column("id")?.order_by("id")?;
    let (mut first, mut second) = (one.begin().await?, two.begin().await?);
    let ids = |rows: Vec<Vec<Value>>| rows.iter().filter_map(|row| row[0].as_i64()).collect::<Vec<_>>();
    ensure!(ids(jobs.take(&mut first, 2).await?) == [1, 2], "the first two");
    ensure!(ids(jobs.take(&mut second, 2).await?) == [3], "what is left");
    Ok(())
}

palisade_fence_trials::on_every_server!(
    a_row_is_locked_busy_or_absent,
    who_waits_sees_what_the_holder_wrote,
    workers_take_jobs_of_their_own,
);

#[tokio::test]
async fn sqlite_says_that_it_has_none() -> Result<()> {
    let place = Rusqlite::new().await?;
    let mut database = prepared(&place).await?;
    let mut tx = database.begin().await?;
    let refused = job(1)?.lock(&mut tx).await;
    ensure!(refused.is_err_and(|error| error.kind() == DbErrorKind::Unsupported), "it has no rows' locks");
    Ok(())
}
