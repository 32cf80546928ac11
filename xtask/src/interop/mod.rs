//! Lets the lock clients of others contend with Palisade.

mod clients;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::clients::{CLIENTS, Prepared};
use crate::setup::{self, Tool};
use crate::steps::{Steps, cargo};

/// Far above what all pairings take.
const LIMIT: Duration = Duration::from_mins(15);

/// What CI must have. Go and Java are used where they are installed.
const TOOLS: &[Tool] = &[
    Tool { program: "redis-server", packages: &["redis-server"], why: "for clients to contend on" },
    PYTHON,
    Tool { program: "node", packages: &["nodejs"], why: "to run node-redlock" },
    Tool { program: "npm", packages: &["npm"], why: "to fetch node-redlock" },
];

const PYTHON: Tool =
    Tool { program: "python3", packages: &["python3", "python3-venv"], why: "to run redis-py" };

/// Debian's Python has the module for environments, but not what fills them, unless it is asked for.
fn python_can_make_environments() -> bool {
    let import = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    import.is_ok_and(|output| output.status.success())
}

/// Prepares each client, then runs every pairing. `args` go to `palisade-interop run`.
pub(crate) fn run(args: &[String]) -> Result<()> {
    setup::need(TOOLS)?;
    if !python_can_make_environments() {
        setup::install(&PYTHON)?;
    }
    let mut steps = Steps::default();
    let mut commands = Vec::new();
    let mut left_out = Vec::new();
    for client in CLIENTS {
        steps.take(format!("prepare {}", client.names.join(" and ")), || {
            match (client.prepare)().context("it could not be prepared")? {
                Prepared::Ready(command) => commands.extend(client.started_by(&command)),
                Prepared::LeftOut(why) => {
                    println!("LEFT OUT: {}: {why}", client.names.join(" and "));
                    left_out.push(format!("{}: {why}", client.names.join(" and ")));
                }
            }
            Ok(())
        });
    }
    steps.command(
        "build our side",
        cargo(&["build", "--package", "palisade-interop", "--package", "palisade-cli", "--bins"]),
    );
    let mut driver = Command::new("target/debug/palisade-interop");
    driver.args(["run", "--palisade", "target/debug/palisade"]).args(args);
    for command in &commands {
        driver.args(["--client", command]);
    }
    steps.bounded("contend with each client", driver, LIMIT);
    let outcome = steps.finish();
    for client in &left_out {
        println!("LEFT OUT, and so not shown to exclude us: {client}");
    }
    outcome
}

/// Runs a command that must succeed.
fn must(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("{shown} could not be started"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}
