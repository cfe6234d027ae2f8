//! Faults of a database server, and of the network before it, under a store that increments a number.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use idsvc::clock::Timestamp;
use idsvc::oauth::{Client, Group};
use idsvc::store::catalog_use::note_client;
use idsvc::store::engine::Snapshot;
use idsvc::store::tables::{CLIENTS, GROUPS, USERS_BY_LOGIN_NAME};
use idsvc::store::{Address, CatalogUpdate, ChangedRows, OpenError, Options, Store, StoreError};
use uuid::Uuid;

use crate::harness::fault_proxy::{Fault, FaultProxy};
use crate::harness::pgbouncer::PgBouncer;
use crate::harness::postgres::{Cluster, Database, until};

fn set_up(cluster: &Cluster) -> Database {
    let database = cluster.database("faults");
    Store::migrate(&Address::parse(&database.url()).unwrap()).unwrap();
    database
}

fn try_connect(url: &str, options: Options) -> Result<Store, OpenError> {
    // A test on loopback needs no TLS.
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}sslmode=disable");
    Store::connect(&Address::parse(&url).unwrap(), options)
}

fn connect(url: &str) -> Store {
    try_connect(url, Options::default()).unwrap()
}

/// Options of a store that gives up after two seconds.
fn impatient() -> Options {
    Options {
        stall_timeout: Duration::from_secs(2),
        ..Options::default()
    }
}

fn increment(store: &Store) -> Result<(), StoreError> {
    store.write_blocking("increment", |tx| {
        let number = USERS_BY_LOGIN_NAME.get(tx, "number")?.unwrap_or_default();
        let next = Uuid::from_u128(number.as_u128() + 1);
        USERS_BY_LOGIN_NAME.put(tx, "number", &next)
    })
}

fn stored(store: &Store) -> u128 {
    let number = store.read_blocking(|snapshot| USERS_BY_LOGIN_NAME.get(snapshot, "number"));
    number.unwrap().unwrap_or_default().as_u128()
}

