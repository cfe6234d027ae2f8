//! Who was seen when: lists of users and sessions, removals in bulk, and the counts in the metrics.

use std::fmt::Write as _;
use std::fs;

use idsvc::admin::group::AddGroup;
use idsvc::admin::session::RevokeSessions;
use idsvc::admin::user::{
    DisableUser, ListUsers, LockUser, RemoveUsers, ShowUser, UpdateUser, UserFields, UserFilter, UserView,
    page,
};
use idsvc::oauth::GroupFields;
use idsvc::store::records::UserActivity;
use idsvc::store::tables::USER_ACTIVITY;
use serde_json::{Value, json};

use crate::harness::metrics::Collector;
use crate::harness::process::{Running, Service, said};
use crate::harness::{Audit, Person, START, Server, scene, sweep_all};
use crate::second_factor::enrol;

const DAY: u64 = 24 * 60 * 60;
const YEAR: u64 = 365 * DAY;

async fn show(server: &Server, person: &Person) -> UserView {
    let who = person.sub();
    server.admin().call(ShowUser { who }).await.unwrap()
}

/// The days of the last sign-in and of the last use.
pub(crate) async fn seen(server: &Server, person: &Person) -> [Option<String>; 2] {
    let shown = show(server, person).await;
    [shown.last_sign_in, shown.last_used]
}

pub(crate) fn days(sign_in: &str, used: &str) -> [Option<String>; 2] {
    [sign_in, used].map(|day| Some(day.to_owned()))
}

fn row(server: &Server, person: &Person) -> Option<UserActivity> {
    let uuid = person.user.uuid;
    let store = &server.app.core.store;
    store
        .read_blocking(|snapshot| USER_ACTIVITY.get(snapshot, &uuid))
        .unwrap()
}

