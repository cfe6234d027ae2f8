//! Work that one of several nodes on one PostgreSQL does for all of them.

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idsvc::admin::session::RevokeSessions;
use idsvc::clock::Timestamp;
use idsvc::flow::deliver::{OutboxUpdate, apply_updates, claim, due_entries};
use idsvc::flow::lease::{HOUSEKEEPING, acquire};
use idsvc::flow::outbox::DrawnMail;
use idsvc::flow::{Core, rotate_keys, sweep};
use idsvc::jose::alg::Algorithm;
use idsvc::jose::keyring::KeyState;
use idsvc::mail::{Content, Message};
use idsvc::net::outbound::OutboundPolicy;
use idsvc::oauth::client::ClientOrigin;
use idsvc::server::logout_sender;
use idsvc::store::records::OutboxEntry;
use idsvc::store::tables::{CLIENTS, LEASES, LOGOUT_NOTICES, OUTBOX, REFRESH_KEYS, USED_ASSERTIONS};
use idsvc::store::{Address, Options, Store};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::mail::Mailing;
use super::spec::openid_backchannel_logout::ok;
use crate::harness::postgres::{Cluster, Database};
use crate::harness::registration::open;
use crate::harness::server::Setup;
use crate::harness::smtp::{MailCatcher, Manner};
use crate::harness::{Jwt, START, Server, Upstream, until};

const ALL: fn(&OutboxEntry) -> bool = |_| true;
const MINUTE: Duration = Duration::from_mins(1);
const DAY: Duration = Duration::from_hours(24);

/// Two nodes on a new database. Their clocks stand still.
pub(super) async fn two_nodes() -> [Server; 2] {
    two_nodes_on(&Cluster::shared().database("nodes")).await
}

async fn two_nodes_on(database: &Database) -> [Server; 2] {
    two_nodes_reaching(database, &OutboundPolicy::default()).await
}

async fn two_nodes_reaching(database: &Database, outbound: &OutboundPolicy) -> [Server; 2] {
    two_nodes_with(database, |setup| setup.outbound = outbound.clone()).await
}

async fn two_nodes_with(database: &Database, change: impl Fn(&mut Setup)) -> [Server; 2] {
    let address = Address::parse(&database.url()).unwrap();
    Store::migrate(&address).unwrap();
    let start = async || {
        let mut setup = Setup {
            store: Some(Store::connect(&address, Options::default()).unwrap()),
            ..Setup::default()
        };
        change(&mut setup);
        setup.start().await
    };
    [start().await, start().await]
}

/// Two nodes at which anyone may register clients, up to this number.
async fn two_open_nodes(most: usize) -> [Server; 2] {
    let database = Cluster::shared().database("nodes");
    two_nodes_with(&database, |setup| {
        setup.policy.registration = open(most);
        setup.limits.enabled = false;
    })
    .await
}

fn metadata() -> Value {
    json!({ "redirect_uris": ["https://app.example/cb"] })
}

#[tokio::test]
async fn registrations_at_one_node_rerun_no_refresh_at_the_other() {
    const REFRESHES: usize = 50;
    let [one, other] = two_open_nodes(10_000).await;
    let acme = other.client("acme").await;
    let mut tokens = acme.tokens(&other.user("alice").await.browser()).await;
    let before = other.app.core.store.stats().reruns;
    let stop = AtomicBool::new(false);
    let register = async {
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            assert_eq!(one.register(&metadata()).await.status, 201);
            count += 1;
        }
        count
    };
    let refresh = async {
        for _ in 0..REFRESHES {
            tokens = acme.refresh(tokens.refresh_token()).await.tokens();
        }
        stop.store(true, Ordering::Relaxed);
    };
    let (registered, ()) = tokio::join!(register, refresh);
    assert!(registered > REFRESHES / 10, "{registered}");
    assert_eq!(other.app.core.store.stats().reruns, before);
    let known = || {
        other
            .app
            .core
            .catalog()
            .registrants()
            .count(ClientOrigin::DynamicRegistration)
    };
    until(async || known() == registered).await;
}

