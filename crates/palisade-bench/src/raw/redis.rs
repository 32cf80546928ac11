//! The floor of Redis: bare commands over the library and the settings that the engine itself has. The
//! same commands, at several servers at once, are the floor of a quorum of it.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use futures::future::try_join_all;
use palisade_redis::{Login, RedisConfig, Servers};
use palisade_testkit::Misuse;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo, Script, Value,
};

use super::{Floors, RawClient, RawLimit};

pub(super) fn open(url: &str) -> Result<Arc<dyn RawLimit>> {
    Ok(Arc::new(Redis::new(vec![Server::of_url(url)?], FLOORS)))
}

pub(super) fn attach(address: &str) -> Result<Arc<dyn RawLimit>> {
    Ok(Arc::new(Redis::attach(address, FLOORS)?))
}

const FLOORS: Floors = Floors {
    pair: "SET NX PX, and a script that compares and deletes",
    turn: "a token: RPUSH by one process, BLPOP by the next",
    hold: "SET NX PX, tried again when the key's time is up",
    keep: "a script that compares and renews 500 keys",
};

/// The TTL of a lock that is taken and given back at once; Palisade's own, as it is by default.
const TTL: Duration = Duration::from_secs(15);

/// The TTL of what is held for long.
const HELD_TTL: Duration = Duration::from_secs(30);

/// How many keys one script renews: as many as the engine has in one.
const BATCH: usize = 500;

const FREE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

const RENEW: &str = "local count = 0
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then count = count + redis.call('PEXPIRE', key, ARGV[2]) end
end
return count";

/// Commands that are no request about a lock, in the words of `INFO commandstats`.
///
/// Redis counts what a script calls like what a client sends (seen on 7.0: five calls of a script with
/// three commands add 20 to `total_commands_processed`, and 5 to each of four `cmdstat_` lines). So what
/// the engine's scripts call and the engine never sends by itself is left out here, and so is what
/// only makes a connection, or asks for this very figure. Anything else counts, even if nobody thought
/// of it. INCR is sent by a quorum that takes a lock without a script, and never called by one: see [`BARE`].
const NO_REQUESTS: &[&str] = &[
    // Called by scripts. EXISTS is also sent when another client's lock is in the way, which then counts
    // by the CLIENT CACHING before it.
    "decrby",
    "del",
    "exists",
    "get",
    "getrange",
    "hdel",
    "hexists",
    "hget",
    "hgetall",
    "hincrby",
    "hkeys",
    "hset",
    "hsetnx",
    "incrby",
    "lindex",
    "lpop",
    "lpush",
    "lrange",
    "mget",
    "pexpire",
    "pexpireat",
    "pttl",
    "publish",
    "rpush",
    "set",
    "spublish",
    "time",
    "zadd",
    "zcard",
    "zrange",
    "zrangebyscore",
    "zrank",
    "zrem",
    "zremrangebyscore",
    "zrevrange",
    "zscore",
    // Making a connection, and this count.
    "auth",
    "client|setinfo",
    "hello",
    "info",
    "select",
];

/// A bare claim is SET, INCR and EXISTS, of which scripts never call the second: each INCR stands for three. (One that is
/// sent alone, after an answer that was lost, counts too much.)
const BARE: (&str, u64) = ("incr", 3);

/// One server.
#[derive(Debug, Clone)]
pub(super) struct Server {
    /// Its URL without options.
    url: String,
    config: RedisConfig,
}

impl Server {
    /// Of a URL that the engine itself has accepted.
    pub(super) fn of_url(url: &str) -> Result<Self> {
        let (url, options) = url.split_once('?').unwrap_or((url, ""));
        let other = ["password-env", "password-file", "dialect"];
        let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
        if let Some(option) = options.split('&').map(name).find(|name| other.contains(&name.as_str())) {
            return Err(Misuse(format!("the raw limit of Redis cannot be had with option {option}")).into());
        }
        let config = RedisConfig::parse(url)?;
        let Servers::Single(_) = &config.servers else {
            return Err(Misuse("the raw limit of Redis is that of one server".to_owned()).into());
        };
        Ok(Self { url: url.to_owned(), config })
    }

    fn place(&self) -> Result<(&str, u16)> {
        match &self.config.servers {
            Servers::Single(place) => Ok((&place.host, place.port)),
            _ => bail!("a server has one address"),
        }
    }

