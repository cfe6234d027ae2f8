//! The limits for strangers who register clients, and what the operator sees of their clients.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use idsvc::oauth::client::ClientOrigin;
use idsvc::oauth::registration::RegistrationPolicy;
use idsvc::store::StoreError;
use idsvc::store::tables::CLIENTS;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::process::{Service, said, shown};
use crate::harness::registration::{REGISTER, Registrant, open};
use crate::harness::server::Setup;
use crate::harness::{Audit, Person, Server, sweep_all};

const DAY: u64 = 24 * 60 * 60;

fn web() -> Value {
    json!({ "redirect_uris": ["https://notes.example/cb"] })
}

async fn limited(registration: RegistrationPolicy) -> Server {
    let mut setup = Setup {
        trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
        ..Setup::default()
    };
    setup.policy.registration = registration;
    setup.start().await
}

/// A client that no user has allowed is removed after a month. A client that a user has allowed stays.
#[tokio::test]
async fn a_client_that_no_user_allows_is_swept_after_a_month() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let used = server.registrant(&web()).await;
    used.party.code(&alice.browser()).await;
    server.advance(DAY);
    let removed = server.registrant(&web()).await;
    assert_eq!(removed.manage(&server, "DELETE").await.status, 204);
    let unused = server.registrant(&web()).await;
    server.advance(29 * DAY);
    sweep_all(&server).await;
    assert_eq!(unused.manage(&server, "GET").await.status, 200);
    server.advance(DAY);
    let audit = Audit::listen();
    sweep_all(&server).await;
    let swept = audit.take(&["client_registration_removed"]);
    assert_eq!((swept.len(), &swept[0]["reason"]), (1, &json!("unused")));
    assert_eq!(unused.manage(&server, "GET").await.status, 401);
    assert_eq!(used.manage(&server, "GET").await.status, 200);
    used.party.code(&alice.browser()).await;
}

/// A network that fills the room shuts out no other.
#[tokio::test]
async fn a_newcomer_takes_the_place_of_the_oldest_unused_client_of_whom_holds_most() {
    let server = limited(open(5)).await;
    let alice = server.user("alice").await;
    let register = async |from: &str| {
        let reply = server.register(&web()).header("x-forwarded-for", from).await;
        server.advance(1);
        server.registered(&reply)
    };
    let honest = register("198.51.100.7").await;
    let used = register("192.0.2.1").await;
    used.party.code(&alice.browser()).await;
    let of_attacker = [
        register("192.0.2.1").await,
        register("192.0.2.1").await,
        register("192.0.2.1").await,
    ];
    let audit = Audit::listen();
    let newcomer = register("203.0.113.9").await;
    let removed = audit.take(&["client_registration_removed"]);
    assert_eq!((removed.len(), &removed[0]["reason"]), (1, &json!("replaced")));
    register("192.0.2.1").await;
    let is_there = async |registrant: &Registrant| registrant.manage(&server, "GET").await.status == 200;
    assert!(is_there(&honest).await && is_there(&used).await && is_there(&newcomer).await);
    assert!(!is_there(&of_attacker[0]).await && !is_there(&of_attacker[1]).await);
    assert!(is_there(&of_attacker[2]).await);
    let begun = of_attacker[0].party.request();
    assert_eq!(alice.browser().authorize(&begun).await.status, 400);
    used.party.code(&alice.browser()).await;
}

/// One person can allow any number of clients, and two can together. Each keeps one that others use too.
#[tokio::test]
async fn the_oldest_client_of_whom_uses_most_makes_room_if_users_have_allowed_all() {
    let server = limited(open(3)).await;
    let (alice, bob) = (server.user("alice").await, server.user("bob").await);
    let carol = server.user("carol").await;
    let allow = async |registrant: &Registrant, people: &[&Person]| {
        for person in people {
            registrant.party.code(&person.browser()).await;
        }
    };
    let mut of_alice = Vec::new();
    for _ in 0..3 {
        let registrant = server.registrant(&web()).await;
        allow(&registrant, &[&alice]).await;
        of_alice.push(registrant);
        server.advance(1);
    }
    allow(&of_alice[0], &[&bob]).await;
    let status = async |registrant: &Registrant| registrant.manage(&server, "GET").await.status;
    let of_bob = server.registrant(&web()).await;
    assert_eq!(status(&of_alice[0]).await, 200, "two users use it");
    assert_eq!(
        (status(&of_alice[1]).await, status(&of_alice[2]).await),
        (401, 200)
    );
    server.advance(1);
    allow(&of_bob, &[&bob, &alice]).await;
    allow(&of_alice[2], &[&bob]).await;
    // Alice was the first at two.
    let of_carol = server.registrant(&web()).await;
    assert_eq!(
        (status(&of_alice[0]).await, status(&of_alice[2]).await),
        (401, 200)
    );
    allow(&of_carol, &[&carol, &alice]).await;
    let full = server.register(&web()).await;
    assert_eq!((full.status, &*full.error()), (503, "temporarily_unavailable"));
    assert_eq!(full.header("retry-after"), Some("3600"));
    for kept in [&of_alice[2], &of_bob, &of_carol] {
        assert_eq!(status(kept).await, 200);
    }
}

