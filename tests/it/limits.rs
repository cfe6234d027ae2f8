//! What strangers may do how often, and who is not hindered by them.
//!
//! The service stands behind a proxy on this machine, which says in `X-Forwarded-For` where a request comes from.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use idsvc::clock::Clock;
use idsvc::http::error::fallback;
use idsvc::jose::keyring::SigningKey;
use idsvc::net::{FailedRequest, Peer};
use idsvc::oauth::client::{AuthMethod, Client, GrantType, StoredApiKey};
use idsvc::observe::readings::Readings;
use idsvc::pages::text::EN;
use idsvc::password::{Memory, PasswordParams, hash};
use idsvc::random::Random;
use idsvc::secret::{ApiKey, Secret};
use idsvc::store::engine::Tx;
use idsvc::store::{Options, StoreError};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use zeroize::Zeroizing;

use crate::harness::server::Setup;
use crate::harness::token::signed;
use crate::harness::wire::Call;
use crate::harness::{Browser, ISSUER, Person, RelyingParty, START, Screen, Server, until, write_form};

const GRANT: &str = "urn:service:oauth2:grant-type:anonymous";
const HERE: &str = "192.0.2.1";
const ELSEWHERE: &str = "198.51.100.7";

async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start_with_limits(|_| {}).await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

/// Addresses of which none is seen twice.
fn address(number: usize) -> String {
    format!("203.0.{}.{}", number / 256, number % 256)
}

async fn sign_in_at(
    browser: &Browser,
    acme: &RelyingParty,
    place: &str,
    name: &str,
    password: &str,
) -> Screen {
    let page = browser.at(place).authorize(&acme.request()).await;
    page.type_in(name, password).await
}

/// Fails `times` times under this name, each time from another address, and returns how many passwords were checked.
async fn fail(alice: &Person, acme: &RelyingParty, name: &str, times: usize) -> usize {
    let mut looked_at = 0;
    for number in 0..times {
        let page = sign_in_at(&alice.browser(), acme, &address(number), name, "wrong").await;
        assert!(matches!(page.status, 200 | 429), "{}", page.status);
        looked_at += usize::from(page.status == 200);
    }
    looked_at
}

#[tokio::test]
async fn one_name_is_guarded_whether_it_is_somebodys_or_not() {
    let (server, acme, alice) = scene().await;
    server.user_with("bob", |user| user.enabled = false).await;
    let mut pages = Vec::new();
    for name in ["alice@example.com", "nobody@example.com", "bob@example.com"] {
        assert_eq!(fail(&alice, &acme, name, 12).await, 10, "{name}");
        let page = sign_in_at(&alice.browser(), &acme, ELSEWHERE, name, "wrong").await;
        assert_eq!(page.status, 429);
        assert_eq!(page.header("retry-after"), Some("300"));
        let told = "Too many attempts. Try again in 5 minutes.";
        assert!(page.text().contains(told), "{}", page.text());
        pages.push(page.shown());
    }
    assert!(pages.iter().all(|page| *page == pages[0]));
    let spelt_otherwise =
        sign_in_at(&alice.browser(), &acme, ELSEWHERE, " ALICE@example.com ", "wrong").await;
    assert_eq!(spelt_otherwise.status, 429);
}

/// Where no password is looked at there is nothing to guess, and nobody locks a name out there.
#[tokio::test]
async fn an_application_without_passwords_holds_no_name_back() {
    let (server, acme, alice) = scene().await;
    let other = server.client("other").await;
    let page = alice.browser().at(HERE).authorize(&other.request()).await;
    server
        .change_client(&other, |client| client.password_sign_in = false)
        .await;
    for _ in 0..12 {
        let refused = page.clone().type_in("alice@example.com", "wrong").await;
        assert!(refused.text().contains(EN.problem_no_way), "{}", refused.text());
    }
    acme.code(&alice.browser().at(HERE)).await;
}

/// While the name is limited, an attacker learns nothing: the right password gets the same answer as a wrong one.
#[tokio::test]
async fn the_right_password_is_not_looked_at_either() {
    let (server, acme, alice) = scene().await;
    fail(&alice, &acme, "alice@example.com", 10).await;
    let wrong = sign_in_at(&alice.browser(), &acme, ELSEWHERE, "alice@example.com", "wrong").await;
    let right = sign_in_at(
        &alice.browser(),
        &acme,
        ELSEWHERE,
        "alice@example.com",
        &alice.password,
    )
    .await;
    assert_eq!((right.status, right.shown()), (wrong.status, wrong.shown()));
    assert!(right.cookies().is_empty());
    server.advance(300);
    let right = sign_in_at(
        &alice.browser(),
        &acme,
        ELSEWHERE,
        "alice@example.com",
        &alice.password,
    )
    .await;
    right.callback().code();
}

