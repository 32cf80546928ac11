use futures::StreamExt;
use palisade::{Entry, ResourceView, WatchEvent};
use serde_json::Value;

use crate::args::{Global, Watch};
use crate::connect::connect;
use crate::exit::{OK, Outcome};
use crate::output::{bold, line, mode, printable, register_json, resource_json, value, who};

/// Follows changes until it is interrupted.
pub(crate) async fn watch(global: &Global, args: &Watch) -> Outcome {
    let client = connect(global, None).await?;
    let mut changes = client.watch(&args.prefix).await?;
    while let Some(event) = changes.next().await {
        let (kind, object, text) = match event? {
            WatchEvent::Resource(view) if !view.resource.is_internal() => {
                ("resource", resource_json(&view), resource(&view))
            }
            WatchEvent::Register(name, entry) if !name.is_internal() => {
                ("register", register_json(name.as_str(), &entry), register(name.as_str(), &entry))
            }
            _ => continue,
        };
        if args.format.json {
            line(tagged(kind, object))?;
        } else {
            line(text)?;
        }
    }
    Ok(OK)
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
