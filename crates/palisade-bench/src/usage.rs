use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time that this process has used, all threads together.
pub(crate) fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(used.tv_sec).unwrap_or(0), u32::try_from(used.tv_nsec).unwrap_or(0))
}

/// The memory of this process that lies in RAM, in MiB; none where the kernel does not tell.
pub(crate) fn rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_used_something() {
        let before = cpu();
        assert!(rss_mib().is_none_or(|mib| mib > 0.1));
        assert!(cpu() >= before);
    }
}
