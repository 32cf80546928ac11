//! A memory engine that is served over TCP, to be cut off and killed by tests.

fn main() -> std::process::ExitCode {
    palisade_testkit::remote::main(std::env::args().skip(1))
}
