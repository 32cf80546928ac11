use std::sync::Arc;

use futures::future::FutureExt;
use palisade_core::{Engine, Result};
use palisade_quorum::{Node, QuorumConfig, QuorumEngine};

use super::COMMON;
use crate::url::{EngineUrl, invalid, quoted};

pub(super) async fn open(url: &mut EngineUrl, namespace: &str) -> Result<Arc<dyn Engine>> {
    if url.has_addresses_as_options() {
        return Err(invalid(
            "in a redlock: URL options stand behind the last node, and there is a ? before the last one; write %3F for a ? inside a node, and %2C for a comma",
        ));
    }
    let urls: Vec<String> = url.raw.split(',').map(own_marks).collect();
    no_server_twice(&urls)?;
    let nodes = urls.iter().enumerate().map(|(at, node)| node_at(node, at + 1, namespace));
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

/// Two nodes on one server would have two votes, and be lost together.
fn no_server_twice(urls: &[String]) -> Result<()> {
    for (at, url) in urls.iter().enumerate() {
        let Some(server) = server(url) else { continue };
        if let Some(other) = urls[..at].iter().position(|other| self::server(other).as_ref() == Some(&server))
        {
            return Err(invalid(format!(
                "nodes {} and {} of the redlock: URL are one server, {server}: it would have two votes, and be lost with both",
                other + 1,
                at + 1
            )));
        }
    }
    Ok(())
}

/// Host and port of one Redis server, whatever else its URL says.
fn server(url: &str) -> Option<String> {
    let parsed = EngineUrl::parse(url).ok().filter(|parsed| matches!(&*parsed.scheme, "redis" | "rediss"))?;
    let place = parsed.raw.strip_prefix("//")?;
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let place = place.split('/').next()?.to_ascii_lowercase();
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (place.as_str(), "6379"),
    };
    let host = if host == "localhost" { "127.0.0.1" } else { host };
    Some(format!("{host}:{port}"))
}

/// One node, opened by its own URL. A URL that is none is an error now, not at the first vote.
fn node_at(url: &str, at: usize, namespace: &str) -> Result<Node> {
    // What has a login but no scheme is the end of one in which a comma was not written as %2C.
    let is_end = url.contains('@') && !url.contains("://");
    if url.trim() != url || url.is_empty() || url.starts_with("//") || is_end {
        return Err(invalid(format!(
            "node {at} of the redlock: URL is {:?}; each is a whole URL, such as redis://10.0.0.{at}, with a comma and no blank between; a comma inside one is written %2C",
            // It may be a login.
            if url.contains('@') { "…" } else { url }
        )));
    }
    let mut parsed = EngineUrl::parse(url)?;
    if super::the_namespace(&mut parsed, Some(namespace))? != namespace {
        return Err(invalid(format!(
            "node {at} of the redlock: URL names a namespace, which its other nodes may not share; name it behind all of them: redlock:…?namespace="
        )));
    }
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
            "option drift-factor is a part of the TTL from 0 to 0.5, such as 0.01, not {}",
            quoted(factor)
        ))
    };
    let factor: f64 = factor.parse().map_err(|_| bad())?;
    if !(0.0..=0.5).contains(&factor) {
        return Err(bad());
    }
    #[allow(clippy::cast_sign_loss, reason = "checked to lie between 0 and 0.5")]
    Ok((factor * 1000.0).ceil() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(url: &str) -> String {
        let opened = async { super::super::open(url, None).await.map(drop) };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(opened).unwrap_err().to_string()
    }

    #[test]
    fn one_server_is_one_node_however_it_is_written() {
        for twice in [
            "redis://127.0.0.1:7",
            "redis://LOCALHOST:7/",
            "redis://u:p@localhost:7/1",
            "rediss://127.0.0.1:7%3Fttl=5s",
        ] {
            let problem = problem(&format!("redlock:redis://127.0.0.1:7,redis://h,{twice}"));
            assert!(problem.contains("nodes 1 and 3") && problem.contains("127.0.0.1:7"), "{problem}");
        }
        let default = problem("redlock:redis://h,redis://h:6379,redis://i");
        assert!(default.contains("nodes 1 and 2"), "{default}");
        assert_eq!(server("redis://[::1]"), Some("[::1]:6379".to_owned()));
    }

    #[test]
    fn what_is_no_node_is_named() {
        for (url, node) in [
            ("redlock:", "node 1"),
            ("redlock:redis://a,redis://b,", "node 3"),
            ("redlock:redis://a, redis://b,redis://c", "node 2"),
            ("redlock://a,b,c", "node 1"),
            ("redlock:redis://a,redis://b%3Fnamespace=q,redis://c", "node 2"),
        ] {
            let problem = problem(url);
            assert!(problem.contains(node), "{url}: {problem}");
        }
        assert!(!problem("redlock:redis://a,//u:secret@b,redis://c").contains("secret"));
    }

    #[test]
    fn no_login_is_shown_whatever_ends_a_node_too_early() {
        for url in [
            "redlock:redis://:s3cret@a?node-timeout=20ms,redis://:s3cret@b,redis://c",
            "redlock:redis://a?drift-factor=0.02,redis://:s3cret@b,redis://c",
            "redlock:redis://a?x,redis://:s3cret@b,redis://c",
            "redlock:redis://:top?s3cret@a,redis://b,redis://c",
            "redlock:redis://:top,s3cret@a,redis://b,redis://c",
            "redlock:redis://:top,s3cret:s3cret@a,redis://b,redis://c",
            "s3cret@a:7",
        ] {
            let problem = problem(url);
            assert!(!problem.contains("s3cret") && !problem.contains("top"), "{problem}");
            assert!(!url.starts_with("redlock") || problem.contains("%2C"), "{url}: {problem}");
        }
    }
}
