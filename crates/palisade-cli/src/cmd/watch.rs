use std::cell::RefCell;
use std::collections::BTreeSet;

use futures::stream::{self, StreamExt};
use palisade::{Client, Entry, Name, ResourceView, WatchEvent};
use serde_json::Value;

use crate::args::{Global, Watch};
use crate::connect::connect;
use crate::exit::Outcome;
use crate::output::{bold, line, mode, printable, register_json, resource_json, value, who};
use crate::watching::watch_on;

/// Follows changes until it is interrupted.
pub(crate) async fn watch(global: &Global, args: &Watch) -> Outcome {
    let client = connect(global, None).await?;
    // What was shown to be claimed: it may become free while nobody can be asked.
    let claimed = RefCell::new(BTreeSet::new());
    let open = async || {
        let changes = client.watch(&args.prefix).await?;
        let shown = claimed.borrow().clone();
        let freed = freed(&client, &args.prefix, shown).await?;
        Ok(stream::iter(freed).map(Ok).chain(changes).boxed())
    };
    let show = |event| {
        if let WatchEvent::Resource(view) = &event {
            note(&mut claimed.borrow_mut(), view);
        }
        print(args, &event)
    };
    watch_on(open, show).await
}

fn note(claimed: &mut BTreeSet<Name>, view: &ResourceView) {
    if view.holders.is_empty() && view.waiters.is_empty() {
        claimed.remove(&view.resource);
    } else if !view.resource.is_internal() {
        claimed.insert(view.resource.clone());
    }
}

/// Those of `shown` that nobody claims any more: a stream of changes begins with what there is.
async fn freed(
    client: &Client,
    prefix: &str,
    mut shown: BTreeSet<Name>,
) -> palisade::Result<Vec<WatchEvent>> {
    if !shown.is_empty() {
        for view in client.list(prefix).await? {
            shown.remove(&view.resource);
        }
    }
    Ok(shown.into_iter().map(|name| WatchEvent::Resource(ResourceView::free(name))).collect())
}

fn print(args: &Watch, event: &WatchEvent) -> Outcome<()> {
    let (kind, object, text) = match event {
        WatchEvent::Resource(view) if !view.resource.is_internal() => {
            ("resource", resource_json(view), resource(view))
        }
        WatchEvent::Register(name, entry) if !name.is_internal() => {
            ("register", register_json(name.as_str(), entry), register(name.as_str(), entry))
        }
        _ => return Ok(()),
    };
    if args.format.json { line(tagged(kind, object)) } else { line(text) }
}

/// Says what kind of thing changed, for readers of a mixed stream.
fn tagged(kind: &str, mut object: Value) -> Value {
    object["kind"] = kind.into();
    object
}

fn resource(view: &ResourceView) -> String {
    let name = bold(&printable(view.resource.as_str()));
    let waiting = match view.waiters.len() {
        0 => String::new(),
        count => format!(", {count} waiting"),
    };
    if view.holders.is_empty() {
        return format!("{name}\tfree{waiting}");
    }
    let holders: Vec<String> = view
        .holders
        .iter()
        .map(|holder| {
            let token = holder.token.map(|token| format!(" token {token}")).unwrap_or_default();
            format!("{} ({}{token})", who(&holder.owner), mode(holder))
        })
        .collect();
    format!("{name}\theld by {}{waiting}", holders.join(", "))
}

fn register(name: &str, entry: &Entry) -> String {
    let name = bold(&printable(name));
    match &entry.value {
        Some(bytes) => format!("{name}\t= {} (version {})", value(bytes), entry.version),
        None => format!("{name}\tdeleted (version {})", entry.version),
    }
}
