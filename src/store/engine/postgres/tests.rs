//! Several stores on one database.

#[path = "../../../../tests/harness/port.rs"]
mod port;
#[path = "../../../../tests/harness/postgres.rs"]
#[expect(dead_code, reason = "the integration tests use the rest")]
mod postgres;
#[path = "../../../../tests/harness/shared_store.rs"]
#[expect(dead_code, reason = "the integration tests use the rest")]
mod shared_store;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use uuid::Uuid;

use self::postgres::{Cluster, Psql, until};
pub(in crate::store::engine) use self::shared_store::address;
use super::DatabaseLoad;
use crate::store::catalog_use::note_miss;
use crate::store::engine::tests::RAW;
use crate::store::engine::{Snapshot, Tx};
use crate::store::record::Record;
use crate::store::schema::{Schema, meta_put, stored};
use crate::store::table::Table;
use crate::store::tables::{CONSENTS, USERS_BY_LOGIN_NAME};
use crate::store::{Address, CatalogUpdate, ChangedRows, OpenError, Options, Store, StoreError};

const NUMBERS: Table<String, u32> = Table::new(2, "numbers");

/// A store on a new database.
pub(in crate::store::engine) fn store(options: Options) -> Store {
    Store::connect(&address(), options).unwrap()
}

fn on_one_database(stores: usize) -> Vec<Store> {
    let address = address();
    (0..stores)
        .map(|_| Store::connect(&address, Options::default()).unwrap())
        .collect()
}

fn count(store: &Store, key: &'static str) -> Result<u32, StoreError> {
    store.write_blocking("count", move |tx| {
        let number = NUMBERS.get(tx, key)?.unwrap_or_default() + 1;
        NUMBERS.put(tx, key, &number)?;
        Ok(number)
    })
}

#[test]
fn every_answered_increment_is_stored_once() {
    let stores = on_one_database(3);
    let answered = AtomicU32::new(0);
    thread::scope(|scope| {
        for store in &stores {
            for _ in 0..4 {
                let answered = &answered;
                scope.spawn(move || {
                    for _ in 0..50 {
                        match count(store, "one") {
                            Ok(_) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                            Err(StoreError::Busy) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
        }
    });
    let stored = stores[0]
        .read_blocking(|snapshot| NUMBERS.get(snapshot, "one"))
        .unwrap();
    assert_eq!(stored, Some(answered.into_inner()));
}

#[test]
fn a_refused_read_fails_without_the_reads_that_share_its_call() {
    /// A table that no database has.
    const UNKNOWN: Table<String, String> = Table::new(60, "unknown");
    let store = store(Options::default());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let found = store.read_blocking(|snapshot| NUMBERS.get(snapshot, "one"));
                    assert_eq!(found.unwrap(), None);
                }
            });
            scope.spawn(|| {
                for _ in 0..50 {
                    let refused = store.read_blocking(|snapshot| UNKNOWN.count(snapshot));
                    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
                }
            });
        }
    });
}

#[tokio::test]
async fn a_write_confirms_the_catalog_of_its_request_only_if_it_asks_the_database() {
    let store = store(Options::default());
    let catalog_use = store.catalog_use();
    let request = async {
        note_miss();
        let nothing = store.write("nothing", |_| Ok::<_, StoreError>(())).await;
        nothing.unwrap();
        assert!(catalog_use.has_missed());
        let put = store.write("put", |tx| NUMBERS.put(tx, "one", &1)).await;
        put.unwrap();
        assert!(!catalog_use.has_missed());
    };
    catalog_use.run(request).await.unwrap();
}

#[test]
fn a_commit_has_no_more_transactions_than_allowed() {
    let store = store(Options {
        batch_max: 2,
        ..Options::default()
    });
    thread::scope(|scope| {
        for key in ["one", "two", "three", "four", "five", "six"] {
            let store = &store;
            scope.spawn(move || (1..=20).for_each(|number| assert_eq!(count(store, key).unwrap(), number)));
        }
    });
    let stats = store.stats();
    assert_eq!(stats.transactions, 120);
    assert!(stats.largest_batch <= 2, "{stats:?}");
}