/// Increments on several threads until `disturb` has ended. Returns how many were answered, and how many failed.
fn increment_during(stores: &[&Store], disturb: impl FnOnce()) -> (u128, u128) {
    let (begun, has_ended) = (Instant::now(), AtomicBool::new(false));
    let (answered, failed) = (AtomicU32::new(0), AtomicU32::new(0));
    // A test that fails does not wait for its threads for ever.
    let goes_on = || !has_ended.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_mins(2);
    thread::scope(|scope| {
        for store in stores.iter().flat_map(|store| [store; 2]) {
            let (answered, failed, goes_on) = (&answered, &failed, &goes_on);
            scope.spawn(move || {
                while goes_on() {
                    let counter = match increment(store) {
                        Ok(()) => answered,
                        Err(StoreError::Busy) => continue,
                        Err(_) => failed,
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let await_answers = |count: u32| {
            let target = answered.load(Ordering::Relaxed) + count;
            let answered = || answered.load(Ordering::Relaxed);
            until(|| answered() >= target, || format!("{} answers", answered()));
        };
        await_answers(10);
        disturb();
        await_answers(10);
        has_ended.store(true, Ordering::Relaxed);
    });
    (answered.into_inner().into(), failed.into_inner().into())
}

/// No answered increment is lost, and none is stored twice. One that failed may be stored.
fn assert_exact(store: &Store, (answered, failed): (u128, u128)) {
    let stored = stored(store);
    assert!(
        (answered..=answered + failed).contains(&stored),
        "{stored} stored, {answered} answered, {failed} failed"
    );
}

#[test]
fn an_increment_whose_answer_was_lost_is_stored_once() {
    let database = set_up(Cluster::shared());
    let proxy = FaultProxy::start(Cluster::shared().port());
    let store = connect(&database.url_at(&proxy.address()));
    for number in 0..200 {
        if number % 4 == 0 {
            proxy.set(Fault::CutAfterRequest);
        }
        increment(&store).unwrap();
    }
    assert_eq!(stored(&store), 200);
}

#[test]
fn answers_that_never_come_fail_a_write_in_time_and_the_next_ones_succeed() {
    let database = set_up(Cluster::shared());
    let proxy = FaultProxy::start(Cluster::shared().port());
    let store = try_connect(&database.url_at(&proxy.address()), impatient()).unwrap();
    increment(&store).unwrap();
    proxy.set(Fault::DropAnswers);
    let begun = Instant::now();
    let error = increment(&store).unwrap_err();
    assert!(error.is_outage(), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    proxy.set(Fault::None);
    until(|| store.problem().is_none(), || format!("{:?}", store.problem()));
    increment(&store).unwrap();
    assert_exact(&store, (2, 1));
}

#[test]
fn a_server_that_restarts_or_is_killed_loses_no_answered_increment() {
    let mut cluster = Cluster::start_with(&["fsync=on"]);
    let database = set_up(&cluster);
    let store = connect(&database.url());
    let mut answers = increment_during(&[&store], || cluster.restart());
    let more = increment_during(&[&store], || {
        cluster.kill();
        cluster.restart();
    });
    answers = (answers.0 + more.0, answers.1 + more.1);
    assert_exact(&store, answers);
}

#[test]
fn writes_wait_for_a_server_that_refuses_connections() {
    let database = set_up(Cluster::shared());
    let proxy = FaultProxy::start(Cluster::shared().port());
    let store = connect(&database.url_at(&proxy.address()));
    increment(&store).unwrap();
    proxy.set(Fault::Refuse);
    proxy.cut();
    let write = thread::spawn({
        let store = store.clone();
        move || increment(&store)
    });
    until(|| store.problem().is_some(), || "no problem".to_owned());
    proxy.set(Fault::None);
    write.join().unwrap().unwrap();
    assert_eq!(stored(&store), 2);
}

#[test]
fn a_standby_that_takes_over_has_every_answered_increment() {
    let mut servers = Cluster::with_standby();
    let database = set_up(&servers.primary);
    let standby = format!("127.0.0.1:{}", servers.standby.port());
    let refused = || {
        let refused = try_connect(&database.url_at(&standby), Options::default());
        refused.err().unwrap().to_string()
    };
    // Until the standby has replayed it, there is no such database.
    until(|| refused().contains("database does not allow writes"), refused);

    let store = connect(&servers.url(&database));
    let answers = increment_during(&[&store], || {
        servers.primary.kill();
        servers.promote_standby();
    });
    assert_exact(&store, answers);
}

#[test]
fn a_commit_whose_replication_was_cancelled_is_not_answered_before_it_is_replicated() {
    let servers = Cluster::with_standby();
    let database = set_up(&servers.primary);
    let store = try_connect(&database.tcp_url(), impatient()).unwrap();
    increment(&store).unwrap();
    let cancel = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    let begin = || {
        let (sender, answer) = mpsc::channel();
        let store = store.clone();
        thread::spawn(move || sender.send(increment(&store)));
        until(
            || servers.primary.sql(cancel) == "1",
            || "no commit waits".to_owned(),
        );
        // The commit is sent again, and waits again.
        until(
            || servers.primary.sql(cancel) == "1",
            || "no commit waits".to_owned(),
        );
        answer
    };
    servers.standby.pause();
    let answer = begin();
    assert!(answer.try_recv().is_err());
    servers.standby.resume();
    answer.recv().unwrap().unwrap();

    servers.standby.pause();
    let answer = begin();
    let error = answer.recv().unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Interrupted), "{error}");
    servers.standby.resume();
    increment(&store).unwrap();
    assert_eq!(stored(&store), 4);
}

#[test]
fn commits_that_wait_for_a_standby_leave_no_connections_and_are_a_problem_until_it_is_back() {
    let servers = Cluster::with_standby();
    let database = set_up(&servers.primary);
    let store = try_connect(&database.tcp_url(), impatient()).unwrap();
    increment(&store).unwrap();
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idsvc'";
    let connections = || servers.primary.sql(count);
    servers.standby.pause();
    for _ in 0..6 {
        increment(&store).unwrap_err();
        // A store has three.
        until(|| connections().parse::<u32>().unwrap() <= 3, connections);
    }
    // Several polls succeed.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(1500) {
        assert!(store.problem().is_some());
    }
    servers.standby.resume();
    until(|| store.problem().is_none(), || "still a problem".to_owned());
    until(|| increment(&store).is_ok(), || format!("{:?}", store.problem()));
}

#[test]
fn a_first_host_that_never_answers_leaves_time_for_the_next_one() {
    let cluster = Cluster::shared();
    let database = set_up(cluster);
    let proxy = FaultProxy::start(cluster.port());
    proxy.set(Fault::DropAnswers);
    let hosts = format!("{},127.0.0.1:{}", proxy.address(), cluster.port());
    let store = connect(&database.url_at(&hosts));
    increment(&store).unwrap();
    until(|| store.problem().is_none(), || format!("{:?}", store.problem()));
    assert_eq!(stored(&store), 1);
}

#[test]
fn two_stores_share_a_pooler_of_transactions_also_if_the_database_is_serializable() {
    let cluster = Cluster::shared();
    let database = set_up(cluster);
    database.sql(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$",
    );
    let pooler = PgBouncer::start(cluster);
    let stores = [(); 2].map(|()| connect(&database.url_at(&pooler.address())));
    let direct = connect(&database.url());
    let answers = increment_during(&[&stores[0], &stores[1], &direct], || {
        let rows = stores[0].stream(|snapshot| USERS_BY_LOGIN_NAME.count(snapshot));
        assert_eq!(rows.unwrap(), 1);
    });
    assert_eq!(answers.1, 0);
    assert_eq!(stored(&direct), answers.0);
}

#[test]
fn a_server_with_no_connection_left_is_named_and_a_running_store_recovers() {
    let mut cluster = Cluster::start_with(&["max_connections=12", "max_wal_senders=0"]);
    let database = set_up(&cluster);
    let store = connect(&database.url());
    increment(&store).unwrap();
    let others: Vec<_> = std::iter::repeat_with(|| try_connect(&database.url(), impatient()))
        .take(8)
        .collect();
    let mut refused = others.iter().filter_map(|other| other.as_ref().err());
    let refused = refused.next().unwrap().to_string();
    assert!(refused.contains("too many clients already"), "{refused}");
    cluster.restart();
    drop(others);
    until(|| increment(&store).is_ok(), || format!("{:?}", store.problem()));
}

#[test]
fn a_server_that_hangs_is_a_problem_within_seconds() {
    let cluster = Cluster::start();
    let store = connect(&set_up(&cluster).url());
    increment(&store).unwrap();
    cluster.pause();
    let begun = Instant::now();
    until(|| !store.is_current(), || "still current".to_owned());
    assert!(store.problem().is_some());
    assert!(
        begun.elapsed() < Duration::from_millis(3500),
        "{:?}",
        begun.elapsed()
    );
    thread::sleep(Duration::from_secs(4).saturating_sub(begun.elapsed()));
    cluster.resume();
    until(|| store.problem().is_none(), || format!("{:?}", store.problem()));
    increment(&store).unwrap();
}

#[test]
fn slow_answers_are_as_old_as_their_questions_and_fail_a_write_in_time() {
    let database = set_up(Cluster::shared());
    let proxy = FaultProxy::start(Cluster::shared().port());
    let store = try_connect(&database.url_at(&proxy.address()), impatient()).unwrap();
    increment(&store).unwrap();
    // Polls are answered after two seconds, and begin half a second later.
    proxy.set(Fault::Delay(Duration::from_secs(1)));
    until(|| !store.is_current(), || "always current".to_owned());
    // A write needs two calls.
    proxy.set(Fault::Delay(Duration::from_millis(600)));
    let error = increment(&store).unwrap_err();
    assert!(error.is_outage(), "{error}");
    proxy.set(Fault::None);
    until(|| store.problem().is_none(), || format!("{:?}", store.problem()));
    assert!((1..=2).contains(&stored(&store)));
}

/// Follows the catalog. Returns the number of clients in memory, and of those that were read.
fn follow(store: &Store) -> Arc<Followed> {
    let followed = Arc::new(Followed::default());
    let in_memory = Arc::clone(&followed);
    let reader = move |snapshot: &dyn Snapshot, changed: Option<&ChangedRows>| {
        let clients = match changed {
            None => CLIENTS.scan(snapshot, .., usize::MAX)?,
            Some(changed) => {
                let ids = changed.keys(&CLIENTS).into_iter();
                let read = ids.map(|id| Ok((id.clone(), CLIENTS.get(snapshot, &id)?)));
                let read = read.collect::<Result<Vec<_>, StoreError>>()?.into_iter();
                read.filter_map(|(id, client)| Some((id, client?))).collect()
            }
        };
        let (in_memory, is_whole) = (Arc::clone(&in_memory), changed.is_none());
        let update = move || {
            let count = clients.len() as u64;
            in_memory.read.fetch_add(count, Ordering::Relaxed);
            let before = if is_whole {
                0
            } else {
                in_memory.count.load(Ordering::Relaxed)
            };
            in_memory.count.store(before + count, Ordering::Relaxed);
            Ok(())
        };
        Ok(Box::new(update) as CatalogUpdate)
    };
    store.follow_catalog(Box::new(reader)).unwrap();
    followed
}

#[derive(Default)]
struct Followed {
    count: AtomicU64,
    read: AtomicU64,
}

impl Followed {
    fn await_count(&self, count: u64) {
        let now = || self.count.load(Ordering::Relaxed);
        until(|| now() == count, || format!("{} clients", now()));
    }
}

fn add_client(store: &Store, id: &'static str) {
    let client = Client::new(id, Uuid::nil(), Uuid::nil(), false, Timestamp::from_seconds(0));
    store
        .write_blocking("add client", move |tx| CLIENTS.put(tx, id, &client))
        .unwrap();
}

/// Waits until so many clients are in memory, at most a second.
fn await_clients(clients: &Followed, count: u64) {
    let begun = Instant::now();
    clients.await_count(count);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
}

/// How often a transaction runs that has used a client, if this one is added between its last run and its commit.
fn runs_beside(one: &Store, other: &Store, used: &'static str, added: &'static str) -> u32 {
    let one = one.clone();
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let written = other.write_blocking("see", move |tx| {
        note_client(used);
        USERS_BY_LOGIN_NAME.get(tx, used)?;
        // The first run has no rows yet. The second one is committed with the old catalog.
        if counted.fetch_add(1, Ordering::Relaxed) == 1 {
            add_client(&one, added);
        }
        USERS_BY_LOGIN_NAME.put(tx, used, &Uuid::nil())
    });
    written.unwrap();
    runs.load(Ordering::Relaxed)
}

#[test]
fn a_changed_client_reruns_the_transactions_that_used_it_and_reaches_an_idle_node() {
    let database = set_up(Cluster::shared());
    let [one, other] = [(); 2].map(|()| connect(&database.url()));
    let clients = follow(&other);
    assert_eq!(runs_beside(&one, &other, "first", "first"), 3);
    assert_eq!(runs_beside(&one, &other, "first", "second"), 2, "another client");
    add_client(&one, "third");
    await_clients(&clients, 3);
    assert_eq!(clients.read.load(Ordering::Relaxed), 3, "each was read once");
}

#[test]
fn a_changed_group_reruns_every_transaction() {
    let database = set_up(Cluster::shared());
    let [one, other] = [(); 2].map(|()| connect(&database.url()));
    let _clients = follow(&other);
    let runs = AtomicU32::new(0);
    let written = other.write_blocking("see", move |tx| {
        USERS_BY_LOGIN_NAME.get(tx, "any")?;
        if runs.fetch_add(1, Ordering::Relaxed) == 1 {
            let group = Group::new("staff", Uuid::nil(), Timestamp::from_seconds(0));
            one.write_blocking("add group", move |tx| GROUPS.put(tx, "staff", &group))?;
        }
        USERS_BY_LOGIN_NAME.put(tx, "any", &Uuid::nil())?;
        Ok(runs.load(Ordering::Relaxed))
    });
    assert_eq!(written.unwrap(), 3);
}

#[test]
fn a_client_that_is_stored_again_without_a_change_is_no_change() {
    let database = set_up(Cluster::shared());
    let store = connect(&database.url());
    let clients = follow(&store);
    add_client(&store, "first");
    await_clients(&clients, 1);
    let generation = || database.sql("SELECT n FROM idsvc.generation");
    let before = generation();
    let stored_again = store.write_blocking("store again", |tx| {
        let client = CLIENTS.get(&*tx, "first")?.unwrap();
        CLIENTS.put(tx, "first", &client)
    });
    stored_again.unwrap();
    assert_eq!(generation(), before);
}

/// More than the list of changes has, and changes that it no longer has.
#[test]
fn a_node_that_has_missed_too_much_reads_everything() {
    let database = set_up(Cluster::shared());
    let [one, other] = [(); 2].map(|()| connect(&database.url()));
    let clients = follow(&other);
    let client = Client::new(
        "many",
        Uuid::nil(),
        Uuid::nil(),
        false,
        Timestamp::from_seconds(0),
    );
    let add_many = one.write_blocking("add many", move |tx| {
        (0..2500).try_for_each(|number| CLIENTS.put(tx, &format!("many-{number}"), &client))
    });
    add_many.unwrap();
    clients.await_count(2500);
    database.sql("DELETE FROM idsvc.changes");
    add_client(&one, "one more");
    clients.await_count(2501);
    database.sql("BEGIN; DELETE FROM idsvc.changes; UPDATE idsvc.generation SET n = n + 1; COMMIT");
    add_client(&one, "another");
    clients.await_count(2502);
    assert!(clients.read.load(Ordering::Relaxed) >= 2500 + 2502);
}

#[test]
fn a_database_that_goes_back_in_time_is_read_again() {
    let database = set_up(Cluster::shared());
    let store = connect(&database.url());
    let clients = follow(&store);
    for id in ["first", "second", "third"] {
        add_client(&store, id);
    }
    await_clients(&clients, 3);
    database.sql("BEGIN; DELETE FROM idsvc.clients; UPDATE idsvc.generation SET n = 1; COMMIT");
    await_clients(&clients, 0);
    increment(&store).unwrap();
    add_client(&store, "fourth");
    await_clients(&clients, 1);
}