/// Changes the password on the account page of the user who is signed in in this browser.
pub(crate) async fn change_password(browser: &Browser, from: &str, to: &str) -> Screen {
    let page = browser.visit("/account/password").await;
    let mut forms = page.forms().into_iter();
    let form = forms
        .find(|form| form.value("decision") == Some("password"))
        .unwrap()
        .with("current-password", from)
        .with("new-password", to);
    browser.submit(&form).await
}

/// Cookies of known browsers are void once the password changes, however many an attacker collected. The browser in
/// which the password was changed stays known.
#[tokio::test]
async fn a_browser_is_known_for_as_long_as_the_password_that_was_typed_in_it() {
    const NEW: &str = "another password of alice";
    let (_server, acme, alice) = scene().await;
    let (here, kept) = (alice.browser(), alice.browser());
    acme.code(&here.at(HERE)).await;
    acme.code(&kept.at(ELSEWHERE)).await;
    let changed = change_password(&here.at(HERE), &alice.password, NEW).await;
    assert!(changed.text().contains(EN.account_password_changed));
    fail(&alice, &acme, "alice@example.com", 10).await;
    let again = acme.request().with("prompt", "login");
    let page = kept.at(ELSEWHERE).authorize(&again).await;
    let late = page.type_in("alice@example.com", NEW).await;
    assert_eq!(
        late.status, 429,
        "like any stranger, though the password is right"
    );
    let page = here.at(HERE).authorize(&again).await;
    page.type_in("alice@example.com", NEW).await.callback().code();
}

/// What a hash costs is the operator's matter: it is made anew at a sign-in, and browsers stay known.
#[tokio::test]
async fn a_browser_stays_known_when_the_hash_is_made_anew() {
    let (server, acme, alice) = scene().await;
    let here = alice.browser();
    acme.code(&here.at(HERE)).await;
    let dearer = PasswordParams::new(128, 2, 1).unwrap();
    server
        .change_user(&alice, |user| {
            let salt = user.password.take().unwrap().salt().unwrap();
            let memory = &mut Memory::default();
            user.password = Some(hash(dearer, alice.password.as_bytes(), salt, memory).unwrap());
        })
        .await;
    acme.code(&alice.browser().at(ELSEWHERE)).await;
    fail(&alice, &acme, "alice@example.com", 10).await;
    let again = acme.request().with("prompt", "login");
    let page = here.at(HERE).authorize(&again).await;
    page.sign_in().await.callback().code();
}

/// Failing on purpose locks nobody out who has signed in before.
#[tokio::test]
async fn a_browser_that_its_user_signed_in_with_before_gets_in() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser.at(HERE)).await;
    fail(&alice, &acme, "alice@example.com", 10).await;
    for number in 0..40 {
        sign_in_at(&alice.browser(), &acme, HERE, &format!("user {number}"), "wrong").await;
    }
    let again = acme.request().with("prompt", "login");
    let stranger = alice.browser().at(HERE).authorize(&again).await.sign_in().await;
    assert_eq!(stranger.status, 429);
    browser
        .at(HERE)
        .authorize(&again)
        .await
        .sign_in()
        .await
        .callback()
        .code();

    let known = "__Host-idsvc_known";
    let cookie = browser.cookie(known).unwrap();
    let bob = server.user("bob").await;
    fail(&alice, &acme, "bob@example.com", 10).await;
    let thief = bob.browser();
    thief.set_cookie(known, &cookie);
    let page = thief
        .at(ELSEWHERE)
        .authorize(&acme.request())
        .await
        .sign_in()
        .await;
    assert_eq!(page.status, 429, "the cookie is good for its own user only");

    let thief = alice.browser();
    thief.set_cookie(known, &cookie);
    let mut looked_at = 0;
    for _ in 0..20 {
        let page = sign_in_at(&thief, &acme, ELSEWHERE, "alice@example.com", "wrong").await;
        looked_at += usize::from(page.status == 200);
    }
    assert_eq!(looked_at, 10, "a stolen cookie is no free hand");

    server.advance(366 * 24 * 60 * 60);
    fail(&alice, &acme, "alice@example.com", 10).await;
    let page = sign_in_at(&browser, &acme, HERE, "alice@example.com", "wrong").await;
    assert_eq!(page.status, 429, "a browser is not known for ever");
}

/// A browser that a family shares is known for each of them, up to four. A sign-in of one member does not lock out another.
#[tokio::test]
async fn a_shared_browser_is_known_for_each_of_its_users() {
    const NAMES: [&str; 5] = ["ann", "bob", "carl", "dora", "eve"];
    let (server, acme, alice) = scene().await;
    let shared = alice.browser();
    let request = acme.request().with("prompt", "login");
    let mut people = Vec::new();
    for name in NAMES {
        people.push(server.user(name).await);
    }
    for person in people.iter().chain([&people[1]]) {
        let page = shared.at(HERE).authorize(&request).await;
        let signed_in = page.type_in(&person.user.account_id, &person.password).await;
        signed_in.callback().code();
    }
    let cookie = shared.cookie("__Host-idsvc_known").unwrap();
    assert_eq!(
        cookie.split('.').count(),
        4,
        "one for each name, and no more than four"
    );
    for (at, person) in people.iter().enumerate() {
        fail(&alice, &acme, &person.user.account_id, 10).await;
        let page = shared.at(HERE).authorize(&request).await;
        let tried = page.type_in(&person.user.account_id, &person.password).await;
        assert_eq!(tried.status == 429, at == 0, "{at}: the first one has made room");
    }
}

