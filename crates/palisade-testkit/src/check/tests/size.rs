//! How long long histories take. Nothing is asserted about time: `cargo test --release -- size
//! --nocapture` prints it.

use std::time::{Duration, Instant};

use super::locks::{self, Shape};
use super::{budget, searched};
use crate::check::linear::Outcome;
use crate::check::{Bounds, ModelKind, all};
use crate::history::History;

/// So many grants: two steps of the search each.
const GRANTS: &[usize] = if cfg!(debug_assertions) { &[1_000] } else { &[50_000, 500_000] };

#[test]
fn long_histories() {
    for grants in GRANTS {
        for (shape, kind) in [
            (Shape::exclusive(16, *grants, 10), ModelKind::Mutex),
            (Shape::exclusive(16, *grants, 10), ModelKind::OwnerMutex),
            (Shape::exclusive(16, *grants, 10), ModelKind::FencedMutex),
            (Shape::rw(16, *grants, 10), ModelKind::Rw),
            (Shape::slots(4, 16, *grants, 10), ModelKind::Permits(None)),
        ] {
            let history = History::from_events(locks::clean(shape, 1)).unwrap();
            let started = Instant::now();
            let searched = searched(&history, kind);
            assert!(matches!(searched.outcome, Outcome::Linearizable), "{kind}: {}", searched.outcome);
            println!("{kind}: {} operations, {} steps, {:?}", 2 * grants, searched.steps, started.elapsed());
            let started = Instant::now();
            let findings =
                all(&history, &Bounds { progress: Duration::from_secs(1), fifo: true, linear: budget() });
            assert!(
                findings.is_clean(),
                "{kind}: {:?} {:?}",
                findings.violations.first(),
                findings.undecided
            );
            println!("{kind}: all checks of {} operations: {:?}", history.ops.len(), started.elapsed());
        }
    }
}
