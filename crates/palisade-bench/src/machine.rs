use serde::Serialize;

/// What kind of machine it is; nothing that tells whose.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// How many processors this process may use.
    pub cores: usize,
    /// The kernel and its version.
    pub kernel: String,
    /// The processor's kind.
    pub arch: &'static str,
}

impl Machine {
    /// This one.
    pub(crate) fn this() -> Self {
        let uname = rustix::system::uname();
        let release = uname.release().to_string_lossy();
        // Distributions and builders append names of their own.
        let version: String = release.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), version.trim_end_matches('.')),
            arch: std::env::consts::ARCH,
        }
    }
}
