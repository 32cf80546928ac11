//! Who is let in, who waits, who is turned away.

use std::sync::Arc;

use anyhow::{Result, ensure};
use palisade_core::{Claimed, ErrorKind, Family, FamilyScope, Mode, Token};

use crate::Context;
use crate::bounded::eventually;
use crate::case::cases;
use crate::context::{name, now};

cases! { "claims" {
    modes_exclude_each_other [Shared Slots] "An exclusive claim excludes every other; shared claims exclude exclusive ones and slots; at most N slots are held at once, each number once."
    readers_share [Shared] "shared claims exclude exclusive ones and slots"
    slots_are_counted_and_numbered [Slots] "at most N slots are held at once, each number once."
    a_reader_does_not_overtake_a_writer [Shared Fifo] "also behind one that could not come in although this one could: nobody is overtaken (fairness *Fifo*)."
    asked_together_one_fails_alone [Slots] "One that fails does so alone."
    another_number_of_slots_is_a_conflict [Slots] "Another number of slots than the one in force is a conflict that names both."
}
each_way {
    a_free_resource_is_granted_at_once [] "A free resource is granted at once."
    a_held_resource_keeps_others_out [] "An exclusive claim excludes every other"
    waiters_come_in_by_arrival [Fifo] "A claim that will wait is queued behind all who came before"
    busy_says_who_holds_and_leaves_nothing [] "A claim that will not wait and cannot come in is *busy*, says who holds, and leaves nothing behind."
    asked_again_it_answers_the_same [] "Asked again with the same id, it gives the same answer: the same token, or the same place."
    asked_together_each_gets_its_own_answer [] "Each gets the answer that [`Engine::claim`] would give; answers come in the order asked."
    a_token_floor_lifts_the_token [] "Asked again with a token floor that is not below its token, a grant gets a greater token."
    validity_counts_from_before_the_request [] "`valid_until` counts from before the request was sent."
} }

async fn a_free_resource_is_granted_at_once(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let claim = Arc::new(context.alone(&name("a")));
    let grant = session.take(&claim).await?;
    let slot_expected = (context.way.mode() == Mode::Slot { of: 1 }).then_some(0);
    ensure!(grant.slot == slot_expected, "the slot is {:?}, not {slot_expected:?}", grant.slot);
    ensure!(session.holders(&claim.resource).await? == [claim.id], "it is not shown as the holder");
    session.release(&claim).await?;
    session.nothing_left().await
}

async fn a_held_resource_keeps_others_out(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let holder = Arc::new(context.alone(&name("a")));
    one.take(&holder).await?;
    for session in [&one, &two] {
        session.turned_away(context.alone(&name("a"))).await?;
        session.queue(&Arc::new(context.alone(&name("a")))).await?;
    }
    let view = two.view(&holder.resource).await?;
    ensure!(view.holders.len() == 1 && view.holders[0].claim == holder.id, "others hold too: {view:?}");
    // One that moves from a node of a quorum to another stands at neither for a moment.
    eventually(context.patience(), "two are shown to wait", || async {
        Ok((two.waiters(&holder.resource).await?.len() == 2).then_some(()))
    })
    .await
}

async fn modes_exclude_each_other(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let modes =
        [(Mode::Exclusive, Family::Rw), (Mode::Shared, Family::Rw), (Mode::Slot { of: 2 }, Family::Permits)];
    for (first, first_family) in modes {
        for (second, second_family) in modes {
            if first_family != second_family && context.profile.families == FamilyScope::Apart {
                continue;
            }
            let resource = name(&format!("{first} then {second}"));
            one.take(&Arc::new(context.claim(&resource, first).family(first_family))).await?;
            let late = Arc::new(context.claim(&resource, second).family(second_family).no_wait());
            let came_in = matches!(two.claim(&late).await?, Claimed::Granted(_));
            let may = first == second && first != Mode::Exclusive;
            ensure!(came_in == may, "{second} after {first}: came in {came_in}, should be {may}");
        }
    }
    Ok(())
}

async fn readers_share(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let resource = name("a");
    let readers: Vec<_> = (0..4).map(|_| Arc::new(context.claim(&resource, Mode::Shared))).collect();
    for (at, reader) in readers.iter().enumerate() {
        if at % 2 == 0 {
            one.take(reader).await?
        } else {
            two.take(reader).await?
        };
    }
    two.turned_away(context.claim(&resource, Mode::Exclusive).family(Family::Rw)).await?;
    let writer = Arc::new(context.claim(&resource, Mode::Exclusive).family(Family::Rw));
    two.queue(&writer).await?;
    for (at, reader) in readers.iter().enumerate() {
        ensure!(two.waiters(&resource).await? == [writer.id], "the writer came in beside a reader");
        if at % 2 == 0 { one.release(reader).await? } else { two.release(reader).await? }
    }
    two.turn(&writer).await?;
    Ok(())
}

