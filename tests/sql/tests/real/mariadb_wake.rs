//! Those who wait for a lease row of MariaDB, and are woken by a lock of the server's (`wake=get_lock`).
//!
//! They look once a minute only, and claims last as long: who gets its turn in time was woken.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use palisade::{Client, ClientBuilder, ErrorKind};
use palisade_core::{Claim, Claimed, Mode, Name, Owner, Ttl, Wakeup};
use palisade_sql_trials::{SECRET, refusal, soon, until};
use palisade_testkit::servers::MariaDbServer;
use tokio::sync::watch;

use crate::alike::cut_between;
use crate::mariadb_advisory::server;
use crate::mariadb_advisory_trouble::cut;
use crate::multiplexer::Multiplexer;

const RARELY: Duration = Duration::from_mins(1);

async fn woken(server: &MariaDbServer) -> Result<Client> {
    connect(server, "wake=get_lock&poll=1m").await
}

async fn polls(server: &MariaDbServer) -> Result<Client> {
    connect(server, "wake=poll").await
}

async fn connect(server: &MariaDbServer, options: &str) -> Result<Client> {
    connect_to(&format!("{}?{options}", server.url())).await
}

async fn connect_to(url: &str) -> Result<Client> {
    // Patient: a server that makes its schema on a busy machine takes its time.
    let url = format!("{url}&connect-timeout=20s");
    Ok(ClientBuilder::default().ttl(RARELY).connect(&url).await?)
}

/// How many bells are had, and how many are waited for.
async fn bells(server: &MariaDbServer) -> Result<(u32, u32)> {
    let counted = "SELECT COUNT(IF(lock_status = 'GRANTED', 1, NULL)), COUNT(IF(lock_status = 'PENDING', 1, NULL)) \
                   FROM performance_schema.metadata_locks WHERE object_name LIKE 'palisade.bell.%'";
    let said = server.sql(counted).await?;
    let (had, waiting) = said.trim().split_once('\t').context("two numbers")?;
    Ok((had.parse()?, waiting.parse()?))
}

/// How many statements the server was sent so far.
async fn statements(server: &MariaDbServer) -> Result<u64> {
    let said = server.sql("SHOW GLOBAL STATUS LIKE 'Questions'").await?;
    Ok(said.split_whitespace().nth(1).context("a number")?.parse()?)
}

async fn is_awaited(client: &Client, resource: &str) -> Result<()> {
    until("it waits", || async { Ok(!client.show(resource).await?.waiters.is_empty()) }).await
}

#[tokio::test]
async fn the_profile_says_who_is_told() -> Result<()> {
    let server = server().await?;
    let client = woken(&server).await?;
    let wakeup = client.engine().profile().wakeup;
    ensure!(wakeup == Wakeup::PushOrPoll(RARELY), "it says that waiters are {wakeup}");
    Ok(())
}

#[tokio::test]
async fn a_turn_is_told_though_nobody_looks() -> Result<()> {
    const TURNS: u32 = 200;
    const HELD: Duration = Duration::from_millis(20);
    let server = server().await?;
    let (one, two) = (woken(&server).await?, woken(&server).await?);
    let mut times = Vec::new();
    let mut guard = one.mutex("orders")?.acquire().await?;
    let before = statements(&server).await?;
    for turn in 0..TURNS {
        let lock = if turn % 2 == 0 { &two } else { &one }.mutex("orders")?;
        let waiting = tokio::spawn(async move { (lock.acquire().await, Instant::now()) });
        is_awaited(&one, "orders").await?;
        tokio::time::sleep(HELD).await;
        let began = Instant::now();
        guard.release().await?;
        let (next, at) = soon("the turn", waiting).await??;
        guard = next?;
        times.push(at - began);
    }
    let asked = statements(&server).await? - before;
    times.sort();
    let (median, most) = (times[times.len() / 2], times[times.len() - 1]);
    println!("hand-overs: half within {median:?}, all within {most:?}; {asked} statements");
    ensure!(median < Duration::from_secs(1), "half of the hand-overs took {median:?} and more");
    Ok(())
}

