//! Many tasks of one client at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use palisade::{Client, Token};
use palisade_core::Condition;
use palisade_redis_trials::{client, server, soon, until, url};
use palisade_testkit::servers::RedisServer;
use tokio::task::JoinSet;

async fn requests(server: &RedisServer) -> Result<u64> {
    calls(server, "evalsha").await
}

/// How often a command was run, from scripts too.
async fn calls(server: &RedisServer, command: &str) -> Result<u64> {
    let info = server.ask(&["INFO", "commandstats"]).await?;
    let start = format!("cmdstat_{command}:calls=");
    let calls = |line: &str| line.strip_prefix(&start)?.split(',').next()?.parse::<u64>().ok();
    Ok(info.text().lines().filter_map(calls).sum())
}

/// Takes and gives back `turns` locks in each of some tasks; all tokens.
async fn take_turns(
    client: &Client,
    tasks: usize,
    turns: usize,
    name: fn(usize) -> String,
) -> Result<Vec<Token>> {
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let mutex = client.mutex(&name(task))?;
        running.spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..turns {
                let guard = mutex.acquire().await?;
                tokens.push(guard.token());
                guard.release().await?;
            }
            Ok::<_, palisade::Error>(tokens)
        });
    }
    let mut tokens = Vec::new();
    while let Some(done) = soon("a task", running.join_next()).await? {
        tokens.extend(done??);
    }
    Ok(tokens)
}

#[tokio::test]
async fn what_many_tasks_ask_for_goes_in_few_calls_and_no_token_is_given_twice() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    take_turns(&client, 1, 1, |_| "first".to_owned()).await?;
    let before = requests(&server).await?;
    let tokens = take_turns(&client, 64, 20, |task| format!("orders/{task}")).await?;
    let sent = requests(&server).await? - before;
    ensure!(tokens.iter().collect::<BTreeSet<_>>().len() == tokens.len(), "a token was given twice");
    ensure!(sent < 64 * 20, "{sent} requests for {} pairs", tokens.len());
    until("no lock is left", async || Ok(server.ask(&["EXISTS", "orders/1"]).await?.text() == "0")).await
}

/// Whoever never had a lock at once joins a line by the shortcut, too: it needs no token yet.
#[tokio::test]
async fn a_line_is_joined_by_the_shortcut_also_by_a_newcomer() -> Result<()> {
    let server = server().await?;
    let (holder, first, second) =
        (client(&url(&server)).await?, client(&url(&server)).await?, client(&url(&server)).await?);
    let guard = holder.mutex("orders")?.acquire().await?;
    let waits = async |client: &Client, line: usize| {
        let mutex = client.mutex("orders")?;
        let waiting = tokio::spawn(async move { mutex.acquire().await });
        let in_line = async || {
            let mut count = 0;
            for how_many in [["ZCARD", "palisade:{orders}:w"], ["LLEN", "palisade:{orders}:q"]] {
                count += server.ask(&how_many).await?.text().parse::<usize>()?;
            }
            Ok(count == line)
        };
        until("it is in line", in_line).await?;
        anyhow::Ok(waiting)
    };
    let first = waits(&first, 1).await?;
    // Only the long way asks for a rank.
    let ranks = calls(&server, "zrank").await?;
    let second = waits(&second, 2).await?;
    ensure!(calls(&server, "zrank").await? == ranks, "it took the long way");
    guard.release().await?;
    soon("the first", first).await???.release().await?;
    soon("the second", second).await???.release().await?;
    Ok(())
}

/// Rivals within one call, plain names and odd ones, whose keys do not follow from the lock key.
#[tokio::test]
async fn rivals_in_one_call_take_turns_whatever_their_names() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    let name: fn(usize) -> String = |task| ["plain", "odd{tag}", "odd}{"][task % 3].to_owned();
    let tokens = take_turns(&client, 48, 10, name).await?;
    ensure!(tokens.iter().collect::<BTreeSet<_>>().len() == 480, "a token was given twice");
    Ok(())
}

/// What another client has at the key of one claim is no harm to those that are sent with it.
#[tokio::test]
async fn one_that_cannot_be_had_does_not_hold_up_the_others() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    server.ask(&["RPUSH", "orders/3", "a list"]).await?;
    // What belongs to us and is of another kind makes a script fail that comes to it.
    server.ask(&["SET", "palisade:{orders/5}:e", "nonsense"]).await?;
    let client = Arc::new(client);
    let mut running = JoinSet::new();
    for task in 0..16 {
        let mutex = client.mutex(&format!("orders/{task}"))?;
        running.spawn(async move {
            match mutex.try_acquire().await {
                Ok(Some(guard)) => guard.release().await.map(|_| true),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            }
        });
    }
    let (mut had, mut failed) = (0, 0);
    while let Some(done) = soon("a task", running.join_next()).await? {
        match done? {
            Ok(true) => had += 1,
            Ok(false) => {}
            Err(_) => failed += 1,
        }
    }
    ensure!((had, failed) == (14, 1), "{had} had it, {failed} failed");
    Ok(())
}

/// What does not fit into the socket at once is sent nevertheless, in order.
#[tokio::test]
async fn large_values_pass() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    let mut running = JoinSet::new();
    for number in 0..32_u8 {
        let register = client.register(&format!("large/{number}"))?;
        running.spawn(async move {
            let value = vec![number; 1_000_000];
            register.write(value.clone(), Condition::always()).await?;
            Ok::<_, palisade::Error>(register.read().await?.value.is_some_and(|read| read == value))
        });
    }
    while let Some(done) = soon("a register", running.join_next()).await? {
        ensure!(done??, "another value came back");
    }
    Ok(())
}

#[tokio::test]
async fn locks_are_found_among_other_keys() -> Result<()> {
    let server = server().await?;
    let client = client(&url(&server)).await?;
    for number in 0..3000 {
        server
            .ask(&[
                "SET",
                &format!("cache:{number}"),
                "0123456789abcdef0123456789abcdef no lock",
                "PX",
                "60000",
            ])
            .await?;
    }
    server.ask(&["SADD", "a set", "1"]).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    let names: Vec<String> = client.list("").await?.iter().map(|view| view.resource.to_string()).collect();
    ensure!(names == ["orders"], "{names:?}");
    guard.release().await?;
    Ok(())
}

/// After a new connection the clock counts, also for those who come together.
#[tokio::test]
async fn tokens_of_many_at_once_are_not_behind_the_clock() -> Result<()> {
    let server = server().await?;
    let before = take_turns(&client(&url(&server)).await?, 1, 1, |_| "first".to_owned()).await?;
    // As a replica that had not heard of the last tokens.
    let behind = (before[0].get() - 60_000_000).to_string();
    server.ask(&["SET", "palisade:t", &behind]).await?;
    let tokens = take_turns(&client(&url(&server)).await?, 64, 1, |task| format!("orders/{task}")).await?;
    ensure!(tokens.iter().all(|token| *token > before[0]), "{tokens:?} after {before:?}");
    Ok(())
}
