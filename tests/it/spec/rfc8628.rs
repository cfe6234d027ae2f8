//! RFC 8628: a person allows a device on another device.

use std::time::Duration;

use idsvc::admin::api::AddApi;
use idsvc::admin::client::UpdateClient;
use idsvc::admin::user::{NewPassword, SetPassword};
use idsvc::flow::sweep::{Cursor, sweep};
use idsvc::identity::AuthenticationLevel;
use idsvc::oauth::client::{
    AuthMethod, Client, ClientOrigin, ConsentRequirement, GrantType, PkceRequirement, RefreshPolicy,
};
use idsvc::oauth::device::UserCode;
use idsvc::oauth::{ApiFields, ClientFields};
use idsvc::pages::text::EN;
use idsvc::secret::{DeviceCode, Secret};
use idsvc::store::StoreError;
use idsvc::store::tables::{
    DEVICE_AUTHORIZATIONS, DEVICE_AUTHORIZATIONS_BY_USER, DEVICE_AUTHORIZATIONS_BY_USER_CODE, FAMILIES,
};
use serde_json::{Value, json};

use crate::harness::audit::Audit;
use crate::harness::browser::Screen;
use crate::harness::dpop::KeyHolder;
use crate::harness::html::Form;
use crate::harness::reply::text;
use crate::harness::server::Setup;
use crate::harness::wire::Call;
use crate::harness::{Browser, ISSUER, Person, RelyingParty, Server};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
const UNKNOWN: &str = "400 invalid_grant: device_code is unknown or has expired";
const EXPIRED: &str =
    "400 expired_token: device_code has expired; begin again at the device authorization endpoint";
const PENDING: &str = "400 authorization_pending: the user has not decided yet";
const DENIED: &str = "400 access_denied: the user declined";
const REPLAYED: &str = "400 invalid_grant: device_code was used before; what it brought has been revoked";

/// A public client without redirect URIs, as a television has.
fn television(client: &mut Client) {
    client.token_endpoint_auth_methods = [AuthMethod::None].into();
    client.secrets.clear();
    client.redirect_uris.clear();
    client.grant_types = [GrantType::DeviceCode, GrantType::RefreshToken].into();
}

async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start().await;
    let tv = server.client_with("tv", television).await;
    let alice = server.user("alice").await;
    (server, tv, alice)
}

fn ask(party: &RelyingParty) -> Call {
    party.post("/oauth2/device_authorization")
}

/// The codes that a device got.
struct Codes(Value);

impl Codes {
    async fn of(party: &RelyingParty) -> Self {
        let reply = ask(party).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        Self(reply.json())
    }

    fn device(&self) -> &str {
        text(&self.0["device_code"])
    }

    fn user(&self) -> &str {
        text(&self.0["user_code"])
    }

    fn poll(&self, party: &RelyingParty) -> Call {
        let call = party.post("/oauth2/token").with("grant_type", GRANT);
        call.with("device_code", self.device())
    }
}

fn code_form(page: &Screen) -> Form {
    let form = page
        .forms()
        .into_iter()
        .find(|form| form.value("user_code").is_some());
    form.unwrap_or_else(|| panic!("no field for a code on {}", page.text()))
}

/// The page after the code was typed.
async fn typed(browser: &Browser, user_code: &str) -> Screen {
    let form = code_form(&browser.visit("/device").await).with("user_code", user_code);
    browser.submit(&form).await
}

/// The page for the decision.
async fn asked(browser: &Browser, codes: &Codes) -> Screen {
    let page = typed(browser, codes.user()).await;
    let page = if page.page() == "/login" {
        page.sign_in().await
    } else {
        page
    };
    assert_eq!(page.heading(), EN.device_decision_title, "{}", page.text());
    page
}

async fn decide(person: &Person, codes: &Codes, decision: &str) -> Browser {
    let browser = person.browser();
    let page = asked(&browser, codes).await.decide(decision).await;
    let heading = match decision {
        "allow" => EN.device_allowed_title,
        _ => EN.device_denied_title,
    };
    assert_eq!(page.heading(), heading);
    browser
}

