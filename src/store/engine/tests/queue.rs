//! Writes that wait in the queue, and how the store ends with them.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{Folder, NOTES, RAW, get, note, on_local_engines, put};
use crate::store::{OpenError, Options, Store, StoreError};

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Keeps the writer busy until it is opened, so that a test decides which writes queue up.
struct Gate {
    open: Sender<()>,
}

impl Gate {
    fn shut(store: &Store) -> Self {
        let (open, opened) = channel();
        let (begun, has_begun): (Sender<()>, Receiver<()>) = channel();
        let opened = Mutex::new(opened);
        let begun = Mutex::new(begun);
        let mut write = pin!(store.write("gate", move |_| -> Result<_, StoreError> {
            begun.lock().unwrap().send(()).unwrap();
            let _ = opened.lock().unwrap().recv();
            Ok(())
        }));
        assert!(poll_once(write.as_mut()).is_pending());
        has_begun.recv().unwrap();
        Self { open }
    }

    fn open(self) {
        self.open.send(()).unwrap();
    }
}

#[test]
fn a_write_that_fails_is_rolled_back_and_its_neighbours_are_kept() {
    on_local_engines(Options::default(), |store| {
        let gate = Gate::shut(&store);
        let mut before = pin!(store.write("before", |tx| NOTES.put(tx, "before", &note("kept"))));
        let mut failing = pin!(store.write("failing", |tx| {
            NOTES.put(tx, "failing", &note("lost"))?;
            Err::<(), _>(StoreError::Corrupt {
                table: "notes",
                what: "a test says so".to_owned(),
            })
        }));
        let mut harmless = pin!(store.write("harmless", |_| Err::<(), _>(StoreError::TooLarge(1))));
        let mut after = pin!(store.write("after", |tx| {
            assert_eq!(NOTES.get(tx, "before")?, Some(note("kept")));
            NOTES.put(tx, "after", &note("kept"))
        }));
        assert!(poll_once(before.as_mut()).is_pending());
        assert!(poll_once(failing.as_mut()).is_pending());
        assert!(poll_once(harmless.as_mut()).is_pending());
        assert!(poll_once(after.as_mut()).is_pending());
        gate.open();
        put(&store, "last", "kept").unwrap();
        assert!(matches!(poll_once(before.as_mut()), Poll::Ready(Ok(()))));
        assert!(matches!(
            poll_once(failing.as_mut()),
            Poll::Ready(Err(StoreError::Corrupt { .. }))
        ));
        assert!(matches!(
            poll_once(harmless.as_mut()),
            Poll::Ready(Err(StoreError::TooLarge(1)))
        ));
        assert!(matches!(poll_once(after.as_mut()), Poll::Ready(Ok(()))));
        assert_eq!(get(&store, "failing"), None);
        assert_eq!(store.read_blocking(|snapshot| NOTES.count(snapshot)).unwrap(), 3);
        assert_eq!(store.stats().reruns, 1);
        assert!(store.stats().largest_batch >= 3);
        assert!(store.is_writable());
    });
}

#[test]
fn as_many_writes_as_wait_share_one_commit() {
    const WRITES: u64 = 200;
    on_local_engines(Options::default(), |store| {
        let gate = Gate::shut(&store);
        let before = store.stats();
        let row = |number: u64| {
            store.write("row", move |tx| {
                RAW.put(tx, &number.to_string(), &"kept".to_owned())
            })
        };
        let mut waiting: Vec<_> = (0..WRITES).map(|number| Box::pin(row(number))).collect();
        for write in &mut waiting {
            assert!(poll_once(write.as_mut()).is_pending());
        }
        gate.open();
        put(&store, "last", "kept").unwrap();
        for write in &mut waiting {
            assert!(matches!(poll_once(write.as_mut()), Poll::Ready(Ok(()))));
        }
        let after = store.stats();
        // The gate and the last write may have a commit each.
        let commits = after.commits - before.commits;
        assert!(commits <= 3, "{commits} commits");
        assert_eq!(after.transactions - before.transactions, WRITES + 2);
        assert_eq!(
            store.read_blocking(|snapshot| RAW.count(snapshot)).unwrap(),
            WRITES
        );
    });
}

