use crate::args::{Get, Global};
use crate::connect::{connect, leave};
use crate::exit::{NO, OK, Outcome, complain};
use crate::output::{line, raw, register_json};

/// Prints a register's value: as it is, with a line break only if a person reads it.
pub(crate) async fn get(global: &Global, args: &Get) -> Outcome {
    let client = connect(global, None).await?;
    let entry = client.register(&args.key)?.read().await?;
    leave(client).await;
    match &entry.value {
        _ if args.format.json => line(register_json(&args.key, &entry))?,
        Some(value) => print(value)?,
        None => complain(&format!("{}: there is no value", args.key)),
    }
    Ok(if entry.value.is_some() { OK } else { NO })
}

fn print(value: &[u8]) -> Outcome<()> {
    use std::io::IsTerminal;
    raw(value)?;
    if std::io::stdout().is_terminal() && !value.ends_with(b"\n") {
        raw(b"\n")?;
    }
    Ok(())
}