/// Sections 3.1 to 3.5, as a device and a person go through them.
#[tokio::test]
async fn a_device_gets_tokens_once_a_person_has_allowed_it() {
    let (server, tv, alice) = scene().await;
    let audit = Audit::listen();
    let reply = ask(&tv).with("scope", "openid email notes.read").await;
    assert_eq!(reply.status, 200);
    assert!(reply.is_not_stored());
    let codes = Codes(reply.json());
    let user_code = codes.user();
    assert_eq!(
        codes.0,
        json!({
            "device_code": codes.device(),
            "user_code": user_code,
            "verification_uri": format!("{ISSUER}/device"),
            "verification_uri_complete": format!("{ISSUER}/device?user_code={user_code}"),
            "expires_in": 600,
            "interval": 5,
        })
    );
    assert!(codes.device().starts_with("idsvc_dc_"), "{}", codes.device());
    assert_eq!((user_code.len(), &user_code[4..5]), (9, "-"));
    assert_eq!(codes.poll(&tv).await.refusal(), PENDING);
    let browser = alice.browser();
    let page = asked(&browser, &codes).await;
    for shown in [
        user_code,
        "tv",
        "alice",
        EN.device_warning,
        "See your email address",
    ] {
        assert!(page.text().contains(shown), "{shown}");
    }
    server.advance(5);
    assert_eq!(codes.poll(&tv).await.refusal(), PENDING);
    let done = page.decide("allow").await;
    assert_eq!(done.heading(), EN.device_allowed_title);
    server.advance(5);
    let tokens = codes.poll(&tv).await.tokens();
    assert_eq!(tokens.scope(), ["openid", "email", "notes.read", "authenticated"]);
    let (access, id) = (tokens.access().claims, tokens.id().claims);
    assert_eq!(
        (&access["sub"], &access["client_id"]),
        (&json!(alice.sub()), &json!("tv"))
    );
    assert_eq!((&id["amr"], &id["acr"]), (&json!(["pwd"]), &json!("1")));
    assert_eq!(id["auth_time"], access["auth_time"]);
    assert_eq!(
        id.get("sid"),
        None,
        "the session of the browser is not that of the device"
    );
    tv.refresh(tokens.refresh_token()).await.tokens();
    let events = audit.take(&["device_decided"]);
    assert_eq!(events.len(), 1);
    assert_eq!(
        (&events[0]["client_id"], &events[0]["allowed"]),
        (&json!("tv"), &json!("true"))
    );
    // It is listed on the account page, and ends there.
    let page = browser.visit("/account/applications").await;
    let form = page
        .forms()
        .into_iter()
        .find(|form| form.buttons.iter().any(|(name, _)| name == "client"));
    browser.submit(&form.unwrap().with("client", "tv")).await;
    assert!(!tv.is_welcome(&tokens).await);
}

/// Section 3.5: `access_denied`. A denial stays.
#[tokio::test]
async fn a_denied_device_gets_nothing_and_cannot_be_allowed_later() {
    let (_server, tv, alice) = scene().await;
    let codes = Codes::of(&tv).await;
    let browser = alice.browser();
    let page = asked(&browser, &codes).await;
    let allowing = page.decision_form("allow");
    assert_eq!(page.decide("deny").await.heading(), EN.device_denied_title);
    assert_eq!(browser.submit(&allowing).await.heading(), EN.device_denied_title);
    assert_eq!(codes.poll(&tv).await.refusal(), DENIED);
    assert!(
        typed(&browser, codes.user())
            .await
            .text()
            .contains(EN.problem_user_code)
    );
}

/// Section 3.5: `slow_down` adds five seconds that stay.
#[tokio::test]
async fn a_device_that_polls_too_soon_has_to_wait_longer_from_then_on() {
    let (server, tv, alice) = scene().await;
    let codes = Codes::of(&tv).await;
    assert_eq!(codes.poll(&tv).await.error(), "authorization_pending");
    server.advance(4);
    let slower = codes.poll(&tv).await.refusal();
    assert_eq!(slower, "400 slow_down: wait 10 seconds before each poll");
    server.advance(5);
    assert_eq!(
        codes.poll(&tv).await.refusal(),
        "400 slow_down: wait 15 seconds before each poll"
    );
    server.advance(15);
    assert_eq!(codes.poll(&tv).await.refusal(), PENDING);
    decide(&alice, &codes, "allow").await;
    codes.poll(&tv).await.tokens();
}

/// Section 3.5: `expired_token`. An expired code is of no use to a person either.
#[tokio::test]
async fn codes_expire() {
    let (server, tv, alice) = scene().await;
    let (codes, allowed) = (Codes::of(&tv).await, Codes::of(&tv).await);
    let browser = alice.browser();
    let page = asked(&browser, &codes).await;
    decide(&alice, &allowed, "allow").await;
    server.advance(600);
    for codes in [&codes, &allowed] {
        assert_eq!(codes.poll(&tv).await.refusal(), EXPIRED);
    }
    assert!(
        typed(&browser, codes.user())
            .await
            .text()
            .contains(EN.problem_user_code)
    );
    assert!(page.decide("allow").await.text().contains(EN.problem_device_over));
    assert_eq!(codes.poll(&tv).await.refusal(), EXPIRED);
}