#[tokio::test]
async fn sixteen_clients_take_turns() -> Result<()> {
    const CLIENTS: usize = 16;
    const TURNS: usize = 10;
    let server = server().await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(woken(&server).await?);
    }
    let guard = clients[0].mutex("orders")?.acquire().await?;
    let (told, mut turns) = tokio::sync::mpsc::unbounded_channel();
    let work = |(number, client): (usize, Client)| {
        let told = told.clone();
        tokio::spawn(async move {
            let mut last = None;
            for _ in 0..TURNS {
                let guard = soon("a turn", client.mutex("orders")?.acquire()).await??;
                ensure!(last < Some(guard.token()), "the token fell");
                last = Some(guard.token());
                told.send(number)?;
                guard.release().await?;
            }
            anyhow::Ok(client)
        })
    };
    let tasks: Vec<_> = clients.into_iter().enumerate().map(work).collect();
    drop(told);
    // The first has the bell, and waits for nobody to ring it.
    until("all wait", || async { Ok(bells(&server).await?.1 as usize == CLIENTS - 1) }).await?;
    let (before, began) = (statements(&server).await?, Instant::now());
    guard.release().await?;
    let mut order = Vec::new();
    while let Some(number) = soon("the next", turns.recv()).await? {
        order.push(number);
    }
    let (took, asked) = (began.elapsed(), statements(&server).await? - before);
    println!("{} turns of {CLIENTS} clients in {took:?}, {asked} statements", order.len());
    let mut clients = Vec::new();
    for task in tasks {
        clients.push(task.await??);
    }
    // Whoever is slow to come again lets others go first; nobody is left behind.
    let mut halfway: Vec<usize> = (0..CLIENTS).map(|_| 0).collect();
    order[..CLIENTS * TURNS / 2].iter().for_each(|number| halfway[*number] += 1);
    ensure!(halfway.iter().all(|turns| *turns > 0), "half-way they have had {halfway:?} turns");
    until("no bell is left", || async { Ok(bells(&server).await? == (0, 0)) }).await
}

/// Many claims of one client, on one resource, have one connection that waits.
#[tokio::test]
async fn a_client_waits_once_for_each_resource() -> Result<()> {
    const WAITERS: usize = 40;
    let server = server().await?;
    let (holder, client) = (woken(&server).await?, Arc::new(woken(&server).await?));
    let guard = holder.mutex("orders")?.acquire().await?;
    let tasks: Vec<_> = (0..WAITERS)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { anyhow::Ok(client.mutex("orders")?.acquire().await?.release().await?) })
        })
        .collect();
    until("all wait", || async { Ok(holder.show("orders").await?.waiters.len() == WAITERS) }).await?;
    until("one listens", || async { Ok(bells(&server).await? == (1, 1)) }).await?;
    guard.release().await?;
    for task in tasks {
        soon("a turn", task).await???;
    }
    until("no bell is left", || async { Ok(bells(&server).await? == (0, 0)) }).await
}

/// What several hold at once has no bell: whoever waits looks, one at a time.
#[tokio::test]
async fn readers_and_slots_get_their_turns() -> Result<()> {
    let server = server().await?;
    let clients = [woken(&server).await?, woken(&server).await?, woken(&server).await?];
    for _ in 0..3 {
        let writer = clients[0].rw_lock("orders")?.write().await?;
        let (one, two) = (clients[1].rw_lock("orders")?, clients[2].rw_lock("orders")?);
        let readers = tokio::spawn(async move { futures::try_join!(one.read(), two.read()) });
        until("both wait", || async { Ok(clients[0].show("orders").await?.waiters.len() == 2) }).await?;
        writer.release().await?;
        let (one, two) = soon("two readers", readers).await???;
        let lock = clients[0].rw_lock("orders")?;
        let writer = tokio::spawn(async move { lock.write().await });
        is_awaited(&clients[0], "orders").await?;
        one.release().await?;
        two.release().await?;
        // Readers are let in behind one who goes on as a reader.
        let writer = soon("a writer", writer).await???;
        let lock = clients[1].rw_lock("orders")?;
        let reader = tokio::spawn(async move { lock.read().await });
        is_awaited(&clients[0], "orders").await?;
        let first = writer.downgrade().await?;
        soon("a reader", reader).await???.release().await?;
        first.release().await?;
    }
    for _ in 0..3 {
        let (one, two) = (
            clients[0].semaphore("seats", 2)?.acquire().await?,
            clients[1].semaphore("seats", 2)?.acquire().await?,
        );
        let seats = clients[2].semaphore("seats", 2)?;
        let third = tokio::spawn(async move { seats.acquire().await });
        is_awaited(&clients[0], "seats").await?;
        one.release().await?;
        soon("a slot", third).await???.release().await?;
        two.release().await?;
    }
    Ok(())
}

