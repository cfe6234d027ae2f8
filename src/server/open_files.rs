//! How many files the process may have open, and so how many connections.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most connections of those who collect metrics.
pub(crate) const SCRAPERS: usize = 32;
/// What the database, logs, backups, commands, outgoing connections and [`SCRAPERS`] may need.
const RESERVE: u64 = 128 + SCRAPERS as u64;

/// The most connections that the operating system lets this process have, at most `wanted`.
///
/// Most systems start a program with a limit of 1,024 open files that it may raise by itself: that is done here,
/// as far as it is needed. The rest is kept for what is no connection of the public.
pub(crate) fn connections(wanted: usize) -> usize {
    let needed = u64::try_from(wanted).unwrap_or(u64::MAX).saturating_add(RESERVE);
    let limit = getrlimit(Resource::Nofile);
    // No number means no limit.
    let Some(current) = limit.current else {
        return wanted;
    };
    let raised = limit.maximum.map_or(needed, |most| needed.min(most));
    let wish = Rlimit {
        current: Some(raised),
        maximum: limit.maximum,
    };
    let files = if raised > current && setrlimit(Resource::Nofile, wish).is_ok() {
        raised
    } else {
        current
    };
    room(files).min(wanted)
}

fn room(files: u64) -> usize {
    usize::try_from(files.saturating_sub(RESERVE).max(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_are_kept_for_what_is_no_connection_of_the_public() {
        assert_eq!(room(1024), 864);
        assert_eq!(room(10), 1);
        assert_eq!(room(u64::MAX), usize::MAX - 160);
    }

    #[test]
    fn no_more_connections_are_promised_than_wanted_or_than_there_can_be() {
        assert_eq!(connections(1), 1);
        assert!(connections(usize::MAX) < usize::MAX);
    }
}