#[tokio::test]
async fn another_client_and_an_invented_code_get_nothing_and_change_nothing() {
    let (server, tv, alice) = scene().await;
    let other = server.client_with("other", television).await;
    let codes = Codes::of(&tv).await;
    decide(&alice, &codes, "allow").await;
    let stolen = codes.poll(&other).await.refusal();
    assert_eq!(
        stolen,
        "400 invalid_grant: device_code was issued to another client"
    );
    for invented in ["x", "idsvc_dc_x", &codes.device()[..40]] {
        assert_eq!(
            codes.poll(&tv).with("device_code", invented).await.refusal(),
            UNKNOWN
        );
    }
    let missing = codes.poll(&tv).without("device_code").await.refusal();
    assert_eq!(missing, "400 invalid_request: device_code is missing");
    codes.poll(&tv).await.tokens();
    assert_eq!(codes.poll(&other).await.error(), "invalid_grant");
    let (server, acme) = (&server, server.client("acme").await);
    assert_eq!(ask(&acme).await.error(), "unauthorized_client");
    assert_eq!(codes.poll(&acme).await.error(), "unauthorized_client");
    let nobody = server
        .post("/oauth2/device_authorization")
        .with("client_id", "nobody");
    assert_eq!(nobody.await.error(), "invalid_client");
    let careful = server
        .client_with("careful", |client| {
            client.grant_types.insert(GrantType::DeviceCode);
        })
        .await;
    let wrong = ask(&careful).basic("careful", "wrong").await;
    assert_eq!(wrong.error(), "invalid_client");
    Codes::of(&careful).await;
}

/// A device code is good once. What a stolen one brought ends.
#[tokio::test]
async fn a_replayed_code_ends_what_it_brought() {
    let (_server, tv, alice) = scene().await;
    let codes = Codes::of(&tv).await;
    decide(&alice, &codes, "allow").await;
    let tokens = codes.poll(&tv).await.tokens();
    let audit = Audit::listen();
    assert_eq!(codes.poll(&tv).await.refusal(), REPLAYED);
    assert_eq!(audit.take(&["code_replayed"]).len(), 1);
    assert_eq!(tv.refresh(tokens.refresh_token()).await.error(), "invalid_grant");
    assert!(!tv.is_welcome(&tokens).await);
}

#[tokio::test]
async fn two_polls_at_once_redeem_once_and_two_decisions_at_once_are_one() {
    let (server, tv, alice) = scene().await;
    let bob = server.user("bob").await;
    let codes = Codes::of(&tv).await;
    let (one, other) = (alice.browser(), bob.browser());
    let (first, second) = (asked(&one, &codes).await, asked(&other, &codes).await);
    let (first, second) = tokio::join!(first.decide("allow"), second.decide("allow"));
    let is_allowed = |page: &Screen| page.heading() == EN.device_allowed_title;
    assert_ne!(is_allowed(&first), is_allowed(&second));
    let late = if is_allowed(&first) { &second } else { &first };
    assert!(late.text().contains(EN.problem_device_over), "{}", late.text());
    let winner = if is_allowed(&first) { &alice } else { &bob };
    let (first, second) = tokio::join!(codes.poll(&tv), codes.poll(&tv));
    let (granted, refused) = if first.status == 200 {
        (first, second)
    } else {
        (second, first)
    };
    assert_eq!(granted.tokens().access().claims["sub"], winner.sub());
    assert_eq!(refused.refusal(), REPLAYED);
    let families = server
        .app
        .core
        .store
        .read_blocking(|snapshot| FAMILIES.count(snapshot));
    assert_eq!(families.unwrap(), 1);
}

