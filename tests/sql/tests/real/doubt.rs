//! Claims that come late, and tokens that begin high.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use palisade_core::{Claim, Claimed, ErrorKind, Mode, Name, Owner, Token, Ttl, Withdrawn};
use palisade_sql_trials::{client, postgres};

fn claim() -> Result<Claim> {
    Ok(Claim::new(Name::new("orders")?, Mode::Exclusive, Ttl::default(), Arc::new(Owner::this_process())))
}

/// A copy of a claim may be on its way still when the claim is withdrawn; here it is sent by somebody else.
#[tokio::test]
async fn a_claim_asked_for_again_does_not_come_in_after_its_withdrawal() -> Result<()> {
    let server = postgres().await?;
    let (one, late) = (client(&server.url()).await?, client(&server.url()).await?);
    let asked = Arc::new(claim()?);
    for _ in 0..2 {
        ensure!(matches!(one.engine().claim(&asked).await?, Claimed::Granted(_)));
    }
    ensure!(one.engine().withdraw(std::slice::from_ref(&asked)).await? == [Withdrawn::Released]);
    let error = late.engine().claim(&asked).await.err().context("it came in")?;
    ensure!(error.kind() == ErrorKind::Lost, "{error:?}");
    // One that nobody waited for, and that was never seen.
    let dropped = Arc::new(claim()?);
    let engine = Arc::clone(one.engine());
    let asking = tokio::spawn({
        let dropped = Arc::clone(&dropped);
        async move { engine.claim(&dropped).await }
    });
    asking.abort();
    let _ = asking.await;
    one.engine().withdraw(std::slice::from_ref(&dropped)).await?;
    let error = late.engine().claim(&dropped).await.err().context("it came in")?;
    ensure!(error.kind() == ErrorKind::Lost, "{error:?}");
    ensure!(server.psql("SELECT count(*) FROM palisade.claim").await?.trim() == "0", "something came in");
    Ok(())
}

#[tokio::test]
async fn a_token_floor_has_an_end_and_lifts_all_that_follow() -> Result<()> {
    const HIGHEST: u64 = 1 << 62;
    let server = postgres().await?;
    let one = client(&server.url()).await?;
    let above = |floor: u64| -> Result<Arc<Claim>> {
        let mut claim = claim()?;
        claim.token_floor = Some(Token::new(floor).context("a token")?);
        Ok(Arc::new(claim))
    };
    for floor in [HIGHEST + 1, i64::MAX as u64] {
        let error = one.engine().claim(&above(floor)?).await.err().context("it was believed")?;
        ensure!(error.kind() == ErrorKind::Invalid, "{error:?}");
    }
    ensure!(server.psql("SELECT count(*) FROM palisade.claim").await?.trim() == "0", "it came in");
    let high = above(HIGHEST)?;
    let Claimed::Granted(grant) = one.engine().claim(&high).await? else { anyhow::bail!("it is free") };
    ensure!(grant.token.get() > HIGHEST, "{:?}", grant.token);
    one.engine().withdraw(&[high]).await?;
    let Claimed::Granted(next) = one.engine().claim(&Arc::new(claim()?)).await? else {
        anyhow::bail!("it is free")
    };
    ensure!(next.token > grant.token, "the token fell");
    Ok(())
}
