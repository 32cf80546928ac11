//! A process that takes a lock and does as it is told, to be killed and stopped by the suite.

fn main() -> std::process::ExitCode {
    palisade_testkit::taker::main()
}
