//! ShedLock's table on MySQL and MariaDB, as its own clients have it if they go by the database's time (`usingDbTime`).
//!
//! Times are those of UTC, as ShedLock writes them: `UTC_TIMESTAMP`, into columns that may convert them by the session's time
//! zone. So our sessions keep the zone that the server gives to all. Names are of a collation that may take two for the
//! same; then they share a row, and exclude each other, as ShedLock's do.

use mysql_async::{Row as AnyRow, Value};
use palisade_core::{BootInstant, Claim, Error, ErrorKind, Name, Result, Source, Token};
use serde_json::json;

use super::arrival::number;
use super::error::failed;
use super::line::Line;
use super::server::{hex, list, text};
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
    /// What names are written in.
    charset: String,
}

/// What was found out about a table.
struct Found {
    /// As statements have it.
    table: String,
    /// How many characters a name may have.
    longest: usize,
    /// What names are written in, and how they are compared; none if they are bytes.
    letters: Option<(String, String)>,
    /// What finds one row by its name.
    index: String,
}

impl Found {
    /// A name that was asked for, as the table has it and compares it.
    fn name(&self) -> String {
        match &self.letters {
            Some((charset, collation)) => {
                format!(
                    "CONVERT(CONVERT(UNHEX(asked.name_) USING utf8mb4) USING {charset}) COLLATE {collation}"
                )
            }
            None => "UNHEX(asked.name_)".to_owned(),
        }
    }
}

/// Looks for a table, and whether it can be used. It belongs to others: it is not made, nor changed. Claims are those
/// whose tokens `source` counts.
pub(crate) async fn find(line: &Line, source: &Source, called: &str) -> Result<Table> {
    let signature = Signature::new(source);
    let found = look_at(line, called, signature.length()).await?;
    let statements = Statements::new(&found, &signature);
    Ok(Table {
        called: called.to_owned(),
        signature,
        longest: Some(found.longest),
        statements: AnyStatements::MySql(statements),
    })
}

async fn look_at(line: &Line, called: &str, by_length: usize) -> Result<Found> {
    let table = called.split('.').map(quoted).collect::<Vec<_>>().join(".");
    // Explained, not done: fails for what is missing, and for rights.
    let probe = format!(
        "EXPLAIN INSERT INTO {table} (name, lock_until, locked_at, locked_by) VALUES ('', UTC_TIMESTAMP(3), UTC_TIMESTAMP(3), '') \
         ON DUPLICATE KEY UPDATE name = name, lock_until = lock_until, locked_at = locked_at, locked_by = locked_by"
    );
    line.text(probe).await?.map_err(|error| unfit(called, &table, error))?;
    let (mut longest, mut letters, mut zoned) = (0, None, false);
    for row in line.text(format!("SHOW FULL COLUMNS FROM {table}")).await?.map_err(failed)? {
        let (column, kind) = text(&row, 0).zip(text(&row, 1)).ok_or_else(unexpected)?;
        let (base, size) = kind.split_once('(').unwrap_or((&kind, ""));
        let size: usize = size.split(')').next().and_then(|size| size.parse().ok()).unwrap_or(0);
        match (column.to_ascii_lowercase().as_str(), base) {
            ("name", "varchar") => {
                longest = size;
                letters = text(&row, 2).map(|collation| {
                    let (charset, _) = collation.split_once('_').unwrap_or((&collation, ""));
                    (charset.to_owned(), collation.clone())
                });
            }
            ("lock_until" | "locked_at", "timestamp" | "datetime") if size >= 3 => {
                zoned |= base == "timestamp";
            }
            ("locked_by", "varchar") if size >= by_length => {}
            ("name" | "lock_until" | "locked_at" | "locked_by", _) => {
                return Err(of_another_kind(called, &table, &format!("the column {column} of {kind}")));
            }
            _ => {}
        }
    }
    let index = index(line, called, &table).await?;
    if zoned {
        warn_of_summer_time(line, called, &table).await?;
    }
    Ok(Found { table, longest, letters, index })
}