/// The names of the users that match, without their domain.
pub(crate) fn matching(server: &Server, filter: UserFilter) -> Vec<String> {
    let request = ListUsers {
        filter,
        ..ListUsers::default()
    };
    let listed = page(server.admin(), &request).unwrap().records.into_iter();
    let mut names: Vec<_> = listed
        .map(|user| user.account_id.split('@').next().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

pub(crate) fn not_seen(days: u64) -> UserFilter {
    UserFilter {
        not_seen: Some(days * DAY),
        ..UserFilter::default()
    }
}

pub(crate) fn never_signed_in() -> UserFilter {
    UserFilter {
        never_signed_in: true,
        ..UserFilter::default()
    }
}

#[tokio::test]
async fn the_days_of_the_last_sign_in_and_use_are_known_and_no_refresh_writes_them() {
    let (server, acme, alice) = scene().await;
    assert_eq!(seen(&server, &alice).await, [None, None]);
    let tokens = acme.tokens(&alice.browser()).await;
    assert_eq!(seen(&server, &alice).await, days("2027-01-15", "2027-01-15"));
    let written = row(&server, &alice);
    assert_eq!(written.unwrap().last_sign_in, Some(START.day()));

    server.advance(3 * DAY);
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(seen(&server, &alice).await, days("2027-01-15", "2027-01-18"));
    assert_eq!(row(&server, &alice), written);

    // The session and the refresh family go, and their days stay.
    server.advance(DAY);
    acme.refresh(tokens.refresh_token()).await.tokens();
    server.advance(YEAR);
    assert!(sweep_all(&server).await > 0);
    assert_eq!(seen(&server, &alice).await, days("2027-01-15", "2027-01-19"));
    assert_ne!(row(&server, &alice), written);
    acme.tokens(&alice.browser()).await;
    assert_eq!(seen(&server, &alice).await, days("2028-01-19", "2028-01-19"));
}

#[tokio::test]
async fn the_last_use_survives_a_sign_out_and_a_lock_and_goes_with_the_user() {
    let (server, acme, alice) = scene().await;
    let (bob, carol) = (server.user("bob").await, server.user("carol").await);
    for person in [&alice, &bob, &carol] {
        let browser = person.browser();
        acme.tokens(&browser).await;
        server.advance(DAY / 4);
        acme.code(&browser).await;
    }
    let before = seen(&server, &carol).await;
    let everywhere = RevokeSessions::AllOf(alice.sub());
    server.admin().call(everywhere).await.unwrap();
    let who = bob.sub();
    server.admin().call(LockUser { who }).await.unwrap();
    sweep_all(&server).await;
    assert_eq!(seen(&server, &alice).await, days("2027-01-15", "2027-01-15"));
    assert_eq!(seen(&server, &bob).await, days("2027-01-15", "2027-01-15"));
    assert_eq!(seen(&server, &carol).await, before);
    for person in [&alice, &bob, &carol] {
        let removal = RemoveUsers {
            users: vec![person.user.uuid],
            filter: UserFilter::default(),
            removed_before: 0,
            is_last: true,
        };
        server.admin().call(removal).await.unwrap();
        assert_eq!(row(&server, person), None);
    }
}

#[tokio::test]
async fn users_are_found_by_when_they_were_seen() {
    let (server, acme, alice) = scene().await;
    server.user("bob").await;
    let carol = server.user("carol").await;
    acme.tokens(&alice.browser()).await;
    assert_eq!(matching(&server, never_signed_in()), ["bob", "carol"]);
    assert_eq!(matching(&server, not_seen(1)), [] as [&str; 0]);

    // Alice refreshes for as long as Carol signs in again.
    let tokens = acme.tokens(&carol.browser()).await;
    server.advance(80 * DAY);
    acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(matching(&server, not_seen(60)), ["alice", "bob"]);
    assert_eq!(matching(&server, not_seen(81)), [] as [&str; 0]);
    server.advance(YEAR);
    sweep_all(&server).await;
    assert_eq!(matching(&server, not_seen(365)), ["alice", "bob"]);
    assert_eq!(matching(&server, not_seen(364)), ["alice", "bob", "carol"]);
    assert_eq!(matching(&server, never_signed_in()), ["bob"]);
    let both = UserFilter {
        never_signed_in: true,
        ..not_seen(365)
    };
    assert_eq!(matching(&server, both), ["bob"]);
}

#[tokio::test]
async fn users_are_found_by_factor_lock_and_group_and_the_conditions_combine() {
    let (server, acme, alice) = scene().await;
    let (bob, carol) = (server.user("bob").await, server.user("carol").await);
    enrol(&server, &alice.browser()).await;
    acme.tokens(&bob.browser()).await;
    let fields = GroupFields::default();
    let name = "staff".to_owned();
    server.admin().call(AddGroup { name, fields }).await.unwrap();
    for person in [&alice, &bob] {
        let update = UpdateUser {
            who: person.sub(),
            email: None,
            account_id: None,
            reset_failed_passwords: false,
            keep_factors: false,
            fields: UserFields {
                groups: Some(vec!["staff".to_owned()]),
                ..UserFields::default()
            },
        };
        server.admin().call(update).await.unwrap();
    }
    let [of_bob, of_carol] = [&bob, &carol].map(Person::sub);
    server.admin().call(LockUser { who: of_bob }).await.unwrap();
    server.admin().call(DisableUser { who: of_carol }).await.unwrap();

    let without_factor = UserFilter {
        without_factor: true,
        ..UserFilter::default()
    };
    let staff = UserFilter {
        group: Some("staff".to_owned()),
        ..UserFilter::default()
    };
    let locked = UserFilter {
        disabled: true,
        ..UserFilter::default()
    };
    assert_eq!(matching(&server, without_factor.clone()), ["bob", "carol"]);
    assert_eq!(matching(&server, staff.clone()), ["alice", "bob"]);
    assert_eq!(matching(&server, locked.clone()), ["bob", "carol"]);
    let of_staff = UserFilter {
        group: staff.group,
        ..without_factor
    };
    assert_eq!(matching(&server, of_staff), ["bob"]);
    let never = UserFilter {
        never_signed_in: true,
        ..locked
    };
    assert_eq!(matching(&server, never), ["carol"]);
}

/// A crash, or a release that did not know the table, may leave the row of a user who is gone.
#[tokio::test]
async fn the_sweep_removes_the_days_of_a_user_who_is_gone_and_no_others() {
    let (server, acme, alice) = scene().await;
    acme.tokens(&alice.browser()).await;
    let core = &server.app.core;
    let gone = core.random.uuid_v4();
    let leave = core.store.write("test", move |tx| {
        USER_ACTIVITY.put(tx, &gone, &UserActivity::default())
    });
    leave.await.unwrap();
    let before = row(&server, &alice);
    sweep_all(&server).await;
    let left = core
        .store
        .read_blocking(|snapshot| USER_ACTIVITY.get(snapshot, &gone));
    assert_eq!(left.unwrap(), None);
    assert!(before.is_some() && row(&server, &alice) == before);
}

#[tokio::test]
async fn of_users_of_an_earlier_release_it_is_not_said_that_they_never_signed_in() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    acme.tokens(&alice.browser()).await;
    let uuid = alice.user.uuid;
    let core = &server.app.core;
    let forget = core
        .store
        .write("test", move |tx| USER_ACTIVITY.remove(tx, &uuid));
    assert!(forget.await.unwrap());
    for person in [&alice, &bob] {
        server
            .change_user(person, |user| user.sign_ins_are_known = false)
            .await;
    }
    assert_eq!(seen(&server, &alice).await, days("2027-01-15", "2027-01-15"));
    assert_eq!(seen(&server, &bob).await, [None, None]);
    assert_eq!(matching(&server, never_signed_in()), [] as [&str; 0]);
    server.advance(YEAR + 2 * DAY);
    assert_eq!(matching(&server, not_seen(365)), ["alice", "bob"]);
}

#[tokio::test]
async fn a_removal_leaves_out_who_came_back_and_the_last_event_counts() {
    let (server, acme, alice) = scene().await;
    let (bob, carol) = (server.user("bob").await, server.user("carol").await);
    server.advance(YEAR + DAY);
    assert_eq!(matching(&server, not_seen(365)), ["alice", "bob", "carol"]);
    acme.tokens(&bob.browser()).await;
    let audit = Audit::listen();
    let remove = |users: &[&Person], removed_before, is_last| RemoveUsers {
        users: users.iter().map(|person| person.user.uuid).collect(),
        filter: not_seen(365),
        removed_before,
        is_last,
    };
    let admin = server.admin();
    let first = admin.call(remove(&[&alice, &bob], 0, false)).await.unwrap();
    assert_eq!(first.removed, 1);
    let last = admin.call(remove(&[&carol, &alice], 1, true)).await.unwrap();
    assert_eq!(last.removed, 1);
    assert_eq!(matching(&server, UserFilter::default()), ["bob"]);
    let events = audit.take(&["administered"]).into_iter();
    let subjects: Vec<_> = events
        .map(|event| (event["command"].clone(), event["subject"].clone()))
        .collect();
    let of = |subject: &str| (json!("user remove"), json!(subject));
    assert_eq!(subjects, [of(&alice.sub()), of(&carol.sub()), of("2 users")]);
}

/// So many users who were made ten years ago, and Zoe, who was made now.
fn with_old_users(count: usize) -> Service {
    let service = Service::with_client();
    import_old_users(&service, count);
    service.json(&["user", "add", "zoe@example.com", "--no-password", "--json"]);
    service
}

/// Imports so many users who were made ten years ago.
pub(crate) fn import_old_users(service: &Service, count: usize) {
    let mut lines = String::new();
    for number in 0..count {
        let created_at = START.seconds() - 10 * YEAR;
        writeln!(
            lines,
            "{{\"email\":\"old{number}@example.com\",\"created_at\":{created_at}}}"
        )
        .unwrap();
    }
    let file = service.folder.path().join("old.jsonl");
    fs::write(&file, lines).unwrap();
    service.json(&["user", "import", file.to_str().unwrap(), "--json"]);
}

pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn listed(service: &Service, line: &str) -> Vec<String> {
    let users = service.json(&words(line));
    let users = users.as_array().unwrap().iter();
    users
        .map(|user| user["account_id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_list_by_conditions_goes_on_page_by_page() {
    let service = with_old_users(130);
    let old = listed(&service, "user list --not-seen 365d --json");
    assert_eq!(old.len(), 130);
    assert_eq!(listed(&service, "user list --never-signed-in --json").len(), 131);
    let _running = service.serve();
    assert_eq!(listed(&service, "user list --not-seen 365d --json"), old);
    let first = service.json(&words("user list --not-seen 365d --limit 3 --json"));
    let after = first[2]["uuid"].as_str().unwrap();
    let next = format!("user list --not-seen 365d --limit 200 --after {after} --json");
    assert_eq!(listed(&service, &next), old[3..]);
    let text = service.run(&words("user list --not-seen 365d --limit 3"));
    let table = String::from_utf8(text.stdout.clone()).unwrap();
    assert!(
        table.contains("LAST SIGN-IN") && table.contains("LAST USED"),
        "{table}"
    );
    assert!(
        said(&text).contains(&format!("--after {after}")),
        "{}",
        said(&text)
    );
    for flag in ["--locked", "--disabled"] {
        assert_eq!(
            listed(&service, &format!("user list {flag} --json")),
            [] as [&str; 0]
        );
    }
    service.json(&["user", "disable", "zoe@example.com", "--json"]);
    for flag in ["--locked", "--disabled"] {
        let locked = listed(&service, &format!("user list {flag} --json"));
        assert_eq!(locked, ["zoe@example.com"]);
    }
}

#[test]
fn users_are_removed_together_after_a_list_a_count_and_a_question() {
    let service = with_old_users(230);
    let refused = |line: &str, why: &str| {
        let output = service.run(&words(line));
        assert_eq!(output.status.code(), Some(2), "{line}: {}", said(&output));
        assert!(said(&output).contains(why), "{line}: {}", said(&output));
        output
    };
    refused("user remove --yes", "name a user");
    refused("user remove zoe@example.com --not-seen 365d --yes", "not both");
    let nothing = service.run(&["user", "remove", "--search", "", "--yes"]);
    assert_eq!(nothing.status.code(), Some(2));
    let asked = refused("user remove --not-seen 365d", "Remove 230 users");
    assert!(said(&asked).contains("--yes"));
    let table = String::from_utf8(asked.stdout).unwrap();
    assert!(
        table.contains("old229@example.com") && !table.contains("zoe@"),
        "{table}"
    );
    assert_eq!(listed(&service, "user list --json").len(), 231);

    // Without a running service, and with one.
    let few = service.json(&words("user remove --search old22 --not-seen 365d --yes --json"));
    assert_eq!(few, json!({"removed_users": 11, "kept_users": 0}));
    let _running = service.serve();
    let all = service.run(&words("user remove --not-seen 365d --never-signed-in --yes"));
    assert!(all.status.success(), "{}", said(&all));
    let shown = String::from_utf8(all.stdout).unwrap();
    assert_eq!(shown.lines().last(), Some("users removed: 219"));
    assert_eq!(listed(&service, "user list --json"), ["zoe@example.com"]);
    let again = service.json(&words(
        "user remove --not-seen 365d --never-signed-in --yes --json",
    ));
    assert_eq!(again, json!({"removed_users": 0, "kept_users": 0}));
    let events = service.json(&words("events --limit 1000 --json"));
    let events = events.as_array().unwrap().iter();
    let removals: Vec<_> = events.filter(|event| event["command"] == "user remove").collect();
    assert_eq!(removals.len(), 232);
    assert_eq!(removals.last().unwrap()["subject"], "219 users");
}

/// Signs a user in, whose password is `secret phrase of NAME`.
pub(crate) fn sign_in(running: &Running<'_>, name: &str) {
    let target = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https%3A%2F%2Fapp.example%2Fcb&scope=openid";
    let password = format!("secret phrase of {name}");
    let (reply, _) = running.type_in(target, &format!("{name}@example.com"), &password);
    assert!(reply.header("location").is_some(), "{reply:?}");
}

pub(crate) fn add_with_password(service: &Service, name: &str) {
    let mut add = service.command(&[
        "user",
        "add",
        &format!("{name}@example.com"),
        "--password-stdin",
        "--json",
    ]);
    let phrase = format!("secret phrase of {name}\n");
    let added = crate::harness::process::run_with_input(&mut add, phrase.as_bytes());
    assert!(added.status.success(), "{}", said(&added));
}

#[test]
fn the_sessions_of_all_users_are_listed_in_pages_and_counted_in_the_metrics() {
    let (service, collector) = Collector::of(Service::with_client());
    let names = ["alice", "bob", "carol"];
    for name in names {
        add_with_password(&service, name);
    }
    service.json(&["user", "add", "dave@example.com", "--no-password", "--json"]);
    service.json(&["user", "disable", "dave@example.com", "--json"]);
    let mut running = service.serve();
    for name in names {
        sign_in(&running, name);
    }
    assert_eq!(
        collector.value("idsvc_sign_ins_total{method=\"password\"}"),
        Some(3)
    );
    assert_eq!(
        collector.value("idsvc_sign_ins_total{method=\"passkey\"}"),
        Some(0)
    );
    let sessions = service.json(&["session", "list", "--json"]);
    let of = |session: &Value| session["account_id"].as_str().unwrap().to_owned();
    let users: Vec<_> = sessions.as_array().unwrap().iter().map(of).collect();
    assert_eq!(users, names.map(|name| format!("{name}@example.com")));
    for member in [
        "session",
        "user",
        "authority",
        "created_at",
        "last_used_at",
        "address",
    ] {
        assert!(!sessions[0][member].is_null(), "{member}: {sessions}");
    }
    let first = sessions[0]["session"].as_str().unwrap();
    let rest = service.json(&["session", "list", "--limit", "1", "--after", first, "--json"]);
    assert_eq!(rest, json!([sessions[1]]));
    let text = service.run(&["session", "list", "--limit", "2"]);
    let table = String::from_utf8(text.stdout.clone()).unwrap();
    assert!(
        table.contains("alice@example.com") && !table.contains("carol@"),
        "{table}"
    );
    assert!(said(&text).contains("--after"), "{}", said(&text));
    let mixed = service.run(&["session", "list", "alice@example.com", "--limit", "1"]);
    assert_eq!(mixed.status.code(), Some(2), "{}", said(&mixed));

    running.terminate();
    assert_eq!(service.json(&["session", "list", "--json"]), sessions);
    let mut running = service.serve();
    running.until(|_| collector.value("idsvc_sessions").is_some());
    for (sample, expected) in [
        ("idsvc_sessions", 3),
        ("idsvc_users{state=\"enabled\"}", 3),
        ("idsvc_users{state=\"disabled\"}", 1),
        ("idsvc_users{state=\"anonymous\"}", 0),
    ] {
        assert_eq!(collector.value(sample), Some(expected), "{sample}");
    }
}