/// Each name has one of the four places. A user who changes their password many times evicts no other user.
#[tokio::test]
async fn a_shared_browser_stays_known_for_others_when_a_password_changes() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let shared = alice.browser();
    let request = acme.request().with("prompt", "login");
    for person in [&bob, &alice] {
        let page = shared.at(HERE).authorize(&request).await;
        let signed_in = page.type_in(&person.user.account_id, &person.password).await;
        signed_in.callback().code();
    }
    let mut password = alice.password.clone();
    for turn in 0..4 {
        let next = format!("password {turn} of alice");
        let changed = change_password(&shared.at(HERE), &password, &next).await;
        assert!(changed.text().contains(EN.account_password_changed));
        password = next;
    }
    let cookie = shared.cookie("__Host-idsvc_known").unwrap();
    assert_eq!(cookie.split('.').count(), 2, "one for each name");
    for (person, password) in [(&bob, &bob.password), (&alice, &password)] {
        fail(&alice, &acme, &person.user.account_id, 10).await;
        let page = shared.at(HERE).authorize(&request).await;
        page.type_in(&person.user.account_id, password)
            .await
            .callback()
            .code();
    }
}

#[tokio::test]
async fn one_address_is_held_back_whatever_names_it_tries() {
    let (server, acme, alice) = scene().await;
    let mut looked_at = 0;
    for number in 0..33 {
        let page = sign_in_at(&alice.browser(), &acme, HERE, &format!("user {number}"), "wrong").await;
        looked_at += usize::from(page.status == 200);
    }
    assert_eq!(looked_at, 30);
    let page = sign_in_at(
        &alice.browser(),
        &acme,
        HERE,
        "alice@example.com",
        &alice.password,
    )
    .await;
    assert_eq!((page.status, page.header("retry-after")), (429, Some("20")));
    acme.code(&alice.browser().at(ELSEWHERE)).await;
    server.advance(20);
    acme.code(&alice.browser().at(HERE)).await;
}

#[tokio::test]
async fn the_page_speaks_the_languages_of_the_others() {
    let (_server, acme, alice) = scene().await;
    fail(&alice, &acme, "alice@example.com", 10).await;
    let request = acme.request().with("ui_locales", "de");
    let page = alice.browser().at(HERE).authorize(&request).await.sign_in().await;
    assert_eq!(page.status, 429);
    assert!(page.text().contains("Zu viele Versuche."), "{}", page.text());
}

#[tokio::test]
async fn of_many_guesses_at_once_no_more_are_looked_at() {
    let (_server, acme, alice) = scene().await;
    let mut forms = Vec::new();
    for number in 0..30 {
        let browser = alice.browser().at(&address(number));
        forms.push(browser.authorize(&acme.request()).await);
    }
    let tasks: Vec<_> = forms
        .into_iter()
        .map(|page| tokio::spawn(async move { page.type_in("alice@example.com", "wrong").await.status }))
        .collect();
    let mut looked_at = 0;
    for task in tasks {
        looked_at += usize::from(task.await.unwrap() == 200);
    }
    assert_eq!(looked_at, 10);
}

/// Clocks are set. Forward forgives, back locks nobody out.
#[tokio::test]
async fn a_clock_that_jumps_locks_nobody_out() {
    let (server, acme, alice) = scene().await;
    fail(&alice, &acme, "alice@example.com", 10).await;
    server.advance(24 * 60 * 60);
    acme.code(&alice.browser().at(ELSEWHERE)).await;
    assert_eq!(fail(&alice, &acme, "alice@example.com", 12).await, 10);
    let Clock::Manual(millis) = &server.clock else {
        panic!("the clock of the tests is moved by hand")
    };
    millis.fetch_sub(24 * 60 * 60 * 1_000, Ordering::SeqCst);
    assert_eq!(fail(&alice, &acme, "alice@example.com", 12).await, 10);
}

fn from(call: Call, place: &str) -> Call {
    call.without_header("x-forwarded-for")
        .header("x-forwarded-for", place)
}

