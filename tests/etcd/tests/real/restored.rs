//! A cluster that goes back to a backup: its revision falls, and tokens must not do so unnoticed.

use anyhow::{Context, Result, ensure};
use palisade::ErrorKind;
use palisade_etcd_trials::{client, one, soon, until, url};

#[tokio::test]
async fn a_restored_cluster_counts_under_another_name() -> Result<()> {
    for token in ["etcd-cluster", "another"] {
        let set = one().await?;
        let (server, client) = (&set.servers[0], client(&url(&set)).await?);
        let register = client.register("balance")?;
        let guard = client.mutex("orders")?.acquire().await?;
        register.fenced(&guard).await?.write("kept").await?;
        guard.release().await?;
        let folder = tempfile::tempdir()?;
        let backup = folder.path().join("backup");
        server.ctl(&["snapshot", "save", &backup.to_string_lossy()]).await?;
        // What follows is forgotten by the cluster, but not by its clients.
        for _ in 0..20 {
            client.mutex("other")?.acquire().await?.release().await?;
        }
        let (source, held) = (client.engine().source(), client.mutex("orders")?.acquire().await?);
        server.kill().await?;
        server.restore(&backup, token).await?;
        server.start_again().await?;
        soon("the holder is told", held.lost()).await?;
        until("the client is back", || async { Ok(client.show("orders").await.is_ok()) }).await?;
        let now = client.engine().source();
        ensure!(now != source, "{token}: tokens go on as if nothing had happened: {now}");
        ensure!(client.engine().forgot_at().is_some(), "it has forgotten, but does not say so");
        let next = soon("the new grant", client.mutex("orders")?.acquire()).await??;
        ensure!(next.token() < held.token(), "the revision did not fall: the test shows nothing");
        // The fence follows the old source, and says so.
        let error = register.fenced(&next).await.err().context("a token that fell was let in")?;
        ensure!(error.to_string().contains(source.as_str()), "{error}");
        let other = palisade_etcd_trials::client(&url(&set)).await?;
        ensure!(other.engine().source() == now, "two clients name one source differently");
        let held = other.mutex("orders")?.try_acquire().await?;
        ensure!(held.is_none(), "two hold at once");
    }
    Ok(())
}

#[tokio::test]
async fn who_comes_after_the_restore_notices_another_cluster() -> Result<()> {
    let set = one().await?;
    let server = &set.servers[0];
    let before = client(&url(&set)).await?;
    let source = before.engine().source();
    before.close().await;
    let folder = tempfile::tempdir()?;
    let backup = folder.path().join("backup");
    server.ctl(&["snapshot", "save", &backup.to_string_lossy()]).await?;
    server.kill().await?;
    server.restore(&backup, "another").await?;
    server.start_again().await?;
    let after = client(&url(&set)).await?;
    ensure!(after.engine().source() != source, "it is another cluster, under the same name");
    let gone = before.mutex("orders")?.acquire().await.err().context("it was closed")?;
    ensure!(gone.kind() == ErrorKind::Closed, "{gone:?}");
    Ok(())
}
