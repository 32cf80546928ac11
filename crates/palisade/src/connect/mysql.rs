use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Engine, Result};
use palisade_sql::{AdvisoryEngine, MySqlConfig, ShedlockEngine, SqlEngine, Wake};

use super::COMMON;
use super::secret::secret;
use super::sql_mode::{SqlMode, shedlock_table};
use super::sql_tls::tls;
use crate::url::{EngineUrl, invalid};

const OPTIONS: &str = "mode, shedlock, wake, poll, connections, connect-timeout, password-env, password-file, tls, tls-ca, tls-cert, tls-key";

pub(super) async fn open(
    url: &mut EngineUrl,
    namespace: &str,
    call_timeout: Option<Duration>,
) -> Result<Arc<dyn Engine>> {
    let (mode, config) = config(url, namespace, call_timeout)?;
    url.finish(&format!("{OPTIONS}, {COMMON}"))?;
    match mode {
        Mode::Rows => Ok(Arc::new(SqlEngine::mysql(config).await?)),
        Mode::Shedlock(table) => Ok(Arc::new(ShedlockEngine::mysql(config, &table).await?)),
        Mode::Advisory => Ok(Arc::new(AdvisoryEngine::mysql(config).await?)),
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
) -> Result<(Mode, MySqlConfig)> {
    let mut config = MySqlConfig::parse(&format!("{}:{}", url.scheme, url.raw))?.namespace(namespace);
    config.call_timeout = call_timeout.unwrap_or(config.call_timeout);
    config.connect_timeout = url.take_limit("connect-timeout")?.unwrap_or(config.connect_timeout);
    let mode = match SqlMode::take(url)? {
        SqlMode::Rows => shedlock_table(url, "database", 64)?.map_or(Mode::Rows, Mode::Shedlock),
        SqlMode::Advisory => Mode::Advisory,
    };
    if mode == Mode::Advisory && (url.take("poll").is_some() || url.take("wake").is_some()) {
        return Err(invalid(
            "options poll and wake are for lease rows; who waits for a session lock is told by it",
        ));
    }
    config = match url.take("wake").as_deref() {
        None | Some("poll") => config,
        Some("get_lock") => config.wake_by_get_lock(),
        Some(other) => return Err(invalid(format!("option wake is `poll` or `get_lock`, not {other:?}"))),
    };
    if mode == Mode::Advisory || config.wake == Wake::GetLock {
        config.connections = SqlMode::connections(url)?.unwrap_or(config.connections);
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
    Ok((mode, config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<MySqlConfig> {
        let mut url = EngineUrl::parse(url)?;
        let (_, config) = config(&mut url, "", None)?;
        url.finish(OPTIONS)?;
        Ok(config)
    }

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let config = read("mysql://me:pw@db/shop?poll=50ms&mode=rows").unwrap();
        assert_eq!((config.database.as_str(), config.poll), ("shop", Duration::from_millis(50)));
        assert!(config.tls.is_none() && read("mysql://h?tls-ca=x").unwrap().tls.is_some());
        assert_eq!(read("mariadb://db").unwrap().port, 3306);
        assert_eq!(read("mysql://db?mode=advisory&connections=9").unwrap().connections, 9);
        for (text, table) in [("shedlock", "shedlock"), ("shedlock=jobs.locks", "jobs.locks")] {
            let mut url = EngineUrl::parse(&format!("mysql://h?{text}")).unwrap();
            assert_eq!(super::config(&mut url, "", None).unwrap().0, Mode::Shedlock(table.to_owned()));
        }
        let woken = read("mysql://db?wake=get_lock&connections=9").unwrap();
        assert_eq!((woken.wake, woken.connections), (Wake::GetLock, 9));
        assert!(woken.poll > config.poll, "it is looked after less often");
        assert_eq!(read("mysql://db?poll=3s&wake=get_lock").unwrap().poll, Duration::from_secs(3));
        assert_eq!(read("mysql://db?wake=poll").unwrap().wake, Wake::Poll);
        for (bad, word) in [
            ("mysql://h?shedlock=a.b.c", "shedlock"),
            ("mysql://h?mode=advisory&shedlock=locks", "shedlock"),
            ("mysql://h?wake=bell", "wake"),
            ("mysql://h?mode=advisory&wake=get_lock", "wake"),
            ("mysql://h?wake=poll&connections=9", "connections"),
            ("mysql://h?wake=get_lock&connections=0", "connections"),
            ("mysql://h?ssl-mode=REQUIRED", "ssl-mode"),
            ("mysql://h?mode=table", "mode"),
            ("mysql://h?mode=advisory&poll=50ms", "poll"),
            ("mysql://h?mode=advisory&connections=0", "connections"),
            ("mysql://h?connections=9", "connections"),
            ("mysql://h?poll=0s", "poll"),
            ("mysql://h?tls=maybe", "tls"),
        ] {
            let message = read(bad).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }
}
