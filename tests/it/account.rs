//! The account page: what a signed-in person may see and end, and what nobody else may.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::time::Duration;

use idsvc::admin::user;
use idsvc::flow::account::ActionResult;
use idsvc::flow::account::change_password::{NewPassword, PasswordChange, change_password};
use idsvc::flow::account::present_proof::{PresentProof, TypedProof};
use idsvc::flow::browser::Browser as Sender;
use idsvc::identity::{Device, User};
use idsvc::limit::password_attempt::PasswordAttempt;
use idsvc::oauth::authorize::UntrustedRedirect;
use idsvc::oauth::client::ConsentRequirement;
use idsvc::oauth::parameters::ParameterError;
use idsvc::pages::text::EN;
use idsvc::password::Blocklist;
use idsvc::password::{Memory, hash};
use idsvc::store::tables::{CONSENTS, USERS};
use serde_json::json;
use zeroize::Zeroizing;

use crate::harness::html::Form;
use crate::harness::process::Service;
use crate::harness::{Audit, Browser, ISSUER, Person, RelyingParty, Screen, Server, scene};

const SESSION: &str = "__Host-idsvc_session";
const LANGUAGE: &str = "__Host-idsvc_language";
const NEW: &str = "a password that is new";
const MINUTE: u64 = 60;

const PASSWORD: &str = "/account/password";
const DEVICES: &str = "/account/devices";
const APPLICATIONS: &str = "/account/applications";

/// Signs a person in at a page of their account.
async fn at(browser: &Browser, path: &str) -> Screen {
    let page = browser.visit(path).await;
    assert_eq!(page.page(), "/login");
    let page = page.sign_in().await;
    assert_eq!((page.status, page.page()), (200, path));
    page
}

/// Signs a person in at their account page.
async fn at_account(browser: &Browser) -> Screen {
    at(browser, "/account").await
}

/// The form of the page for one kind of deed.
fn form(page: &Screen, decision: &str) -> Form {
    let mut forms = page.forms().into_iter();
    let found = forms.find(|form| form.value("decision") == Some(decision));
    found.unwrap_or_else(|| panic!("no form {decision} on {}", page.text()))
}

fn new_password(page: &Screen, current: &str, chosen: &str) -> Form {
    form(page, "password")
        .with("current-password", current)
        .with("new-password", chosen)
}

/// The sessions that the page offers to end, this browser's first.
fn sessions(page: &Screen) -> Vec<String> {
    let buttons = form(page, "sessions").buttons.into_iter();
    buttons
        .filter(|(name, value)| name == "session" && value != "others")
        .map(|(_, value)| value)
        .collect()
}

fn applications(page: &Screen) -> Vec<String> {
    let mut forms = page.forms().into_iter();
    let found = forms.find(|form| form.value("decision") == Some("applications"));
    found.map_or_else(Vec::new, |form| {
        form.buttons.into_iter().map(|(_, value)| value).collect()
    })
}

/// Whether the browser has a session, as a client sees it.
async fn is_signed_in(browser: &Browser, acme: &RelyingParty) -> bool {
    let request = acme.request().with("prompt", "none");
    browser
        .authorize(&request)
        .await
        .callback()
        .get("error")
        .is_none()
}

fn stored(server: &Server, person: &Person) -> User {
    let core = &server.app.core;
    let found = core
        .store
        .read_blocking(|snapshot| USERS.get(snapshot, &person.user.uuid));
    found.unwrap().unwrap()
}

/// A visitor without a session signs in and comes to the account page, not to a client. No code is issued.
#[tokio::test]
async fn a_visitor_signs_in_and_comes_back() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let login = browser.visit("/account").await;
    assert!(login.text().contains(EN.account_name), "it says what for");
    let arrived = login.clone().sign_in().await;
    assert_eq!(
        (arrived.page(), arrived.heading().as_str()),
        ("/account", EN.account_title)
    );
    assert!(
        arrived
            .text()
            .contains("alice Example</bdi> (<bdi>alice@example.com</bdi>)")
    );
    assert!(arrived.is_not_stored() && arrived.text().contains("/assets/account."));
    assert!(!arrived.path.contains("code="));
    assert!(is_signed_in(&browser, &acme).await, "and is signed in everywhere");
    assert_eq!(
        browser.fetch("/account").await.status,
        200,
        "at once the next time"
    );
    let other = alice.browser();
    acme.tokens(&other).await;
    assert_eq!(other.visit("/account").await.page(), "/account");
    let stolen = alice.browser().visit(&login.path).await;
    assert_eq!(stolen.status, 400, "the sign-in belongs to one browser");
}

/// Password managers ask for the page under a name of its own.
#[tokio::test]
async fn the_well_known_address_leads_to_the_page() {
    let (server, ..) = scene().await;
    let reply = server.get("/.well-known/change-password").await;
    assert_eq!(reply.location(), "/account/password");
}

