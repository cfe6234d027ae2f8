//! What an administrator meets on a machine: a full disk, the data of another release, the manual.

use std::fs;
use std::process::Command;

use idsvc::store::engine::Tx;
use idsvc::store::schema::{META, Schema, meta_put};
use idsvc::store::{Options, Store, StoreError};

use crate::harness::process::{Service, said};

fn step(tx: &mut dyn Tx) -> Result<(), StoreError> {
    meta_put(tx, "from", "the future")
}

#[test]
fn a_data_file_of_a_newer_release_is_refused_and_not_touched() {
    const LATER: Schema = Schema::new(&[step, step]);
    let service = Service::with_client();
    let database = service.data().join("idsvc.redb");
    Store::open_with(&database, Options::default(), &LATER)
        .unwrap()
        .close();
    let before = fs::read(&database).unwrap();
    for words in [&["serve"][..], &["client", "list"], &["backup", "saved"]] {
        let refused = service.run(words);
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            said(&refused).contains("install the newer release"),
            "{}",
            said(&refused)
        );
        assert_eq!(said(&refused).lines().count(), 1, "{}", said(&refused));
    }
    let doctor = service.run(&["doctor"]);
    assert_eq!(doctor.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&doctor.stdout).contains("install the newer release"));
    assert!(fs::read(&database).unwrap() == before);
    assert!(!service.folder.path().join("saved").exists());
}

#[test]
fn a_database_gives_back_what_it_no_longer_needs_beside_a_service_and_without_one() {
    let service = Service::with_client();
    let database = service.data().join("idsvc.redb");
    let bloat = || {
        let store = Store::open(&database, Options::default()).unwrap();
        let name = |number: u32| format!("ballast {number}");
        let long = "x".repeat(100_000);
        store
            .write_blocking("fill", move |tx| {
                (0..50).try_for_each(|number| meta_put(tx, &name(number), &long))
            })
            .unwrap();
        store
            .write_blocking("empty", move |tx| {
                // What is left lies behind the room, where no file is cut off.
                (0..49).try_for_each(|number| META.remove(tx, &name(number)).map(|_| ()))
            })
            .unwrap();
        store.close();
    };
    let compact = || {
        let done = service.json(&["compact", "--json"]);
        let bytes = |name: &str| done[name].as_u64().unwrap();
        assert!(
            bytes("bytes") < 2_000_000 && bytes("bytes_before") > 5_000_000,
            "{done}"
        );
        let shown = service.json(&["client", "show", "web", "--json"]);
        assert_eq!(shown["client_id"], "web");
    };
    bloat();
    compact();
    bloat();
    let running = service.serve();
    compact();
    let ready = running.request("GET", "/readyz", &[], "").unwrap();
    assert_eq!(ready.status, 200, "{ready:?}");
}

#[test]
fn a_full_disk_refuses_what_needs_room_and_damages_nothing() {
    let service = Service::with_client();
    let lines: Vec<_> = (0..20_000)
        .map(|number| format!("{{\"email\":\"user-{number}@example.com\"}}\n"))
        .collect();
    let lines = lines.concat();
    fs::write(service.folder.path().join("users.jsonl"), lines).unwrap();
    let size = fs::metadata(service.data().join("idsvc.redb")).unwrap().len();
    let blocks = size / 512 + 64;
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" user import users.jsonl");
    let full = Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_idsvc")])
        .env_clear()
        .env("IDSVC_DATA_DIR", service.data())
        .current_dir(service.folder.path())
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(1));
    assert!(said(&full).contains("no space is left"), "{}", said(&full));
    assert!(
        said(&full).contains("run the same command again"),
        "{}",
        said(&full)
    );
    let _running = service.serve();
    assert_eq!(
        service.json(&["client", "show", "web", "--json"])["client_id"],
        "web"
    );
    let done = service.json(&["user", "import", "users.jsonl", "--json"]);
    let counts = done["added"].as_u64().unwrap() + done["unchanged"].as_u64().unwrap();
    assert_eq!((counts, &done["bad"]), (20_000, &serde_json::json!([])));
}

#[test]
fn every_command_has_a_manual_page() {
    let service = Service::new();
    let whole = service.run(&["man"]);
    assert!(String::from_utf8_lossy(&whole.stdout).contains(".TH idsvc 1"));
    assert!(service.run(&["man", "pages"]).status.success());
    let pages = service.folder.path().join("pages");
    let import = fs::read_to_string(pages.join("idsvc-user-import.1")).unwrap();
    assert!(import.contains("skip\\-bad"), "{import}");
    assert!(fs::read_dir(&pages).unwrap().count() > 40);
}
