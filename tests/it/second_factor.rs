//! Two steps of a sign-in: an authenticator app and recovery codes, without script.

use idsvc::admin::user;
use idsvc::flow::factors;
use idsvc::identity::FactorKind;
use idsvc::mail::Content;
use idsvc::pages::text::EN;
use idsvc::store::records::FailedPasswords;
use idsvc::store::tables::{FACTORS, FAILED_PASSWORDS};
use ring::hmac;
use serde_json::json;
use tokio::task::JoinSet;

use crate::account_self_service::{at, form};
use crate::harness::html::Form;
use crate::harness::process::{Service, shown};
use crate::harness::{Audit, Browser, Person, RelyingParty, Screen, Server};

pub(crate) const STEP: u64 = 30;

/// What a user's application holds: written without the service's own code.
pub(crate) struct App {
    pub(crate) seed: Vec<u8>,
}

impl App {
    /// Types the key that the page shows.
    pub(crate) fn of(page: &Screen) -> Self {
        let text = page.text();
        let (_, key) = text.split_once("<p dir=\"ltr\"><code>").unwrap();
        let (mut bits, mut held, mut seed) = (0_u32, 0, Vec::new());
        for letter in key
            .split('<')
            .next()
            .unwrap()
            .bytes()
            .filter(|byte| *byte != b' ')
        {
            let value = match letter {
                b'A'..=b'Z' => letter - b'A',
                b'2'..=b'7' => letter - b'2' + 26,
                _ => panic!("no base32: {key}"),
            };
            bits = (bits << 5 | u32::from(value)) & 0xffff;
            held += 5;
            if held >= 8 {
                held -= 8;
                seed.push(u8::try_from(bits >> held & 0xff).unwrap());
            }
        }
        assert_eq!(seed.len(), 20);
        Self { seed }
    }

    /// An application that was set up elsewhere.
    pub(crate) fn with_seed(seed: &[u8]) -> Self {
        Self {
            seed: seed.to_owned(),
        }
    }

    /// The code that it shows now, or so many steps later (RFC 6238).
    pub(crate) fn code(&self, server: &Server, later: i64) -> String {
        let step = server.app.core.clock.now().seconds() / STEP;
        let step = step.checked_add_signed(later).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.seed);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let at = usize::from(tag.as_ref()[19] & 15);
        let number = u32::from_be_bytes(tag.as_ref()[at..at + 4].try_into().unwrap()) & 0x7fff_ffff;
        format!("{:06}", number % 1_000_000)
    }

    /// A code of no step near.
    pub(crate) fn wrong(&self, server: &Server) -> String {
        let near: Vec<_> = (-1..=1).map(|later| self.code(server, later)).collect();
        let mut codes = (0..).map(|number| format!("{number:06}"));
        codes.find(|code| !near.contains(code)).unwrap()
    }
}

pub(crate) async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start_with(|policy| policy.sends_mail = true).await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

/// The codes that the page shows.
pub(crate) fn recovery_codes(page: &Screen) -> Vec<String> {
    let (_, list) = page.text().split_once("<ul class=\"codes\"").unwrap();
    let items = list.split("<code>").skip(1);
    items
        .map(|item| item.split('<').next().unwrap().to_owned())
        .take(10)
        .collect()
}

/// Sets the application up in this browser. Also returns the recovery codes.
pub(crate) async fn enrol(server: &Server, browser: &Browser) -> (App, Vec<String>) {
    let page = at(browser, "/account/security").await;
    let setup = browser.submit(&form(&page, "totp")).await;
    let app = App::of(&setup);
    let confirm = form(&setup, "totp-confirm").with("code", &app.code(server, 0));
    let done = browser.submit(&confirm).await;
    assert_eq!(done.status, 200);
    let codes = recovery_codes(&done);
    assert_eq!(codes.len(), 10, "{}", done.text());
    (app, codes)
}

pub(crate) fn code_form(page: &Screen) -> Form {
    assert_eq!(page.page(), "/second-factor", "{}", page.text());
    page.forms().remove(0)
}

/// Signs in with the password in a new browser, up to the second step.
pub(crate) async fn half(alice: &Person, acme: &RelyingParty) -> Screen {
    alice.browser().authorize(&acme.request()).await.sign_in().await
}

