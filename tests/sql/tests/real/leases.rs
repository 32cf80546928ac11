//! Claims that are renewed together share a row, and still end one by one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use palisade::Client;
use palisade_core::{Claim, Claimed, GoneReason, Mode, Name, Owner, Renewed, Ttl, Waited, Withdrawn};
use palisade_sql_trials::{client, mariadb, soon, until};
use palisade_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};

const TTL: Duration = Duration::from_secs(3);

enum Place {
    Postgres(PostgresServer),
    MySql(MariaDbServer),
}

/// On one server of each kind.
async fn on_each(trial: impl AsyncFn(&Place) -> Result<()>) -> Result<()> {
    let settings = ["shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track=all"];
    let settings = settings.map(str::to_owned).to_vec();
    let postgres = PostgresServer::start(PostgresOptions { settings, ..PostgresOptions::default() }).await?;
    postgres.psql("CREATE EXTENSION pg_stat_statements").await?;
    trial(&Place::Postgres(postgres)).await.context("on PostgreSQL")?;
    trial(&Place::MySql(mariadb().await?)).await.context("on MariaDB")?;
    let mysql = MariaDbServer::start(MariaDbOptions::mysql()?).await?;
    trial(&Place::MySql(mysql)).await.context("on MySQL")
}

impl Place {
    async fn client(&self) -> Result<Client> {
        match self {
            Self::Postgres(server) => client(&server.url()).await,
            Self::MySql(server) => client(&format!("{}?connect-timeout=30s", server.url())).await,
        }
    }

    /// What a statement says, in which tables are called `{claim}` and `{lease}`.
    async fn sql(&self, statement: &str) -> Result<String> {
        let named = |prefix: &str| statement.replace('{', prefix).replace('}', "");
        let said = match self {
            Self::Postgres(server) => server.psql(&named("palisade.")).await?,
            Self::MySql(server) => server.sql(&named("palisade_")).await?,
        };
        Ok(said.trim().replace(['|', '\t', '\n'], " "))
    }

    async fn number(&self, statement: &str) -> Result<u64> {
        Ok(self.sql(statement).await?.parse()?)
    }

    /// Begins to note what is asked.
    async fn listen(&self) -> Result<()> {
        let listen = match self {
            Self::Postgres(_) => "SELECT pg_stat_statements_reset()",
            Self::MySql(_) => "SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = ON; FLUSH STATUS",
        };
        self.sql(listen).await.map(drop)
    }

    /// The statements of ours since then.
    async fn heard(&self) -> Result<String> {
        let heard = match self {
            Self::Postgres(_) => {
                "SELECT left(query, 60), calls FROM pg_stat_statements WHERE query LIKE '%\"palisade\".%'"
            }
            Self::MySql(_) => {
                "SELECT CONVERT(LEFT(argument, 30) USING utf8mb4), 1 FROM mysql.general_log WHERE command_type = 'Execute'"
            }
        };
        self.sql(heard).await
    }

    /// How many rows they changed, or returned.
    async fn rows(&self) -> Result<u64> {
        match self {
            Self::Postgres(_) => {
                self.number("SELECT sum(rows) FROM pg_stat_statements WHERE query LIKE '%\"palisade\".%'")
                    .await
            }
            Self::MySql(_) => {
                let rows = self.sql("SHOW GLOBAL STATUS LIKE 'Handler_update'").await?;
                Ok(rows.trim_start_matches("Handler_update ").parse()?)
            }
        }
    }

    /// How many functions the server compiled to run our statements: each takes longer than all that we do.
    async fn compiled(&self) -> Result<u64> {
        match self {
            Self::Postgres(_) => {
                self.number("SELECT coalesce(sum(jit_functions), 0) FROM pg_stat_statements").await
            }
            Self::MySql(_) => Ok(0),
        }
    }

    async fn last_deadlock(&self) -> Result<String> {
        match self {
            Self::Postgres(_) => Ok("see the log".to_owned()),
            Self::MySql(server) => server.sql("SHOW ENGINE INNODB STATUS").await,
        }
    }

    async fn deadlocks(&self) -> Result<u64> {
        match self {
            Self::Postgres(_) => {
                self.number("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'").await
            }
            Self::MySql(_) => {
                self.number(
                    "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'",
                )
                .await
            }
        }
    }
}

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
async fn together(place: &Place, count: usize) -> Result<(Client, Vec<Arc<Claim>>)> {
    let one = place.client().await?;
    let claims = claims(count, TTL)?;
    take(&one, &claims).await?;
    renew(&one, &claims).await?;
    let leases = place.sql("SELECT count(DISTINCT lease), count(lease) FROM {claim}").await?;
    ensure!(leases == format!("1 {count}"), "leases and claims on them: {leases}");
    Ok((one, claims))
}

