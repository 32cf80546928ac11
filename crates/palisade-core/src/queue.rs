use std::collections::BTreeSet;

use crate::{Error, ErrorKind, Mode, Result};

/// Who is in, and therefore who may come in next.
///
/// This is the whole rule of admission, without I/O; every engine that keeps its own queue
/// decides with it. Service is strictly in the order of arrival: walk the waiters from the front,
/// admit while [`Occupancy::admit`] says yes, stop at the first no. Hence a writer is not starved
/// by readers that come later, and all holders arrived before all waiters.
///
/// ```
/// use palisade_core::{Mode, Occupancy};
/// let mut inside = Occupancy::default();
/// inside.enter(Mode::Shared, None);
/// assert!(inside.admit(Mode::Shared).is_some());
/// assert!(inside.admit(Mode::Exclusive).is_none());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Occupancy {
    exclusive: bool,
    shared: u32,
    slots: BTreeSet<u32>,
}

/// Permission to come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// The slot to take, for a claim that asked for one.
    pub slot: Option<u32>,
}

impl Occupancy {
    /// Counts a holder in.
    pub fn enter(&mut self, mode: Mode, slot: Option<u32>) {
        match mode {
            Mode::Exclusive => self.exclusive = true,
            Mode::Shared => self.shared += 1,
            Mode::Slot { .. } => {
                self.slots.extend(slot);
            }
        }
    }

    /// Whether a claim in `mode` may join those inside, and where.
    pub fn admit(&self, mode: Mode) -> Option<Admission> {
        if self.exclusive {
            return None;
        }
        match mode {
            Mode::Exclusive => {
                (self.shared == 0 && self.slots.is_empty()).then_some(Admission { slot: None })
            }
            Mode::Shared => self.slots.is_empty().then_some(Admission { slot: None }),
            Mode::Slot { of } => {
                // All who are inside count, also those above a number that was reduced meanwhile:
                // otherwise three would hold two.
                if self.shared > 0 || self.slots.len() >= of as usize {
                    return None;
                }
                // The lowest free number, so that slots stay few after a burst.
                let free = (0..of).find(|slot| !self.slots.contains(slot))?;
                Some(Admission { slot: Some(free) })
            }
        }
    }

    /// Counts a claim in if it may come in.
    pub fn try_enter(&mut self, mode: Mode) -> Option<Admission> {
        let admission = self.admit(mode)?;
        self.enter(mode, admission.slot);
        Some(admission)
    }
}

/// What a change of mode comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModeChange {
    /// The claim is held in that mode already.
    Same,
    /// The claim goes on as a shared one.
    Downgrade,
    /// All slot claims of the resource count so many slots from now on.
    Resize(u32),
    /// It is not made, because of this.
    Refused(&'static str),
}

impl Mode {
    /// What it means to change a claim in this mode to mode `to`; `held` says whether it holds.
    pub fn change_to(self, to: Self, held: bool) -> ModeChange {
        match (self, to) {
            (Self::Exclusive, Self::Shared) if held => ModeChange::Downgrade,
            (Self::Slot { .. }, Self::Slot { of }) if of > 0 => ModeChange::Resize(of),
            (from, to) if from == to => ModeChange::Same,
            (Self::Shared, Self::Exclusive) => ModeChange::Refused(
                "a shared claim is never made exclusive: two that both try would wait for each other for ever",
            ),
            _ => ModeChange::Refused("only exclusive to shared, and the number of slots, can be changed"),
        }
    }

    /// How many slots the mode counts, if it counts any.
    pub const fn slots(self) -> Option<u32> {
        match self {
            Self::Slot { of } => Some(of),
            Self::Exclusive | Self::Shared => None,
        }
    }

    /// Checks a new claim against the number of slots that is in force for its resource.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for no slots at all, [`ErrorKind::Conflict`] for another number.
    pub fn check_slots(self, in_force: Option<u32>) -> Result<()> {
        match (self.slots(), in_force) {
            (Some(0), _) => Err(Error::new(ErrorKind::Invalid, "a resource has at least one slot")),
            (Some(asked), Some(in_force)) if in_force != asked => Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "{in_force} slots are in force while claims exist, {asked} were asked for; use the same number, or have a holder resize it"
                ),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusive_excludes_everything_both_ways() {
        for other in [Mode::Exclusive, Mode::Shared, Mode::Slot { of: 9 }] {
            let mut inside = Occupancy::default();
            inside.enter(Mode::Exclusive, None);
            assert_eq!(inside.admit(other), None);
            let mut inside = Occupancy::default();
            inside.try_enter(other).unwrap();
            assert_eq!(inside.admit(Mode::Exclusive), None);
        }
    }

    #[test]
    fn slots_are_numbered_from_the_lowest_free_one() {
        let mut inside = Occupancy::default();
        inside.enter(Mode::Slot { of: 3 }, Some(0));
        inside.enter(Mode::Slot { of: 3 }, Some(2));
        assert_eq!(inside.try_enter(Mode::Slot { of: 3 }), Some(Admission { slot: Some(1) }));
        assert_eq!(inside.try_enter(Mode::Slot { of: 3 }), None);
        assert_eq!(inside.admit(Mode::Shared), None);
        // After a resize to fewer, holders above the new number keep theirs, and still count.
        let mut shrunk = Occupancy::default();
        shrunk.enter(Mode::Slot { of: 2 }, Some(2));
        assert_eq!(shrunk.try_enter(Mode::Slot { of: 2 }), Some(Admission { slot: Some(0) }));
        assert_eq!(shrunk.try_enter(Mode::Slot { of: 2 }), None);
    }
}