/// Section 5.4: an address with the code only fills in the form. No page of another site can press a button.
#[tokio::test]
async fn a_link_with_the_code_still_asks_and_forms_of_others_do_nothing() {
    let (_server, tv, alice) = scene().await;
    let codes = Codes::of(&tv).await;
    let browser = alice.browser();
    browser.visit("/account").await.sign_in().await;
    let page = browser
        .visit(&format!("/device?user_code={}", codes.user()))
        .await;
    assert_eq!(page.page(), "/device");
    let form = code_form(&page);
    assert_eq!(form.value("user_code"), Some(codes.user()));
    assert!(page.text().contains(EN.device_warning));
    assert!(
        page.header("content-security-policy")
            .unwrap()
            .contains("frame-ancestors 'none'")
    );
    let foreign = [
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ];
    for (form, headers) in [
        (form.clone(), foreign.as_slice()),
        (form.clone().without("csrf"), &[]),
        (form.clone().with("csrf", "b1x0Jm5vYQ"), &[]),
    ] {
        let refused = browser.submit_with(&form, headers).await;
        assert_eq!(refused.status, 400);
        let reason = if headers.is_empty() {
            EN.problem_form_expired
        } else {
            EN.error_foreign_form
        };
        assert!(refused.text().contains(reason));
    }
    // A form that was drawn for another browser.
    let elsewhere = alice.browser();
    assert_eq!(elsewhere.submit(&form).await.status, 400);
    let page = browser.submit(&form).await;
    let allowing = page.decision_form("allow");
    for (form, headers) in [
        (allowing.clone(), foreign.as_slice()),
        (allowing.clone().without("csrf"), &[]),
    ] {
        let again = browser.submit_with(&form, headers).await;
        let heading = if headers.is_empty() {
            EN.device_decision_title
        } else {
            EN.error_foreign_form
        };
        assert_eq!(again.heading(), heading);
    }
    assert_eq!(
        elsewhere.submit(&allowing).await.status,
        400,
        "the sign-in is of another browser"
    );
    assert_eq!(codes.poll(&tv).await.refusal(), PENDING);
    browser.submit(&allowing).await;
    codes.poll(&tv).await.tokens();
}

/// Section 5.4: the page says where the device asked from, and that it was elsewhere.
#[tokio::test]
async fn the_page_says_where_and_when_the_device_asked() {
    let server = Server::start_with_limits(|_| {}).await;
    let tv = server.client_with("tv", television).await;
    let alice = server.user("alice").await;
    let reply = ask(&tv).header("x-forwarded-for", "203.0.113.7").await;
    let codes = Codes(reply.json());
    server.advance(120);
    for (address, is_elsewhere) in [("203.0.113.7", false), ("198.51.100.9", true)] {
        let page = asked(&alice.browser().at(address), &codes).await;
        assert!(page.text().contains("203.0.113.7"));
        assert_eq!(page.text().contains("198.51.100.9"), is_elsewhere);
        assert!(page.text().contains("2 minutes ago"));
    }
}

/// Section 5.1: wrong codes are counted. A right one counts for nothing.
#[tokio::test]
async fn wrong_codes_are_limited_by_address_and_by_user() {
    let server = Server::start_with_limits(|limits| limits.enabled = true).await;
    let tv = server.client_with("tv", television).await;
    let alice = server.user("alice").await;
    let codes = Codes::of(&tv).await;
    let audit = Audit::listen();
    let browser = alice.browser().at("203.0.113.7");
    for _ in 0..10 {
        typed(&browser, "BCDF-GHJK").await;
        assert_eq!(typed(&browser, "not a code").await.status, 200, "it is no guess");
    }
    assert_eq!(audit.take(&["user_code_refused"]).len(), 10);
    let held = typed(&browser, codes.user()).await;
    assert_eq!(held.status, 429);
    assert_eq!(held.header("retry-after"), Some("60"));
    assert!(held.text().contains("Try again in 1 minute"));
    let elsewhere = browser.at("203.0.113.8");
    assert_eq!(typed(&elsewhere, codes.user()).await.page(), "/login");
    // A user who is signed in cannot go on from other addresses.
    elsewhere.visit("/account").await.sign_in().await;
    for last in 10..20 {
        typed(&browser.at(&format!("203.0.113.{last}")), "BCDF-GHJK").await;
    }
    assert_eq!(typed(&browser.at("203.0.113.30"), codes.user()).await.status, 429);
    server.advance(60);
    for _ in 0..3 {
        assert_eq!(
            typed(&browser, codes.user()).await.heading(),
            EN.device_decision_title
        );
    }
}

/// Section 5.1: many addresses together cannot search the codes. People who are signed in go on.
#[tokio::test]
async fn wrong_codes_of_people_who_are_not_signed_in_are_limited_together() {
    let server = Server::start_with_limits(|limits| limits.enabled = true).await;
    let tv = server.client_with("tv", television).await;
    let alice = server.user("alice").await;
    let codes = Codes::of(&tv).await;
    let stranger = server.browser();
    let form = code_form(&stranger.visit("/device").await);
    let guess = form.clone().with("user_code", "BCDF-GHJK");
    for number in 0..1_000 {
        let address = format!("198.51.{}.{}", number / 250, number % 250);
        assert_eq!(stranger.at(&address).submit(&guess).await.status, 200);
    }
    let right = form.with("user_code", codes.user());
    assert_eq!(stranger.at("203.0.113.7").submit(&right).await.status, 429);
    let browser = alice.browser().at("203.0.113.8");
    browser.visit("/account").await.sign_in().await;
    assert_eq!(
        typed(&browser, codes.user()).await.heading(),
        EN.device_decision_title
    );
}

