use palisade::{ClaimId, Client, Evicted};

use crate::args::{Evict, Global};
use crate::connect::{connect, leave};
use crate::exit::{Failure, NO, OK, Outcome};
use crate::output::{mode, who};

/// Ends a claim by force.
pub(crate) async fn evict(global: &Global, args: &Evict) -> Outcome {
    let client = connect(global, None).await?;
    let claim = match args.claim {
        Some(claim) => claim,
        None => only_holder(&client, &args.name).await?,
    };
    let evicted = client.evict(&args.name, claim, &args.reason).await?;
    leave(client).await;
    match evicted {
        Evicted::Done => Ok(OK),
        Evicted::NotFound => Err(Failure::new(NO, format!("{}: there is no claim {claim}", args.name))),
    }
}

/// Where several hold, guessing which one is meant could end the wrong one.
async fn only_holder(client: &Client, name: &str) -> Outcome<ClaimId> {
    let view = client.show(name).await?;
    match &view.holders[..] {
        [] => Err(Failure::new(NO, format!("{name}: nobody holds it"))),
        [holder] => Ok(holder.claim),
        several => {
            let list: Vec<String> = several
                .iter()
                .map(|holder| {
                    format!("\n  --claim {}  {} ({})", holder.claim, who(&holder.owner), mode(holder))
                })
                .collect();
            Err(Failure::usage(format!("{name}: several hold it; say which one:{}", list.concat())))
        }
    }
}