#[tokio::test]
async fn registrations_at_two_nodes_at_once_leave_no_more_clients_than_there_may_be() {
    let nodes = two_open_nodes(25).await;
    let mut registrations = JoinSet::new();
    for number in 0..90 {
        registrations.spawn(nodes[number % 2].register(&metadata()).into_future());
    }
    let replies = registrations.join_all().await;
    let refused: Vec<_> = replies.iter().filter(|reply| reply.status != 201).collect();
    assert!(refused.iter().all(|reply| reply.status == 503), "{refused:?}");
    let stored = nodes[0]
        .app
        .core
        .store
        .read(|snapshot| CLIENTS.count(snapshot))
        .await;
    assert_eq!(stored.unwrap(), 25);
    for node in &nodes {
        let known = || {
            node.app
                .core
                .catalog()
                .registrants()
                .count(ClientOrigin::DynamicRegistration)
        };
        until(async || known() == 25).await;
    }
}

fn let_pass(nodes: [&Core; 2], time: Duration) {
    for node in nodes {
        node.clock.advance(time);
    }
}

async fn put_mail(core: &Core) {
    let message = Message {
        to: "bob@example.com".to_owned(),
        languages: None,
        zone: None,
        client_id: None,
        content: Content::Test,
    };
    let drawn = DrawnMail::draw(core, &message, START).unwrap();
    core.store.write("test", move |tx| drawn.put(tx)).await.unwrap();
}

async fn outbox(core: &Core) -> usize {
    let rows = core.store.read(|snapshot| OUTBOX.scan(snapshot, .., usize::MAX));
    rows.await.unwrap().len()
}

async fn holds(core: &Core) -> bool {
    acquire(core, HOUSEKEEPING).await.unwrap()
}

async fn lease_end(core: &Core) -> Timestamp {
    let lease = core.store.read(|snapshot| LEASES.get(snapshot, HOUSEKEEPING));
    lease.await.unwrap().unwrap().until
}

#[tokio::test]
async fn two_senders_deliver_each_mail_once() {
    const MAILS: usize = 50;
    let catcher = MailCatcher::start(Manner {
        pause: Duration::from_millis(20),
        ..Manner::default()
    });
    let [one, other] = two_nodes().await;
    let nodes = [one, other].map(|server| Mailing::with_server(server, &catcher.url()));
    let sent_to = |number: usize| format!("user-{number:02}@example.com");
    for number in 0..MAILS {
        nodes[number % 2].cause(&sent_to(number)).await;
    }
    until(async || {
        for node in &nodes {
            node.server.app.core.outbox_filled.notify_one();
        }
        outbox(&nodes[0].server.app.core).await == 0
    })
    .await;
    for node in nodes {
        node.end().await;
    }
    let mut recipients: Vec<_> = catcher.taken().into_iter().map(|mail| mail.to).collect();
    recipients.sort();
    let expected: Vec<_> = (0..MAILS).map(sent_to).collect();
    assert_eq!(recipients, expected);
}

/// One node ends the session, and only one node tells the application.
#[tokio::test]
async fn two_senders_send_each_notice_of_a_logout_once() {
    const SESSIONS: usize = 20;
    let website = Upstream::start().await;
    website.say("/logout", ok());
    let database = Cluster::shared().database("nodes");
    let nodes = two_nodes_reaching(&database, &website.terms()).await;
    let cores = [&nodes[0].app.core, &nodes[1].app.core];
    let uri = format!("{}/logout", website.issuer);
    let acme = nodes[0].client_with("acme", |client| client.backchannel_logout_uri = Some(uri));
    let (acme, alice) = (acme.await, nodes[0].user("alice").await);
    for _ in 0..SESSIONS {
        acme.tokens(&alice.browser()).await;
    }
    let senders = nodes.each_ref().map(|node| {
        let (stop, stops) = watch::channel(0);
        (stop, logout_sender::start(&node.app, stops))
    });
    let all = RevokeSessions::AllOf("alice@example.com".to_owned());
    nodes[1].admin().call(all).await.unwrap();
    until(async || {
        for core in cores {
            core.logout_queued.notify_one();
        }
        let waiting = cores[0].store.read(|snapshot| LOGOUT_NOTICES.count(snapshot));
        waiting.await.unwrap() == 0
    })
    .await;
    for (stop, sender) in senders {
        stop.send(1).unwrap();
        sender.finish().await;
    }
    let told = website.seen("/logout").into_iter().map(|request| {
        let token = Jwt::read(request.field("logout_token").unwrap());
        token.claims["sid"].to_string()
    });
    let told: Vec<_> = told.collect();
    let different: BTreeSet<_> = told.iter().collect();
    assert_eq!((told.len(), different.len()), (SESSIONS, SESSIONS));
}