/// Anybody can pass for a public client. A client that authenticates is not limited.
#[tokio::test]
async fn device_codes_for_public_clients_are_limited_by_address() {
    let server = Server::start_with_limits(|limits| limits.enabled = true).await;
    let tv = server.client_with("tv", television).await;
    let box_ = server
        .client_with("box", |client| {
            client.grant_types.insert(GrantType::DeviceCode);
        })
        .await;
    for _ in 0..60 {
        Codes::of(&tv).await;
    }
    let held = ask(&tv).await;
    assert_eq!(held.error(), "temporarily_unavailable");
    assert_eq!((held.status, held.header("retry-after")), (429, Some("5")));
    Codes::of(&box_).await;
}

#[tokio::test]
async fn a_disabled_client_or_user_gets_nothing() {
    let (server, tv, alice) = scene().await;
    let (codes, waiting) = (Codes::of(&tv).await, Codes::of(&tv).await);
    let browser = alice.browser();
    let page = asked(&browser, &waiting).await;
    decide(&alice, &codes, "allow").await;
    server.change_client(&tv, |client| client.enabled = false).await;
    assert_eq!(codes.poll(&tv).await.error(), "invalid_client");
    assert_eq!(ask(&tv).await.error(), "invalid_client");
    assert_eq!(page.clone().decide("allow").await.status, 400);
    let fresh = alice.browser();
    assert!(
        typed(&fresh, waiting.user())
            .await
            .text()
            .contains(EN.problem_user_code)
    );
    server.change_client(&tv, |client| client.enabled = true).await;
    server
        .change_client(&tv, |client| {
            client.grant_types.remove(&GrantType::DeviceCode);
        })
        .await;
    assert_eq!(codes.poll(&tv).await.error(), "unauthorized_client");
    server
        .change_client(&tv, |client| {
            client.grant_types.insert(GrantType::DeviceCode);
        })
        .await;
    server.change_user(&alice, |user| user.enabled = false).await;
    assert_eq!(
        codes.poll(&tv).await.refusal(),
        "400 invalid_grant: the user may no longer sign in"
    );
    assert_eq!(page.decide("allow").await.page(), "/login", "the session is over");
    server.change_user(&alice, |user| user.enabled = true).await;
    codes.poll(&tv).await.tokens();
}

/// What ends the grants of a user also ends what a device has not fetched yet.
#[tokio::test]
async fn an_allowed_device_that_has_not_polled_yet_ends_with_the_grants_of_the_user() {
    let (server, tv, alice) = scene().await;
    for disconnects in [true, false] {
        let codes = Codes::of(&tv).await;
        let browser = decide(&alice, &codes, "allow").await;
        if disconnects {
            // The first device gives the page a row for the application.
            let first = Codes::of(&tv).await;
            decide(&alice, &first, "allow").await;
            first.poll(&tv).await.tokens();
            let page = browser.visit("/account/applications").await;
            let is_list = |form: &Form| form.buttons.iter().any(|(name, _)| name == "client");
            let form = page.forms().into_iter().find(is_list).unwrap();
            browser.submit(&form.with("client", "tv")).await;
        } else {
            let who = alice.sub();
            let set = SetPassword {
                who,
                password: NewPassword::Generated,
                keep_sessions: false,
            };
            server.admin().call(set).await.unwrap();
        }
        assert_eq!(codes.poll(&tv).await.refusal(), UNKNOWN, "{disconnects}");
    }
    let index = server
        .app
        .core
        .store
        .read_blocking(|snapshot| DEVICE_AUTHORIZATIONS_BY_USER.count(snapshot));
    assert_eq!(index.unwrap(), 0);
}

/// The page is the page for consent.
#[tokio::test]
async fn the_decision_is_the_consent() {
    let (server, tv, alice) = scene().await;
    server
        .change_client(&tv, |client| {
            client.consent = ConsentRequirement::Require;
            client.origin = ClientOrigin::DynamicRegistration;
        })
        .await;
    let codes = Codes::of(&tv).await;
    let browser = alice.browser();
    let page = asked(&browser, &codes).await;
    assert!(page.text().contains("the application registered itself"));
    page.decide("allow").await;
    let tokens = codes.poll(&tv).await.tokens();
    tv.refresh(tokens.refresh_token()).await.tokens();
    // Each device is asked about.
    asked(&browser, &Codes::of(&tv).await).await;
}

