use palisade::Leader as Leading;

use crate::args::{Global, Leader};
use crate::connect::{connect, leave};
use crate::exit::{NO, OK, Outcome};
use crate::output::{age, leader_json, line, value, who};
use crate::watching::watch_on;

/// Says who leads.
pub(crate) async fn leader(global: &Global, args: &Leader) -> Outcome {
    let client = connect(global, None).await?;
    let election = client.election(&args.name)?;
    if args.watch {
        return watch_on(|| election.observe(), |leader| print(args, leader.as_ref())).await;
    }
    let leader = election.leader().await?;
    leave(client).await;
    print(args, leader.as_ref())?;
    Ok(if leader.is_some() { OK } else { NO })
}

fn print(args: &Leader, leader: Option<&Leading>) -> Outcome<()> {
    match leader {
        leader if args.format.json => line(leader_json(&args.name, leader)),
        Some(leader) => line(format_args!(
            "{}\t{}\ttoken {}\tfor {}",
            value(&leader.value),
            who(&leader.owner),
            leader.token,
            age(leader.age)
        )),
        None => line("nobody leads"),
    }
}
