//! A hundred wrong passwords in a row, and who gets in after them.
//!
//! The service stands behind a proxy on this machine, which says in `X-Forwarded-For` where a request comes from.

use std::collections::BTreeSet;
use std::sync::{Mutex, mpsc};

use idsvc::admin::user;
use idsvc::admin::user::{NewPassword, SetPassword, UpdateUser, UserFields};
use idsvc::admin::{SecretString, apply};
use idsvc::flow::failed_passwords::counted;
use idsvc::limit::password_attempt::PasswordAttempt;
use idsvc::pages::text::{DE, EN};
use idsvc::store::StoreError;
use idsvc::store::engine::Tx;
use idsvc::store::records::FailedPasswords;
use idsvc::store::tables::FAILED_PASSWORDS;
use tokio::task::JoinSet;

use crate::harness::process::{Running, Service, said, shown};
use crate::harness::server::Setup;
use crate::harness::{Browser, Person, RelyingParty, START, Screen, Server, until};
use crate::limits::change_password;

const ALICE: &str = "alice@example.com";
const NEW: &str = "another password of alice";
/// In which one more failure under a name is allowed.
const PAUSE: u64 = 300;

async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start_with_limits(|_| {}).await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

/// Types a password in this browser, at an address that depends on the number.
async fn type_at(browser: &Browser, acme: &RelyingParty, number: u32, name: &str, password: &str) -> Screen {
    let address = format!("203.0.{}.{}", number / 256, number % 256);
    let again = acme.request().with("prompt", "login");
    let page = browser.at(&address).authorize(&again).await;
    page.type_in(name, password).await
}

/// A stranger types a password.
async fn try_password(
    alice: &Person,
    acme: &RelyingParty,
    number: u32,
    name: &str,
    password: &str,
) -> Screen {
    type_at(&alice.browser(), acme, number, name, password).await
}

fn is_signed_in(page: &Screen) -> bool {
    page.header("location")
        .is_some_and(|location| location.starts_with("https://acme.example/cb?code="))
}

fn count(server: &Server, person: &Person) -> u32 {
    let uuid = person.user.uuid;
    let read = server
        .app
        .core
        .store
        .read_blocking(|snapshot| FAILED_PASSWORDS.get(snapshot, &uuid));
    read.unwrap().map_or(0, |failed| failed.count)
}

async fn until_counted(server: &Server, person: &Person, times: u32) {
    until(async || count(server, person) == times).await;
}

/// As if this many wrong passwords had been typed.
async fn set_count(server: &Server, person: &Person, count: u32) {
    let uuid = person.user.uuid;
    let row = FailedPasswords {
        count,
        second_step: 0,
        last_failed_at: START,
    };
    let store = &server.app.core.store;
    store
        .write("test", move |tx| FAILED_PASSWORDS.put(tx, &uuid, &row))
        .await
        .unwrap();
}

fn rows(server: &Server) -> u64 {
    let store = &server.app.core.store;
    store
        .read_blocking(|snapshot| FAILED_PASSWORDS.count(snapshot))
        .unwrap()
}

#[tokio::test]
async fn after_a_hundred_wrong_passwords_only_a_known_browser_gets_in() {
    let (server, acme, alice) = scene().await;
    let known = alice.browser();
    assert!(is_signed_in(
        &type_at(&known, &acme, 1, ALICE, &alice.password).await
    ));
    for number in 1..=FailedPasswords::LIMIT {
        server.advance(PAUSE);
        let page = try_password(&alice, &acme, number, ALICE, "wrong").await;
        assert_eq!(page.status, 200, "{number}");
        until_counted(&server, &alice, number).await;
    }
    server.advance(PAUSE);
    let wrong = try_password(&alice, &acme, 201, ALICE, "wrong").await;
    server.advance(PAUSE);
    let right = try_password(&alice, &acme, 202, ALICE, &alice.password).await;
    server.advance(PAUSE);
    let unknown = try_password(&alice, &acme, 203, "nobody@example.com", "wrong").await;
    for page in [&right, &unknown] {
        assert_eq!((page.status, page.shown()), (wrong.status, wrong.shown()));
        assert!(page.cookies().is_empty());
    }
    assert_eq!(count(&server, &alice), FailedPasswords::LIMIT);
    // What is refused counts for the limits in memory like any wrong password, and so tells nothing.
    let mut held_back = 0;
    for number in 300..315 {
        let page = try_password(&alice, &acme, number, ALICE, &alice.password).await;
        held_back += usize::from(page.status == 429);
    }
    assert_eq!(held_back, 5, "ten are let through at once");

    let page = type_at(&known, &acme, 1, ALICE, "wrong").await;
    assert!(page.text().contains(EN.problem_credentials));
    assert!(is_signed_in(
        &type_at(&known, &acme, 1, ALICE, &alice.password).await
    ));
    assert_eq!(rows(&server), 0);
    server.advance(10 * PAUSE);
    assert!(is_signed_in(
        &try_password(&alice, &acme, 1, ALICE, &alice.password).await
    ));
}

