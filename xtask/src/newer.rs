//! Servers that are newer than those of Debian's stable release, to run on both.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::setup::{Tool, need};

/// A server that a later Debian brings.
struct Server {
    name: &'static str,
    /// What says where one is, if one is there already.
    variable: &'static str,
    why: &'static str,
    suite: &'static str,
    packages: &'static [&'static str],
    kind: Kind,
    /// What is there once it is unpacked.
    file: &'static str,
}

/// What else a server needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing that the machine does not have.
    Alone,
    /// All that its packages depend on, down to the C library, which these programs then use.
    WithLibraries { programs: &'static [&'static str] },
}

/// Below the build's folder, where tests look for them.
const FOLDER: &str = "target/servers";

const SERVERS: &[Server] = &[
    Server {
        name: "etcd",
        variable: "PALISADE_ETCD",
        why: "3.4 may end locks before their time, so that not all can be shown on it",
        suite: "trixie",
        packages: &["etcd-server", "etcd-client"],
        kind: Kind::Alone,
        file: "usr/bin/etcd",
    },
    Server {
        name: "zookeeper",
        variable: "PALISADE_ZOOKEEPER",
        why: "3.8 may forget what was agreed upon when servers are started again (ZOOKEEPER-4785; 3.9.3 by ZOOKEEPER-4925)",
        suite: "forky",
        packages: &["libzookeeper-java"],
        kind: Kind::Alone,
        file: "usr/share/java/zookeeper.jar",
    },
    Server {
        name: "postgres",
        variable: "PALISADE_POSTGRES",
        why: "the suite runs on two versions",
        suite: "forky",
        packages: &["postgresql-18"],
        kind: Kind::WithLibraries {
            programs: &[
                "usr/lib/postgresql/18/bin/postgres",
                "usr/lib/postgresql/18/bin/initdb",
                "usr/lib/postgresql/18/bin/pg_basebackup",
                "usr/lib/postgresql/18/bin/psql",
            ],
        },
        file: "usr/lib/postgresql/18/bin/postgres",
    },
    Server {
        name: "mysql",
        variable: "PALISADE_MYSQL",
        why: "Debian's stable release has MariaDB only",
        suite: "sid",
        packages: &["mysql-server-core"],
        kind: Kind::WithLibraries { programs: &["usr/sbin/mysqld"] },
        file: "usr/sbin/mysqld",
    },
];

const PATCHELF: Tool =
    Tool { program: "patchelf", packages: &["patchelf"], why: "to run programs of a later Debian" };

/// Fetches packages of a later Debian by an apt of its own state, which checks their signatures, and unpacks them: the
/// machine's own apt, and what it has installed, stay as they are.
const FETCH: &str = r#"
suite=$1 mode=$2
shift 2
mkdir -p lists/partial cache/archives/partial
: >status
base=$(awk '/^URIs:/{print $2; exit}' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)
[ -n "$base" ] || base=$(awk '/^deb /{for (i = 2; i <= NF; i++) if ($i ~ /:\/\//) {print $i; exit}}' /etc/apt/sources.list)
[ -n "$base" ] || { echo "no Debian mirror is known to apt here" >&2; exit 1; }
printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' "$base" "$suite" >sources.list
own() {
    apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$PWD/lists" \
        -o Dir::State::status="$PWD/status" -o Dir::Cache="$PWD/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none \
        -o Debug::NoLocking=1 "$@"
}
own update
if [ "$mode" = alone ]; then
    own download "$@"
else
    own install --yes --no-install-recommends --download-only "$@"
    mv cache/archives/*.deb .
fi
for package in *.deb; do dpkg -x "$package" .; done
rm -rf lists cache status sources.list *.deb
"#;

/// Fetches those that are missing.
pub(crate) fn fetch_all() -> Result<()> {
    SERVERS.iter().try_for_each(Server::see_to)
}

/// Fetches etcd alone, if it is missing.
pub(crate) fn fetch_etcd() -> Result<()> {
    SERVERS.iter().filter(|server| server.name == "etcd").try_for_each(Server::see_to)
}

impl Server {
    fn see_to(&self) -> Result<()> {
        if env::var_os(self.variable).is_some() || self.is_there() {
            return Ok(());
        }
        self.fetch().with_context(|| {
            format!("a newer {} could not be fetched; name one in {}", self.name, self.variable)
        })
    }

    fn folder(&self) -> PathBuf {
        Path::new(FOLDER).join(self.name)
    }

    fn is_there(&self) -> bool {
        let file = self.folder().join(self.file);
        match self.kind {
            Kind::Alone => file.exists(),
            // The folder may have been moved since: they know where their libraries were.
            Kind::WithLibraries { .. } => {
                Command::new(file).arg("--version").output().is_ok_and(|said| said.status.success())
            }
        }
    }

    fn fetch(&self) -> Result<()> {
        println!("missing: a newer {} ({}); fetching {}'s", self.name, self.why, self.suite);
        let folder = self.folder();
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let mode = if self.kind == Kind::Alone { "alone" } else { "all" };
        let mut command = Command::new("sh");
        command.args(["-ec", FETCH, "sh", self.suite, mode]).args(self.packages).current_dir(&folder);
        ensure!(command.status().context("there is no sh")?.success(), "apt or dpkg failed");
        if let Kind::WithLibraries { programs } = self.kind {
            need(&[PATCHELF])?;
            let folder = folder.canonicalize()?;
            programs.iter().try_for_each(|program| use_own_libraries(&folder, program))?;
        }
        ensure!(self.is_there(), "{} is not in what was fetched, or does not run", self.file);
        Ok(())
    }
}

/// Has a program use the loader and the libraries below `folder`, those that it asks for and those that these ask for.
fn use_own_libraries(folder: &Path, program: &str) -> Result<()> {
    let libraries = folder.join(format!("usr/lib/{}-linux-gnu", env::consts::ARCH));
    let loaders = fs::read_dir(&libraries)?.flatten().map(|entry| entry.path());
    let is_loader = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"ld-linux"))
    };
    let loader = loaders.into_iter().find(is_loader).context("there is no loader among the libraries")?;
    let paths = format!("{}:{}", libraries.display(), folder.join("usr/lib/mysql/private").display());
    let mut command = Command::new("patchelf");
    command.arg("--set-interpreter").arg(loader).args(["--force-rpath", "--set-rpath", &paths]);
    command.arg(folder.join(program));
    ensure!(command.status().context("there is no patchelf")?.success(), "{program} could not be changed");
    Ok(())
}