/// Registrations at the same moment count each other, and each network keeps its part.
#[tokio::test]
async fn of_registrations_at_once_no_more_are_stored_than_there_may_be() {
    let server = limited(open(25)).await;
    let mut registrations = JoinSet::new();
    for number in 0..90 {
        let from = format!("198.51.{}.7", number % 6);
        registrations.spawn(
            server
                .register(&web())
                .header("x-forwarded-for", &from)
                .into_future(),
        );
    }
    let replies = registrations.join_all().await;
    assert!(replies.iter().all(|reply| reply.status == 201));
    let stored = server
        .app
        .core
        .store
        .read(|snapshot| CLIENTS.scan(snapshot, .., usize::MAX));
    let stored: Vec<_> = stored.await.unwrap().into_iter().map(|(id, _)| id).collect();
    assert_eq!(stored.len(), 25);
    let catalog = server.app.core.catalog();
    assert_eq!(catalog.registrants().count(ClientOrigin::DynamicRegistration), 25);
    assert!(stored.iter().all(|id| catalog.client(id).is_some()));
}

#[tokio::test]
async fn the_memory_of_clients_bounds_their_number_too() {
    let room = RegistrationPolicy {
        room: 64 << 10,
        ..open(10_000)
    };
    let server = Server::start_with(|policy| policy.registration = room).await;
    let metadata = json!({
        "redirect_uris": ["https://app.example/cb"],
        "client_name": "n".repeat(100),
        "post_logout_redirect_uris": [format!("https://app.example/{}", "p".repeat(1900))],
    });
    let first = server.registrant(&metadata).await;
    for _ in 0..20 {
        server.advance(1);
        assert_eq!(server.register(&metadata).await.status, 201);
    }
    assert_eq!(first.manage(&server, "GET").await.status, 401);
    let kept = server
        .app
        .core
        .catalog()
        .registrants()
        .count(ClientOrigin::DynamicRegistration);
    assert!((8..16).contains(&kept), "{kept}");
    server.app.core.reload_catalog().await.unwrap();
    let read_again = server
        .app
        .core
        .catalog()
        .registrants()
        .count(ClientOrigin::DynamicRegistration);
    assert_eq!(read_again, kept);
}

/// Metadata of about 2 KiB.
fn long(number: usize) -> Value {
    json!({
        "redirect_uris": [format!("https://app.example/{number}")],
        "post_logout_redirect_uris": [format!("https://app.example/{}", "p".repeat(1900))],
    })
}

fn small_room() -> RegistrationPolicy {
    RegistrationPolicy {
        room: 32 << 10,
        ..open(10_000)
    }
}

#[tokio::test]
async fn a_registration_that_grows_takes_the_place_of_another() {
    let server = limited(small_room()).await;
    let register = async |metadata: &Value, from: &str| {
        let reply = server.register(metadata).header("x-forwarded-for", from).await;
        server.advance(1);
        server.registered(&reply)
    };
    let honest = register(&web(), "198.51.100.7").await;
    let mut of_attacker = Vec::new();
    for number in 0..8 {
        of_attacker.push(register(&long(number), "192.0.2.1").await);
    }
    let is_there = async |registrant: &Registrant| registrant.manage(&server, "GET").await.status == 200;
    let oldest = async || {
        for (index, registrant) in of_attacker.iter().enumerate() {
            if is_there(registrant).await {
                return index;
            }
        }
        of_attacker.len()
    };
    let before = oldest().await;
    let audit = Audit::listen();
    let mut larger = long(9);
    let uris = ["p", "q"].map(|name| format!("https://app.example/{}", name.repeat(1900)));
    larger["post_logout_redirect_uris"] = json!(uris);
    let change = honest.change(&server, larger);
    assert_eq!(change.header("x-forwarded-for", "198.51.100.7").await.status, 200);
    let removed = audit.take(&["client_registration_removed"]);
    assert!(!removed.is_empty());
    assert!(removed.iter().all(|event| event["reason"] == "replaced"));
    assert_eq!(oldest().await, before + removed.len());
    assert!(is_there(&honest).await);
}

