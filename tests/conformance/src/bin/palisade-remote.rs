//! The remote engine's server again: only a package's own tests are told where its programs are.

fn main() -> std::process::ExitCode {
    palisade_testkit::remote::main(std::env::args().skip(1))
}