#[tokio::test]
async fn a_right_password_resets_the_count() {
    let (server, acme, alice) = scene().await;
    set_count(&server, &alice, FailedPasswords::LIMIT - 1).await;
    assert!(is_signed_in(
        &try_password(&alice, &acme, 1, ALICE, &alice.password).await
    ));
    assert_eq!(rows(&server), 0);
    try_password(&alice, &acme, 2, ALICE, "wrong").await;
    until_counted(&server, &alice, 1).await;
    assert!(is_signed_in(
        &try_password(&alice, &acme, 3, ALICE, &alice.password).await
    ));
}

#[tokio::test]
async fn wrong_current_passwords_count_and_a_new_password_resets_the_count() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser().at("192.0.2.1");
    type_at(&browser, &acme, 1, ALICE, &alice.password).await;
    change_password(&browser, "wrong", NEW).await;
    until_counted(&server, &alice, 1).await;
    set_count(&server, &alice, FailedPasswords::LIMIT).await;
    let changed = change_password(&browser, &alice.password, NEW).await;
    assert!(changed.text().contains(EN.account_password_changed));
    assert_eq!(rows(&server), 0);
    assert!(is_signed_in(&try_password(&alice, &acme, 2, ALICE, NEW).await));
}

fn set_password() -> SetPassword {
    SetPassword {
        who: ALICE.to_owned(),
        password: NewPassword::Given(SecretString::new(NEW)),
        keep_sessions: true,
    }
}

fn reset(reset_failed_passwords: bool) -> UpdateUser {
    UpdateUser {
        who: ALICE.to_owned(),
        email: None,
        account_id: None,
        reset_failed_passwords,
        keep_factors: false,
        fields: UserFields {
            name: Some("Alice".to_owned()),
            ..UserFields::default()
        },
    }
}