#[tokio::test]
async fn a_mail_that_a_node_claimed_before_it_ended_is_sent_later_by_another() {
    let nodes = two_nodes().await;
    let [one, other] = [&nodes[0].app.core, &nodes[1].app.core];
    put_mail(one).await;
    let due = async |core: &Core| due_entries(core, core.clock.now(), 10, ALL).await.unwrap();
    let [mine, same] = [due(one).await, due(other).await].map(|mut due| due.entries.remove(0));
    let claimed = claim(one, mine, START).await.unwrap().unwrap();
    assert!(
        claim(other, same, START).await.unwrap().is_none(),
        "one was first"
    );

    // A clock that is ahead by minutes changes nothing.
    other.clock.advance(5 * MINUTE);
    let waiting = due(other).await;
    assert!(waiting.entries.is_empty());
    assert_eq!(waiting.next, Some(START + 20 * MINUTE));

    other.clock.advance(15 * MINUTE);
    let row = due(other).await.entries.remove(0);
    assert_eq!(row.entry.as_ref().unwrap().failed_attempts, 0);
    let row = claim(other, row, other.clock.now()).await.unwrap().unwrap();
    // The first node comes back, and its claim is over.
    apply_updates(one, vec![OutboxUpdate::<OutboxEntry>::Remove(claimed.key)])
        .await
        .unwrap();
    assert_eq!(outbox(one).await, 1);
    apply_updates(other, vec![OutboxUpdate::<OutboxEntry>::Remove(row.key)])
        .await
        .unwrap();
    assert_eq!(outbox(one).await, 0);
}

#[tokio::test]
async fn a_mail_whose_row_could_not_be_removed_is_not_sent_again() {
    let catcher = MailCatcher::start(Manner::default());
    let database = Cluster::shared().database("nodes");
    let [one, _other] = two_nodes_on(&database).await;
    // A claim leaves a row in the table, and the removal leaves none.
    database.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         IF NOT EXISTS (SELECT FROM idsvc.outbox) THEN RAISE EXCEPTION 'refused'; END IF;
         RETURN NULL;
         END $$;
         CREATE TRIGGER refuse AFTER DELETE ON idsvc.outbox EXECUTE FUNCTION refuse();",
    );
    let node = Mailing::with_server(one, &catcher.url());
    node.cause("bob@example.com").await;
    let core = &node.server.app.core;
    until(async || core.store.stats().failures > 0).await;
    database.sql("DROP TRIGGER refuse ON idsvc.outbox");
    until(async || {
        core.outbox_filled.notify_one();
        outbox(core).await == 0
    })
    .await;
    node.end().await;
    assert_eq!(catcher.taken().len(), 1);
}

