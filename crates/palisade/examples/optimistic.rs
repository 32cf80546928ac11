//! Without a lock: a balance of 1000, and two who withdraw 500 and 300 at the same time.
//!
//! `cargo run -p palisade --example optimistic [URL]`

use palisade::{Condition, Register, Result, Update, Updated, Written};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:example".to_owned());
    let client = palisade::connect(&url).await?;
    let balance = client.register("example/balance")?;
    balance.write("1000", Condition::always()).await?;

    // By hand: both read 1000, and only the first write goes against the version that was read.
    let seen = balance.read().await?;
    let first = balance.write("500", Condition::always().version(seen.version)).await?;
    let second = balance.write("700", Condition::always().version(seen.version)).await?;
    assert!(matches!(first, Written::Done(_)));
    if let Written::Refused(refusal) = second {
        println!("refused: {}; there is {:?}", refusal.reason, refusal.current.value.unwrap_or_default());
    }

    // The same with tries: whoever comes second computes again from what is there.
    balance.write("1000", Condition::always()).await?;
    let (one, two) = tokio::join!(withdraw(&balance, 500), withdraw(&balance, 300));
    println!("withdrew 500: {}, withdrew 300: {}", one?, two?);
    let left = balance.read().await?.value.unwrap_or_default();
    println!("left: {left:?}");
    assert_eq!(left, "200");
    assert!(!withdraw(&balance, 300).await?, "200 is not enough for 300");
    println!("300 more: refused, the balance never goes below zero");
    Ok(())
}

/// Takes `amount` if there is enough; says whether.
async fn withdraw(balance: &Register, amount: u64) -> Result<bool> {
    let updated = balance
        .update(|old| {
            let old = old.and_then(|old| std::str::from_utf8(old).ok()?.parse::<u64>().ok()).unwrap_or(0);
            match old.checked_sub(amount) {
                Some(new) => Update::from(new.to_string()),
                None => Update::Keep,
            }
        })
        .await?;
    Ok(matches!(updated, Updated::Done(_)))
}