#[test]
fn a_storage_that_hangs_is_said_to_and_keeps_nobody_waiting() {
    let folder = Folder::new();
    let options = Options {
        stall_timeout: Duration::ZERO,
        ..Options::default()
    };
    let store = Store::open(&folder.file(), options).unwrap();
    put(&store, "before", "kept").unwrap();
    while !store.is_writable() {
        std::thread::yield_now();
    }
    let gate = Gate::shut(&store);
    assert!(store.stalled().is_some_and(|stalled| !stalled.is_compaction) && !store.is_writable());
    let refused = put(&store, "refused", "lost");
    assert!(matches!(refused, Err(StoreError::Stalled(_))), "{refused:?}");
    assert_eq!(get(&store, "before"), Some(note("kept")));
    gate.open();
    while !store.is_writable() {
        std::thread::yield_now();
    }
    put(&store, "after", "kept").unwrap();
    assert_eq!(get(&store, "refused"), None);
}

#[test]
fn a_full_queue_says_busy_at_once() {
    let options = Options {
        queue_len: 2,
        batch_max: 1,
        ..Options::default()
    };
    on_local_engines(options, |store| {
        let gate = Gate::shut(&store);
        let mut one = pin!(store.write("one", |_| Ok::<_, StoreError>(1)));
        let mut two = pin!(store.write("two", |_| Ok::<_, StoreError>(2)));
        let mut three = pin!(store.write("three", |_| Ok::<_, StoreError>(3)));
        assert!(poll_once(one.as_mut()).is_pending());
        assert!(poll_once(two.as_mut()).is_pending());
        assert_eq!(store.stats().queue_depth, 2);
        assert!(matches!(
            poll_once(three.as_mut()),
            Poll::Ready(Err(StoreError::Busy))
        ));
        gate.open();
        store.clone().close();
        assert!(matches!(poll_once(one.as_mut()), Poll::Ready(Ok(1))));
        assert!(matches!(poll_once(two.as_mut()), Poll::Ready(Ok(2))));
        assert_eq!((store.stats().queue_depth, store.stats().largest_batch), (0, 1));
    });
}

#[test]
fn a_closed_store_does_nothing_more() {
    on_local_engines(Options::default(), |store| {
        store.clone().close();
        assert!(matches!(put(&store, "a", "late"), Err(StoreError::Closed)));
        assert!(matches!(
            store.read_blocking(|snapshot| NOTES.count(snapshot)),
            Err(StoreError::Closed)
        ));
        let mut compaction = pin!(store.compact());
        assert!(matches!(
            poll_once(compaction.as_mut()),
            Poll::Ready(Err(StoreError::Closed))
        ));
    });
}

#[test]
fn dropping_the_store_keeps_what_was_queued_and_releases_the_file() {
    let folder = Folder::new();
    let store = Store::open(&folder.file(), Options::default()).unwrap();
    let gate = Gate::shut(&store);
    for n in 0..50 {
        let mut write = pin!(store.write("queued", move |tx| RAW.put(tx, &n.to_string(), &String::new())));
        assert!(poll_once(write.as_mut()).is_pending());
    }
    gate.open();
    drop(store);
    let store = Store::open(&folder.file(), Options::default()).unwrap();
    assert_eq!(store.read_blocking(|snapshot| RAW.count(snapshot)).unwrap(), 50);
}

#[test]
fn a_write_may_hold_the_last_handle() {
    let folder = Folder::new();
    let store = Store::open(&folder.file(), Options::default()).unwrap();
    let gate = Gate::shut(&store);
    let handle = store.clone();
    {
        let mut write = pin!(store.write("holder", move |tx| -> Result<_, StoreError> {
            NOTES.put(tx, "a", &note("kept"))?;
            Ok(handle.is_writable())
        }));
        assert!(poll_once(write.as_mut()).is_pending());
    }
    drop(store);
    gate.open();
    let store = loop {
        match Store::open(&folder.file(), Options::default()) {
            Err(OpenError::AlreadyOpen { .. }) => std::thread::yield_now(),
            other => break other.unwrap(),
        }
    };
    assert_eq!(get(&store, "a"), Some(note("kept")));
}
