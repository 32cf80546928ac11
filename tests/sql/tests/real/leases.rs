//! Claims that are renewed together share a row, and still end one by one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::Client;
use palisade_core::{Claim, Claimed, GoneReason, Mode, Name, Owner, Renewed, Ttl, Waited};
use palisade_sql_trials::{client, postgres, soon, until};
use palisade_testkit::servers::{PostgresOptions, PostgresServer};

const TTL: Duration = Duration::from_secs(3);

fn claims(count: usize, ttl: Duration) -> Result<Vec<Arc<Claim>>> {
    let owner = Arc::new(Owner::this_process());
    let claim = |at: usize| -> Result<Arc<Claim>> {
        let name = Name::new(format!("held/{at}"))?;
        Ok(Arc::new(Claim::new(name, Mode::Exclusive, Ttl::new(ttl)?, Arc::clone(&owner))))
    };
    (0..count).map(claim).collect()
}

async fn take(client: &Client, claims: &[Arc<Claim>]) -> Result<()> {
    for some in claims.chunks(64) {
        for answer in client.engine().claim_each(some).await {
            ensure!(matches!(answer?, Claimed::Granted(_)), "it is free, and is not granted");
        }
    }
    Ok(())
}

/// Renews claims, all of which must be valid.
async fn renew(client: &Client, claims: &[Arc<Claim>]) -> Result<()> {
    for answer in client.engine().renew(claims).await? {
        ensure!(matches!(answer, Renewed::Valid { .. }), "renewed in time, but {answer:?}");
    }
    Ok(())
}

/// Claims that are on one lease, of a client.
async fn together(server: &PostgresServer, count: usize) -> Result<(Client, Vec<Arc<Claim>>)> {
    let one = client(&server.url()).await?;
    let claims = claims(count, TTL)?;
    take(&one, &claims).await?;
    renew(&one, &claims).await?;
    let leases = server.psql("SELECT count(DISTINCT lease), count(lease) FROM palisade.claim").await?;
    ensure!(leases.trim() == format!("1|{count}"), "leases and claims on them: {leases}");
    Ok((one, claims))
}

#[tokio::test]
async fn many_held_cost_one_statement_and_few_rows() -> Result<()> {
    let settings = vec!["shared_preload_libraries=pg_stat_statements".to_owned()];
    let server = PostgresServer::start(PostgresOptions { settings, ..PostgresOptions::default() }).await?;
    server.psql("CREATE EXTENSION pg_stat_statements").await?;
    let one = client(&server.url()).await?;
    let claims = claims(10_000, Duration::from_mins(5))?;
    take(&one, &claims).await?;
    renew(&one, &claims[..7_000]).await?;
    renew(&one, &claims).await?;
    let statements = "SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE '%\"palisade\".%'";
    server.psql("SELECT pg_stat_statements_reset()").await?;
    renew(&one, &claims).await?;
    let calls = server.psql(statements).await?;
    ensure!(calls.trim() == "1", "{} statements", calls.trim());
    let rows = "SELECT sum(rows), bool_and(query LIKE '%\"palisade\".keep(%') FROM pg_stat_statements WHERE query LIKE '%\"palisade\".%'";
    let rows = server.psql(rows).await?;
    let (touched, kept) = rows.trim().split_once('|').context("two columns")?;
    ensure!(kept == "t" && touched.parse::<u32>()? <= 10, "{touched} rows");
    ensure!(server.psql("SELECT count(*) FROM palisade.lease").await?.trim().parse::<u32>()? <= 10);
    one.engine().withdraw(&claims).await?;
    ensure!(server.psql("SELECT count(*) FROM palisade.claim").await?.trim() == "0", "claims are left");
    Ok(())
}

#[tokio::test]
async fn what_another_client_asked_for_is_renewed_by_no_lease_of_ours() -> Result<()> {
    let server = postgres().await?;
    let (_one, held) = together(&server, 2).await?;
    let two = client(&server.url()).await?;
    // They are on the first one's lease number 1; the second's first would have that number, too.
    take(&two, &held).await?;
    let ends = async || server.psql("SELECT min(expires) FROM palisade.claim").await;
    for _ in 0..3 {
        let before = ends().await?;
        renew(&two, &held).await?;
        ensure!(ends().await? > before, "they are called renewed, and end as before");
    }
    Ok(())
}

