//! The classic stories, on every driver that can share a pool.

use anyhow::Result;
use palisade_fence_trials::{MysqlAsync, Place, SqlxMysql, SqlxPostgres, SqlxSqlite};

#[path = "../../../../crates/palisade-fence/examples/campaign.rs"]
#[allow(dead_code, reason = "its `main` is for the command line")]
mod campaign;

#[path = "../../../../crates/palisade-fence/examples/double_booking.rs"]
#[allow(dead_code, reason = "its `main` is for the command line")]
mod double_booking;

#[path = "../../../../crates/palisade-fence/examples/lost_update.rs"]
#[allow(dead_code, reason = "its `main` is for the command line")]
mod lost_update;

#[tokio::test]
async fn told_on_sqlite() -> Result<()> {
    lost_update::story(SqlxSqlite::new().await?.open().await?).await?;
    double_booking::story(SqlxSqlite::new().await?.open().await?).await?;
    campaign::story(SqlxSqlite::new().await?.open().await?, 100).await
}

#[tokio::test]
async fn told_on_postgres() -> Result<()> {
    let place = SqlxPostgres::new().await?;
    lost_update::story(place.open().await?).await?;
    double_booking::story(place.open().await?).await?;
    campaign::story(place.open().await?, 200).await
}

#[tokio::test]
async fn told_on_mariadb() -> Result<()> {
    let place = SqlxMysql::new().await?;
    lost_update::story(place.open().await?).await?;
    double_booking::story(place.open().await?).await?;
    campaign::story(place.open().await?, 200).await
}

#[tokio::test]
async fn told_on_mariadb_by_another_driver() -> Result<()> {
    let place = MysqlAsync::new().await?;
    lost_update::story(place.open().await?).await?;
    double_booking::story(place.open().await?).await?;
    campaign::story(place.open().await?, 200).await
}
