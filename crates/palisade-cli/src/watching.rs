//! Watching on when the connection was lost.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use palisade::{Error, Result};

use crate::exit::{OK, Outcome, complain, explained};

/// Changes as they come, beginning with the present state.
type Changes<T> = BoxStream<'static, Result<T>>;

/// Shows each change that the stream of `open` brings, until it ends. If the engine cannot be reached for a
/// while, that is said, and `open` is asked again until it can. Who cannot reach it at first is told so and no more.
pub(crate) async fn watch_on<T>(
    open: impl AsyncFn() -> Result<Changes<T>>,
    mut show: impl FnMut(T) -> Outcome<()>,
) -> Outcome {
    let mut changes = open().await?;
    loop {
        match changes.next().await {
            None => return Ok(OK),
            Some(Ok(change)) => show(change)?,
            Some(Err(error)) if error.is_transient() => changes = reopened(&open, &error).await?,
            Some(Err(error)) => return Err(error.into()),
        }
    }
}

async fn reopened<T>(open: &impl AsyncFn() -> Result<Changes<T>>, lost: &Error) -> Result<Changes<T>> {
    const PAUSE: Duration = Duration::from_secs(1);
    let mut said = explained(lost);
    complain(&format!("{said}; watching on once the engine is back"));
    loop {
        tokio::time::sleep(PAUSE).await;
        match open().await {
            Ok(changes) => {
                complain("the engine is back; what there is now follows");
                return Ok(changes);
            }
            Err(error) if error.is_transient() => {
                let says = explained(&error);
                if std::mem::replace(&mut said, says.clone()) != says {
                    complain(&says);
                }
            }
            Err(error) => return Err(error),
        }
    }
}