async fn slots_are_counted_and_numbered(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let resource = name("a");
    let slot = || Arc::new(context.claim(&resource, Mode::Slot { of: 3 }));
    let held: Vec<_> = (0..3).map(|_| slot()).collect();
    let mut slots = Vec::new();
    for claim in &held {
        slots.push(one.take(claim).await?.slot);
    }
    let freed = slots[1];
    slots.sort();
    ensure!(slots == [Some(0), Some(1), Some(2)], "the slots are {slots:?}");
    let (late, later) = (slot(), slot());
    two.queue(&late).await?;
    two.queue(&later).await?;
    one.release(&held[1]).await?;
    let grant = two.turn(&late).await?;
    ensure!(grant.slot == freed, "slot {freed:?} was free, {:?} was given", grant.slot);
    ensure!(two.waiters(&resource).await? == [later.id], "four hold three slots");
    Ok(())
}

async fn waiters_come_in_by_arrival(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let resource = name("a");
    let line: Vec<_> = (0..6).map(|_| Arc::new(context.alone(&resource))).collect();
    let sessions = [&one, &two];
    one.take(&line[0]).await?;
    for (at, claim) in line.iter().enumerate().skip(1) {
        let place = sessions[at % 2].queue(claim).await?;
        ensure!(place.ahead as usize == at - 1, "{} wait ahead of number {at}", place.ahead);
    }
    for at in 0..line.len() - 1 {
        sessions[at % 2].release(&line[at]).await?;
        sessions[(at + 1) % 2].turn(&line[at + 1]).await?;
        let rest: Vec<_> = line[at + 2..].iter().map(|claim| claim.id).collect();
        ensure!(one.waiters(&resource).await? == rest, "the line is out of order after {at}");
    }
    Ok(())
}

async fn a_reader_does_not_overtake_a_writer(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let resource = name("a");
    let first = Arc::new(context.claim(&resource, Mode::Shared));
    let writer = Arc::new(context.claim(&resource, Mode::Exclusive).family(Family::Rw));
    let second = Arc::new(context.claim(&resource, Mode::Shared));
    one.take(&first).await?;
    two.queue(&writer).await?;
    one.queue(&second).await?;
    two.turned_away(context.claim(&resource, Mode::Shared)).await?;
    ensure!(one.waiters(&resource).await? == [writer.id, second.id], "the reader overtook the writer");
    one.release(&first).await?;
    two.turn(&writer).await?;
    ensure!(one.waiters(&resource).await? == [second.id], "the reader came in beside the writer");
    two.release(&writer).await?;
    one.turn(&second).await?;
    Ok(())
}

async fn busy_says_who_holds_and_leaves_nothing(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let holder = Arc::new(context.alone(&name("a")));
    let grant = one.take(&holder).await?;
    let busy = two.turned_away(context.alone(&name("a"))).await?;
    ensure!(busy.holders.len() == 1, "one holds, but busy says {:?}", busy.holders);
    let shown = &busy.holders[0];
    ensure!(shown.claim == holder.id && shown.token == Some(grant.token), "busy names another: {shown:?}");
    ensure!(shown.owner == holder.owner, "busy names another owner: {:?}", shown.owner);
    ensure!(two.waiters(&holder.resource).await?.is_empty(), "it left a claim in the queue");
    one.release(&holder).await?;
    one.nothing_left().await
}

async fn asked_again_it_answers_the_same(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let (held, queued) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    let grant = one.take(&held).await?;
    let place = two.queue(&queued).await?;
    two.queue(&Arc::new(context.alone(&name("a")))).await?;
    for _ in 0..3 {
        let again = one.take(&held).await?;
        ensure!((again.token, again.slot) == (grant.token, grant.slot), "{again:?} is not {grant:?}");
        let again = two.queue(&queued).await?;
        ensure!(again.ahead == place.ahead, "the place moved from {} to {}", place.ahead, again.ahead);
    }
    let view = one.view(&held.resource).await?;
    ensure!((view.holders.len(), view.waiters.len()) == (1, 2), "asking again added claims: {view:?}");
    Ok(())
}

