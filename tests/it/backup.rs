//! A backup and its restore, with and without a running service, and everything that can be wrong with one.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tempfile::TempDir;

use crate::harness::process::{Running, Service, run_with_input, said, shown};
use crate::harness::report::report;

const ANONYMOUS: &str = "urn:service:oauth2:grant-type:anonymous";

fn kiosk(service: &Service) -> String {
    let kiosk = service.json(&[
        "client",
        "add",
        "kiosk",
        "--grant",
        "anonymous",
        "--grant",
        "refresh_token",
        "--json",
    ]);
    let secret = kiosk["client_secret"].as_str().unwrap();
    format!("Basic {}", STANDARD.encode(format!("kiosk:{secret}")))
}

fn token(running: &Running<'_>, basic: &str, form: &[(&str, &str)]) -> (u16, serde_json::Value) {
    let reply = running
        .post_form("/oauth2/token", &[("Authorization", basic)], form)
        .unwrap();
    (reply.status, reply.json())
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The same settings on another data directory.
fn elsewhere(service: &Service, words: &[&str], data: &Path) -> Output {
    service
        .command(words)
        .env("IDSVC_DATA_DIR", data)
        .output()
        .unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn after_a_restore_every_token_still_works() {
    let service = Service::empty();
    let basic = kiosk(&service);
    let mut running = service.serve();
    let (_, first) = token(&running, &basic, &[("grant_type", ANONYMOUS)]);
    let access = text(&first["access_token"]);
    let refresh = text(&first["refresh_token"]);
    let data = service.data();
    let made = service.json(&["backup", "saved", "--json"]);
    let (status, _) = token(&running, &basic, &[("grant_type", ANONYMOUS)]);
    assert_eq!(status, 200);
    running.kill();
    let saved = service.folder.path().join("saved");
    assert_eq!(fs::metadata(&saved).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(made["bytes"], fs::metadata(&saved).unwrap().len());
    let key = fs::read(data.join("master.key")).unwrap();
    let master = String::from_utf8(key.clone()).unwrap();
    assert!(!fs::read_to_string(&saved).is_ok_and(|text| text.contains(master.trim())));
    fs::remove_dir_all(&data).unwrap();

    let refused = service.run(&["restore", "saved"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("the master key is not in this backup"),
        "{}",
        said(&refused)
    );
    assert!(!data.exists());
    fs::write(service.folder.path().join("key"), key).unwrap();
    let restored = service.json(&["restore", "saved", "--master-key", "key", "--json"]);
    assert_eq!(restored["rows"], made["rows"]);
    assert_eq!(names(&data), ["events", "idsvc.redb", "master.key"]);

    let running = service.serve();
    let bearer = format!("Bearer {access}");
    let known = running.post_form(
        "/oauth2/introspect",
        &[("Authorization", &basic)],
        &[("token", &access)],
    );
    assert_eq!(known.unwrap().json()["active"], true, "{bearer}");
    let (status, body) = token(
        &running,
        &basic,
        &[("grant_type", "refresh_token"), ("refresh_token", &refresh)],
    );
    assert_eq!((status, &body["uuid"]), (200, &first["uuid"]));
}

#[test]
fn a_backup_is_the_same_beside_a_running_service_and_without_one() {
    let service = Service::empty();
    kiosk(&service);
    service.json(&["user", "add", "alice@example.com", "--no-password", "--json"]);
    let mut running = service.serve();
    let online = service.json(&["backup", "--json", "--with-master-key"]);
    running.kill();
    let offline = service.json(&["backup", "saved", "--json", "--with-master-key"]);
    let online_file = text(&online["file"]);
    assert!(online_file.contains("data/backups/idsvc-"), "{online_file}");
    let facts = |document: &serde_json::Value| {
        let mut document = document.clone();
        for volatile in ["file", "bytes", "created_at", "rows"] {
            assert!(document.as_object_mut().unwrap().remove(volatile).is_some());
        }
        document
    };
    assert_eq!(facts(&online), facts(&offline));
    assert_eq!(online["holds_master_key"], true);
    for file in [online_file.as_str(), "saved"] {
        let folder = TempDir::new().unwrap();
        let data = folder.path().join("new");
        let restored = elsewhere(&service, &["restore", file], &data);
        assert!(restored.status.success(), "{}", said(&restored));
        let users = elsewhere(&service, &["user", "list", "--json"], &data);
        assert!(String::from_utf8_lossy(&users.stdout).contains("alice@example.com"));
    }
    let twice = service.run(&["backup", "saved"]);
    assert_eq!(twice.status.code(), Some(1));
    assert!(said(&twice).contains("--replace"));
    assert!(service.run(&["backup", "saved", "--replace"]).status.success());
}

#[test]
fn a_backup_goes_through_pipes() {
    let service = Service::empty();
    kiosk(&service);
    let _running = service.serve();
    let made = service.run(&["backup", "-"]);
    assert!(made.status.success());
    assert!(said(&made).contains("A restore needs it"), "{}", said(&made));
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("new");
    let restore = |bytes: &[u8]| {
        let mut command = service.command(&["restore", "-", "--master-key", "data/master.key"]);
        run_with_input(command.env("IDSVC_DATA_DIR", &data), bytes)
    };
    for end in [0, 5, 100, made.stdout.len() / 2, made.stdout.len() - 1] {
        let refused = restore(&made.stdout[..end]);
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(said(&refused).lines().count(), 1, "{}", said(&refused));
        assert!(!data.exists(), "{end}");
    }
    let mut changed = made.stdout.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    let refused = restore(&changed);
    assert_eq!(refused.status.code(), Some(1));
    assert!(!data.exists(), "{}", said(&refused));
    // A copy of the database, as an upgrade makes it, is put back and not restored.
    let refused = restore(&fs::read(service.data().join("idsvc.redb")).unwrap());
    assert!(
        said(&refused).contains("put it in the place of idsvc.redb"),
        "{}",
        said(&refused)
    );
    let restored = restore(&made.stdout);
    assert!(restored.status.success(), "{}", said(&restored));
    let again = restore(&made.stdout);
    assert!(said(&again).contains("is there already"), "{}", said(&again));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let unwritable = service.command(&["backup", "-"]).stdout(full).output().unwrap();
    assert_eq!(unwritable.status.code(), Some(1));
    assert!(
        said(&unwritable).contains("cannot be written"),
        "{}",
        said(&unwritable)
    );
    assert_eq!(service.run(&["backup", "-", "--json"]).status.code(), Some(2));
}

#[test]
fn another_master_key_in_the_target_is_refused_and_left_alone() {
    let service = Service::empty();
    kiosk(&service);
    service.json(&["backup", "saved", "--json", "--with-master-key"]);
    let other = Service::empty();
    kiosk(&other);
    let foreign = other.data();
    fs::remove_file(foreign.join("idsvc.redb")).unwrap();
    let before = fs::read(foreign.join("master.key")).unwrap();
    let refused = elsewhere(&service, &["restore", "saved"], &foreign);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("another master key"),
        "{}",
        said(&refused)
    );
    assert_eq!(fs::read(foreign.join("master.key")).unwrap(), before);
    assert_eq!(names(&foreign), ["events", "master.key"]);
}

/// A database that was moved away may come back, and there is what it wrote last.
#[test]
fn nothing_is_restored_beside_the_journal_of_another_database() {
    let service = Service::empty();
    kiosk(&service);
    service.json(&["backup", "saved", "--with-master-key", "--json"]);
    let data = service.folder.path().join("elsewhere");
    fs::create_dir(&data).unwrap();
    let journal = data.join("idsvc.redb.journal");
    fs::write(&journal, "the last writes").unwrap();
    let refused = elsewhere(&service, &["restore", "saved"], &data);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("idsvc.redb.journal is there already"),
        "{}",
        said(&refused)
    );
    assert_eq!(names(&data), ["idsvc.redb.journal"]);
    assert_eq!(fs::read(&journal).unwrap(), b"the last writes");
}

/// It would go on with the database that was moved away, and what it writes there would be lost.
#[test]
fn nothing_is_restored_under_a_running_service() {
    let service = Service::empty();
    let basic = kiosk(&service);
    service.json(&["backup", "saved", "--with-master-key", "--json"]);
    let data = service.data();
    let mut running = service.serve();
    for is_moved in [false, true] {
        if is_moved {
            fs::rename(data.join("idsvc.redb"), data.join("old.redb")).unwrap();
            fs::rename(data.join("idsvc.redb.journal"), data.join("old.redb.journal")).unwrap();
        }
        let refused = service.run(&["restore", "saved"]);
        assert_eq!(refused.status.code(), Some(1), "{is_moved}");
        let said = said(&refused);
        let sentence = if is_moved {
            "data: stop it first"
        } else {
            "or stop the service and move the file away"
        };
        assert!(said.contains(sentence), "{said}");
        assert_eq!(data.join("idsvc.redb").exists(), !is_moved);
    }
    running.kill();
    // No process listens on the socket that it left.
    assert!(data.join("control.sock").exists());
    service.json(&["restore", "saved", "--json"]);
    let running = service.serve();
    assert_eq!(token(&running, &basic, &[("grant_type", ANONYMOUS)]).0, 200);
}

#[test]
fn a_disk_that_fills_up_leaves_no_half_backup() {
    let service = Service::empty();
    kiosk(&service);
    let _running = service.serve();
    let script = "ulimit -f 1; exec \"$0\" backup saved";
    let output = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_idsvc")])
        .env_clear()
        .env("IDSVC_DATA_DIR", service.data())
        .current_dir(service.folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("cannot be written"), "{}", said(&output));
    assert_eq!(names(service.folder.path()), ["data", "log"]);
}

#[test]
fn what_a_killed_backup_or_restore_left_goes_and_what_is_under_way_stays() {
    const LEFT: &str = "0123456789abcdef0123456789abcdef.partial";
    let service = Service::empty();
    kiosk(&service);
    service.json(&["backup", "saved", "--with-master-key", "--json"]);
    let folder = service.folder.path();
    let data = folder.join("new");
    fs::create_dir(&data).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.join(format!("{name}.{LEFT}"));
        fs::write(&path, text).unwrap();
        path
    };
    let cut = [write("monday", "idsvc backup 1\n{"), write("tuesday", "")];
    let others = [write("film", "not ours"), write("new/notes", "")];
    let database = write("new/idsvc.redb", "half");
    let busy = write("wednesday", "idsvc b");
    let held = fs::File::open(&busy).unwrap();
    held.lock().unwrap();
    service.json(&["backup", "again", "--json"]);
    assert!(cut.iter().all(|path| !path.exists()) && others.iter().all(|path| path.exists()));
    assert!(busy.exists());
    let restoring = fs::File::open(&data).unwrap();
    restoring.lock().unwrap();
    let refused = elsewhere(&service, &["restore", "saved"], &data);
    assert!(said(&refused).contains("under way"), "{}", said(&refused));
    assert!(database.exists());
    drop(restoring);
    let restored = elsewhere(&service, &["restore", "saved"], &data);
    assert!(
        restored.status.success() && !database.exists(),
        "{}",
        said(&restored)
    );
    assert!(others.iter().all(|path| path.exists()));
}

#[test]
fn backups_of_one_second_have_names_of_their_own() {
    let service = Service::empty();
    kiosk(&service);
    let _running = service.serve();
    let files: BTreeSet<_> = (0..4)
        .map(|_| text(&service.json(&["backup", "--json"])["file"]))
        .collect();
    assert_eq!(files.len(), 4, "{files:?}");
    assert!(
        files
            .iter()
            .all(|file| file.ends_with(".backup") && Path::new(file).exists())
    );
}

#[test]
fn a_service_backs_itself_up_unless_told_not_to() {
    let service = Service::empty();
    kiosk(&service);
    let _running = service.serve();
    let folder = service.data().join("backups");
    let begun = Instant::now();
    let made = loop {
        let made = if folder.exists() {
            names(&folder)
        } else {
            Vec::new()
        };
        if let [name] = &made[..]
            && name.ends_with(".backup")
        {
            break name.clone();
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{}", service.log());
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(made.starts_with("scheduled-"));
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let target = TempDir::new().unwrap();
    let data = target.path().join("new");
    let file = folder.join(&made);
    let words = [
        "restore",
        file.to_str().unwrap(),
        "--master-key",
        "data/master.key",
    ];
    assert!(elsewhere(&service, &words, &data).status.success());
    let told = || {
        let events = service.json(&["events", "--about", file.to_str().unwrap(), "--json"]);
        events
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["event"].clone())
            .collect::<Vec<_>>()
    };
    while told().is_empty() {
        assert!(begun.elapsed() < Duration::from_mins(1), "{}", service.log());
    }
    assert_eq!(told(), ["backed_up"]);
    let asked = service.json(&["events", "--about", "backup", "--json"]);
    assert_eq!(asked, serde_json::json!([]), "nobody asked for one");
    let short = service.run(&["config", "check", "--backup-interval", "5s"]);
    assert!(said(&short).contains("at least 1m, or off"), "{}", said(&short));
    assert!(
        service
            .run(&["config", "check", "--backup-interval", "off"])
            .status
            .success()
    );
}

/// Everything in a folder, with whom it belongs to.
fn owners(folder: &Path, into: &mut Vec<(PathBuf, (u32, u32))>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let found = fs::symlink_metadata(&path).unwrap();
        if found.is_dir() {
            owners(&path, into);
        }
        into.push((path, (found.uid(), found.gid())));
    }
}

#[test]
fn what_root_makes_in_a_data_directory_belongs_to_whom_that_belongs_to() {
    const SERVICE: (u32, u32) = (64_242, 64_243);
    let service = Service::empty();
    let name = "files of root";
    if fs::metadata(service.folder.path()).unwrap().uid() != 0 {
        return report(name, "NOT RUN: only root makes files that belong to others");
    }
    let mut running = service.serve();
    kiosk(&service);
    service.json(&["backup", "saved", "--with-master-key", "--json"]);
    running.kill();
    let data = service.data();
    let belongs = fs::metadata(&data).unwrap();
    assert_eq!(
        (belongs.uid(), belongs.gid()),
        (0, 0),
        "what root makes elsewhere is its own"
    );
    fs::remove_dir_all(&data).unwrap();
    let told = service.run(&["restore", "saved"]);
    assert!(
        said(&told).contains("The data belongs to root"),
        "{}",
        said(&told)
    );
    fs::remove_dir_all(&data).unwrap();

    fs::create_dir(&data).unwrap();
    chown(&data, Some(SERVICE.0), Some(SERVICE.1)).unwrap();
    let told = service.run(&["restore", "saved"]);
    assert!(
        told.status.success() && !said(&told).contains("root"),
        "{}",
        said(&told)
    );
    for words in [
        &["backup"][..],
        &["backup", "data/backups/by-name"],
        &["user", "add", "alice@example.com", "--no-password"],
        &["theme", "new", "acme", "--html", "--language", "nl"],
    ] {
        let done = service.run(words);
        assert!(done.status.success(), "{words:?}: {}", said(&done));
    }
    let mut found = Vec::new();
    owners(&data, &mut found);
    for part in [
        "idsvc.redb",
        "master.key",
        "events/events.jsonl",
        "backups/by-name",
        "themes/acme/locales/nl.toml",
    ] {
        assert!(
            found.iter().any(|(path, _)| *path == data.join(part)),
            "{part}: {found:?}"
        );
    }
    found.retain(|(_, owner)| *owner != SERVICE);
    assert!(found.is_empty(), "{found:?}");

    let doctor = service.run(&["doctor", "--all"]);
    assert!(
        shown(&doctor).contains("the service can use all files in it"),
        "{}",
        shown(&doctor)
    );
    chown(data.join("backups"), Some(0), Some(0)).unwrap();
    let doctor = service.run(&["doctor"]);
    let remedy = format!(
        "chown -R {}:{} {}",
        SERVICE.0,
        SERVICE.1,
        data.join("backups").display()
    );
    assert!(shown(&doctor).contains(&remedy), "{}", shown(&doctor));

    let fresh = service.folder.path().join("fresh");
    fs::create_dir(&fresh).unwrap();
    chown(&fresh, Some(SERVICE.0), Some(SERVICE.1)).unwrap();
    let added = elsewhere(
        &service,
        &["user", "add", "bob@example.com", "--no-password"],
        &fresh,
    );
    assert!(added.status.success(), "{}", said(&added));
    owners(&fresh, &mut found);
    assert!(
        found.len() >= 4 && found.iter().all(|(_, owner)| *owner == SERVICE),
        "{found:?}"
    );
}

#[test]
fn a_directory_in_the_place_of_the_file_is_told_from_a_file_in_the_way() {
    let service = Service::empty();
    kiosk(&service);
    fs::create_dir(service.folder.path().join("nas")).unwrap();
    for flags in [&["backup", "nas"][..], &["backup", "nas", "--replace"]] {
        let refused = service.run(flags);
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            said(&refused).contains("nas is a directory: name a file in it, as in nas/idsvc-"),
            "{}",
            said(&refused)
        );
    }
    assert!(names(&service.folder.path().join("nas")).is_empty());
}

