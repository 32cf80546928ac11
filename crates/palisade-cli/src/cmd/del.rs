use palisade::Condition;

use super::put::{fencing_token, report};
use crate::args::{Del, Global};
use crate::connect::{connect, leave};
use crate::exit::Outcome;

/// Deletes a register.
pub(crate) async fn del(global: &Global, args: &Del) -> Outcome {
    let client = connect(global, None).await?;
    let register = client.register(&args.key)?;
    let mut condition = Condition::always();
    if let Some(version) = args.version {
        condition = condition.version(version);
    }
    if let Some(token) = args.fence {
        condition = condition.token(fencing_token(&client, token, args.fence_slot));
    }
    let written = register.delete(condition).await?;
    leave(client).await;
    report(&args.key, args.format.json, &written)
}
