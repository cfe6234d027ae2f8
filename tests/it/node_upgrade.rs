//! The database is set up again, or for a newer release, while nodes run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use idsvc::store::schema::{Schema, meta_put};
use idsvc::store::{Address, Options, Store};

use crate::harness::kiosk::Kiosk;
use crate::harness::nodes::{serve, set_up};
use crate::harness::postgres::{Cluster, until};
use crate::harness::process::{Running, said, shown};

/// The functions in the database: names, parameters and results.
const FUNCTIONS: &str = "SELECT format('%s(%s) %s', proname, pg_get_function_arguments(oid), pg_get_function_result(oid)) \
     FROM pg_proc WHERE pronamespace = 'idsvc'::regnamespace ORDER BY 1";

/// Refreshes at each node in turn, one family a client, until `happening` has ended. Each request is answered.
fn refresh_during(nodes: &[Running<'_>], kiosk: &Kiosk, happening: impl FnOnce()) {
    let (is_over, count) = (AtomicBool::new(false), AtomicUsize::new(0));
    let answers = |target| {
        let answered = || count.load(Ordering::Relaxed);
        until(|| answered() >= target, || format!("{} answers", answered()));
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut token = kiosk.enter(&nodes[0]).unwrap();
                for node in nodes.iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    token = kiosk.refresh(node, &token).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        answers(20);
        happening();
        answers(count.load(Ordering::Relaxed) + 20);
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn migrate_loses_no_request_of_nodes_that_run() {
    let database = Cluster::shared().database("upgrade");
    let nodes = set_up(&[&*database.url(); 2], &[]);
    let kiosk = Kiosk::register(&nodes[0]);
    let running = serve(&nodes);
    // The nodes of the release before may still call it.
    database.sql("CREATE FUNCTION idsvc.get_v0() RETURNS int LANGUAGE sql AS 'SELECT 0'");
    let before = database.sql(FUNCTIONS);
    refresh_during(&running, &kiosk, || {
        for _ in 0..5 {
            let migrated = nodes[0].run(&["migrate"]);
            assert_eq!(shown(&migrated), "nothing to do\n", "{}", said(&migrated));
        }
    });
    assert_eq!(database.sql(FUNCTIONS), before);
}

/// A newer release adds tables and functions, and keeps the functions of this one.
#[test]
fn nodes_go_on_after_the_database_was_set_up_for_a_newer_release_and_are_not_started_again() {
    let database = Cluster::shared().database("newer");
    let nodes = set_up(&[&*database.url(); 2], &[]);
    let kiosk = Kiosk::register(&nodes[0]);
    let mut running = serve(&nodes);
    let store = Store::connect(&Address::parse(&database.url()).unwrap(), Options::default()).unwrap();
    refresh_during(&running, &kiosk, || {
        let version = Schema::CURRENT.version() + 1;
        let newer = store.write_blocking("upgrade", move |tx| meta_put(tx, "schema", &version.to_string()));
        newer.unwrap();
        database.sql("CREATE TABLE idsvc.newer (k bytea PRIMARY KEY, v bytea NOT NULL, s int8 NOT NULL)");
    });
    assert_eq!(running[1].request("GET", "/readyz", &[], "").unwrap().status, 200);
    running[0].terminate();
    let refused = nodes[0].run(&["serve"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("install the newer release"),
        "{}",
        said(&refused)
    );
}

/// A node of a newer release, which has one more table, would lose what it writes to the table.
#[test]
fn a_node_does_not_start_with_the_functions_of_the_release_before() {
    let database = Cluster::shared().database("older");
    let nodes = set_up(&[&*database.url()], &[]);
    let own = "SELECT proname FROM pg_proc WHERE pronamespace = 'idsvc'::regnamespace AND proname ~ '_v2_'";
    for own in database.sql(own).lines() {
        let (function, _) = own.rsplit_once('_').unwrap();
        database.sql(&format!("ALTER FUNCTION idsvc.{own} RENAME TO {function}_1"));
    }
    let older = database.sql(FUNCTIONS);
    let refused = nodes[0].run(&["serve"]);
    assert!(said(&refused).contains("run idsvc migrate"), "{}", said(&refused));
    assert_eq!(shown(&nodes[0].run(&["migrate"])), "the database is set up\n");
    serve(&nodes);
    let both = database.sql(FUNCTIONS);
    assert!(older.lines().all(|function| both.contains(function)), "{both}");
}

/// Nodes of two releases run side by side during an upgrade. So a function that changes gets a new name, and the one of
/// the release before stays.
#[test]
fn nodes_call_these_functions() {
    let database = Cluster::shared().database("functions");
    set_up(&[&*database.url()], &[]);
    insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("postgres-functions", database.sql(FUNCTIONS));
    });
}
