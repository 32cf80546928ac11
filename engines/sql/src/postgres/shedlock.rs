//! ShedLock's table, as its own clients have it if they go by the database's time (`usingDbTime`): times are those of UTC
//! without a zone, and a row is held until `lock_until` by whoever is in `locked_by`.

use palisade_core::{BootInstant, Claim, Error, ErrorKind, Result, Source, Token};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::PostgresConfig;
use super::error::failed;
use super::line::{Bound, Line};
use super::schema::{literal, quoted};
use crate::error::unexpected;
use crate::rows::ttl;
use crate::shedlock::{Ending, Held, Row, Signature, Statements as AnyStatements, Table, Taken};

/// The statements about a table.
#[derive(Debug)]
pub(crate) struct Statements {
    take: String,
    extend: String,
    free: String,
    look: String,
}

/// Looks for a table, and whether it can be used. It belongs to others: it is not made, nor changed. Claims are those
/// whose tokens `source` counts.
pub(crate) async fn find(
    config: &PostgresConfig,
    line: &Line,
    source: &Source,
    called: &str,
) -> Result<Table> {
    let table = called.split('.').map(quoted).collect::<Vec<_>>().join(".");
    // Explained, not done: fails for what is missing, and for rights.
    let probe = format!(
        "EXPLAIN INSERT INTO {table} AS held (name, lock_until, locked_at, locked_by) \
         VALUES ('', 'epoch', 'epoch', '') ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, \
         locked_at = excluded.locked_at, locked_by = excluded.locked_by WHERE held.lock_until < held.locked_at"
    );
    line.text(&probe).await.map_err(|error| unfit(called, &table, error))?;
    let columns = format!(
        "SELECT attname, format_type(atttypid, NULL), atttypmod FROM pg_attribute \
         WHERE attrelid = {}::regclass AND attname IN ('name', 'lock_until', 'locked_at', 'locked_by')",
        literal(&table)
    );
    let signature = Signature::new(source);
    // A limit counts from 4; without one there is -1.
    let room = |limit: &str| limit.parse::<usize>().ok().and_then(|limit| limit.checked_sub(4));
    let mut longest = None;
    for column in line.text(&columns).await.map_err(failed)? {
        let [column, kind, limit] = column.as_slice() else { return Err(unexpected()) };
        match (column.as_str(), kind.as_str()) {
            ("name", "character varying" | "text") => longest = room(limit),
            ("lock_until" | "locked_at", "timestamp without time zone") => {}
            ("locked_by", "character varying" | "text")
                if room(limit).is_none_or(|room| room >= signature.length()) => {}
            ("locked_by", "character varying") => {
                return Err(of_another_kind(called, &table, column, "too short"));
            }
            _ => return Err(of_another_kind(called, &table, column, kind)),
        }
    }
    let statements = Statements::new(&table, &quoted(&config.schema), &signature);
    Ok(Table {
        called: called.to_owned(),
        signature,
        longest,
        statements: AnyStatements::Postgres(statements),
    })
}