pub(crate) async fn type_code(page: &Screen, code: &str) -> Screen {
    page.browser().submit(&code_form(page).with("code", code)).await
}

pub(crate) fn is_signed_in(page: &Screen) -> bool {
    page.header("location")
        .is_some_and(|location| location.starts_with("https://acme.example/cb?code="))
}

fn wrong_codes(server: &Server, alice: &Person) -> u32 {
    let uuid = alice.user.uuid;
    let read = |snapshot: &dyn idsvc::store::engine::Snapshot| FAILED_PASSWORDS.get(snapshot, &uuid);
    let failed = server.app.core.store.read_blocking(read).unwrap();
    failed.map_or(0, |failed| failed.second_step)
}

#[tokio::test]
async fn a_user_sets_an_authenticator_app_up_and_signs_in_with_its_codes() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let page = at(&browser, "/account/security").await;
    server.mails().await;
    let audit = Audit::listen();
    let setup = browser.submit(&form(&page, "totp")).await;
    assert!(setup.text().contains("<svg class=\"qr\"") && setup.is_not_stored());
    let app = App::of(&setup);
    let confirm = form(&setup, "totp-confirm");
    let wrong = browser
        .submit(&confirm.clone().with("code", &app.wrong(&server)))
        .await;
    assert!(wrong.text().contains(EN.problem_second_factor));
    assert_eq!(App::of(&wrong).seed, app.seed, "the same key");
    let done = browser
        .submit(&form(&wrong, "totp-confirm").with("code", &app.code(&server, 0)))
        .await;
    assert!(done.text().contains(EN.recovery_title) && done.is_not_stored());
    assert_eq!(audit.take(&["factor_added"]).len(), 1);
    assert!(matches!(
        server.mail().await.message.content,
        Content::FactorAdded { .. }
    ));
    // The form that is sent again adds no second one, and shows no codes.
    let again = browser.submit(&confirm.with("code", &app.code(&server, 0))).await;
    assert!(again.text().contains(EN.security_added));
    assert_eq!(factor_rows(&again), 2);
    assert!(audit.take(&["factor_added"]).is_empty());

    server.advance(STEP);
    let asked = half(&alice, &acme).await;
    assert_eq!(asked.heading(), EN.second_factor_title);
    assert!(
        asked.text().contains("autocomplete=\"one-time-code\"")
            && asked.text().contains("inputmode=\"numeric\"")
    );
    assert!(!is_signed_in(&asked) && asked.browser().cookie("__Host-idsvc_session").is_none());
    let callback = type_code(&asked, &app.code(&server, 0)).await;
    assert!(is_signed_in(&callback), "{}", callback.text());
    let tokens = acme.redeem(&callback.callback().code()).await.tokens();
    let id = tokens.id().claims;
    assert_eq!(
        (&id["amr"], &id["acr"]),
        (&json!(["pwd", "otp", "mfa"]), &json!("2"))
    );
    let access = tokens.access().claims;
    assert_eq!(access["acr"], "2");
    let amr = json!([{"authority": "credential"}, {"authority": "totp"}]);
    assert_eq!((&access["amr"], &tokens.0["amr"]), (&amr, &amr));
    let refreshed = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(refreshed.id().claims["acr"], "2");
    assert_eq!(audit.take(&["second_step_done", "signed_in"]).len(), 2);
}

#[tokio::test]
async fn a_session_that_added_a_factor_counts_as_one_with_two() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let before = acme.tokens(&browser).await;
    assert_eq!(before.id().claims["acr"], "1");
    enrol(&server, &browser).await;
    let after = acme.tokens(&browser).await;
    assert_eq!(after.id().claims["acr"], "2");
}

