use crate::{DbError, Dialect, Transaction};

/// A number that nobody else's locks are likely to have.
const LOCK: i64 = 0x7061_6c69_7361_6465;

/// Runs statements that make what is not there.
pub(crate) async fn create<T: Transaction>(tx: &mut T, statements: &[String]) -> Result<(), DbError> {
    if tx.dialect() == Dialect::Postgres {
        // Two that make the same table at once see a unique violation of the catalogue's, `IF NOT EXISTS` or not.
        tx.query("SELECT CAST(pg_advisory_xact_lock(?) AS text)", &[LOCK.into()]).await?;
    }
    for statement in statements {
        tx.execute(statement, &[]).await?;
    }
    Ok(())
}
