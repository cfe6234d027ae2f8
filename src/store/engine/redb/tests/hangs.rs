//! Reading on a disk that does not come back from what is done to the storage as a whole.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::{Disk, RAW, put, wait};
use crate::store::{Store, StoreError};

#[test]
fn a_reader_waits_for_what_is_done_to_the_whole_storage_until_that_lasts_too_long() {
    let compact = |store: Store| drop(wait(store.compact()));
    for deed in [compact, Store::close] {
        for patience in [Duration::ZERO, Duration::from_hours(1)] {
            let disk = Disk::new();
            let store = disk.store_with(patience);
            put(&store, "a", "kept").unwrap();
            while !store.is_writable() {
                std::thread::yield_now();
            }
            disk.hangs.store(true, Ordering::SeqCst);
            std::thread::scope(|scope| {
                let (doer, reader) = (store.clone(), store.clone());
                scope.spawn(move || deed(doer));
                while !disk.keeps_waiting.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                let (tell, told) = channel();
                scope.spawn(move || tell.send(reader.read(|snapshot| Ok(RAW.get(snapshot, "a")?.is_some()))));
                if patience.is_zero() {
                    let refused = told.recv_timeout(Duration::from_secs(10));
                    disk.hangs.store(false, Ordering::SeqCst);
                    assert!(matches!(refused, Ok(Err(StoreError::Stalled(_)))), "{refused:?}");
                } else {
                    let early = told.recv_timeout(Duration::from_millis(50));
                    disk.hangs.store(false, Ordering::SeqCst);
                    assert!(early.is_err(), "{early:?}");
                    let read = told.recv().unwrap();
                    assert!(matches!(read, Ok(false) | Err(StoreError::Closed)), "{read:?}");
                }
            });
        }
    }
}
