//! The PostgreSQL servers that tests use: databases of their own, and no server without its test process.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use idsvc::store::{Address, Options, ServerWarning, Store};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::fault_proxy::{Fault, FaultProxy};
use crate::harness::pgbouncer::PgBouncer;
use crate::harness::postgres::{Cluster, Psql, is_running, until};

#[test]
fn databases_are_separate_unless_one_is_the_template() {
    let cluster = Cluster::shared();
    let (one, other) = (cluster.database("one"), cluster.database("other"));
    one.sql("CREATE TABLE t AS SELECT 'row of one' AS name");
    other.sql("CREATE TABLE t AS SELECT 'row of other' AS name");
    assert_eq!(one.sql("SELECT name FROM t"), "row of one");
    assert_eq!(other.sql("SELECT name FROM t"), "row of other");

    let copy = cluster.database_from(&one);
    copy.sql("INSERT INTO t VALUES ('row of the copy')");
    assert_eq!(copy.sql("SELECT count(*) FROM t"), "2");
    assert_eq!(one.sql("SELECT name FROM t"), "row of one");
}

/// The test runs itself in another process, which starts a server and is killed.
#[test]
fn a_server_ends_with_its_test_process_and_its_folder_is_removed() {
    const HOLDS: &str = "IDSVC_TEST_HOLDS_A_SERVER";
    if std::env::var_os(HOLDS).is_some() {
        let cluster = Cluster::shared();
        let report = format!("\nserver {} {}\n", cluster.id(), cluster.folder().display());
        std::io::stdout().write_all(report.as_bytes()).unwrap();
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let name = "postgres::a_server_ends_with_its_test_process_and_its_folder_is_removed";
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", name])
        .env(HOLDS, "yes")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let report = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("server "));
    let report = report.unwrap();
    let (id, folder) = report["server ".len()..].split_once(' ').unwrap();
    let (id, folder) = (Pid::from_raw(id.parse().unwrap()).unwrap(), Path::new(folder));
    assert!(is_running(id) && folder.join("data").exists());

    let parent = Pid::from_child(&process);
    kill_process(parent, Signal::KILL).unwrap();
    process.wait().unwrap();
    until(|| !is_running(id) && !folder.exists(), || report.clone());
}

#[test]
fn a_server_that_was_killed_or_paused_goes_on() {
    let mut cluster = Cluster::start_with(&["fsync=on"]);
    let database = cluster.database("db");
    database.sql("CREATE TABLE t AS SELECT 1 AS number");
    cluster.kill();
    assert!(Psql::open(&database.tcp_url()).run("SELECT 1").is_err());
    cluster.restart();
    assert_eq!(database.sql("SELECT number FROM t"), "1");

    cluster.pause();
    let mut psql = Psql::open(&database.url());
    let answer = std::thread::spawn(move || psql.run("SELECT number FROM t"));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!answer.is_finished());
    cluster.resume();
    assert_eq!(answer.join().unwrap().unwrap(), "1");
}

#[test]
fn the_standby_has_every_commit_and_takes_over() {
    let mut servers = Cluster::with_standby();
    let database = servers.primary.database("db");
    let url = servers.url(&database);
    let mut psql = Psql::open(&url);
    psql.run("CREATE TABLE t AS SELECT 1 AS number").unwrap();

    servers.primary.kill();
    psql.run("SELECT 1").unwrap_err();
    servers.promote_standby();
    let mut psql = Psql::open(&url);
    psql.run("INSERT INTO t VALUES (2)").unwrap();
    assert_eq!(psql.run("SELECT sum(number) FROM t").unwrap(), "3");
}

#[tokio::test]
async fn settings_that_endanger_a_store_are_named() {
    let settings = |warnings: Vec<ServerWarning>| -> Vec<_> {
        warnings.into_iter().map(|warning| warning.setting).collect()
    };
    let migrate = |cluster: &Cluster| {
        let address = Address::parse(&cluster.database("db").url()).unwrap();
        let outcome = Store::migrate(&address).unwrap();
        (address, outcome.warnings)
    };
    let weak = Cluster::start_with(&[
        "synchronous_commit=off",
        "max_connections=10",
        "max_wal_senders=0",
    ]);
    let (_, found) = migrate(&weak);
    assert!(found[0].message.starts_with("it is 64, so"), "{found:?}");
    assert_eq!(
        settings(found),
        [
            "max_locks_per_transaction",
            "synchronous_commit",
            "synchronous_standby_names",
            "max_connections",
        ]
    );
    let strong = Cluster::start_with(&["max_locks_per_transaction=256"]);
    let (address, found) = migrate(&strong);
    let store = Store::connect(&address, Options::default()).unwrap();
    assert_eq!(store.server_warnings().await.unwrap(), found);
    assert_eq!(settings(found), ["synchronous_standby_names"]);
    let quiet = strong.database("quiet");
    quiet.sql("ALTER FUNCTION pg_control_checkpoint() RENAME TO away");
    let outcome = Store::migrate(&Address::parse(&quiet.url()).unwrap()).unwrap();
    assert_eq!(
        settings(outcome.warnings),
        ["synchronous_standby_names", "pg_control_checkpoint"]
    );
    let (_, found) = migrate(&Cluster::with_standby().primary);
    assert_eq!(settings(found), ["max_locks_per_transaction"]);
}

