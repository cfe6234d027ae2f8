//! Reading while a compaction or a close hangs.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::{Disk, RAW, put, wait};
use crate::store::{Store, StoreError};

#[test]
fn a_reader_waits_for_what_is_done_to_the_whole_storage_until_that_lasts_too_long() {
    let compact = |store: Store| drop(wait(store.compact()));
    for operation in [compact, Store::close] {
        for stall_timeout in [Duration::ZERO, Duration::from_hours(1)] {
            let disk = Disk::new();
            let store = disk.store_with(stall_timeout);
            put(&store, "a", "kept").unwrap();
            while !store.is_writable() {
                std::thread::yield_now();
            }
            disk.hangs.store(true, Ordering::SeqCst);
            std::thread::scope(|scope| {
                let (worker, reader) = (store.clone(), store.clone());
                scope.spawn(move || operation(worker));
                while !disk.keeps_waiting.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                let (sender, receiver) = channel();
                scope.spawn(move || {
                    sender.send(reader.read_blocking(|snapshot| Ok(RAW.get(snapshot, "a")?.is_some())))
                });
                if stall_timeout.is_zero() {
                    let refused = receiver.recv_timeout(Duration::from_secs(10));
                    disk.hangs.store(false, Ordering::SeqCst);
                    assert!(matches!(refused, Ok(Err(StoreError::Stalled(_)))), "{refused:?}");
                } else {
                    let early = receiver.recv_timeout(Duration::from_millis(50));
                    disk.hangs.store(false, Ordering::SeqCst);
                    assert!(early.is_err(), "{early:?}");
                    let read = receiver.recv().unwrap();
                    assert!(matches!(read, Ok(false) | Err(StoreError::Closed)), "{read:?}");
                }
            });
        }
    }
}
