//! Fences, on every driver.

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use palisade_core::{FencingToken, Token, TokenKind};
use palisade_fence::{Database, DbErrorKind, Fence, FenceError, Transaction};
use palisade_fence_trials::{Place, number, run, soon, token};

async fn prepared<P: Place>(place: &P) -> Result<P::Db> {
    let mut database = place.open().await?;
    let mut tx = database.begin().await?;
    Fence::create(&mut tx).await?;
    tx.commit().await?;
    run(&mut database, &["CREATE TABLE effect (token BIGINT NOT NULL)"]).await?;
    Ok(database)
}

/// Writes under the fence, in one transaction; what is refused is rolled back.
async fn write<D: Database>(database: &mut D, fence: &Fence, token: &FencingToken) -> Result<(), FenceError> {
    let mut tx = database.begin().await?;
    fence.admit(&mut tx, token).await?;
    let number = token.token.get().cast_signed();
    tx.execute("INSERT INTO effect (token) VALUES (?)", &[number.into()]).await?;
    Ok(tx.commit().await?)
}

async fn mark<D: Database>(database: &mut D, fence: &Fence) -> Result<Option<u64>> {
    let mut tx = database.begin().await?;
    Ok(fence.mark(&mut tx, None).await?.map(Token::get))
}

async fn whoever_lost_the_lock_writes_nothing<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let client = palisade::connect("memory:").await?;
    let mutex = client.mutex("card:7")?;
    let old = mutex.acquire().await?;
    let fence = Fence::of(&old.resource());
    let mut tx = database.begin().await?;
    fence.admit(&mut tx, &old).await?;
    fence.admit(&mut tx, &old).await?;
    tx.commit().await?;
    // As after a pause beyond the TTL: the next one has been there.
    client.evict("card:7", old.claim_id(), "test").await?;
    let new = mutex.acquire().await?;
    write(&mut database, &fence, &new.fencing_token()).await?;
    match write(&mut database, &fence, &old.fencing_token()).await {
        Err(FenceError::Stale { yours, current }) => {
            ensure!(yours == old.token() && current == new.token(), "{yours} {current}");
        }
        other => bail!("a zombie was let in: {other:?}"),
    }
    ensure!(number(&mut database, "SELECT COUNT(*) FROM effect").await? == 1, "it wrote nothing");
    write(&mut database, &fence, &new.fencing_token()).await?;
    Ok(())
}

async fn what_is_rolled_back_raises_nothing<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let fence = Fence::new("r")?;
    write(&mut database, &fence, &token(5, "a")).await?;
    let mut tx = database.begin().await?;
    fence.admit(&mut tx, token(9, "a")).await?;
    drop(tx);
    ensure!(mark(&mut database, &fence).await? == Some(5), "9 was never there");
    write(&mut database, &fence, &token(6, "a")).await?;
    Ok(())
}

async fn reading_raises_and_strict_allows_one_write<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let fence = Fence::new("r")?.strict();
    let mut tx = database.begin().await?;
    fence.open(&mut tx, token(7, "a")).await?;
    tx.commit().await?;
    ensure!(matches!(write(&mut database, &fence, &token(6, "a")).await, Err(FenceError::Stale { .. })), "6");
    write(&mut database, &fence, &token(7, "a")).await?;
    match write(&mut database, &fence, &token(7, "a")).await {
        Err(FenceError::Spent { yours, current }) => ensure!(yours == current, "{yours} {current}"),
        other => bail!("a second write passed: {other:?}"),
    }
    let mut tx = database.begin().await?;
    fence.open(&mut tx, token(7, "a")).await?;
    Ok(())
}

async fn tokens_of_another_engine_wait_for_an_operator<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let fence = Fence::new("r")?;
    write(&mut database, &fence, &token(1_800_000_000_000_000, "redis")).await?;
    let moved = token(4000, "etcd");
    match write(&mut database, &fence, &moved).await {
        Err(FenceError::OtherSource { yours, current }) => {
            ensure!(yours.as_str() == "etcd" && current.as_str() == "redis", "{yours} {current}");
        }
        other => bail!("tokens were compared: {other:?}"),
    }
    let mut tx = database.begin().await?;
    fence.rebase(&mut tx, &moved).await?;
    tx.commit().await?;
    write(&mut database, &fence, &moved).await?;
    ensure!(write(&mut database, &fence, &token(1_800_000_000_000_001, "redis")).await.is_err(), "for good");
    Ok(())
}