/// No client can pass for the account page, and no client can be registered under its name.
#[tokio::test]
async fn no_request_can_name_the_page() {
    let (server, _acme, alice) = scene().await;
    let page = alice
        .browser()
        .visit(&format!(
            "/oauth2/authorize?client_id=(account)&response_type=code&redirect_uri={ISSUER}"
        ))
        .await;
    assert_eq!(page.status, 400);
    assert!(
        page.text()
            .contains(&UntrustedRedirect::UnknownClient.to_string())
    );
    let reply = server
        .post("/oauth2/token")
        .with("grant_type", "authorization_code")
        .with("client_id", "(account)")
        .with("code", "x")
        .await;
    assert_eq!(reply.error(), "invalid_client");
}

/// The page for a request with a parameter that it has twice.
fn duplicate(name: &str) -> String {
    format!("400 {}", ParameterError::Duplicate(name.to_owned()))
}

/// Sends a form several times, each time with another of these fields in it twice.
async fn refused_twice(browser: &Browser, form: Form, names: &[&str]) {
    for name in names {
        let mut form = form.clone();
        let value = form.value(name).unwrap().to_owned();
        form.fields.push(((*name).to_owned(), value));
        let page = browser.submit(&form).await;
        assert_eq!(page.error_page(), duplicate(name));
    }
}

/// On no page does the service guess which of two values counts.
#[tokio::test]
async fn a_field_sent_twice_is_refused_on_every_page() {
    let (server, acme, alice) = scene().await;
    let careful = server
        .client_with("careful", |client| client.consent = ConsentRequirement::Require)
        .await;
    let browser = alice.browser();
    let login = browser.authorize(&acme.request()).await;
    let form = login
        .login_form()
        .with("username", &alice.user.account_id)
        .with("password", &alice.password);
    let names = ["username", "password", "transaction", "csrf"];
    refused_twice(&browser, form, &names).await;
    let link = format!("{}&transaction=x", login.path);
    assert_eq!(browser.visit(&link).await.error_page(), duplicate("transaction"));
    login.sign_in().await.callback().code();
    let consent = browser.authorize(&careful.request()).await;
    let names = ["decision", "transaction", "csrf"];
    refused_twice(&browser, consent.decision_form("allow"), &names).await;
    consent.allow().await.callback().code();
    let account = browser.visit(PASSWORD).await;
    let names = ["decision", "current-password", "new-password", "csrf"];
    refused_twice(&browser, new_password(&account, &alice.password, NEW), &names).await;
    let names = ["decision", "csrf"];
    let logout = browser.visit("/logout/confirm").await;
    refused_twice(&browser, logout.decision_form("logout"), &names).await;
    assert!(is_signed_in(&browser, &acme).await);
}

/// The present password is checked, the new one becomes it, and everything granted before ends; this
/// browser goes on in a session of a new id.
#[tokio::test]
async fn a_new_password_ends_everything_else() {
    let (server, acme, alice) = scene().await;
    let (here, elsewhere) = (alice.browser(), alice.browser());
    let request = acme.request().with("scope", "openid offline_access");
    let abroad = acme.tokens_for(&elsewhere, &request).await;
    let online = acme.tokens(&elsewhere).await;
    let devices = at(&here, DEVICES).await;
    let page = here.visit(PASSWORD).await;
    let own = acme.tokens_for(&here, &request).await;
    let (before, id) = (here.cookie(SESSION).unwrap(), sessions(&devices)[0].clone());
    let copied = alice.browser();
    copied.set_cookie(SESSION, &before);

    server.advance(60 * MINUTE);
    let pending = acme.code(&copied).await;
    let audit = Audit::listen();
    let done = here.submit(&new_password(&page, &alice.password, NEW)).await;
    let told = audit.take(&["signed_out", "password_changed"]);
    assert_eq!((done.status, done.page()), (200, PASSWORD));
    assert!(done.text().contains(EN.account_password_changed));
    assert_ne!(here.cookie(SESSION).unwrap(), before);
    let left = sessions(&here.visit(DEVICES).await);
    assert!(left.len() == 1 && left[0] != id);
    assert_eq!(
        (&told[0]["event"], &told[0]["session"]),
        (&json!("password_changed"), &json!(left[0]))
    );
    let ended = told[1..].iter().map(|event| event["session"].as_str().unwrap());
    let theirs = online.id().claims["sid"].as_str().unwrap().to_owned();
    assert_eq!(
        ended.collect::<BTreeSet<_>>(),
        BTreeSet::from([&*theirs, &*id]),
        "every session that ended is accounted for, this browser's too"
    );
    assert_eq!(acme.redeem(&pending).await.error(), "invalid_grant");
    assert!(applications(&here.visit(APPLICATIONS).await).is_empty());
    for tokens in [&abroad, &online, &own] {
        assert!(!acme.is_welcome(tokens).await);
        assert_eq!(
            acme.refresh(tokens.refresh_token()).await.error(),
            "invalid_grant"
        );
    }
    assert!(is_signed_in(&here, &acme).await);
    for browser in [&elsewhere, &copied] {
        assert!(!is_signed_in(browser, &acme).await);
    }
    let login = alice.browser().visit("/account").await;
    let refused = login.type_in("alice@example.com", &alice.password).await;
    assert_eq!(refused.page(), "/login");
    assert_eq!(refused.type_in("alice@example.com", NEW).await.page(), "/account");
}

