//! What `packaging/` ships agrees with the executable.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::process::{Service, said};

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging")
}

#[test]
fn the_packaged_settings_are_accepted_and_listen_where_the_packaged_socket_does() {
    let settings = packaging().join("idsvc.toml");
    let service = Service::new();
    let mut check = service.command(&["config", "check", "--json", "--config"]);
    // The issuer is the one thing that nobody can set beforehand.
    let unset = service
        .command(&["config", "check", "--config"])
        .arg(&settings)
        .env_clear()
        .output()
        .unwrap();
    assert!(
        said(&unset).contains("base_url") && said(&unset).lines().count() <= 2,
        "{}",
        said(&unset)
    );
    let issuer = ("IDSVC_BASE_URL", "https://id.example.com");
    let checked = check.arg(&settings).env_clear().envs([issuer]).output().unwrap();
    assert!(checked.status.success(), "{}", said(&checked));
    let warnings = said(&checked);
    assert!(
        warnings.contains("self-signed") && warnings.lines().count() == 1,
        "only the certificate is left to the operator: {warnings}"
    );
    let found: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(found["data_dir"], "/var/lib/idsvc");
    let socket = fs::read_to_string(packaging().join("systemd/idsvc.socket")).unwrap();
    let ports: Vec<_> = socket
        .lines()
        .filter_map(|line| line.strip_prefix("ListenStream="))
        .map(|port| format!("[::]:{port}"))
        .collect();
    assert_eq!(found["listen"], serde_json::json!(ports));
}

#[test]
fn the_change_log_begins_with_this_version() {
    let changes = fs::read_to_string(packaging().join("CHANGELOG.md")).unwrap();
    let newest = changes.lines().find_map(|line| line.strip_prefix("## ")).unwrap();
    assert_eq!(newest, env!("CARGO_PKG_VERSION"));
}
