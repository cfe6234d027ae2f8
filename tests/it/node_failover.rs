//! An old primary that comes back after a failover.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::kiosk::{ALL_GRANTS, Kiosk, OWN_TOKEN, is_ready, put_off, until_ready};
use crate::harness::nodes::{serve, set_up, until};
use crate::harness::postgres::{Cluster, Psql};
use crate::harness::process::{said, shown};

#[test]
fn beside_two_primaries_no_node_starts_and_one_that_runs_stays_with_the_new_one() {
    let mut servers = Cluster::with_standby();
    let database = servers.primary.database("failover");
    let url = servers.url(&database) + "&sslmode=disable";
    let nodes = set_up(&[&*url; 3], &[]);
    let kiosk = Kiosk::register(&nodes[0]);
    let mut running = serve(&nodes);
    let mut token = kiosk.enter(&running[0]).unwrap();
    running[1].terminate();

    servers.primary.kill();
    servers.promote_standby();
    until_ready(&running[0]);
    token = kiosk.refresh(&running[0], &token).unwrap();
    servers.primary.restart();
    for command in [&["serve"][..], &["user", "list"]] {
        let refused = nodes[1].run(command);
        let said = said(&refused);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        for server in [&servers.primary, &servers.standby] {
            assert!(
                said.contains(&format!("127.0.0.1:{} (timeline", server.port())),
                "{said}"
            );
        }
    }
    token = kiosk.refresh(&running[0], &token).unwrap();

    // The connections break, and only the old primary answers.
    servers.standby.kill();
    until(|| !is_ready(&running[0]));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        put_off(&kiosk.refresh(&running[0], &token).unwrap_err());
    }
    let log = running[0].log();
    assert!(log.contains("came after it"), "{log}");
    servers.standby.restart();
    until_ready(&running[0]);
    kiosk.refresh(&running[0], &token).unwrap();
}

#[test]
fn a_node_that_runs_on_an_old_primary_leaves_it_once_the_new_one_is_there() {
    let mut servers = Cluster::with_standby();
    let database = servers.primary.database("old_primary");
    let url = servers.url(&database) + "&sslmode=disable";
    let nodes = set_up(&[&*url; 2], &[]);
    let kiosk = Kiosk::register(&nodes[0]);
    // Both servers get the keys.
    drop(serve(&nodes));
    servers.primary.kill();
    servers.promote_standby();
    servers.standby.kill();
    servers.primary.restart_without_standby();
    let running = serve(&nodes);
    kiosk.enter(&running[0]).unwrap();

    servers.standby.restart();
    let [old, new] =
        [&servers.primary, &servers.standby].map(|server| format!("127.0.0.1:{}", server.port()));
    for node in &running {
        let log = node.logged("this node leaves it");
        let both = format!("{old} (timeline 1) is an old primary, because {new} (timeline 2) came after it");
        assert!(log.contains(&both), "{log}");
        until_ready(node);
    }
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idsvc'";
    until(|| servers.primary.sql(sessions) == "0");
    let token = kiosk.enter(&running[0]).unwrap();
    kiosk.refresh(&running[1], &token).unwrap();
    let doctor = nodes[0].run(&["doctor"]);
    let told = shown(&doctor);
    assert_eq!(doctor.status.code(), Some(1), "{told}");
    assert!(told.contains("MEND  database store.url: 127.0.0.1"), "{told}");
    assert!(told.contains("both take writes"), "{told}");
}

/// What a node answers from memory may be of an old primary, whose standbys have left it.
#[test]
fn a_node_that_starts_while_commits_hang_and_one_that_runs_answer_nothing_that_needs_the_database() {
    let servers = Cluster::with_standby();
    let database = servers.primary.database("hanging");
    let url = database.tcp_url() + "?sslmode=disable";
    let nodes = set_up(&[&*url; 3], &[]);
    let kiosk = Kiosk::register_as(&nodes[0], "app", ALL_GRANTS);
    let running = serve(&nodes[..2]);
    let token = kiosk.enter(&running[0]).unwrap();

    servers.standby.pause();
    thread::scope(|scope| {
        for node in &running {
            // It is answered at the latest when the standby is back.
            scope.spawn(|| kiosk.enter(node));
        }
        let started = nodes[2].launch();
        until(|| {
            started
                .request("GET", "/healthz", &[], "")
                .is_some_and(|reply| reply.status == 200)
        });
        until(|| running.iter().all(|node| kiosk.status(node, &OWN_TOKEN) == 503));
        for node in running.iter().chain([&started]) {
            assert!(!is_ready(node));
            put_off(&kiosk.introspect(node, &token));
            put_off(&kiosk.refresh(node, &token).unwrap_err());
            let published = node.request("GET", "/oauth2/jwks", &[], "").unwrap();
            assert_eq!(published.status, 200);
        }
        servers.standby.resume();
        for node in running.iter().chain([&started]) {
            until_ready(node);
            assert_eq!(kiosk.status(node, &OWN_TOKEN), 200);
        }
    });
    kiosk.refresh(&running[1], &token).unwrap();
}

/// No request needs a commit, and a probe of a locked table is refused, which says nothing about other commits.
#[test]
fn while_commits_hang_an_idle_node_notices_and_so_does_one_that_tries_a_locked_table() {
    let servers = Cluster::with_standby();
    let database = servers.primary.database("idle");
    let url = database.tcp_url() + "?sslmode=disable";
    let nodes = set_up(&[&*url; 2], &[]);
    let kiosk = Kiosk::register_as(&nodes[0], "app", ALL_GRANTS);
    let running = serve(&nodes);
    let token = kiosk.enter(&running[0]).unwrap();
    let mut other = Psql::open(&database.url());
    other
        .run("BEGIN; LOCK TABLE idsvc.families IN SHARE MODE")
        .unwrap();
    put_off(&kiosk.refresh(&running[0], &token).unwrap_err());
    for node in &running {
        assert_eq!(kiosk.status(node, &OWN_TOKEN), 200);
    }

    servers.standby.pause();
    let begun = Instant::now();
    until(|| running.iter().all(|node| kiosk.status(node, &OWN_TOKEN) == 503));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    while begun.elapsed() < Duration::from_secs(12) {
        for node in &running {
            assert_eq!(kiosk.status(node, &OWN_TOKEN), 503);
        }
    }
    for (node, running) in nodes.iter().zip(&running) {
        running.logged("commits wait for a synchronous standby");
        let doctor = node.run(&["doctor"]);
        let told = shown(&doctor);
        assert_eq!(doctor.status.code(), Some(1), "{told}");
        assert!(
            told.contains("the service answers 503: the database does not answer: commits wait for"),
            "{told}"
        );
    }
    servers.standby.resume();
    other.run("COMMIT").unwrap();
    running.iter().for_each(until_ready);
}