#[tokio::test]
async fn many_held_cost_one_statement_and_few_rows() -> Result<()> {
    on_each(async |place| {
        let one = place.client().await?;
        let claims = claims(10_000, Duration::from_mins(5))?;
        take(&one, &claims).await?;
        renew(&one, &claims[..7_000]).await?;
        renew(&one, &claims).await?;
        place.listen().await?;
        let before = if matches!(place, Place::MySql(_)) { place.rows().await? } else { 0 };
        renew(&one, &claims).await?;
        let (heard, rows) = (place.heard().await?, place.rows().await? - before);
        ensure!(
            heard.contains("keep(") && heard.ends_with(" 1") && heard.matches('(').count() == 1,
            "{heard}"
        );
        ensure!(rows <= 10, "{rows} rows");
        ensure!(place.number("SELECT count(*) FROM {lease}").await? <= 10, "many leases");
        one.engine().withdraw(&claims).await?;
        ensure!(place.number("SELECT count(*) FROM {claim}").await? == 0, "claims are left");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_another_client_asked_for_is_renewed_by_no_lease_of_ours() -> Result<()> {
    on_each(async |place| {
        let (_one, held) = together(place, 2).await?;
        let two = place.client().await?;
        // They are on the first one's lease number 1; the second's first would have that number, too.
        take(&two, &held).await?;
        let ends = async || place.sql("SELECT min(expires) FROM {claim}").await;
        for _ in 0..3 {
            let before = ends().await?;
            renew(&two, &held).await?;
            ensure!(ends().await? > before, "they are called renewed, and end as before");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn who_is_not_renewed_ends_though_its_lease_goes_on() -> Result<()> {
    on_each(async |place| {
        let (one, held) = together(place, 4).await?;
        let two = place.client().await?;
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
    })
    .await
}

#[tokio::test]
async fn who_was_ended_by_others_is_told_at_its_renewal() -> Result<()> {
    on_each(async |place| {
        let (one, held) = together(place, 4).await?;
        let two = place.client().await?;
        two.engine().evict(&held[0].resource, held[0].id, "enough").await?;
        two.engine().withdraw(&held[1..2]).await?;
        let answers = one.engine().renew(&held).await?;
        let evicted = Renewed::Gone(GoneReason::Evicted { reason: "enough".to_owned() });
        ensure!(answers[0] == evicted, "{answers:?}");
        ensure!(matches!(answers[1], Renewed::Gone(_)), "{answers:?}");
        ensure!(answers[2..].iter().all(|answer| matches!(answer, Renewed::Valid { .. })), "{answers:?}");
        renew(&one, &held[2..]).await
    })
    .await
}

#[tokio::test]
async fn a_lease_that_ends_ends_all_and_is_not_renewed() -> Result<()> {
    on_each(async |place| {
        let (one, held) = together(place, 3).await?;
        let two = place.client().await?;
        let next = Arc::clone(&claims(3, Duration::from_mins(1))?[2]);
        until("one is free", async || Ok(matches!(two.engine().claim(&next).await?, Claimed::Granted(_))))
            .await?;
        for answer in one.engine().renew(&held).await? {
            ensure!(matches!(answer, Renewed::Gone(_)), "what expired was renewed: {answer:?}");
        }
        Ok(())
    })
    .await
}

/// Renews many claims in changing companies while each is handed over from one to the next.
#[tokio::test]
async fn renewals_and_hand_overs_do_not_wait_for_each_other() -> Result<()> {
    const ROUNDS: usize = 40;
    on_each(async |place| {
        let (one, two) = (place.client().await?, place.client().await?);
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
        let deadlocks = place.deadlocks().await?;
        ensure!(deadlocks == 0, "{deadlocks} deadlocks; the last: {}", place.last_deadlock().await?);
        Ok(())
    })
    .await
}

/// The same where nobody waits, so that many are given back by one statement, in an order of their own.
#[tokio::test]
async fn renewals_and_releases_do_not_wait_for_each_other() -> Result<()> {
    const ROUNDS: usize = 60;
    on_each(async |place| {
        let client = place.client().await?;
        for round in 0..ROUNDS {
            let held = claims(40, Duration::from_mins(1))?;
            take(&client, &held).await?;
            let engine = client.engine();
            let given: Vec<Arc<Claim>> = held.iter().rev().skip(round % 7).map(Arc::clone).collect();
            let (first, released, second) =
                futures::join!(engine.renew(&held), engine.withdraw(&given), engine.renew(&held));
            first?;
            second?;
            ensure!(released?.iter().all(|answer| *answer == Withdrawn::Released), "one was lost");
            engine.withdraw(&held).await?;
        }
        let deadlocks = place.deadlocks().await?;
        ensure!(deadlocks == 0, "{deadlocks} deadlocks; the last: {}", place.last_deadlock().await?);
        let compiled = place.compiled().await?;
        ensure!(compiled == 0, "the server compiled {compiled} functions");
        Ok(())
    })
    .await
}
