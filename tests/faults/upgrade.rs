//! A later release brings the data of this one up: whole, with a copy beside it, or not at all.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use idsvc::store::engine::redb::journal_of;
use idsvc::store::schema::{Schema, meta_put};
use idsvc::store::{OpenError, Options, Store};

use super::kiosk::Kiosk;
use super::{on_a_small_disk, refused_in_one_sentence};
use crate::harness::process::Service;

const LATER: Schema = Schema::new(&[|_| Ok(()), |tx| meta_put(tx, "from", "the future")]);

fn copy_of(database: &Path) -> PathBuf {
    database.with_extension("redb.before-v3")
}

/// The data of a service that ended in one of two ways is brought up, and then its copy is put in its place.
fn the_copy_goes_on(is_killed: bool) {
    let service = Service::with_client();
    let database = service.data().join("idsvc.redb");
    let kiosk = Kiosk::register(&service);
    let mut running = service.serve();
    let unused = kiosk.enter(&running).unwrap();
    let mut used = kiosk.enter(&running).unwrap();
    used = kiosk.refresh(&running, &used).unwrap();
    let ended = kiosk.enter(&running).unwrap();
    kiosk.revoke(&running, &ended);
    if is_killed {
        running.kill();
    } else {
        running.terminate();
    }
    drop(running);
    let has_journal = fs::metadata(journal_of(&database)).is_ok_and(|journal| journal.len() > 0);
    assert_eq!(has_journal, is_killed);

    Store::open_with(&database, Options::default(), &LATER)
        .unwrap()
        .close();
    refused_in_one_sentence(&service, &["serve"], "install the newer release");
    fs::rename(copy_of(&database), &database).unwrap();
    let running = service.serve();
    for token in [&unused, &used] {
        let next = kiosk.refresh(&running, token).unwrap();
        kiosk.refresh(&running, &next).unwrap();
    }
    assert_eq!(kiosk.refresh(&running, &ended).unwrap_err().status, 400);
}

#[test]
fn the_copy_that_an_upgrade_makes_goes_on_in_the_release_before_it() {
    the_copy_goes_on(false);
}

#[test]
fn what_a_killed_service_wrote_last_is_in_the_copy_that_an_upgrade_makes() {
    the_copy_goes_on(true);
}

#[test]
fn an_upgrade_without_room_for_its_copy_is_refused_and_takes_no_room() {
    let Some((service, room)) = on_a_small_disk("upgrade") else {
        return;
    };
    let data = service.data();
    let kiosk = Kiosk::register(&service);
    let mut running = service.serve();
    let token = kiosk.enter(&running).unwrap();
    running.terminate();
    drop(running);
    let inside = room.inside(&data);
    let database = inside.join("idsvc.redb");
    let ballast = inside.join("ballast");
    let mut filling = fs::File::create(&ballast).unwrap();
    while filling.write_all(&[1; 4096]).is_ok() {}
    let size = fs::metadata(&database).unwrap().len();
    let filled = filling.metadata().unwrap().len();
    filling.set_len(filled - size / 2).unwrap();
    drop(filling);
    for _ in 0..2 {
        let refused = Store::open_with(&database, Options::default(), &LATER);
        let Err(OpenError::Io { path, .. }) = refused else {
            panic!("there was room");
        };
        assert_eq!(path, copy_of(&database));
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
    let mut running = service.serve();
    kiosk.refresh(&running, &token).unwrap();
    running.terminate();
    let opened = Store::open_with(&database, Options::default(), &LATER);
    opened.unwrap().close();
    assert!(copy_of(&database).exists());
}