#[tokio::test]
async fn a_node_whose_clock_is_wrong_does_no_work_for_the_others() {
    let database = Cluster::shared().database("nodes");
    let [node, _other] = two_nodes_on(&database).await;
    let core = &node.app.core;
    put_mail(core).await;
    assert_eq!(due_entries(core, START, 10, ALL).await.unwrap().entries.len(), 1);
    // Two more nodes agree on another time.
    database.sql("INSERT INTO idsvc.nodes SELECT set_byte('\\x00', 0, n), 20000, now() - interval '1 hour', now() + interval '1 hour' FROM generate_series(1, 2) n");
    until(async || {
        core.store
            .problem()
            .is_some_and(|problem| problem.contains("clock"))
    })
    .await;
    assert!(
        due_entries(core, START, 10, ALL)
            .await
            .unwrap()
            .entries
            .is_empty()
    );
    assert!(!holds(core).await);
}

#[tokio::test]
async fn a_lease_is_renewed_by_its_holder_and_passes_on_when_the_holder_stops() {
    let nodes = two_nodes().await;
    let [one, other] = [&nodes[0].app.core, &nodes[1].app.core];
    assert!(holds(one).await && !holds(other).await);
    let first_end = lease_end(one).await;
    let_pass([one, other], MINUTE / 2);
    assert!(holds(one).await);
    assert_eq!(lease_end(one).await, first_end, "less than half is over");
    for _ in 0..5 {
        let_pass([one, other], MINUTE);
        assert!(holds(one).await && !holds(other).await);
    }
    assert!(lease_end(one).await > first_end);

    // The holder stops.
    let_pass([one, other], 2 * MINUTE);
    assert!(holds(other).await && !holds(one).await);
}

#[tokio::test]
async fn a_node_whose_clock_jumped_keeps_no_other_from_the_work() {
    let nodes = two_nodes().await;
    let [one, other] = [&nodes[0].app.core, &nodes[1].app.core];
    assert!(holds(one).await);
    other.clock.advance(365 * DAY);
    assert!(holds(other).await, "its clock says that the lease has expired");
    assert!(lease_end(one).await > START + 364 * DAY);
    assert!(holds(one).await);
    assert!(lease_end(one).await <= START + 2 * MINUTE);
}

#[tokio::test]
async fn two_nodes_that_do_the_housekeeping_at_once_do_it_once() {
    let nodes = two_nodes().await;
    let [one, other] = [&nodes[0].app.core, &nodes[1].app.core];
    let both_keep = async || {
        let (first, second) = tokio::join!(rotate_keys::keep(one), rotate_keys::keep(other));
        first.and(second).unwrap();
    };
    let kid_of_signer = |core: &Core| {
        core.catalog()
            .keyring()
            .signer(Algorithm::Es256)
            .unwrap()
            .kid()
            .to_owned()
    };
    let old = kid_of_signer(one);
    let_pass([one, other], 76 * DAY);
    both_keep().await;
    let catalog = one.catalog();
    let announced = catalog.keyring().keys().iter();
    let announced = announced
        .filter(|(_, state)| *state == KeyState::Announced)
        .count();
    assert_eq!(announced, rotate_keys::indispensable(one).len());
    let_pass([one, other], 14 * DAY);
    both_keep().await;
    until(async || kid_of_signer(one) == kid_of_signer(other)).await;
    assert_ne!(kid_of_signer(one), old);
    let refresh_keys = one
        .store
        .read(|snapshot| REFRESH_KEYS.scan(snapshot, .., usize::MAX));
    let numbers: Vec<_> = refresh_keys
        .await
        .unwrap()
        .into_iter()
        .map(|(number, _)| number)
        .collect();
    assert_eq!(numbers, [1, 2]);

    let filled = one.store.write("test", |tx| {
        (0..100).try_for_each(|number| USED_ASSERTIONS.put(tx, &(1, [number; 32]), &()))
    });
    filled.await.unwrap();
    let now = one.clock.now();
    let mut cursors = [sweep::Cursor::default(), sweep::Cursor::default()];
    let [first, second] = &mut cursors;
    let (first, second) = tokio::join!(sweep::sweep(one, first, now), sweep::sweep(other, second, now));
    assert!(first.is_ok() && second.is_ok());
    let left = one.store.read(|snapshot| USED_ASSERTIONS.count(snapshot));
    assert_eq!(left.await.unwrap(), 0);
}
