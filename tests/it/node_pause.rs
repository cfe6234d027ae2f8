//! A node that stops in the middle of requests and goes on later, as a paused virtual machine does.

use std::thread;
use std::time::{Duration, Instant};

use crate::harness::fault_proxy::{Fault, FaultProxy};
use crate::harness::kiosk::{ALL_GRANTS, Kiosk, OWN_TOKEN};
use crate::harness::nodes::{serve, set_up, until};
use crate::harness::postgres::Cluster;
use crate::harness::process::Running;
use crate::harness::report::amount;

const FAMILIES: usize = 24;
/// The delay of each message, and the pause between two refreshes. With both, the node stops in every stage of one.
const DELAY: Duration = Duration::from_millis(60);
const BETWEEN: Duration = Duration::from_millis(20);
/// Longer than a node runs a transaction again, and than it trusts what it has in memory.
const PAUSE: Duration = Duration::from_secs(6);

/// The tokens of a client that has asked the other node again.
struct Retried {
    successor: String,
    newest: String,
}

impl Retried {
    /// Refreshes, and goes on with the successor if asked to.
    fn at(node: &Running<'_>, kiosk: &Kiosk, token: &str, goes_on: bool) -> Self {
        let successor = kiosk.refresh(node, token).unwrap();
        let newest = if goes_on {
            kiosk.refresh(node, &successor).unwrap()
        } else {
            successor.clone()
        };
        Self { successor, newest }
    }
}

#[test]
fn a_node_that_was_stopped_ends_no_family_and_lets_no_disabled_client_in() {
    let cluster = Cluster::shared();
    let database = cluster.database("pause");
    let proxy = FaultProxy::start(cluster.port());
    let slow = database.url_at(&proxy.address()) + "?sslmode=disable";
    let nodes = set_up(&[&slow, &database.url()], &[]);
    let kiosk = Kiosk::register(&nodes[1]);
    let disabled = Kiosk::register_as(&nodes[1], "disabled", ALL_GRANTS);
    let running = serve(&nodes);
    let (paused, other) = (&running[0], &running[1]);
    let tokens: Vec<_> = (0..FAMILIES).map(|_| kiosk.enter(other).unwrap()).collect();
    let ask_disabled = || disabled.status(paused, &OWN_TOKEN);
    assert_eq!(ask_disabled(), 200);

    proxy.set(Fault::Delay(DELAY));
    thread::scope(|scope| {
        let asked = tokens.iter().map(|token| {
            thread::sleep(BETWEEN);
            let form = [("grant_type", "refresh_token"), ("refresh_token", token)];
            let kiosk = &kiosk;
            scope.spawn(move || kiosk.ask(paused, "/oauth2/token", &form))
        });
        let asked: Vec<_> = asked.collect();
        paused.signal("STOP");
        let retry = |(number, token): (usize, &String)| Retried::at(other, &kiosk, token, number % 2 == 0);
        let retried: Vec<_> = tokens.iter().enumerate().map(retry).collect();
        other.json(&["client", "disable", "disabled", "--json"]);
        thread::sleep(amount(PAUSE, Duration::from_mins(1)));
        // These wait in the socket of the node.
        let waiting: Vec<_> = (0..8).map(|_| scope.spawn(ask_disabled)).collect();
        proxy.set(Fault::None);
        paused.signal("CONT");
        for status in waiting {
            let status = status.join().unwrap();
            assert!([401, 503].contains(&status), "{status} for a disabled client");
        }
        for (asked, retried) in asked.into_iter().zip(&retried) {
            let Some(answer) = asked.join().unwrap() else {
                assert!(
                    amount(false, true),
                    "a client waits for seconds, and not for a minute"
                );
                continue;
            };
            match answer.status {
                200 => assert_eq!(answer.json()["refresh_token"], retried.successor),
                status => assert_eq!(status, 503, "{answer:?}"),
            }
        }
        for (number, retried) in retried.iter().enumerate() {
            let refresh = || kiosk.refresh(&running[number / 2 % 2], &retried.newest);
            let mut newest = refresh();
            // A node that was stopped for long has to connect again.
            until(|| {
                let is_ready = !matches!(&newest, Err(refusal) if refusal.status == 503);
                if !is_ready {
                    newest = refresh();
                }
                is_ready
            });
            newest.unwrap_or_else(|refusal| panic!("family {number}: {refusal:?}"));
        }
    });
}

/// Also the requests that came while it stopped: nothing tells the node when.
#[test]
fn a_node_that_stops_for_seconds_ends_no_family_whose_client_went_on_at_another_node() {
    let cluster = Cluster::shared();
    let database = cluster.database("short-pause");
    let proxy = FaultProxy::start(cluster.port());
    let slow = database.url_at(&proxy.address()) + "?sslmode=disable";
    let nodes = set_up(&[&slow, &database.url()], &[]);
    let kiosk = Kiosk::register(&nodes[1]);
    let running = serve(&nodes);
    let (paused, other) = (&running[0], &running[1]);
    for pause in [Duration::from_millis(2500), Duration::from_millis(4500)] {
        let tokens: Vec<_> = (0..FAMILIES).map(|_| kiosk.enter(other).unwrap()).collect();
        let (before, during) = tokens.split_at(FAMILIES / 2);
        proxy.set(Fault::Delay(DELAY));
        thread::scope(|scope| {
            let ask = |token: &String| {
                thread::sleep(BETWEEN);
                let (kiosk, token) = (&kiosk, token.clone());
                scope.spawn(move || {
                    let form = [("grant_type", "refresh_token"), ("refresh_token", &*token)];
                    kiosk.ask(paused, "/oauth2/token", &form).unwrap()
                })
            };
            let mut asked: Vec<_> = before.iter().map(ask).collect();
            paused.signal("STOP");
            let begun = Instant::now();
            asked.extend(during.iter().map(ask));
            let retry = |token: &String| Retried::at(other, &kiosk, token, true);
            let retried: Vec<_> = tokens.iter().map(retry).collect();
            assert!(begun.elapsed() < pause, "{:?}", begun.elapsed());
            thread::sleep(pause.saturating_sub(begun.elapsed()));
            proxy.set(Fault::None);
            paused.signal("CONT");
            for asked in asked {
                let answer = asked.join().unwrap();
                assert!([200, 503].contains(&answer.status), "{answer:?}");
            }
            for retried in &retried {
                let newest = kiosk.refresh(other, &retried.newest);
                newest.unwrap_or_else(|refusal| panic!("after {pause:?}: {refusal:?}"));
            }
            // Soon, a token that was replaced is a replay as ever.
            let replay = || kiosk.refresh(paused, &retried[0].successor).unwrap_err();
            until(|| replay().status == 400);
            let ended = kiosk.refresh(other, &retried[0].newest).unwrap_err();
            assert_eq!(ended.json()["error"], "invalid_grant");
        });
    }
}