#[tokio::test]
async fn a_wrong_a_used_and_an_old_code_are_refused() {
    let (server, acme, alice) = scene().await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    let asked = half(&alice, &acme).await;
    let audit = Audit::listen();
    for (code, what) in [
        (app.wrong(&server), "wrong"),
        (app.code(&server, 0), "used when the application was set up"),
        (app.code(&server, -1), "of an earlier step"),
        (app.code(&server, 2), "of a later one"),
        (String::new(), "none"),
    ] {
        let page = type_code(&asked, &code).await;
        assert_eq!(page.status, 200);
        assert!(page.text().contains(EN.problem_second_factor), "{what}");
    }
    assert_eq!(audit.take(&["sign_in_failed"]).len(), 3, "two were right once");
    server.advance(STEP);
    let code = app.code(&server, 0);
    assert!(is_signed_in(&type_code(&asked, &code).await));
    // Another sign-in with the same code, in the same step.
    let other = half(&alice, &acme).await;
    assert!(
        type_code(&other, &code)
            .await
            .text()
            .contains(EN.problem_second_factor)
    );
    server.advance(STEP);
    assert!(
        type_code(&other, &code)
            .await
            .text()
            .contains(EN.problem_second_factor)
    );
    assert!(is_signed_in(&type_code(&other, &app.code(&server, 0)).await));
}

#[tokio::test]
async fn of_many_requests_with_one_code_one_gets_the_session() {
    let (server, acme, alice) = scene().await;
    let (app, codes) = enrol(&server, &alice.browser()).await;
    server.advance(STEP);
    for code in [app.code(&server, 0), codes[3].clone()] {
        let mut asked = Vec::new();
        for _ in 0..6 {
            asked.push(half(&alice, &acme).await);
        }
        let mut requests = JoinSet::new();
        for page in asked {
            let code = code.clone();
            requests.spawn(async move { is_signed_in(&type_code(&page, &code).await) });
        }
        let signed_in = requests.join_all().await;
        assert_eq!(signed_in.into_iter().filter(|is_in| *is_in).count(), 1, "{code}");
    }
}

#[tokio::test]
async fn a_recovery_code_works_once_and_new_ones_replace_the_old() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let (_, codes) = enrol(&server, &browser).await;
    let asked = half(&alice, &acme).await;
    let page = browser_to_recovery(&asked).await;
    assert!(page.text().contains(EN.second_factor_recovery_lead));
    let typed = codes[0].to_uppercase().replace('-', " ");
    let callback = type_code(&page, &typed).await;
    let tokens = acme.redeem(&callback.callback().code()).await.tokens();
    let id = tokens.id().claims;
    assert_eq!(
        (&id["amr"], &id["acr"]),
        (&json!(["pwd", "otp", "mfa"]), &json!("2"))
    );
    let other = half(&alice, &acme).await;
    assert!(
        type_code(&other, &codes[0])
            .await
            .text()
            .contains(EN.problem_second_factor)
    );
    let section = at(&browser, "/account/security").await;
    assert!(section.text().contains("Unused codes: 9"));
    let renewed = browser.submit(&form(&section, "recovery-codes")).await;
    let new = recovery_codes(&renewed);
    assert!(new.iter().all(|code| !codes.contains(code)));
    assert!(
        type_code(&other, &codes[1])
            .await
            .text()
            .contains(EN.problem_second_factor)
    );
    assert!(is_signed_in(&type_code(&other, &new[1]).await));
}

async fn browser_to_recovery(asked: &Screen) -> Screen {
    let (before, _) = asked
        .text()
        .split_once(&format!(">{}</a>", EN.second_factor_use_recovery))
        .unwrap();
    let href = before
        .rsplit_once("href=\"")
        .unwrap()
        .1
        .split('"')
        .next()
        .unwrap();
    asked.browser().visit(&href.replace("&amp;", "&")).await
}

