//! One file per shape: what is done, over and over, by us and by the raw limit in turn.

mod command;
mod contended;
mod keepalive;
mod reserve;
mod takeover;
mod throughput;
mod uncontended;

use std::fmt;
use std::str::FromStr;

use anyhow::Result;
use serde::Serialize;

use crate::effort::Effort;
use crate::report::Row;
use crate::target::Target;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// One client takes and releases what nobody else wants.
    Uncontended,
    /// 64 tasks of one process do so, each its own resource.
    Throughput,
    /// 16 and 64 want the same resource; a queue of them is drained.
    Contended,
    /// One process holds 1,000 and 10,000.
    Keepalive,
    /// A holder is killed with −9.
    Takeover,
    /// 16 want one of a stock: by reservations, and under a lock.
    Reserve,
    /// `palisade run NAME -- true`, as a shell script would.
    Command,
}

impl Shape {
    /// All shapes, in the order in which they run.
    pub const ALL: [Self; 7] = [
        Self::Uncontended,
        Self::Throughput,
        Self::Contended,
        Self::Keepalive,
        Self::Takeover,
        Self::Reserve,
        Self::Command,
    ];

    /// As it is written on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uncontended => "uncontended",
            Self::Throughput => "throughput",
            Self::Contended => "contended",
            Self::Keepalive => "keepalive",
            Self::Takeover => "takeover",
            Self::Reserve => "reserve",
            Self::Command => "command",
        }
    }

    /// Whether it needs more than one thread: a single client is measured on one, because waking a
    /// second would be measured with it.
    pub(crate) fn is_parallel(self) -> bool {
        matches!(self, Self::Throughput | Self::Contended | Self::Takeover | Self::Reserve)
    }

    /// Whether at any moment one asks and another answers, so that one processor is enough for all.
    pub(crate) fn is_turns(self) -> bool {
        matches!(self, Self::Uncontended | Self::Contended)
    }

    pub(crate) async fn measure(self, target: &Target, effort: &Effort, tell: Tell<'_>) -> Result<Vec<Row>> {
        match self {
            Self::Uncontended => uncontended::measure(target, effort, tell).await,
            Self::Throughput => throughput::measure(target, effort, tell).await,
            Self::Contended => contended::measure(target, effort, tell).await,
            Self::Keepalive => keepalive::measure(target, effort, tell).await,
            Self::Takeover => takeover::measure(target, effort, tell).await,
            Self::Reserve => reserve::measure(target, effort, tell).await,
            Self::Command => command::measure(target, effort, tell).await,
        }
    }
}

/// Tells whoever watches what is being done.
pub(crate) type Tell<'a> = &'a (dyn Fn(&str) + Send + Sync);

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|shape| shape.name() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|shape| shape.name()).collect();
            format!("there is no shape {text:?}; there are {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_read_back_and_others_list_them() {
        for shape in Shape::ALL {
            assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        let problem = "sideways".parse::<Shape>().unwrap_err();
        assert!(Shape::ALL.iter().all(|shape| problem.contains(shape.name())), "{problem}");
    }
}