#[tokio::test]
async fn an_operator_resets_the_count_with_or_without_a_new_password() {
    let (server, acme, alice) = scene().await;
    let at_limit = async || set_count(&server, &alice, FailedPasswords::LIMIT).await;
    let gets_in = async |password: &str| {
        server.advance(PAUSE);
        is_signed_in(&try_password(&alice, &acme, 1, ALICE, password).await)
    };
    at_limit().await;
    assert!(!gets_in(&alice.password).await);
    let shown = server
        .admin()
        .call(user::ShowUser {
            who: ALICE.to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(shown.failed_passwords.unwrap().count, FailedPasswords::LIMIT);
    server
        .admin()
        .call(user::EnableUser {
            who: ALICE.to_owned(),
        })
        .await
        .unwrap();
    server.admin().call(reset(false)).await.unwrap();
    assert!(
        !gets_in(&alice.password).await,
        "neither says anything of the password"
    );
    server.admin().call(reset(true)).await.unwrap();
    assert!(gets_in(&alice.password).await);
    assert_eq!(
        server
            .admin()
            .call(user::ShowUser {
                who: ALICE.to_owned()
            })
            .await
            .unwrap()
            .failed_passwords,
        None
    );

    at_limit().await;
    server.admin().call(set_password()).await.unwrap();
    assert!(gets_in(NEW).await);

    at_limit().await;
    let declared = |password: &str| {
        let state =
            serde_json::json!({ "user": [{ "account_id": ALICE, "email": ALICE, "password": password }] });
        apply::Apply {
            state: serde_json::from_value(state).unwrap(),
            dry_run: false,
            prune: false,
            ..apply::Apply::default()
        }
    };
    server.admin().call(declared(NEW)).await.unwrap();
    assert!(!gets_in(NEW).await, "the password is the one from before");
    server.admin().call(declared(&alice.password)).await.unwrap();
    assert!(gets_in(&alice.password).await);

    at_limit().await;
    server
        .admin()
        .call(user::RemoveUser {
            who: ALICE.to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(rows(&server), 0);
}

#[tokio::test]
async fn names_without_a_password_to_guess_write_nothing() {
    let mut setup = Setup::default();
    setup.limits.enabled = false;
    let server = setup.start().await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    server.user_with("bob", |user| user.enabled = false).await;
    server.user_with("carol", |user| user.password = None).await;
    let before = server.app.core.store.stats();
    for number in 0..200 {
        for name in [
            &*format!("nobody{number}"),
            "bob@example.com",
            "carol@example.com",
        ] {
            let page = try_password(&alice, &acme, number, name, "wrong").await;
            assert_eq!(page.status, 200);
        }
    }
    // A write for somebody would have been queued before this one.
    set_count(&server, &alice, 1).await;
    let after = server.app.core.store.stats();
    assert_eq!(after.transactions - before.transactions, 1);
    assert_eq!(rows(&server), 1);
}

/// A wrong password that was checked before the password changed, or before the user was removed, is stored after that.
#[tokio::test]
async fn a_failure_that_comes_late_counts_for_nobody() {
    let (server, _acme, alice) = scene().await;
    let core = &server.app.core;
    let (user, hash) = (&alice.user, alice.user.password.clone());
    let late = counted(core, &PasswordAttempt::trusted(), Some(user), hash, START);
    late.settle(false, drop);
    until_counted(&server, &alice, 1).await;
    server.admin().call(set_password()).await.unwrap();
    late.settle(false, drop);
    server
        .admin()
        .call(user::RemoveUser {
            who: ALICE.to_owned(),
        })
        .await
        .unwrap();
    late.settle(false, drop);
    core.store
        .write("after it", |_| Ok::<_, StoreError>(()))
        .await
        .unwrap();
    assert_eq!(rows(&server), 0);
}

/// Holds up everything that is written until the sender is dropped.
fn hold_writes(server: &Server) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let (begun, begins) = mpsc::channel();
    let work = move |_: &mut dyn Tx| -> Result<_, StoreError> {
        begun.send(()).unwrap();
        let _ = held.lock().unwrap().recv();
        Ok(())
    };
    server.app.core.store.enqueue("hold", work, drop).unwrap();
    begins.recv().unwrap();
    release
}

/// The answers do not wait for the count to be written. So the count of those before may be missed, but by no more than
/// the limit in memory lets through.
#[tokio::test]
async fn a_disk_that_stands_still_delays_no_answer_and_gives_ten_guesses_at_most() {
    let (server, acme, alice) = scene().await;
    set_count(&server, &alice, FailedPasswords::LIMIT - 1).await;
    let release = hold_writes(&server);
    let mut looked_at = 0;
    for number in 0..16 {
        let page = try_password(&alice, &acme, number, ALICE, "wrong").await;
        looked_at += usize::from(page.status == 200);
    }
    assert_eq!(looked_at, 10);
    assert_eq!(count(&server, &alice), FailedPasswords::LIMIT - 1);
    drop(release);
    until_counted(&server, &alice, FailedPasswords::LIMIT).await;
    server.advance(PAUSE);
    assert!(!is_signed_in(
        &try_password(&alice, &acme, 1, ALICE, &alice.password).await
    ));
}

#[tokio::test]
async fn of_sixteen_at_once_each_is_counted_and_none_is_let_in_at_the_limit() {
    let mut setup = Setup::default();
    setup.limits.enabled = false;
    let server = setup.start().await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    let at_once = async |password: String| {
        let mut under_way = JoinSet::new();
        for number in 0..16 {
            let (alice, acme, password) = (alice.clone(), acme.clone(), password.clone());
            under_way.spawn(async move { try_password(&alice, &acme, number, ALICE, &password).await });
        }
        under_way
            .join_all()
            .await
            .iter()
            .filter(|page| is_signed_in(page))
            .count()
    };
    assert_eq!(at_once("wrong".to_owned()).await, 0);
    until_counted(&server, &alice, 16).await;
    set_count(&server, &alice, FailedPasswords::LIMIT - 4).await;
    assert_eq!(at_once("wrong".to_owned()).await, 0);
    until_counted(&server, &alice, FailedPasswords::LIMIT).await;
    assert_eq!(
        at_once(alice.password.clone()).await,
        0,
        "without limits in memory, too"
    );
    assert_eq!(count(&server, &alice), FailedPasswords::LIMIT);
}

/// The sentence follows from what was typed, for names that nobody has as well.
#[tokio::test]
async fn after_five_failures_the_page_says_what_many_of_them_lead_to() {
    let (server, acme, alice) = scene().await;
    let known = alice.browser();
    type_at(&known, &acme, 1, ALICE, &alice.password).await;
    let mut pages = Vec::new();
    for name in [ALICE, "nobody@example.com"] {
        for number in 1..=12 {
            let page = try_password(&alice, &acme, number, name, "wrong").await;
            assert_eq!(page.status == 200, number <= 10);
            let says_so = page.text().contains(EN.problem_failed_often);
            assert_eq!(says_so, number >= 5, "{name} {number}");
            pages.push(page.shown());
        }
    }
    assert_eq!(pages.iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(pages[..12], pages[12..]);
    let request = acme.request().with("ui_locales", "de");
    let page = alice.browser().at("192.0.2.1").authorize(&request).await;
    let page = page.type_in(ALICE, "wrong").await;
    assert!(page.text().contains(DE.problem_failed_often), "{}", page.text());
    for password in ["wrong", "wrong", "wrong", "wrong", "wrong", "wrong"] {
        let page = type_at(&known, &acme, 1, ALICE, password).await;
        assert!(page.text().contains(EN.problem_credentials));
        assert!(!page.text().contains(EN.problem_failed_often), "it gets in");
    }
    until_counted(&server, &alice, 16).await;
}

fn type_password(running: &Running<'_>, password: &str) -> u16 {
    running.type_in("/account", ALICE, password).0.status
}

/// Neither a restart nor a kill resets the count. The sender is exempt from the limits in memory.
#[test]
fn the_count_survives_a_restart_and_the_limit_is_an_event() {
    let service = Service::new()
        .with("IDSVC_PASSWORD_MEMORY_KIB", "64")
        .with("IDSVC_PASSWORD_ITERATIONS", "1");
    let add = ["user", "add", ALICE, "--generate-password", "--json"];
    let added = service.json(&add);
    let password = added["password"].as_str().unwrap();
    let failed = || service.json(&["user", "show", ALICE, "--json"])["failed_passwords"]["count"].clone();
    let events = || service.json(&["events", "--event", "password_limit_reached", "--json"]);
    let mut running = service.serve();
    assert_eq!(failed(), serde_json::Value::Null);
    for _ in 0..3 {
        assert_eq!(type_password(&running, "wrong"), 200);
    }
    // A failure is counted after its answer.
    running.until(|_| failed() == 3);
    running.terminate();
    assert_eq!(failed(), 3);
    let mut running = service.serve();
    for _ in 3..FailedPasswords::LIMIT + 5 {
        assert_eq!(type_password(&running, "wrong"), 200);
    }
    running.until(|_| failed() == FailedPasswords::LIMIT);
    // Events are written by a thread of their own, a little later.
    running.until(|_| events().as_array().is_some_and(|events| !events.is_empty()));
    running.kill();
    let running = service.serve();
    assert_eq!(type_password(&running, password), 200, "refused");
    let events = events();
    assert_eq!(events.as_array().unwrap().len(), 1, "{events}");
    assert_eq!(events[0]["user"], added["uuid"]);
    let show = service.run(&["user", "show", ALICE]);
    assert!(shown(&show).contains("failed_passwords  100 in a row, which is the limit, the last one at 20"));
    let hint = said(&show);
    for command in [
        "user set-password alice@example.com",
        "user update alice@example.com --reset-failed-passwords",
    ] {
        assert!(hint.contains(&format!("idsvc {command}")), "{hint}");
    }
    let reset = service.run(&["user", "update", ALICE, "--reset-failed-passwords"]);
    assert!(reset.status.success());
    assert_eq!(type_password(&running, password), 303);
    assert_eq!(failed(), serde_json::Value::Null);
}
