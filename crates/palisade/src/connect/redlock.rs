use std::sync::Arc;

use futures::future::FutureExt;
use palisade_core::{Engine, Result};
use palisade_quorum::{Node, QuorumConfig, QuorumEngine};

use super::COMMON;
use crate::url::{EngineUrl, invalid};

pub(super) async fn open(url: &mut EngineUrl, namespace: &str) -> Result<Arc<dyn Engine>> {
    let nodes = url.raw.split(',').map(|node| node_at(&own_marks(node), namespace));
    let mut config = QuorumConfig::new(nodes.collect::<Result<_>>()?);
    config.node_timeout = url.take_duration("node-timeout")?.unwrap_or(config.node_timeout);
    config.drift = url.take_duration("drift")?.unwrap_or(config.drift);
    config.longest_ttl = url.take_duration("longest-ttl")?.unwrap_or(config.longest_ttl);
    config.source = url.take("source").unwrap_or(config.source);
    if let Some(factor) = url.take("drift-factor") {
        config.drift_per_mille = per_mille(&factor)?;
    }
    url.finish(&format!("node-timeout, drift, drift-factor, longest-ttl, source, {COMMON}"))?;
    Ok(Arc::new(QuorumEngine::open(config).await?))
}

/// A node's URL as it would be written on its own: only what would end it here was written otherwise.
/// Everything else, such as a password, is for the node itself to decode.
fn own_marks(node: &str) -> String {
    node.replace("%2C", ",").replace("%2c", ",").replace("%3F", "?").replace("%3f", "?")
}

/// One node, opened by its own URL. A URL that is none is an error now, not at the first vote.
fn node_at(url: &str, namespace: &str) -> Result<Node> {
    let mut parsed = EngineUrl::parse(url)?;
    super::the_namespace(&mut parsed, Some(namespace))?;
    if parsed.scheme == "redlock" {
        return Err(invalid("a node of a redlock: URL is an engine of its own, not another redlock"));
    }
    super::row(&parsed.scheme)?;
    let (url, namespace) = (url.to_owned(), namespace.to_owned());
    Ok(Node {
        name: parsed.shown(),
        open: Arc::new(move || {
            let (url, namespace) = (url.clone(), namespace.clone());
            async move { Ok(super::open(&url, Some(&namespace)).await?.engine) }.boxed()
        }),
    })
}

fn per_mille(factor: &str) -> Result<u32> {
    let bad = || {
        invalid(format!(
            "option drift-factor is a part of the TTL from 0 to 0.5, such as 0.01, not {factor:?}"
        ))
    };
    let factor: f64 = factor.parse().map_err(|_| bad())?;
    if !(0.0..=0.5).contains(&factor) {
        return Err(bad());
    }
    #[allow(clippy::cast_sign_loss, reason = "checked to lie between 0 and 0.5")]
    Ok((factor * 1000.0).ceil() as u32)
}
