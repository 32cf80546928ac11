//! Servers with ShedLock's table, and a client of ShedLock with its own statements.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mysql_async::params;
use mysql_async::prelude::Queryable;
use palisade::Client;
use palisade_sql_trials::{client, soon};
use palisade_testkit::servers::{MariaDbServer, PostgresServer};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Row};

use crate::trouble::cut;

/// As ShedLock's documentation has it.
pub(crate) const POSTGRES_TABLE: &str = "CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
     locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";

/// The same for MySQL.
pub(crate) const MARIADB_TABLE: &str = "CREATE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
     locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))";

/// Whoever comes first makes the schema, which a busy disk may take long for.
pub(crate) const PATIENT: &str = "connect-timeout=30s";

/// A server with that table.
pub(crate) enum Place {
    Postgres(PostgresServer),
    MariaDb(MariaDbServer),
}

impl Place {
    pub(crate) async fn with_postgres(server: PostgresServer) -> Result<Self> {
        server.psql(POSTGRES_TABLE).await?;
        Ok(Self::Postgres(server))
    }

    pub(crate) async fn with_mariadb(server: MariaDbServer) -> Result<Self> {
        server.sql(&format!("{MARIADB_TABLE}; CREATE USER app; GRANT ALL ON palisade.* TO app")).await?;
        Ok(Self::MariaDb(server))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Postgres(server) => format!("{}?shedlock", server.url()),
            Self::MariaDb(server) => format!("mysql://app@{}/palisade?shedlock&{PATIENT}", server.address()),
        }
    }

    /// A client of ours.
    pub(crate) async fn ours(&self) -> Result<Client> {
        client(&self.url()).await
    }

    /// One that is renewed every three seconds, and in time by whatever machine.
    pub(crate) async fn patient(&self) -> Result<Client> {
        palisade_testkit::trial::client(&self.url(), 9).await
    }

    /// ShedLock's time.
    pub(crate) fn now(&self) -> &'static str {
        match self {
            Self::Postgres(_) => "timezone('utc', CURRENT_TIMESTAMP)",
            Self::MariaDb(_) => "UTC_TIMESTAMP(3)",
        }
    }

    pub(crate) fn in_seconds(&self, seconds: u32) -> String {
        match self {
            Self::Postgres(_) => format!("{} + interval '{seconds} seconds'", self.now()),
            Self::MariaDb(_) => format!("TIMESTAMPADD(SECOND, {seconds}, {})", self.now()),
        }
    }

    /// What the superuser is told.
    pub(crate) async fn sql(&self, statements: &str) -> Result<String> {
        let said = match self {
            Self::Postgres(server) => server.psql(statements).await?,
            Self::MariaDb(server) => server.sql(statements).await?,
        };
        Ok(said.trim().to_owned())
    }

    /// What a row of the table has.
    pub(crate) async fn row(&self, column: &str) -> Result<String> {
        self.sql(&format!("SELECT {column} FROM shedlock WHERE name = 'orders'")).await
    }

    pub(crate) async fn is(&self, condition: &str) -> Result<bool> {
        Ok(matches!(self.row(condition).await?.as_str(), "t" | "1"))
    }

    pub(crate) async fn is_held(&self) -> Result<bool> {
        self.is(&format!("lock_until > {}", self.now())).await
    }

    /// How many claims there are.
    pub(crate) async fn claims(&self) -> Result<usize> {
        let table = match self {
            Self::Postgres(_) => "palisade.claim",
            Self::MariaDb(_) => "palisade_claim",
        };
        Ok(self.sql(&format!("SELECT count(*) FROM {table}")).await?.parse()?)
    }

    /// Whether a statement of ours that takes a row is at the server, where it does not stay unless it waits.
    pub(crate) async fn waits_for_a_row(&self) -> Result<bool> {
        let waits = match self {
            Self::Postgres(_) => {
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO \"shedlock\"%'"
            }
            Self::MariaDb(_) => {
                "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO `shedlock`%'"
            }
        };
        Ok(self.sql(waits).await? == "1")
    }

    /// Ends every connection of ours.
    pub(crate) async fn cut(&self) -> Result<()> {
        match self {
            Self::Postgres(server) => cut(server).await,
            Self::MariaDb(server) => server.sql("KILL CONNECTION USER app").await.map(drop),
        }
    }

    pub(crate) async fn crash(&self) -> Result<()> {
        match self {
            Self::Postgres(server) => {
                server.kill().await?;
                server.start_again(false).await
            }
            Self::MariaDb(server) => {
                server.kill().await?;
                server.start_again(false).await
            }
        }
    }

    /// A client of ShedLock's.
    pub(crate) async fn theirs(&self, host: &str) -> Result<Theirs> {
        let connection = match self {
            Self::Postgres(server) => {
                Connection::Postgres(server.url().parse::<PgConnectOptions>()?.connect().await?)
            }
            Self::MariaDb(server) => {
                // As JDBC does: a row that is given what it has is one that was found.
                let at = mysql_async::Opts::from_url(&server.url())?;
                let options = mysql_async::OptsBuilder::from_opts(at).client_found_rows(true);
                Connection::MariaDb(mysql_async::Conn::new(options).await?)
            }
        };
        Ok(Theirs { connection, host: host.to_owned(), now: self.now() })
    }
}