/// A session alone is not enough: without the present password nothing changes, for any new password.
#[tokio::test]
async fn a_wrong_present_password_changes_nothing() {
    let (server, acme, alice) = scene().await;
    let (browser, other) = (alice.browser(), alice.browser());
    let page = at(&browser, PASSWORD).await;
    at(&other, PASSWORD).await;
    let before = stored(&server, &alice);
    for wrong in ["", "wrong", "the password of bob", &"p".repeat(10_000)] {
        let again = browser.submit(&new_password(&page, wrong, NEW)).await;
        assert_eq!((again.status, again.page()), (200, PASSWORD));
        assert!(again.text().contains(EN.problem_current_password));
        assert!(!again.text().contains(NEW), "nothing typed comes back");
    }
    let after = stored(&server, &alice);
    assert!(after.password == before.password && after.updated_at == before.updated_at);
    assert!(is_signed_in(&other, &acme).await && is_signed_in(&browser, &acme).await);
}

/// The operator's policy holds for passwords that people choose.
#[tokio::test]
async fn an_unfit_new_password_is_refused_with_the_reason() {
    let server = Server::start_with(|policy| {
        policy.password.min_length = 12;
        policy.password.blocklist = Some(Blocklist::of("the acme way\n"));
    })
    .await;
    let alice = server.user("alice").await;
    let browser = alice.browser();
    let page = at(&browser, PASSWORD).await;
    assert!(
        page.text().contains("<bdi class=\"name\">12</bdi>"),
        "{}",
        page.text()
    );
    let too_long = EN.problem_too_long.replace("{}", "512");
    for (unfit, reason) in [
        ("elevenchars", EN.problem_too_short),
        ("", EN.problem_too_short),
        (&*"é".repeat(257), &too_long),
        ("password1234", EN.problem_guessable),
        ("123456789012", EN.problem_guessable),
        ("The Acme Way", EN.problem_guessable),
        ("Alice@Example.com", EN.problem_guessable),
        (ISSUER, EN.problem_guessable),
        (&*alice.password, EN.problem_same_password),
    ] {
        let again = browser.submit(&new_password(&page, &alice.password, unfit)).await;
        assert!(again.text().contains(reason), "{unfit}");
    }
    let wrong = browser.submit(&new_password(&page, NEW, NEW)).await;
    assert!(wrong.text().contains(EN.problem_current_password));
    let form = new_password(&page, &alice.password, "twelve chars");
    assert!(
        browser
            .submit(&form)
            .await
            .text()
            .contains(EN.account_password_changed)
    );
}

/// Of two that change it at once from two browsers, one wins, and the other is signed out.
#[tokio::test]
async fn of_two_changes_at_once_one_wins() {
    let (server, acme, alice) = scene().await;
    let (one, two) = (alice.browser(), alice.browser());
    let (first, second) = (at(&one, PASSWORD).await, at(&two, PASSWORD).await);
    let (first, second) = (
        new_password(&first, &alice.password, "the choice of one"),
        new_password(&second, &alice.password, "the choice of two"),
    );
    let (first, second) = tokio::join!(one.submit(&first), two.submit(&second));
    let changed = [&first, &second].map(|page| page.text().contains(EN.account_password_changed));
    assert!(changed[0] != changed[1], "{changed:?}");
    let signed_in = [is_signed_in(&one, &acme).await, is_signed_in(&two, &acme).await];
    assert_eq!(signed_in, changed);
    assert_ne!(stored(&server, &alice).password, alice.user.password);
}

/// A sign-in elsewhere makes the hash anew while the present password is checked: it is still the present one.
#[tokio::test]
async fn a_hash_that_is_made_anew_meanwhile_keeps_nobody_from_a_new_password() {
    let (server, _, alice) = scene().await;
    let browser = alice.browser();
    at(&browser, PASSWORD).await;
    let core = &server.app.core;
    let here = Sender::of(browser.cookie(SESSION).as_deref(), None, Device::default());
    let typed = NewPassword {
        chosen: Zeroizing::new(NEW.to_owned()),
        removed: Vec::new(),
    };
    let proof = PresentProof::Typed(TypedProof {
        text: Zeroizing::new(alice.password.clone()),
        attempt: PasswordAttempt::trusted(),
        from: Ipv4Addr::LOCALHOST.into(),
    });
    let params = core.passwords.params();
    let mut user = alice.user.clone();
    user.password = Some(hash(params, alice.password.as_bytes(), [9; 16], &mut Memory::default()).unwrap());
    let (go, wait) = mpsc::channel();
    let (made_anew, outcome, ()) = tokio::join!(
        biased;
        core.store.write("test_change", move |tx| {
            // The record has been read at this point, and the change of password waits behind this write.
            let _ = wait.recv();
            USERS.put(tx, &user.uuid, &user)
        }),
        change_password(core, &here, typed, &proof, core.clock.now()),
        async { go.send(()).unwrap() },
    );
    made_anew.unwrap();
    let outcome = outcome.unwrap();
    assert!(
        matches!(outcome, ActionResult::Done(PasswordChange::Changed { .. })),
        "{outcome:?}"
    );
}

