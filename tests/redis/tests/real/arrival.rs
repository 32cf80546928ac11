//! What is said to servers that cannot be trusted with locks, and to users who may not.

use anyhow::{Context, Result, ensure};
use palisade::{Error, ErrorKind};
use palisade_redis_trials::{client, server, url};
use palisade_testkit::servers::{RedisOptions, RedisServer};

const SECRET: &str = "hunter2";

async fn refusal(url: &str) -> Result<Error> {
    let error = palisade::connect(url).await.err().with_context(|| format!("{url} was accepted"))?;
    let everything = format!("{error} {error:?}");
    ensure!(!everything.contains(SECRET), "a secret is shown: {everything}");
    Ok(error)
}

async fn with(args: &[&str]) -> Result<RedisServer> {
    let args = args.iter().map(ToString::to_string).collect();
    RedisServer::start(RedisOptions { args, ..RedisOptions::default() }).await
}

#[tokio::test]
async fn a_cache_is_refused() -> Result<()> {
    let server = with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]).await?;
    let error = refusal(&url(&server)).await?;
    ensure!(error.kind() == ErrorKind::Unsupported, "{error:?}");
    ensure!(error.to_string().contains("allkeys-lru") && error.to_string().contains("noeviction"), "{error}");
    server.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).await?;
    client(&url(&server)).await?;
    Ok(())
}

#[tokio::test]
async fn a_replica_is_refused() -> Result<()> {
    let primary = server().await?;
    let port = primary.address().port().to_string();
    let replica = with(&["--replicaof", "127.0.0.1", &port]).await?;
    let error = refusal(&url(&replica)).await?;
    ensure!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("replica"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_wrong_password_is_refused_without_being_shown() -> Result<()> {
    let server = server().await?;
    server.ask(&["ACL", "SETUSER", "locks", "on", &format!(">{SECRET}"), "~*", "&*", "+@all"]).await?;
    let address = server.address();
    client(&format!("redis://locks:{SECRET}@{address}")).await?;
    for url in [
        format!("redis://locks:{SECRET}x@{address}"),
        format!("redis://nobody:{SECRET}@{address}"),
        format!("redis://locks:{SECRET}@{address}?nonsense=1"),
        format!("redis://locks:{SECRET}@{address}/many"),
        format!("redis://locks:{SECRET}"),
        format!("redis://:{SECRET}?x=1"),
        format!("redlock:redis://locks:{SECRET}%3Fx@{address},redis://locks:{SECRET},memory:a"),
    ] {
        let error = refusal(&url).await?;
        ensure!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Invalid), "{error:?}");
    }
    let engine = palisade::connect(&format!("redis://locks:{SECRET}@{address}")).await?;
    ensure!(!format!("{engine:?}").contains(SECRET), "Debug shows it");
    Ok(())
}

#[tokio::test]
async fn a_user_without_the_rights_is_told_which_are_missing() -> Result<()> {
    let server = server().await?;
    let address = server.address();
    let cases: [(&str, &[&str]); 4] = [
        ("publish", &["~*", "&*", "+@all", "-publish"]),
        ("subscribe", &["~*", "&*", "+@all", "-subscribe"]),
        ("zadd", &["~*", "&*", "+@all", "-zadd"]),
        ("keys", &["~other:*", "&*", "+@all"]),
    ];
    for (user, rights) in cases {
        let password = format!(">{SECRET}");
        let command: Vec<&str> =
            ["ACL", "SETUSER", user, "on", &password].iter().chain(rights).copied().collect();
        server.ask(&command).await?;
        let error = refusal(&format!("redis://{user}:{SECRET}@{address}")).await?;
        ensure!(error.kind() == ErrorKind::Denied, "{user}: {error:?}");
        ensure!(error.to_string().contains(user) && error.to_string().contains("grant it"), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn a_user_with_just_the_documented_rights_can_do_everything() -> Result<()> {
    let server = server().await?;
    let password = format!(">{SECRET}");
    let rights =
        "+@read +@write +@scripting +@pubsub +@connection +info +time ~lock:* ~palisade:* &palisade:*";
    let command: Vec<&str> =
        ["ACL", "SETUSER", "locks", "on", &password].into_iter().chain(rights.split(' ')).collect();
    server.ask(&command).await?;
    let url =
        format!("redis://locks@{}?key=lock:%7Bname%7D&password-env=PALISADE_TEST_NONE", server.address());
    ensure!(
        refusal(&url).await?.to_string().contains("PALISADE_TEST_NONE"),
        "a variable that is not set is named"
    );
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), format!("{SECRET}\n"))?;
    let url = format!(
        "redis://locks@{}?key=lock:%7Bname%7D&password-file={}",
        server.address(),
        file.path().display()
    );
    let (one, two) = (client(&url).await?, client(&url).await?);
    let guard = one.mutex("orders")?.acquire().await?;
    one.register("r")?.fenced(&guard).await?.write("x").await?;
    let waiting = tokio::spawn({
        let mutex = two.mutex("orders")?;
        async move { mutex.acquire().await }
    });
    palisade_redis_trials::until("it waits", || async { Ok(one.show("orders").await?.waiters.len() == 1) })
        .await?;
    guard.release().await?;
    waiting.await??.release().await?;
    ensure!(one.list("").await?.is_empty(), "all is given back");
    Ok(())
}

#[tokio::test]
async fn whoever_does_not_speak_redis_is_found_out() -> Result<()> {
    // Something that accepts and says nothing, and nobody at all.
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let url = format!("redis://{}?connect-timeout=300ms", silent.local_addr()?);
    let error = refusal(&url).await?;
    ensure!(error.is_transient(), "{error:?}");
    let address = silent.local_addr()?;
    drop(silent);
    let error = refusal(&format!("redis://{address}")).await?;
    ensure!(
        error.to_string().contains("nobody listens") && error.to_string().contains(&address.to_string()),
        "{error}"
    );
    Ok(())
}