/// The index that has each name once, and whole. The table must also undo what was not committed.
async fn index(line: &Line, called: &str, table: &str) -> Result<String> {
    let rows = line.text(format!("SHOW INDEX FROM {table}")).await?.map_err(failed)?;
    let mut fit: Vec<(String, bool)> = Vec::new();
    for row in &rows {
        let (unique, place) = (number(row, 1) == Some(0), number(row, 3));
        let key = text(row, 2).ok_or_else(unexpected)?;
        // Of an expression there is none.
        let column = text(row, 4).unwrap_or_default();
        let whole = matches!(row.as_ref(7), Some(Value::NULL));
        if place == Some(1) && unique && whole && column.eq_ignore_ascii_case("name") {
            fit.push((key, true));
        } else if let Some((_, alone)) = fit.iter_mut().find(|(known, _)| *known == key) {
            *alone = false;
        }
    }
    let Some((index, _)) = fit.into_iter().find(|(_, alone)| *alone) else {
        return Err(of_another_kind(called, table, "a column name that is no key"));
    };
    let made = line.text(format!("SHOW CREATE TABLE {table}")).await?.map_err(failed)?;
    let made = made.first().and_then(|row| text(row, 1)).ok_or_else(unexpected)?;
    if !made.to_ascii_lowercase().contains("engine=innodb") {
        return Err(of_another_kind(called, table, "another engine than InnoDB"));
    }
    Ok(index)
}

/// A TIMESTAMP holds no time that summer time leaves out, by the session's zone: for that hour nothing is written, neither
/// by us nor by ShedLock (its issue 1876).
async fn warn_of_summer_time(line: &Line, called: &str, table: &str) -> Result<()> {
    let sql = "SELECT UNIX_TIMESTAMP('2026-07-01 00:00:00') - UNIX_TIMESTAMP('2026-01-01 00:00:00'), @@session.time_zone";
    let rows = line.text(sql).await?.map_err(failed)?;
    let apart = rows.first().and_then(|row| number(row, 0));
    if apart != Some(181 * 86_400) {
        tracing::warn!(
            table = called,
            "the server's time zone has summer time, which its TIMESTAMP columns cannot write an hour of in spring: nobody gets a lock of ShedLock's then; ALTER TABLE {table} MODIFY lock_until DATETIME(3) NOT NULL, MODIFY locked_at DATETIME(3) NOT NULL"
        );
    }
    Ok(())
}

/// A text of any character set as bytes of UTF-8: no collation has a say in whether two are the same.
fn exact(column: &str) -> String {
    format!("CAST(CONVERT({column} USING utf8mb4) AS BINARY)")
}

impl Statements {
    fn new(found: &Found, signature: &Signature) -> Self {
        // All that is asked for, in one text: in hexadecimal digits, so that no character set has a say.
        const ASKED: &str = "JSON_TABLE(?, '$[*]' COLUMNS (at_ FOR ORDINALITY, name_ VARCHAR(1160) PATH '$[0]', \
             by_ VARCHAR(2048) PATH '$[1]', ttl_ BIGINT PATH '$[2]')) AS asked";
        // Rounded up to what the columns hold.
        const UNTIL: &str = "TIMESTAMPADD(MICROSECOND, asked.ttl_ + 1000, UTC_TIMESTAMP(6))";
        const NOW: &str = "UTC_TIMESTAMP(3)";
        let (table, index) = (&found.table, quoted(&found.index));
        let (ours, token_at, digits) = (signature.ours(), signature.token_at(), Signature::TOKEN);
        let name = found.name();
        let claim = |by: &str| format!("RIGHT({by}, {})", Signature::CLAIM);
        let token = |by: &str| format!("SUBSTRING({by}, {token_at}, {digits})");
        let (was, now) = (exact("locked_by"), exact("VALUES(locked_by)"));
        // In digits: what looks like `:name` would be taken for a parameter.
        let is_ours = |by: &str| format!("LEFT({by}, {}) = X'{}'", ours.len(), hex(ours.as_bytes()));
        // By the time at which the statement began: what was freed while it waited is taken the next time. A row of this
        // schema's is taken from claims on the same name with smaller tokens, which have ended.
        let may = format!(
            "(lock_until <= {NOW} OR {} AND {} = {} AND {} <= {})",
            is_ours(&was),
            exact("name"),
            exact("VALUES(name)"),
            token(&was),
            token(&now)
        );
        // One assignment sees what the ones before it did.
        let take = format!(
            "INSERT INTO {table} (name, lock_until, locked_at, locked_by) \
             SELECT {name}, {UNTIL}, {NOW}, CONVERT(UNHEX(asked.by_) USING utf8mb4) FROM {ASKED} \
             ON DUPLICATE KEY UPDATE \
             locked_at = IF({may} AND {} <> {}, VALUES(locked_at), locked_at), \
             locked_by = IF({may}, VALUES(locked_by), locked_by), \
             name = IF({was} = {now}, VALUES(name), name), \
             lock_until = IF({was} = {now}, VALUES(lock_until), lock_until)",
            claim(&was),
            claim(&now),
        );
        // In this order, and by the key: whatever else is read would be locked, too.
        let joined =
            format!("{ASKED} STRAIGHT_JOIN {table} AS held FORCE INDEX ({index}) ON held.name = {name}");
        let by = exact("held.locked_by");
        let mine = format!(
            "WHERE held.lock_until > {NOW} AND ({by} = UNHEX(asked.by_) OR {} AND {} = UNHEX(asked.by_))",
            is_ours(&by),
            claim(&by)
        );
        // Freed as of when it was taken: a renewal that began before, and waited for the row, must not bring it back.
        let free = format!("UPDATE {joined} SET held.lock_until = LEAST(held.locked_at, {NOW}) {mine}");
        let look = format!(
            "SELECT asked.at_, CONVERT(held.name USING utf8mb4), CONVERT(held.locked_by USING utf8mb4), \
             TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), held.lock_until), \
             TIMESTAMPDIFF(MICROSECOND, held.locked_at, UTC_TIMESTAMP(6)), \
             TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', held.locked_at) \
             FROM {joined} WHERE held.lock_until > {NOW}"
        );
        Self {
            take,
            extend: format!("UPDATE {joined} SET held.lock_until = {UNTIL} {mine}"),
            free,
            look,
            charset: found
                .letters
                .as_ref()
                .map_or_else(|| "utf8mb4".to_owned(), |(charset, _)| charset.clone()),
        }
    }

