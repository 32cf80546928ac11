//! Many readers or one writer, in the order in which they came.
//!
//! `cargo run -p palisade --example rw_lock [URL]`

#[tokio::main(flavor = "current_thread")]
async fn main() -> palisade::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:example".to_owned());
    let (one, two) = (palisade::connect(&url).await?, palisade::connect(&url).await?);
    let (here, there) = (one.rw_lock("example/catalogue")?, two.rw_lock("example/catalogue")?);

    let (a, b) = (here.read().await?, there.read().await?);
    println!("two read at once, with tokens {} and {}", a.token(), b.token());
    assert!(there.try_write().await?.is_none());

    let writer = tokio::spawn({
        let there = there.clone();
        async move { there.write().await }
    });
    // Once the writer waits, newcomers wait behind it: readers do not starve writers.
    while one.show("example/catalogue").await?.waiters.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(here.try_read().await?.is_none());
    println!("a writer waits, and a new reader waits behind it");

    a.release().await?;
    b.release().await?;
    let writer = writer.await.expect("the writer does not panic")?;
    println!("the writer holds alone, with token {}", writer.token());

    // On as a reader, without a moment in which another could write.
    let reader = writer.downgrade().await?;
    let another = here.read().await?;
    println!("it goes on as a reader, beside another");
    reader.release().await?;
    another.release().await?;
    Ok(())
}