    /// A connection with the engine's own settings, so that the ratio shows what it adds and not what
    /// it chose.
    async fn connect(&self) -> Result<MultiplexedConnection> {
        let (host, port) = self.place()?;
        let (db, login) = (self.config.db, &self.config.login);
        let mut settings = RedisConnectionInfo::default().set_db(db).set_protocol(ProtocolVersion::RESP3);
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        let info = ConnectionAddr::Tcp(host.to_owned(), port)
            .into_connection_info()?
            .set_redis_settings(settings)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.connect_timeout))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(1024);
        Ok(Client::open(info)?.get_multiplexed_async_connection_with_config(&settings).await?)
    }
}

/// Bare commands at one server, or at several at once.
#[derive(Debug)]
pub(super) struct Redis {
    servers: Vec<Server>,
    /// What all keys of this run begin with.
    prefix: String,
    floors: Floors,
}

impl Redis {
    pub(super) fn new(servers: Vec<Server>, floors: Floors) -> Self {
        Self { servers, prefix: format!("palisade-bench:{}", uuid::Uuid::new_v4().simple()), floors }
    }

    pub(super) fn attach(address: &str, floors: Floors) -> Result<Self> {
        let mut lines = address.lines();
        let prefix = lines.next().context("an address begins with a prefix")?.to_owned();
        Ok(Self { servers: lines.map(Server::of_url).collect::<Result<_>>()?, prefix, floors })
    }

    /// Connections to all servers.
    async fn connect(&self) -> Result<Vec<MultiplexedConnection>> {
        try_join_all(self.servers.iter().map(Server::connect)).await
    }
}

#[async_trait]
impl RawLimit for Redis {
    fn floors(&self) -> Floors {
        self.floors
    }

    fn address(&self) -> String {
        let urls = self.servers.iter().map(|server| server.url.as_str());
        std::iter::once(self.prefix.as_str()).chain(urls).collect::<Vec<_>>().join("\n")
    }

    async fn client(&self) -> Result<Arc<dyn RawClient>> {
        let bare = Bare {
            lines: self.connect().await?,
            prefix: self.prefix.clone(),
            value: uuid::Uuid::new_v4().simple().to_string(),
            free: Script::new(FREE).get_hash().to_owned(),
            renew: Script::new(RENEW).get_hash().to_owned(),
            place: Mutex::default(),
            held: AtomicUsize::new(0),
            waits: AtomicBool::new(false),
        };
        for script in [FREE, RENEW] {
            bare.all(redis::cmd("SCRIPT").arg("LOAD").arg(script)).await?;
        }
        Ok(Arc::new(bare))
    }

    async fn requests(&self) -> Result<Option<u64>> {
        let ask = async |mut line: MultiplexedConnection| -> Result<u64> {
            let info: String = redis::cmd("INFO").arg("commandstats").query_async(&mut line).await?;
            counted(&info)
        };
        let counts = try_join_all(self.connect().await?.into_iter().map(ask)).await?;
        Ok(Some(counts.iter().sum()))
    }

    fn command(&self) -> Option<Vec<OsString>> {
        // With a password it would have to be told on the command line, where everyone sees it.
        let server = self.servers.first().filter(|server| server.config.login == Login::default())?;
        let (host, port) = server.place().ok()?;
        let port = port.to_string();
        Some(["redis-cli", "-h", host, "-p", &port, "ping"].map(OsString::from).to_vec())
    }

    fn lease(&self) -> Option<Duration> {
        Some(LEASE)
    }

    fn measures_clients_of_one_process(&self) -> bool {
        self.servers.len() == 1
    }
}

/// What the death of a holder leaves behind stands for so long: short, because a run waits for it.
const LEASE: Duration = Duration::from_secs(2);

/// How many requests `INFO commandstats` tells of.
fn counted(info: &str) -> Result<u64> {
    let mut sum = 0;
    for line in info.lines() {
        let Some((command, figures)) = line.strip_prefix("cmdstat_").and_then(|line| line.split_once(':'))
        else {
            continue;
        };
        if NO_REQUESTS.contains(&command) {
            continue;
        }
        let calls = figures.split(',').find_map(|figure| figure.strip_prefix("calls="));
        let calls: u64 = calls.context("a command's figures begin with its calls")?.parse()?;
        sum += if command == BARE.0 { calls * BARE.1 } else { calls };
    }
    Ok(sum)
}

