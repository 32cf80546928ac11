//! What is said where no ZooKeeper is, and to users who may not.

use anyhow::{Context, Result, ensure};
use palisade::{Error, ErrorKind};
use palisade_testkit::servers::{ZooKeeperOptions, ZooKeeperSet};
use palisade_zookeeper_trials::{bare, client, nodes, one, url};
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
    let error = refusal(&format!("zk://{free}")).await?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(error.to_string().contains(&free.to_string()), "{error}");
    ensure!(error.to_string().contains("nobody listens"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_speaks_another_protocol_is_said_to() -> Result<()> {
    for answer in ["-ERR unknown command\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut heard = [0; 64];
                let _ = stream.read(&mut heard).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let error = refusal(&format!("zk://{address}")).await?;
        ensure!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Invalid), "{error:?}");
        ensure!(error.to_string().contains(&address.to_string()), "{error}");
        ensure!(error.to_string().contains("ZooKeeper"), "{error}");
    }
    Ok(())
}

#[tokio::test]
async fn one_bad_server_of_several_is_passed_over() -> Result<()> {
    let set = one().await?;
    let free = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    for hosts in [format!("{free},{}", set.hosts()), format!("{},{free}", set.hosts())] {
        client(&format!("zk://{hosts}")).await?.mutex("orders")?.acquire().await?.release().await?;
    }
    Ok(())
}

#[tokio::test]
async fn digest_users_are_let_in_or_told_why_not() -> Result<()> {
    let set = one().await?;
    let hosts = set.hosts();
    let owner = client(&format!("zk://locks:{SECRET}@{hosts}/app?acl=creator")).await?;
    let guard = owner.mutex("orders")?.acquire().await?;
    ensure!(!format!("{owner:?}").contains(SECRET), "Debug shows it");
    // The same user comes in, and waits in the same line.
    let same = client(&format!("zk://locks:{SECRET}@{hosts}/app?acl=creator")).await?;
    ensure!(same.mutex("orders")?.try_acquire().await?.is_none(), "two hold at once");
    guard.release().await?;
    for url in [
        format!("zk://{hosts}/app"),
        format!("zk://locks:{SECRET}x@{hosts}/app"),
        format!("zk://nobody:{SECRET}@{hosts}/app"),
    ] {
        let error = refusal(&url).await?;
        ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
        ensure!(error.to_string().contains("/app/locks"), "{error}");
    }
    // Elsewhere nobody asks who they are.
    client(&format!("zk://{hosts}")).await?.mutex("orders")?.acquire().await?.release().await?;
    Ok(())
}

#[tokio::test]
async fn sasl_users_are_let_in_or_told_why_not() -> Result<()> {
    let options = ZooKeeperOptions {
        sasl: Some(("locks".to_owned(), SECRET.to_owned())),
        lines: vec!["sessionRequireClientSASLAuth=true".to_owned()],
        ..ZooKeeperOptions::default()
    };
    let set = ZooKeeperSet::start(1, options).await?;
    let hosts = set.hosts();
    let client = client(&format!("zk://locks:{SECRET}@{hosts}?auth=sasl")).await?;
    client.mutex("orders")?.acquire().await?.release().await?;
    for (url, word) in [
        (format!("zk://locks:{SECRET}x@{hosts}?auth=sasl"), "password"),
        (format!("zk://nobody:{SECRET}x@{hosts}?auth=sasl"), "password"),
        (format!("zk://{hosts}"), "SASL"),
    ] {
        let error = refusal(&url).await?;
        ensure!(error.kind() == ErrorKind::Denied && error.to_string().contains(word), "{error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn locks_are_where_they_should_be() -> Result<()> {
    let set = one().await?;
    let other = bare(&set).await?;
    let client = client(&format!("{}/app/x?root=/my/locks", url(&set))).await?;
    let guard = client.mutex("orders")?.acquire().await?;
    ensure!(other.children("/app/x/my/locks/orders").await?.len() == 1, "it is elsewhere");
    ensure!(nodes(&other, "orders").await?.is_empty(), "it is here, too");
    guard.release().await?;
    Ok(())
}

#[tokio::test]
async fn wrong_options_are_named() -> Result<()> {
    let set = one().await?;
    for (option, word) in [
        ("nonsense=1", "nonsense"),
        ("tls-ca=/x", "zks"),
        ("password-env=HOME", "user"),
        ("dialect=klingon", "kazoo"),
        ("root=locks", "slash"),
        ("auth=magic", "sasl"),
        ("auth=sasl", "login"),
        ("acl=mine", "creator"),
        ("acl=creator", "login"),
    ] {
        let error = refusal(&format!("{}?{option}", url(&set))).await?;
        ensure!(error.kind() == ErrorKind::Invalid && error.to_string().contains(word), "{error}");
    }
    Ok(())
}