/// A user without a password sees no form for one, and cannot submit one either.
#[tokio::test]
async fn without_a_password_there_is_none_to_change() {
    let (server, _acme, alice) = scene().await;
    let browser = alice.browser();
    let page = at(&browser, PASSWORD).await;
    let form = new_password(&page, "", NEW);
    server.change_user(&alice, |user| user.password = None).await;
    assert!(!browser.visit(PASSWORD).await.text().contains("type=\"password\""));
    let refused = browser.submit(&form).await;
    assert!(refused.text().contains(EN.problem_current_password));
    assert_eq!(stored(&server, &alice).password, None);
}

/// Browsers are listed as their user knows them, this one first.
#[tokio::test]
async fn the_page_tells_browsers_apart() {
    let (server, _acme, alice) = scene().await;
    let phone = alice.browser();
    let login = phone.visit(DEVICES).await.login_form();
    let form = login
        .with("username", "alice@example.com")
        .with("password", &alice.password);
    let agent = "Mozilla/5.0 (Android 16; Mobile; rv:145.0) Gecko/145.0 Firefox/145.0";
    phone.submit_with(&form, &[("user-agent", agent)]).await;
    server.advance(90 * MINUTE);
    let here = alice.browser();
    let page = at(&here, DEVICES).await;
    assert_eq!(sessions(&page).len(), 2);
    let text = page.text();
    assert!(text.contains("Firefox (Android)") && text.contains(EN.account_unknown_device));
    assert_eq!(
        text.matches("127.0.0.1").count(),
        4,
        "in words and in the buttons' labels"
    );
    assert!(text.contains("title=\"2027-01-15 08:00 UTC\">1 hour ago<"));
    assert!(text.contains("title=\"2027-01-15 09:30 UTC\">just now<"));
    assert!(text.find(EN.account_this_browser) < text.find("Firefox (Android)"));
    assert!(!text.contains("145.0"), "no version is kept");
}

/// One session ends with what was granted in it; the others stay.
#[tokio::test]
async fn one_browser_is_signed_out() {
    let (_server, acme, alice) = scene().await;
    let (here, gone, kept) = (alice.browser(), alice.browser(), alice.browser());
    at(&gone, DEVICES).await;
    let theirs = acme.tokens(&gone).await;
    let id = sessions(&gone.visit(DEVICES).await)[0].clone();
    at(&kept, DEVICES).await;
    let page = at(&here, DEVICES).await;
    assert_eq!(sessions(&page).len(), 3);
    let done = here.submit(&form(&page, "sessions").with("session", &id)).await;
    assert!(done.text().contains(EN.account_signed_out));
    assert!(!sessions(&done).contains(&id));
    assert!(!is_signed_in(&gone, &acme).await && !acme.is_welcome(&theirs).await);
    assert!(is_signed_in(&here, &acme).await && is_signed_in(&kept, &acme).await);
}

/// An attacker who knows a password can neither fill the store nor keep its owner from ending the attacker's sessions.
#[tokio::test]
async fn beyond_fifty_browsers_those_left_unused_the_longest_are_signed_out() {
    let (server, acme, alice) = scene().await;
    let first = alice.browser();
    at(&first, DEVICES).await;
    let theirs = acme.tokens(&first).await;
    server.advance(MINUTE);
    let second = alice.browser();
    at(&second, DEVICES).await;
    for _ in 2..50 {
        at(&alice.browser(), DEVICES).await;
    }
    assert!(is_signed_in(&first, &acme).await, "fifty have room");
    server.advance(MINUTE);
    let audit = Audit::listen();
    let page = at(&alice.browser(), DEVICES).await;
    let oldest = theirs.id().claims["sid"].clone();
    assert_eq!(
        audit.take(&["signed_out"]),
        [json!({"event": "signed_out", "user": alice.sub(), "session": oldest})]
    );
    assert_eq!(sessions(&page).len(), 50);
    assert!(!is_signed_in(&first, &acme).await && !acme.is_welcome(&theirs).await);
    assert!(is_signed_in(&second, &acme).await);
}