#[test]
fn a_row_of_a_user_comes_with_the_row_that_names_the_user() {
    const USERS: Table<Uuid, String> = Table::new(2, "users");
    const UNUSUAL: Table<String, String> = Table::new(3, "users_by_login_name");
    let (store, alice) = (store(Options::default()), Uuid::from_u128(1));
    let fill = move |tx: &mut dyn Tx| {
        USERS.put(tx, &alice, &"Alice".to_owned())?;
        UNUSUAL.put(tx, "unusual", &"no user".to_owned())?;
        USERS_BY_LOGIN_NAME.put(tx, "alice", &alice)?;
        USERS_BY_LOGIN_NAME.put(tx, "removed", &Uuid::from_u128(2))
    };
    store.write_blocking("fill", fill).unwrap();
    for (name, user) in [
        ("alice", Some("Alice")),
        ("removed", None),
        ("nobody", None),
        ("unusual", None),
    ] {
        let before = store.stats().fetches;
        let found = store.read_blocking(|snapshot| {
            USERS_BY_LOGIN_NAME.will_get_of_user(snapshot, name, USERS.id(), "");
            USERS_BY_LOGIN_NAME.will_get_of_user(snapshot, name, CONSENTS.id(), "web");
            if name == "unusual" {
                return UNUSUAL.get(snapshot, name).map(|_| None);
            }
            let Some(uuid) = USERS_BY_LOGIN_NAME.get(snapshot, name)? else {
                return Ok(None);
            };
            assert!(!CONSENTS.contains(snapshot, &(uuid, "web".to_owned()))?);
            USERS.get(snapshot, &uuid)
        });
        assert_eq!(found.unwrap().as_deref(), user, "{name}");
        assert_eq!(store.stats().fetches - before, 1, "{name}");
    }
}

/// Two transactions that each read what the other one writes: both cannot have seen nothing.
#[test]
fn neither_rows_nor_ranges_allow_a_write_skew() {
    let stores = on_one_database(2);
    for round in 0..100_u32 {
        let by_range = round % 2 == 1;
        let run = |store: &Store, mine: &'static str, other: &'static str| {
            store.write_blocking("skew", move |tx| {
                let is_free = if by_range {
                    RAW.count(tx)? == 0
                } else {
                    !RAW.contains(tx, other)?
                };
                if is_free {
                    RAW.put(tx, mine, &String::new())?;
                }
                Ok(is_free)
            })
        };
        let (one, two) = thread::scope(|scope| {
            let one = scope.spawn(|| run(&stores[0], "one", "two"));
            let two = scope.spawn(|| run(&stores[1], "two", "one"));
            (one.join().unwrap().unwrap(), two.join().unwrap().unwrap())
        });
        assert!(one != two, "round {round}: {one} and {two}");
        stores[0]
            .write_blocking("clear", |tx| {
                RAW.remove(tx, "one")?;
                RAW.remove(tx, "two")
            })
            .unwrap();
    }
}

#[test]
fn a_long_range_is_read_to_its_end_with_the_writes_of_the_transaction() {
    let store = store(Options::default());
    let key = |number: u32| format!("{number:05}");
    store
        .write_blocking("fill", move |tx| {
            (0..3000).try_for_each(|number| RAW.put(tx, &key(number), &String::new()))
        })
        .unwrap();
    let seen = store.write_blocking("change", move |tx| {
        RAW.remove(tx, &key(70))?;
        RAW.put(tx, "00069a", &String::new())?;
        RAW.put(tx, "9", &String::new())?;
        let rows = RAW.scan(tx, .., usize::MAX)?;
        Ok(rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>())
    });
    let seen = seen.unwrap();
    assert!(seen.is_sorted() && seen.len() == 3001);
    assert!(seen.contains(&"00069a".to_owned()) && !seen.contains(&key(70)));
    assert_eq!(store.stream(|snapshot| RAW.count(snapshot)).unwrap(), 3001);
}

/// All rows of a commit have the same stamp, so only the key tells that the first row is another one.
#[test]
fn a_row_that_takes_the_place_of_a_removed_one_is_noticed() {
    let stores = on_one_database(2);
    let fill = |tx: &mut dyn Tx| {
        ["a", "b"]
            .iter()
            .try_for_each(|key| RAW.put(tx, *key, &String::new()))
    };
    stores[0].write_blocking("fill", fill).unwrap();
    let other = stores[1].clone();
    let was_removed = AtomicBool::new(false);
    let first = stores[0].write_blocking("read first", move |tx| {
        let first = RAW.scan(&*tx, .., 1)?.into_iter().next().map(|(key, _)| key);
        if first.is_some() && !was_removed.swap(true, Ordering::Relaxed) {
            other.write_blocking("remove", |tx| RAW.remove(tx, "a"))?;
        }
        RAW.put(tx, "z", &String::new())?;
        Ok(first)
    });
    assert_eq!(first.unwrap().as_deref(), Some("b"));
}

