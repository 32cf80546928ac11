use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// Where `cargo xtask test` puts `file` of a newer server than Debian's stable release brings: as `variable` says, else
/// below the build's folder.
///
/// # Errors
/// It is not there.
pub(super) fn newer(server: &str, file: &str, variable: &str) -> Result<PathBuf> {
    if let Some(path) = env::var_os(variable) {
        return Ok(path.into());
    }
    let program = env::current_exe()?;
    let found = program.ancestors().map(|folder| folder.join("servers").join(server).join(file));
    found.into_iter().find(|path| path.exists()).with_context(|| {
        format!("there is no newer {server}: `cargo xtask test` fetches it; or name one in {variable}")
    })
}