#[tokio::test]
async fn rights_and_settings_of_the_role_and_settings_for_a_failover_are_named() {
    let cluster = Cluster::start_with(&["max_locks_per_transaction=256"]);
    let database = cluster.database("rights");
    Store::migrate(&Address::parse(&database.url()).unwrap()).unwrap();
    let port = cluster.port();
    database.sql("CREATE ROLE node LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA idsvc TO node; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA idsvc TO node; REVOKE EXECUTE ON FUNCTION idsvc.beat_v1 FROM node");
    database.sql("ALTER ROLE node SET statement_timeout = '30s'; ALTER ROLE node SET default_transaction_isolation = 'serializable'");
    let name = database.url_at("x");
    let (_, name) = name.rsplit_once('/').unwrap();
    let found = async |hosts: &str| {
        let url = format!("postgres://node:secret@{hosts}/{name}?sslmode=disable");
        let store = Store::connect(&Address::parse(&url).unwrap(), Options::default()).unwrap();
        store.server_warnings().await.unwrap()
    };
    let one = found(&format!("127.0.0.1:{port}")).await;
    let said: Vec<_> = one
        .iter()
        .map(|warning| (warning.setting.as_str(), warning.is_fault))
        .collect();
    assert_eq!(
        said,
        [
            ("synchronous_standby_names", false),
            ("default_transaction_isolation", false),
            ("statement_timeout", false),
            ("functions", true),
        ]
    );
    assert_eq!(one[3].message, "the role node cannot execute idsvc.beat_v1");
    assert!(one[3].remedy.contains("IN SCHEMA idsvc TO node"), "{one:?}");

    // Both addresses lead to one server.
    let two = found(&format!("127.0.0.1:{port},127.0.0.1:{port}")).await;
    let said: Vec<_> = two
        .iter()
        .map(|warning| (warning.setting.as_str(), warning.is_fault))
        .collect();
    assert_eq!(said[0], ("synchronous_standby_names", true));
    assert_eq!(said[1], ("wal_log_hints", false));
}

#[test]
fn a_server_with_tls_shows_its_certificate() {
    let cluster = Cluster::start_with_tls();
    let database = cluster.database("db");
    let is_encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let ask = |host: &str| {
        let address = database.url_at(&format!("{host}:{}", cluster.port()));
        let certificate = cluster.certificate();
        let url = format!(
            "{address}?sslmode=verify-full&sslrootcert={}",
            certificate.display()
        );
        Psql::open(&url).run(is_encrypted)
    };
    assert_eq!(ask("localhost").unwrap(), "t");
    let refusal = ask("127.0.0.1").unwrap_err();
    assert!(refusal.contains("does not match host name"), "{refusal}");
}

#[test]
fn the_proxy_delays_cuts_discards_and_refuses() {
    let cluster = Cluster::shared();
    let database = cluster.database("db");
    database.sql("CREATE TABLE t (number int)");
    let proxy = FaultProxy::start(cluster.port());
    let connect = || Psql::open(&database.url_at(&proxy.address()));
    let until_stored = |count: &str| {
        let stored = || database.sql("SELECT count(*) FROM t");
        until(|| stored() == count, stored);
    };

    let mut psql = connect();
    psql.run("INSERT INTO t VALUES (1)").unwrap();
    let time = Duration::from_millis(40);
    proxy.set(Fault::Delay(time));
    let start = Instant::now();
    psql.run("SELECT 1").unwrap();
    assert!(start.elapsed() >= 2 * time);

    // A request of several reads is forwarded whole.
    proxy.set(Fault::CutAfterRequest);
    let comment = "x".repeat(100_000);
    psql.run(&format!("INSERT INTO t /* {comment} */ VALUES (2)"))
        .unwrap_err();
    until_stored("2");

    let mut psql = connect();
    psql.run("SELECT 1").unwrap();
    proxy.set(Fault::DropAnswers);
    let answer = std::thread::spawn(move || psql.run("INSERT INTO t VALUES (3)"));
    until_stored("3");
    assert!(!answer.is_finished());
    proxy.cut();
    answer.join().unwrap().unwrap_err();

    proxy.set(Fault::Refuse);
    let refusal = connect().run("SELECT 1").unwrap_err();
    assert!(refusal.contains("Connection refused"), "{refusal}");
    proxy.set(Fault::None);
    assert_eq!(connect().run("SELECT 1").unwrap(), "1");
}

#[test]
fn pgbouncer_gives_many_clients_two_connections() {
    let cluster = Cluster::shared();
    let database = cluster.database("db");
    let pgbouncer = PgBouncer::start(cluster);
    let mut processes = BTreeSet::new();
    let mut clients: Vec<_> = (0..4)
        .map(|_| Psql::open(&database.url_at(&pgbouncer.address())))
        .collect();
    for client in &mut clients {
        processes.insert(client.run("SELECT pg_backend_pid()").unwrap());
    }
    // All clients are still connected.
    assert!(processes.len() <= 2, "{processes:?}");
}
