use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// A program that can act as whatever helper process a run needs: it calls [`HelperProgram::act`].
///
/// The `palisade` command is one of its own helpers; tests bring a small binary.
#[derive(Debug, Clone)]
pub struct HelperProgram {
    /// The program.
    pub path: PathBuf,
    /// What makes it a helper, before the role.
    pub arguments: Vec<String>,
}

/// What a helper process can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A worker of [`crate::verify`].
    Worker,
    /// A server of [`crate::remote`].
    MemoryServer,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Worker => "worker",
            Self::MemoryServer => "memory-server",
        }
    }
}

impl HelperProgram {
    /// Acts as the helper that `arguments`, after those of [`HelperProgram::arguments`], name.
    pub fn act(mut arguments: impl Iterator<Item = String>) -> ExitCode {
        let role = arguments.next().unwrap_or_default();
        if role == Role::Worker.name() {
            crate::verify::worker_main()
        } else if role == Role::MemoryServer.name() {
            crate::remote::main(arguments)
        } else {
            eprintln!("palisade: there is no helper {role:?}");
            ExitCode::FAILURE
        }
    }

    /// A command that acts in `role`.
    pub(crate) fn command(&self, role: Role) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).arg(role.name());
        command
    }
}
