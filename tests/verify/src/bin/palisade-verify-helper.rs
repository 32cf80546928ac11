//! The workers and servers that `palisade verify` starts, with bugs planted.

fn main() -> std::process::ExitCode {
    palisade_testkit::HelperProgram::act(std::env::args().skip(1))
}