    /// Refuses a name that the table's character set may not have.
    pub(crate) fn check(&self, called: &str, name: &Name) -> Result<()> {
        let fits = match self.charset.as_str() {
            "utf8mb4" | "utf16" | "utf32" => true,
            "utf8" | "utf8mb3" | "ucs2" => name.as_str().chars().all(|letter| letter <= '\u{ffff}'),
            _ => name.as_str().is_ascii(),
        };
        if fits {
            return Ok(());
        }
        let message = format!(
            "the names in ShedLock's table {called:?} are of the character set {}, which may not have all letters of this one; have them be of utf8mb4",
            self.charset
        );
        Err(Error::new(ErrorKind::Invalid, message))
    }

    pub(crate) async fn take(
        &self,
        signature: &Signature,
        line: &Line,
        claims: &[(&Claim, Token)],
    ) -> Result<Vec<Taken>> {
        // Rows are locked in the order of their names.
        let mut sorted: Vec<_> = claims.iter().collect();
        sorted.sort_by_key(|(claim, _)| &claim.resource);
        let asked = asked(
            sorted
                .iter()
                .map(|(claim, token)| (claim.resource.as_str(), signature.of(claim.id, *token), ttl(claim))),
        );
        let (changed, sent) = line.alter(&self.take, vec![asked]).await?;
        // One row that is new counts once, one that was changed twice.
        if claims.len() == 1 && changed > 0 {
            return Ok(vec![Taken::Ours(sent)]);
        }
        let names: Vec<&str> = claims.iter().map(|(claim, _)| claim.resource.as_str()).collect();
        let (mut seen, looked) = self.seen(signature, line, &names).await?;
        let taken = claims.iter().zip(&mut seen).map(|((claim, token), seen)| match seen.take() {
            None => Taken::Others(None),
            Some(held) if held.by == signature.of(claim.id, *token) => {
                Taken::Ours(asked_at(claim, &held, sent, looked))
            }
            Some(held) if signature.is_later(&held, *token) => Taken::NotHeld,
            Some(held) => Taken::Others(Some(held)),
        });
        Ok(taken.collect())
    }

