use std::net::SocketAddr;

use anyhow::Result;

use super::{Target, no_server};
use crate::history::FaultKind;
use crate::misuse::misuse;

/// The engine that a user named: it is not ours to restart.
#[derive(Debug)]
struct Given {
    url: String,
    /// Its scheme.
    scheme: String,
}

pub(super) fn target(url: &str) -> Result<Box<dyn Target>> {
    let Some((scheme, _)) = url.split_once(':') else {
        misuse!(
            "{url:?} is no engine URL; see `palisade engines`, or try {}",
            super::local_names().join(", ")
        );
    };
    Ok(Box::new(Given { url: url.to_owned(), scheme: scheme.to_owned() }))
}

impl Given {
    fn is_memory(&self) -> bool {
        self.scheme == "memory"
    }
}

impl Target for Given {
    fn name(&self) -> String {
        // What stands before an @ can be a password.
        if self.url.contains('@') { format!("{}:", self.scheme) } else { self.url.clone() }
    }

    fn url(&self, _via: &[SocketAddr]) -> String {
        // Workers of one process meet in a store that has a name.
        let unnamed = matches!(self.url.strip_prefix("memory:"), Some(rest) if rest.is_empty() || rest.starts_with('?'));
        if unnamed { self.url.replacen("memory:", "memory:under-test", 1) } else { self.url.clone() }
    }

    fn crosses_processes(&self) -> bool {
        !self.is_memory()
    }

    fn refuses(&self, fault: FaultKind) -> Option<String> {
        match fault {
            FaultKind::Pause | FaultKind::Kill if self.is_memory() => Some(
                "the memory engine lives inside one process: there is no worker to stop or kill beside it"
                    .to_owned(),
            ),
            fault => no_server(fault, &format!("the engine at {}", self.name())),
        }
    }
}