struct Bare {
    /// One to each server.
    lines: Vec<MultiplexedConnection>,
    prefix: String,
    /// Which keys are this client's.
    value: String,
    /// The hashes of the scripts.
    free: String,
    renew: String,
    /// This process' list in the line, and that of the next.
    place: Mutex<Option<Arc<(String, String)>>>,
    held: AtomicUsize,
    waits: AtomicBool,
}

impl Bare {
    /// Sends a command to all servers at once, and waits for all answers.
    async fn all(&self, command: &Cmd) -> Result<Vec<Value>> {
        let ask = async |line: &MultiplexedConnection| -> Result<Value> {
            Ok(line.clone().send_packed_command(command).await?.extract_error()?)
        };
        match &self.lines[..] {
            [line] => Ok(vec![ask(line).await?]),
            lines => try_join_all(lines.iter().map(ask)).await,
        }
    }

    /// Takes a key; at how many servers.
    async fn take(&self, key: &str, ttl: Duration) -> Result<usize> {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(&self.value).arg("NX").arg("PX").arg(millis(ttl));
        Ok(self.all(&command).await?.into_iter().filter(|answer| *answer == Value::Okay).count())
    }

    async fn free(&self, key: &str) -> Result<()> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.free).arg(1).arg(key).arg(&self.value);
        self.all(&command).await.map(drop)
    }

    fn place(&self) -> Result<Arc<(String, String)>> {
        self.place.lock().clone().context("this process is in no line")
    }

    fn seat(&self, place: usize) -> String {
        format!("{}:line/{place}", self.prefix)
    }

    /// A key of this client alone: those of the one before may still stand.
    fn kept(&self, number: usize) -> String {
        format!("{}:{}/{number}", self.prefix, self.value)
    }

    fn lock(&self) -> String {
        format!("{}:hold", self.prefix)
    }

    async fn tell(&self, seat: &str) -> Result<()> {
        self.all(redis::cmd("RPUSH").arg(seat).arg("1")).await.map(drop)
    }

    /// How long the key stands at the last server to free it.
    async fn left(&self, key: &str) -> Result<Duration> {
        let left =
            self.all(redis::cmd("PTTL").arg(key)).await?.into_iter().filter_map(|answer| match answer {
                Value::Int(millis) => u64::try_from(millis).ok(),
                _ => None,
            });
        Ok(Duration::from_millis(left.max().unwrap_or(0)))
    }
}

#[async_trait]
impl RawClient for Bare {
    async fn pair(&self, key: &str) -> Result<()> {
        let taken = self.take(key, TTL).await?;
        ensure!(taken == self.lines.len(), "somebody else has {key}");
        self.free(key).await
    }

    async fn join(&self, place: usize, of: usize) -> Result<()> {
        *self.place.lock() = Some(Arc::new((self.seat(place), self.seat((place + 1) % of))));
        Ok(())
    }

    async fn start(&self) -> Result<()> {
        self.tell(&self.seat(0)).await
    }

    async fn turn(&self) -> Result<()> {
        let place = self.place()?;
        self.all(redis::cmd("BLPOP").arg(&place.0).arg(0)).await.map(drop)
    }

    async fn pass(&self) -> Result<()> {
        self.tell(&self.place()?.1).await
    }

    /// The last pass went to the first, who has had all its turns.
    async fn end(&self) -> Result<()> {
        self.all(redis::cmd("DEL").arg(self.seat(0))).await.map(drop)
    }

