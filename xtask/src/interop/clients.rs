use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::must;
use crate::setup::is_on_path;
use crate::steps::cargo;

/// A program around lock clients of others, and how to get it to run.
pub(super) struct Client {
    /// The clients it can be; given to it as its first argument if there are several.
    pub(super) names: &'static [&'static str],
    pub(super) prepare: fn() -> Result<Prepared>,
}

/// What came of preparing a client.
pub(crate) enum Prepared {
    /// This command starts it.
    Ready(String),
    /// It cannot run here, for this reason.
    LeftOut(String),
}

pub(super) const CLIENTS: &[Client] = &[
    Client { names: &["redis-py"], prepare: redis_py },
    Client { names: &["node-redlock"], prepare: node_redlock },
    Client { names: &["rslock"], prepare: rslock },
    Client { names: &["redsync", "redislock"], prepare: go },
    Client { names: &["redisson"], prepare: redisson },
];

/// Where the programs are.
const SOURCES: &str = "tests/interop/clients";
/// Where what they need is kept from one run to the next.
const CACHE: &str = "target/interop";

/// The Go that the modules in `go.mod` ask for.
const GO: (u32, u32) = (1, 26);

impl Client {
    /// `NAME=COMMAND` for each client.
    pub(super) fn started_by(&self, command: &str) -> Vec<String> {
        let choice = |name: &&str| if self.names.len() > 1 { format!(" {name}") } else { String::new() };
        self.names.iter().map(|name| format!("{name}={command}{}", choice(name))).collect()
    }
}

fn redis_py() -> Result<Prepared> {
    python_program(&format!("{SOURCES}/redis-py"), "redis-py")
}

/// Makes an environment for the Python program in a folder, in another one of the cache.
fn python_program(source: &str, folder: &str) -> Result<Prepared> {
    let venv = format!("{CACHE}/{folder}");
    let python = format!("{venv}/bin/python");
    let wanted = format!("{source}/requirements.txt");
    cached(&venv, &[&wanted], || {
        must(Command::new("python3").args(["-m", "venv", "--clear", &venv]))?;
        let pip =
            ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", &wanted];
        must(Command::new(&python).args(pip))
    })?;
    Ok(Prepared::Ready(format!("{python} {source}/client.py")))
}

fn node_redlock() -> Result<Prepared> {
    let (source, folder) = (format!("{SOURCES}/node-redlock"), format!("{CACHE}/node-redlock"));
    let (package, client) = (format!("{source}/package.json"), format!("{source}/client.js"));
    cached(&folder, &[&package, &client], || {
        // Modules are looked for beside the program that asks for them.
        fs::copy(&client, format!("{folder}/client.js"))?;
        fs::copy(&package, format!("{folder}/package.json"))?;
        let npm = ["install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel", "error"];
        must(Command::new("npm").args(npm).current_dir(&folder))
    })?;
    Ok(Prepared::Ready(format!("node {folder}/client.js")))
}

fn rslock() -> Result<Prepared> {
    let target = format!("{CACHE}/rslock");
    let manifest = format!("{SOURCES}/rslock/Cargo.toml");
    must(&mut cargo(&["build", "--locked", "--manifest-path", &manifest, "--target-dir", &target]))?;
    Ok(Prepared::Ready(format!("{target}/debug/palisade-interop-rslock")))
}

fn go() -> Result<Prepared> {
    go_program(&format!("{SOURCES}/go"), "go")
}

/// Go's own clients of etcd.
pub(super) fn etcd_go() -> Result<Prepared> {
    go_program("tests/etcd/clients/go", "etcd-go")
}

/// What measures Go's own locks on etcd.
pub(crate) fn etcd_times() -> Result<Prepared> {
    go_program("tests/etcd/clients/go/times", "etcd-times")
}

/// Curator, as Debian has it. Small and quick to start: several of them run beside everything else.
pub(super) fn curator() -> Result<Prepared> {
    let options = "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1";
    curator_program("tests/zookeeper/clients/curator", "Client", "curator", options)
}

/// What measures Curator's mutex, as fast as Java makes it.
pub(crate) fn curator_times() -> Result<Prepared> {
    let source = "tests/zookeeper/clients/curator/times";
    curator_program(source, "Times", "curator-times", "-Xmx256m -XX:+UseSerialGC")
}

