//! Data of an earlier release is brought up to this one: whole, with a copy beside it, or not at all.

use std::fs;
use std::io::Write as _;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::thread;

use idsvc::identity::User;
use idsvc::store::engine::redb::{inspect, journal_of};
use idsvc::store::engine::{TableId, Tx};
use idsvc::store::record::{Record, Unreadable};
use idsvc::store::schema::{Schema, meta_put, stored};
use idsvc::store::table::Table;
use idsvc::store::{Options, Store, StoreError, tables};

use super::kiosk::Kiosk;
use super::refused_in_one_sentence;
use super::room::Room;
use crate::harness::process::{Service, said};
use crate::harness::report::report;

type Ager = fn(&[u8]) -> Result<Vec<u8>, Unreadable>;

/// A row as releases with schema 1 wrote it.
fn json<R: Record>(row: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let mut written = vec![1];
    serde_json::to_writer(&mut written, &R::decode(row)?).unwrap();
    Ok(written)
}

fn aged<K, R: Record>(table: Table<K, R>) -> (TableId, Ager) {
    (table.id(), json::<R>)
}

/// The names of what every user's record has, and what they were in version 2: each with the byte of its length before it,
/// as `MessagePack` has them (`fixstr`).
const USER_NAMES: [(&[u8], &[u8]); 8] = [
    (b"\xa2id", b"\xa4uuid"),
    (b"\xa4acct", b"\xaaaccount_id"),
    (b"\xa4type", b"\xa9user_type"),
    (b"\xa3org", b"\xacorganization"),
    (b"\xa3src", b"\xa6source"),
    (b"\xa2on", b"\xa7enabled"),
    (b"\xa4from", b"\xaacreated_at"),
    (b"\xa2at", b"\xaaupdated_at"),
];

/// A user's row as releases with schema 2 wrote it.
fn user_of_schema_2(row: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let mut written = row.to_vec();
    written[0] = 2;
    for (name, before) in USER_NAMES {
        let at = written.windows(name.len()).position(|bytes| bytes == name);
        let at = at.unwrap_or_else(|| panic!("{}", name.escape_ascii()));
        written.splice(at..at + name.len(), before.iter().copied());
    }
    assert!(User::decode(&written)? == User::decode(row)?, "another user");
    Ok(written)
}

/// The tables whose rows releases with this schema wrote otherwise, and how.
fn agers(schema: u32) -> Vec<(TableId, Ager)> {
    if schema == 2 {
        return vec![(tables::USERS.id(), user_of_schema_2)];
    }
    vec![
        aged(tables::CLIENTS),
        aged(tables::USERS),
        aged(tables::USERS_BY_LOGIN_NAME),
        aged(tables::SIGNING_KEYS),
        aged(tables::LOGIN_TRANSACTIONS),
        aged(tables::CODES),
        aged(tables::FAMILIES),
        aged(tables::SESSIONS),
        aged(tables::CONSENTS),
        aged(tables::API_KEY_USES),
        aged(tables::PROVIDERS),
        aged(tables::USERS_BY_IDENTITY),
    ]
}

