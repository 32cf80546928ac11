use palisade::ClaimView;

use crate::args::{Global, Show};
use crate::connect::{connect, leave};
use crate::exit::{OK, Outcome};
use crate::output::{age_of, line, mode, resource_json, table, value, who};

/// Shows who holds a resource and who waits for it.
pub(crate) async fn show(global: &Global, args: &Show) -> Outcome {
    let client = connect(global, None).await?;
    let view = client.show(&args.name).await?;
    leave(client).await;
    if args.format.json {
        line(resource_json(&view))?;
    } else if view.holders.is_empty() && view.waiters.is_empty() {
        line("free")?;
    } else {
        let mut rows: Vec<_> = view.holders.iter().map(|claim| row("holds", claim)).collect();
        rows.extend(view.waiters.iter().map(|claim| row("waits", claim)));
        table(&["DOES", "MODE", "WHO", "FOR", "TOKEN", "CLAIM", "TRACE", "VALUE"], rows)?;
    }
    Ok(OK)
}

fn row(does: &str, claim: &ClaimView) -> Vec<String> {
    vec![
        does.to_owned(),
        mode(claim),
        who(&claim.owner),
        age_of(claim),
        claim.token.map_or_else(|| "-".to_owned(), |token| token.to_string()),
        claim.claim.to_string(),
        claim.owner.trace.as_deref().map_or_else(|| "-".to_owned(), crate::output::printable),
        claim.value.as_deref().map_or_else(|| "-".to_owned(), value),
    ]
}
