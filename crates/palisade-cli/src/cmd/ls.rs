use std::io::{self, IsTerminal};

use palisade::ResourceView;

use crate::args::{Global, Ls};
use crate::connect::{connect, leave};
use crate::exit::{OK, Outcome};
use crate::output::{age_of, line, mode, printable, resource_json, table, who};

/// Lists what is held or waited for.
pub(crate) async fn ls(global: &Global, args: &Ls) -> Outcome {
    let client = connect(global, None).await?;
    let resources = client.list(&args.prefix).await?;
    leave(client).await;
    if args.format.json {
        let all: serde_json::Value = resources.iter().map(resource_json).collect();
        line(all)?;
    } else if resources.is_empty() {
        // To a program nothing is nothing.
        if io::stdout().is_terminal() {
            line("nothing is held or waited for")?;
        }
    } else {
        table(
            &["RESOURCE", "MODE", "HELD BY", "FOR", "TOKEN", "WAITING"],
            resources.iter().flat_map(rows).collect(),
        )?;
    }
    Ok(OK)
}

/// One row per holder; a resource that is only waited for has one too.
fn rows(view: &ResourceView) -> Vec<Vec<String>> {
    let name = printable(view.resource.as_str());
    let waiting = view.waiters.len().to_string();
    if view.holders.is_empty() {
        let none = || "-".to_owned();
        return vec![vec![name, none(), none(), none(), none(), waiting]];
    }
    let row = |holder: &palisade::ClaimView| {
        vec![
            name.clone(),
            mode(holder),
            who(&holder.owner),
            age_of(holder),
            holder.token.map(|token| token.to_string()).unwrap_or_default(),
            waiting.clone(),
        ]
    };
    view.holders.iter().map(row).collect()
}
