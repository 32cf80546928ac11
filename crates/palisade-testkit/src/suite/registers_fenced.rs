//! Fences: what a register makes of tokens.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use palisade_core::{
    Condition, Entry, ErrorKind, FencingToken, Mode, Raise, Reading, Refusal, RefusalReason, Source, Token,
    TokenKind, Written,
};

use crate::case::cases;
use crate::context::name;
use crate::{Context, Session};

cases! { "fences" {
    a_stale_token_is_refused [Registers] "A token passes if no later one has been seen"
    equal_tokens_pass_unless_strict [Registers] "equal ones pass unless the condition is strict"
    shared_tokens_fence_older_writers_only [Registers] "shared tokens fence nobody but older writers"
    slots_are_fenced_apart [Registers] "each slot has a fence of its own."
    a_slot_and_the_whole_fence_each_other [Registers] "Who held a slot and who held the whole resource fence each other."
    raising_shuts_older_tokens_out [Registers] "Raising refuses every older token from then on, and is refused itself if it is older."
    sources_do_not_compare [Registers] "A token of another source is an error that names both, until the fence is rebased."
    a_zombie_cannot_write_after_a_delete [Registers] "Keeps version and fence: a zombie cannot write after a delete either."
    a_refused_write_does_not_raise_the_fence [Registers] "A refused write has no effect and returns what is there."
}
each_way {
    an_expired_holder_is_fenced_off [Registers] "A token passes if no later one has been seen"
} }

/// Tokens as grants of this engine would have them.
struct Mint(Source);

impl Mint {
    fn token(&self, number: u64, kind: TokenKind, slot: Option<u32>) -> FencingToken {
        let token = Token::new(number).expect("the suite's tokens lie in range");
        FencingToken { token, kind, slot, source: self.0.clone() }
    }

    fn writer(&self, number: u64) -> Condition {
        Condition::always().token(self.token(number, TokenKind::Exclusive, None))
    }

    fn reader(&self, number: u64) -> Condition {
        Condition::always().token(self.token(number, TokenKind::Shared, None))
    }

    fn slot(&self, number: u64, slot: u32) -> Condition {
        Condition::always().token(self.token(number, TokenKind::Exclusive, Some(slot)))
    }
}

async fn set_up(context: &Context) -> Result<(Session, Session, Mint)> {
    let (one, two) = context.connect_two().await?;
    let mint = Mint(one.source());
    Ok((one, two, mint))
}

fn is_stale(refusal: &Refusal, current: u64) -> Result<()> {
    let expected = Token::new(current).map(|current| RefusalReason::StaleToken { current });
    ensure!(Some(&refusal.reason) == expected.as_ref(), "the reason is {:?}", refusal.reason);
    Ok(())
}

async fn a_stale_token_is_refused(context: Context) -> Result<()> {
    let (one, two, mint) = set_up(&context).await?;
    let register = name("a");
    one.put(&register, "33", &mint.writer(33)).await?;
    two.put(&register, "34", &mint.writer(34)).await?;
    let refusal = one.refused(&register, "33 again", &mint.writer(33)).await?;
    is_stale(&refusal, 34)?;
    ensure!(refusal.current.value.as_deref() == Some(b"34"), "it says {:?} is there", refusal.current);
    ensure!(refusal.current.fence.mark(None) == Token::new(34), "the fence is {:?}", refusal.current.fence);
    // Near the end of the range, where a float or a signed column would round.
    two.put(&register, "max", &mint.writer(Token::MAX - 1)).await?;
    one.refused(&register, "late", &mint.writer(Token::MAX - 2)).await?;
    one.put(&register, "last", &mint.writer(Token::MAX)).await?;
    Ok(())
}

async fn equal_tokens_pass_unless_strict(context: Context) -> Result<()> {
    let (one, _, mint) = set_up(&context).await?;
    let register = name("a");
    one.put(&register, "first", &mint.writer(7)).await?;
    one.put(&register, "again", &mint.writer(7)).await?;
    let refusal = one.refused(&register, "strict", &mint.writer(7).strict()).await?;
    let spent = RefusalReason::SpentToken { current: Token::new(7).expect("in range") };
    ensure!(refusal.reason == spent, "the reason is {:?}", refusal.reason);
    one.put(&register, "next", &mint.writer(8).strict()).await?;
    // Opening spends nothing: the one write of this token is still to come.
    raised(&one, 9, &mint).await?;
    one.put(&register, "opened", &mint.writer(9).strict()).await?;
    Ok(())
}

async fn shared_tokens_fence_older_writers_only(context: Context) -> Result<()> {
    let (one, two, mint) = set_up(&context).await?;
    let register = name("a");
    one.put(&register, "7", &mint.reader(7)).await?;
    two.put(&register, "5", &mint.reader(5)).await?;
    is_stale(&two.refused(&register, "6", &mint.writer(6)).await?, 7)?;
    one.put(&register, "8", &mint.writer(8)).await?;
    is_stale(&two.refused(&register, "7 again", &mint.reader(7)).await?, 8)?;
    // A downgraded writer keeps its token and goes on as a reader.
    one.put(&register, "8 again", &mint.reader(8)).await?;
    Ok(())
}

async fn slots_are_fenced_apart(context: Context) -> Result<()> {
    let (one, two, mint) = set_up(&context).await?;
    let register = name("a");
    one.put(&register, "slot 1", &mint.slot(9, 1)).await?;
    two.put(&register, "slot 0", &mint.slot(5, 0)).await?;
    is_stale(&two.refused(&register, "late", &mint.slot(8, 1)).await?, 9)?;
    one.put(&register, "slot 1 again", &mint.slot(9, 1)).await?;
    Ok(())
}

