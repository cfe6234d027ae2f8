//! The cookie of a session gives the account away to nobody, however fresh the session is: what changes how the account
//! is signed in to takes a proof in the same form.

use idsvc::identity::{Factor, FactorKind, SelfServicePolicy};
use idsvc::pages::text::EN;
use idsvc::store::engine::Tx;
use idsvc::store::records::FailedPasswords;
use idsvc::store::tables::{FAILED_PASSWORDS, USERS};
use uuid::Uuid;

use crate::account_self_service::{at, form};
use crate::harness::authenticator::Passkey;
use crate::harness::html::Form;
use crate::harness::{Audit, Browser, Person, Screen, Server};
use crate::passkeys::{self, data};
use crate::second_factor::{App, STEP, enrol, recovery_codes};

const SECURITY: &str = "/account/security";

async fn scene() -> (Server, Person) {
    let server = Server::start_with(|policy| {
        policy.sends_mail = true;
        policy.accounts.self_service = SelfServicePolicy {
            claims: Vec::new(),
            email: true,
            export: false,
            deletion: true,
        };
    })
    .await;
    let alice = server.user("alice").await;
    (server, alice)
}

/// Another browser with the cookies of this one.
fn thief_of(server: &Server, browser: &Browser) -> Browser {
    let thief = server.browser();
    for (name, value) in browser.cookies() {
        thief.set_cookie(&name, &value);
    }
    thief
}

fn with_proof(form: Form, typed: &str) -> Form {
    form.with("current-password", typed)
}

/// The form with the answer of a passkey to the page's challenge.
fn with_passkey(form: Form, page: &Screen, passkey: &Passkey) -> Form {
    let response = passkey.get(&data(page, "proof").unwrap());
    form.with(
        "assertion",
        &format!("{} {response}", data(page, "sealed").unwrap()),
    )
}

/// The forms that change a factor, with what they need beside the proof.
async fn changes(browser: &Browser, id: Uuid) -> (Screen, Vec<Form>) {
    let page = at(browser, SECURITY).await;
    let forms = vec![
        form(&page, "recovery-codes"),
        form(&page, "factor-name")
            .with("factor", &id.to_string())
            .with("name", "Mine"),
        form(&page, "factors").with("factor", &id.to_string()),
    ];
    (page, forms)
}

fn without_times(factors: Vec<(Uuid, Factor)>) -> Vec<(Uuid, String, bool)> {
    let is_passkey = |factor: &Factor| matches!(factor.kind, FactorKind::Passkey(_));
    let rows = factors.into_iter();
    rows.map(|(id, factor)| (id, factor.name.clone(), is_passkey(&factor)))
        .collect()
}

#[tokio::test]
async fn a_stolen_session_adds_no_factor_and_changes_neither_address_nor_password() {
    let (server, alice) = scene().await;
    let browser = alice.browser();
    at(&browser, SECURITY).await;
    let thief = thief_of(&server, &browser);
    let page = at(&thief, SECURITY).await;
    let created = Passkey::new(alice.user.uuid.as_bytes()).create(&data(&page, "challenge").unwrap());
    let passkey = form(&page, "passkey").with("passkey", &created.to_string());
    let setup = thief.submit(&form(&page, "totp")).await;
    let app = form(&setup, "totp-confirm").with("code", &App::of(&setup).code(&server, 0));
    let profile = at(&thief, "/account/profile").await;
    let email = form(&profile, "email").with("email", "mallory@example.com");
    let password = at(&thief, "/account/password").await;
    let password = form(&password, "password").with("new-password", "the thief's own words");
    let deletion = at(&thief, "/account/data").await;
    let deletion = form(&deletion, "delete").with("confirm", "alice@example.com");
    server.mails().await;
    let audit = Audit::listen();
    for form in [&passkey, &app, &email, &password, &deletion] {
        for proof in ["", "a guess of the thief"] {
            let answer = thief.submit(&with_proof(form.clone(), proof)).await;
            assert!(answer.text().contains(EN.problem_current_password), "{form:?}");
        }
        let answer = thief.submit(&form.clone().without("current-password")).await;
        assert!(answer.text().contains(EN.problem_current_password), "{form:?}");
    }
    assert!(server.factors_of(&alice).is_empty() && server.mails().await.is_empty());
    assert_eq!(
        audit.take(&["password_change_failed"]).len(),
        5,
        "an empty field is no guess"
    );
    let read = |snapshot: &dyn idsvc::store::engine::Snapshot| USERS.get(snapshot, &alice.user.uuid);
    let user = server.app.core.store.read_blocking(read).unwrap().unwrap();
    assert_eq!(user.password, alice.user.password);
    // The owner does all of it with the password.
    let added = browser.submit(&with_proof(passkey, &alice.password)).await;
    assert!(added.text().contains(EN.passkey_added), "{}", added.text());
    let sent = browser.submit(&with_proof(email, &alice.password)).await;
    assert!(
        sent.text().contains(EN.account_email_requested),
        "{}",
        sent.text()
    );
    let added = browser.submit(&with_proof(app, &alice.password)).await;
    assert_eq!(recovery_codes(&added).len(), 10);
    let deleted = browser.submit(&with_proof(deletion, &alice.password)).await;
    assert_eq!(deleted.page(), "/logged-out");
}

