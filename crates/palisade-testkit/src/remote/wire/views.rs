use std::sync::Arc;
use std::time::Duration;

use palisade_core::{
    ClaimView, Error, ErrorKind, Family, Inspection, Matching, Name, Owner, Page, ResourceView, Result,
    Scope, Selector, Token, WatchEvent,
};
use serde::{Deserialize, Serialize};

use super::Hex;
use super::claims::{How, nanos};
use super::registers::Stored;

/// A [`Selector`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Selection {
    resources: bool,
    registers: bool,
    exact: bool,
    text: String,
}

impl From<&Selector> for Selection {
    fn from(selector: &Selector) -> Self {
        let (exact, text) = match &selector.matching {
            Matching::Exact(name) => (true, name.to_string()),
            Matching::Prefix(prefix) => (false, prefix.clone()),
        };
        Self { resources: selector.wants_resources(), registers: selector.wants_registers(), exact, text }
    }
}

impl TryFrom<Selection> for Selector {
    type Error = Error;

    fn try_from(selection: Selection) -> Result<Self> {
        let scope = match (selection.resources, selection.registers) {
            (true, true) => Scope::Both,
            (true, false) => Scope::Resources,
            (false, _) => Scope::Registers,
        };
        let matching = if selection.exact {
            Matching::Exact(Name::from_stored(&selection.text)?)
        } else {
            Matching::Prefix(selection.text)
        };
        Ok(Self { scope, matching })
    }
}

/// A [`Page`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Paging {
    after: Option<String>,
    limit: u64,
}

impl From<&Page> for Paging {
    fn from(page: &Page) -> Self {
        Self { after: page.after.as_ref().map(ToString::to_string), limit: page.limit as u64 }
    }
}

impl TryFrom<Paging> for Page {
    type Error = Error;

    fn try_from(paging: Paging) -> Result<Self> {
        let after = paging.after.map(|after| Name::from_stored(&after)).transpose()?;
        Ok(Self { after, limit: usize::try_from(paging.limit).unwrap_or(usize::MAX) })
    }
}

/// An [`Inspection`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Resources {
    resources: Vec<Resource>,
    next: Option<String>,
}

impl From<&Inspection> for Resources {
    fn from(inspection: &Inspection) -> Self {
        Self {
            resources: inspection.resources.iter().map(Resource::from).collect(),
            next: inspection.next.as_ref().map(ToString::to_string),
        }
    }
}

impl TryFrom<Resources> for Inspection {
    type Error = Error;

    fn try_from(found: Resources) -> Result<Self> {
        Ok(Self {
            resources: found.resources.into_iter().map(ResourceView::try_from).collect::<Result<_>>()?,
            next: found.next.map(|next| Name::from_stored(&next)).transpose()?,
        })
    }
}

/// A [`ResourceView`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct Resource {
    name: String,
    holders: Vec<View>,
    waiters: Vec<View>,
}

impl From<&ResourceView> for Resource {
    fn from(view: &ResourceView) -> Self {
        Self {
            name: view.resource.to_string(),
            holders: view.holders.iter().map(View::from).collect(),
            waiters: view.waiters.iter().map(View::from).collect(),
        }
    }
}

impl TryFrom<Resource> for ResourceView {
    type Error = Error;

    fn try_from(resource: Resource) -> Result<Self> {
        Ok(Self {
            resource: Name::from_stored(&resource.name)?,
            holders: resource.holders.into_iter().map(ClaimView::try_from).collect::<Result<_>>()?,
            waiters: resource.waiters.into_iter().map(ClaimView::try_from).collect::<Result<_>>()?,
        })
    }
}

/// A [`ClaimView`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) struct View {
    id: String,
    family: Family,
    mode: How,
    slot: Option<u32>,
    token: Option<u64>,
    owner: Owner,
    value: Option<Hex>,
    age: u64,
    expires_in: Option<u64>,
}

impl From<&ClaimView> for View {
    fn from(view: &ClaimView) -> Self {
        Self {
            id: view.claim.to_string(),
            family: view.family,
            mode: view.mode.into(),
            slot: view.slot,
            token: view.token.map(Token::get),
            owner: (*view.owner).clone(),
            value: view.value.clone().map(Hex),
            age: nanos(view.age),
            expires_in: view.expires_in.map(nanos),
        }
    }
}

impl TryFrom<View> for ClaimView {
    type Error = Error;

    fn try_from(view: View) -> Result<Self> {
        Ok(Self {
            claim: view.id.parse().map_err(|_| Error::new(ErrorKind::Corrupt, "a claim's id is a UUID"))?,
            family: view.family,
            mode: view.mode.into(),
            slot: view.slot,
            token: view.token.and_then(Token::new),
            owner: Arc::new(view.owner),
            value: view.value.map(|Hex(value)| value),
            age: Duration::from_nanos(view.age),
            expires_in: view.expires_in.map(Duration::from_nanos),
        })
    }
}

/// A [`WatchEvent`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::remote) enum Told {
    Resource(Resource),
    Register(String, Stored),
}

impl Told {
    /// `None` for a kind of event that this protocol does not know.
    pub(in crate::remote) fn new(event: &WatchEvent) -> Option<Self> {
        match event {
            WatchEvent::Resource(view) => Some(Self::Resource(view.into())),
            WatchEvent::Register(name, entry) => Some(Self::Register(name.to_string(), entry.into())),
            _ => None,
        }
    }
}

impl TryFrom<Told> for WatchEvent {
    type Error = Error;

    fn try_from(told: Told) -> Result<Self> {
        Ok(match told {
            Told::Resource(view) => Self::Resource(view.try_into()?),
            Told::Register(name, stored) => Self::Register(Name::from_stored(&name)?, stored.into()),
        })
    }
}
