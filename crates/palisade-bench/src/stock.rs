//! A stock of which so many can be had and no more: given away by reservations, and under a lock.

use anyhow::{Context, Result, ensure};
use async_trait::async_trait;
use palisade_fence::{Counter, Database, Keep, RedisCounter, Transaction};
use redis::aio::MultiplexedConnection;
use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};

/// One client of a stock.
#[async_trait]
pub(crate) trait Stock: Send + Sync {
    /// Takes one for `request`, by a reservation.
    async fn reserve(&self, request: &str) -> Result<()>;

    /// Takes one for `request`, as whoever holds the lock of the stock may: reads how many are taken, and writes one more.
    async fn read_and_write(&self, request: &str) -> Result<()>;

    /// How many were taken, by reservations and under the lock.
    async fn taken(&self) -> Result<(u64, u64)>;

    /// Removes what this left behind; called by one client, the last one.
    async fn remove(&self) -> Result<()>;
}

/// So many clients of a new stock that is called `name`, at the database of the engine at `url`; `None` where reservations cannot be
/// kept.
pub(crate) async fn open(url: &str, name: &str, clients: usize) -> Result<Option<Vec<Box<dyn Stock>>>> {
    let (address, _) = url.split_once('?').unwrap_or((url, ""));
    let mut stocks: Vec<Box<dyn Stock>> = Vec::new();
    match address.split(':').next().unwrap_or_default() {
        "redis" => {
            let client = redis::Client::open(address)?;
            let line = client.get_multiplexed_async_connection().await?;
            let stock = OnRedis { line, counter: RedisCounter::new(name)?, name: name.to_owned() };
            stock.counter.set_capacity(&mut stock.line.clone(), PLENTY).await?;
            stocks.extend((0..clients).map(|_| Box::new(stock.clone()) as Box<dyn Stock>));
        }
        "postgres" | "postgresql" => {
            for _ in 0..clients {
                let stock = OnPostgres::open(address, name).await?;
                if stocks.is_empty() {
                    stock.make().await?;
                }
                stocks.push(Box::new(stock));
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(stocks))
}

/// More than any run takes: a stock that is sold out is another question.
const PLENTY: u64 = 1 << 40;

#[derive(Clone)]
struct OnRedis {
    line: MultiplexedConnection,
    counter: RedisCounter,
    name: String,
}

impl OnRedis {
    fn key(&self, what: &str) -> String {
        format!("palisade-bench:{{{}}}:{what}", self.name)
    }
}

#[async_trait]
impl Stock for OnRedis {
    async fn reserve(&self, request: &str) -> Result<()> {
        let reserved = self.counter.reserve(&mut self.line.clone(), request, 1, Keep::Always).await?;
        ensure!(reserved.is_new(), "the stock is plenty, but not for {request}: {reserved:?}");
        Ok(())
    }

    async fn read_and_write(&self, request: &str) -> Result<()> {
        let mut line = self.line.clone();
        let key = self.key("taken");
        let taken: Option<u64> = redis::cmd("GET").arg(&key).query_async(&mut line).await?;
        let mut write = redis::pipe();
        write.set(&key, taken.unwrap_or(0) + 1).hset(self.key("requests"), request, 1);
        write.query_async::<()>(&mut line).await?;
        Ok(())
    }

    async fn taken(&self) -> Result<(u64, u64)> {
        let mut line = self.line.clone();
        let stock = self.counter.stock(&mut line).await?.context("the stock is gone")?;
        let locked: Option<u64> = redis::cmd("GET").arg(self.key("taken")).query_async(&mut line).await?;
        Ok((stock.taken, locked.unwrap_or(0)))
    }

    async fn remove(&self) -> Result<()> {
        let mut line = self.line.clone();
        let ours = format!("palisade*{{*{}*}}*", self.name);
        let keys: Vec<String> = redis::cmd("KEYS").arg(ours).query_async(&mut line).await?;
        for key in keys {
            redis::cmd("UNLINK").arg(key).query_async::<()>(&mut line).await?;
        }
        Ok(())
    }
}

struct OnPostgres {
    client: Mutex<Client>,
    counter: Counter,
    schema: String,
}

impl OnPostgres {
    async fn open(url: &str, name: &str) -> Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        // Letters, digits and a minus: nothing that would have to be escaped within quotes.
        let schema = format!("palisade-{name}");
        client.batch_execute(&format!("SET search_path = \"{schema}\"")).await?;
        Ok(Self { client: Mutex::new(client), counter: Counter::new("stock")?, schema })
    }

    async fn make(&self) -> Result<()> {
        let mut client = self.client.lock().await;
        client
            .batch_execute(&format!(
                "CREATE SCHEMA \"{}\"; CREATE TABLE stock (taken bigint NOT NULL); INSERT INTO stock VALUES (0); \
                 CREATE TABLE request (id text PRIMARY KEY)",
                self.schema
            ))
            .await?;
        let mut tx = client.begin().await?;
        Counter::create(&mut tx).await?;
        self.counter.set_capacity(&mut tx, PLENTY).await?;
        Ok(Transaction::commit(tx).await?)
    }
}

#[async_trait]
impl Stock for OnPostgres {
    async fn reserve(&self, request: &str) -> Result<()> {
        let mut client = self.client.lock().await;
        let mut tx = client.begin().await?;
        let reserved = self.counter.reserve(&mut tx, request, 1, Keep::Always).await?;
        ensure!(reserved.is_new(), "the stock is plenty, but not for {request}: {reserved:?}");
        Ok(Transaction::commit(tx).await?)
    }

    async fn read_and_write(&self, request: &str) -> Result<()> {
        let mut client = self.client.lock().await;
        let tx = client.transaction().await?;
        let taken: i64 = tx.query_one("SELECT taken FROM stock", &[]).await?.get(0);
        tx.execute("UPDATE stock SET taken = $1", &[&(taken + 1)]).await?;
        tx.execute("INSERT INTO request VALUES ($1)", &[&request]).await?;
        Ok(tx.commit().await?)
    }

    async fn taken(&self) -> Result<(u64, u64)> {
        let mut client = self.client.lock().await;
        let locked: i64 = client.query_one("SELECT taken FROM stock", &[]).await?.get(0);
        let mut tx = client.begin().await?;
        let stock = self.counter.stock(&mut tx).await?.context("the stock is gone")?;
        Ok((stock.taken, locked.cast_unsigned()))
    }

    async fn remove(&self) -> Result<()> {
        let drop = format!("DROP SCHEMA \"{}\" CASCADE", self.schema);
        Ok(self.client.lock().await.batch_execute(&drop).await?)
    }
}
