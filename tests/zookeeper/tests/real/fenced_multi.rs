//! A transaction of the caller's own, over another client, behind a fence.

use anyhow::{Context, Result, ensure};
use palisade_zookeeper::bare::Bare;
use palisade_zookeeper::{FencedMulti, Opening};
use palisade_zookeeper_trials::{bare, client, one, url};

/// Opens the fence. Returns the version that each transaction checks from then on.
async fn open(bare: &Bare, fenced: &FencedMulti) -> Result<i32> {
    loop {
        let found = bare.read(fenced.path()).await?;
        match fenced.open(found.as_ref().map(|(data, version)| (&data[..], *version)))? {
            Opening::Create => {
                bare.make(fenced.path(), &fenced.mark()).await?;
            }
            Opening::Set { version } => {
                if bare.write(fenced.path(), &fenced.mark(), version).await? {
                    return Ok(version + 1);
                }
            }
        }
    }
}

#[tokio::test]
async fn only_the_latest_holder_writes() -> Result<()> {
    let set = one().await?;
    let (client, bare) = (client(&url(&set)).await?, bare(&set).await?);
    bare.make("/balance", b"0").await?;
    let lock = client.mutex("orders")?;
    let mut holders = Vec::new();
    for _ in 0..2 {
        let guard = lock.acquire().await?;
        let fenced = FencedMulti::new("/orders-fence", &guard.fencing_token())?;
        let version = open(&bare, &fenced).await?;
        let text = guard.token().to_string();
        ensure!(
            bare.write_if("/balance", text.as_bytes(), fenced.path(), version).await?,
            "the holder is refused"
        );
        guard.release().await?;
        holders.push((fenced, version));
    }
    let (stale, version) = &holders[0];
    ensure!(!bare.write_if("/balance", b"late", stale.path(), *version).await?, "a stale holder wrote");
    ensure!(open(&bare, stale).await.is_err(), "a stale holder opened the fence");
    let (latest, version) = &holders[1];
    ensure!(bare.write_if("/balance", b"again", latest.path(), *version).await?, "the holder is refused");
    let (stored, _) = bare.read("/balance").await?.context("it is gone")?;
    ensure!(stored == b"again", "{stored:?}");
    Ok(())
}
