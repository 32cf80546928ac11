//! Optimistic tables.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use palisade_fence::{
    Backoff, Database, DbErrorKind, Dialect, OnConflict, Record, Transaction, UpdateError, Value, Versioned,
    Written,
};
use palisade_fence_trials::{Place, number, run, soon};

async fn prepared<P: Place>(place: &P) -> Result<P::Db> {
    let mut database = place.open().await?;
    let at = match database.begin().await?.dialect() {
        Dialect::Postgres => "TIMESTAMPTZ",
        Dialect::MySql => "DATETIME(6)",
        Dialect::Sqlite => "TEXT",
    };
    let table = format!(
        "CREATE TABLE account (id INT NOT NULL, branch VARCHAR(20) NOT NULL, balance INT, price DECIMAL(8, 2), \
         note VARCHAR(50), version INT NOT NULL, changed {at} NOT NULL, PRIMARY KEY (id, branch))"
    );
    let rows = "INSERT INTO account VALUES (7, 'north', 1000, 1.50, NULL, 1, '2026-01-01 00:00:00')";
    run(&mut database, &[&table, rows]).await?;
    Ok(database)
}

fn table() -> Result<Versioned> {
    Ok(Versioned::table("account")?.key("id")?.key("branch")?.column("balance")?.column("note")?)
}

fn by_number() -> Result<Versioned> {
    Ok(table()?.version("version")?)
}

fn by_time() -> Result<Versioned> {
    Ok(table()?.timestamp("changed")?)
}

fn key() -> Vec<Value> {
    vec![7.into(), "north".into()]
}

fn balance(record: &Record) -> i64 {
    record.get("balance").and_then(Value::as_i64).unwrap_or_default()
}

async fn who_comes_second_is_told_what_is_there<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    for (accounts, start) in [(by_number()?, 1000), (by_time()?, 500)] {
        let mut tx = database.begin().await?;
        let mine = accounts.read(&mut tx, &key()).await?.context("there")?;
        tx.commit().await?;
        ensure!(balance(&mine) == start && mine.get("note") == Some(&Value::Null), "{mine:?}");
        let mut tx = database.begin().await?;
        let Written::Done(now) = accounts.write(&mut tx, &mine, &[("balance", 500.into())]).await? else {
            bail!("the first is written");
        };
        tx.commit().await?;
        ensure!(now.version() != mine.version(), "{now:?}");
        let mut tx = database.begin().await?;
        match accounts.write(&mut tx, &mine, &[("balance", 700.into()), ("note", "x".into())]).await? {
            Written::Conflict(current) => ensure!(current == now, "{current:?} {now:?}"),
            other => bail!("an update was lost: {other:?}"),
        }
        let Written::Done(last) = accounts.write(&mut tx, &now, &[("note", Value::Null)]).await? else {
            bail!("nothing has changed since");
        };
        tx.execute("DELETE FROM account WHERE id = 99", &[]).await?;
        tx.commit().await?;
        ensure!(balance(&last) == 500, "{last:?}");
    }
    run(&mut database, &["DELETE FROM account"]).await?;
    let mut tx = database.begin().await?;
    ensure!(by_number()?.read(&mut tx, &key()).await?.is_none(), "nothing there");
    Ok(())
}

async fn a_row_that_is_gone_is_told<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let accounts = by_number()?;
    let mut tx = database.begin().await?;
    let mine = accounts.read(&mut tx, &key()).await?.context("there")?;
    tx.execute("DELETE FROM account", &[]).await?;
    ensure!(accounts.write(&mut tx, &mine, &[("balance", 1.into())]).await? == Written::Gone, "gone");
    tx.commit().await?;
    let none = accounts.update(&mut database, &key(), OnConflict::Abort, |_| vec![]).await;
    ensure!(matches!(none, Err(UpdateError::Gone)), "{none:?}");
    Ok(())
}

async fn types_of_the_database_go_by_a_cast<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let priced = by_number()?.column_as_text("price")?;
    let mut tx = database.begin().await?;
    let mine = priced.read(&mut tx, &key()).await?.context("there")?;
    let price = Value::cast("2.25", "decimal(8, 2)")?;
    let Written::Done(now) = priced.write(&mut tx, &mine, &[("price", price)]).await? else {
        bail!("written")
    };
    ensure!(now.get("price").and_then(Value::as_str) == Some("2.25"), "{now:?}");
    for hostile in ["text); DROP TABLE account; --", "", "a'b"] {
        ensure!(Value::cast("1", hostile).is_err(), "{hostile}");
    }
    let hostile = priced.write(&mut tx, &now, &[("price\" = 0; --", 1.into())]).await;
    ensure!(hostile.is_err_and(|error| error.kind() == DbErrorKind::Invalid), "a column is checked");
    Ok(())
}

