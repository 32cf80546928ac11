use std::time::Duration;

/// What the proxy does to what passes through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Everything passes.
    Clear,
    /// A loud cut: connections are reset, new ones at once.
    Cut,
    /// A silent partition: nothing passes, nothing is closed. What was sent meanwhile arrives late,
    /// after it has cleared up, as TCP would have it. A new connection is taken, but is not heard of.
    Silent,
    /// A silent partition of one direction; the other passes.
    OneWay(Direction),
    /// Silent for the connections that are open when it is set; new ones pass. What a firewall does
    /// that forgot them, and how an old request comes to arrive after a new one.
    Stranded,
    /// Everything arrives late, in order.
    Delay {
        /// By at least so much.
        by: Duration,
        /// And up to so much more, drawn for each chunk.
        jitter: Duration,
    },
    /// Everything arrives in small pieces.
    Trickle {
        /// So many bytes at a time; none counts as one.
        bytes: usize,
        /// One piece in so much time.
        every: Duration,
    },
    /// "Did I get it?": the next request passes and is answered, but the connection is reset before
    /// the answer passes. It happens to one connection, then everything is clear again.
    CutAfterForwarding,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Requests.
    ToServer,
    /// Answers.
    ToClient,
}

/// The weather with what its changes meant to those who looked away.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sky {
    pub(super) weather: Weather,
    /// Rises with every change.
    pub(super) number: u64,
    /// Rises with every cut, so that one that was over at once is not missed.
    pub(super) cuts: u64,
}

impl Sky {
    pub(super) fn clear() -> Self {
        Self { weather: Weather::Clear, number: 0, cuts: 0 }
    }

    /// Whether nothing passes in this direction of a connection that began under sky `born`.
    pub(super) fn is_silent(&self, direction: Direction, born: u64) -> bool {
        match self.weather {
            Weather::Silent => true,
            Weather::OneWay(silent) => silent == direction,
            Weather::Stranded => born < self.number,
            _ => false,
        }
    }

    pub(super) fn turn(&mut self, weather: Weather) {
        self.weather = weather;
        self.number += 1;
        self.cuts += u64::from(weather == Weather::Cut);
    }
}