/// A stranger who has the password gets a hundred guesses, and the right password does not reset them.
#[tokio::test]
async fn a_hundred_wrong_codes_in_a_row_leave_only_the_recovery_codes() {
    let (server, acme, alice) = scene().await;
    let (app, codes) = enrol(&server, &alice.browser()).await;
    server.advance(STEP);
    let asked = half(&alice, &acme).await;
    type_code(&asked, &app.wrong(&server)).await;
    let asked = half(&alice, &acme).await;
    assert_eq!(wrong_codes(&server, &alice), 1, "the password resets nothing");
    let uuid = alice.user.uuid;
    let row = FailedPasswords {
        count: 0,
        second_step: FailedPasswords::LIMIT - 1,
        last_failed_at: server.app.core.clock.now(),
    };
    let store = &server.app.core.store;
    let put = store.write("test", move |tx| FAILED_PASSWORDS.put(tx, &uuid, &row));
    put.await.unwrap();
    let audit = Audit::listen();
    type_code(&asked, &app.wrong(&server)).await;
    assert_eq!(audit.take(&["second_step_limit_reached"]).len(), 1);
    for code in [app.code(&server, 0), app.wrong(&server)] {
        let refused = type_code(&asked, &code).await;
        assert!(
            refused.text().contains(EN.problem_second_factor_limit),
            "right or wrong"
        );
    }
    assert!(is_signed_in(&type_code(&asked, &codes[0]).await));
    assert_eq!(wrong_codes(&server, &alice), 0);
    let asked = half(&alice, &acme).await;
    assert!(is_signed_in(&type_code(&asked, &app.code(&server, 0)).await));
}

#[tokio::test]
async fn wrong_codes_fall_under_the_limits_of_passwords() {
    let server = Server::start_with_limits(|_| {}).await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    let browser = alice.browser().at("203.0.113.9");
    let (app, _) = enrol(&server, &browser).await;
    server.advance(STEP);
    let stranger = alice.browser().at("198.51.100.7");
    let asked = stranger.authorize(&acme.request()).await.sign_in().await;
    let mut last = asked.clone();
    for _ in 0..30 {
        last = type_code(&asked, &app.wrong(&server)).await;
        if last.status == 429 {
            break;
        }
    }
    assert_eq!(last.status, 429);
    assert!(last.header("retry-after").is_some());
}

#[tokio::test]
async fn a_reset_of_the_password_keeps_the_factors() {
    let (server, acme, alice) = scene().await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.mails().await;
    server.advance(STEP);
    let browser = server.browser();
    let login = browser.authorize(&acme.request()).await;
    let (before, _) = login
        .text()
        .split_once(&format!(">{}</a>", EN.forgot_password))
        .unwrap();
    let href = before
        .rsplit_once("href=\"")
        .unwrap()
        .1
        .split('"')
        .next()
        .unwrap();
    let page = browser.visit(&href.replace("&amp;", "&")).await;
    browser
        .submit(&page.forms()[0].clone().with("address", "alice@example.com"))
        .await;
    let choose = browser.visit(&server.mail().await.link()).await;
    let chosen = choose.forms()[0]
        .clone()
        .with("new-password", "a password that is new");
    let asked = browser.submit(&chosen).await;
    assert_eq!(asked.page(), "/second-factor");
    let uuid = alice.user.uuid;
    let kept = server
        .app
        .core
        .store
        .read_blocking(|snapshot| factors::of_user(snapshot, uuid));
    assert_eq!(kept.unwrap().len(), 2);
    assert!(is_signed_in(&type_code(&asked, &app.code(&server, 0)).await));
}

#[tokio::test]
async fn factors_change_only_in_a_session_that_used_the_second_step() {
    let (server, _acme, alice) = scene().await;
    // A thief has the password, and signed in before there was a second step.
    let thief = alice.browser();
    let page = at(&thief, "/account/security").await;
    let begun = form(&page, "totp");
    let browser = alice.browser();
    let (app, _) = enrol(&server, &browser).await;
    let listed = at(&thief, "/account/security").await;
    for wanted in [form(&listed, "recovery-codes"), begun.clone(), remove(&listed)] {
        let answer = thief.submit(&wanted).await;
        assert_eq!(answer.page(), "/login", "{}", answer.text());
        let asked = answer.sign_in().await;
        assert_eq!(asked.page(), "/second-factor");
    }
    // The owner may. With the app, the recovery codes go.
    server.mails().await;
    let audit = Audit::listen();
    let listed = at(&browser, "/account/security").await;
    let removed = browser.submit(&remove(&listed)).await;
    assert!(removed.text().contains(EN.security_removed));
    assert_eq!(factor_rows(&removed), 0);
    assert_eq!(audit.take(&["factor_removed"]).len(), 2);
    assert!(matches!(
        server.mail().await.message.content,
        Content::FactorRemoved { .. }
    ));
    drop(app);
}