async fn a_slot_and_the_whole_fence_each_other(context: Context) -> Result<()> {
    let (one, two, mint) = set_up(&context).await?;
    let register = name("a");
    one.put(&register, "slot", &mint.slot(5, 0)).await?;
    is_stale(&two.refused(&register, "older whole", &mint.writer(4)).await?, 5)?;
    two.put(&register, "whole", &mint.writer(7)).await?;
    is_stale(&one.refused(&register, "zombie slot", &mint.slot(5, 0)).await?, 7)?;
    is_stale(&one.refused(&register, "another slot", &mint.slot(6, 1)).await?, 7)?;
    one.put(&register, "new slot", &mint.slot(8, 1)).await?;
    Ok(())
}

async fn raise(session: &Session, raise: Raise) -> Result<Reading> {
    Ok(session.read(&name("a"), Some(&raise)).await?)
}

async fn raised(session: &Session, number: u64, mint: &Mint) -> Result<Entry> {
    let token = mint.token(number, TokenKind::Exclusive, None);
    match raise(session, Raise { token, rebase: false }).await? {
        Reading::Fresh(entry) => Ok(entry),
        Reading::Refused(refusal) => bail!("raising to {number} was refused: {refusal:?}"),
    }
}

async fn raising_shuts_older_tokens_out(context: Context) -> Result<()> {
    let (one, two, mint) = set_up(&context).await?;
    let register = name("a");
    // On a register that does not exist yet: the late first write of a zombie.
    let opened = raised(&one, 34, &mint).await?;
    ensure!(opened.value.is_none() && opened.version.get() == 0, "raising wrote something: {opened:?}");
    is_stale(&two.refused(&register, "33", &mint.writer(33)).await?, 34)?;
    one.put(&register, "34", &mint.writer(34)).await?;
    raised(&one, 34, &mint).await?;
    let token = mint.token(33, TokenKind::Exclusive, None);
    match raise(&two, Raise { token, rebase: false }).await? {
        Reading::Refused(refusal) => is_stale(&refusal, 34),
        Reading::Fresh(_) => bail!("an older token raised the fence"),
    }
}

async fn sources_do_not_compare(context: Context) -> Result<()> {
    let (one, _, mint) = set_up(&context).await?;
    let (register, moved) = (name("a"), Mint(Source::new("another-engine")));
    one.put(&register, "here", &mint.writer(1_800_000_000_000)).await?;
    let token = moved.token(4000, TokenKind::Exclusive, None);
    let Err(error) = one.write(&register, "there".into(), &moved.writer(4000), None).await else {
        bail!("tokens of two sources were compared");
    };
    ensure!(error.kind() == ErrorKind::SourceMismatch, "it is {:?}", error.kind());
    let message = error.to_string();
    for source in ["another-engine", one.source().as_str()] {
        ensure!(message.contains(source), "{source} is not named: {message}");
    }
    let plain = raise(&one, Raise { token: token.clone(), rebase: false }).await;
    ensure!(plain.is_err(), "raising compared tokens of two sources");
    raise(&one, Raise { token, rebase: true }).await?;
    one.put(&register, "there", &moved.writer(4000)).await?;
    ensure!(
        one.write(&register, "back".into(), &mint.writer(9), None).await.is_err(),
        "the old source passes"
    );
    Ok(())
}

async fn a_zombie_cannot_write_after_a_delete(context: Context) -> Result<()> {
    let (one, two, mint) = set_up(&context).await?;
    let register = name("a");
    one.put(&register, "33", &mint.writer(33)).await?;
    two.put(&register, "34", &mint.writer(34)).await?;
    let stale = one.delete(&register, &mint.writer(33)).await?;
    ensure!(matches!(stale, Written::Refused(_)), "a stale delete says {stale:?}");
    two.delete(&register, &mint.writer(34)).await?;
    is_stale(&one.refused(&register, "late", &mint.writer(33)).await?, 34)?;
    // A delete of what is not there raises the fence all the same: its holder has been here.
    two.delete(&register, &mint.writer(35)).await?;
    is_stale(&one.refused(&register, "late", &mint.writer(34)).await?, 35)
}

async fn a_refused_write_does_not_raise_the_fence(context: Context) -> Result<()> {
    let (one, two, mint) = set_up(&context).await?;
    let register = name("a");
    one.put(&register, "5", &mint.writer(5)).await?;
    let refusal = two.refused(&register, "9", &mint.writer(9).absent()).await?;
    ensure!(refusal.reason == RefusalReason::Exists, "the reason is {:?}", refusal.reason);
    one.put(&register, "5 again", &mint.writer(5)).await?;
    Ok(())
}

async fn an_expired_holder_is_fenced_off(context: Context) -> Result<()> {
    let (one, two, _) = set_up(&context).await?;
    let (zombie, next) =
        (Arc::new(context.alone_briefly(&name("lock"))), Arc::new(context.alone(&name("lock"))));
    let first = one.take(&zombie).await?;
    let old = Condition::always().token(one.fencing(&zombie, &first));
    one.put(&name("a"), "by the first", &old).await?;
    two.queue(&next).await?;
    let second = two.turn_within(&next, context.until_expired()).await?;
    let new = two.fencing(&next, &second);
    ensure!(new.slot == (next.mode == Mode::Slot { of: 1 }).then_some(0), "the slot is {:?}", new.slot);
    two.read(&name("a"), Some(&Raise { token: new, rebase: false })).await?;
    one.refused(&name("a"), "by the zombie", &old).await?;
    ensure!(two.entry(&name("a")).await?.value.as_deref() == Some(b"by the first"), "the zombie wrote");
    Ok(())
}
