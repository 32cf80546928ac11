use std::sync::Arc;
use std::time::Duration;

use palisade_core::{Engine, Result};
use palisade_redis::{Dialect, KeyPattern, Login, RedisConfig, RedisEngine};

use super::secret::secret;
use super::{COMMON, tls_files};
use crate::url::{EngineUrl, invalid};

const OPTIONS: &str = "key, dialect, source, connect-timeout, password-env, password-file, sentinel-user, \
     sentinel-password-env, sentinel-password-file, tls-ca, tls-cert, tls-key";

pub(super) async fn open(
    url: &mut EngineUrl,
    namespace: &str,
    call_timeout: Option<Duration>,
) -> Result<Arc<dyn Engine>> {
    let config = config(url, namespace, call_timeout)?;
    url.finish(&format!("{OPTIONS}, {COMMON}"))?;
    Ok(Arc::new(RedisEngine::open(config).await?))
}

fn config(url: &mut EngineUrl, namespace: &str, call_timeout: Option<Duration>) -> Result<RedisConfig> {
    let mut config = RedisConfig::parse(&format!("{}:{}", url.scheme, url.raw))?.namespace(namespace);
    config.call_timeout = call_timeout.unwrap_or(config.call_timeout);
    config.connect_timeout = url.take_limit("connect-timeout")?.unwrap_or(config.connect_timeout);
    config.source = url.take("source");
    if let Some(pattern) = url.take("key") {
        config.key = KeyPattern::parse(&pattern)?;
    }
    config.dialect = match url.take("dialect").as_deref() {
        None | Some("plain") => Dialect::Plain,
        Some("redisson") => Dialect::Redisson,
        Some(other) => {
            return Err(invalid(format!("option dialect is `plain` or `redisson`, not {other:?}")));
        }
    };
    if let Some(password) = secret(url, "password", config.login.password.as_deref())? {
        config.login.password = Some(password);
    }
    config.sentinel_login = Login::new(url.take("sentinel-user"), secret(url, "sentinel-password", None)?);
    let [ca, cert, key] = tls_files(url, config.tls.is_some(), "rediss")?;
    if let Some(tls) = &mut config.tls {
        (tls.ca, tls.cert, tls.key) = (ca, cert, key);
    }
    Ok(config)
}
