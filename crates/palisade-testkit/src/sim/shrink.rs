use super::{Bug, Cancel, Plan, Run, Step, simulate};

/// Cuts a failing plan down while the same checker still finds something.
///
/// First whole nodes go, then faults, tasks and steps, then what steps do; over and over until
/// nothing more can go, or `tries` runs were made.
pub fn shrink(plan: &Plan, checker: &str, bug: Option<Bug>, tries: usize) -> Plan {
    let mut shrinker = Shrinker { best: plan.clone(), checker, bug, tries };
    loop {
        let before = shrinker.best.clone();
        shrinker.nodes();
        shrinker.faults();
        shrinker.tasks();
        shrinker.steps();
        if shrinker.best == before || shrinker.tries == 0 {
            return shrinker.best;
        }
    }
}

/// Whether a run shows what `checker` looks for.
fn shows(run: &Run, checker: &str) -> bool {
    run.violations.iter().any(|violation| violation.checker == checker)
}

struct Shrinker<'a> {
    best: Plan,
    checker: &'a str,
    bug: Option<Bug>,
    tries: usize,
}

impl Shrinker<'_> {
    /// Keeps the changed plan if it still fails. Returns whether it does.
    fn try_without(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        if self.tries == 0 {
            return false;
        }
        let mut plan = self.best.clone();
        change(&mut plan);
        if plan == self.best {
            return false;
        }
        self.tries -= 1;
        let fails = shows(&simulate(&plan, self.bug, false), self.checker);
        if fails {
            self.best = plan;
        }
        fails
    }

    /// Nodes keep their numbers, as faults and delays go by them: they lose their tasks instead.
    fn nodes(&mut self) {
        for node in (0..self.best.nodes.len()).rev() {
            self.try_without(|plan| {
                plan.nodes[node].tasks.clear();
                plan.faults.retain(|fault| fault.node() != node);
            });
        }
        while self.best.nodes.last().is_some_and(|node| node.tasks.is_empty()) {
            let last = self.best.nodes.len() - 1;
            let gone = self.try_without(|plan| {
                plan.nodes.pop();
                plan.faults.retain(|fault| fault.node() != last);
            });
            if !gone {
                break;
            }
        }
    }

    /// Halves first, then one by one.
    fn faults(&mut self) {
        let mut size = self.best.faults.len() / 2;
        while size > 0 {
            let mut at = 0;
            while at < self.best.faults.len() {
                let end = (at + size).min(self.best.faults.len());
                if !self.try_without(|plan| drop(plan.faults.drain(at..end))) {
                    at += size;
                }
            }
            size /= 2;
        }
        self.try_without(|plan| plan.faults.clear());
    }

    fn tasks(&mut self) {
        for node in 0..self.best.nodes.len() {
            for task in (0..self.best.nodes[node].tasks.len()).rev() {
                self.try_without(|plan| drop(plan.nodes[node].tasks.remove(task)));
            }
        }
    }

    fn steps(&mut self) {
        for node in 0..self.best.nodes.len() {
            for task in 0..self.best.nodes[node].tasks.len() {
                for step in (0..self.best.nodes[node].tasks[task].len()).rev() {
                    let gone = self.try_without(|plan| {
                        plan.nodes[node].tasks[task].remove(step);
                    });
                    if !gone {
                        self.parts(|plan| &mut plan.nodes[node].tasks[task][step]);
                    }
                }
            }
        }
    }

    fn parts(&mut self, of: impl Fn(&mut Plan) -> &mut Step) {
        use super::{Effect, End};
        self.try_without(|plan| of(plan).cancel = None::<Cancel>);
        self.try_without(|plan| of(plan).effect = Effect::None);
        self.try_without(|plan| of(plan).end = End::Release);
        self.try_without(|plan| of(plan).longest_hold = None);
        self.try_without(|plan| of(plan).after = std::time::Duration::ZERO);
        self.try_without(|plan| of(plan).hold = std::time::Duration::ZERO);
    }
}