/// The sign-in has the rules of the client: `--acr 2` asks for the second step, or for its setup.
#[tokio::test]
async fn the_sign_in_follows_the_rules_of_the_client() {
    let (server, tv, alice) = scene().await;
    let codes = Codes::of(&tv).await;
    let browser = alice.browser();
    let page = asked(&browser, &codes).await;
    server
        .change_client(&tv, |client| client.acr = Some(AuthenticationLevel::TwoFactors))
        .await;
    let page = page.decide("allow").await;
    assert_eq!(page.page(), "/login", "the session has too low a level");
    assert_eq!(page.sign_in().await.page(), "/second-factor");
    assert_eq!(codes.poll(&tv).await.refusal(), PENDING);
    server
        .change_client(&tv, |client| {
            client.acr = None;
            client.password_sign_in = false;
        })
        .await;
    let page = typed(&browser, codes.user()).await;
    assert!(page.text().contains(EN.problem_no_way), "{}", page.text());
}

/// OpenID Connect Registration 2: `default_max_age` counts for devices too.
#[tokio::test]
async fn an_old_sign_in_does_not_decide_for_a_client_with_a_greatest_age() {
    let (server, tv, alice) = scene().await;
    server
        .change_client(&tv, |client| client.default_max_age = Some(60))
        .await;
    let browser = alice.browser();
    asked(&browser, &Codes::of(&tv).await).await;
    server.advance(60);
    let codes = Codes::of(&tv).await;
    let page = typed(&browser, codes.user()).await;
    assert_eq!(page.heading(), EN.device_decision_title);
    server.advance(1);
    let page = page.decide("allow").await;
    assert_eq!(page.page(), "/login");
    assert_eq!(codes.poll(&tv).await.refusal(), PENDING);
    let page = page.sign_in().await.decide("allow").await;
    assert_eq!(page.heading(), EN.device_allowed_title);
}

/// Another user of the same browser decides only on a page of their own.
#[tokio::test]
async fn a_decision_counts_for_the_user_whom_the_page_names() {
    let (server, tv, alice) = scene().await;
    let bob = server.user("bob").await;
    let codes = Codes::of(&tv).await;
    let browser = alice.browser();
    let page = asked(&browser, &codes).await;
    let allowing = page.decision_form("allow");
    let other = bob.browser();
    other.visit("/account").await.sign_in().await;
    let session = "__Host-idsvc_session";
    browser.set_cookie(session, &other.cookie(session).unwrap());
    let again = browser.submit(&allowing).await;
    assert_eq!(again.heading(), EN.device_decision_title);
    assert!(again.text().contains("bob"));
    assert_eq!(codes.poll(&tv).await.refusal(), PENDING);
}

/// RFC 9449 section 5: the refresh token of a public client is bound to the key.
#[tokio::test]
async fn a_proof_binds_the_tokens_and_a_repeated_proof_is_refused() {
    let (server, tv, alice) = scene().await;
    let key = KeyHolder::new();
    let (first, second) = (Codes::of(&tv).await, Codes::of(&tv).await);
    decide(&alice, &first, "allow").await;
    decide(&alice, &second, "allow").await;
    let proof = key.for_token(&server);
    let tokens = first.poll(&tv).header("dpop", &proof).await.tokens();
    assert_eq!(tokens.0["token_type"], "DPoP");
    assert_eq!(tokens.access().claims["cnf"], json!({ "jkt": key.thumbprint() }));
    assert_eq!(tv.refresh(tokens.refresh_token()).await.error(), "invalid_grant");
    let repeated = second.poll(&tv).header("dpop", &proof).await;
    assert_eq!(repeated.error(), "invalid_dpop_proof");
    server
        .change_client(&tv, |client| client.dpop_bound_access_tokens = true)
        .await;
    assert_eq!(second.poll(&tv).await.error(), "invalid_dpop_proof");
    second
        .poll(&tv)
        .header("dpop", &key.for_token(&server))
        .await
        .tokens();
}

