//! Raises the limit of open files, and says how many connections that allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most connections for collecting metrics.
pub(crate) const METRICS_CONNECTIONS: usize = 32;
/// The most connections whose requests are redirected.
pub(crate) const REDIRECT_CONNECTIONS: usize = 64;
/// The files kept for the database, logs, backups, commands, outgoing connections, and the connections above.
const RESERVE: u64 = 128 + METRICS_CONNECTIONS as u64 + REDIRECT_CONNECTIONS as u64;

/// The most connections that the operating system lets this process have, at most `wanted`.
///
/// Most systems start a program with a limit of 1,024 open files, which it may raise by itself. This function raises
/// it as far as needed. Some files are kept for other uses.
pub(crate) fn connections(wanted: usize) -> usize {
    let needed = u64::try_from(wanted).unwrap_or(u64::MAX).saturating_add(RESERVE);
    let limit = getrlimit(Resource::Nofile);
    // `None` means no limit.
    let Some(current) = limit.current else {
        return wanted;
    };
    let raised_to = limit.maximum.map_or(needed, |most| needed.min(most));
    let raised_limit = Rlimit {
        current: Some(raised_to),
        maximum: limit.maximum,
    };
    let files = if raised_to > current && setrlimit(Resource::Nofile, raised_limit).is_ok() {
        raised_to
    } else {
        current
    };
    connections_within(files).min(wanted)
}

fn connections_within(files: u64) -> usize {
    usize::try_from(files.saturating_sub(RESERVE).max(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_are_kept_for_other_uses() {
        assert_eq!(connections_within(1024), 800);
        assert_eq!(connections_within(10), 1);
        assert_eq!(connections_within(u64::MAX), usize::MAX - 224);
    }

    #[test]
    fn no_more_connections_are_promised_than_wanted_or_than_there_can_be() {
        assert_eq!(connections(1), 1);
        assert!(connections(usize::MAX) < usize::MAX);
    }
}
