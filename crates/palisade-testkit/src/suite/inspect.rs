//! What is shown of the resources.

use std::sync::Arc;

use anyhow::{Result, ensure};
use palisade_core::{Name, Page, Selector};

use crate::case::cases;
use crate::context::{eventually, name};
use crate::{Context, Session};

cases! { "inspect" {
    pages_lead_on [] "Only resources that are claimed, by name, at most [`Page::limit`]; `next` leads on."
    selectors_pick_names [] "Only resources that are claimed, by name"
    expired_claims_are_not_shown [] "A claim that is past its TTL is not shown."
}
each_way {
    holders_and_waiters_are_shown [Fifo] "Holders carry their token; waiters come in the order in which they will be served."
} }

async fn names_of(session: &Session, selector: &Selector, page: &Page) -> Result<(Vec<Name>, Option<Name>)> {
    let seen = session.inspect(selector, page).await?;
    ensure!(seen.resources.len() <= page.limit, "{} of at most {} came", seen.resources.len(), page.limit);
    Ok((seen.resources.into_iter().map(|view| view.resource).collect(), seen.next))
}

async fn pages_lead_on(context: Context) -> Result<()> {
    let session = context.connect().await?;
    let mut expected: Vec<Name> = (0..25).map(|at| name(&format!("{}é{at}", at % 3))).collect();
    for resource in &expected {
        session.take(&Arc::new(context.alone(resource))).await?;
    }
    let free = Arc::new(context.alone(&name("1 free again")));
    session.take(&free).await?;
    session.release(&free).await?;
    expected.sort();
    for limit in [1, 7, 25, 100] {
        let (mut seen, mut page) = (Vec::new(), Page { after: None, limit });
        // Bounded, for an engine whose pages lead in a circle.
        for _ in 0..=25 {
            let (names, next) = names_of(&session, &Selector::resources(""), &page).await?;
            seen.extend(names);
            page.after = next;
            if page.after.is_none() {
                break;
            }
        }
        ensure!(seen == expected, "pages of {limit} show {seen:?}");
    }
    Ok(())
}

async fn selectors_pick_names(context: Context) -> Result<()> {
    let session = context.connect().await?;
    for text in ["a", "ab", "a%", "a_c", "abc", "b", "A"] {
        session.take(&Arc::new(context.alone(&name(text)))).await?;
    }
    let picks: [(&str, &[&str]); 5] = [
        ("a", &["a", "a%", "a_c", "ab", "abc"]),
        ("ab", &["ab", "abc"]),
        ("a%", &["a%"]),
        ("a_", &["a_c"]),
        ("x", &[]),
    ];
    for (prefix, expected) in picks {
        let (seen, _) = names_of(&session, &Selector::resources(prefix), &Page::default()).await?;
        let expected: Vec<Name> = expected.iter().map(|text| name(text)).collect();
        ensure!(seen == expected, "the prefix {prefix:?} shows {seen:?}");
    }
    let (seen, _) = names_of(&session, &Selector::resource(name("a")), &Page::default()).await?;
    ensure!(seen == [name("a")], "the exact name shows {seen:?}");
    let registers = names_of(&session, &Selector::register(name("a")), &Page::default()).await;
    ensure!(registers.is_ok(), "asking for registers alone is an error");
    Ok(())
}

async fn holders_and_waiters_are_shown(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let line: Vec<_> =
        (0..4).map(|at| Arc::new(context.alone(&name("a")).value(format!("number {at}")))).collect();
    let grant = one.take(&line[0]).await?;
    for claim in &line[1..] {
        two.queue(claim).await?;
    }
    let view = two.view(&name("a")).await?;
    ensure!(view.holders.len() == 1, "one holds, {} are shown", view.holders.len());
    let holder = &view.holders[0];
    ensure!(
        (holder.token, holder.slot) == (Some(grant.token), grant.slot),
        "the grant is shown as {holder:?}"
    );
    ensure!(holder.owner == line[0].owner && holder.value == line[0].value, "shown as {holder:?}");
    ensure!((holder.mode, holder.family) == (line[0].mode, line[0].family), "shown as {holder:?}");
    let waiters: Vec<_> = view.waiters.iter().map(|waiter| waiter.claim).collect();
    let expected: Vec<_> = line[1..].iter().map(|claim| claim.id).collect();
    ensure!(waiters == expected, "the line is shown as {waiters:?}");
    ensure!(view.waiters.iter().all(|waiter| waiter.token.is_none()), "a waiter is shown with a token");
    Ok(())
}

async fn expired_claims_are_not_shown(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let held = Arc::new(context.alone(&name("a")));
    one.take(&held).await?;
    two.queue(&Arc::new(context.alone_briefly(&name("a")))).await?;
    two.take(&Arc::new(context.alone_briefly(&name("b")))).await?;
    eventually(context.until_expired(), "expiry", || async {
        let seen = one.everything().await?.resources;
        Ok((seen.len() == 1 && seen[0].waiters.is_empty()).then_some(()))
    })
    .await
}