impl Statements {
    fn new(table: &str, schema: &str, signature: &Signature) -> Self {
        // By the time at which each row is looked at: what was freed while somebody waited for it is free.
        const NOW: &str = "timezone('utc', clock_timestamp())";
        // As in our own functions: none waits for others' transactions for long, and a crash forgets nothing.
        let first = format!(
            "WITH settings AS MATERIALIZED (SELECT {schema}.guard()::text, set_config('lock_timeout', '1s', true))"
        );
        let shown = format!(
            "held.name::text, held.locked_by::text, {schema}.micros(held.lock_until - {NOW}), \
             {schema}.micros({NOW} - held.locked_at), {schema}.micros(held.locked_at - timestamp 'epoch')"
        );
        let (ours, token_at, digits) = (signature.ours(), signature.token_at(), Signature::TOKEN);
        let claim = |row: &str| format!("right({row}.locked_by, {})", Signature::CLAIM);
        let token = |row: &str| format!("substr({row}.locked_by, {token_at}, {digits}) COLLATE \"C\"");
        // A row of this schema's is taken from claims with smaller tokens, which have ended: what comes late, having waited
        // for the row while its own claim ended, takes nothing from whoever holds now. Without a token it is older than any.
        let passed_on = format!(
            "starts_with(held.locked_by, '{ours}') AND \
             (substr(held.locked_by, {token_at} + {digits}, 1) <> ':' OR {} <= {})",
            token("held"),
            token("excluded")
        );
        // Only for a claim that the server has as held: what comes late, after its claim was withdrawn, takes nothing.
        let take = format!(
            "{first}, asked AS MATERIALIZED (SELECT asked.*, own.verdict = 'g' AS own FROM settings, \
             unnest($1, $2, $3, $4) WITH ORDINALITY AS asked (name, id, locked_by, ttl, at) \
             JOIN {schema}.stand('', $1, $2) AS own ON own.at = asked.at), \
             taken AS (INSERT INTO {table} AS held (name, lock_until, locked_at, locked_by) \
             SELECT name, {NOW} + ttl * interval '1 microsecond', {NOW}, locked_by FROM asked WHERE own ORDER BY name \
             ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_by = excluded.locked_by, \
             locked_at = CASE WHEN {} = {} THEN held.locked_at ELSE excluded.locked_at END \
             WHERE held.lock_until <= {NOW} OR ({passed_on}) RETURNING held.locked_by) \
             SELECT asked.own, EXISTS (SELECT FROM taken WHERE taken.locked_by = asked.locked_by), {shown} FROM asked \
             LEFT JOIN {table} AS held ON held.name = asked.name AND held.lock_until > {NOW} ORDER BY asked.at",
            claim("held"),
            claim("excluded"),
        );
        let asked = format!(
            "{first}, asked AS MATERIALIZED (SELECT asked.* FROM settings, \
             unnest($1, $2, $3) WITH ORDINALITY AS asked (name, locked_by, ttl, at)) UPDATE {table} AS held"
        );
        let mine = format!(
            "FROM asked WHERE held.name = asked.name AND held.lock_until > {NOW} AND (held.locked_by = asked.locked_by \
             OR starts_with(held.locked_by, '{ours}') AND {} = asked.locked_by)",
            claim("held")
        );
        Self {
            extend: format!(
                "{asked} SET lock_until = {NOW} + asked.ttl * interval '1 microsecond' {mine} RETURNING asked.at"
            ),
            free: format!("{asked} SET lock_until = {NOW} {mine} RETURNING asked.at"),
            look: format!(
                "SELECT {shown} FROM {table} AS held WHERE held.name = ANY ($1) AND held.lock_until > {NOW}"
            ),
            take,
        }
    }