async fn a_token_floor_lifts_the_token(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let mut claim = context.alone(&name("a"));
    let first = session.take(&Arc::new(claim.clone())).await?.token;
    claim.token_floor = Token::new(first.get() + 1000);
    let lifted = session.take(&Arc::new(claim.clone())).await?.token;
    ensure!(Some(lifted) > claim.token_floor, "{lifted} is not above the floor");
    session.release(&Arc::new(claim)).await?;
    let mut next = context.alone(&name("a"));
    next.token_floor = Token::new(lifted.get() + 1000);
    let token = session.take(&Arc::new(next.clone())).await?.token;
    ensure!(Some(token) > next.token_floor, "a fresh grant ignored the floor");
    Ok(())
}

async fn validity_counts_from_before_the_request(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let (held, queued) =
        (Arc::new(context.alone_briefly(&name("a"))), Arc::new(context.alone_briefly(&name("a"))));
    let before = now();
    let granted = session.take(&held).await?.valid_until;
    let place = session.queue(&queued).await?.valid_until;
    let latest = now() + context.short();
    for until in [granted, place] {
        ensure!(until > before && until <= latest, "{until:?} is not within one TTL of the request");
    }
    Ok(())
}

async fn another_number_of_slots_is_a_conflict(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let resource = name("a");
    let first = Arc::new(context.claim(&resource, Mode::Slot { of: 37 }));
    one.take(&first).await?;
    let other = Arc::new(context.claim(&resource, Mode::Slot { of: 53 }));
    let Err(error) = two.claim(&other).await else {
        anyhow::bail!("53 slots were granted where 37 are in force")
    };
    ensure!(error.kind() == ErrorKind::Conflict, "it is {:?}, not a conflict", error.kind());
    let message = error.to_string();
    ensure!(message.contains("37") && message.contains("53"), "both numbers should be named: {message}");
    one.release(&first).await?;
    two.take(&other).await?;
    let none = Arc::new(context.claim(&name("b"), Mode::Slot { of: 0 }));
    ensure!(two.claim(&none).await.is_err(), "a resource without slots was granted");
    Ok(())
}

async fn asked_together_each_gets_its_own_answer(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let held = Arc::new(context.alone(&name("held")));
    two.take(&held).await?;
    let again = Arc::new(context.alone(&name("again")));
    let before = one.take(&again).await?;
    let free = ["a", "b", "c"].map(|free| Arc::new(context.alone(&name(free))));
    let waits = Arc::new(context.alone(&name("held")));
    let leaves = Arc::new(context.alone(&name("held")).no_wait());
    // No palindrome: an engine that answers backwards must not pass.
    let asked = [&leaves, &free[0], &waits, &again, &free[1], &free[2]].map(Arc::clone);
    let answers = one.claim_each(&asked).await.into_iter().collect::<palisade_core::Result<Vec<_>>>()?;
    let [
        Claimed::Busy(busy),
        Claimed::Granted(first),
        Claimed::Queued(_),
        Claimed::Granted(same),
        Claimed::Granted(_),
        Claimed::Granted(_),
    ] = &answers[..]
    else {
        anyhow::bail!("these are not the answers: {answers:?}")
    };
    let by = busy.holders.iter().map(|holder| holder.claim).collect::<Vec<_>>();
    ensure!(by == [held.id], "it is busy with {by:?}, not {:?}", held.id);
    ensure!(same.token == before.token, "asked again, its token is {:?}, not {:?}", same.token, before.token);
    ensure!(first.valid_until > now(), "it is over already");
    ensure!(one.claim_each(&[]).await.is_empty(), "nothing was asked");
    for claim in [&free[0], &free[1], &free[2], &again] {
        ensure!(two.holders(&claim.resource).await? == [claim.id], "{:?} is not held", claim.resource);
        one.release(claim).await?;
    }
    two.release(&held).await?;
    one.turn(&waits).await?;
    one.release(&waits).await?;
    two.nothing_left().await
}

async fn asked_together_one_fails_alone(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let three = |resource| Arc::new(context.claim(&name(resource), Mode::Slot { of: 3 }));
    let first = three("a");
    session.take(&first).await?;
    let other = Arc::new(context.claim(&name("a"), Mode::Slot { of: 5 }));
    let asked = [three("b"), other, three("c"), three("d")];
    let kinds: Vec<_> = session
        .claim_each(&asked)
        .await
        .iter()
        .map(|answer| match answer {
            Ok(Claimed::Granted(_)) => Ok(()),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(format!("{:?}", error.kind())),
        })
        .collect();
    let conflict = format!("{:?}", ErrorKind::Conflict);
    ensure!(kinds == [Ok(()), Err(conflict), Ok(()), Ok(())], "the answers are {kinds:?}");
    Ok(())
}
