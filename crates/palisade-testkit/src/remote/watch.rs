use std::sync::Arc;

use futures::stream::{self, StreamExt};
use palisade_core::{Result, Selector, WatchEvent, WatchStream};

use super::engine::{Inner, unexpected};
use super::link::{Link, NoAnswer, Pace};
use super::wire::{Answer, Ask};

impl Inner {
    /// Opens a watch, which lives as long as its connection does.
    pub(super) async fn watch(self: &Arc<Self>, selector: &Selector) -> Result<WatchStream> {
        let opened = self.ask(|| Ask::Watch(selector.into())).await?;
        let watch = Watch { inner: Arc::clone(self), link: opened.link, id: opened.id };
        let events = stream::unfold(Some(watch), |watch| async move {
            let watch = watch?;
            let event = watch.next().await.transpose()?;
            let go_on = event.is_ok().then_some(watch);
            Some((event, go_on))
        });
        Ok(events.fuse().boxed())
    }
}

/// One open watch. It asks for one event at a time, so that nothing piles up on either side.
struct Watch {
    inner: Arc<Inner>,
    link: Arc<Link>,
    id: u64,
}

impl Watch {
    async fn next(&self) -> Result<Option<WatchEvent>> {
        let ask = Ask::Next { watch: self.id };
        match self.link.ask(ask, Pace::WhenReady).await {
            Ok((_, Ok(Answer::Told(told)))) => Ok(Some(told.try_into()?)),
            Ok((_, Ok(Answer::WatchEnded))) => Ok(None),
            Ok((_, Ok(_))) => Err(unexpected()),
            Ok((_, Err(failure))) => Err(failure.into()),
            Err(NoAnswer::Impossible(error)) => Err(error),
            Err(NoAnswer::Lost | NoAnswer::NotSent) => Err(self.inner.lost()),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.link.forget(self.id);
    }
}