#[tokio::test]
async fn a_stolen_session_neither_renames_nor_removes_nor_renews_a_factor() {
    let (server, alice) = scene().await;
    let browser = alice.browser();
    at(&browser, SECURITY).await;
    let passkey = Passkey::new(alice.user.uuid.as_bytes());
    let id = passkeys::store(&server, &alice, &passkey).await;
    let (app, codes) = enrol(&server, &browser).await;
    let before = without_times(server.factors_of(&alice));
    let thief = thief_of(&server, &browser);
    let (page, forms) = changes(&thief, id).await;
    for form in forms {
        for proof in ["", "a guess of the thief", &app.wrong(&server)] {
            let answer = thief.submit(&with_proof(form.clone(), proof)).await;
            assert!(answer.text().contains(EN.problem_proof), "{form:?}");
        }
        let of_thief = Passkey::new(alice.user.uuid.as_bytes());
        let answer = thief.submit(&with_passkey(form.clone(), &page, &of_thief)).await;
        assert!(answer.text().contains(EN.problem_proof), "{form:?}");
    }
    assert_eq!(without_times(server.factors_of(&alice)), before);

    // A code is good for one form, and so is an answer of the passkey.
    server.advance(STEP);
    let (page, forms) = changes(&browser, id).await;
    let [renewal, naming, removal] = &forms[..] else {
        panic!()
    };
    let code = app.code(&server, 0);
    let named = browser.submit(&with_proof(naming.clone(), &code)).await;
    assert!(named.text().contains(EN.factor_renamed), "{}", named.text());
    let again = browser.submit(&with_proof(renewal.clone(), &code)).await;
    assert!(again.text().contains(EN.problem_proof), "{}", again.text());
    let answered = with_passkey(renewal.clone(), &page, &passkey);
    let renewed = browser.submit(&answered).await;
    let renewed = recovery_codes(&renewed);
    assert_ne!(renewed, codes);
    let again = browser.submit(&answered).await;
    assert!(again.text().contains(EN.problem_proof), "{}", again.text());
    let removed = browser.submit(&with_proof(removal.clone(), &renewed[0])).await;
    assert!(removed.text().contains(EN.security_removed), "{}", removed.text());
    assert_eq!(server.factors_of(&alice).len(), 2);
}

#[tokio::test]
async fn a_code_changes_the_password_in_an_old_session() {
    let (server, alice) = scene().await;
    let browser = alice.browser();
    let (app, _) = enrol(&server, &browser).await;
    server.advance(60 * 60);
    let page = at(&browser, "/account/password").await;
    let chosen = form(&page, "password").with("new-password", "seven wet otters");
    let changed = browser.submit(&with_proof(chosen, &app.code(&server, 0))).await;
    assert!(
        changed.text().contains(EN.account_password_changed),
        "{}",
        changed.text()
    );
}