#[tokio::test]
async fn a_client_that_fails_is_held_back_where_it_failed() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let wrong = acme.introspect(tokens.access_token()).basic("acme", "wrong");
    for _ in 0..20 {
        let reply = from(wrong.clone(), HERE).await;
        assert_eq!(reply.error(), "invalid_client");
    }
    for call in [
        wrong.clone(),
        acme.introspect(tokens.access_token()),
        acme.refresh(tokens.refresh_token()),
    ] {
        let reply = from(call, HERE).await;
        assert_eq!(
            (reply.status, reply.error().as_str()),
            (429, "temporarily_unavailable")
        );
        assert_eq!(reply.header("retry-after"), Some("10"));
        assert!(reply.is_not_stored());
    }
    let elsewhere = from(acme.introspect(tokens.access_token()), ELSEWHERE).await;
    assert_eq!(elsewhere.status, 200);
    server.advance(10);
    from(acme.refresh(tokens.refresh_token()), HERE).await.tokens();
}

/// The name of a public client is known to all. Failures in its name do not keep it out.
#[tokio::test]
async fn a_public_client_that_presents_nothing_is_held_back_by_nobody() {
    let (server, acme, alice) = scene().await;
    let phone = server.public_client("phone").await;
    let off = server.public_client("off").await;
    server.change_client(&off, |client| client.enabled = false).await;
    let tokens = phone.tokens(&alice.browser()).await;
    let guess = |name: &str| from(server.post("/oauth2/token").basic(name, "guessed"), HERE);
    for _ in 0..20 {
        assert_eq!(guess("phone").await.status, 401);
    }
    assert_eq!(guess("phone").await.status, 429);
    let refreshed = from(phone.refresh(tokens.refresh_token()), HERE).await.tokens();
    for _ in 0..20 {
        assert_eq!(from(off.refresh("x"), HERE).await.status, 401);
    }
    assert_eq!(from(off.refresh("x"), HERE).await.status, 429);
    for number in 0..160 {
        assert_eq!(guess(&format!("client{number}")).await.status, 401);
    }
    let unknown = || server.post("/oauth2/token").with("client_id", "nobody");
    assert_eq!(from(unknown(), HERE).await.status, 429);
    assert_eq!(from(acme.refresh("x"), HERE).await.status, 429);
    from(phone.refresh(refreshed.refresh_token()), HERE)
        .await
        .tokens();
}

/// An assertion is counted like a secret, whether the client's own key signed it or another.
#[tokio::test]
async fn a_client_whose_assertions_are_wrong_is_held_back_where_it_failed() {
    let server = Server::start_with_limits(|_| {}).await;
    let new_key = || SigningKey::generate_es256(&Random::system()).unwrap();
    let (key, stranger) = (new_key(), new_key());
    let jwk = key.public().to_jwk();
    server
        .client_with("robot", |client| {
            client.jwks = vec![jwk];
            client.token_endpoint_auth_methods = [AuthMethod::PrivateKeyJwt].into();
            client.secrets.clear();
            client.grant_types.insert(GrantType::ClientCredentials);
        })
        .await;
    let ask = |key: &SigningKey, lasts: i64, place: &str| {
        let exp = server.clock.now().seconds().checked_add_signed(lasts).unwrap();
        let claims = json!({
            "iss": "robot", "sub": "robot", "aud": ISSUER, "exp": exp, "jti": Random::system().uuid_v4(),
        });
        let header = json!({"alg": key.alg().as_str(), "typ": "JWT"});
        let call = server
            .post("/oauth2/token")
            .with(
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            )
            .with("client_assertion", &signed(key, &header, &claims))
            .with("grant_type", "client_credentials")
            .with("scope", "notes.read");
        from(call, place)
    };
    for number in 0..20 {
        let wrong = match number % 2 {
            0 => ask(&stranger, 300, HERE),
            _ => ask(&key, -300, HERE),
        };
        assert_eq!(wrong.await.error(), "invalid_client", "{number}");
    }
    let reply = ask(&key, 300, HERE).await;
    assert_eq!(
        (reply.status, reply.error().as_str()),
        (429, "temporarily_unavailable")
    );
    assert_eq!(reply.header("retry-after"), Some("10"));
    ask(&key, 300, ELSEWHERE).await.tokens();
    server.advance(10);
    ask(&key, 300, HERE).await.tokens();
}

#[tokio::test]
async fn an_address_that_guesses_clients_is_held_back() {
    let (server, acme, _alice) = scene().await;
    for number in 0..200 {
        let guess = server
            .post("/oauth2/token")
            .basic(&format!("client{number}"), "wrong");
        assert_eq!(from(guess, HERE).await.status, 401);
    }
    assert_eq!(from(acme.refresh("x"), HERE).await.status, 429);
    assert_eq!(from(acme.refresh("x"), ELSEWHERE).await.status, 400);
}