async fn a_coarse_clock_is_no_version<P: Place>(place: P) -> Result<()> {
    let mut database = place.open().await?;
    let day = match database.begin().await?.dialect() {
        Dialect::Postgres | Dialect::MySql => "DATE",
        // Text is as fine as what is written to it.
        Dialect::Sqlite => return Ok(()),
    };
    let table = format!("CREATE TABLE t (id INT PRIMARY KEY, changed {day} NOT NULL)");
    run(&mut database, &[&table, "INSERT INTO t VALUES (1, '2026-01-01')"]).await?;
    let coarse = Versioned::table("t")?.key("id")?.timestamp("changed")?;
    let write = async |database: &mut P::Db| {
        let mut tx = database.begin().await?;
        let mine = coarse.read(&mut tx, &[1.into()]).await?.context("there")?;
        let written = coarse.write(&mut tx, &mine, &[]).await?;
        tx.commit().await?;
        anyhow::Ok(written)
    };
    write(&mut database).await?;
    let second = write(&mut database).await;
    ensure!(second.is_err_and(|error| error.to_string().contains("too coarse")), "two writes on one day");
    Ok(())
}

async fn a_write_changes_one_row_and_not_its_key<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let accounts = by_number()?;
    let mut tx = database.begin().await?;
    let mine = accounts.read(&mut tx, &key()).await?.context("there")?;
    for fixed in ["id", "branch", "version"] {
        let told = accounts.write(&mut tx, &mine, &[("balance", 1.into()), (fixed, 8.into())]).await;
        ensure!(told.as_ref().is_err_and(|error| error.kind() == DbErrorKind::Invalid), "{fixed}: {told:?}");
    }
    let more = "INSERT INTO account VALUES (7, 'south', 1000, 1.50, NULL, 1, '2026-01-01 00:00:00')";
    tx.execute(more, &[]).await?;
    let half = Versioned::table("account")?.key("id")?.version("version")?.column("balance")?;
    let mine = half.read(&mut tx, &[7.into()]).await?.context("there")?;
    let told = half.write(&mut tx, &mine, &[("balance", 1.into())]).await;
    ensure!(told.as_ref().is_err_and(|error| error.to_string().contains("2 rows")), "{told:?}");
    Ok(())
}

palisade_fence_trials::on_every_driver!(
    a_write_changes_one_row_and_not_its_key,
    who_comes_second_is_told_what_is_there,
    a_row_that_is_gone_is_told,
    types_of_the_database_go_by_a_cast,
    a_coarse_clock_is_no_version,
);

mod rivals {
    use super::*;

    const RIVALS: i64 = 8;
    const EACH: i64 = 10;

    fn patient() -> Backoff {
        Backoff::default().tries(1000).pauses(Duration::from_millis(2), Duration::from_millis(50))
    }

    async fn retried_updates_all_count<P: Place>(place: P) -> Result<()> {
        let mut database = prepared(&place).await?;
        for accounts in [by_number()?, by_time()?] {
            let before = number(&mut database, "SELECT balance FROM account").await?;
            let mut rivals = Vec::new();
            for _ in 0..RIVALS {
                let (mut database, accounts) = (place.open().await?, accounts.clone());
                rivals.push(async move {
                    for _ in 0..EACH {
                        let policy = OnConflict::Retry(patient());
                        let add = |now: &Record| vec![("balance", (balance(now) + 1).into())];
                        accounts.update(&mut database, &key(), policy, add).await?;
                    }
                    Ok::<(), UpdateError>(())
                });
            }
            soon("all updates", try_join_all(rivals)).await??;
            let after = number(&mut database, "SELECT balance FROM account").await?;
            ensure!(after - before == RIVALS * EACH, "{before} became {after}");
        }
        Ok(())
    }

    async fn merged_updates_all_count<P: Place>(place: P) -> Result<()> {
        let mut database = prepared(&place).await?;
        let mut rivals = Vec::new();
        for _ in 0..RIVALS {
            let (mut database, accounts) = (place.open().await?, by_number()?);
            rivals.push(async move {
                for _ in 0..EACH {
                    let mut merge = |conflict: palisade_fence::Conflict<'_>| {
                        // What was added to the base is added to what is there.
                        let added = conflict.mine[0].1.as_i64()? - balance(conflict.base);
                        Some(vec![("balance", (balance(conflict.current) + added).into())])
                    };
                    let add = |now: &Record| vec![("balance", (balance(now) + 1).into())];
                    let policy = OnConflict::Merge(patient(), &mut merge);
                    accounts.update(&mut database, &key(), policy, add).await?;
                }
                Ok::<(), UpdateError>(())
            });
        }
        soon("all updates", try_join_all(rivals)).await??;
        ensure!(
            number(&mut database, "SELECT balance FROM account").await? == 1000 + RIVALS * EACH,
            "all count"
        );
        Ok(())
    }

    async fn an_abort_says_what_is_there<P: Place>(place: P) -> Result<()> {
        let (mut database, mut other) = (prepared(&place).await?, place.open().await?);
        let accounts = by_number()?;
        let mut tx = database.begin().await?;
        let mine = accounts.read(&mut tx, &key()).await?.context("there")?;
        run(&mut other, &["UPDATE account SET balance = 1, version = version + 1"]).await?;
        match accounts.write(&mut tx, &mine, &[("balance", 2.into())]).await? {
            Written::Conflict(current) => {
                ensure!(balance(&current) == 1, "the latest, not what was seen at first");
            }
            other => bail!("{other:?}"),
        }
        Ok(())
    }

    palisade_fence_trials::on_every_server!(
        retried_updates_all_count,
        merged_updates_all_count,
        an_abort_says_what_is_there,
    );
}
