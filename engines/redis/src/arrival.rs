use std::collections::HashMap;
use std::time::Duration;

use palisade_core::{BootInstant, Clock, Error, ErrorKind, Result, Source, SystemClock};
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{FromRedisValue, Value};
use uuid::Uuid;

use crate::address::HostPort;
use crate::config::RedisConfig;
use crate::dial::Line;
use crate::error::{failed, unexpected};
use crate::here::Here;
use crate::keys::{BORN, Layout};
use crate::script::{Call, Scripts};

/// What a user must be allowed.
pub(crate) const RIGHTS: &str = "+@read +@write +@scripting +@pubsub +@connection +info +time, the lock keys, ~palisade:* and &palisade:*";

/// What a server told when we arrived.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Who counts its tokens.
    pub(crate) source: Source,
    /// When it may last have forgotten something.
    pub(crate) forgot_at: Option<BootInstant>,
    /// Whether it tells when a key changes that we ask about.
    pub(crate) tracks: bool,
    /// The last connection that another one could end and none has ended: this one, as a rule.
    pub(crate) here: Option<Here>,
    /// Whether the next connection can end this one, so that bare commands may be sent: see `crate::bare`.
    pub(crate) takes_bare: bool,
    /// Where it is, if it is one server.
    pub(crate) address: Option<HostPort>,
}

/// Asks a server who it is and what we may do, before anything is entrusted to it.
///
/// `known` is the name of the tokens' source if this engine has been here before: a server that has
/// forgotten it is told.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for a server that may evict locks, is a replica or too old,
/// [`ErrorKind::Denied`] for a user who may not do what is needed.
pub(crate) async fn arrive(
    config: &RedisConfig,
    layout: &Layout,
    scripts: &Scripts,
    line: &mut Line,
    known: Option<&Source>,
) -> Result<Facts> {
    let asked_at = SystemClock.now();
    let servers = infos(line).await?;
    for info in &servers {
        check(info, matches!(config.servers, crate::Servers::Single(_)))?;
    }
    let tried = layout.nobodys();
    let rights = scripts.rights.call(2, |command| {
        command.arg(&tried[..]);
    });
    may_do(config, &tried, evaluate(line, &rights).await)?;
    let born = born(line, scripts, &servers, known).await?;
    let forgot_at = forgot_at(line, &servers, &born, asked_at).await;
    let source = config.source.as_deref().map_or(born.source, Source::new);
    let here = match &servers[..] {
        [info] => Here::find(line, info.get("run_id").map_or("", String::as_str)).await?,
        _ => None,
    };
    let takes_bare = here.is_some();
    Ok(Facts { source, forgot_at, tracks: tracking(line).await, here, takes_bare, address: None })
}

type Info = HashMap<String, String>;

/// The servers that decide: one, or all masters of a Cluster.
async fn infos(line: &mut Line) -> Result<Vec<Info>> {
    let command = redis::cmd("INFO");
    let texts: Vec<String> = match line {
        Line::Plain(_) | Line::Server(_) => {
            let answer = line.send(&command).await.map_err(failed)?;
            vec![String::from_redis_value(answer).map_err(|_| unexpected())?]
        }
        Line::Cluster(cluster) => {
            let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
            let answers = cluster.route_command(command, everywhere).await.map_err(failed)?;
            match answers {
                Value::Map(answers) => answers
                    .into_iter()
                    .map(|(_, answer)| String::from_redis_value(answer).map_err(|_| unexpected()))
                    .collect::<Result<_>>()?,
                _ => return Err(unexpected()),
            }
        }
    };
    Ok(texts.iter().map(|text| parse_info(text)).collect())
}

