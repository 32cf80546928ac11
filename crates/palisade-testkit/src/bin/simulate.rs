//! Runs deterministic simulations of Palisade's clients, each from a seed.

fn main() -> std::process::ExitCode {
    palisade_testkit::sim::main()
}
