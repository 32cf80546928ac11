//! Two names never meet, whatever is written in them.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, ensure};
use palisade_core::{Condition, ErrorKind, Evicted, Name, Selector};

use crate::case::cases;
use crate::context::{bounded, name};
use crate::{Context, Session};

cases! { "names" {
    hostile_names_stay_apart [] "Two names never share a claim; one namespace never sees another."
    hostile_registers_stay_apart [Registers] "Two names never share a claim; one namespace never sees another."
    namespaces_stay_apart [] "Two names never share a claim; one namespace never sees another."
    namespaces_do_not_run_into_names [] "Two names never share a claim; one namespace never sees another."
    registers_of_namespaces_stay_apart [Registers] "one namespace never sees another."
} }

/// Texts that careless engines take for the same, or for more than text.
#[rustfmt::skip] // One a line would hide that they come in pairs.
const HOSTILE: &[&str] = &[
    "a", "A", "a ", " a", "a/b", "a//b", "a/./b", "a/../b", "../a", "..", ".", "/", "/a", "a/",
    "a:b", "a|b", "a.b", "a-b", "a_b", "a%b", "a%2Fb", "a%2fb", "%61", "a*", "a?", "[a]", "{a}",
    "a{b}c", "'a'", "\"a\"", "`a`", "a\\b", "a\\\\b", "'; DROP TABLE claim; --", "$(reboot)",
    "${a}", "a&b", "a=b", "a#b", "a+b", "a@b", "é", "e\u{301}", "E\u{301}", "ﬁ", "fi", "ß", "ss",
    "SS", "İ", "i̇", "ı", "🦀", "🦀🦀", "👩‍🚀", "\u{feff}a", "a\u{200b}", "\u{202e}a", "\u{a0}a", "Ａ",
    "null", "NULL", "0", "00", "0.0", "-1", "true", "__proto__", "con", "a\u{fffd}",
];

fn hostile() -> Vec<Name> {
    let long = "x".repeat(Name::MAX_BYTES - 1);
    let mut names: Vec<Name> = HOSTILE.iter().map(|text| name(text)).collect();
    names.extend([name(&format!("{long}1")), name(&format!("{long}2")), name(&long)]);
    names.push(Name::internal("once", &name("a")));
    names.push(Name::internal("latch", &name("a")));
    names
}

async fn hostile_names_stay_apart(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    let claims: Vec<_> = hostile().iter().map(|name| Arc::new(context.alone(name))).collect();
    for claim in &claims {
        one.take(claim).await?;
    }
    for claim in &claims {
        ensure!(two.holders(&claim.resource).await? == [claim.id], "{:?} is held by another", claim.resource);
    }
    let seen: BTreeSet<_> = two.everything().await?.resources.into_iter().map(|view| view.resource).collect();
    ensure!(seen == hostile().into_iter().collect(), "the names came back changed: {seen:?}");
    one.withdraw(&claims).await?;
    one.nothing_left().await
}

async fn hostile_registers_stay_apart(context: Context) -> Result<()> {
    let (one, two) = context.connect_two().await?;
    for register in hostile() {
        one.put(&register, register.as_str(), &Condition::always().absent()).await?;
    }
    for register in hostile() {
        let entry = two.entry(&register).await?;
        ensure!(entry.value.as_deref() == Some(register.as_str().as_bytes()), "{register:?} holds {entry:?}");
    }
    Ok(())
}

async fn namespaces_stay_apart(context: Context) -> Result<()> {
    let here = context.connect().await?;
    let there = context.connect_to(&format!("{}x", context.namespace)).await?;
    let (mine, yours) = (Arc::new(context.alone(&name("a"))), Arc::new(context.alone(&name("a"))));
    here.take(&mine).await?;
    there.nothing_left().await?;
    there.take(&yours).await?;
    for (session, claim) in [(&here, &mine), (&there, &yours)] {
        let seen = session.everything().await?.resources;
        ensure!(seen.len() == 1 && seen[0].holders[0].claim == claim.id, "it sees {seen:?}");
    }
    if context.profile.evict {
        let evicted = there.evict(&mine.resource, mine.id, "not yours").await?;
        ensure!(evicted == Evicted::NotFound, "another namespace's claim was evicted");
    }
    there.give_back(&mine).await?;
    ensure!(here.holders(&mine.resource).await? == [mine.id], "another namespace freed it");
    Ok(())
}

async fn namespaces_do_not_run_into_names(context: Context) -> Result<()> {
    let base = &context.namespace;
    let outer = context.connect().await?;
    for glue in ["/", ":", "-", ".", "|"] {
        let inner = match context.fixture.connect(&format!("{base}{glue}b")).await {
            Ok(engine) => Session::new(engine, context.patience()),
            // An engine may refuse such a namespace; then nothing can run into it.
            Err(error) if error.kind() == ErrorKind::Invalid => continue,
            Err(error) => return Err(error.into()),
        };
        outer.take(&Arc::new(context.alone(&name(&format!("b{glue}c"))))).await?;
        inner.take(&Arc::new(context.alone(&name("c")))).await?;
    }
    Ok(())
}

async fn registers_of_namespaces_stay_apart(context: Context) -> Result<()> {
    let here = context.connect().await?;
    let there = context.connect_to(&format!("{}x", context.namespace)).await?;
    here.put(&name("a"), "mine", &Condition::always()).await?;
    let entry = there.entry(&name("a")).await?;
    ensure!(entry.value.is_none() && entry.version.get() == 0, "it sees {entry:?}");
    let mut events = there.watch(&Selector::everything("")).await?;
    there.put(&name("b"), "yours", &Condition::always()).await?;
    let first = bounded(context.patience(), "watch", futures::StreamExt::next(&mut events)).await?;
    let text = format!("{first:?}");
    ensure!(!text.contains("mine"), "its watch sees another namespace: {text}");
    Ok(())
}