fn parse_info(text: &str) -> Info {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// Refuses servers that cannot be trusted with locks.
fn check(info: &Info, named_by_hand: bool) -> Result<()> {
    let get = |name: &str| info.get(name).map_or("", String::as_str);
    let refused = |message: String| Err(Error::new(ErrorKind::Unsupported, message));
    let version = get("redis_version");
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    if (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (6, 2) {
        return refused(format!("the server is Redis {version}; 6.2 or newer is needed"));
    }
    if get("role") == "slave" {
        let message =
            "the server is a replica, and a replica decides nothing; name the primary, or use redis+sentinel";
        let kind = if named_by_hand { ErrorKind::Unsupported } else { ErrorKind::Unavailable };
        return Err(Error::new(kind, message));
    }
    if named_by_hand && get("redis_mode") == "cluster" {
        return refused("the server is part of a Cluster; write redis+cluster instead of redis".to_owned());
    }
    let (policy, limit) = (get("maxmemory_policy"), get("maxmemory"));
    if limit != "0" && !matches!(policy, "noeviction" | "") {
        return refused(format!(
            "the server may evict locks: its maxmemory-policy is {policy}, with a maxmemory of {limit} bytes; set noeviction, or use a server that is no cache"
        ));
    }
    Ok(())
}

/// Checks the answer to the script that tries out everything.
fn may_do(config: &RedisConfig, [lock, side]: &[String; 2], answer: Result<Value>) -> Result<()> {
    let cause = match answer {
        Ok(value) => {
            let refused: Vec<String> = Vec::from_redis_value(value).map_err(|_| unexpected())?;
            match &refused[..] {
                [] => return Ok(()),
                [_, _, error] if error.contains("OOM") => {
                    let message =
                        "the server has no memory left (maxmemory): raise that, or delete something";
                    return Err(Error::new(ErrorKind::Full, message));
                }
                [command, _, error] if !is_refusal(error) => {
                    let message = format!("the server cannot {command}: {error}");
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                [command, on, _] => format!("{command} on {on:?}"),
                _ => return Err(unexpected()),
            }
        }
        Err(error) if error.kind() == ErrorKind::Denied => {
            std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
        }
        Err(error) => return Err(error),
    };
    let user = config.login.user.as_deref().unwrap_or("default");
    let message = format!(
        "user {user:?} may not do what locks need ({cause}; tried with a lock at {lock:?} and what stands beside it, {side:?}); grant it: {RIGHTS}"
    );
    Err(Error::new(ErrorKind::Denied, message))
}

/// Whether a command failed for want of rights: how that is said changed over time.
fn is_refusal(error: &str) -> bool {
    ["NOPERM", "ACL failure", "user executing the script"].iter().any(|known| error.contains(known))
}

/// Where the stored data comes from.
struct Born {
    source: Source,
    /// The run in which it began.
    first_run: String,
    /// For how long this run is known to decide.
    decides_for: Duration,
}

async fn born(line: &mut Line, scripts: &Scripts, servers: &[Info], known: Option<&Source>) -> Result<Born> {
    let proposed = known.map_or_else(
        || format!("redis-{}", &Uuid::new_v4().simple().to_string()[..16]),
        |source| source.as_str().to_owned(),
    );
    let run = servers.first().and_then(|info| info.get("run_id")).cloned().unwrap_or_default();
    let call = scripts.arrive.call(1, |command| {
        command.arg(BORN).arg(proposed.replace(' ', "-")).arg(run).arg(youngest(servers).as_millis() as u64);
    });
    let answer: Vec<String> =
        Vec::from_redis_value(evaluate(line, &call).await?).map_err(|_| unexpected())?;
    let [source, first_run, decides_for] = &answer[..] else {
        let message = format!("the key {BORN} holds something that is not Palisade's");
        return Err(Error::new(ErrorKind::Corrupt, message));
    };
    Ok(Born {
        source: Source::new(source),
        first_run: first_run.clone(),
        decides_for: Duration::from_millis(decides_for.parse().map_err(|_| unexpected())?),
    })
}

/// For how long the youngest of the servers runs, at least. They say it in whole seconds, each of two
/// moments rounded down: up to one more than it is.
fn youngest(servers: &[Info]) -> Duration {
    let uptime = |info: &Info| info.get("uptime_in_seconds").and_then(|text| text.parse::<u64>().ok());
    Duration::from_secs(servers.iter().filter_map(uptime).min().unwrap_or(0).saturating_sub(1))
}

/// When the server may last have forgotten something: when it was started or began to decide, unless it
/// syncs all it does, has data of an earlier run, and has never been a replica.
async fn forgot_at(
    line: &mut Line,
    servers: &[Info],
    born: &Born,
    asked_at: BootInstant,
) -> Option<BootInstant> {
    let started = asked_at.saturating_sub(youngest(servers).min(born.decides_for));
    let [info] = servers else { return Some(started) };
    let has = |name: &str, value: &str| info.get(name).is_some_and(|text| text == value);
    let earlier = info.get("run_id").is_some_and(|run| *run != born.first_run);
    let promoted = info.get("master_replid2").is_some_and(|id| id.contains(|digit| digit != '0'));
    let kept = has("aof_enabled", "1") && earlier && !promoted && syncs_always(line).await;
    (!kept).then_some(started)
}

async fn syncs_always(line: &mut Line) -> bool {
    let mut command = redis::cmd("CONFIG");
    command.arg("GET").arg("appendfsync");
    let Ok(value) = line.send(&command).await else { return false };
    HashMap::<String, String>::from_redis_value(value)
        .is_ok_and(|settings| settings.get("appendfsync").is_some_and(|value| value == "always"))
}

/// Asks to be told when a key changes that a command right after `CLIENT CACHING YES` reads. Without
/// it we look again ourselves: other clients' locks only.
async fn tracking(line: &mut Line) -> bool {
    if !line.is_to_one() {
        return false;
    }
    let mut command = redis::cmd("CLIENT");
    command.arg("TRACKING").arg("ON").arg("OPTIN");
    line.send(&command).await.is_ok()
}

async fn evaluate(line: &mut Line, call: &Call<'_>) -> Result<Value> {
    line.send(&call.by_text()).await.map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> Info {
        parse_info(&format!("redis_version:7.0.15\r\nrole:master\r\nmaxmemory:0\r\n{text}"))
    }

    #[test]
    fn servers_that_cannot_be_trusted_are_refused_with_the_reason() {
        assert!(check(&info(""), true).is_ok());
        assert!(
            check(&info("maxmemory_policy:allkeys-lru"), true).is_ok(),
            "without a limit nothing is evicted"
        );
        let cases = [
            ("redis_version:6.0.16", "6.2"),
            ("role:slave", "replica"),
            ("redis_mode:cluster", "redis+cluster"),
            ("maxmemory:100\r\nmaxmemory_policy:allkeys-lru", "allkeys-lru"),
            ("maxmemory:100\r\nmaxmemory_policy:volatile-ttl", "volatile-ttl"),
        ];
        for (text, word) in cases {
            let message = check(&info(text), true).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }
}
