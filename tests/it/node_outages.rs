//! Parts of the database that cannot be used while nodes run.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::kiosk::{Kiosk, is_ready, put_off, until_ready};
use crate::harness::nodes::{serve, set_up, until};
use crate::harness::postgres::{Cluster, Database, Psql};
use crate::harness::process::{Running, Service, said, shown};

const FLAGS: &str = "--grant anonymous --grant refresh_token --grant device_code";

fn three_nodes() -> (Database, Vec<Service>) {
    let database = Cluster::shared().database("outages");
    let nodes = set_up(&[&*database.url(); 3], &[]);
    (database, nodes)
}

/// The codes of a device, which need no sign-in of a user.
fn ask_for_codes(node: &Running<'_>, kiosk: &Kiosk) -> u16 {
    kiosk
        .ask(node, "/oauth2/device_authorization", &[])
        .unwrap()
        .status
}

#[test]
fn a_locked_table_makes_nodes_unready_and_delays_no_answer_that_needs_others() {
    let (database, nodes) = three_nodes();
    let kiosk = Kiosk::register_as(&nodes[0], "tv", FLAGS);
    let running = serve(&nodes);
    let tokens: Vec<_> = running.iter().map(|node| kiosk.enter(node).unwrap()).collect();
    let mut other = Psql::open(&database.url());
    // The second one lets rows be read.
    for mode in ["ACCESS EXCLUSIVE", "SHARE"] {
        other
            .run(&format!("BEGIN; LOCK TABLE idsvc.families IN {mode} MODE"))
            .unwrap();
        let begun = Instant::now();
        thread::scope(|scope| {
            for (node, token) in running.iter().zip(&tokens) {
                let kiosk = &kiosk;
                scope.spawn(move || put_off(&kiosk.refresh(node, token).unwrap_err()));
            }
            for node in &running {
                while begun.elapsed() < Duration::from_secs(2) {
                    let asked = Instant::now();
                    assert_eq!(ask_for_codes(node, &kiosk), 200);
                    assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
                }
            }
        });
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
        for (node, token) in running.iter().zip(&tokens) {
            assert!(!is_ready(node));
            // Once it is known, nobody waits.
            let asked = Instant::now();
            put_off(&kiosk.refresh(node, token).unwrap_err());
            assert_eq!(ask_for_codes(node, &kiosk), 200);
            assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        }
        other.run("COMMIT").unwrap();
        running.iter().for_each(until_ready);
    }
    for token in &tokens {
        kiosk.refresh(&running[2], token).unwrap();
    }
}

