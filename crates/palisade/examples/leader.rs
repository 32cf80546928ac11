//! Who leads: two candidates, one leader, and everyone told when that changes.
//!
//! `cargo run -p palisade --example leader [URL]`

use futures::StreamExt;

#[tokio::main(flavor = "current_thread")]
async fn main() -> palisade::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:example".to_owned());
    let (one, two) = (palisade::connect(&url).await?, palisade::connect(&url).await?);

    let first = one.election("example/scheduler")?.campaign("node-1:9000").await?;
    println!("node-1 leads with token {}", first.token());

    let mut leaders = two.election("example/scheduler")?.observe().await?;
    let candidate = two.election("example/scheduler")?;
    let second = tokio::spawn(async move { candidate.campaign("node-2:9000").await });

    let mut told = Vec::new();
    let mut first = Some(first);
    while told.last().is_none_or(|value| value != "node-2:9000") {
        let Some(leader) = leaders.next().await.transpose()? else { break };
        match leader {
            Some(leader) => {
                println!("the leader is {:?}, token {}", leader.value, leader.token);
                told.push(leader.value);
            }
            None => println!("nobody leads"),
        }
        if let Some(first) = first.take() {
            first.resign().await?;
            println!("node-1 has resigned");
        }
    }

    let second = second.await.expect("the candidate does not panic")?;
    second.proclaim("node-2:9001").await?;
    let leader = one.election("example/scheduler")?.leader().await?;
    println!("node-2 moved to {:?}", leader.map(|leader| leader.value));
    second.resign().await?;
    Ok(())
}
