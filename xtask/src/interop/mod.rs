//! Lets the lock clients of others contend with Palisade.

pub(crate) mod clients;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use self::clients::{CLIENTS, Prepared, curator, etcd_go, kazoo, shedlock};
use crate::newer;
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

const ETCD: &[Tool] = &[
    Tool { program: "etcd", packages: &["etcd-server"], why: "for clients to contend on" },
    Tool { program: "etcdctl", packages: &["etcd-client"], why: "to contend with" },
];

const ZOOKEEPER: &[Tool] = &[
    Tool { program: "java", packages: &["default-jdk-headless"], why: "to run ZooKeeper and Curator" },
    Tool {
        program: "/usr/share/java/zookeeper.jar",
        packages: &["zookeeper", "libslf4j-java", "libnetty-java"],
        why: "for clients to contend on",
    },
    Tool {
        program: "/usr/share/java/curator-recipes.jar",
        packages: &["libcurator-recipes-java"],
        why: "to contend with",
    },
];

const SQL: &[Tool] = &[
    Tool {
        program: "/usr/lib/postgresql/15/bin/postgres",
        packages: &["postgresql-15"],
        why: "for ShedLock to contend on",
    },
    Tool {
        program: "/usr/sbin/mariadbd",
        packages: &["mariadb-server-core", "mariadb-client-core"],
        why: "for ShedLock to contend on",
    },
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
    // As `cargo xtask test` does, examples included: with other features all that they depend on would be built again.
    steps.command("build our side", cargo(&["build", "--workspace", "--bins", "--examples"]));
    let mut driver = Command::new("target/debug/palisade-interop");
    driver.args(["run", "--palisade", "target/debug/palisade"]).args(args);
    for command in &commands {
        driver.args(["--client", command]);
    }
    steps.bounded("contend with each client", driver, LIMIT);
    on_etcd(&mut steps, &mut left_out);
    on_zookeeper(&mut steps, &mut left_out);
    on_sql(&mut steps, &mut left_out);
    let outcome = steps.finish();
    for client in &left_out {
        println!("LEFT OUT, and so not shown to exclude us: {client}");
    }
    outcome
}

/// Lets Go's own clients of etcd, and `etcdctl`, contend with Palisade there.
fn on_etcd(steps: &mut Steps, left_out: &mut Vec<String>) {
    let mut program = None;
    steps.take("prepare Go's clients of etcd", || {
        setup::need(ETCD)?;
        newer::fetch_etcd()?;
        match etcd_go().context("they could not be prepared")? {
            Prepared::Ready(command) => program = Some(command),
            Prepared::LeftOut(why) => left_out.push(format!("Go's clients of etcd: {why}")),
        }
        Ok(())
    });
    if let Some(program) = program {
        let mut contend = Command::new("target/debug/palisade-etcd-interop");
        contend.arg(program);
        steps.bounded("contend on etcd", contend, LIMIT);
    }
}

/// Lets Curator and kazoo contend with Palisade on ZooKeeper.
fn on_zookeeper(steps: &mut Steps, left_out: &mut Vec<String>) {
    let mut commands = Vec::new();
    steps.take("prepare Curator and kazoo", || {
        setup::need(ZOOKEEPER)?;
        for (name, prepared) in [("curator", curator()), ("kazoo", kazoo())] {
            match prepared.with_context(|| format!("{name} could not be prepared"))? {
                Prepared::Ready(command) => commands.push(format!("{name}={command}")),
                Prepared::LeftOut(why) => left_out.push(format!("{name}: {why}")),
            }
        }
        Ok(())
    });
    let mut contend = Command::new("target/debug/palisade-zookeeper-interop");
    contend.args(&commands);
    steps.bounded("contend on ZooKeeper", contend, LIMIT);
}

/// Lets ShedLock contend with Palisade on PostgreSQL and MariaDB.
fn on_sql(steps: &mut Steps, left_out: &mut Vec<String>) {
    let mut program = None;
    steps.take("prepare ShedLock", || {
        setup::need(SQL)?;
        match shedlock().context("it could not be prepared")? {
            Prepared::Ready(command) => program = Some(command),
            Prepared::LeftOut(why) => left_out.push(format!("ShedLock: {why}")),
        }
        Ok(())
    });
    if let Some(program) = program {
        let mut contend = Command::new("target/debug/palisade-sql-interop");
        contend.arg(program);
        steps.bounded("contend on PostgreSQL and MariaDB", contend, LIMIT);
    }
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