#[tokio::test]
async fn api_keys_that_are_wrong_are_held_back() {
    let (server, _acme, alice) = scene().await;
    let mint = || {
        let id = Random::system().uuid_v4();
        (id, Secret::<ApiKey>::generate(id.as_bytes(), &Random::system()))
    };
    let ((id, key), (_, stranger)) = (mint(), mint());
    let stored = StoredApiKey {
        id,
        digest: key.digest(),
        created_at: START,
    };
    let tv = server
        .client_with("tv", |client| client.api_keys.push(stored))
        .await;
    let tokens = tv.tokens(&alice.browser()).await;
    let refresh = |key: &Secret<ApiKey>, place: &str| {
        let call = server
            .post("/v4/tokens")
            .basic(key.reveal(), "")
            .with("grant_type", "refresh_token")
            .with("refresh_token", tokens.refresh_token());
        from(call, place)
    };
    for _ in 0..20 {
        assert_eq!(refresh(&stranger, HERE).await.status, 401);
    }
    let reply = refresh(&stranger, HERE).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("10")));
    refresh(&key, HERE).await.tokens();
}

fn makes_anonymous(client: &mut Client) {
    client.grant_types.insert(GrantType::Anonymous);
}

async fn anonymous(party: &RelyingParty, place: &str) -> u16 {
    let call = party.post("/oauth2/token").with("grant_type", GRANT);
    from(call, place).await.status
}

#[tokio::test]
async fn anonymous_users_are_limited_for_the_address_and_for_the_client() {
    let server = Server::start_with_limits(|limits| {
        limits.anonymous_per_address = 2;
        limits.anonymous_per_client = 3;
    })
    .await;
    let tv = server.client_with("tv", makes_anonymous).await;
    let kiosk = server.client_with("kiosk", makes_anonymous).await;
    for (party, place, status) in [
        (&tv, HERE, 200),
        (&tv, HERE, 200),
        (&tv, HERE, 429),
        (&tv, ELSEWHERE, 200),
        (&tv, ELSEWHERE, 429),
        (&kiosk, ELSEWHERE, 200),
        (&kiosk, ELSEWHERE, 429),
    ] {
        assert_eq!(
            anonymous(party, place).await,
            status,
            "{} {place}",
            party.client_id()
        );
    }
    server.advance(1_800);
    assert_eq!(anonymous(&tv, HERE).await, 200);
    assert_eq!(anonymous(&tv, HERE).await, 429);
}

/// Devices that came in vain come again, many from one address: for what made no user they would have to wait.
#[tokio::test]
async fn a_request_that_makes_no_anonymous_user_is_not_counted() {
    let server = Server::start_with_limits(|limits| limits.anonymous_per_address = 1).await;
    let tv = server.client_with("tv", makes_anonymous).await;
    for _ in 0..3 {
        let call = tv.post("/oauth2/token").with("grant_type", GRANT);
        let refused = from(call.with("scope", "never.heard.of"), HERE).await;
        assert!(refused.refusal().starts_with("400 invalid_scope"));
    }
    assert_eq!(anonymous(&tv, HERE).await, 200);
    assert_eq!(anonymous(&tv, HERE).await, 429);
}

#[tokio::test]
async fn exempt_networks_and_a_service_without_limits_are_not_limited() {
    let exempt = Server::start_with_limits(|limits| {
        limits.exempt = vec!["192.0.2.0/24".parse().unwrap()];
        limits.anonymous_per_address = 1;
    })
    .await;
    let off = Server::start_with_limits(|limits| {
        limits.enabled = false;
        limits.anonymous_per_address = 1;
    })
    .await;
    for server in [exempt, off] {
        let tv = server.client_with("tv", makes_anonymous).await;
        let alice = server.user("alice").await;
        for _ in 0..40 {
            let page = sign_in_at(&alice.browser(), &tv, HERE, "alice@example.com", "wrong").await;
            assert_eq!(page.status, 200);
            assert_eq!(anonymous(&tv, HERE).await, 200);
            let wrong = tv.refresh("x").basic("tv", "wrong");
            assert_eq!(from(wrong, HERE).await.status, 401);
        }
    }
}

/// Where a sender contradicts its proxy nobody can say where it is: the proxy's own address would be exempt.
#[tokio::test]
async fn contradicting_the_proxy_exempts_nobody() {
    let server = Server::start_with_limits(|limits| {
        limits.exempt = vec!["127.0.0.0/8".parse().unwrap()];
        limits.anonymous_per_address = 1;
    })
    .await;
    let tv = server.client_with("tv", makes_anonymous).await;
    let mut answers = Vec::new();
    for number in 0..3 {
        let call = tv.post("/oauth2/token").with("grant_type", GRANT);
        let forged = format!("for={}", address(number));
        answers.push(from(call, HERE).header("forwarded", &forged).await.status);
    }
    assert_eq!(answers, [200, 429, 429]);
    assert_eq!(
        anonymous(&tv, HERE).await,
        200,
        "the honest sender there is not held to it"
    );
    assert_eq!(anonymous(&tv, "127.0.0.1").await, 200);
    assert_eq!(anonymous(&tv, "127.0.0.1").await, 200);
}

