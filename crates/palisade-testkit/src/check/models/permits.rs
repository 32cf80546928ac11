use super::lock::{LockStep, Who};
use crate::check::linear::{Haste, Model};

/// So many slots, each held by one at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permits {
    /// How many.
    pub(crate) of: u32,
}

impl Model for Permits {
    /// Who holds, and which slot where that is known; sorted.
    type State = Vec<(Option<u32>, Who)>;
    type Step = LockStep;

    fn initial(&self) -> Self::State {
        Vec::new()
    }

    fn apply(&self, held: &Self::State, step: &LockStep) -> Option<Self::State> {
        let mut after = held.clone();
        match *step {
            LockStep::Acquire { who, slot, .. } => {
                let taken = slot.is_some() && held.iter().any(|(other, _)| *other == slot);
                if taken || held.len() >= self.of as usize {
                    return None;
                }
                let place = held.partition_point(|other| *other < (slot, who));
                after.insert(place, (slot, who));
            }
            LockStep::Release { who, .. } => {
                after.remove(held.iter().position(|(_, holder)| *holder == who)?);
            }
        }
        Some(after)
    }

    fn haste(&self, step: &LockStep) -> Haste {
        step.haste()
    }

    fn state_in_words(&self, held: &Self::State) -> String {
        let holders: Vec<String> = held
            .iter()
            .map(|(slot, who)| slot.map_or_else(|| who.to_string(), |slot| format!("slot {slot}: {who}")))
            .collect();
        format!("{} of {} held [{}]", held.len(), self.of, holders.join(", "))
    }

    fn step_in_words(&self, step: &LockStep) -> (String, String) {
        step.in_words()
    }
}
