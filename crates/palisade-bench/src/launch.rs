use anyhow::{Result, bail};
use tempfile::TempDir;

/// An engine that the bench itself started; ends with it.
#[derive(Debug)]
pub(crate) struct Launched {
    pub(crate) url: String,
    #[expect(dead_code, reason = "kept until it is dropped")]
    folder: TempDir,
}

/// Starts the engine that `local:NAME` asks for; `None` for the URL of one that is there already.
pub(crate) fn launch(url: &str) -> Result<Option<Launched>> {
    let Some(name) = url.strip_prefix("local:") else { return Ok(None) };
    if name != "file" {
        bail!("there is no local engine {name:?} to start; there is local:file");
    }
    let folder = tempfile::Builder::new().prefix("palisade-bench").tempdir()?;
    Ok(Some(Launched { url: format!("file:{}", folder.path().display()), folder }))
}