/// How many factors the page lists.
pub(crate) fn factor_rows(page: &Screen) -> usize {
    let forms = page.forms();
    let removals = forms
        .iter()
        .filter(|form| form.value("decision") == Some("factors"));
    removals.count()
}

/// The form that removes the first factor.
/// The form that removes the app.
fn remove(page: &Screen) -> Form {
    let label = format!("aria-label=\"{}: {}\"", EN.factor_remove, EN.factor_totp);
    let (button, _) = page.text().split_once(&label).unwrap();
    let (_, value) = button.rsplit_once("value=\"").unwrap();
    form(page, "factors").with("factor", value.split('"').next().unwrap())
}

#[tokio::test]
async fn an_old_session_has_to_sign_in_again_to_change_factors() {
    let (server, _acme, alice) = scene().await;
    let browser = alice.browser();
    let page = at(&browser, "/account/security").await;
    server.advance(11 * 60);
    let answer = browser.submit(&form(&page, "totp")).await;
    assert_eq!(answer.page(), "/login");
    // A key that is not confirmed is for its session.
    let page = answer.sign_in().await;
    let setup = browser.submit(&form(&page, "totp")).await;
    let app = App::of(&setup);
    let bob = server.user("bob").await;
    let elsewhere = bob.browser();
    let of_bob = at(&elsewhere, "/account/security").await;
    let stolen = form(&of_bob, "totp")
        .with("decision", "totp-confirm")
        .with("setup", form(&setup, "totp-confirm").value("setup").unwrap())
        .with("code", &app.code(&server, 0));
    elsewhere.submit(&stolen).await;
    let uuid = bob.user.uuid;
    let store = &server.app.core.store;
    let of_bob = store
        .read_blocking(|snapshot| factors::of_user(snapshot, uuid))
        .unwrap();
    assert!(of_bob.is_empty());
}

#[tokio::test]
async fn what_was_proven_counts_in_its_browser_and_sign_in_only() {
    let (server, acme, alice) = scene().await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.advance(STEP);
    let asked = half(&alice, &acme).await;
    let proof = code_form(&asked).value("proof").unwrap().to_owned();
    // Another browser has neither the transaction nor the cookie.
    let stranger = alice.browser();
    let page = stranger.visit(&asked.path).await;
    assert_eq!(page.status, 400);
    // The proof in a sign-in of the other browser.
    let other = half(&alice, &acme).await;
    let forged = code_form(&other)
        .with("proof", &proof)
        .with("code", &app.code(&server, 0));
    let answer = other.browser().submit(&forged).await;
    assert_eq!(answer.page(), "/login");
    // The proof of another user who has no factor.
    let bob = server.user("bob").await;
    let of_bob = bob.browser().authorize(&acme.request()).await;
    let forged = code_form(&other)
        .with("transaction", of_bob.login_form().value("transaction").unwrap())
        .with("code", &app.code(&server, 0));
    assert_ne!(of_bob.browser().submit(&forged).await.status, 303);
    // It is void after ten minutes.
    server.advance(10 * 60);
    let late = type_code(&asked, &app.code(&server, 0)).await;
    assert_eq!(late.page(), "/login");
}

#[tokio::test]
async fn what_was_proven_is_void_once_the_password_changed_or_the_user_was_disabled() {
    let (server, acme, alice) = scene().await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.advance(STEP);
    let asked = half(&alice, &acme).await;
    let other = half(&alice, &acme).await;
    let before = alice.user.password.clone();
    server.change_user(&alice, |user| user.enabled = false).await;
    assert_eq!(type_code(&asked, &app.code(&server, 0)).await.page(), "/login");
    server.change_user(&alice, |user| user.enabled = true).await;
    let bob = server.user("bob").await;
    let another = bob.user.password.clone();
    server.change_user(&alice, |user| user.password = another).await;
    assert_eq!(type_code(&other, &app.code(&server, 0)).await.page(), "/login");
    server.change_user(&alice, |user| user.password = before).await;
    assert!(is_signed_in(&type_code(&other, &app.code(&server, 0)).await));
}