/// Neither quotes that stay open nor bytes that are no text hide the address that the proxy adds.
#[tokio::test]
async fn nobody_hides_what_the_proxy_adds() {
    let server = Server::start_with_limits(|limits| {
        limits.exempt = ["127.0.0.0/8", "10.99.0.0/16"]
            .map(|network| network.parse().unwrap())
            .into();
        limits.anonymous_per_address = 1;
    })
    .await;
    let tv = server.client_with("tv", makes_anonymous).await;
    let mut places = (0..).map(address);
    for (name, forged) in [
        ("forwarded", r#"for=10.99.0.1;ext="\"""#),
        ("forwarded", "for=10.99.0.1;ext=\u{e9}"),
        ("x-forwarded-for", "10.99.0.1, \u{e9}"),
    ] {
        let place = places.next().unwrap();
        let added = if name == "forwarded" {
            format!("for={place}")
        } else {
            place.clone()
        };
        let call = || tv.post("/oauth2/token").with("grant_type", GRANT);
        let first = call().header(name, &format!("{forged}, {added}")).await;
        assert_eq!(
            (first.status, anonymous(&tv, &place).await),
            (200, 429),
            "{forged}"
        );
    }
    let mut answers = Vec::new();
    for open in [
        r#"for=10.99.0.1;ext=""#,
        r#"for=10.99.0.1;ext="\""#,
        r#"for=127.0.0.1;x=""#,
    ] {
        let line = format!("{open}, for={}", places.next().unwrap());
        let call = tv.post("/oauth2/token").with("grant_type", GRANT);
        answers.push(call.header("forwarded", &line).await.status);
    }
    assert_eq!(answers, [200, 429, 429], "all of them are one, and not exempt");
}

/// What a sender takes its time for is not counted as that of the answer, where the body is refused in the end, too.
#[tokio::test]
async fn a_slow_body_that_is_too_large_is_no_slow_answer() {
    let server = Server::start().await;
    let mut slow = server.connect().await;
    let head = "POST /oauth2/token HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\
                Transfer-Encoding: chunked\r\n\r\n1\r\ng\r\n";
    slow.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let rest = format!("10001\r\n{}\r\n", "r".repeat(0x1_0001));
    slow.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    let metrics = server.app.metrics.text(&Readings::default());
    let counted = "idsvc_request_duration_seconds_bucket{le=\"1.0\",route=\"token\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

/// Slow bodies of one address leave room for those of others.
#[tokio::test]
async fn one_address_cannot_take_all_the_room_for_bodies() {
    let (server, acme, _alice) = scene().await;
    let head = format!(
        "POST /oauth2/token HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {HERE}\r\nExpect: 100-continue\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 65536\r\n\r\n"
    );
    let mut slow = Vec::new();
    for _ in 0..128 {
        let mut stream = server.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        // The service says so when it begins to read the body, for which it then holds room.
        let mut go_on = [0; 12];
        stream.read_exact(&mut go_on).await.unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100");
        slow.push(stream);
    }
    let reply = from(acme.refresh("x"), HERE).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("2")));
    assert_eq!(from(acme.refresh("x"), ELSEWHERE).await.status, 400);
}

/// Nor do all the subnets of one IPv6 /48 take the room for bodies from others.
#[tokio::test]
async fn one_site_of_ipv6_cannot_take_all_the_room_for_bodies() {
    const BODY: usize = 64 * 1024;
    const BODIES: usize = 1024;
    let (server, acme, _alice) = scene().await;
    let subnet = |number: usize| format!("2001:db8:77:{:x}::1", number % 8);
    let from_site = |number| subnet(number).parse().unwrap();
    let held: Vec<_> = (0..BODIES)
        .filter_map(|number| server.app.permit_for_body(BODY, from_site(number)))
        .collect();
    assert_eq!(held.len(), BODIES / 2);
    assert_eq!(from(acme.refresh("x"), &subnet(9)).await.status, 503);
    for elsewhere in [ELSEWHERE, "2001:db8:78::1"] {
        assert_eq!(from(acme.refresh("x"), elsewhere).await.status, 400);
    }
}

