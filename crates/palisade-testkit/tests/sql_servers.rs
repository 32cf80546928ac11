//! Real databases: they come up, die, come back with or without their data, and lose track of time.

use std::time::Duration;

use palisade_testkit::servers::{MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer};

/// The same of each database: how it is started, how it is asked, and for its clock.
macro_rules! tried {
    ($name:ident, $server:ident, $kind:ident, $options:expr, $sql:ident, $clock:literal) => {
        mod $name {
            use super::*;

            #[tokio::test]
            async fn a_killed_server_comes_back_with_its_data_or_without() {
                let server = $server::start($options).await.unwrap();
                server.$sql("CREATE TABLE kept (x text); INSERT INTO kept VALUES ('yes')").await.unwrap();
                let (address, pid) = (server.address(), server.pid());
                server.kill().await.unwrap();
                assert!(server.$sql("SELECT 1").await.is_err());
                server.start_again(false).await.unwrap();
                assert_eq!(server.$sql("SELECT x FROM kept").await.unwrap().trim(), "yes");
                assert_eq!(server.address(), address);
                assert_ne!(server.pid(), pid);
                server.terminate().await.unwrap();
                server.start_again(true).await.unwrap();
                assert!(server.$sql("SELECT x FROM kept").await.is_err());
            }

            #[tokio::test]
            async fn a_stopped_server_answers_when_it_goes_on() {
                let server = $server::start($options).await.unwrap();
                server.stop().unwrap();
                let ask = server.$sql("SELECT 1");
                tokio::pin!(ask);
                assert!(tokio::time::timeout(Duration::from_millis(200), &mut ask).await.is_err());
                server.go_on().unwrap();
                assert_eq!(ask.await.unwrap().trim(), "1");
            }

            #[tokio::test]
            async fn its_clock_goes_as_it_is_told() {
                let server = $server::start($kind { clock: true, ..$options }).await.unwrap();
                let now = async || {
                    let said = server.$sql($clock).await.unwrap();
                    said.trim().parse::<i64>().unwrap()
                };
                let truth = now().await;
                server.shift_clock(3600).unwrap();
                assert!((3600..4200).contains(&(now().await - truth)));
                server.shift_clock(-3600).unwrap();
                assert!((-3600..-3000).contains(&(now().await - truth)));
            }
        }
    };
}

tried!(mariadb, MariaDbServer, MariaDbOptions, MariaDbOptions::default(), sql, "SELECT UNIX_TIMESTAMP()");
tried!(
    postgres,
    PostgresServer,
    PostgresOptions,
    PostgresOptions::default(),
    psql,
    "SELECT extract(epoch FROM clock_timestamp())::bigint"
);
tried!(
    mysql,
    MariaDbServer,
    MariaDbOptions,
    MariaDbOptions::mysql().unwrap(),
    sql,
    "SELECT UNIX_TIMESTAMP()"
);
tried!(
    newer_postgres,
    PostgresServer,
    PostgresOptions,
    PostgresOptions::newer().unwrap(),
    psql,
    "SELECT extract(epoch FROM clock_timestamp())::bigint"
);
