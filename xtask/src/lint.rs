use std::process::{Command, Stdio};

use anyhow::Result;

use crate::steps::{Steps, cargo};
use crate::{setup, tidy};

/// Runs everything that needs no test.
pub(crate) fn run() -> Result<()> {
    setup::components()?;
    let mut steps = Steps::default();
    take(&mut steps);
    steps.finish()
}

pub(crate) fn take(steps: &mut Steps) {
    steps.take("tidy", tidy::run);
    steps.command("format", cargo(&["fmt", "--all", "--check"]));
    steps.command(
        "clippy",
        cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"]),
    );
    // Libraries only: the `palisade` command and the `palisade` library would be one page.
    let mut doc = cargo(&["doc", "--no-deps", "--workspace", "--lib", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "--deny warnings");
    steps.command("rustdoc", doc);
    // Alone, because a build of the whole workspace turns all features on.
    steps.command(
        "features: none",
        cargo(&["check", "--package", "palisade", "--no-default-features", "--quiet"]),
    );
    steps.command("features: default", cargo(&["check", "--package", "palisade", "--quiet"]));
    steps.command("features: no driver", cargo(&["check", "--package", "palisade-fence", "--quiet"]));
    if has_cargo_deny() {
        steps.command("cargo deny", cargo(&["deny", "check", "bans", "licenses", "sources"]));
    } else {
        println!("\n── cargo deny is not installed; tidy has checked licences and banned crates");
    }
}

fn has_cargo_deny() -> bool {
    Command::new("cargo-deny")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