    async fn hold(&self) -> Result<()> {
        let lock = self.lock();
        while self.take(&lock, LEASE).await? <= self.lines.len() / 2 {
            if self.lines.len() > 1 {
                self.free(&lock).await?;
            }
            let left = self.left(&lock).await?;
            self.waits.store(true, Ordering::Relaxed);
            tokio::time::sleep(left).await;
        }
        self.waits.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn until_waiting(&self) -> Result<()> {
        while !self.waits.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    async fn let_go(&self) -> Result<()> {
        self.free(&self.lock()).await
    }

    async fn fill(&self, count: usize) -> Result<()> {
        self.held.store(count, Ordering::Relaxed);
        for number in 0..count {
            let taken = self.take(&self.kept(number), HELD_TTL).await?;
            ensure!(taken == self.lines.len(), "somebody else has what this run is to hold");
        }
        Ok(())
    }

    async fn keep(&self) -> Result<()> {
        let numbers: Vec<usize> = (0..self.held.load(Ordering::Relaxed)).collect();
        for batch in numbers.chunks(BATCH) {
            let mut command = redis::cmd("EVALSHA");
            command.arg(&self.renew).arg(batch.len());
            for number in batch {
                command.arg(self.kept(*number));
            }
            command.arg(&self.value).arg(millis(HELD_TTL));
            let all = Value::Int(i64::try_from(batch.len())?);
            ensure!(self.all(&command).await?.iter().all(|count| *count == all), "a key was lost");
        }
        Ok(())
    }
}

fn millis(duration: Duration) -> u64 {
    duration.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use palisade_testkit::servers::{RedisOptions, RedisServer};

    use super::*;

    #[test]
    fn what_scripts_call_is_no_request() {
        let info = "# Commandstats\r\n\
            cmdstat_evalsha:calls=5,usec=460,usec_per_call=92.00,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_set:calls=7,usec=85,usec_per_call=17.00,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_incr:calls=2,usec=3,usec_per_call=1.50,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_client|caching:calls=2,usec=3,usec_per_call=1.50,rejected_calls=0,failed_calls=0\r\n";
        assert_eq!(counted(info).unwrap(), 13);
        assert!(counted("cmdstat_ping:usec=1").is_err());
    }

    #[test]
    fn only_one_server_without_options_of_its_own_has_a_floor() {
        let problem = |url: &str| open(url).unwrap_err().to_string();
        assert!(problem("redis://h?ttl=2s&password-env=X").contains("password-env"));
        assert!(problem("redis+cluster://a,b").contains("one server"));
        let raw = open("redis://:secret@h:7/1?ttl=2s").unwrap();
        assert_eq!(raw.command(), None, "a password is seen in a list of processes");
        assert_eq!(attach(&raw.address()).unwrap().address(), raw.address());
    }

    /// Whatever scripts come to call belongs into [`NO_REQUESTS`].
    #[tokio::test]
    async fn a_server_counts_two_requests_for_taking_and_releasing() {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let url = format!("redis://{}", server.address());
        let raw = open(&url).unwrap();
        let client = palisade::Client::builder().connect(&url).await.unwrap();
        let mutex = client.mutex("bench").unwrap();
        mutex.acquire().await.unwrap().release().await.unwrap();
        let before = raw.requests().await.unwrap();
        for _ in 0..10 {
            mutex.acquire().await.unwrap().release().await.unwrap();
        }
        let after = raw.requests().await.unwrap();
        assert_eq!(before.zip(after).map(|(before, after)| after - before), Some(20));
    }

    #[tokio::test]
    async fn a_token_goes_round_and_a_lock_is_taken_over_when_its_time_is_up() {
        let server = RedisServer::start(RedisOptions::default()).await.unwrap();
        let raw = open(&format!("redis://{}", server.address())).unwrap();
        let attached = attach(&raw.address()).unwrap();
        let (one, other) = (raw.client().await.unwrap(), attached.client().await.unwrap());
        one.pair("bench").await.unwrap();
        one.fill(3).await.unwrap();
        one.keep().await.unwrap();
        other.fill(3).await.unwrap();
        one.join(0, 2).await.unwrap();
        other.join(1, 2).await.unwrap();
        one.start().await.unwrap();
        for member in [&one, &other, &one, &other] {
            member.turn().await.unwrap();
            member.pass().await.unwrap();
        }
        one.end().await.unwrap();
        let soon = Duration::from_millis(50);
        assert!(tokio::time::timeout(soon, one.turn()).await.is_err(), "the token is gone");
        other.hold().await.unwrap();
        let began = std::time::Instant::now();
        // One that waits in a line of its own: the first still stands in BLPOP.
        let next = raw.client().await.unwrap();
        let (held, ()) = tokio::join!(next.hold(), async { next.until_waiting().await.unwrap() });
        held.unwrap();
        assert!(began.elapsed() < LEASE * 2);
        next.let_go().await.unwrap();
    }
}
