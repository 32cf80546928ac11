use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Engine, Result};
use palisade_zookeeper::{Acl, Auth, Dialect, ZooKeeperConfig, ZooKeeperEngine};

use super::secret::secret;
use super::{COMMON, tls_files};
use crate::url::{EngineUrl, invalid};

const OPTIONS: &str =
    "root, dialect, auth, acl, connect-timeout, user, password-env, password-file, tls-ca, tls-cert, tls-key";

pub(super) async fn open(
    url: &mut EngineUrl,
    namespace: &str,
    call_timeout: Option<Duration>,
) -> Result<Arc<dyn Engine>> {
    let config = config(url, namespace, call_timeout)?;
    url.finish(&format!("{OPTIONS}, {COMMON}"))?;
    Ok(Arc::new(ZooKeeperEngine::open(config).await?))
}

fn config(url: &mut EngineUrl, namespace: &str, call_timeout: Option<Duration>) -> Result<ZooKeeperConfig> {
    let mut config = ZooKeeperConfig::parse(&format!("{}:{}", url.scheme, url.raw))?.namespace(namespace);
    config.call_timeout = call_timeout.unwrap_or(config.call_timeout);
    config.connect_timeout = url.take_limit("connect-timeout")?.unwrap_or(config.connect_timeout);
    if let Some(root) = url.take("root") {
        config = config.root(&root)?;
    }
    config.dialect = match url.take("dialect").as_deref() {
        None | Some("curator") => Dialect::Curator,
        Some("kazoo") => Dialect::Kazoo,
        Some(other) => return Err(invalid(format!("option dialect is `curator` or `kazoo`, not {other:?}"))),
    };
    config.auth = match url.take("auth").as_deref() {
        None | Some("digest") => Auth::Digest,
        Some("sasl") => Auth::Sasl,
        Some(other) => return Err(invalid(format!("option auth is `digest` or `sasl`, not {other:?}"))),
    };
    config.acl = match url.take("acl").as_deref() {
        None | Some("open") => Acl::Open,
        Some("creator") => Acl::Creator,
        Some(other) => return Err(invalid(format!("option acl is `open` or `creator`, not {other:?}"))),
    };
    if let Some(user) = url.take("user") {
        config.login.get_or_insert_default().user = user;
    }
    let in_url = config.login.as_ref().map(|login| login.password.as_str());
    if let Some(password) = secret(url, "password", in_url)? {
        let Some(login) = &mut config.login else {
            return Err(invalid("a password needs a user: write zk://user@host, or option user"));
        };
        login.password = password;
    }
    if config.login.is_none() && (config.auth == Auth::Sasl || config.acl == Acl::Creator) {
        return Err(invalid("options auth=sasl and acl=creator need a login: write zk://user:password@host"));
    }
    let [ca, cert, key] = tls_files(url, config.tls.is_some(), "zks")?;
    if let Some(tls) = &mut config.tls {
        (tls.ca, tls.cert, tls.key) = (ca, cert, key);
    }
    Ok(config)
}