/// A server on which a password check takes longer than all else that a sign-in does, so that the queue fills.
async fn slow_scene() -> (Server, RelyingParty, Person) {
    let setup = Setup {
        trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
        cost: PasswordParams::new(16 * 1024, 1, 1).unwrap(),
        ..Setup::default()
    };
    let server = setup.start().await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

/// These people sign in at once from one address, each in a new browser.
async fn sign_in_at_once(acme: &RelyingParty, people: impl Iterator<Item = &Person>) {
    let mut forms = Vec::new();
    for person in people {
        forms.push(person.browser().at(HERE).authorize(&acme.request()).await);
    }
    let under_way: JoinSet<_> = forms.into_iter().map(Screen::sign_in).collect();
    for page in under_way.join_all().await {
        page.callback().code();
    }
}

#[tokio::test]
async fn people_of_one_address_who_sign_in_at_once_all_get_in() {
    let (server, acme, _alice) = slow_scene().await;
    let mut people = Vec::new();
    for number in 0..64 {
        people.push(server.user(&format!("person-{number}")).await);
    }
    sign_in_at_once(&acme, people.iter()).await;
}

#[tokio::test]
async fn right_passwords_for_one_name_at_once_all_get_in() {
    let (_server, acme, alice) = slow_scene().await;
    sign_in_at_once(&acme, std::iter::repeat_n(&alice, 16)).await;
}

/// The queue is kept full by wrong passwords from 1,100 addresses.
#[tokio::test]
async fn a_known_browser_gets_in_while_others_fill_the_queue_of_passwords() {
    let (server, acme, alice) = slow_scene().await;
    let browser = alice.browser().at(HERE);
    acme.code(&browser).await;
    let mut flood = JoinSet::new();
    for number in 0..1_100 {
        let app = Arc::clone(&server.app);
        flood.spawn(async move {
            for guess in 0.. {
                let from = address(number).parse().unwrap();
                let name = format!("user {number} {guess}");
                let now = app.core.clock.now();
                let Ok(attempt) = app.limits.try_password(&name, None, from, now) else {
                    return;
                };
                let passwords = &app.core.passwords;
                if passwords
                    .verify(None, Zeroizing::default(), attempt)
                    .await
                    .is_err()
                {
                    // As long as an attacker's next request may take.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        });
    }
    for _ in 0..20 {
        until(async || server.app.core.passwords.load().0 >= 64).await;
        let page = browser.authorize(&acme.request().with("prompt", "login")).await;
        page.sign_in().await.callback().code();
    }
    flood.shutdown().await;
}

/// More people sign in at once than passwords can be checked, from many addresses of which none takes more than its
/// share. Some are told to wait a moment and get in afterwards; all others are answered at once.
#[tokio::test]
async fn a_full_queue_of_passwords_is_a_page_that_says_so() {
    const AT_ONCE: usize = 150;
    const EACH: usize = 10;
    const PLACES: usize = 1 + 64;
    let (_server, acme, alice) = slow_scene().await;
    let mut forms = Vec::new();
    for number in 0..AT_ONCE {
        let browser = alice.browser().at(&address(number / EACH));
        forms.push(browser.authorize(&acme.request()).await);
    }
    let mut under_way = JoinSet::new();
    for (number, page) in forms.into_iter().enumerate() {
        under_way.spawn(async move { page.type_in(&format!("user {number}"), "wrong").await });
    }
    let (mut looked_at, mut refused) = (0, Vec::new());
    while let Some(page) = under_way.join_next().await {
        let page = page.unwrap();
        if page.status == 200 {
            looked_at += 1;
            continue;
        }
        assert_eq!((page.status, page.header("retry-after")), (503, Some("2")));
        assert!(page.is_not_stored() && page.cookies().is_empty());
        assert!(page.text().contains(EN.problem_busy), "{}", page.text());
        refused.push(page);
    }
    assert!(looked_at >= PLACES, "{looked_at} of {PLACES} places were used");
    let page = refused.pop().unwrap_or_else(|| panic!("the queue never filled"));
    let person = page.login_form();
    assert!(person.value("username").unwrap().starts_with("user "));
    page.type_in("alice@example.com", &alice.password)
        .await
        .callback()
        .code();
    acme.code(&alice.browser().at(ELSEWHERE)).await;
}

/// A refresh from this address of the machine, to which no answer has been read.
async fn refresh_from(place: &str, server: &Server, refresh_token: &str) -> TcpStream {
    let body = write_form(&[
        ("grant_type", "refresh_token"),
        ("client_id", "phone"),
        ("refresh_token", refresh_token),
    ]);
    let request = format!(
        "POST /oauth2/token HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let service = server.connect().await.peer_addr().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{place}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(service).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Requests of one address that wait for the disk leave places for those of others, whether their sender waits for the
/// answers or has hung up.
#[tokio::test]
async fn one_address_cannot_take_the_whole_queue_of_writes() {
    const SHARE: usize = 400;
    const WAITING: usize = 20;
    let server = Server::start().await;
    let phone = server.public_client("phone").await;
    let (alice, bob) = (server.user("alice").await, server.user("bob").await);
    let (tokens, others) = (
        phone.tokens(&alice.browser()).await,
        phone.tokens(&bob.browser()).await,
    );
    let (release, held) = mpsc::channel::<()>();
    let (held, begun) = (std::sync::Mutex::new(held), Arc::new(Notify::new()));
    let (app, says) = (Arc::clone(&server.app), Arc::clone(&begun));
    let slow = tokio::spawn(async move {
        let work = move |_: &mut dyn Tx| -> Result<_, StoreError> {
            says.notify_one();
            let _ = held.lock().unwrap().recv_timeout(Duration::from_mins(1));
            Ok(())
        };
        app.core.store.write("slow", work).await
    });
    begun.notified().await;
    let limits = &server.app.limits;
    let places: Vec<_> = (WAITING..SHARE)
        .map(|_| limits.permit_for_request("127.0.0.1".parse().unwrap()).unwrap())
        .collect();
    let queued = || usize::try_from(server.app.core.store.stats().queue_depth).unwrap();
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        waiting.push(refresh_from("127.0.0.1", &server, tokens.refresh_token()).await);
    }
    until(async || queued() == WAITING).await;
    let one_more = async || server.get("/oauth2/jwks").await;
    assert_eq!(
        (one_more().await.status, one_more().await.header("retry-after")),
        (503, Some("2"))
    );
    drop(waiting);
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(one_more().await.status, 503, "who hangs up takes nothing back");
    }
    let mut other = refresh_from("127.0.0.2", &server, others.refresh_token()).await;
    until(async || queued() == WAITING + 1).await;
    drop(release);
    slow.await.unwrap().unwrap();
    let mut answer = String::new();
    other.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(places);
    until(async || one_more().await.status == 200).await;
    let everything = 8 * SHARE;
    assert!(everything < Options::default().queue_len, "nor can an IPv6 /48");
}

/// A disk that cannot keep up turns requests away; they do not pile up.
#[tokio::test]
async fn a_full_queue_of_writes_is_a_503() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let store = &server.app.core.store;
    let (release, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let mut slow = pin!(store.write("slow", move |_| -> Result<_, StoreError> {
        let _ = held.lock().unwrap().recv_timeout(Duration::from_mins(1));
        Ok(())
    }));
    let mut waiting = Vec::new();
    poll_fn(|context| {
        assert!(slow.as_mut().poll(context).is_pending());
        loop {
            let mut write = Box::pin(store.write("waiting", |_| Ok(())));
            match write.as_mut().poll(context) {
                Poll::Pending => waiting.push(write),
                Poll::Ready(refused) => {
                    assert!(matches!(refused, Err(StoreError::Busy)));
                    return Poll::Ready(());
                }
            }
        }
    })
    .await;
    assert!((4095..=4096 + 512).contains(&waiting.len()), "{}", waiting.len());
    let reply = acme.refresh(tokens.refresh_token()).await;
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("2")));
    let page = alice.browser().authorize(&acme.request()).await.sign_in().await;
    assert_eq!((page.status, page.header("retry-after")), (503, Some("2")));
    assert!(!page.text().contains("Too many people"), "it is not their doing");
    drop(release);
    slow.await.unwrap();
    for write in waiting {
        write.await.unwrap();
    }
    acme.refresh(tokens.refresh_token()).await.tokens();
}

fn unanswered(status: u16) -> FailedRequest {
    FailedRequest {
        status: status.try_into().unwrap(),
        peer: Peer {
            addr: "127.0.0.1:1".parse().unwrap(),
            tls: true,
        },
        uri: "/oauth2/token".parse().unwrap(),
    }
}

/// A browser that keeps to TLS with `localhost` cannot reach what else a developer runs there.
#[tokio::test]
async fn a_host_that_is_this_machine_is_not_kept_to_tls() {
    for (issuer, hsts) in [
        ("https://localhost:8443", None),
        ("https://id.localhost", None),
        ("https://127.0.0.1:8443", None),
        ("https://[::1]", None),
        ("https://localhost.example", Some("max-age=31536000")),
    ] {
        let server = Server::start_with(|policy| policy.issuer = issuer.to_owned()).await;
        let answer = fallback(&server.app, &unanswered(500));
        let header = answer.headers().get("strict-transport-security");
        assert_eq!(header.map(|value| value.to_str().unwrap()), hsts, "{issuer}");
    }
}

#[tokio::test]
async fn a_request_that_came_to_no_answer_is_answered_as_all_are() {
    let (server, _acme, _alice) = scene().await;
    for (status, retry_after) in [(500_u16, None), (503, Some("2"))] {
        let answer = fallback(&server.app, &unanswered(status));
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap());
        assert_eq!(answer.status(), status);
        assert_eq!(header("x-content-type-options"), Some("nosniff"));
        assert_eq!(header("strict-transport-security"), Some("max-age=31536000"));
        assert_eq!(header("cache-control"), Some("no-store"));
        assert_eq!(header("x-request-id").map(str::len), Some(16));
        assert_eq!(header("retry-after"), retry_after);
        let counted = format!("idsvc_requests_total{{route=\"token\",status=\"{status}\"}} 1");
        let metrics = server.app.metrics.text(&Readings::default());
        assert!(metrics.contains(&counted), "{metrics}");
    }
}
