//! The data directory belongs to the user of the service. What that user puts there leads no command of root's elsewhere.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::harness::process::{Service, said};

/// Every file in a folder with its mode, owner and content.
fn contents(folder: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut found: Vec<_> = entries
        .map(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode();
            let name = entry.file_name().into_string().unwrap();
            (name, mode, fs::read(entry.path()).unwrap_or_default())
        })
        .collect();
    found.sort();
    found
}

#[test]
fn no_command_follows_a_link_below_the_data_directory() {
    let service = Service::with_client();
    service.json(&["backup", "--json"]);
    let (data, outside) = (service.data(), service.folder.path().join("outside"));
    for (name, words) in [
        ("idsvc.redb", "client list"),
        ("idsvc.redb", "backup"),
        ("master.key", "client list"),
        ("control.sock", "client list"),
        ("backups", "backup"),
        ("backups", "backup data/backups/by-name"),
        ("events", "events"),
        ("events/events.jsonl", "events"),
        ("events/tokens.jsonl", "events"),
        ("themes", "theme new acme"),
    ] {
        let (path, target) = (data.join(name), outside.join("target"));
        fs::create_dir(&outside).unwrap();
        if path.exists() {
            fs::rename(&path, &target).unwrap();
        } else if name.contains('.') {
            fs::write(&target, "").unwrap();
        } else {
            fs::create_dir(&target).unwrap();
        }
        // A command that follows the link changes the mode.
        let mode = if target.is_dir() { 0o755 } else { 0o644 };
        fs::set_permissions(&target, Permissions::from_mode(mode)).unwrap();
        symlink(&target, &path).unwrap();
        let before = (contents(&outside), target.is_dir().then(|| contents(&target)));
        let refused = service.run(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(
            refused.status.code(),
            Some(1),
            "{name}, {words}: {}",
            said(&refused)
        );
        assert!(said(&refused).contains("symbolic link"), "{}", said(&refused));
        let after = (contents(&outside), target.is_dir().then(|| contents(&target)));
        assert!(before == after, "{name}, {words}");
        fs::remove_file(&path).unwrap();
        if contents(&outside) != [("target".to_owned(), 0o100_644, Vec::new())] {
            fs::rename(&target, &path).unwrap();
        }
        fs::remove_dir_all(&outside).unwrap();
    }
    service.json(&["client", "list", "--json"]);
}

#[test]
fn events_are_not_written_through_a_link() {
    let service = Service::with_client();
    let events = service.data().join("events");
    let outside = service.folder.path().join("outside");
    fs::remove_dir_all(&events).unwrap();
    fs::create_dir(&outside).unwrap();
    symlink(&outside, &events).unwrap();
    let added = service.run(&["user", "add", "alice@example.com", "--no-password"]);
    assert!(added.status.success(), "{}", said(&added));
    assert!(contents(&outside).is_empty());
}

#[test]
fn a_data_directory_that_others_can_write_to_is_refused_with_the_bit_and_the_remedy() {
    let service = Service::with_client();
    let data = service.data();
    for (mode, right) in [(0o702, "700"), (0o777, "700"), (0o1777, "700")] {
        fs::set_permissions(&data, Permissions::from_mode(mode)).unwrap();
        for words in [
            &["client", "list"][..],
            &["serve"],
            &["backup"],
            &["theme", "new", "acme"],
        ] {
            let refused = service.run(words);
            let said = said(&refused);
            assert_eq!(refused.status.code(), Some(1), "{words:?}: {said}");
            let (found, remedy) = (
                format!("({:03o})", mode & 0o777),
                format!("chmod {right} {}", data.display()),
            );
            assert!(said.contains(&found) && said.contains(&remedy), "{said}");
        }
    }
    fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
    let _running = service.serve();
    service.json(&["client", "list", "--json"]);
    fs::set_permissions(&data, Permissions::from_mode(0o707)).unwrap();
    let refused = service.run(&["client", "list"]);
    assert!(said(&refused).contains("(707)"), "{}", said(&refused));
}

#[test]
fn the_development_server_reads_no_configuration_file_that_it_was_not_given() {
    let service = Service::new()
        .without("IDSVC_BASE_URL")
        .without("IDSVC_TLS_MODE")
        .without("IDSVC_LISTEN")
        .without("IDSVC_DATA_DIR")
        .with("IDSVC_CONFIG", "elsewhere.toml");
    let folder = service.folder.path();
    let production = folder.join("production");
    let text = format!(
        "data_dir = {:?}\nlisten = [\"127.0.0.1:1\"]",
        production.display()
    );
    fs::write(folder.join("idsvc.toml"), &text).unwrap();
    fs::write(folder.join("elsewhere.toml"), &text).unwrap();
    let listen = format!("127.0.0.1:{}", service.port);
    let mut running = service.start(&["serve", "--dev", "--listen", &listen]);
    running.until(|_| service.log().contains("\"ready\""));
    running.kill();
    assert!(!production.exists());
    assert!(folder.join("idsvc-data/dev/idsvc.redb").exists());
    let given = [
        "serve",
        "--dev",
        "--config",
        "elsewhere.toml",
        "--listen",
        &listen,
    ];
    let mut running = service.start(&given);
    running.until(|_| production.join("idsvc.redb").exists());
    running.kill();
}
