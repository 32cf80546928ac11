use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::{ClaimId, Family, Mode, Name, Owner, Token};

/// Which resources or registers are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// Resources, registers or both.
    pub scope: Scope,
    /// Which names.
    pub matching: Matching,
}

/// Whether resources, registers or both are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Resources and their claims.
    Resources,
    /// Registers and their values.
    Registers,
    /// Both.
    Both,
}

/// Which names are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matching {
    /// This one.
    Exact(Name),
    /// All that begin with this text; all, if it is empty. Names that recipes made for their own
    /// use begin with no text a user can write, and match an empty prefix only.
    Prefix(String),
}

impl Selector {
    /// One resource.
    pub fn resource(name: Name) -> Self {
        Self { scope: Scope::Resources, matching: Matching::Exact(name) }
    }

    /// All resources whose names begin with `prefix`.
    pub fn resources(prefix: impl Into<String>) -> Self {
        Self { scope: Scope::Resources, matching: Matching::Prefix(prefix.into()) }
    }

    /// One register.
    pub fn register(name: Name) -> Self {
        Self { scope: Scope::Registers, matching: Matching::Exact(name) }
    }

    /// Everything whose name begins with `prefix`.
    pub fn everything(prefix: impl Into<String>) -> Self {
        Self { scope: Scope::Both, matching: Matching::Prefix(prefix.into()) }
    }

    /// Whether resources are meant.
    pub fn wants_resources(&self) -> bool {
        self.scope != Scope::Registers
    }

    /// Whether registers are meant.
    pub fn wants_registers(&self) -> bool {
        self.scope != Scope::Resources
    }

    /// Whether `name` is meant.
    pub fn matches(&self, name: &Name) -> bool {
        match &self.matching {
            Matching::Exact(exact) => exact == name,
            Matching::Prefix(prefix) => name.as_str().starts_with(prefix.as_str()),
        }
    }
}

/// Which part of a long answer is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Only names after this one.
    pub after: Option<Name>,
    /// At most so many.
    pub limit: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self { after: None, limit: 1000 }
    }
}

/// One page of resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inspection {
    /// The resources that have claims, by name.
    pub resources: Vec<ResourceView>,
    /// Where the next page starts, if there is one.
    pub next: Option<Name>,
}

/// A resource as seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceView {
    /// Its name.
    pub resource: Name,
    /// Those who hold it, in the order of their arrival.
    pub holders: Vec<ClaimView>,
    /// Those who wait, in the order in which they will be served.
    pub waiters: Vec<ClaimView>,
}

impl ResourceView {
    /// A resource that nobody claims.
    pub fn free(resource: Name) -> Self {
        Self { resource, holders: Vec::new(), waiters: Vec::new() }
    }
}

/// A claim as seen from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimView {
    /// Its id.
    pub claim: ClaimId,
    /// Which kind of recipe made it.
    pub family: Family,
    /// How it holds, or wants to.
    pub mode: Mode,
    /// Its slot, if it holds one.
    pub slot: Option<u32>,
    /// Its token, if it holds.
    pub token: Option<Token>,
    /// Who made it.
    pub owner: Arc<Owner>,
    /// What it publishes.
    pub value: Option<Bytes>,
    /// For how long it has held, or waited.
    pub age: Duration,
    /// When it ends unless it is renewed, where the engine knows: ZooKeeper keeps that of other
    /// sessions to itself.
    pub expires_in: Option<Duration>,
}