#[tokio::test]
async fn registrations_that_grow_at_once_do_not_go_past_the_room() {
    let server = limited(small_room()).await;
    let mut registrants = Vec::new();
    for number in 0..12 {
        let from = format!("198.51.100.{number}");
        let reply = server.register(&web()).header("x-forwarded-for", &from).await;
        registrants.push(server.registered(&reply));
    }
    let mut changes = JoinSet::new();
    for (number, registrant) in registrants.iter().enumerate() {
        let from = format!("198.51.100.{number}");
        let change = registrant.change(&server, long(number));
        changes.spawn(change.header("x-forwarded-for", &from).into_future());
    }
    let replies = changes.join_all().await;
    // Some have made room for others before their own change.
    assert!(replies.iter().all(|reply| [200, 401].contains(&reply.status)));
    assert!(replies.iter().any(|reply| reply.status == 200));
    assert!(server.app.core.registrant_room_used() <= Some(100));
    let stored = server
        .app
        .core
        .store
        .read(|snapshot| CLIENTS.scan(snapshot, .., usize::MAX));
    let catalog = server.app.core.catalog();
    let count = catalog.registrants().count(ClientOrigin::DynamicRegistration);
    assert_eq!(stored.await.unwrap().len(), count);
}

/// At a start with less memory, some of the stored clients have no room.
#[tokio::test]
async fn a_client_without_room_at_the_start_is_removed_as_replaced() {
    let server = limited(small_room()).await;
    let first = server.registrant(&long(0)).await;
    let id = first.party.client_id().to_owned();
    let core = &server.app.core;
    let copies = core
        .store
        .write("test_store", move |tx| -> Result<_, StoreError> {
            let mut client = CLIENTS.get(&*tx, &id)?.unwrap();
            for number in 0..20 {
                client.client_id = format!("copy-{number}");
                CLIENTS.put(tx, &client.client_id, &client)?;
            }
            Ok(())
        });
    copies.await.unwrap();
    core.reload_catalog().await.unwrap();
    let audit = Audit::listen();
    sweep_all(&server).await;
    let removed = audit.take(&["client_registration_removed"]);
    assert!(removed.len() >= 10, "{}", removed.len());
    assert!(removed.iter().all(|event| event["reason"] == "replaced"));
}

/// One address can register only a limited number of clients. Refused registrations do not count.
#[tokio::test]
async fn an_address_over_its_limit_is_429_and_others_are_not() {
    let server = limited(open(1000)).await;
    let here = |metadata: &Value| server.register(metadata).header("x-forwarded-for", "192.0.2.1");
    for _ in 0..40 {
        assert_eq!(here(&json!({})).await.status, 400);
    }
    for _ in 0..30 {
        assert_eq!(here(&web()).await.status, 201);
    }
    let over = here(&web()).await;
    assert_eq!(over.status, 429);
    assert!(over.header("retry-after").is_some());
    let elsewhere = server.register(&web()).header("x-forwarded-for", "198.51.100.7");
    assert_eq!(elsewhere.await.status, 201);
    server.advance(300);
    assert_eq!(here(&web()).await.status, 201);
}

/// A change is a write like a registration.
#[tokio::test]
async fn changes_of_a_registration_are_limited_too() {
    let server = limited(open(1000)).await;
    let client = server.registrant(&web()).await;
    let statuses = async || client.change(&server, web()).await.status;
    for _ in 0..29 {
        assert_eq!(statuses().await, 200);
    }
    assert_eq!(statuses().await, 429);
}

/// All clients are in memory, so their metadata must be short.
#[tokio::test]
async fn long_metadata_are_refused() {
    let server = Server::open().await;
    let uris: Vec<_> = (0..200)
        .map(|n| format!("https://notes.example/{n:0>40}"))
        .collect();
    let reply = server.register(&json!({ "redirect_uris": uris })).await;
    assert_eq!(reply.error(), "invalid_client_metadata");
}

