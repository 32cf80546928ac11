//! Names that would mean something to SQL.

use anyhow::{Result, ensure};
use palisade::Condition;
use palisade_sql_trials::{client, postgres};

const HOSTILE: &[&str] = &[
    "'; DROP SCHEMA palisade CASCADE; --",
    "\"quoted\" $1 $$ $body$",
    "back\\slash %s %_ {schema} {a,b} NULL",
    "ORDERS",
    "orders",
    "ordérs",
    "orde\u{301}rs",
    " leading and trailing ",
    "🚲 \u{202e}right to left",
    "../../etc/passwd",
];

#[tokio::test]
async fn names_are_text_and_nothing_else() -> Result<()> {
    let server = postgres().await?;
    let one = client(&server.url()).await?;
    let two = client(&server.url()).await?;
    let longest = "x".repeat(palisade::Name::MAX_BYTES);
    let names: Vec<&str> = HOSTILE.iter().copied().chain([longest.as_str()]).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(one.mutex(name)?.acquire().await?);
        one.register(name)?.write((*name).to_owned(), Condition::always()).await?;
    }
    for name in &names {
        ensure!(two.mutex(name)?.try_acquire().await?.is_none(), "{name:?} is held by two");
        let read = two.register(name)?.read().await?;
        ensure!(read.value.as_deref() == Some(name.as_bytes()), "{name:?} holds {read:?}");
    }
    let namespace = "n'a\"m%20e";
    let other = client(&format!("{}?namespace={}", server.url(), namespace.replace('%', "%25"))).await?;
    ensure!(other.mutex(names[0])?.try_acquire().await?.is_some(), "namespaces share a lock");
    Ok(())
}
