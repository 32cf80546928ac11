//! Encrypted connections: the right certificates, and all the wrong ones.

use std::path::Path;

use anyhow::{Result, ensure};
use palisade::ErrorKind;
use palisade_sql_trials::{SECRET, client, mariadb, postgres, refusal};
use palisade_testkit::servers::{
    Authority, MariaDbOptions, MariaDbServer, PostgresOptions, PostgresServer, TlsFiles,
};

async fn postgres_with(tls: TlsFiles) -> Result<PostgresServer> {
    let hba = "host all postgres 127.0.0.1/32 trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n".to_owned();
    let options = PostgresOptions { tls: Some(tls), hba: Some(hba), ..PostgresOptions::default() };
    let server = PostgresServer::start(options).await?;
    server
        .psql(&format!("CREATE USER app PASSWORD '{SECRET}'; GRANT CREATE ON DATABASE postgres TO app"))
        .await?;
    Ok(server)
}

/// One at which `app` must encrypt, and `known` must show a certificate, too.
async fn mariadb_with(tls: TlsFiles) -> Result<MariaDbServer> {
    let files = [("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)];
    let args = files.iter().map(|(name, path)| format!("--ssl-{name}={}", path.display())).collect();
    let server = MariaDbServer::start(MariaDbOptions { args, ..MariaDbOptions::default() }).await?;
    for (user, requires) in [("app", "SSL"), ("known", "X509")] {
        server
            .sql(&format!(
                "CREATE USER {user} IDENTIFIED BY '{SECRET}' REQUIRE {requires}; GRANT ALL ON palisade.* TO {user}"
            ))
            .await?;
    }
    Ok(server)
}

fn postgres_url(server: &PostgresServer, options: &str) -> String {
    format!(
        "postgres://app:{SECRET}@localhost:{}/postgres?connect-timeout=5s{options}",
        server.address().port()
    )
}

fn mariadb_url(server: &MariaDbServer, user: &str, options: &str) -> String {
    let port = server.address().port();
    format!("mysql://{user}:{SECRET}@localhost:{port}/palisade?connect-timeout=5s{options}")
}

fn trusting(ca: &Path) -> String {
    format!("&tls-ca={}", ca.display())
}

async fn works(url: &str) -> Result<()> {
    let app = client(url).await?;
    ensure!(!format!("{app:?} {:?}", app.engine()).contains(SECRET), "Debug shows the password");
    app.mutex("orders")?.acquire().await?.release().await?;
    Ok(())
}

async fn nobody_is_trusted_at(urls: impl IntoIterator<Item = String>) -> Result<()> {
    for url in urls {
        let error = refusal(&url).await?;
        ensure!(error.kind() == ErrorKind::Denied && error.to_string().contains("certificate"), "{error:?}");
    }
    Ok(())
}

#[tokio::test]
async fn only_the_right_server_is_trusted() -> Result<()> {
    let authority = Authority::new()?;
    let right = postgres_with(authority.certificate("localhost", false)?).await?;
    works(&postgres_url(&right, &trusting(&authority.ca()))).await?;
    let other = Authority::new()?;
    let elsewhere = postgres_with(other.certificate("elsewhere.example", false)?).await?;
    let past = Authority::new()?;
    let expired = postgres_with(past.certificate("localhost", true)?).await?;
    nobody_is_trusted_at([
        // Signed by somebody else than the one we trust, and by none of those that this machine trusts.
        postgres_url(&right, &trusting(&other.ca())),
        postgres_url(&right, "&tls=on"),
        postgres_url(&elsewhere, &trusting(&other.ca())),
        postgres_url(&expired, &trusting(&past.ca())),
    ])
    .await
}

#[tokio::test]
async fn nothing_falls_back_to_plain_text() -> Result<()> {
    let plain = postgres().await?;
    let error = refusal(&format!("{}?tls=on", plain.url())).await?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    let authority = Authority::new()?;
    let encrypted = postgres_with(authority.certificate("localhost", false)?).await?;
    let error = refusal(&postgres_url(&encrypted, "")).await?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    let error = refusal(&postgres_url(&encrypted, "&tls-ca=/nowhere/ca.pem")).await?;
    ensure!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
    Ok(())
}

#[tokio::test]
async fn only_the_right_mariadb_is_trusted() -> Result<()> {
    let authority = Authority::new()?;
    let right = mariadb_with(authority.certificate("localhost", false)?).await?;
    works(&mariadb_url(&right, "app", &trusting(&authority.ca()))).await?;
    let other = Authority::new()?;
    let elsewhere = mariadb_with(other.certificate("elsewhere.example", false)?).await?;
    let past = Authority::new()?;
    let expired = mariadb_with(past.certificate("localhost", true)?).await?;
    nobody_is_trusted_at([
        mariadb_url(&right, "app", &trusting(&other.ca())),
        mariadb_url(&right, "app", "&tls=on"),
        mariadb_url(&elsewhere, "app", &trusting(&other.ca())),
        mariadb_url(&expired, "app", &trusting(&past.ca())),
    ])
    .await
}

#[tokio::test]
async fn mariadb_is_not_spoken_to_in_plain_text_and_may_ask_who_we_are() -> Result<()> {
    let plain = mariadb().await?;
    let error = refusal(&format!("mysql://root:{SECRET}@{}/palisade?tls=on", plain.address())).await?;
    ensure!(error.kind() == ErrorKind::Unavailable, "{error:?}");
    ensure!(error.to_string().contains("does not encrypt"), "{error}");
    let authority = Authority::new()?;
    let encrypted = mariadb_with(authority.certificate("localhost", false)?).await?;
    let error = refusal(&mariadb_url(&encrypted, "app", "")).await?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    let error = refusal(&mariadb_url(&encrypted, "app", "&tls-ca=/nowhere/ca.pem")).await?;
    ensure!(error.to_string().contains("/nowhere/ca.pem"), "{error}");
    let trusted = trusting(&authority.ca());
    let error = refusal(&mariadb_url(&encrypted, "known", &trusted)).await?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    let ours = authority.certificate("known", false)?;
    let error =
        refusal(&mariadb_url(&encrypted, "known", &format!("{trusted}&tls-cert={}", ours.cert.display())))
            .await?;
    ensure!(error.to_string().contains("tls-key"), "{error}");
    let shows =
        |files: &TlsFiles| format!("&tls-cert={}&tls-key={}", files.cert.display(), files.key.display());
    let strangers = Authority::new()?;
    let theirs = strangers.certificate("known", false)?;
    let error = refusal(&mariadb_url(&encrypted, "known", &format!("{trusted}{}", shows(&theirs)))).await?;
    ensure!(error.kind() == ErrorKind::Denied, "{error:?}");
    works(&mariadb_url(&encrypted, "known", &format!("{trusted}{}", shows(&ours)))).await
}