/// A claim of so many seconds that nobody renews.
fn unattended(resource: &str, seconds: u64) -> Result<Arc<Claim>> {
    let ttl = Ttl::new(Duration::from_secs(seconds))?;
    Ok(Arc::new(Claim::new(Name::new(resource)?, Mode::Exclusive, ttl, Arc::new(Owner::this_process()))))
}

/// Its bell is free at once, its row is not: who waits neither takes that for its turn, nor asks without a pause.
#[tokio::test]
async fn a_holder_that_dies_is_waited_for_until_its_time_is_up() -> Result<()> {
    let server = server().await?;
    let (dead, one, two) = (woken(&server).await?, woken(&server).await?, woken(&server).await?);
    let began = Instant::now();
    let claimed = dead.engine().claim(&unattended("orders", 12)?).await?;
    ensure!(matches!(claimed, Claimed::Granted(_)), "it is {claimed:?}");
    let locks = [one.mutex("orders")?, two.mutex("orders")?];
    let tasks = locks.map(|lock| tokio::spawn(async move { lock.acquire().await?.release().await }));
    until("both wait for the bell", || async { Ok(bells(&server).await? == (1, 2)) }).await?;
    let before = statements(&server).await?;
    dead.engine().close().await;
    for task in tasks {
        soon("a turn", task).await???;
    }
    ensure!(began.elapsed() >= Duration::from_secs(12), "its time was not up");
    let asked = statements(&server).await? - before;
    println!("behind a dead holder: {asked} statements in {:?}", began.elapsed());
    ensure!(asked < 4_000, "{asked} statements were sent meanwhile");
    Ok(())
}

#[tokio::test]
async fn a_holder_that_has_no_bell_is_looked_after() -> Result<()> {
    const HELD: Duration = Duration::from_secs(2);
    let server = server().await?;
    let (holder, one, two) = (polls(&server).await?, woken(&server).await?, woken(&server).await?);
    let guard = holder.mutex("orders")?.acquire().await?;
    let locks = [one.mutex("orders")?, two.mutex("orders")?];
    let tasks = locks.map(|lock| tokio::spawn(async move { lock.acquire().await?.release().await }));
    until("both wait", || async { Ok(holder.show("orders").await?.waiters.len() == 2) }).await?;
    let before = statements(&server).await?;
    tokio::time::sleep(HELD).await;
    let asked = statements(&server).await? - before;
    println!("behind a holder without a bell: {asked} statements in {HELD:?}");
    ensure!(asked < 1_000, "{asked} statements were sent meanwhile");
    guard.release().await?;
    for task in tasks {
        soon("a turn", task).await???;
    }
    Ok(())
}

/// One who polls, and one who is woken, take turns.
#[tokio::test]
async fn those_who_poll_and_those_who_are_woken_get_along() -> Result<()> {
    let server = server().await?;
    let clients = [polls(&server).await?, woken(&server).await?];
    let tasks = clients.map(|client| {
        tokio::spawn(async move {
            for _ in 0..20 {
                soon("a turn", client.mutex("orders")?.acquire()).await??.release().await?;
            }
            anyhow::Ok(())
        })
    });
    for task in tasks {
        task.await??;
    }
    Ok(())
}

#[tokio::test]
async fn a_wait_that_is_given_up_ends_in_the_server_too() -> Result<()> {
    let server = server().await?;
    let (one, two) = (woken(&server).await?, woken(&server).await?);
    let guard = one.mutex("orders")?.acquire().await?;
    for _ in 0..3 {
        let lock = two.mutex("orders")?;
        let waiting = tokio::spawn(async move { lock.acquire().await });
        until("it waits for the bell", || async { Ok(bells(&server).await? == (1, 1)) }).await?;
        waiting.abort();
        until("nobody waits", || async { Ok(bells(&server).await? == (1, 0)) }).await?;
    }
    guard.release().await?;
    until("no bell is left", || async { Ok(bells(&server).await? == (0, 0)) }).await
}