/// Turns the data of a service that does not run into what releases with this schema kept. How many rows.
fn age(database: &Path, to: u32) -> usize {
    let store = Store::open(database, Options::default()).unwrap();
    let rows = store.write_blocking("age", move |tx| {
        let mut count = 0;
        for (table, older) in agers(to) {
            let rows = rows_of(tx, table)?;
            for (key, row) in &rows {
                tx.put(table, key, &older(row).unwrap())?;
            }
            count += rows.len();
        }
        meta_put(tx, "schema", &to.to_string())?;
        Ok(count)
    });
    store.close();
    rows.unwrap()
}

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn rows_of(tx: &dyn Tx, table: TableId) -> Result<Rows, StoreError> {
    let mut rows = Vec::new();
    tx.range(table, Bound::Unbounded, Bound::Unbounded, &mut |key, row| {
        rows.push((key.to_vec(), row.to_vec()));
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(rows)
}

/// Has a process of an earlier release write the refresh tokens last and then be killed: they are in its journal only. How
/// many.
fn kill_the_last_to_write(database: &Path, schema: &Schema) -> usize {
    let families = tables::FAMILIES.id();
    let open = || Store::open_with(database, Options::default(), schema).unwrap();
    let store = open();
    let taken = store.write_blocking("take", move |tx| {
        let rows = rows_of(tx, families)?;
        for (key, _) in &rows {
            tx.remove(families, key)?;
        }
        Ok(rows)
    });
    store.close();
    let rows = taken.unwrap();
    let count = rows.len();
    let store = open();
    // What is written first after a start may be in the database itself.
    for _ in 0..3 {
        let version = schema.version().to_string();
        let first = store.write_blocking("first", move |tx| meta_put(tx, "schema", &version));
        first.unwrap();
    }
    let put = store.write_blocking("put", move |tx| {
        for (key, row) in &rows {
            tx.put(families, key, row)?;
        }
        Ok(())
    });
    put.unwrap();
    // So they are if the process ends now.
    let journal = journal_of(database);
    let files = [database, &journal].map(|file| fs::read(file).unwrap());
    store.close();
    fs::write(database, &files[0]).unwrap();
    assert!(!journal.exists(), "a store that was closed is one file");
    let alone = inspect(database, |snapshot| Ok(tables::FAMILIES.count(snapshot)?));
    assert!(
        !matches!(alone, Ok(Some(1..))),
        "they are in the database: {alone:?}"
    );
    fs::write(journal, &files[1]).unwrap();
    count
}

/// The schema of a database that nobody has open.
fn schema(database: &Path) -> Option<u32> {
    inspect(database, |snapshot| Ok(stored(snapshot)?))
        .unwrap()
        .unwrap()
}

fn copy_of(database: &Path) -> PathBuf {
    database.with_extension("redb.before-v3")
}

/// The data of a service, made into that of an earlier release by `age`, is brought up from this schema and goes on.
fn is_copied_brought_up_and_goes_on(from: u32, age: impl Fn(&Path)) {
    let service = Service::with_client();
    let database = service.folder.path().join("data/idsvc.redb");
    let kiosk = Kiosk::register(&service);
    let mut running = service.serve();
    let tokens = kiosk.tokens(&running);
    let mut used = kiosk.enter(&running).unwrap();
    used = kiosk.refresh(&running, &used).unwrap();
    let ended = kiosk.enter(&running).unwrap();
    kiosk.revoke(&running, &ended);
    running.terminate();
    drop(running);
    age(&database);

    let mut running = service.serve();
    let access_token = tokens["access_token"].as_str().unwrap();
    assert_eq!(kiosk.introspect(&running, access_token).json()["active"], true);
    for token in [tokens["refresh_token"].as_str().unwrap(), &used] {
        let next = kiosk.refresh(&running, token).unwrap();
        kiosk.refresh(&running, &next).unwrap();
    }
    assert_eq!(kiosk.refresh(&running, &ended).unwrap_err().status, 400);
    assert_eq!(
        service.json(&["client", "show", "web", "--json"])["client_id"],
        "web"
    );
    running.terminate();
    drop(running);
    assert_eq!(
        (schema(&database), schema(&copy_of(&database))),
        (Some(3), Some(from))
    );
    let copied = inspect(&copy_of(&database), |snapshot| {
        Ok(tables::FAMILIES.count(snapshot)?)
    });
    assert_eq!(copied.unwrap(), Some(3));
}

/// No step is taken yet, and one is.
const EARLIER: [Schema; 2] = [Schema::new(&[]), Schema::new(&[|_| Ok(())])];

#[test]
fn data_of_an_earlier_schema_is_copied_brought_up_and_goes_on() {
    for from in [1, 2] {
        is_copied_brought_up_and_goes_on(from, |database| {
            assert!(age(database, from) > 2);
            assert_eq!(schema(database), Some(from));
        });
    }
}

#[test]
fn data_of_an_earlier_release_that_was_killed_is_brought_up_with_its_journal() {
    for (from, earlier) in (1..).zip(&EARLIER) {
        is_copied_brought_up_and_goes_on(from, |database| {
            age(database, from);
            assert_eq!(kill_the_last_to_write(database, earlier), 3);
            assert!(fs::metadata(journal_of(database)).unwrap().len() > 0);
        });
    }
}

/// A monitor looks at the service every minute, also at the one in which the new release starts.
#[test]
fn a_command_beside_an_upgrade_spoils_neither_it_nor_its_copy() {
    let service = Service::with_client();
    let database = service.folder.path().join("data/idsvc.redb");
    for _ in 0..3 {
        age(&database, 1);
        let commands = thread::scope(|scope| {
            // A machine without time for either keeps them waiting for each other longer than a command does.
            let once_it_can = || loop {
                let done = service.run(&["client", "list"]);
                if !said(&done).contains("is in use by") {
                    break done;
                }
            };
            let commands = [0; 3].map(|_| scope.spawn(once_it_can));
            service.serve().terminate();
            commands.map(|command| command.join().unwrap())
        });
        for command in commands {
            assert!(command.status.success(), "{command:?}");
        }
        assert_eq!(
            (schema(&database), schema(&copy_of(&database))),
            (Some(3), Some(1))
        );
    }
    age(&database, 1);
    let told = said(&service.run(&["client", "list"]));
    assert!(
        told.contains("has been brought up to this one; how it was is in"),
        "{told}"
    );
    assert!(told.contains("idsvc.redb.before-v3"), "{told}");
    assert!(
        service.run(&["client", "list"]).stderr.is_empty(),
        "it is not said again"
    );
}

#[test]
fn an_upgrade_without_room_for_its_copy_is_refused_and_takes_no_room() {
    let service = Service::new();
    let data = service.folder.path().join("data");
    let Some(room) = Room::mount(&data, "64m") else {
        return report("upgrade", "NOT RUN: file systems cannot be mounted here");
    };
    let service = service.by(&room.wrapper());
    let kiosk = Kiosk::register(&service);
    let mut running = service.serve();
    let token = kiosk.enter(&running).unwrap();
    running.terminate();
    drop(running);
    let inside = room.inside(&data);
    let database = inside.join("idsvc.redb");
    age(&database, 1);
    let ballast = inside.join("ballast");
    let mut filling = fs::File::create(&ballast).unwrap();
    while filling.write_all(&[1; 4096]).is_ok() {}
    let size = fs::metadata(&database).unwrap().len();
    let filled = filling.metadata().unwrap().len();
    filling.set_len(filled - size / 2).unwrap();
    drop(filling);
    for _ in 0..2 {
        refused_in_one_sentence(&service, &["serve"], "before-v3");
        let left = fs::read_dir(&inside).unwrap();
        let names: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert!(
            names
                .iter()
                .all(|name| !name.to_str().unwrap().contains("before")),
            "{names:?}"
        );
    }
    fs::remove_file(&ballast).unwrap();
    let running = service.serve();
    kiosk.refresh(&running, &token).unwrap();
    assert_eq!(schema(&copy_of(&database)), Some(1));
}
