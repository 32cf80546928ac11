use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::steps::cargo;
use crate::{newer, valkey};

/// A program that the tests need, and the Debian packages that bring it.
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) packages: &'static [&'static str],
    pub(crate) why: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool {
        program: "cc",
        packages: &["gcc", "libc6-dev"],
        why: "to build SQLite, and the library that shifts clocks",
    },
    Tool { program: "redis-server", packages: &["redis-server"], why: "the engine of tests on real servers" },
    Tool { program: "redis-cli", packages: &["redis-tools"], why: "to compare the command's speed with" },
    Tool { program: "etcd", packages: &["etcd-server"], why: "the engine of tests on real servers" },
    Tool { program: "etcdctl", packages: &["etcd-client"], why: "another client of the same locks" },
    Tool { program: "java", packages: &["default-jre-headless"], why: "to run ZooKeeper" },
    Tool {
        program: "/usr/share/java/zookeeper.jar",
        packages: &["zookeeper", "libslf4j-java", "libnetty-java"],
        why: "the engine of tests on real servers",
    },
    Tool {
        program: "/usr/lib/postgresql/15/bin/postgres",
        packages: &["postgresql-15"],
        why: "the engine of tests on real servers",
    },
    Tool { program: "/usr/sbin/pgbouncer", packages: &["pgbouncer"], why: "a pooler in front of PostgreSQL" },
    Tool {
        program: "/usr/sbin/mariadbd",
        packages: &["mariadb-server-core", "mariadb-client-core"],
        why: "the engine of tests on real servers",
    },
    Tool { program: "setpriv", packages: &["util-linux"], why: "to have servers end with the tests" },
    Tool { program: "flock", packages: &["util-linux"], why: "to hold file locks from outside in tests" },
];

/// Parts of the Rust toolchain that a minimal install leaves out.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Installs what is missing, and says so.
pub(crate) fn run() -> Result<()> {
    need(TOOLS)?;
    valkey::fetch()?;
    newer::fetch_all()?;
    components()
}

/// Installs those of `tools` that are missing.
pub(crate) fn need(tools: &[Tool]) -> Result<()> {
    for tool in tools {
        if !is_on_path(tool.program) {
            install(tool)?;
        }
    }
    Ok(())
}

/// Adds the parts of the Rust toolchain that linting needs.
pub(crate) fn components() -> Result<()> {
    for (subcommand, component) in COMPONENTS {
        let there = cargo(&[subcommand, "--version"]).output().is_ok_and(|output| output.status.success());
        if !there {
            println!("missing: the Rust component {component}; installing it");
            let status = Command::new("rustup").args(["component", "add", component]).status();
            let added = status.with_context(|| format!("rustup is missing too: install {component}"))?;
            ensure!(added.success(), "rustup could not add {component}");
        }
    }
    Ok(())
}

/// Installs packages without starting the services they bring: tests start servers of their own.
const INSTALL: &str = r#"
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" || exit
    trap 'rm -f "$policy"' EXIT
fi
apt-get update && apt-get install --yes --no-install-recommends "$@"
"#;

/// Installs the packages of `tool`.
pub(crate) fn install(tool: &Tool) -> Result<()> {
    let Tool { program, packages, why } = tool;
    let names = packages.join(" ");
    println!("missing: {program}, {why}; installing {names}");
    if !is_on_path("apt-get") {
        bail!("{program} is missing ({why}) and there is no apt-get: install it by hand");
    }
    let mut command = Command::new("sh");
    command.args(["-c", INSTALL, "sh"]).args(*packages).env("DEBIAN_FRONTEND", "noninteractive");
    ensure!(command.status()?.success(), "{program} is missing ({why}); as root: apt-get install {names}");
    ensure!(is_on_path(program), "{names} was installed, but there is still no {program}");
    Ok(())
}

/// Whether there is such a program.
pub(crate) fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}
