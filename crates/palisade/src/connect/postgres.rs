use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Engine, Result};
use palisade_sql::{AdvisoryEngine, Keys, Listen, PostgresConfig, ShedlockEngine, SqlEngine};

use super::COMMON;
use super::secret::secret;
use super::sql_mode::{SqlMode, shedlock_table};
use super::sql_tls::tls;
use crate::url::{EngineUrl, invalid};

const OPTIONS: &str = "schema, mode, shedlock, listen, poll, keys, connections, connect-timeout, password-env, password-file, tls, tls-ca, tls-cert, \
     tls-key";

/// PostgreSQL cuts longer names, and two that differ would be one.
const LONGEST: usize = 63;

pub(super) async fn open(
    url: &mut EngineUrl,
    namespace: &str,
    call_timeout: Option<Duration>,
) -> Result<Arc<dyn Engine>> {
    let (mode, config) = config(url, namespace, call_timeout)?;
    url.finish(&format!("{OPTIONS}, {COMMON}"))?;
    match mode {
        Mode::Rows => Ok(Arc::new(SqlEngine::postgres(config).await?)),
        Mode::Shedlock(table) => Ok(Arc::new(ShedlockEngine::postgres(config, &table).await?)),
        Mode::Advisory => Ok(Arc::new(Box::pin(AdvisoryEngine::postgres(config)).await?)),
    }
}

/// What a claim is at the server.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mode {
    /// A row with a TTL.
    Rows,
    /// The same, and a row of ShedLock's in the table of that name.
    Shedlock(String),
    /// A lock of a session.
    Advisory,
}

fn config(
    url: &mut EngineUrl,
    namespace: &str,
    call_timeout: Option<Duration>,
) -> Result<(Mode, PostgresConfig)> {
    let mut config = PostgresConfig::parse(&format!("{}:{}", url.scheme, url.raw))?.namespace(namespace);
    config.call_timeout = call_timeout.unwrap_or(config.call_timeout);
    config.connect_timeout = url.take_limit("connect-timeout")?.unwrap_or(config.connect_timeout);
    let mode = match SqlMode::take(url)? {
        SqlMode::Rows => shedlock_table(url, "schema", LONGEST)?.map_or(Mode::Rows, Mode::Shedlock),
        SqlMode::Advisory => Mode::Advisory,
    };
    if mode == Mode::Advisory {
        sessions(url, &mut config)?;
    }
    if let Some(schema) = url.take("schema") {
        if schema.is_empty() || schema.len() > LONGEST || schema.contains('\0') {
            return Err(invalid(format!("option schema is a name of 1 to {LONGEST} bytes")));
        }
        config.schema = schema;
    }
    if let Some(password) = secret(url, "password", config.login.password.as_deref())? {
        config.login.password = Some(password);
    }
    config.tls = tls(url)?;
    if let Some(every) = url.take_duration("poll")? {
        if every.is_zero() {
            return Err(invalid("option poll is longer than nothing"));
        }
        config.poll = every;
    }
    config.listen = match url.take("listen").as_deref() {
        None => Listen::Same,
        Some("none") => Listen::Poll,
        Some(place) => Listen::At(Box::new(direct(&config, place)?)),
    };
    Ok((mode, config))
}

/// What only session locks can be told, and what they cannot.
fn sessions(url: &mut EngineUrl, config: &mut PostgresConfig) -> Result<()> {
    if url.take("listen").is_some() || url.take("poll").is_some() {
        return Err(invalid(
            "options listen and poll are for lease rows; who waits for a session lock is told by it",
        ));
    }
    config.keys = match url.take("keys").as_deref() {
        None | Some("palisade") => Keys::Palisade,
        Some("sqlx") => Keys::Sqlx,
        Some(other) => return Err(invalid(format!("option keys is `palisade` or `sqlx`, not {other:?}"))),
    };
    config.connections = SqlMode::connections(url)?.unwrap_or(config.connections);
    Ok(())
}

/// The way past a pooler: a host, or an address of its own. What it does not say is as on the other way.
fn direct(config: &PostgresConfig, place: &str) -> Result<PostgresConfig> {
    let address = if place.contains("://") { place.to_owned() } else { format!("postgres://{place}") };
    let parsed = PostgresConfig::parse(&address)?;
    let mut direct = config.clone();
    (direct.host, direct.port) = (parsed.host, parsed.port);
    direct.database = parsed.database.or(direct.database);
    if parsed.login.user.is_some() {
        direct.login = parsed.login;
    }
    Ok(direct)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<PostgresConfig> {
        let mut url = EngineUrl::parse(url)?;
        let (_, config) = config(&mut url, "", None)?;
        url.finish(OPTIONS)?;
        Ok(config)
    }

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let config =
            read("postgres://me:pw@pool:6432/shop?schema=locks&listen=direct:5432&poll=50ms&tls=on").unwrap();
        assert_eq!((config.schema.as_str(), config.poll), ("locks", Duration::from_millis(50)));
        let Listen::At(direct) = &config.listen else { panic!("{config:?}") };
        assert_eq!((direct.host.as_str(), direct.port), ("direct", 5432));
        assert_eq!((&direct.login, &direct.database), (&config.login, &config.database));
        assert!(direct.tls.is_some());
        assert!(matches!(read("postgres://h?listen=none").unwrap().listen, Listen::Poll));
        let sessions = read("postgres://h?mode=advisory&keys=sqlx&connections=9").unwrap();
        assert_eq!((sessions.keys, sessions.connections), (Keys::Sqlx, 9));
        for (text, table) in [("shedlock", "shedlock"), ("shedlock=jobs.locks", "jobs.locks")] {
            let mut url = EngineUrl::parse(&format!("postgres://h?{text}")).unwrap();
            assert_eq!(super::config(&mut url, "", None).unwrap().0, Mode::Shedlock(table.to_owned()));
        }
        for (bad, word) in [
            ("postgres://h?sslmode=require", "sslmode"),
            ("postgres://h?mode=table", "mode"),
            ("postgres://h?mode=advisory&listen=none", "listen"),
            ("postgres://h?mode=advisory&keys=md5", "keys"),
            ("postgres://h?mode=advisory&connections=0", "connections"),
            ("postgres://h?keys=sqlx", "keys"),
            ("postgres://h?shedlock=a.b.c", "shedlock"),
            ("postgres://h?shedlock=a.", "shedlock"),
            ("postgres://h?mode=advisory&shedlock=locks", "shedlock"),
            ("postgres://h?wake=get_lock", "wake"),
            ("postgres://h?tls=maybe", "tls"),
            ("postgres://h?tls=off&tls-ca=x", "tls"),
            ("postgres://h?schema=", "schema"),
            ("postgres://h?poll=0s", "poll"),
        ] {
            let message = read(bad).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }
}