#[tokio::test]
async fn closing_leaves_no_connection_and_no_bell() -> Result<()> {
    let server = server().await?;
    for closes in [true, false] {
        let (holder, waiter) = (woken(&server).await?, woken(&server).await?);
        let _held = holder.engine().claim(&unattended("orders", 60)?).await?;
        let queued = unattended("orders", 60)?;
        waiter.engine().claim(&queued).await?;
        until("it waits for the bell", || async { Ok(bells(&server).await? == (1, 1)) }).await?;
        if closes {
            waiter.engine().close().await;
            holder.engine().close().await;
        }
        drop((waiter, holder));
        until("all is gone", || async {
            let left =
                server.sql("SELECT COUNT(*) - 1 FROM information_schema.processlist WHERE db = 'palisade'");
            Ok(left.await?.trim() == "0" && bells(&server).await? == (0, 0))
        })
        .await?;
        server.sql("DELETE FROM palisade_claim").await?;
    }
    Ok(())
}

#[tokio::test]
async fn connections_may_be_cut_at_any_step() -> Result<()> {
    const TURNS: u32 = 40;
    let server = server().await?;
    let (one, two) = (connect(&server, "wake=get_lock").await?, connect(&server, "wake=get_lock").await?);
    let (done, seen) = watch::channel(0);
    let (one, two) = (&one, &two);
    let work = async move {
        let mut last = None;
        let mut held = None;
        for turn in 0..TURNS {
            let client = if turn % 2 == 0 { one } else { two };
            let lock = client.mutex("orders")?;
            let before: Option<palisade::MutexGuard> = held.take();
            let (next, ()) = futures::join!(soon("a turn", lock.acquire()), async { drop(before) });
            let guard = next??;
            ensure!(last < Some(guard.token()), "the token fell");
            last = Some(guard.token());
            held = Some(guard);
            done.send_replace(turn + 1);
        }
        anyhow::Ok(())
    };
    let (worked, cut) = futures::join!(work, cut_between(seen, TURNS, async || cut(&server).await));
    worked?;
    cut?;
    until("no bell is left", || async { Ok(bells(&server).await? == (0, 0)) }).await
}

#[tokio::test]
async fn a_user_who_may_only_execute_is_woken() -> Result<()> {
    let server = server().await?;
    server.sql(&palisade::mysql_schema()).await?;
    server
        .sql(&format!("CREATE USER app IDENTIFIED BY '{SECRET}'; GRANT EXECUTE ON palisade.* TO app"))
        .await?;
    let url = format!("mysql://app:{SECRET}@{}/palisade?wake=get_lock&poll=1m", server.address());
    let (one, two) = (connect_to(&url).await?, connect_to(&url).await?);
    let guard = one.mutex("orders")?.acquire().await?;
    ensure!(two.mutex("orders")?.acquire_within(Duration::from_millis(200)).await?.is_none());
    until("nobody waits", || async { Ok(bells(&server).await? == (1, 0)) }).await?;
    let lock = two.mutex("orders")?;
    let waiting = tokio::spawn(async move { lock.acquire().await });
    until("it waits for the bell", || async { Ok(bells(&server).await? == (1, 1)) }).await?;
    guard.release().await?;
    soon("the turn", waiting).await???.release().await?;
    Ok(())
}

#[tokio::test]
async fn what_gives_one_session_to_many_is_refused() -> Result<()> {
    let server = server().await?;
    polls(&server).await?;
    let pooler = Multiplexer::start(server.address(), true).await?;
    let error =
        refusal(&format!("mysql://root@{}/palisade?wake=get_lock&connect-timeout=20s", pooler.address()))
            .await?;
    ensure!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("wake=poll"), "{error:?}");
    connect_to(&format!("mysql://root@{}/palisade?wake=poll", pooler.address())).await?;
    Ok(())
}
