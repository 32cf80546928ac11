use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use palisade_core::{BootInstant, Clock};

use super::plan::NodePlan;
use super::world::{NodeId, SERVER, World};
use crate::history::Nanos;

/// A node's clock: it follows the world's, with an offset and a rate of its own.
#[derive(Debug, Clone)]
pub(super) struct NodeClock {
    world: World,
    node: NodeId,
    ahead: Nanos,
    faster_ppm: i32,
}

impl NodeClock {
    pub(super) fn of_node(world: &World, node: NodeId, plan: &NodePlan) -> Self {
        let ahead = plan.ahead.as_nanos() as Nanos;
        Self { world: world.clone(), node, ahead, faster_ppm: plan.faster_ppm }
    }

    pub(super) fn of_server(world: &World) -> Self {
        Self { world: world.clone(), node: SERVER, ahead: 0, faster_ppm: 0 }
    }

    fn shows_at(&self, world: Nanos) -> Nanos {
        // Millionths of a few days in nanoseconds stay far below 2^63.
        let drift = i128::from(world) * i128::from(self.faster_ppm) / 1_000_000;
        self.ahead + world.checked_add_signed(drift as i64).unwrap_or(world)
    }

    /// The first moment of the world at which this clock shows `local`, or later.
    pub(super) fn world_at(&self, local: BootInstant) -> Nanos {
        let shown = local.as_nanos();
        if shown == BootInstant::FAR_FUTURE.as_nanos() {
            return Nanos::MAX;
        }
        let since = i128::from(shown.saturating_sub(self.ahead));
        let guess = since * 1_000_000 / (1_000_000 + i128::from(self.faster_ppm));
        let mut world = Nanos::try_from(guess).unwrap_or(0).saturating_sub(2);
        while self.shows_at(world) < shown {
            world += 1;
        }
        world
    }
}

impl Clock for NodeClock {
    fn now(&self) -> BootInstant {
        BootInstant::from_nanos(self.shows_at(self.world.now()))
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep {
            world: self.world.clone(),
            node: self.node,
            until: self.world_at(deadline),
            place: None,
        })
    }
}

struct Sleep {
    world: World,
    node: NodeId,
    until: Nanos,
    /// On the world's agenda.
    place: Option<(Nanos, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let world = self.world.clone();
        world.with(|state| {
            if state.now() >= self.until {
                return Poll::Ready(());
            }
            let waker = context.waker().clone();
            match self.place {
                Some(place) => state.sleep(place, self.node, waker),
                None if self.until == Nanos::MAX => {}
                None => {
                    let happening = super::world::Happening::Wake(self.node, waker);
                    self.place = Some(state.plan_at(self.until, happening));
                }
            }
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.world.with(|state| state.forget(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::sim::Plan;

    #[test]
    fn a_moment_of_the_world_is_found_from_what_a_clock_shows() {
        let plan = Plan::new(1);
        let world = World::new(Arc::new(plan.clone()), false);
        for faster_ppm in [-2000, -1, 0, 1, 1999] {
            let node = NodePlan { ahead: Duration::from_secs(77), faster_ppm, ..plan.nodes[0].clone() };
            let clock = NodeClock::of_node(&world, 0, &node);
            for later in [1, 999, 1_234_567, 60_000_000_001] {
                let shown = clock.now() + Duration::from_nanos(later);
                let at = clock.world_at(shown);
                assert!(clock.shows_at(at) >= shown.as_nanos());
                assert!(clock.shows_at(at - 1) < shown.as_nanos());
            }
        }
    }
}
