use palisade_core::{Error, ErrorKind, Result, Source};
use uuid::Uuid;

use crate::config::EtcdConfig;
use crate::dial::{Line, first_words};
use crate::error::unexpected;
use crate::keys::Layout;
use crate::proto::{KeyValue, StatusRequest, StatusResponse, TxnResponse, path};
use crate::txn::{Answers, Txn, created_at, get, put, written_at};

/// What a cluster told when we arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Who counts its tokens.
    pub(crate) source: Source,
    /// Where counting was.
    pub(crate) revision: i64,
    /// Whether it has gone back since we were here last.
    pub(crate) went_back: bool,
}

/// Asks a server which cluster it is of and who counts there. It answers only if it can decide.
///
/// `before` is the source as it was known here, and the greatest revision seen.
pub(crate) async fn arrive(
    config: &EtcdConfig,
    layout: &Layout,
    line: &Line,
    before: Option<(&Source, i64)>,
) -> Result<Facts> {
    let key = layout.source();
    // Only the first one of all writes.
    let fresh = Uuid::new_v4().simple().to_string();
    for _ in 0..8 {
        let (cluster, revision, stored) = look(config, line, &key).await?;
        let value = stored.as_ref().map(|stored| String::from_utf8_lossy(&stored.value).into_owned());
        let at_home = value.as_ref().is_some_and(|value| value.starts_with(&format!("{cluster:x}-")));
        let known =
            before.is_some_and(|(source, _)| value.as_deref().map(source_of).as_ref() == Some(source));
        let fell = before.is_some_and(|(_, seen)| revision < seen);
        if let (Some(value), true) = (&value, at_home)
            && !(fell && known)
        {
            // Either nothing happened, or another client was here first after the cluster went back.
            let went_back = fell || (before.is_some() && !known);
            return Ok(Facts { source: source_of(value), revision, went_back });
        }
        let named = put(key.clone(), format!("{cluster:x}-{}", &fresh[..12]), 0);
        let unchanged = written_at(key.clone(), stored.map_or(0, |stored| stored.mod_revision));
        ask(config, line, Txn::new().when(unchanged).then(named)).await?;
    }
    Err(crate::error::contended())
}

fn source_of(stored: &str) -> Source {
    Source::new(format!("etcd-{stored}"))
}

async fn look(config: &EtcdConfig, line: &Line, key: &[u8]) -> Result<(u64, i64, Option<KeyValue>)> {
    // Never true: a transaction that might write is refused to a user who may not, who is told now. Of one that cannot,
    // the servers only agree that it is current, and write nothing down.
    let mut txn = Txn::new().when(created_at(key.to_vec(), -1)).or_else(get(key.to_vec()));
    if is_somebody(config) {
        txn = txn.then(put(key.to_vec(), "", 0));
    }
    let answer = ask(config, line, txn).await?;
    let header = answer.header.clone().ok_or_else(unexpected)?;
    Ok((header.cluster_id, header.revision, Answers::of(answer).key()?))
}

/// Whether the servers know us by name, and may let us do less than others.
fn is_somebody(config: &EtcdConfig) -> bool {
    config.login.is_some() || config.tls.as_ref().is_some_and(|tls| tls.cert.is_some())
}

async fn ask(config: &EtcdConfig, line: &Line, txn: Txn) -> Result<TxnResponse> {
    let answer = line.wire.unary::<_, TxnResponse>(path::TXN, txn.request());
    match tokio::time::timeout(config.connect_timeout, answer).await {
        Ok(answer) => answer.map_err(|status| denied(config, first_words(config, &line.server, status))),
        Err(_) => {
            let message = format!("{} did not answer within {:?}", line.server, config.connect_timeout);
            Err(Error::new(ErrorKind::Unavailable, message))
        }
    }
}

fn denied(config: &EtcdConfig, error: Error) -> Error {
    if error.kind() != ErrorKind::Denied || config.login.is_none() {
        return error;
    }
    let (prefix, user) = (&config.prefix, config.login.as_ref().map_or("", |login| &login.user));
    let message = format!(
        "{}; locks need: etcdctl role grant-permission ROLE --prefix=true readwrite {prefix:?} for a role of user {user:?}",
        error.message()
    );
    Error::new(ErrorKind::Denied, message).because(error)
}

/// Says so if the server is one that may end locks before their time.
pub(crate) async fn warn_of_old_servers(line: &Line) {
    let Ok(status) = line.wire.unary::<_, StatusResponse>(path::STATUS, StatusRequest {}).await else {
        return;
    };
    if revokes_live_leases(&status.version) {
        tracing::warn!(
            server = line.server,
            version = status.version,
            "this etcd may end locks that are renewed, after a leader was stopped for a while (etcd#15247); 3.4.31, 3.5.13 and later do not"
        );
    }
}

fn revokes_live_leases(version: &str) -> bool {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 4, patch) => patch < 31,
        (3, 5, patch) => patch < 13,
        (major, minor, _) => (major, minor) < (3, 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_end_live_leases_are_known() {
        for bad in ["3.3.27", "3.4.23", "3.4.30", "3.5.1", "3.5.12"] {
            assert!(revokes_live_leases(bad), "{bad}");
        }
        for good in ["3.4.31", "3.5.13", "3.5.16", "3.6.0", "3.7.0-alpha.0", "4.0.0"] {
            assert!(!revokes_live_leases(good), "{good}");
        }
    }
}
