//! Data of an earlier release is brought up to this one: whole, with a copy beside it, or not at all.

use std::fs;
use std::io::Write as _;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::thread;

use idsvc::store::backend::TableId;
use idsvc::store::backend::redb::inspect;
use idsvc::store::record::{Record, Unreadable};
use idsvc::store::schema::{meta_put, stored};
use idsvc::store::table::Table;
use idsvc::store::{Options, Store, tables};

use super::kiosk::Kiosk;
use super::room::Room;
use super::{refused_in_one_sentence, report};
use crate::harness::process::{Service, said};

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

/// Turns the data of a service that does not run into what releases with schema 1 kept. How many rows.
fn age(database: &Path) -> usize {
    let store = Store::open(database, Options::default()).unwrap();
    let rows = store.write_blocking("age", |tx| {
        let mut count = 0;
        for (table, json) in [
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
        ] {
            let mut rows = Vec::new();
            tx.range(table, Bound::Unbounded, Bound::Unbounded, &mut |key, row| {
                rows.push((key.to_vec(), json(row).unwrap()));
                Ok(ControlFlow::Continue(()))
            })?;
            for (key, row) in &rows {
                tx.put(table, key, row)?;
            }
            count += rows.len();
        }
        meta_put(tx, "schema", "1")?;
        Ok(count)
    });
    store.close();
    rows.unwrap()
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

#[test]
fn data_of_schema_1_is_copied_brought_up_and_goes_on() {
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
    assert!(age(&database) > 5);
    assert_eq!(schema(&database), Some(1));

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
        (Some(3), Some(1))
    );
}

/// A monitor looks at the service every minute, also at the one in which the new release starts.
#[test]
fn a_command_beside_an_upgrade_spoils_neither_it_nor_its_copy() {
    let service = Service::with_client();
    let database = service.folder.path().join("data/idsvc.redb");
    for _ in 0..3 {
        age(&database);
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
    age(&database);
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
    age(&database);
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