#[tokio::test]
async fn wrong_codes_in_forms_count_as_those_of_the_second_step() {
    let (server, alice) = scene().await;
    let browser = alice.browser();
    let (app, codes) = enrol(&server, &browser).await;
    server.advance(STEP);
    let id = server.factors_of(&alice)[0].0;
    let (_, forms) = changes(&browser, id).await;
    let naming = &forms[1];
    browser
        .submit(&with_proof(naming.clone(), &app.wrong(&server)))
        .await;
    let user = alice.user.uuid;
    let count_others = move |tx: &mut dyn Tx| {
        let mut failed = FAILED_PASSWORDS.get(&*tx, &user)?.unwrap();
        failed.second_step = FailedPasswords::LIMIT;
        FAILED_PASSWORDS.put(tx, &user, &failed)
    };
    let written = server.app.core.store.write("test_codes", count_others).await;
    written.unwrap();
    let refused = browser
        .submit(&with_proof(naming.clone(), &app.code(&server, 0)))
        .await;
    assert!(refused.text().contains(EN.problem_proof), "{}", refused.text());
    let named = browser.submit(&with_proof(naming.clone(), &codes[0])).await;
    assert!(named.text().contains(EN.factor_renamed), "{}", named.text());
}

#[tokio::test]
async fn a_changed_password_removes_what_was_added_since_the_last_one() {
    let (server, alice) = scene().await;
    let browser = alice.browser();
    let old = passkeys::store(&server, &alice, &Passkey::new(alice.user.uuid.as_bytes())).await;
    let change = async |person: &Person, to: &str, removed: Option<Uuid>| {
        let page = at(&browser, "/account/password").await;
        let typed = form(&page, "password").with("new-password", to);
        let typed = with_proof(typed, &person.password);
        let typed = match removed {
            Some(id) => typed.with(&format!("remove-{id}"), "1"),
            None => typed,
        };
        (page, browser.submit(&typed).await)
    };
    let mut alice = alice;
    change(&alice, "seven wet otters", None).await;
    "seven wet otters".clone_into(&mut alice.password);
    server.advance(60);
    let new = passkeys::store(&server, &alice, &Passkey::new(alice.user.uuid.as_bytes())).await;
    server.mails().await;
    let (offered, changed) = change(&alice, "eight dry otters", Some(new)).await;
    let offers = |id: Uuid| {
        offered
            .text()
            .contains(&format!("name=\"remove-{id}\" type=\"checkbox\""))
    };
    assert!(offers(new) && !offers(old), "{}", offered.text());
    assert!(offered.text().contains(EN.password_remove_codes));
    assert!(changed.text().contains(EN.account_password_changed));
    let left: Vec<_> = server.factors_of(&alice).into_iter().map(|(id, _)| id).collect();
    assert_eq!(left, [old]);
    // What was there before the last password is not removed by a form that nobody showed.
    "eight dry otters".clone_into(&mut alice.password);
    change(&alice, "nine blue otters", Some(old)).await;
    assert_eq!(server.factors_of(&alice).len(), 1);
}

/// An application may open without a new sign-in. The page that offers a passkey after a sign-in is not for it.
#[tokio::test]
async fn the_offer_of_a_passkey_takes_nothing_in_a_session_without_a_new_sign_in() {
    let (server, alice) = scene().await;
    let acme = server.client("acme").await;
    let browser = alice.browser();
    at(&browser, SECURITY).await;
    let thief = thief_of(&server, &browser);
    let choice = thief
        .authorize(&acme.request().with("prompt", "select_account consent"))
        .await;
    let chosen = choice.decide("continue").await;
    let query = chosen
        .path
        .split_once('?')
        .map(|(_, query)| query.to_owned())
        .unwrap();
    let offer = thief.visit(&format!("/passkey-offer?{query}")).await;
    assert!(data(&offer, "challenge").is_none(), "{}", offer.text());
}

/// The proof does not have to be the password.
#[tokio::test]
async fn the_present_password_is_no_new_one_with_any_proof() {
    let (server, alice) = scene().await;
    let browser = alice.browser();
    at(&browser, SECURITY).await;
    let (app, codes) = enrol(&server, &browser).await;
    server.advance(STEP);
    for proof in [&alice.password, &app.code(&server, 0), &codes[0]] {
        let page = at(&browser, "/account/password").await;
        let typed = form(&page, "password")
            .with("current-password", proof)
            .with("new-password", &alice.password);
        let answer = browser.submit(&typed).await;
        assert!(
            answer.text().contains(EN.problem_same_password),
            "{}",
            answer.text()
        );
    }
}