/// Compiles a program against Debian's Curator, into a folder of the cache.
fn curator_program(source: &str, class: &str, folder: &str, options: &str) -> Result<Prepared> {
    for program in ["java", "javac"] {
        if !is_on_path(program) {
            return Ok(Prepared::LeftOut(format!("{program} is not installed; a JDK is needed")));
        }
    }
    let source = format!("{source}/{class}.java");
    let folder = std::path::absolute(format!("{CACHE}/{folder}"))?.to_string_lossy().into_owned();
    let classes = format!("{folder}/classes");
    let jars = [
        "curator-recipes",
        "curator-framework",
        "curator-client",
        "zookeeper",
        "zookeeper-jute",
        "guava",
        "slf4j-api",
        "slf4j-nop",
    ];
    let jars = jars.map(|jar| format!("/usr/share/java/{jar}.jar"));
    if let Some(missing) = jars.iter().find(|jar| !Path::new(jar).exists()) {
        bail!("{missing} is not there; libcurator-recipes-java is needed");
    }
    let jars = jars.join(":");
    cached(&folder, &[&source], || {
        must(Command::new("javac").args(["--release", "17", "-d", &classes, "-cp", &jars, &source]))
    })?;
    Ok(Prepared::Ready(format!("java {options} -cp {classes}:{jars} {class}")))
}

/// Python's client of ZooKeeper.
pub(super) fn kazoo() -> Result<Prepared> {
    python_program("tests/zookeeper/clients/kazoo", "kazoo")
}

/// Builds the Go program in a folder, into another one of the cache.
fn go_program(source: &str, folder: &str) -> Result<Prepared> {
    if !is_on_path("go") {
        return Ok(Prepared::LeftOut("Go is not installed".to_owned()));
    }
    let said = Command::new("go").arg("version").env("GOTOOLCHAIN", "local").output()?.stdout;
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    if go_version(&said).is_none_or(|version| version < GO) {
        return Ok(Prepared::LeftOut(format!("Go {}.{} is needed, not {said}", GO.0, GO.1)));
    }
    let program = std::path::absolute(format!("{CACHE}/{folder}/client"))?;
    let mut build = Command::new("go");
    build.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".");
    // The Go that is here: none is fetched in its place.
    build.env("GOTOOLCHAIN", "local").env("GOFLAGS", "").current_dir(source);
    must(&mut build)?;
    Ok(Prepared::Ready(format!("{CACHE}/{folder}/client")))
}

/// Reads what `go version` says: `go version go1.26.8 linux/amd64`.
fn go_version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split_whitespace().nth(2)?.strip_prefix("go")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn redisson() -> Result<Prepared> {
    maven_program(&format!("{SOURCES}/redisson"), "redisson")
}

/// ShedLock with the database's own time.
pub(super) fn shedlock() -> Result<Prepared> {
    maven_program("tests/sql/clients/shedlock", "shedlock")
}

/// Compiles the Java program in a folder with what its `pom.xml` names, into another one of the cache.
fn maven_program(source: &str, folder: &str) -> Result<Prepared> {
    for program in ["java", "javac", "mvn"] {
        if !is_on_path(program) {
            return Ok(Prepared::LeftOut(format!("{program} is not installed; a JDK and Maven are needed")));
        }
    }
    let folder = format!("{CACHE}/{folder}");
    let (pom, client) = (format!("{source}/pom.xml"), format!("{source}/Client.java"));
    let (jars, classes) = (format!("{folder}/jars"), format!("{folder}/classes"));
    cached(&folder, &[&pom, &client], || {
        let output = format!("-DoutputDirectory={}", std::path::absolute(&jars)?.display());
        let goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";
        let maven = ["--quiet", "--batch-mode", "--file", &pom, goal, "-DincludeScope=runtime", &output];
        must(Command::new("mvn").args(maven))?;
        must(Command::new("javac").args([
            "--release",
            "17",
            "-d",
            &classes,
            "-cp",
            &format!("{jars}/*"),
            &client,
        ]))
    })?;
    // Small and quick to start: two of them run beside everything else.
    let options = "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1";
    Ok(Prepared::Ready(format!("java {options} -cp {classes}:{jars}/* Client")))
}

/// Fills `folder` unless it was filled from the same `sources` before.
fn cached(folder: &str, sources: &[&str], fill: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut wanted = String::new();
    for source in sources {
        wanted += &fs::read_to_string(source).with_context(|| format!("cannot read {source}"))?;
    }
    let stamp = Path::new(folder).join("filled-from");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    if Path::new(folder).exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    fill()?;
    // Last, so that a fill that was broken off is done again. The folder may have been made anew.
    Ok(fs::write(stamp, wanted)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go() {
        assert_eq!(go_version("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(go_version("go version go1.26 linux/amd64"), Some((1, 26)));
        assert_eq!(go_version("go: unknown command"), None);
        assert!((1, 9) < GO && (1, 26) >= GO && (2, 0) >= GO);
    }

    #[test]
    fn one_program_can_be_several_clients() {
        let commands = |names| Client { names, prepare: redis_py }.started_by("x y");
        assert_eq!(commands(&["a"]), ["a=x y"]);
        assert_eq!(commands(&["a", "b"]), ["a=x y a", "b=x y b"]);
    }
}
