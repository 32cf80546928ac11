//! Small histories written by hand.

use palisade_core::Token;

use crate::history::{Answer, Call, Event, History, HoldMode, Nanos, OpId, ProcessId};

/// Events in the making.
#[derive(Debug, Default)]
pub(super) struct Script {
    events: Vec<Event>,
    ops: OpId,
}

impl Script {
    /// An operation with an answer.
    pub(super) fn op(
        &mut self,
        process: ProcessId,
        key: &str,
        (start, end): (Nanos, Nanos),
        call: Call,
        answer: Answer,
    ) -> OpId {
        self.ops += 1;
        let op = self.ops;
        self.events.push(Event::Call { op, process, at: start, key: key.to_owned(), call });
        self.events.push(Event::Return { op, at: end, answer });
        op
    }

    /// A lock that is held alone from the end of `when` on.
    pub(super) fn acquire(&mut self, process: ProcessId, when: (Nanos, Nanos), token: u64) -> OpId {
        let answer = Answer::Granted { token: Token::new(token), slot: None, until: None };
        self.op(process, "k", when, Call::Acquire { mode: HoldMode::Exclusive }, answer)
    }

    /// Gives back what `hold` acquired.
    pub(super) fn release(&mut self, process: ProcessId, when: (Nanos, Nanos), hold: OpId) {
        let call = Call::Release { hold: Some(hold) };
        self.op(process, "k", when, call, Answer::Released { in_time: true });
    }

    /// A write to the register that the lock guards, which made `made`.
    pub(super) fn write(&mut self, process: ProcessId, when: (Nanos, Nanos), token: u64, made: u64) -> OpId {
        let call = Call::Write { value: format!("v{made}"), version: None, token: Token::new(token) };
        self.op(process, "k#data", when, call, Answer::Done { version: Some(made) })
    }

    /// A read of it.
    pub(super) fn read(&mut self, process: ProcessId, when: (Nanos, Nanos), version: u64) -> OpId {
        let answer = Answer::Value { value: Some(format!("v{version}")), version: Some(version) };
        self.op(process, "k#data", when, Call::Read, answer)
    }

    /// Any other event.
    pub(super) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(super) fn history(self) -> History {
        History::from_events(self.events).unwrap()
    }
}
