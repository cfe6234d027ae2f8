//! `idsvc migrate`, and a backup on its way into a PostgreSQL database and out of it.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Output, Stdio};

use idsvc::data_dir::master_key::master_key;
use idsvc::seal::Sealer;
use idsvc::store::backup::BackupReader;
use idsvc::store::schema::meta_put;
use idsvc::store::{Address, Options, Store};

use crate::harness::postgres::{Cluster, Database, until};
use crate::harness::process::{Service, run_with_input, said, shown};

/// The tables that idsvc has in the database.
const TABLES: &str = "SELECT count(*) FROM pg_tables WHERE schemaname = 'idsvc'";

/// A service with a backup `saved`, whose users fill several pages.
fn saved() -> Service {
    let service = Service::with_client();
    let lines: Vec<_> = (0..2500)
        .map(|number| format!("{{\"email\":\"user-{number}@example.com\"}}\n"))
        .collect();
    let imported = run_with_input(
        &mut service.command(&["user", "import", "-"]),
        lines.concat().as_bytes(),
    );
    assert!(imported.status.success(), "{}", said(&imported));
    drop(service.serve());
    service.json(&["backup", "saved", "--with-master-key", "--json"]);
    service
}

/// Runs a command with another data directory, and with this database unless its data is in the directory.
fn run(service: &Service, data: &str, database: Option<&Database>, words: &[&str]) -> Output {
    let mut command = service.command(words);
    command.env("IDSVC_DATA_DIR", service.folder.path().join(data));
    if let Some(database) = database {
        command.env("IDSVC_STORE_URL", database.url());
    }
    command.output().unwrap()
}

fn refused(done: &Output, reason: &str) {
    assert_eq!(done.status.code(), Some(1));
    assert!(said(done).contains(reason), "{}", said(done));
    assert_eq!(said(done).lines().count(), 1, "{}", said(done));
}

fn rows(service: &Service, backup: &str) -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let folder = service.folder.path();
    let key = master_key(&folder.join("data")).unwrap();
    let backup = BackupReader::open(File::open(folder.join(backup)).unwrap()).unwrap();
    let mut source = backup.rows(Sealer::new(&key).backup_key());
    let mut rows = Vec::new();
    while let Some((table, key, value)) = source.next_row().unwrap() {
        rows.push((table.name(), key, value));
    }
    rows
}

#[test]
fn a_backup_has_the_same_rows_after_its_way_through_postgres() {
    let service = saved();
    let database = Cluster::shared().database("restore");
    let done = |data: &str, database: Option<&Database>, words: &[&str]| {
        let done = run(&service, data, database, words);
        assert!(done.status.success(), "{}", said(&done));
        shown(&done)
    };
    let told = done("node", Some(&database), &["restore", "saved"]);
    assert!(
        told.contains("database") && told.contains("postgres://"),
        "{told}"
    );
    let node = service.folder.path().join("node");
    assert_eq!(
        fs::read(node.join("master.key")).unwrap(),
        fs::read(service.data().join("master.key")).unwrap()
    );
    assert!(!node.join("idsvc.redb").exists());
    let user = ["user", "show", "user-2499@example.com", "--json"];
    done("node", Some(&database), &user);
    assert_eq!(done("node", Some(&database), &["migrate"]), "nothing to do\n");

    done(
        "node",
        Some(&database),
        &["backup", "from-postgres", "--with-master-key"],
    );
    done("file", None, &["restore", "from-postgres"]);
    done("file", None, &user);
    done("file", None, &["backup", "from-file"]);
    let first = rows(&service, "saved");
    assert!(first.len() > 5000);
    assert!(first == rows(&service, "from-postgres"));
    assert!(first == rows(&service, "from-file"));

    let again = run(&service, "node", Some(&database), &["restore", "saved"]);
    refused(&again, "has data already: restore into an empty database");
    let beside_a_file = run(&service, "file", Some(&database), &["restore", "saved"]);
    refused(&beside_a_file, "idsvc.redb is there");
}

#[test]
fn a_backup_that_is_damaged_or_interrupted_leaves_the_database_as_it_was() {
    let service = saved();
    let database = Cluster::shared().database("interrupted");
    let whole = fs::read(service.folder.path().join("saved")).unwrap();
    let node = service.folder.path().join("node");
    let command = || {
        let mut command = service.command(&["restore", "-"]);
        command
            .env("IDSVC_DATA_DIR", &node)
            .env("IDSVC_STORE_URL", database.url());
        command
    };
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    for damaged in [&changed[..], &whole[..whole.len() - 1]] {
        refused(&run_with_input(&mut command(), damaged), "the backup is");
        assert_eq!(database.sql(TABLES), "0");
        assert!(!node.exists());
    }

    let mut restore = command().stdin(Stdio::piped()).spawn().unwrap();
    let mut input = restore.stdin.take().unwrap();
    input.write_all(&whole[..whole.len() - 1]).unwrap();
    let copies = "SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation \
         WHERE mode = 'RowExclusiveLock' AND locktype = 'relation' AND database = \
         (SELECT oid FROM pg_database WHERE datname = current_database())";
    let holds_locks = || database.sql(copies) != "0";
    until(holds_locks, || "no COPY began".to_owned());
    restore.kill().unwrap();
    restore.wait().unwrap();
    until(|| !holds_locks(), || "the transaction stayed open".to_owned());
    assert_eq!(database.sql(TABLES), "0");

    assert_eq!(
        shown(&run(&service, "node", Some(&database), &["migrate"])),
        "the database is set up\n"
    );
    let restored = run_with_input(&mut command(), &whole);
    assert!(restored.status.success(), "{}", said(&restored));
}

#[test]
fn a_database_is_set_up_once_and_a_newer_one_is_refused() {
    let service = Service::new();
    let database = Cluster::shared().database("migrate");
    refused(&service.run(&["migrate"]), "there is no store.url");
    let node = |words: &[&str]| run(&service, "node", Some(&database), words);
    assert!(node(&["init"]).status.success());
    for words in [&["serve"][..], &["client", "list"], &["backup", "saved"]] {
        refused(&node(words), "is not set up for this release: run idsvc migrate");
    }
    let told = std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| node(&["migrate"])));
        let mut told = both.map(|migrated| shown(&migrated.join().unwrap()));
        told.sort();
        told
    });
    assert_eq!(told, ["nothing to do\n", "the database is set up\n"]);
    assert!(node(&["client", "list"]).status.success());
    let warning = "synchronous_standby_names: it is empty, so a failover loses";
    for words in [&["migrate"][..], &["doctor"]] {
        let done = node(words);
        let told = shown(&done) + &said(&done);
        assert!(told.contains(warning), "{told}");
    }

    let store = Store::connect(&Address::parse(&database.url()).unwrap(), Options::default()).unwrap();
    store
        .write_blocking("upgrade", |tx| meta_put(tx, "schema", "99"))
        .unwrap();
    for words in [&["serve"][..], &["client", "list"], &["migrate"]] {
        refused(&node(words), "install the newer release");
    }
}
