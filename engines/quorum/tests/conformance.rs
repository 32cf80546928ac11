//! The suite over a quorum of three and of five memory stores, and of three that are reached over TCP.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::FutureExt;
use libtest_mimic::{Arguments, Completion, Trial};
use palisade_core::memory::MemoryStore;
use palisade_core::{Engine, Result};
use palisade_quorum::{Node, QuorumConfig, QuorumEngine};
use palisade_testkit::remote::{self, RemoteEngine, ServerOptions};
use palisade_testkit::{Fixture, Options, Suite, Verdict};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases mostly wait, so that more of them run at once than there are processors.
    arguments.test_threads.get_or_insert(8);
    let runtime = Arc::new(Runtime::new().expect("the runtime starts"));
    let stores = |count| (0..count).map(|_| Store::Here(MemoryStore::default())).collect();
    let remote = runtime.block_on(async { [serve().await, serve().await, serve().await] });
    let fixtures = [
        Quorum { name: "redlock*3".to_owned(), stores: stores(3) },
        Quorum { name: "redlock*5".to_owned(), stores: stores(5) },
        Quorum { name: "redlock*3 over TCP".to_owned(), stores: remote.into() },
    ];
    let trials = fixtures.into_iter().flat_map(|fixture| trials(fixture, &runtime)).collect();
    let code = libtest_mimic::run(&arguments, trials).exit_code();
    // A case that hangs has failed; it must not keep the program from saying so.
    std::mem::forget(runtime);
    code
}

/// A server of its own, for as long as the program runs.
async fn serve() -> Store {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    tokio::spawn(remote::serve(listener, ServerOptions::default()));
    Store::There(address)
}

fn trials(fixture: Quorum, runtime: &Arc<Runtime>) -> Vec<Trial> {
    let engine = fixture.name.clone();
    let suite = runtime.block_on(Suite::new(Arc::new(fixture), Options::default())).expect("it is reached");
    let suite = Arc::new(suite);
    let trial = |case: palisade_testkit::Case| {
        let (suite, runtime) = (Arc::clone(&suite), Arc::clone(runtime));
        let name = format!("{engine}::{}", case.name);
        Trial::ignorable_test(name, move || match runtime.block_on(suite.run(&case)).verdict {
            Verdict::Passed => Ok(Completion::Completed),
            Verdict::NotApplicable(why) => Ok(Completion::ignored_with(why)),
            Verdict::Failed(why) => Err(why.into()),
        })
    };
    suite.cases().into_iter().map(trial).collect()
}

struct Quorum {
    name: String,
    stores: Vec<Store>,
}

#[derive(Clone)]
enum Store {
    Here(MemoryStore),
    There(SocketAddr),
}

impl Store {
    async fn connect(self, namespace: String) -> Result<Arc<dyn Engine>> {
        Ok(match self {
            Self::Here(store) => Arc::new(store.connect(&namespace)),
            Self::There(address) => Arc::new(RemoteEngine::connect(address, &namespace).await?),
        })
    }
}

#[async_trait::async_trait]
impl Fixture for Quorum {
    fn name(&self) -> &str {
        &self.name
    }

    async fn connect(&self, namespace: &str) -> Result<Arc<dyn Engine>> {
        let nodes = self.stores.iter().enumerate().map(|(at, store)| {
            let (store, namespace) = (store.clone(), namespace.to_owned());
            Node {
                name: format!("node {at}"),
                open: Arc::new(move || store.clone().connect(namespace.clone()).boxed()),
            }
        });
        let mut config = QuorumConfig::new(nodes.collect());
        // The suite's claims that must not expire meanwhile have two minutes.
        config.longest_ttl = Duration::from_mins(2);
        // Servers, suite and workloads share few processors.
        config.node_timeout = Duration::from_millis(500);
        Ok(Arc::new(QuorumEngine::open(config).await?))
    }

    // Longer than a request takes while eight cases and their workloads run.
    fn short_ttl(&self) -> Duration {
        Duration::from_millis(500)
    }

    // Every claim is one on each node: five engines' work on one processor.
    fn effort(&self) -> u32 {
        30
    }

    fn cannot_restart(&self) -> Option<&'static str> {
        Some("nothing of the memory engine outlives its process")
    }
}