#[test]
fn a_backup_replaces_a_backup_and_nothing_else() {
    let service = Service::empty();
    kiosk(&service);
    let folder = service.folder.path();
    service.json(&["backup", "earlier", "--json"]);
    fs::write(folder.join("notes"), "a note").unwrap();
    symlink("earlier", folder.join("link")).unwrap();
    symlink("nowhere", folder.join("loose")).unwrap();
    let running = service.serve();
    let kept =
        ["data/master.key", "notes", "earlier"].map(|name| (name, fs::read(folder.join(name)).unwrap()));
    let database = fs::metadata(folder.join("data/idsvc.redb")).unwrap().ino();
    for name in [
        "data/idsvc.redb",
        "data/master.key",
        "data/control.sock",
        "notes",
        "link",
        "loose",
        "/dev/null",
    ] {
        for words in [&["backup", name, "--replace"][..], &["backup", name]] {
            let refused = service.run(words);
            assert_eq!(refused.status.code(), Some(1), "{words:?}");
            let said = said(&refused);
            assert!(
                said.contains(&format!(
                    "{name} is no backup and no file that age encrypted, and nothing else is replaced"
                )),
                "{said}"
            );
        }
    }
    for (name, content) in kept {
        assert_eq!(fs::read(folder.join(name)).unwrap(), content, "{name}");
    }
    assert_eq!(
        fs::metadata(folder.join("data/idsvc.redb")).unwrap().ino(),
        database
    );
    assert!(fs::symlink_metadata(folder.join("link")).unwrap().is_symlink());
    drop(running);
    fs::write(folder.join("empty"), "").unwrap();
    for name in ["earlier", "empty"] {
        let before = fs::metadata(folder.join(name)).unwrap().ino();
        service.json(&["backup", name, "--replace", "--json"]);
        assert_ne!(fs::metadata(folder.join(name)).unwrap().ino(), before, "{name}");
        let copied = elsewhere(
            &service,
            &["restore", name, "--master-key", "data/master.key"],
            &folder.join(format!("new-{name}")),
        );
        assert!(copied.status.success(), "{}", said(&copied));
    }
}
