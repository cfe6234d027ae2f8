use crate::config::memory::MemoryPlan;
use crate::config::memory_limit::{LimitOrigin, MemoryLimit};
use crate::password::{MAX_MEMORY_KIB, PoolSize};

use super::*;

const BASE: &str = "base_url = \"https://id.example.com\"\ntls.mode = \"self-signed\"\n";

/// The plan for a process that may use so many MiB.
fn plan(mib: u64, lines: &str) -> MemoryPlan {
    let sources = Sources {
        memory: Some(MemoryLimit {
            bytes: mib << 20,
            origin: LimitOrigin::ControlGroup,
        }),
        ..sources_of(&[], &[], &format!("{BASE}{lines}"))
    };
    resolve(&sources).unwrap().memory
}

#[test]
fn without_a_limit_and_with_much_memory_the_defaults_apply() {
    let unknown = resolve(&sources_of(&[], &[], BASE)).unwrap();
    let much = plan(32 << 10, "");
    for plan in [&unknown.memory, &much] {
        let numbers = (plan.connections, plan.requests, plan.bodies_kib, plan.cache_bytes);
        assert_eq!(numbers, (10_000, 8192, 64 << 10, 24 << 20));
        assert_eq!(
            (plan.passwords, plan.hash_limit_kib),
            (PoolSize::default(), MAX_MEMORY_KIB)
        );
        assert_eq!(plan.warning, None);
    }
}

#[test]
fn all_that_there_may_be_at_once_fits_into_the_memory() {
    for mib in [48, 64, 100, 128, 256, 500, 512, 1000, 2048, 4096] {
        let plan = plan(mib, "");
        let hashing = plan.passwords.threads * 19;
        let kib = 56 * plan.connections + 40 * plan.requests + plan.bodies_kib + plan.counts_kib;
        let all = 16 + hashing + (plan.cache_bytes >> 20) + (kib >> 10);
        // With the least memory the fewest requests do not quite fit.
        assert!(
            all <= usize::try_from(mib).unwrap() + 2,
            "{mib} MiB: {all} MiB, {plan:?}"
        );
        assert_eq!(plan.warning, None, "{mib}");
        assert!(plan.connections >= 32 && plan.requests >= 32 && plan.passwords.threads >= 1);
    }
    let (small, large) = (plan(64, ""), plan(512, ""));
    assert_eq!(small.mtls_connections, 0);
    assert!((200..400).contains(&small.connections), "{small:?}");
    assert_eq!((small.passwords.threads, small.hash_limit_kib), (1, 32 << 10));
    assert!(
        large.connections > 4000 && large.hash_limit_kib == MAX_MEMORY_KIB,
        "{large:?}"
    );
}

#[test]
fn connections_where_clients_show_certificates_fit_into_the_memory_too() {
    let plan = |mib| plan(mib, "tls.mtls_listen = \"127.0.0.1:9443\"\n");
    for mib in [64, 100, 128, 256, 512, 4096] {
        let plan = plan(mib);
        let shared = plan.bodies_kib + plan.counts_kib;
        let kib = 56 * plan.connections + 104 * plan.mtls_connections + 40 * plan.requests + shared;
        let all = 16 + plan.passwords.threads * 19 + (plan.cache_bytes >> 20) + (kib >> 10);
        assert!(
            all <= usize::try_from(mib).unwrap() + 2,
            "{mib} MiB: {all} MiB, {plan:?}"
        );
        assert_eq!(plan.mtls_connections, plan.connections.min(256), "{mib}");
        assert_eq!(plan.warning, None, "{mib}");
    }
    assert!(plan(64).mtls_connections < 256);
}

#[test]
fn what_is_configured_counts_and_is_warned_of_if_it_does_not_fit() {
    let connections = plan(64, "limits.connections = 5000\n");
    assert_eq!((connections.connections, connections.requests), (5000, 32));
    let warning = connections.warning.unwrap();
    assert!(
        warning.contains("64 MiB (the limit of the control group) have room for"),
        "{warning}"
    );
    let workers = plan(64, "password.workers = 4\n");
    assert_eq!(workers.passwords.threads, 4);
    assert!(
        workers
            .warning
            .unwrap()
            .contains("hashing passwords takes 76 MiB")
    );
    let costly = plan(64, "password.memory_kib = 65536\n");
    assert_eq!((costly.passwords.threads, costly.hash_limit_kib), (1, 65536));
    assert!(
        costly
            .warning
            .unwrap()
            .contains("lower password.workers or password.memory_kib")
    );
    assert_eq!(plan(64, "limits.connections = 100\n").warning, None);
    assert_eq!(plan(4096, "limits.connections = 20000\n").warning, None);
}

#[test]
fn the_setting_counts_before_the_control_group_and_has_a_least() {
    let lines = "limits.memory = \"256MiB\"\n";
    let limit = plan(64, lines).limit.unwrap();
    assert_eq!((limit.bytes, limit.origin), (256 << 20, LimitOrigin::Setting));
    for (wrong, told) in [
        ("47MiB", "must be at least 48MiB"),
        ("64", "write a size, as in 256MiB or 2GiB"),
        ("", "give a value"),
    ] {
        let sources = sources_of(&[("limits.memory", wrong)], &[], BASE);
        let told_of = faults(&sources);
        assert!(
            told_of.contains(told) && told_of.lines().count() == 1,
            "{told_of}"
        );
    }
}

#[test]
fn a_passphrase_for_backups_needs_memory() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("passphrase");
    std::fs::write(&file, "correct horse battery\n").unwrap();
    let lines = format!(
        "{BASE}backup.passphrase_file = {:?}\nlimits.memory = ",
        file.to_str().unwrap()
    );
    let warnings = |size: &str| {
        let text = format!("{lines}\"{size}\"\n");
        let config = resolve(&sources_of(&[], &[], &text)).unwrap();
        let all = config
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
        all.into_iter().filter(|text| text.contains("backup.to")).count()
    };
    assert_eq!((warnings("64MiB"), warnings("256MiB")), (1, 0));
}