/// The nodes try the table again and again, as a change of the catalog would.
#[test]
fn a_locked_table_of_the_catalog_holds_up_no_commit_and_changes_no_catalog() {
    let (database, nodes) = three_nodes();
    let kiosk = Kiosk::register_as(&nodes[0], "tv", FLAGS);
    let running = serve(&nodes);
    let mut other = Psql::open(&database.url());
    other.run("BEGIN; LOCK TABLE idsvc.groups IN SHARE MODE").unwrap();
    let refused = nodes[0].run(&["group", "add", "staff"]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(!is_ready(&running[0]));
    let catalog = || database.sql("SELECT n, (SELECT count(*) FROM idsvc.changes) FROM idsvc.generation");
    let before = catalog();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(3) {
        for node in &running {
            let asked = Instant::now();
            kiosk.enter(node).unwrap();
            assert!(
                asked.elapsed() < Duration::from_millis(700),
                "{:?}",
                asked.elapsed()
            );
        }
    }
    other.run("COMMIT").unwrap();
    running.iter().for_each(until_ready);
    assert_eq!(catalog(), before);
    let added = nodes[0].run(&["group", "add", "staff"]);
    assert!(added.status.success(), "{added:?}");
}

#[test]
fn a_short_lock_is_waited_for() {
    let (database, nodes) = three_nodes();
    let kiosk = Kiosk::register_as(&nodes[0], "tv", FLAGS);
    let running = serve(&nodes);
    let token = kiosk.enter(&running[0]).unwrap();
    let mut other = Psql::open(&database.url());
    other.run("BEGIN; LOCK TABLE idsvc.families").unwrap();
    thread::scope(|scope| {
        let refreshed = scope.spawn(|| kiosk.refresh(&running[0], &token));
        running[0].logged("a table cannot be used");
        other.run("COMMIT").unwrap();
        refreshed.join().unwrap().unwrap();
    });
}

#[test]
fn a_missing_function_or_table_is_503_and_makes_nodes_unready() {
    let (database, nodes) = three_nodes();
    let kiosk = Kiosk::register_as(&nodes[0], "tv", FLAGS);
    let running = serve(&nodes);
    let token = kiosk.enter(&running[0]).unwrap();
    let function = |name: &str| {
        let own = format!(
            "SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'idsvc'::regnamespace AND proname ~ '^{name}_v'"
        );
        database.sql(&own)
    };
    let rename = |name: &str| format!("ALTER FUNCTION {} RENAME TO {name}_away", function(name));
    let back = |name: &str| {
        let function = function(name);
        let (own, _) = function.split_once('(').unwrap();
        let own = own.trim_start_matches("idsvc.").to_owned();
        move |away: String| format!("ALTER FUNCTION {away} RENAME TO {own}")
    };
    let away = |name: &str| {
        let found = format!("SELECT oid::regprocedure FROM pg_proc WHERE proname = '{name}_away'");
        database.sql(&found)
    };
    for what in ["commit", "get", "families"] {
        let restore: Box<dyn Fn() -> String> = if what == "families" {
            database.sql("ALTER TABLE idsvc.families RENAME TO away");
            Box::new(|| "ALTER TABLE idsvc.away RENAME TO families".to_owned())
        } else {
            let back = back(what);
            database.sql(&rename(what));
            Box::new(move || back(away(what)))
        };
        for node in &running {
            for _ in 0..20 {
                put_off(&kiosk.refresh(node, &token).unwrap_err());
            }
            assert!(!is_ready(node), "{what}");
            let codes = ask_for_codes(node, &kiosk);
            assert_eq!(codes, if what == "families" { 200 } else { 503 }, "{what}");
            assert!(!is_ready(node), "{what}");
        }
        database.sql(&restore());
        running.iter().for_each(until_ready);
        until(|| kiosk.refresh(&running[0], &token).is_ok());
    }
}

#[test]
fn a_node_that_cannot_store_its_heartbeat_stays_ready_and_says_so() {
    let (database, nodes) = three_nodes();
    let running = serve(&nodes);
    running.iter().for_each(until_ready);
    let mut other = Psql::open(&database.url());
    other.run("BEGIN; LOCK TABLE idsvc.nodes").unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(7) {
        for node in &running {
            assert!(is_ready(node), "{}", node.log());
        }
    }
    for node in &running {
        node.logged("cannot be compared with those of the other nodes");
    }
    other.run("COMMIT").unwrap();
}

#[test]
fn a_function_that_may_not_be_executed_is_reported_by_doctor() {
    let (database, nodes) = three_nodes();
    let running = serve(&nodes);
    running.iter().for_each(until_ready);
    let doctor = |number: usize| {
        let checked = nodes[number].run(&["doctor"]);
        (checked.status.code(), shown(&checked))
    };
    assert_eq!(doctor(0).0, Some(0), "{}", doctor(0).1);
    let commit = "SELECT oid::regprocedure FROM pg_proc WHERE pronamespace = 'idsvc'::regnamespace AND proname ~ '^commit_v'";
    let commit = database.sql(commit);
    database.sql(&format!("ALTER FUNCTION {commit} RENAME TO away"));
    let (code, told) = doctor(1);
    assert_eq!(code, Some(1), "{told}");
    assert!(
        told.contains("MEND  database functions: the role idsvc cannot execute idsvc.commit_v"),
        "{told}"
    );
    assert!(
        told.contains("the service answers 503: the database does not answer: the database is not set up"),
        "{told}"
    );
}

#[test]
fn the_issuer_is_not_changed_while_other_nodes_run_and_a_further_node_makes_no_key() {
    let (_, nodes) = three_nodes();
    let running = serve(&nodes[..2]);
    let change = ["config", "set-issuer", "https://new.example", "--i-know"];
    for node in [&nodes[0], &nodes[2]] {
        let refused = node.run(&change);
        assert!(!refused.status.success());
        assert!(
            said(&refused).contains("would go on with the old issuer: stop them"),
            "{}",
            said(&refused)
        );
    }
    let other = nodes[2]
        .command(&["serve"])
        .env("IDSVC_BASE_URL", "https://new.example")
        .output()
        .unwrap();
    assert!(
        said(&other).contains("the nodes that use this database run as http"),
        "{}",
        said(&other)
    );
    assert!(!said(&other).contains("set-issuer"), "{}", said(&other));

    let key = nodes[2].data().join("master.key");
    std::fs::remove_file(&key).unwrap();
    let refused = nodes[2].run(&["init"]);
    assert!(
        said(&refused).contains("copy master.key from a node"),
        "{}",
        said(&refused)
    );
    assert!(!key.exists());

    drop(running);
    let changed = nodes[0].run(&change);
    assert!(changed.status.success(), "{}", said(&changed));
}

/// An outage may have left many.
#[test]
fn old_batches_are_forgotten_some_at_a_time() {
    let (database, _nodes) = three_nodes();
    database.sql("TRUNCATE idsvc.batches");
    database.sql(
        "INSERT INTO idsvc.batches SELECT int4send(n), '{}', now() - interval '11 minutes' FROM generate_series(1, 15000) n; \
         INSERT INTO idsvc.batches VALUES ('new', '{}')",
    );
    let mut other = Psql::open(&database.url());
    other
        .run("BEGIN; UPDATE idsvc.batches SET at = at WHERE id = int4send(1)")
        .unwrap();
    let left = [(); 2].map(|()| {
        database.sql("SELECT idsvc.forget_v1()");
        database.sql("SELECT count(*) FROM idsvc.batches")
    });
    assert_eq!(left, ["5001", "2"], "one is new, and another session uses one");
}

/// A full disk of the server refuses every write.
#[test]
fn a_refusal_of_all_writes_is_logged_once_a_minute_with_a_count() {
    let (database, nodes) = three_nodes();
    let kiosk = Kiosk::register_as(&nodes[0], "tv", FLAGS);
    let running = serve(&nodes);
    let token = kiosk.enter(&running[0]).unwrap();
    database.sql(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION USING ERRCODE = ''disk_full''; END'; \
         CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON idsvc.families EXECUTE FUNCTION full_disk()",
    );
    let before: Vec<_> = running.iter().map(|node| node.log().lines().count()).collect();
    let begun = Instant::now();
    // Meanwhile each node finds several times that commits succeed.
    while begun.elapsed() < Duration::from_secs(6) {
        for node in &running {
            let refused = kiosk.refresh(node, &token).unwrap_err();
            assert_eq!(refused.status, 503, "{refused:?}");
        }
    }
    for (node, before) in running.iter().zip(before) {
        let log = node.log();
        let lines = log.lines().count() - before;
        assert!((1..=4).contains(&lines), "{lines} lines: {log}");
    }
}
