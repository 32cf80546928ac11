use std::io::Read;
use std::os::unix::ffi::OsStringExt;

use palisade::{Client, Condition, FencingToken, Mode, Token, Written};

use crate::args::{Global, Put};
use crate::connect::{connect, leave};
use crate::exit::{Failure, NO, OK, Outcome, complain};
use crate::output::{line, register_json, value as shown};

/// Writes a register.
pub(crate) async fn put(global: &Global, args: Put) -> Outcome {
    let value = if args.value == "-" { read_stdin()? } else { args.value.into_vec() };
    let client = connect(global, None).await?;
    let register = client.register(&args.key)?;
    let mut condition = Condition::always();
    if args.absent {
        condition = condition.absent();
    }
    if let Some(version) = args.version {
        condition = condition.version(version);
    }
    if let Some(token) = args.fence {
        let token = fencing_token(&client, token, args.fence_slot);
        if args.rebase {
            register.rebase_to(token.clone()).await.map_err(palisade::Error::from)?;
        }
        condition = condition.token(token);
    }
    let written = match args.expires {
        None => register.write(value, condition).await?,
        Some(expires) => register.write_expiring(value, condition, expires).await?,
    };
    leave(client).await;
    report(&args.key, args.format.json, &written)
}

/// As much as any register holds, and one byte more for the engine to refuse.
fn read_stdin() -> Outcome<Vec<u8>> {
    const LIMIT: u64 = (1 << 20) + 1;
    let mut value = Vec::new();
    std::io::stdin()
        .take(LIMIT)
        .read_to_end(&mut value)
        .map_err(|problem| Failure::usage(format!("cannot read standard input: {problem}")))?;
    Ok(value)
}

/// A token that a command under this engine's lock was given.
pub(super) fn fencing_token(client: &Client, token: Token, slot: Option<u32>) -> FencingToken {
    FencingToken::of_grant(token, Mode::Exclusive, slot, client.engine().source())
}

/// Prints what became of a write: the new version, or what is there instead.
pub(super) fn report(key: &str, json: bool, written: &Written) -> Outcome {
    match written {
        Written::Done(version) => {
            if json {
                line(serde_json::json!({"key": key, "version": version.to_string()}))?;
            }
            Ok(OK)
        }
        Written::Refused(refusal) => {
            complain(&format!("{key}: refused: {}", refusal.reason));
            let current = &refusal.current;
            if json {
                line(register_json(key, current))?;
            } else if let Some(value) = &current.value {
                complain(&format!("there is version {}: {}", current.version, shown(value)));
            } else {
                complain(&format!("there is no value; the version is {}", current.version));
            }
            Ok(NO)
        }
    }
}
