use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Engine, Result};
use palisade_etcd::{EtcdConfig, EtcdEngine};

use super::secret::secret;
use super::{COMMON, tls_files};
use crate::url::{EngineUrl, invalid};

const OPTIONS: &str = "prefix, connect-timeout, user, password-env, password-file, tls-ca, tls-cert, tls-key";

pub(super) async fn open(
    url: &mut EngineUrl,
    namespace: &str,
    call_timeout: Option<Duration>,
) -> Result<Arc<dyn Engine>> {
    let config = config(url, namespace, call_timeout)?;
    url.finish(&format!("{OPTIONS}, {COMMON}"))?;
    Ok(Arc::new(EtcdEngine::open(config).await?))
}

fn config(url: &mut EngineUrl, namespace: &str, call_timeout: Option<Duration>) -> Result<EtcdConfig> {
    let mut config = EtcdConfig::parse(&format!("{}:{}", url.scheme, url.raw))?.namespace(namespace);
    config.call_timeout = call_timeout.unwrap_or(config.call_timeout);
    config.connect_timeout = url.take_limit("connect-timeout")?.unwrap_or(config.connect_timeout);
    config.prefix = url.take("prefix").unwrap_or_default();
    if let Some(user) = url.take("user") {
        config.login.get_or_insert_default().user = user;
    }
    let in_url = config.login.as_ref().map(|login| login.password.as_str());
    if let Some(password) = secret(url, "password", in_url)? {
        let Some(login) = &mut config.login else {
            return Err(invalid("a password needs a user: write etcd://user@host, or option user"));
        };
        login.password = password;
    }
    let [ca, cert, key] = tls_files(url, config.tls.is_some(), "etcds")?;
    if let Some(tls) = &mut config.tls {
        (tls.ca, tls.cert, tls.key) = (ca, cert, key);
    }
    Ok(config)
}
