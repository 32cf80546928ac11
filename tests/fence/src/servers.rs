use std::sync::{Arc, Weak};

use anyhow::Result;
use palisade_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};
use tokio::sync::Mutex;

/// A server that tests which run at the same time share. The last one to let go of it ends it.
macro_rules! shared {
    ($(#[$doc:meta])* $name:ident, $server:ident, $options:expr) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// It does not start.
        pub async fn $name() -> Result<Arc<$server>> {
            static SERVER: Mutex<Weak<$server>> = Mutex::const_new(Weak::new());
            let mut shared = SERVER.lock().await;
            if let Some(server) = shared.upgrade() {
                return Ok(server);
            }
            let server = Arc::new($server::start($options).await?);
            *shared = Arc::downgrade(&server);
            Ok(server)
        }
    };
}

shared!(
    /// Debian's PostgreSQL.
    postgres, PostgresServer, PostgresOptions::default()
);
shared!(
    /// A newer one.
    newer_postgres, PostgresServer, PostgresOptions::newer()?
);
shared!(
    /// Debian's MariaDB.
    mariadb, MariaDbServer, MariaDbOptions::default()
);
shared!(
    /// A MySQL.
    mysql, MariaDbServer, MariaDbOptions::mysql()?
);