    pub(crate) async fn extend(
        &self,
        signature: &Signature,
        line: &Line,
        claims: &[&Claim],
    ) -> Result<Vec<Option<BootInstant>>> {
        let mut sorted = claims.to_vec();
        sorted.sort_by_key(|claim| &claim.resource);
        let asked =
            asked(sorted.iter().map(|claim| (claim.resource.as_str(), claim.id.to_string(), ttl(claim))));
        let (changed, sent) = line.alter(&self.extend, vec![asked]).await?;
        if changed == claims.len() as u64 {
            return Ok(vec![Some(sent); claims.len()]);
        }
        // Which of them, it does not say; and a row that was given the same end is not counted.
        let names: Vec<&str> = claims.iter().map(|claim| claim.resource.as_str()).collect();
        let (seen, looked) = self.seen(signature, line, &names).await?;
        let extended = claims.iter().zip(seen).map(|(claim, seen)| {
            let held = seen.filter(|held| signature.is_of(&held.by, claim.id))?;
            Some(asked_at(claim, &held, sent, looked))
        });
        Ok(extended.collect())
    }

    pub(crate) async fn free(&self, line: &Line, holds: &[Ending<'_>]) -> Result<()> {
        let mut sorted = holds.to_vec();
        sorted.sort();
        let asked = asked(sorted.into_iter().map(|(name, by)| (name, by, 0)));
        line.alter(&self.free, vec![asked]).await.map(drop)
    }

    pub(crate) async fn look(&self, signature: &Signature, line: &Line, names: &[&str]) -> Result<Vec<Held>> {
        let (seen, _) = self.seen(signature, line, names).await?;
        Ok(seen.into_iter().flatten().collect())
    }

    /// Who has the row of each name, and when that was asked.
    async fn seen(
        &self,
        signature: &Signature,
        line: &Line,
        names: &[&str],
    ) -> Result<(Vec<Option<Held>>, BootInstant)> {
        let asked = asked(names.iter().map(|name| (*name, String::new(), 0)));
        let (rows, looked) = line.call(self.look.clone(), vec![asked]).await?;
        let mut seen = vec![None; names.len()];
        for row in &rows {
            let place = number(row, 0).and_then(|at| usize::try_from(at - 1).ok()).ok_or_else(unexpected)?;
            let name = names.get(place).ok_or_else(unexpected)?;
            seen[place] = Some(held(signature, name, row).ok_or_else(unexpected)?);
        }
        Ok((seen, looked))
    }
}

/// What is asked for, as the statements take it.
fn asked<'a>(each: impl Iterator<Item = (&'a str, String, i64)>) -> Value {
    let [_, all] = list(each.map(|(name, by, ttl)| json!([hex(name.as_bytes()), hex(by.as_bytes()), ttl])));
    all
}

/// When a row that was looked at must have been asked for, at the latest, to last as long as it does.
fn asked_at(claim: &Claim, held: &Held, sent: BootInstant, looked: BootInstant) -> BootInstant {
    sent.min((looked + held.remains).saturating_sub(claim.ttl.as_duration()))
}

fn held(signature: &Signature, name: &str, row: &AnyRow) -> Option<Held> {
    let (stored, by) = (text(row, 1)?, text(row, 2)?);
    let row = Row {
        name: &stored,
        by: &by,
        remains: number(row, 3)?,
        age: number(row, 4)?,
        since: number(row, 5)?,
    };
    Some(signature.held(name, &row))
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The statement that makes a table fit for both.
fn definition(table: &str) -> String {
    format!(
        "CREATE TABLE {table} (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
         locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, \
         PRIMARY KEY (name)) ENGINE = InnoDB"
    )
}

/// Why a table cannot be used, and what to do.
fn unfit(called: &str, table: &str, error: mysql_async::Error) -> Error {
    let code = match &error {
        mysql_async::Error::Server(said) => said.code,
        _ => 0,
    };
    let error = failed(error);
    let (kind, what) = match code {
        // There is no such table, database or column.
        1049 | 1054 | 1146 => (ErrorKind::Invalid, format!("as ShedLock has it: {}", definition(table))),
        1044 | 1142 | 1143 => {
            (ErrorKind::Denied, format!("GRANT SELECT, INSERT, UPDATE ON {table} TO this user"))
        }
        _ => return error,
    };
    Error::new(kind, format!("ShedLock's table {called:?} cannot be used: {}; {what}", error.message()))
}

fn of_another_kind(called: &str, table: &str, what: &str) -> Error {
    let message = format!(
        "ShedLock's table {called:?} has {what}, which cannot be shared; as ShedLock has it: {}",
        definition(table)
    );
    Error::new(ErrorKind::Invalid, message)
}
