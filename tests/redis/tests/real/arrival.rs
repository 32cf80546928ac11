//! What is said to servers that cannot be trusted with locks, and to users who may not.

use std::error::Error as _;
use std::io::{Read, Write};

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
    let error = refusal(&format!("redis://locks:{SECRET}x@{address}")).await?;
    ensure!(error.to_string().contains("\"locks\"") && error.source().is_none(), "{error}");
    // Nobody is logged in without a password: it would be the default user who does everything.
    let error = refusal(&format!("redis://locks@{address}")).await?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("password-env"), "{error}");
    let engine = palisade::connect(&format!("redis://locks:{SECRET}@{address}")).await?;
    ensure!(!format!("{engine:?}").contains(SECRET), "Debug shows it");
    Ok(())
}

#[tokio::test]
async fn a_password_that_is_needed_is_asked_for() -> Result<()> {
    let login = Some(("default".to_owned(), SECRET.to_owned()));
    let args = ["--requirepass", SECRET].map(str::to_owned).to_vec();
    let server = RedisServer::start(RedisOptions { args, login, ..RedisOptions::default() }).await?;
    let address = server.address();
    for scheme in ["redis", "redis+cluster"] {
        let error = refusal(&format!("{scheme}://{address}")).await?;
        ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
        ensure!(error.to_string().contains("asks for a password"), "{error}");
    }
    let error = refusal(&format!("redis+sentinel://:{SECRET}@{address}/main")).await?;
    ensure!(error.to_string().contains("sentinel-password-env"), "{error}");
    client(&format!("redis://:{SECRET}@{address}")).await?;
    Ok(())
}

#[tokio::test]
async fn a_password_that_is_not_needed_does_no_harm() -> Result<()> {
    let server = server().await?;
    client(&format!("redis://:{SECRET}@{}", server.address())).await?;
    Ok(())
}

#[tokio::test]
async fn a_server_of_another_kind_is_told_from_one_that_is_down() -> Result<()> {
    let server = server().await?;
    let address = server.address();
    for (url, remedy) in [
        (format!("redis+sentinel://{address}/main"), "no Sentinel"),
        (format!("redis+cluster://{address}"), "no Cluster"),
    ] {
        let error = refusal(&url).await?;
        ensure!(error.kind() == ErrorKind::Unsupported && error.to_string().contains(remedy), "{error}");
    }
    let error = refusal(&format!("redis://{address}/99")).await?;
    ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains("no database"), "{error}");
    let error = refusal("redis://no-such-host.invalid").await?;
    ensure!(error.is_transient() && error.to_string().contains("no such host"), "{error}");
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
        if user != "subscribe" {
            ensure!(error.to_string().contains("palisade-checks-its-rights"), "no key is named: {error}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_is_full_says_so() -> Result<()> {
    let server = with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]).await?;
    let error = refusal(&url(&server)).await?;
    ensure!(error.kind() == ErrorKind::Full && error.to_string().contains("maxmemory"), "{error:?}");
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

#[tokio::test]
async fn whoever_answers_in_another_language_is_named() -> Result<()> {
    for (greeting, word) in [
        ("HTTP/1.1 400 Bad Request\r\n\r\n", "no Redis server"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "no Redis server"),
        // An alert, as servers that speak TLS answer plain text.
        ("\x15\x03\x01\x00\x02\x02\x46", "write rediss"),
        ("", "write rediss"),
    ] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let answers = std::thread::spawn(move || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            // All that was asked: what is left unread would make the end a reset, which overtakes the answer.
            let read = stream.read(&mut [0; 4096])?;
            stream.write_all(if read > 0 { greeting.as_bytes() } else { &[] })
        });
        let error = refusal(&format!("redis://{address}")).await?;
        ensure!(error.to_string().contains(word) && !error.to_string().contains('\n'), "{word}: {error}");
        answers.join().map_err(|_| anyhow::anyhow!("nobody answered"))??;
    }
    Ok(())
}