#[tokio::test]
async fn who_is_not_renewed_ends_though_its_lease_goes_on() -> Result<()> {
    let server = postgres().await?;
    let (one, held) = together(&server, 4).await?;
    let two = client(&server.url()).await?;
    let next = Arc::clone(&claims(1, Duration::from_mins(1))?[0]);
    ensure!(matches!(two.engine().claim(&next).await?, Claimed::Queued(_)), "two hold at once");
    let waiting = soon("the turn", two.engine().wait(&next));
    let mut waiting = std::pin::pin!(waiting);
    let turn = loop {
        renew(&one, &held[1..]).await?;
        if let Ok(turn) = tokio::time::timeout(TTL / 10, &mut waiting).await {
            break turn??;
        }
    };
    ensure!(matches!(turn, Waited::Granted(_)), "{turn:?}");
    let answers = one.engine().renew(&held).await?;
    ensure!(matches!(answers[0], Renewed::Gone(_)), "what expired was renewed");
    ensure!(answers[1..].iter().all(|answer| matches!(answer, Renewed::Valid { .. })), "{answers:?}");
    Ok(())
}

#[tokio::test]
async fn who_was_ended_by_others_is_told_at_its_renewal() -> Result<()> {
    let server = postgres().await?;
    let (one, held) = together(&server, 4).await?;
    let two = client(&server.url()).await?;
    two.engine().evict(&held[0].resource, held[0].id, "enough").await?;
    two.engine().withdraw(&held[1..2]).await?;
    let answers = one.engine().renew(&held).await?;
    let evicted = Renewed::Gone(GoneReason::Evicted { reason: "enough".to_owned() });
    ensure!(answers[0] == evicted, "{answers:?}");
    ensure!(matches!(answers[1], Renewed::Gone(_)), "{answers:?}");
    ensure!(answers[2..].iter().all(|answer| matches!(answer, Renewed::Valid { .. })), "{answers:?}");
    renew(&one, &held[2..]).await
}

#[tokio::test]
async fn a_lease_that_ends_ends_all_and_is_not_renewed() -> Result<()> {
    let server = postgres().await?;
    let (one, held) = together(&server, 3).await?;
    let two = client(&server.url()).await?;
    let next = Arc::clone(&claims(3, Duration::from_mins(1))?[2]);
    until("one is free", async || Ok(matches!(two.engine().claim(&next).await?, Claimed::Granted(_))))
        .await?;
    for answer in one.engine().renew(&held).await? {
        ensure!(matches!(answer, Renewed::Gone(_)), "what expired was renewed: {answer:?}");
    }
    Ok(())
}

/// Renews many claims in changing companies while each is handed over from one to the next.
#[tokio::test]
async fn renewals_and_hand_overs_do_not_wait_for_each_other() -> Result<()> {
    const ROUNDS: usize = 40;
    let server = postgres().await?;
    let (one, two) = (client(&server.url()).await?, client(&server.url()).await?);
    for round in 0..ROUNDS {
        let (held, next) = (claims(12, Duration::from_mins(1))?, claims(12, Duration::from_mins(1))?);
        take(&one, &held).await?;
        for claim in &next {
            ensure!(matches!(two.engine().claim(claim).await?, Claimed::Queued(_)), "two hold at once");
        }
        renew(&two, &next).await?;
        let (left, right) = (one.engine(), two.engine());
        let company = |at: usize| -> Vec<Arc<Claim>> {
            next.iter().skip((round + at) % 5).step_by(1 + at % 3).map(Arc::clone).collect()
        };
        let (first, second, third) = (company(0), company(1), company(2));
        let results = futures::join!(
            left.withdraw(&held),
            right.renew(&first),
            right.renew(&second),
            left.renew(&held),
            right.renew(&third),
        );
        results.0?;
        for answers in [results.1?, results.2?, results.4?] {
            ensure!(answers.iter().all(|answer| matches!(answer, Renewed::Valid { .. })), "{answers:?}");
        }
        for claim in &next {
            let turn = soon("the turn", two.engine().wait(claim)).await??;
            ensure!(matches!(turn, Waited::Granted(_)), "{turn:?}");
        }
        renew(&two, &next).await?;
        two.engine().withdraw(&next).await?;
    }
    let deadlocks = server.psql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'").await?;
    ensure!(deadlocks.trim() == "0", "{} deadlocks", deadlocks.trim());
    Ok(())
}