async fn slots_readers_and_names_are_kept_apart<P: Place>(place: P) -> Result<()> {
    let mut database = prepared(&place).await?;
    let slot = |number, slot| FencingToken { slot: Some(slot), ..token(number, "a") };
    let fence = Fence::new("r")?;
    write(&mut database, &fence, &slot(9, 1)).await?;
    write(&mut database, &fence, &slot(5, 0)).await?;
    ensure!(write(&mut database, &fence, &slot(8, 1)).await.is_err(), "8 after 9");
    ensure!(write(&mut database, &fence, &token(8, "a")).await.is_err(), "the whole after a slot");
    let readers = Fence::new("readers")?;
    let shared = |number| FencingToken { kind: TokenKind::Shared, ..token(number, "a") };
    write(&mut database, &readers, &shared(7)).await?;
    write(&mut database, &readers, &shared(6)).await?;
    ensure!(write(&mut database, &readers, &token(6, "a")).await.is_err(), "a writer after a reader");
    // Names that differ only by case, accents, trailing blanks or quotes.
    for (at, name) in
        ["x", "X", "x ", "ẋ", "x'; DROP TABLE effect; --", "x\\", "🚲", "?", "%"].iter().enumerate()
    {
        let fence = Fence::new(name)?;
        ensure!(mark(&mut database, &fence).await?.is_none(), "{name} is new");
        write(&mut database, &fence, &token(100 - at as u64, "a")).await?;
        let tenant = fence.in_namespace("tenant")?;
        ensure!(mark(&mut database, &tenant).await?.is_none(), "{name} of another namespace");
        write(&mut database, &tenant, &token(1, "b")).await?;
    }
    Ok(())
}

async fn a_missing_table_is_told<P: Place>(place: P) -> Result<()> {
    let mut database = place.open().await?;
    let mut tx = database.begin().await?;
    match Fence::new("r")?.admit(&mut tx, token(1, "a")).await {
        Err(FenceError::Db(error)) => ensure!(error.kind() == DbErrorKind::MissingTable, "{error}"),
        other => bail!("{other:?}"),
    }
    Ok(())
}

palisade_fence_trials::on_every_driver!(
    whoever_lost_the_lock_writes_nothing,
    what_is_rolled_back_raises_nothing,
    reading_raises_and_strict_allows_one_write,
    tokens_of_another_engine_wait_for_an_operator,
    slots_readers_and_names_are_kept_apart,
    a_missing_table_is_told,
);

mod rivals {
    use super::*;

    /// Writers with rising tokens at once: whatever they do, effects come in the order of tokens.
    async fn effects_come_in_the_order_of_tokens<P: Place>(place: P) -> Result<()> {
        const WRITERS: u64 = 12;
        let mut database = place.open().await?;
        let mut tx = database.begin().await?;
        Fence::create(&mut tx).await?;
        tx.commit().await?;
        let id = match database.begin().await?.dialect() {
            palisade_fence::Dialect::MySql => "id BIGINT AUTO_INCREMENT PRIMARY KEY",
            _ => "id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        };
        run(&mut database, &[&format!("CREATE TABLE effect ({id}, token BIGINT NOT NULL)")]).await?;
        let fence = Fence::new("r")?;
        for round in 0..5 {
            let mut writers = Vec::new();
            for writer in 1..=WRITERS {
                let (mut database, fence) = (place.open().await?, fence.clone());
                let token = token(round * 100 + writer, "a");
                writers.push(async move {
                    match write(&mut database, &fence, &token).await {
                        Ok(()) => Ok(1),
                        Err(FenceError::Stale { .. }) => Ok(0),
                        Err(other) => Err(other),
                    }
                });
            }
            let written: i64 = soon("all writers", try_join_all(writers)).await??.iter().sum();
            ensure!(written >= 1, "the greatest is always let in");
            ensure!(
                mark(&mut database, &fence).await? == Some(round * 100 + WRITERS),
                "the mark is the greatest"
            );
        }
        let disorder = "SELECT COUNT(*) FROM effect a JOIN effect b ON a.id < b.id AND a.token > b.token";
        ensure!(number(&mut database, disorder).await? == 0, "an older holder wrote after a newer one");
        Ok(())
    }

    palisade_fence_trials::on_every_server!(effects_come_in_the_order_of_tokens);
}
