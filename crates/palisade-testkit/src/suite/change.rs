//! Downgrade, resize, proclaim.

use std::sync::Arc;

use anyhow::{Result, ensure};
use palisade_core::{Change, Changed, Claim, Family, Mode, Name, Selector, WatchEvent};

use super::watch::next_where;
use crate::Context;
use crate::case::cases;
use crate::context::name;

cases! { "change" {
    a_downgrade_lets_waiting_readers_in [Shared Fifo] "Exclusive becomes shared without a moment in which another could come in as a writer; the token stays; waiting readers at the front come in."
    a_downgrade_lets_no_writer_in [Shared Fifo] "Exclusive becomes shared without a moment in which another could come in as a writer"
    an_upgrade_is_refused [Shared] "Shared never becomes exclusive: two readers that both upgrade would wait for each other for ever. The change is refused."
    more_slots_are_in_force_at_once [Slots] "Another number of slots is in force at once for everyone"
    fewer_slots_take_nothing_away [Slots] "holders above it keep theirs."
    a_new_value_is_seen [] "A new value is seen by every inspection and watch that follows."
}
each_way {
    a_claim_that_is_gone_stays_gone [] "A claim that is gone stays gone."
} }

fn writer(context: &Context, resource: &Name) -> Arc<Claim> {
    Arc::new(context.claim(resource, Mode::Exclusive).family(Family::Rw))
}

fn reader(context: &Context, resource: &Name) -> Arc<Claim> {
    Arc::new(context.claim(resource, Mode::Shared))
}

fn slot(context: &Context, resource: &Name, of: u32) -> Arc<Claim> {
    Arc::new(context.claim(resource, Mode::Slot { of }))
}

const TO_SHARED: Change = Change::Mode(Mode::Shared);

async fn a_downgrade_lets_waiting_readers_in(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let resource = name("a");
    let first = writer(&context, &resource);
    let grant = one.take(&first).await?;
    let readers = [reader(&context, &resource), reader(&context, &resource)];
    let (second, late) = (writer(&context, &resource), reader(&context, &resource));
    for claim in [&readers[0], &readers[1], &second, &late] {
        two.queue(claim).await?;
    }
    ensure!(one.change(&first, &TO_SHARED).await? == Changed::Done, "the downgrade was not made");
    for claim in &readers {
        two.turn(claim).await?;
    }
    let view = one.view(&resource).await?;
    let waiting: Vec<_> = view.waiters.iter().map(|waiter| waiter.claim).collect();
    ensure!(waiting == [second.id, late.id], "those behind the writer came in: {waiting:?}");
    ensure!(view.holders[0].token == Some(grant.token), "the downgrade changed the token");
    ensure!(view.holders.iter().all(|holder| holder.mode == Mode::Shared), "the mode is not shared");
    Ok(())
}

async fn a_downgrade_lets_no_writer_in(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let resource = name("a");
    let (first, second) = (writer(&context, &resource), writer(&context, &resource));
    one.take(&first).await?;
    two.queue(&second).await?;
    let mut turn = Box::pin(two.turn(&second));
    ensure!(futures::poll!(turn.as_mut()).is_pending(), "two writers at once");
    ensure!(one.change(&first, &TO_SHARED).await? == Changed::Done, "the downgrade was not made");
    ensure!(futures::poll!(turn.as_mut()).is_pending(), "the writer came in at the downgrade");
    ensure!(one.holders(&resource).await? == [first.id], "another one holds after the downgrade");
    ensure!(one.change(&first, &TO_SHARED).await? == Changed::Done, "repeating it is refused");
    one.release(&first).await?;
    turn.await?;
    Ok(())
}

async fn an_upgrade_is_refused(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let resource = name("a");
    let claim = reader(&context, &resource);
    session.take(&claim).await?;
    let answer = session.change(&claim, &Change::Mode(Mode::Exclusive)).await?;
    ensure!(matches!(answer, Changed::Refused(_)), "the upgrade was answered with {answer:?}");
    session.take(&reader(&context, &resource)).await?;
    Ok(())
}

async fn more_slots_are_in_force_at_once(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let resource = name("a");
    let (first, second) = (slot(&context, &resource, 1), slot(&context, &resource, 1));
    one.take(&first).await?;
    two.queue(&second).await?;
    let resize = Change::Mode(Mode::Slot { of: 3 });
    ensure!(one.change(&first, &resize).await? == Changed::Done, "the resize was not made");
    let grant = two.turn(&second).await?;
    ensure!(grant.slot == Some(1), "the next slot is {:?}", grant.slot);
    two.take(&slot(&context, &resource, 3)).await?;
    ensure!(two.claim(&slot(&context, &resource, 1)).await.is_err(), "the old number is still in force");
    Ok(())
}

async fn fewer_slots_take_nothing_away(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let resource = name("a");
    let held: Vec<_> = (0..3).map(|_| slot(&context, &resource, 3)).collect();
    for claim in &held {
        session.take(claim).await?;
    }
    let resize = Change::Mode(Mode::Slot { of: 2 });
    ensure!(session.change(&held[0], &resize).await? == Changed::Done, "the resize was not made");
    ensure!(session.holders(&resource).await?.len() == 3, "a holder lost its slot");
    let late = slot(&context, &resource, 2);
    session.queue(&late).await?;
    session.release(&held[0]).await?;
    ensure!(session.waiters(&resource).await? == [late.id], "three hold two slots");
    session.release(&held[1]).await?;
    session.turn(&late).await?;
    Ok(())
}

async fn a_new_value_is_seen(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let claim = Arc::new(context.alone(&name("a")).value("first"));
    one.take(&claim).await?;
    let mut events = two.watch(&Selector::resource(claim.resource.clone())).await?;
    let shows = |event: &WatchEvent, value: Option<&[u8]>| match event {
        WatchEvent::Resource(view) => {
            view.holders.first().is_some_and(|holder| holder.value.as_deref() == value)
        }
        _ => false,
    };
    next_where(&context, &mut events, |event| shows(event, Some(b"first"))).await?;
    for value in [Some("second"), None] {
        let change = Change::Value(value.map(Into::into));
        ensure!(one.change(&claim, &change).await? == Changed::Done, "the value was not changed");
        let value = value.map(str::as_bytes);
        let seen = two.view(&claim.resource).await?.holders[0].value.clone();
        ensure!(seen.as_deref() == value, "the inspection that follows shows {seen:?}");
        next_where(&context, &mut events, |event| shows(event, value)).await?;
    }
    Ok(())
}

async fn a_claim_that_is_gone_stays_gone(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let claim = Arc::new(context.alone(&name("a")));
    session.take(&claim).await?;
    session.release(&claim).await?;
    for change in [Change::Value(Some("late".into())), Change::Mode(claim.mode)] {
        let answer = session.change(&claim, &change).await?;
        ensure!(matches!(answer, Changed::Gone(_)), "{change:?} of a gone claim says {answer:?}");
    }
    session.nothing_left().await
}
