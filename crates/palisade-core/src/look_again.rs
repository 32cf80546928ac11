use std::time::Duration;

/// How long to wait before looking again at what another client holds, who tells nobody: 5 to 250 ms, longer with each of
/// `tries`, and not in step with others: `part` is a random number from 0 to 1.
pub fn look_again(tries: u32, part: f64) -> Duration {
    let longest = Duration::from_millis(5) * 2_u32.pow(tries.min(6));
    longest.min(Duration::from_millis(250)).mul_f64(0.5 + part / 2.0)
}