#[tokio::test]
async fn the_store_has_neither_seeds_nor_recovery_codes_in_the_clear() {
    let (server, _acme, alice) = scene().await;
    let (app, codes) = enrol(&server, &alice.browser()).await;
    let uuid = alice.user.uuid;
    let rows = server.app.core.store.read_blocking(|snapshot| {
        let rows = factors::of_user(snapshot, uuid)?;
        assert_eq!(FACTORS.count(snapshot)?, 2);
        Ok(rows)
    });
    let mut seen = 0;
    for (_, factor) in rows.unwrap() {
        let text = serde_json::to_string(&factor).unwrap();
        assert!(codes.iter().all(|code| !text.contains(code)));
        if let FactorKind::Totp(totp) = factor.kind {
            assert!(totp.sealed.len() > app.seed.len());
            seen += 1;
        }
    }
    assert_eq!(seen, 1);
}

#[tokio::test]
async fn an_operator_sees_the_factors_of_a_user_and_removes_them() {
    let (server, acme, alice) = scene().await;
    enrol(&server, &alice.browser()).await;
    server.mails().await;
    let seen = server
        .admin()
        .call(user::ListFactors {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    let factors = seen.factors.iter();
    let mut kinds: Vec<_> = factors
        .map(|factor| (factor.kind.as_str(), factor.codes_left))
        .collect();
    kinds.sort_unstable();
    assert_eq!(kinds, [("recovery_codes", Some(10)), ("totp", None)]);
    let shown = server
        .admin()
        .call(user::ShowUser {
            who: "alice@example.com".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(shown.factors, seen.factors);
    let audit = Audit::listen();
    let removed = server
        .admin()
        .call(user::ResetFactors {
            who: "alice@example.com".to_owned(),
        })
        .await;
    assert_eq!(removed.unwrap().factors, seen.factors);
    assert_eq!(audit.take(&["factor_removed"]).len(), 2);
    assert!(matches!(
        server.mail().await.message.content,
        Content::FactorRemoved { .. }
    ));
    let callback = half(&alice, &acme).await;
    assert!(is_signed_in(&callback), "one step is enough");
}

#[test]
fn the_commands_tell_of_factors_and_remove_them() {
    let service = Service::new();
    service.run(&["user", "add", "ada@example.com", "--generate-password"]);
    let none = service.run(&["user", "factors", "ada@example.com"]);
    assert!(shown(&none).contains("user ada@example.com has no factor"));
    let reset = service.json(&["user", "reset", "ada@example.com", "--factors", "--json"]);
    assert_eq!(reset["factors"], json!([]));
    let both = service.run(&["user", "reset", "ada@example.com", "--factors", "--mail"]);
    assert_eq!(both.status.code(), Some(2));
}

#[tokio::test]
async fn the_link_of_a_notice_removes_what_was_added_since() {
    let (server, _acme, alice) = scene().await;
    let browser = alice.browser();
    at(&browser, "/account/security").await;
    server.mails().await;
    enrol(&server, &browser).await;
    let notice = server.mail().await;
    assert!(matches!(notice.message.content, Content::FactorAdded { .. }));
    let page = server.browser().visit(&notice.link()).await;
    page.browser().submit(&page.forms()[0]).await;
    let core = &server.app.core;
    let left = core
        .store
        .read_blocking(|snapshot| factors::of_user(snapshot, alice.user.uuid))
        .unwrap();
    assert!(left.is_empty(), "the thief's application makes no codes");
}

#[tokio::test]
async fn the_link_of_a_later_notice_keeps_a_factor_from_before() {
    let (server, _acme, alice) = scene().await;
    let browser = alice.browser();
    enrol(&server, &browser).await;
    let page = at(&browser, "/account/password").await;
    server.advance(60);
    server.mails().await;
    let typed = form(&page, "password")
        .with("current-password", &alice.password)
        .with("new-password", "violet tractor umbrella");
    browser.submit(&typed).await;
    let notice = server.mail().await;
    let page = server.browser().visit(&notice.link()).await;
    page.browser().submit(&page.forms()[0]).await;
    let core = &server.app.core;
    let left = core
        .store
        .read_blocking(|snapshot| factors::of_user(snapshot, alice.user.uuid))
        .unwrap();
    assert_eq!(left.len(), 2);
}

/// Otherwise a person with a second factor could not take the place of the one who is signed in.
#[tokio::test]
async fn another_user_than_the_signed_in_one_answers_the_second_step() {
    let (server, acme, alice) = scene().await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.advance(60);
    let bob = server.user("bob").await;
    let browser = bob.browser();
    at(&browser, "/account/profile").await;
    let login = browser.authorize(&acme.request().with("prompt", "login")).await;
    let asked = login.type_in("alice@example.com", &alice.password).await;
    assert_eq!(asked.page(), "/second-factor", "{}", asked.text());
    let done = type_code(&asked, &app.code(&server, 0)).await;
    assert!(is_signed_in(&done), "{}", done.text());
}

#[tokio::test]
async fn a_new_password_does_not_make_an_old_second_step_recent() {
    let (server, _acme, alice) = scene().await;
    let browser = alice.browser();
    enrol(&server, &browser).await;
    let page = at(&browser, "/account/password").await;
    server.advance(11 * 60);
    let typed = form(&page, "password")
        .with("current-password", &alice.password)
        .with("new-password", "violet tractor umbrella");
    assert_eq!(browser.submit(&typed).await.status, 200);
    let page = browser.visit("/account/security").await;
    let removal = form(&page, "recovery-codes").with("current-password", "violet tractor umbrella");
    let asked = browser.submit(&removal).await;
    assert_ne!(asked.page(), "/account/security", "{}", asked.text());
}

/// The password alone neither changes the password nor ends what the owner has.
#[tokio::test]
async fn a_password_that_must_be_changed_is_changed_after_the_second_step() {
    let (server, acme, alice) = scene().await;
    let owner = alice.browser();
    let (app, _) = enrol(&server, &owner).await;
    server.advance(2 * STEP);
    let before = half(&alice, &acme).await;
    server
        .change_user(&alice, |user| user.must_change_password = true)
        .await;
    let asked = half(&alice, &acme).await;
    let wrong = type_code(&asked, &app.wrong(&server)).await;
    assert_eq!(wrong.page(), "/second-factor");
    assert_eq!(owner.fetch("/account").await.status, 200);
    let audit = Audit::listen();
    let page = type_code(&wrong, &app.code(&server, 0)).await;
    assert_eq!(
        (page.page(), page.heading().as_str()),
        ("/link", EN.new_password_title)
    );
    assert_eq!(audit.take(&["second_step_done", "signed_in"]).len(), 1);
    assert_eq!(owner.fetch("/account").await.status, 200);
    assert_eq!(page.browser().fetch("/account").await.status, 303);
    let chosen = page.forms()[0]
        .clone()
        .with("new-password", "a password that is new");
    let done = page.browser().submit(&chosen).await;
    let recorded = audit.take(&["password_reset", "signed_in"]);
    assert_eq!(recorded.len(), 2);
    assert_eq!(recorded[0]["session"], recorded[1]["session"]);
    let tokens = acme.redeem(&done.callback().code()).await.tokens();
    let id = tokens.id().claims;
    assert_eq!(
        (&id["amr"], &id["acr"]),
        (&json!(["pwd", "otp", "mfa"]), &json!("2"))
    );
    assert_eq!(owner.fetch("/account").await.status, 303);
    // What was proven with the password of before is void.
    server.advance(STEP);
    assert!(!is_signed_in(&type_code(&before, &app.code(&server, 0)).await));
}

#[tokio::test]
async fn a_second_step_in_a_session_leads_to_the_password_that_must_be_changed() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let (app, _) = enrol(&server, &alice.browser()).await;
    server.advance(2 * STEP);
    server
        .change_user(&alice, |user| user.must_change_password = true)
        .await;
    let raised = browser.authorize(&acme.request().with("acr_values", "2")).await;
    let page = type_code(&raised, &app.code(&server, 0)).await;
    assert_eq!(page.heading(), EN.new_password_title);
    let chosen = page.forms()[0]
        .clone()
        .with("new-password", "a password that is new");
    let done = browser.submit(&chosen).await;
    let tokens = acme.redeem(&done.callback().code()).await.tokens();
    assert_eq!(tokens.id().claims["acr"], "2");
}