/// All others at once, and this browser stays.
#[tokio::test]
async fn all_other_browsers_are_signed_out() {
    let (_server, acme, alice) = scene().await;
    let here = alice.browser();
    let mut others = Vec::new();
    for _ in 0..3 {
        let browser = alice.browser();
        at(&browser, DEVICES).await;
        others.push(browser);
    }
    let page = at(&here, DEVICES).await;
    let done = here
        .submit(&form(&page, "sessions").with("session", "others"))
        .await;
    assert_eq!(sessions(&done).len(), 1);
    assert!(is_signed_in(&here, &acme).await);
    for browser in others {
        assert!(!is_signed_in(&browser, &acme).await);
    }
    assert!(
        !done.text().contains("value=\"others\""),
        "there is nobody else now"
    );
}

/// This browser signs itself out without having to prove anything.
#[tokio::test]
async fn this_browser_is_signed_out() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let page = at(&browser, DEVICES).await;
    let own = sessions(&page)[0].clone();
    server.advance(60 * MINUTE);
    let bye = browser
        .submit(&form(&page, "sessions").with("session", &own))
        .await;
    assert_eq!(
        (bye.page(), bye.heading().as_str()),
        ("/logged-out", &*EN.logged_out_of.replace("{}", "idsvc"))
    );
    assert_eq!(browser.cookie(SESSION), None);
    assert!(!is_signed_in(&browser, &acme).await);
}

/// A user who knows the id of another user's session cannot end it, and gets the same answer as for an unknown id.
#[tokio::test]
async fn nobody_ends_the_session_of_another_user() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let (hers, his) = (alice.browser(), bob.browser());
    let id = sessions(&at(&hers, DEVICES).await)[0].clone();
    let page = at(&his, DEVICES).await;
    let mut answers = BTreeSet::new();
    for id in [id.as_str(), "0199f3a2-7c41-7d8e-9b60-2f1c5a7e3d94"] {
        let done = his.submit(&form(&page, "sessions").with("session", id)).await;
        answers.insert(done.text().to_owned());
    }
    assert_eq!(answers.len(), 1);
    assert!(is_signed_in(&hers, &acme).await);
    let others = form(&page, "sessions").with("session", "others");
    his.submit(&others).await;
    assert!(is_signed_in(&hers, &acme).await);
    let bad = his
        .submit(&form(&page, "sessions").with("session", "not an id"))
        .await;
    assert_eq!(bad.status, 400);
}

/// What ends something takes a sign-in of the last ten minutes: the deed is not done, the user signs in again as
/// themselves, and comes back.
#[tokio::test]
async fn after_ten_minutes_the_user_is_asked_again() {
    let (server, acme, alice) = scene().await;
    let (here, other) = (alice.browser(), alice.browser());
    at_account(&other).await;
    let tokens = acme.tokens(&other).await;
    let page = at(&here, DEVICES).await;
    let others = form(&page, "sessions").with("session", "others");
    let revoke = form(&here.visit(APPLICATIONS).await, "applications").with("client", "acme");
    server.advance(10 * MINUTE);
    for deed in [&others, &revoke] {
        let asked = here.submit(deed).await;
        assert_eq!(asked.page(), "/login");
        assert_eq!(asked.login_form().value("username"), Some("alice@example.com"));
        assert!(asked.text().contains(EN.problem_reauthentication_required));
    }
    assert!(is_signed_in(&other, &acme).await && acme.is_welcome(&tokens).await);
    let asked = here.submit(&others).await;
    let wrong = asked.clone().type_in("alice@example.com", "wrong").await;
    assert_eq!(wrong.page(), "/login");
    let page = wrong.sign_in().await;
    assert_eq!(page.page(), DEVICES);
    assert!(page.text().contains(EN.account_action_pending));
    assert!(
        is_signed_in(&other, &acme).await,
        "nothing was done behind the user's back"
    );
    here.submit(&form(&page, "sessions").with("session", "others"))
        .await;
    assert!(!is_signed_in(&other, &acme).await);
}

/// A form that is sent after the session has ended says the same, unless it is one for a password; a visit to the page
/// says nothing.
#[tokio::test]
async fn what_is_asked_for_without_a_session_is_said_not_to_be_done() {
    let (_server, _acme, alice) = scene().await;
    let browser = alice.browser();
    let login = browser.visit(DEVICES).await;
    assert!(!login.text().contains("id=\"problem\""));
    let page = login.sign_in().await;
    assert!(!page.text().contains("id=\"notice\""));
    let own = sessions(&page)[0].clone();
    let elsewhere = alice.browser();
    let other = at(&elsewhere, DEVICES).await;
    elsewhere
        .submit(&form(&other, "sessions").with("session", &own))
        .await;
    for deed in [
        form(&page, "sessions").with("session", "others"),
        form(&page, "sessions").without("csrf"),
    ] {
        let asked = browser.submit(&deed).await;
        assert!(
            asked.text().contains(EN.problem_reauthentication_required),
            "{}",
            asked.text()
        );
    }
}