/// If a program stores its refresh token only once, rotation would end its sign-in at the next start.
#[tokio::test]
async fn a_device_may_keep_its_refresh_token_if_it_is_bound_or_the_operator_says_so() {
    let (server, tv, alice) = scene().await;
    let update = |policy, binds: Option<bool>, grants: Option<Vec<GrantType>>| UpdateClient {
        client_id: "tv".to_owned(),
        no_secret: false,
        fields: ClientFields {
            pkce: Some(PkceRequirement::Required),
            refresh_policy: Some(policy),
            dpop_bound_access_tokens: binds,
            redirect_uris: grants.as_ref().map(|_| vec!["https://tv.example/cb".to_owned()]),
            grant_types: grants,
            ..ClientFields::default()
        },
    };
    let change = async |change| server.admin().call(change).await;
    let refused = async |policy, binds, grants| {
        let refusal = change(update(policy, binds, grants)).await.unwrap_err();
        assert!(refusal.to_string().contains("refresh policy"), "{refusal}");
    };
    refused(RefreshPolicy::Reuse, None, None).await;
    let web = Some(vec![GrantType::AuthorizationCode, GrantType::RefreshToken]);
    for (policy, binds) in [(RefreshPolicy::Reuse, true), (RefreshPolicy::ReuseUnbound, false)] {
        refused(policy, Some(binds), web.clone()).await;
    }
    change(update(RefreshPolicy::ReuseUnbound, None, None))
        .await
        .unwrap();
    let codes = Codes::of(&tv).await;
    decide(&alice, &codes, "allow").await;
    let tokens = codes.poll(&tv).await.tokens();
    let kept = tokens.refresh_token();
    for _ in 0..2 {
        assert_eq!(tv.refresh(kept).await.tokens().refresh_token(), kept);
        server.advance(3600);
    }

    change(update(RefreshPolicy::Reuse, Some(true), None))
        .await
        .unwrap();
    let key = KeyHolder::new();
    let codes = Codes::of(&tv).await;
    decide(&alice, &codes, "allow").await;
    let proof = key.for_token(&server);
    let tokens = codes.poll(&tv).header("dpop", &proof).await.tokens();
    let kept = tokens.refresh_token();
    for _ in 0..2 {
        let proof = key.for_token(&server);
        let refreshed = tv.refresh(kept).header("dpop", &proof).await.tokens();
        assert_eq!(refreshed.refresh_token(), kept);
    }
    assert_ne!(tv.refresh(kept).await.status, 200, "it is bound");
}

/// RFC 8707: the device names APIs, and the token request narrows them.
#[tokio::test]
async fn the_apis_of_the_grant_are_those_that_the_device_named() {
    let (server, tv, alice) = scene().await;
    let unknown = ask(&tv).with("resource", "https://api.example/unknown").await;
    assert_eq!(unknown.error(), "invalid_target");
    for id in ["notes", "photos"] {
        let fields = ApiFields {
            open: Some(true),
            ..ApiFields::default()
        };
        let add = AddApi {
            id: id.to_owned(),
            identifier: format!("https://api.example/{id}"),
            fields,
        };
        server.admin().call(add).await.unwrap();
    }
    let (notes, photos) = ("https://api.example/notes", "https://api.example/photos");
    let codes = Codes(ask(&tv).with("resource", notes).await.json());
    let page = asked(&alice.browser(), &codes).await;
    assert!(page.text().contains("notes"));
    page.decide("allow").await;
    let wider = codes.poll(&tv).with("resource", photos).await;
    assert_eq!(wider.error(), "invalid_target");
    let tokens = codes.poll(&tv).with("resource", notes).await.tokens();
    assert_eq!(tokens.access().claims["aud"], notes);
}

#[tokio::test]
async fn the_scope_is_what_the_client_may_have() {
    let (server, tv, alice) = scene().await;
    for scope in ["openid unknown", "anonymous"] {
        assert_eq!(
            ask(&tv).with("scope", scope).await.error(),
            "invalid_scope",
            "{scope}"
        );
    }
    let codes = Codes(ask(&tv).with("scope", "openid email phone").await.json());
    let page = asked(&alice.browser(), &codes).await;
    server
        .change_client(&tv, |client| client.scope = "openid email".parse().unwrap())
        .await;
    page.decide("allow").await;
    assert_eq!(
        codes.poll(&tv).await.tokens().scope(),
        ["openid", "email", "authenticated"]
    );
}

/// After the clock was set back, a code would last too long.
#[tokio::test]
async fn a_code_from_ahead_of_the_clock_counts_as_expired() {
    let (server, tv, alice) = scene().await;
    let codes = Codes::of(&tv).await;
    decide(&alice, &codes, "allow").await;
    let core = &server.app.core;
    let ahead = server.clock.now() + Duration::from_hours(2);
    let id = core.random.uuid_v7(Duration::from_secs(ahead.seconds()));
    let secret = Secret::<DeviceCode>::generate(id.as_bytes(), &core.random);
    let digest = secret.digest();
    let moved = core
        .store
        .write("test_clock", move |tx| -> Result<_, StoreError> {
            let rows = DEVICE_AUTHORIZATIONS.scan(&*tx, .., 10)?;
            for (_, mut row) in rows {
                row.digest = digest;
                row.expires_at = ahead;
                DEVICE_AUTHORIZATIONS.put(tx, &id, &row)?;
            }
            Ok(())
        });
    moved.await.unwrap();
    let polled = codes.poll(&tv).with("device_code", secret.reveal()).await;
    assert_eq!(polled.refusal(), EXPIRED);
    codes.poll(&tv).await.tokens();
}