enum Connection {
    Postgres(PgConnection),
    MariaDb(mysql_async::Conn),
}

/// A client of ShedLock with the statements of its `JdbcTemplate` provider for the database's time.
pub(crate) struct Theirs {
    connection: Connection,
    host: String,
    now: &'static str,
}

impl Theirs {
    /// Takes a lock for at most so long, if it is free.
    pub(crate) async fn lock(&mut self, name: &str, at_most: Duration) -> Result<bool> {
        let now = self.now;
        if matches!(self.connection, Connection::Postgres(_)) {
            let until = format!("{now} + cast($2 as interval)");
            let sql = format!(
                "INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES($1, {until}, {now}, $3) \
                 ON CONFLICT (name) DO UPDATE SET lock_until = {until}, locked_at = {now}, locked_by = $3 \
                 WHERE shedlock.name = $1 AND shedlock.lock_until <= {now}"
            );
            return self.changes(&sql, name, at_most).await;
        }
        let until = format!("TIMESTAMPADD(MICROSECOND, :time, {now})");
        let insert = format!(
            "INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by) VALUES(:name, {until}, {now}, :host)"
        );
        let update = format!(
            "UPDATE shedlock SET lock_until = {until}, locked_at = {now}, locked_by = :host WHERE name = :name AND lock_until <= {now}"
        );
        Ok(self.changes(&insert, name, at_most).await? || self.changes(&update, name, at_most).await?)
    }

    pub(crate) async fn extend(&mut self, name: &str, at_most: Duration) -> Result<bool> {
        let now = self.now;
        let sql = match self.connection {
            Connection::Postgres(_) => format!(
                "UPDATE shedlock SET lock_until = {now} + cast($2 as interval) \
                 WHERE name = $1 AND locked_by = $3 AND lock_until > {now}"
            ),
            Connection::MariaDb(_) => format!(
                "UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, :time, {now}) \
                 WHERE name = :name AND locked_by = :host AND lock_until > {now}"
            ),
        };
        self.changes(&sql, name, at_most).await
    }

    /// Gives a lock back, but keeps it for at least so long since it was taken.
    pub(crate) async fn unlock(&mut self, name: &str, at_least: Duration) -> Result<()> {
        let now = self.now;
        let sql = match self.connection {
            Connection::Postgres(_) => {
                let kept = "locked_at + cast($2 as interval)";
                format!(
                    "UPDATE shedlock SET lock_until = CASE WHEN {kept} > {now} THEN {kept} ELSE {now} END \
                     WHERE name = $1 AND locked_by = $3"
                )
            }
            Connection::MariaDb(_) => {
                let kept = "TIMESTAMPADD(MICROSECOND, :time, locked_at)";
                format!(
                    "UPDATE shedlock SET lock_until = IF ({kept} > {now} , {kept}, {now}) WHERE name = :name AND locked_by = :host"
                )
            }
        };
        ensure!(self.changes(&sql, name, at_least).await?, "there was nothing to unlock");
        Ok(())
    }

    async fn changes(&mut self, sql: &str, name: &str, time: Duration) -> Result<bool> {
        match &mut self.connection {
            Connection::Postgres(connection) => {
                let time = format!("{} milliseconds", time.as_millis());
                let statement = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(name).bind(time).bind(&self.host);
                Ok(statement.execute(connection).await?.rows_affected() > 0)
            }
            Connection::MariaDb(connection) => {
                let time = u64::try_from(time.as_micros())?;
                let bound = params! { name, time, "host" => &self.host };
                match connection.exec_drop(sql, bound).await {
                    Ok(()) => Ok(connection.affected_rows() > 0),
                    // Undone for somebody else's sake: as ShedLock takes it, not its turn.
                    Err(mysql_async::Error::Server(said)) if matches!(said.code, 1205 | 1213) => Ok(false),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    pub(crate) async fn raw(&mut self, sql: &str) -> Result<()> {
        match &mut self.connection {
            Connection::Postgres(connection) => {
                sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await?;
            }
            Connection::MariaDb(connection) => connection.query_drop(sql).await?,
        }
        Ok(())
    }

    /// Asks again and again, as a job does that is due every few milliseconds.
    pub(crate) async fn lock_soon(&mut self, name: &str, at_most: Duration) -> Result<()> {
        soon("ShedLock's turn", async {
            while !self.lock(name, at_most).await? {
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            Ok(())
        })
        .await?
    }

    /// Counts one up in two steps, between which others could do so, too.
    pub(crate) async fn count(&mut self) -> Result<()> {
        let seen: i32 = match &mut self.connection {
            Connection::Postgres(connection) => {
                sqlx::query("SELECT n FROM counter").fetch_one(connection).await?.get(0)
            }
            Connection::MariaDb(connection) => {
                connection.query_first("SELECT n FROM counter").await?.context("a number")?
            }
        };
        tokio::task::yield_now().await;
        self.raw(&format!("UPDATE counter SET n = {}", seen + 1)).await
    }
}
