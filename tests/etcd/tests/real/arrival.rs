//! What is said where no etcd is, and to users who may not.

use anyhow::{Context, Result, ensure};
use palisade::{Error, ErrorKind};
use palisade_etcd_trials::{client, one, url};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const SECRET: &str = "hunter2";

async fn refusal(url: &str) -> Result<Error> {
    let error = palisade::connect(url).await.err().with_context(|| format!("{url} was accepted"))?;
    let everything = format!("{error} {error:?}");
    ensure!(!everything.contains(SECRET), "a secret is shown: {everything}");
    Ok(error)
}

#[tokio::test]
async fn nobody_there_is_said_to_be() -> Result<()> {
    let free = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let error = refusal(&format!("etcd://{free}")).await?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(error.to_string().contains(&free.to_string()), "{error}");
    ensure!(error.to_string().contains("nobody listens"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_speaks_another_protocol_is_said_to() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut heard = [0; 64];
                let _ = stream.read(&mut heard).await;
                let _ = stream.write_all(b"-ERR unknown command 'PRI'\r\n").await;
                let _ = stream.read(&mut heard).await;
            });
        }
    });
    let error = refusal(&format!("etcd://{address}")).await?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(error.to_string().contains(&address.to_string()), "{error}");
    ensure!(error.to_string().contains("etcd"), "{error}");
    Ok(())
}

#[tokio::test]
async fn one_bad_server_of_several_is_passed_over() -> Result<()> {
    let set = one().await?;
    let free = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    for hosts in [format!("{free},{}", set.hosts()), format!("{},{free}", set.hosts())] {
        client(&format!("etcd://{hosts}")).await?.mutex("orders")?.acquire().await?.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn users_are_let_in_or_told_why_not() -> Result<()> {
    let set = one().await?;
    let (server, hosts) = (&set.servers[0], set.hosts());
    for args in [
        "user add root:rootpass",
        "user add locks:hunter2",
        "user add stranger:hunter2",
        "role add locks",
        "role add other",
        "role grant-permission locks --prefix=true readwrite app/",
        "role grant-permission other --prefix=true readwrite other/",
        "user grant-role root root",
        "user grant-role locks locks",
        "user grant-role stranger other",
        "auth enable",
    ] {
        let args: Vec<&str> = args.split(' ').collect();
        server.ctl(&args).await?;
    }
    let client = client(&format!("etcd://locks:{SECRET}@{hosts}?prefix=app/")).await?;
    client.mutex("orders")?.acquire().await?.release().await?;
    ensure!(!format!("{client:?}").contains(SECRET), "Debug shows it");
    let refused = [
        (format!("etcd://{hosts}?prefix=app/"), "user"),
        (format!("etcd://locks:{SECRET}x@{hosts}?prefix=app/"), "password"),
        (format!("etcd://nobody:{SECRET}@{hosts}?prefix=app/"), "password"),
        (format!("etcd://stranger:{SECRET}@{hosts}?prefix=app/"), "grant-permission"),
        (format!("etcd://locks:{SECRET}@{hosts}"), "grant-permission"),
    ];
    for (url, word) in refused {
        let error = refusal(&url).await?;
        ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
        ensure!(error.to_string().contains(word), "{error}");
    }
    // A server that was started anew has forgotten who logged in.
    server.kill().await?;
    server.start_again().await?;
    client.mutex("orders")?.acquire().await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn wrong_options_are_named() -> Result<()> {
    let set = one().await?;
    for (option, word) in [("nonsense=1", "nonsense"), ("tls-ca=/x", "etcds"), ("password-env=HOME", "user")]
    {
        let error = refusal(&format!("{}?{option}", url(&set))).await?;
        ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains(word), "{error}");
    }
    Ok(())
}