    pub(crate) async fn take(
        &self,
        signature: &Signature,
        line: &Line,
        claims: &[(&Claim, Token)],
    ) -> Result<Vec<Taken>> {
        let names: Vec<&str> = claims.iter().map(|(claim, _)| claim.resource.as_str()).collect();
        let ids: Vec<Uuid> = claims.iter().map(|(claim, _)| Uuid::from_bytes(*claim.id.as_bytes())).collect();
        let by: Vec<String> = claims.iter().map(|(claim, token)| signature.of(claim.id, *token)).collect();
        let ttls: Vec<i64> = claims.iter().map(|(claim, _)| ttl(claim)).collect();
        let bound: [(Bound<'_>, Type); 4] = [
            (&names, Type::TEXT_ARRAY),
            (&ids, Type::UUID_ARRAY),
            (&by, Type::TEXT_ARRAY),
            (&ttls, Type::INT8_ARRAY),
        ];
        let (rows, sent) = line.run_text(&self.take, &bound).await?;
        if rows.len() != claims.len() {
            return Err(unexpected());
        }
        let taken = rows.iter().zip(claims).map(|(row, (claim, token))| {
            match (get(row, 0)?, get(row, 1)?) {
                (false, _) => return Ok(Taken::NotHeld),
                (true, true) => return Ok(Taken::Ours(sent)),
                (true, false) => {}
            }
            if get::<Option<&str>>(row, 2)?.is_none() {
                return Ok(Taken::Others(None));
            }
            let held = held(signature, claim.resource.as_str(), row, 2)?;
            Ok(if signature.is_later(&held, *token) { Taken::NotHeld } else { Taken::Others(Some(held)) })
        });
        taken.collect()
    }

    pub(crate) async fn extend(
        &self,
        _: &Signature,
        line: &Line,
        claims: &[&Claim],
    ) -> Result<Vec<Option<BootInstant>>> {
        let names: Vec<&str> = claims.iter().map(|claim| claim.resource.as_str()).collect();
        let by: Vec<String> = claims.iter().map(|claim| claim.id.to_string()).collect();
        let ttls: Vec<i64> = claims.iter().map(|claim| ttl(claim)).collect();
        let (places, sent) = change(line, &self.extend, &names, &by, &ttls).await?;
        let mut extended = vec![None; claims.len()];
        for place in places {
            *extended.get_mut(place).ok_or_else(unexpected)? = Some(sent);
        }
        Ok(extended)
    }

    pub(crate) async fn free(&self, line: &Line, holds: &[Ending<'_>]) -> Result<()> {
        let (names, by): (Vec<&str>, Vec<String>) = holds.iter().cloned().unzip();
        change(line, &self.free, &names, &by, &vec![0; holds.len()]).await.map(drop)
    }

    pub(crate) async fn look(&self, signature: &Signature, line: &Line, names: &[&str]) -> Result<Vec<Held>> {
        let (rows, _) = line.run_text(&self.look, &[(&names, Type::TEXT_ARRAY)]).await?;
        rows.iter().map(|row| held(signature, get(row, 0)?, row, 0)).collect()
    }
}

/// Changes rows, and says which: by their places among those asked for. And when that was asked.
async fn change(
    line: &Line,
    sql: &str,
    names: &[&str],
    by: &[String],
    ttls: &[i64],
) -> Result<(Vec<usize>, BootInstant)> {
    let bound: [(Bound<'_>, Type); 3] =
        [(&names, Type::TEXT_ARRAY), (&by, Type::TEXT_ARRAY), (&ttls, Type::INT8_ARRAY)];
    let (rows, sent) = line.run_text(sql, &bound).await?;
    let places = rows.iter().map(|row| {
        let at: i64 = get(row, 0)?;
        usize::try_from(at - 1).map_err(|_| unexpected())
    });
    Ok((places.collect::<Result<_>>()?, sent))
}

/// Reads who has a row, from five columns.
fn held(signature: &Signature, name: &str, row: &tokio_postgres::Row, at: usize) -> Result<Held> {
    let row = Row {
        name: get(row, at)?,
        by: get(row, at + 1)?,
        remains: get(row, at + 2)?,
        age: get(row, at + 3)?,
        since: get(row, at + 4)?,
    };
    Ok(signature.held(name, &row))
}

/// The statement that makes a table fit for both.
fn definition(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, locked_at TIMESTAMP NOT NULL, \
         locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))"
    )
}

/// Why a table cannot be used, and what to do.
fn unfit(called: &str, table: &str, error: tokio_postgres::Error) -> Error {
    let code = error.code().cloned();
    let missing = [
        SqlState::UNDEFINED_TABLE,
        SqlState::INVALID_SCHEMA_NAME,
        SqlState::UNDEFINED_COLUMN,
        SqlState::INVALID_COLUMN_REFERENCE,
        SqlState::DATATYPE_MISMATCH,
    ];
    let error = failed(error);
    let (kind, what) = match code {
        Some(code) if missing.contains(&code) => {
            (ErrorKind::Invalid, format!("as ShedLock has it: {}", definition(table)))
        }
        Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
            (ErrorKind::Denied, format!("GRANT SELECT, INSERT, UPDATE ON {table} TO this user"))
        }
        _ => return error,
    };
    Error::new(kind, format!("ShedLock's table {called:?} cannot be used: {}; {what}", error.message()))
}

fn of_another_kind(called: &str, table: &str, column: &str, kind: &str) -> Error {
    let message = format!(
        "the column {column} of ShedLock's table {called:?} is {kind}, which cannot be shared; as ShedLock has it: {}",
        definition(table)
    );
    Error::new(ErrorKind::Invalid, message)
}

fn get<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a tokio_postgres::Row, at: usize) -> Result<T> {
    row.try_get(at).map_err(|error| unexpected().because(error))
}