/// Anyone may register the redirect URI of another client. Only the client that asked for a code can redeem it.
#[tokio::test]
async fn the_redirect_uri_of_another_client_gives_no_power_over_it() {
    let server = Server::open().await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    let thief = server
        .registrant(&json!({ "redirect_uris": [acme.redirect_uri()] }))
        .await;
    let code = acme.code(&alice.browser()).await;
    assert_eq!(thief.party.redeem(&code).await.error(), "invalid_grant");
    acme.redeem(&code).await.tokens();
    let screen = alice
        .browser()
        .authorize(&thief.party.request())
        .await
        .sign_in()
        .await;
    assert_eq!(screen.page(), "/consent");
    let code = screen.allow().await.callback().code();
    assert_eq!(acme.redeem(&code).await.error(), "invalid_grant");
}

fn registered(service: &Service) -> Vec<Value> {
    let all = service.json(&["client", "list", "--json"]);
    let all = all.as_array().unwrap().iter().cloned();
    all.filter(|client| client["origin"] == "dynamic_registration")
        .collect()
}

/// One transaction counts the use of a token and stores the client. So a killed process cannot have done only one of
/// both.
#[test]
fn a_killed_process_counts_each_client_once() {
    const USES: u64 = 200;
    let service = Service::new()
        .with("IDSVC_CLIENTS_REGISTRATION", "token")
        .with("IDSVC_LIMITS_ENABLED", "false");
    let uses = USES.to_string();
    let token = service.json(&["client", "registration-token", "add", "--uses", &uses, "--json"]);
    let bearer = format!("Bearer {}", token["initial_access_token"].as_str().unwrap());
    let headers = [
        ("Authorization", bearer.as_str()),
        ("Content-Type", "application/json"),
    ];
    let mut running = service.serve();
    let answered = AtomicUsize::new(0);
    let body = web().to_string();
    thread::scope(|scope| {
        let (running, answered, body) = (&running, &answered, &body);
        for _ in 0..4 {
            scope.spawn(move || {
                while let Some(reply) = running.request("POST", REGISTER, &headers, body) {
                    if reply.status == 201 {
                        answered.fetch_add(1, Ordering::Relaxed);
                    } else {
                        return;
                    }
                }
            });
        }
        while answered.load(Ordering::Relaxed) < 20 {
            thread::yield_now();
        }
        running.signal("KILL");
    });
    running.kill();
    let stored = registered(&service).len();
    let left = service.json(&["client", "registration-token", "list", "--json"]);
    let left = left[0]["uses_left"].as_u64().unwrap();
    assert!(stored >= answered.load(Ordering::Relaxed));
    assert_eq!(u64::try_from(stored).unwrap(), USES - left);
}

/// An export leaves out clients that registered themselves, and `apply --prune` keeps them.
#[test]
fn declared_state_leaves_clients_alone_that_registered_themselves() {
    let service = Service::new().with("IDSVC_CLIENTS_REGISTRATION", "open");
    let headers = [("Content-Type", "application/json")];
    {
        let running = service.serve();
        let reply = running
            .request("POST", REGISTER, &headers, &web().to_string())
            .unwrap();
        assert_eq!(reply.status, 201, "{reply:?}");
    }
    let client_id = registered(&service)[0]["client_id"].as_str().unwrap().to_owned();
    let record = service.json(&["client", "show", &client_id, "--json"]);
    assert_eq!(record["consent"], "require");
    let unasked = service.run(&["client", "update", &client_id, "--consent", "skip"]);
    assert!(
        said(&unasked).contains("users are always asked"),
        "{}",
        said(&unasked)
    );
    let listed = shown(&service.run(&["client", "list"]));
    assert!(
        listed.contains(&client_id) && listed.contains("itself"),
        "{listed}"
    );
    let export = service.run(&["export"]);
    assert!(!shown(&export).contains(&client_id));
    assert!(
        said(&export).contains("1 clients that registered themselves"),
        "{}",
        said(&export)
    );
    std::fs::write(service.folder.path().join("state.json"), "{\"client\": []}").unwrap();
    let applied = service.run(&["apply", "-f", "state.json", "--prune", "--yes"]);
    assert!(applied.status.success(), "{}", said(&applied));
    assert_eq!(registered(&service).len(), 1);
    let removed = service.run(&["client", "remove", &client_id, "--yes"]);
    assert!(removed.status.success(), "{}", said(&removed));
}
