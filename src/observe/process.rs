//! What the operating system says of this process.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// The memory that the process takes, in bytes; `None` without `/proc`.
pub fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The number of open file descriptors; `None` without `/proc`.
pub fn open_fds() -> Option<u64> {
    let entries = fs::read_dir("/proc/self/fd").ok()?;
    // One of them reads the folder.
    u64::try_from(entries.count()).ok()?.checked_sub(1)
}

/// The most file descriptors that may be open; `None` without a limit.
pub fn max_fds() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn this_process_takes_memory_and_files() {
        if !cfg!(target_os = "linux") {
            return;
        }
        assert!(resident_bytes().unwrap() > 1 << 20);
        let kept: Vec<_> = (0..100).map(|_| File::open("/dev/null").unwrap()).collect();
        let found = open_fds().unwrap();
        assert!(found > 100 && found < max_fds().unwrap_or(u64::MAX), "{found}");
        drop(kept);
    }
}