/// A password that a hasty hand sends twice is changed by the first time. The browser shows the second answer, which does
/// not say that nothing was done.
#[tokio::test]
async fn a_new_password_that_is_sent_twice_is_not_said_to_be_the_old_one() {
    let (_server, _acme, alice) = scene().await;
    let browser = alice.browser();
    let change = new_password(&at(&browser, PASSWORD).await, &alice.password, NEW);
    let session = browser.cookie(SESSION).unwrap();
    browser.submit(&change).await;
    browser.set_cookie(SESSION, &session);
    let asked = browser.submit(&change).await;
    assert_eq!(asked.page(), "/login");
    assert!(!asked.text().contains("id=\"problem\""), "{}", asked.text());
    let back = asked.type_in("alice@example.com", NEW).await;
    assert_eq!(back.page(), PASSWORD);
    assert!(!back.text().contains("id=\"notice\""));
}

/// The address of the sign-in page alone, which people and password managers keep, leads on; so does a sign-in that
/// has ended. A browser that takes no cookies is told so.
#[tokio::test]
async fn a_way_on_from_a_sign_in_that_has_ended() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let login = browser.visit("/login").await;
    assert_eq!(login.page(), "/login");
    assert_eq!(login.sign_in().await.page(), "/account");
    let gone = format!("/login?transaction={}", uuid::Uuid::nil());
    let page = browser.visit(&gone).await;
    assert_eq!((page.status, page.heading().as_str()), (400, EN.error_stale));
    let link = format!(
        "<a class=\"button\" href=\"/account\" data-optional>{}</a>",
        EN.account_title
    );
    assert!(page.text().contains(&link));
    let link = browser
        .fetch(&acme.request().with("prompt", "login").path())
        .await;
    let other = alice.browser();
    for path in [&gone, link.location()] {
        let page = other.visit(path).await;
        assert_eq!((page.status, page.heading().as_str()), (400, EN.error_cookies));
        assert!(page.text().contains("href=\"/account\""));
    }
}

/// An application is shown with what it may do; disconnecting takes its tokens and the consent back, in this
/// browser and in others, and leaves other applications and other users alone.
#[tokio::test]
async fn an_application_is_disconnected() {
    let (server, acme, alice) = scene().await;
    let careful = server
        .client_with("careful", |client| {
            client.client_name = Some("Careful & Sons".to_owned());
            client.consent = ConsentRequirement::Require;
        })
        .await;
    let bob = server.user("bob").await;
    let (here, other) = (alice.browser(), alice.browser());
    let request = careful.request().with("scope", "openid email offline_access");
    let theirs = careful.tokens_for(&other, &request).await;
    let kept = acme.tokens(&other).await;
    let his = careful.tokens_for(&bob.browser(), &request).await;
    let page = at(&here, APPLICATIONS).await;
    assert_eq!(applications(&page), ["careful", "acme"]);
    let text = page.text();
    assert!(text.contains("Careful &amp; Sons") && text.contains(EN.scope_email));
    assert!(text.contains(EN.scope_offline_access) && !text.contains(">authenticated<"));
    let shown = server
        .admin()
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    let shown = json!(shown.applications.unwrap());
    let scope = "openid email offline_access";
    assert_eq!(
        (&shown[0]["client_id"], &shown[0]["scope"]),
        (&json!("careful"), &json!(scope))
    );
    assert_eq!(
        (&shown[1]["client_id"], &shown[1]["name"]),
        (&json!("acme"), &json!("acme"))
    );
    assert_eq!(shown[0]["since"], json!(server.clock.now()));

    let done = here
        .submit(&form(&page, "applications").with("client", "careful"))
        .await;
    assert!(done.text().contains(EN.account_disconnected));
    assert_eq!(applications(&done), ["acme"]);
    assert!(!careful.is_welcome(&theirs).await);
    assert_eq!(
        careful.refresh(theirs.refresh_token()).await.error(),
        "invalid_grant"
    );
    assert!(acme.is_welcome(&kept).await && careful.is_welcome(&his).await);
    assert_eq!(
        other.authorize(&request).await.page(),
        "/consent",
        "it has to ask again"
    );
    let again = here
        .submit(&form(&done, "applications").with("client", "careful"))
        .await;
    assert_eq!(again.status, 200, "twice does no harm");
}

/// Nor does it come back by a code that it held, though nobody is asked whether it may.
#[tokio::test]
async fn an_application_that_was_disconnected_has_no_use_of_a_code_that_it_kept() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let here = alice.browser();
    at(&here, APPLICATIONS).await;
    acme.tokens(&here).await;
    let (kept, his) = (acme.code(&here).await, acme.code(&bob.browser()).await);
    let page = here.visit(APPLICATIONS).await;
    here.submit(&form(&page, "applications").with("client", "acme"))
        .await;
    assert_eq!(acme.redeem(&kept).await.error(), "invalid_grant");
    acme.redeem(&his).await.tokens();
}

