use std::collections::VecDeque;
use std::time::Duration;

use palisade_core::Name;
use parking_lot::Mutex;

use crate::wait::Listening;

/// Resources at which others were met, with the watch that was waited by: who takes turns with others waits behind
/// the same key each time, and then needs neither a new watch nor a look whether that came too late.
#[derive(Debug, Default)]
pub(crate) struct Lingering(Mutex<VecDeque<Met>>);

#[derive(Debug)]
struct Met {
    resource: Name,
    listening: Option<Listening>,
    /// For how long the last claim of ours waited there.
    waited: Duration,
    /// Whose key came right after each of ours the last time, by the ends of both keys.
    next: VecDeque<(String, String)>,
}

impl Lingering {
    const AT_MOST: usize = 32;
    /// Of how many keys of ours at one resource it is remembered who came after.
    const KEYS_AT_MOST: usize = 16;

    /// Whether others were met there the last time.
    pub(crate) fn is_at(&self, resource: &Name) -> bool {
        self.0.lock().iter().any(|met| met.resource == *resource)
    }

    /// Notes that others were met.
    pub(crate) fn expect(&self, resource: &Name) {
        self.met(resource, |_| ());
    }

    /// Notes that nobody was met.
    pub(crate) fn forget(&self, resource: &Name) {
        self.0.lock().retain(|met| met.resource != *resource);
    }

    pub(crate) fn keep(&self, resource: &Name, listening: Listening, waited: Duration) {
        listening.ear.rests();
        self.met(resource, |met| {
            met.listening = Some(listening);
            met.waited = waited;
        });
    }

    /// Notes something about who was met there, which of all is forgotten last from now on.
    fn met(&self, resource: &Name, note: impl FnOnce(&mut Met)) {
        let mut kept = self.0.lock();
        let known = kept.iter().position(|met| met.resource == *resource).and_then(|at| kept.remove(at));
        let mut met = known.unwrap_or_else(|| Met {
            resource: resource.clone(),
            listening: None,
            waited: Duration::ZERO,
            next: VecDeque::new(),
        });
        note(&mut met);
        if kept.len() == Self::AT_MOST {
            kept.pop_front();
        }
        kept.push_back(met);
    }

    /// Notes whose key came right after one of ours, if anybody's: of those who take turns it will be the same again.
    pub(crate) fn comes_after(&self, resource: &Name, own: &str, next: Option<String>) {
        self.met(resource, |met| {
            met.next.retain(|(key, _)| key != own);
            let Some(next) = next else { return };
            if met.next.len() == Self::KEYS_AT_MOST {
                met.next.pop_front();
            }
            met.next.push_back((own.to_owned(), next));
        });
    }

    /// Whose key is expected right after one of ours.
    pub(crate) fn next(&self, resource: &Name, own: &str) -> Option<String> {
        let kept = self.0.lock();
        let met = kept.iter().find(|met| met.resource == *resource)?;
        met.next.iter().find(|(key, _)| key == own).map(|(_, next)| next.clone())
    }

    pub(crate) fn take(&self, resource: &Name) -> Option<Listening> {
        self.0.lock().iter_mut().find(|met| met.resource == *resource)?.listening.take()
    }

    /// For how long the last claim of ours waited there, if it did.
    pub(crate) fn waited(&self, resource: &Name) -> Duration {
        let kept = self.0.lock();
        kept.iter().find(|met| met.resource == *resource).map_or(Duration::ZERO, |met| met.waited)
    }

    /// Ends all watches: their connection is no more.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn note(lingering: &Lingering, own: &str, next: &str) {
        lingering.comes_after(&name("here"), own, Some(next.to_owned()));
    }

    fn next(lingering: &Lingering, own: &str) -> String {
        lingering.next(&name("here"), own).unwrap_or_default()
    }

    #[test]
    fn who_comes_after_is_known_of_each_key() {
        let lingering = Lingering::default();
        for (own, other) in [("a", "b"), ("a-1", "c"), ("a", "d")] {
            note(&lingering, own, other);
        }
        assert_eq!((next(&lingering, "a"), next(&lingering, "a-1")), ("d".into(), "c".into()));
        assert_eq!(lingering.next(&name("elsewhere"), "a"), None);
        lingering.comes_after(&name("here"), "a", None);
        assert_eq!(next(&lingering, "a"), "");
        lingering.forget(&name("here"));
        assert_eq!(next(&lingering, "a-1"), "");
    }

    #[test]
    fn of_many_the_oldest_is_forgotten() {
        let lingering = Lingering::default();
        for key in 0..=Lingering::KEYS_AT_MOST {
            note(&lingering, &key.to_string(), "next");
        }
        assert_eq!((next(&lingering, "0"), next(&lingering, "1")), (String::new(), "next".into()));
        for other in 1..Lingering::AT_MOST {
            lingering.expect(&name(&other.to_string()));
        }
        assert!(lingering.is_at(&name("here")));
        lingering.expect(&name("one more"));
        assert!(!lingering.is_at(&name("here")));
    }
}