/// Otherwise two commits could wait for each other.
#[test]
fn a_commit_takes_its_locks_one_after_the_other_in_their_order() {
    let database = Cluster::shared().database("locks");
    Store::migrate(&Address::parse(&database.url()).unwrap()).unwrap();
    let function = database.sql("SELECT oid::regproc FROM pg_proc WHERE proname LIKE 'commit_%'");
    database.sql(&format!("ALTER FUNCTION {function} SET lock_timeout = '1min'"));
    let locks = (1..=200).map(|lock: i64| lock.to_string()).collect::<Vec<_>>();
    let is_exclusive = (1..=200)
        .map(|lock| if lock % 3 == 0 { "t" } else { "f" })
        .collect::<Vec<_>>();
    let (locks, is_exclusive) = (locks.join(","), is_exclusive.join(","));
    let nothing = ", '{}'".repeat(17);
    let commit = format!("SELECT {function}('', false, '{{{locks}}}', '{{{is_exclusive}}}'{nothing})");
    let mut holder = Psql::open(&database.url());
    holder.run("SELECT pg_advisory_lock(150)").unwrap();
    thread::scope(|scope| {
        let committed = scope.spawn(|| database.sql(&commit));
        let others = "FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let holder = Mutex::new(holder);
        let ask = |what: &str| {
            holder
                .lock()
                .unwrap()
                .run(&format!("SELECT {what} {others}"))
                .unwrap()
        };
        let waits_for = || ask("string_agg(objid::text, ' ') FILTER (WHERE NOT granted)");
        until(|| waits_for() == "150", waits_for);
        assert_eq!(
            ask("count(*) || ' ' || max(objid::int8) FILTER (WHERE granted)"),
            "150 149"
        );
        holder
            .lock()
            .unwrap()
            .run("SELECT pg_advisory_unlock(150)")
            .unwrap();
        assert_eq!(committed.join().unwrap(), "{}");
    });
}

/// A commit that comes during a load waits for it, and sees its rows.
#[test]
fn a_load_is_seen_whole_or_not_at_all_and_upgrades_its_rows() {
    // A load uses the names of tables, unlike the functions.
    const USERS: Table<String, u32> = Table::new(2, "users");
    const LOGIN_NAMES: Table<String, String> = Table::new(3, "users_by_login_name");
    const NEXT: Schema = Schema::new(&[|tx| {
        LOGIN_NAMES.remove(tx, "old")?;
        USERS.put(tx, "upgraded", &1)
    }]);
    let address = address();
    let store = Store::connect(&address, Options::default()).unwrap();
    let generation = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&generation);
    let reader = move |_: &dyn Snapshot, _: Option<&ChangedRows>| {
        let seen = Arc::clone(&seen);
        let update = move || {
            seen.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        Ok(Box::new(update) as CatalogUpdate)
    };
    store.follow_catalog(Box::new(reader)).unwrap();
    // A commit of other rows leaves the catalog as it is.
    assert_eq!(count(&store, "before").unwrap(), 1);
    store
        .write_blocking("empty", |tx| NUMBERS.remove(tx, "before"))
        .unwrap();
    assert_eq!(generation.load(Ordering::Relaxed), 1);

    let fill = |rows: u32| {
        let mut load = DatabaseLoad::begin(&address).unwrap();
        let mut value = Vec::new();
        5_u32.encode(&mut value).unwrap();
        for number in 0..rows {
            let key = format!("{number:07}").into_bytes();
            load.add(USERS.id(), key, value.clone()).unwrap();
        }
        load.add(LOGIN_NAMES.id(), b"old".to_vec(), value).unwrap();
        load.finish_rows().unwrap();
        load
    };
    drop(fill(1));
    let mut load = fill(100_000);
    assert_eq!(stored(&load).unwrap(), None);
    meta_put(&mut load, "schema", "1").unwrap();
    assert!(NEXT.upgrade_in(&mut load).unwrap());
    assert_eq!(stored(&load).unwrap(), Some(2));
    let numbers = |store: &Store| store.stream(|snapshot| NUMBERS.count(snapshot)).unwrap();
    assert_eq!((numbers(&store), generation.load(Ordering::Relaxed)), (0, 1));
    thread::scope(|scope| {
        let counted = scope.spawn(|| count(&store, "0099999"));
        load.commit().unwrap();
        assert_eq!(counted.join().unwrap().unwrap(), 6);
    });
    assert_eq!(
        (numbers(&store), generation.load(Ordering::Relaxed)),
        (100_001, 2)
    );
    assert!(
        !store
            .read_blocking(|snapshot| RAW.contains(snapshot, "old"))
            .unwrap()
    );
    assert!(matches!(
        DatabaseLoad::check(&address),
        Err(OpenError::NotEmpty(_))
    ));
}
