//! Several at once, all or nothing: transfers in both directions that never wait for each other.
//!
//! `cargo run -p palisade --example many [URL]`

use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> palisade::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:example".to_owned());
    let client = palisade::connect(&url).await?;

    let mut transfers = JoinSet::new();
    for number in 0..10 {
        let client = client.clone();
        transfers.spawn(async move {
            // Given in either order, taken in the order of the names: hence no deadlock.
            let mut accounts = ["example/account/1", "example/account/2"];
            accounts.rotate_left(number % 2);
            let both = client.many(accounts)?.acquire().await?;
            let tokens: Vec<String> =
                both.tokens().map(|(name, token)| format!("{name} with token {token}")).collect();
            println!("transfer {number} holds {}", tokens.join(" and "));
            both.release().await
        });
    }
    let done = transfers.join_all().await.into_iter().collect::<palisade::Result<Vec<_>>>()?;
    println!("{} transfers, no deadlock", done.len());
    Ok(())
}