/// Eight letters are tried in a second if the digest has no key.
#[tokio::test]
async fn no_row_has_a_user_code_that_works_and_codes_of_an_earlier_release_still_do() {
    let (server, tv, alice) = scene().await;
    let codes = Codes::of(&tv).await;
    let core = &server.app.core;
    let typed_code = UserCode::parse(codes.user()).unwrap();
    let rows = || {
        let read = core.store.read_blocking(|snapshot| {
            Ok((
                DEVICE_AUTHORIZATIONS.scan(snapshot, .., 10)?,
                DEVICE_AUTHORIZATIONS_BY_USER_CODE.scan(snapshot, .., 10)?,
            ))
        });
        read.unwrap()
    };
    let stored = format!("{:?}", rows());
    let digest = ring::digest::digest(&ring::digest::SHA256, typed_code.as_str().as_bytes());
    let digest = format!("{digest:?}").split_once(':').unwrap().1.to_owned();
    for known in [typed_code.as_str(), codes.user(), &digest] {
        assert!(!stored.contains(known), "{stored}");
    }

    // An earlier release has stored the code.
    let (id, mut row) = rows().0.pop().unwrap();
    let digest = row.user_code.as_str().to_owned();
    let earlier = typed_code.as_str().to_owned();
    row.user_code = serde_json::from_value(json!(earlier)).unwrap();
    let put = core.store.write_blocking("test", move |tx| {
        DEVICE_AUTHORIZATIONS_BY_USER_CODE.remove(tx, &digest)?;
        DEVICE_AUTHORIZATIONS_BY_USER_CODE.put(tx, &earlier, &id)?;
        DEVICE_AUTHORIZATIONS.put(tx, &id, &row)
    });
    put.unwrap();
    let page = asked(&alice.browser(), &codes).await;
    assert!(page.text().contains(codes.user()), "{}", page.text());
    page.decide("allow").await;
    assert_eq!(rows().1.len(), 0);
    codes.poll(&tv).await.tokens();
}

#[tokio::test]
async fn expired_rows_are_swept_with_their_index() {
    let (server, tv, alice) = scene().await;
    let (allowed, _pending) = (Codes::of(&tv).await, Codes::of(&tv).await);
    decide(&alice, &allowed, "allow").await;
    let core = &server.app.core;
    let counts = || {
        let read = core.store.read_blocking(|snapshot| {
            Ok([
                DEVICE_AUTHORIZATIONS.count(snapshot)?,
                DEVICE_AUTHORIZATIONS_BY_USER_CODE.count(snapshot)?,
                DEVICE_AUTHORIZATIONS_BY_USER.count(snapshot)?,
            ])
        });
        read.unwrap()
    };
    assert_eq!(counts(), [2, 1, 1]);
    for (seconds, left) in [(600 + 3600, [2, 1, 1]), (1, [0, 0, 0])] {
        server.advance(seconds);
        let mut cursor = Cursor::default();
        while sweep(core, &mut cursor, server.clock.now()).await.unwrap().more {}
        assert_eq!(counts(), left);
    }
    assert_eq!(allowed.poll(&tv).await.refusal(), UNKNOWN);
}

/// The page of `serve --dev` stands for a device. It is on no other server.
#[tokio::test]
async fn the_example_device_shows_its_code_and_then_its_tokens() {
    let (ordinary, _, _) = scene().await;
    assert_eq!(ordinary.get("/dev/device").await.status, 404);
    let setup = Setup {
        is_development: true,
        ..Setup::default()
    };
    let server = setup.start().await;
    let alice = server.user("alice").await;
    let browser = alice.browser();
    assert!(browser.visit("/").await.text().contains("href=\"/dev/device\""));
    let page = browser.visit("/dev/device").await;
    assert_eq!(
        (page.heading().as_str(), page.header("refresh")),
        ("Sign in on a device", Some("5"))
    );
    assert!(page.text().contains("<svg class=\"qr\""));
    let (_, rest) = page.text().split_once("/device?user_code=").unwrap();
    let user_code = &rest[..9];
    typed(&browser, user_code)
        .await
        .sign_in()
        .await
        .decide("allow")
        .await;
    let tokens = browser.visit(&page.path).await;
    assert_eq!(tokens.heading(), "Tokens", "{}", tokens.text());
    assert_eq!(
        browser.visit(&page.path).await.status,
        400,
        "the codes are used up"
    );
}
