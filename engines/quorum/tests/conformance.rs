//! The suite over a quorum of three and of five memory stores.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::FutureExt;
use libtest_mimic::{Arguments, Completion, Trial};
use palisade_core::memory::MemoryStore;
use palisade_core::{Engine, Result};
use palisade_quorum::{Node, QuorumConfig, QuorumEngine};
use palisade_testkit::{Fixture, Options, Suite, Verdict};
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Cases mostly wait, so that more of them run at once than there are processors.
    arguments.test_threads.get_or_insert(8);
    let runtime = Arc::new(Runtime::new().expect("the runtime starts"));
    let trials = [3, 5].into_iter().flat_map(|nodes| trials(nodes, &runtime)).collect();
    let code = libtest_mimic::run(&arguments, trials).exit_code();
    // A case that hangs has failed; it must not keep the program from saying so.
    std::mem::forget(runtime);
    code
}

fn trials(nodes: usize, runtime: &Arc<Runtime>) -> Vec<Trial> {
    let stores = (0..nodes).map(|_| MemoryStore::default()).collect();
    let fixture = Quorum { name: format!("redlock*{nodes}"), stores };
    let suite = runtime.block_on(Suite::new(Arc::new(fixture), Options::default())).expect("it is reached");
    let suite = Arc::new(suite);
    let trial = |case: palisade_testkit::Case| {
        let (suite, runtime) = (Arc::clone(&suite), Arc::clone(runtime));
        let name = format!("redlock*{nodes}::{}", case.name);
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
    stores: Vec<MemoryStore>,
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
                open: Arc::new(move || {
                    let engine: Arc<dyn Engine> = Arc::new(store.connect(&namespace));
                    async move { Ok(engine) }.boxed()
                }),
            }
        });
        let mut config = QuorumConfig::new(nodes.collect());
        // The suite's claims that must not expire meanwhile have two minutes.
        config.longest_ttl = Duration::from_mins(2);
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
