//! Nodes on one PostgreSQL database, one clock of which is wrong.

use idsvc::clock::Clock;

use super::shim::{Fault, Faults};
use crate::harness::kiosk::{Kiosk, is_ready, put_off, until_ready};
use crate::harness::nodes::{serve, set_up, until};
use crate::harness::postgres::{Cluster, Database};
use crate::harness::process::{Running, Service, shown};
use crate::harness::token::Jwt;

const DAY: i64 = 86_400;

/// Nodes on this database, each with a clock of its own.
fn nodes_on(database: &Database, faults: &[Faults]) -> Vec<Service> {
    let url = database.url();
    let urls: Vec<_> = faults.iter().map(|_| &*url).collect();
    let nodes = set_up(&urls, &[]).into_iter().zip(faults);
    nodes.map(|(node, faults)| faults.over(node)).collect()
}

fn says_of_clocks(node: &Service) -> String {
    let said = shown(&node.run(&["doctor"]));
    let lines = said.lines().filter(|line| line.contains(" clock "));
    lines.collect::<Vec<_>>().join("\n")
}

fn readiness(node: &Running<'_>) -> String {
    node.request("GET", "/readyz", &[], "").unwrap().body
}

#[test]
fn a_node_whose_clock_is_wrong_answers_nothing_by_it_and_the_others_go_on() {
    let database = Cluster::shared().database("clocks");
    let faults = [(); 3].map(|()| Faults::none());
    let nodes = nodes_on(&database, &faults);
    let kiosk = Kiosk::register(&nodes[0]);
    let running = serve(&nodes);
    let [one, _, wrong] = &*running else {
        panic!("three nodes");
    };
    let mut token = kiosk.enter(one).unwrap();
    for seconds in [7200, -20, 100 * DAY] {
        faults[2].set(Fault::Clock, seconds);
        until(|| !is_ready(wrong));
        let problem = readiness(wrong);
        assert!(problem.starts_with("the clock of this machine"), "{problem}");
        put_off(&kiosk.refresh(wrong, &token).unwrap_err());
        put_off(&kiosk.introspect(wrong, &token));
        let found = says_of_clocks(&nodes[2]);
        assert!(
            found.contains("system clock") && found.contains("the other nodes"),
            "{found}"
        );
        assert!(running[..2].iter().all(is_ready));
        token = kiosk.refresh(one, &token).unwrap();
        faults[2].set(Fault::Clock, 0);
        until_ready(wrong);
        token = kiosk.refresh(wrong, &token).unwrap();
    }

    // A smaller difference is corrected.
    faults[2].set(Fault::Clock, -8);
    let has_right_time = || {
        let tokens = kiosk.tokens(wrong);
        let claims = Jwt::read(tokens["access_token"].as_str().unwrap()).claims;
        claims["iat"]
            .as_u64()
            .unwrap()
            .abs_diff(Clock::System.now().seconds())
            <= 1
    };
    until(has_right_time);
    assert!(is_ready(wrong));
}

#[test]
fn a_database_whose_clock_is_wrong_is_a_fault_of_doctor_and_stops_no_node() {
    let database = Cluster::shared().database("clocks");
    let faults = [(); 2].map(|()| Faults::none());
    let nodes = nodes_on(&database, &faults);
    let kiosk = Kiosk::register(&nodes[0]);
    let running = serve(&nodes);
    let mut token = kiosk.enter(&running[0]).unwrap();
    database.sql(
        "DO $$ DECLARE f oid; BEGIN
         FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'idsvc'::regnamespace LOOP
           EXECUTE replace(pg_get_functiondef(f), 'clock_timestamp()', '(clock_timestamp() + interval ''2 minutes'')');
         END LOOP; END $$",
    );
    for node in 0..2 {
        until(|| says_of_clocks(&nodes[node]).contains("database clock"));
        assert!(is_ready(&running[node]), "{}", readiness(&running[node]));
        token = kiosk.refresh(&running[node], &token).unwrap();
        assert!(nodes[node].log().contains("the clock of the database is ahead"));
    }
}

#[test]
fn of_one_node_and_its_database_neither_clock_is_believed() {
    let database = Cluster::shared().database("clocks");
    let faults = [Faults::none()];
    let nodes = nodes_on(&database, &faults);
    let kiosk = Kiosk::register(&nodes[0]);
    faults[0].set(Fault::Clock, 7200);
    let running = serve(&nodes);
    let token = kiosk.enter(&running[0]).unwrap();
    kiosk.refresh(&running[0], &token).unwrap();
    let found = says_of_clocks(&nodes[0]);
    assert!(
        found.contains("advice") && found.contains("no third clock"),
        "{found}"
    );
    assert!(nodes[0].log().contains("nothing tells which is right"));
    assert!(is_ready(&running[0]));
}