/// An access token may be good for longer than the family behind it.
#[tokio::test]
async fn an_application_that_can_refresh_no_more_is_disconnected_too() {
    let server = Server::start_with(|policy| {
        policy.lifetimes.refresh_absolute = Some(Duration::from_secs(60 * MINUTE));
        policy.lifetimes.access_token = Duration::from_secs(24 * 60 * MINUTE);
    })
    .await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let tokens = acme.tokens(&alice.browser()).await;
    server.advance(55 * MINUTE);
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    let here = alice.browser();
    let page = at(&here, APPLICATIONS).await;
    server.advance(6 * MINUTE);
    assert!(acme.is_welcome(&tokens).await);
    here.submit(&form(&page, "applications").with("client", "acme"))
        .await;
    assert!(!acme.is_welcome(&tokens).await);
}

/// A consent without any token is a connection too: the next sign-in would not ask.
#[tokio::test]
async fn a_remembered_consent_can_be_taken_back() {
    let (server, _acme, alice) = scene().await;
    let careful = server
        .client_with("careful", |client| client.consent = ConsentRequirement::Require)
        .await;
    let browser = alice.browser();
    let tokens = careful.tokens(&browser).await;
    careful.revoke(tokens.refresh_token()).await;
    let page = browser.visit(APPLICATIONS).await;
    assert_eq!(applications(&page), ["careful"]);
    browser
        .submit(&form(&page, "applications").with("client", "careful"))
        .await;
    let left = server
        .app
        .core
        .store
        .read_blocking(|snapshot| CONSENTS.count(snapshot))
        .unwrap();
    assert_eq!(left, 0);
}

/// Forms count only from the page, in the session it was drawn for.
#[tokio::test]
async fn a_form_from_elsewhere_does_nothing() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let (browser, other) = (alice.browser(), alice.browser());
    let foreign = form(&at(&bob.browser(), DEVICES).await, "sessions");
    at(&other, DEVICES).await;
    let page = at(&browser, DEVICES).await;
    let deed = form(&page, "sessions").with("session", "others");
    let forged = deed.clone().with("csrf", foreign.value("csrf").unwrap());
    let own = [("origin", ISSUER), ("sec-fetch-site", "same-origin")];
    let tries = [
        (deed.clone().without("csrf"), &own[..]),
        (deed.clone().with("csrf", ""), &own[..]),
        (forged, &own[..]),
        (
            deed.clone(),
            &[("origin", ISSUER), ("sec-fetch-site", "cross-site")][..],
        ),
        (deed.clone().with("decision", "everything"), &own[..]),
    ];
    let is_foreign = |headers: &[(&str, &str)]| headers != own;
    for (form, headers) in tries {
        let refused = browser.submit_with(&form, headers).await;
        assert_eq!(refused.status, 400, "{form:?} {headers:?}");
        let reason = if is_foreign(headers) {
            EN.error_foreign_form
        } else {
            EN.problem_expired_account
        };
        assert!(refused.text().contains(reason));
    }
    let elsewhere = browser
        .submit_with(&deed, &[("origin", "https://evil.example")])
        .await;
    assert_eq!(
        (elsewhere.status, elsewhere.heading().as_str()),
        (400, EN.error_elsewhere)
    );
    assert!(is_signed_in(&other, &acme).await);
    let twice = browser.submit_with(&deed.clone().with("csrf", "x"), &own).await;
    assert_eq!(twice.status, 400);
    let session = browser.cookie(SESSION).unwrap();
    browser.set_cookie(SESSION, "idsvc_se_nothing");
    assert_eq!(browser.submit(&deed).await.page(), "/login");
    browser.set_cookie(SESSION, &session);
    browser.submit(&deed).await;
    assert!(!is_signed_in(&other, &acme).await);
}

/// A link from elsewhere cannot make the page say that something was done.
#[tokio::test]
async fn notices_are_the_pages_own() {
    let (_server, _acme, alice) = scene().await;
    let browser = alice.browser();
    at_account(&browser).await;
    for query in [
        "done=password",
        "done=password&proof=x",
        "done=password&proof=",
        "done=%00",
    ] {
        let page = browser.visit(&format!("/account?{query}")).await;
        assert_eq!(page.status, 200);
        assert!(!page.text().contains("id=\"notice\""), "{query}");
    }
}

/// The language is this browser's: it holds before a sign-in, and until it is left to the browser
/// again. What a client asks for comes first.
#[tokio::test]
async fn a_language_is_chosen_and_given_back() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let page = at_account(&browser).await;
    assert_eq!(page.text().matches("<option").count(), 7);
    let done = browser
        .submit(&form(&page, "language").with("language", "de"))
        .await;
    assert_eq!(done.heading(), "Ihr Konto");
    assert!(done.text().contains("Die Sprache wurde geändert") && done.text().contains("<html lang=\"de\""));
    assert_eq!(browser.cookie(LANGUAGE).as_deref(), Some("de"));
    let login = browser.authorize(&acme.request().with("prompt", "login")).await;
    assert_eq!(login.heading(), "Anmelden");
    let asked = acme.request().with("prompt", "login").with("ui_locales", "fr");
    assert_eq!(browser.authorize(&asked).await.heading(), "Se connecter");
    let refused = browser
        .submit(&form(&done, "language").with("language", "tlh"))
        .await;
    assert_eq!(refused.status, 400);
    let back = browser
        .submit(&form(&done, "language").with("language", "auto"))
        .await;
    assert_eq!(
        (back.heading().as_str(), browser.cookie(LANGUAGE)),
        (EN.account_title, None)
    );
    for nonsense in ["tlh", "de de de", &"x-".repeat(2_000)] {
        browser.set_cookie(LANGUAGE, nonsense);
        assert_eq!(browser.visit("/account").await.status, 200);
    }
}

