//! Checks for valid settings that make the service weaker, or that have no effect.

use super::finding::{Finding, Level};
use crate::config::Config;
use crate::config::duration::format_duration;
use crate::password::PasswordParams;

const OWASP: &str = "OWASP Password Storage Cheat Sheet: argon2id with 19 MiB and 2 passes, or the same cost";

/// Checks limits, exempt networks, password hashing and session lifetimes.
pub(super) fn examine(config: &Config, findings: &mut Vec<Finding>) {
    let mut advise = |setting: &str, message: String, remedy: &str, rule| {
        let finding = Finding::good("settings", setting, message).at_level(Level::Advice, remedy);
        findings.push(Finding { rule, ..finding });
    };
    let limits = &config.limits;
    if !limits.enabled {
        let message = "nothing limits guesses of passwords and floods of requests".to_owned();
        let remedy = "set it to true, and name networks that need more in limits.exempt";
        advise("limits.enabled", message, remedy, None);
    }
    for network in limits.exempt.iter().filter(|network| network.prefix_len() == 0) {
        let message = format!("{network} is every address: guesses of passwords are not limited at all");
        let remedy = "name only the networks that need more";
        advise("limits.exempt", message, remedy, None);
    }
    let cost = config.settings.password_params;
    if is_cheap(cost) {
        let (memory, iterations) = (cost.memory_kib(), cost.iterations());
        let message =
            format!("a hash takes {memory} KiB and {iterations} passes, which makes stolen ones easy to try");
        let remedy = "leave out password.memory_kib and password.iterations, or raise them";
        advise("password", message, remedy, Some(OWASP));
    }
    let session = config.policy().lifetimes.session;
    if session.idle > session.absolute {
        let (idle, absolute) = (format_duration(session.idle), format_duration(session.absolute));
        let message = format!(
            "{idle} has no effect: lifetimes.session_absolute is {absolute} and ends sessions before"
        );
        advise(
            "lifetimes.session_idle",
            message,
            "make lifetimes.session_idle the shorter of the two",
            None,
        );
    }
}

/// Checks whether the running service had memory for every password hash.
pub(super) fn examine_shortages(hashes: u64) -> Option<Finding> {
    let message = format!(
        "there was no memory for {hashes} password hashes since the service started: those sign-ins were answered with 503"
    );
    let remedy = "raise limits.memory or the limit of the control group, and restart the service. Its log says how much memory a hash needed, and whether fewer password.workers help";
    (hashes > 0).then(|| Finding::mend("data", "memory", message, remedy))
}

/// Whether a hash costs less than the cheapest that OWASP recommends: 7 MiB and 5 passes.
fn is_cheap(cost: PasswordParams) -> bool {
    const MEMORY_KIB: u32 = 7 << 10;
    let work = cost.memory_kib().saturating_mul(cost.iterations());
    cost.memory_kib() < MEMORY_KIB || work < 5 * MEMORY_KIB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_owasp_are_enough_and_lower_ones_are_not() {
        let is_cheap = |memory, iterations| is_cheap(PasswordParams::new(memory, iterations, 1).unwrap());
        for (memory_mib, iterations) in [(46, 1), (19, 2), (12, 3), (9, 4), (7, 5)] {
            assert!(!is_cheap(memory_mib << 10, iterations), "{memory_mib} MiB");
        }
        for (memory_mib, iterations) in [(19, 1), (12, 2), (9, 3), (7, 4), (6, 16)] {
            assert!(is_cheap(memory_mib << 10, iterations), "{memory_mib} MiB");
        }
    }
}