/// A disabled user's sessions show nothing.
#[tokio::test]
async fn a_disabled_user_sees_no_account() {
    let (server, _acme, alice) = scene().await;
    let browser = alice.browser();
    let page = at(&browser, PASSWORD).await;
    server.change_user(&alice, |user| user.enabled = false).await;
    let refused = browser.submit(&new_password(&page, &alice.password, NEW)).await;
    assert_eq!(refused.page(), "/login");
    assert_eq!(refused.sign_in().await.page(), "/login");
    assert_eq!(stored(&server, &alice).password, alice.user.password);
}

/// A changed password is on the disk before the user gets an answer, the log accounts for it and holds none of what was
/// typed, and the operator sees the browsers that the user sees.
#[test]
fn a_change_survives_a_kill_and_is_accounted_for() {
    const WRONG: &str = "a wrong guess";
    let service = Service::new();
    let added = service.json(&[
        "user",
        "add",
        "alice@example.com",
        "--generate-password",
        "--json",
    ]);
    let (uuid, old) = (
        added["uuid"].as_str().unwrap(),
        added["password"].as_str().unwrap(),
    );
    let mut process = service.serve();
    let (signed_in, _) = process.type_in("/account", "alice@example.com", old);
    assert_eq!(signed_in.header("location"), Some("/account"));
    let cookie = |reply: &crate::harness::process::Reply| {
        let line = reply.header("set-cookie").unwrap();
        line.split(';').next().unwrap().to_owned()
    };
    let session = cookie(&signed_in);
    let page = process
        .request("GET", "/account", &[("Cookie", &session)], "")
        .unwrap();
    let csrf = page.hidden("csrf");
    let change = |current: &str| {
        let form = [
            ("csrf", csrf.as_str()),
            ("decision", "password"),
            ("current-password", current),
            ("new-password", NEW),
        ];
        process
            .post_form("/account", &[("Cookie", &session)], &form)
            .unwrap()
    };
    assert_eq!(change(WRONG).status, 200);
    let changed = change(old);
    assert_eq!(changed.status, 303);
    let renewed = cookie(&changed);
    service.logged("password_changed");
    process.kill();

    let mut process = service.serve();
    let (refused, _) = process.type_in("/account", "alice@example.com", old);
    assert_eq!(refused.status, 200, "the old password is gone");
    let page = process
        .request("GET", "/account", &[("Cookie", &renewed)], "")
        .unwrap();
    assert_eq!(page.status, 200, "the session is still there");
    let stale = process
        .request("GET", "/account", &[("Cookie", &session)], "")
        .unwrap();
    assert_eq!(stale.status, 303, "its cookie of before is not");
    let listed = service.json(&["session", "list", "alice@example.com", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["address"], "127.0.0.1");
    process.terminate();

    let log = service.log();
    for event in ["password_change_failed", "password_changed"] {
        let line = log.lines().find(|line| line.contains(event)).unwrap();
        assert!(line.contains(uuid), "{line}");
    }
    for secret in [WRONG, NEW, old, &csrf, &session, &renewed] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}

/// A session does not allow unlimited guesses at the password: after ten wrong ones, none is checked for a while.
/// Failures at the sign-in page in the same time take no guesses away from the owner.
#[tokio::test]
async fn guesses_at_the_present_password_are_limited() {
    let (server, _acme, alice) = scene().await;
    let (browser, other) = (alice.browser(), alice.browser());
    let page = at(&browser, PASSWORD).await;
    let elsewhere = at(&other, PASSWORD).await;
    for _ in 0..10 {
        let refused = browser.submit(&new_password(&page, "a guess", NEW)).await;
        assert!(refused.text().contains(EN.problem_current_password));
    }
    let right = new_password(&page, &alice.password, NEW);
    let held = browser.submit(&right).await;
    assert_eq!((held.status, held.header("retry-after")), (429, Some("300")));
    assert!(held.text().contains(EN.problem_throttled));
    assert_eq!(stored(&server, &alice).password, alice.user.password);
    let refused = other.submit(&new_password(&elsewhere, "wrong", NEW)).await;
    assert_eq!(refused.status, 200, "another session is counted by itself");
    server.advance(5 * MINUTE);
    assert!(
        browser
            .submit(&right)
            .await
            .text()
            .contains(EN.account_password_changed)
    );
}
