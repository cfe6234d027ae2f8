//! Until a user has authenticated, the browser keeps the sign-in, and the service stores nothing.

use std::ops::{Bound, ControlFlow};
use std::time::Duration;

use idsvc::admin::client;
use idsvc::admin::provider::ProviderFields;
use idsvc::clock::{Clock, Timestamp};
use idsvc::oauth::client::ConsentRequirement;
use idsvc::oauth::login::{AccountLogin, LoginPurpose, LoginTransaction};
use idsvc::random::Random;
use idsvc::seal::Sealer;
use idsvc::secret::Secret;
use idsvc::store::engine::Snapshot;
use idsvc::store::record::Record;
use idsvc::store::tables::{self, SESSIONS};
use serde_json::json;

use crate::harness::process::Service;
use crate::harness::relying_party::CHALLENGE;
use crate::harness::server::Setup;
use crate::harness::{
    AuthorizationRequest, Browser, Person, RelyingParty, Say, Screen, Server, Upstream, parse_form, scene,
};

const BINDING: &str = "__Host-idsvc_browser";
const SESSION: &str = "__Host-idsvc_session";

struct Scene {
    upstream: Upstream,
    server: Server,
    acme: RelyingParty,
    alice: Person,
}

/// A service behind a proxy, whose users have a password or come from a provider.
async fn with_provider() -> Scene {
    let upstream = Upstream::start().await;
    let setup = Setup {
        trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
        outbound: upstream.terms(),
        ..Setup::default()
    };
    let server = setup.start().await;
    let fields = ProviderFields {
        issuer: Some(upstream.issuer.clone()),
        client_id: Some("idsvc".to_owned()),
        create_users: Some(true),
        ..ProviderFields::default()
    };
    server.provider("up", fields).await;
    let acme = server
        .client_with("acme", |client| {
            client.providers.insert("up".to_owned());
        })
        .await;
    let alice = server.user("alice").await;
    Scene {
        upstream,
        server,
        acme,
        alice,
    }
}

/// Has the provider vouch for its one user. Returns the address to which it sends the browser back.
fn vouch_at(now: Timestamp, upstream: &Upstream, to_provider: &str, code: &str) -> String {
    let question = parse_form(to_provider.split_once('?').unwrap().1);
    let of = |name: &str| {
        question
            .iter()
            .find(|(known, _)| known == name)
            .unwrap()
            .1
            .clone()
    };
    let mut claims = upstream.claims("idsvc", "u-1");
    claims["nonce"] = of("nonce").into();
    claims["iat"] = now.seconds().into();
    claims["exp"] = (now.seconds() + 60).into();
    let tokens = json!({
        "access_token": "a",
        "token_type": "Bearer",
        "id_token": upstream.sign(&claims),
    });
    upstream.say("/token", Say::Json(tokens));
    format!("/federation/up/callback?state={}&code={code}", of("state"))
}

impl Scene {
    async fn to_provider(&self, browser: &Browser, request: &AuthorizationRequest) -> Screen {
        browser.authorize(&request.clone().with("idp_hint", "up")).await
    }

    /// As [`vouch_at`], for the question with which this answer sends a browser to the provider.
    fn vouch(&self, asked: &Screen, code: &str) -> String {
        let now = self.server.clock.now();
        vouch_at(now, &self.upstream, asked.location(), code)
    }

    /// Every row of the store, and how many writes there were.
    fn stored(&self) -> (Vec<Vec<u8>>, u64) {
        let store = &self.server.app.core.store;
        let mut rows = Vec::new();
        let mut read_all = |snapshot: &dyn Snapshot| {
            for table in tables::all() {
                snapshot.range(table, Bound::Unbounded, Bound::Unbounded, &mut |key, row| {
                    rows.push([key, row].concat());
                    Ok(ControlFlow::Continue(()))
                })?;
            }
            Ok(())
        };
        store.stream(&mut read_all).unwrap();
        (rows, store.stats().transactions)
    }
}

#[tokio::test]
async fn what_nobody_authenticated_for_is_not_stored() {
    let scene = with_provider().await;
    let before = scene.stored();
    let long = scene.acme.request().with("state", &"s".repeat(4_000));
    for number in 0..2_000 {
        let browser = scene
            .server
            .browser()
            .at(&format!("2001:db8:{number:x}::{number:x}"));
        assert_eq!(browser.fetch(&long.path()).await.status, 303);
        if number % 20 != 0 {
            continue;
        }
        assert_eq!(browser.fetch("/account").await.status, 303);
        let page = browser.authorize(&long).await;
        for path in [page.path.replace("/login?", "/consent?"), page.path.clone()] {
            assert_eq!(browser.visit(&path).await.page(), "/login");
        }
        let mut denial = page.login_form().with("decision", "deny");
        "/consent".clone_into(&mut denial.action);
        assert_eq!(browser.submit(&denial).await.callback().error(), "access_denied");
        let wrong = page.type_in(&format!("user {number}"), "wrong").await;
        assert_eq!((wrong.status, wrong.page()), (200, "/login"));
        let asked = scene.to_provider(&browser, &long).await;
        let state = parse_form(asked.location().split_once('?').unwrap().1);
        let (_, state) = state.iter().find(|(name, _)| name == "state").unwrap();
        for answer in [
            format!("state={state}&code=made-up"),
            format!("state={state}&error=access_denied"),
            "state=made-up&code=made-up".to_owned(),
        ] {
            browser.visit(&format!("/federation/up/callback?{answer}")).await;
        }
    }
    assert!(scene.upstream.seen("/token").len() >= 100);
    assert_eq!(scene.stored(), before);
    scene.acme.tokens(&scene.alice.browser()).await;
    assert_ne!(scene.stored(), before);
}

#[tokio::test]
async fn two_tabs_at_once_both_come_to_their_end() {
    let scene = with_provider().await;
    let browser = scene.alice.browser();
    let first = browser.authorize(&scene.acme.request()).await;
    let second = browser.authorize(&scene.acme.request()).await;
    second.sign_in().await.callback().code();
    first.sign_in().await.callback().code();

    let browser = scene.server.browser();
    let first = scene.to_provider(&browser, &scene.acme.request()).await;
    let second = scene.to_provider(&browser, &scene.acme.request()).await;
    for (screen, code) in [(second, "c-2"), (first, "c-1")] {
        let answer = scene.vouch(&screen, code);
        browser.visit(&answer).await.callback().code();
    }
}

/// RFC 9700 section 4.7: neither can an attacker's sign-in be continued in the user's browser, nor the user's in the
/// attacker's.
#[tokio::test]
async fn a_sealed_sign_in_is_good_for_nothing_in_another_browser() {
    let scene = with_provider().await;
    let (attacker, victim) = (scene.server.browser(), scene.alice.browser());
    let theirs = attacker.authorize(&scene.acme.request()).await;
    let own = victim.authorize(&scene.acme.request()).await;
    let asked = scene.to_provider(&attacker, &scene.acme.request()).await;
    let planted = scene.vouch(&asked, "c");
    let start = theirs.path.replace("/login?", "/federation/up/start?");
    for path in [&theirs.path, &start, &planted] {
        let page = victim.fetch(path).await;
        assert_eq!((page.status, page.header("location")), (400, None), "{path}");
    }
    let form = own
        .login_form()
        .with("transaction", theirs.login_form().value("transaction").unwrap())
        .with("username", "alice@example.com")
        .with("password", &scene.alice.password);
    let refused = victim.submit(&form).await;
    assert_eq!((refused.status, refused.header("location")), (400, None));
    for browser in [&attacker, &victim] {
        assert_eq!(browser.cookie(SESSION), None);
    }
    assert!(scene.upstream.seen("/token").is_empty());
    own.sign_in().await.callback().code();
}

#[tokio::test]
async fn a_sealed_sign_in_that_was_changed_or_is_of_another_installation_is_an_error_page() {
    let scene = with_provider().await;
    let browser = scene.alice.browser();
    let page = browser.authorize(&scene.acme.request()).await;
    let sealed = page.login_form().value("transaction").unwrap().to_owned();
    let last = if sealed.ends_with('A') { 'B' } else { 'A' };
    let changed = format!("{}{last}", &sealed[..sealed.len() - 1]);
    let cut = &sealed[..sealed.len() / 2];
    let now = scene.server.clock.now();
    let forged = |master_key, begun_at: Timestamp| {
        let binding = Secret::parse(&browser.cookie(BINDING).unwrap()).unwrap();
        let transaction = LoginTransaction {
            id: begun_at.first_id(),
            browser: binding.digest(),
            purpose: LoginPurpose::Account(AccountLogin {
                reauthenticate: None,
                action_pending: false,
                page: "/account".to_owned(),
            }),
        };
        let mut plain = Vec::new();
        transaction.encode(&mut plain).unwrap();
        let sealer = Sealer::new(&[master_key; 32]);
        sealer.seal_in_hour(1, "login_transaction", &plain, &Random::system())
    };
    let (foreign, expired) = (forged(8, now), forged(7, now - Duration::from_mins(30)));
    for sealed in [changed.as_str(), cut, "!", &foreign, &expired] {
        for path in ["/login", "/consent", "/federation/up/start"] {
            let page = browser.fetch(&format!("{path}?transaction={sealed}")).await;
            assert_eq!((page.status, page.header("location")), (400, None), "{path}");
        }
    }
    let own = browser
        .fetch(&format!("/login?transaction={}", forged(7, now)))
        .await;
    assert_eq!(own.status, 200, "nothing else is wrong with them");
}

/// The key with which sign-ins are sealed changes every hour.
#[tokio::test]
async fn a_new_sealing_key_ends_no_sign_in() {
    let scene = with_provider().await;
    scene.server.advance(3_590);
    let (person, stranger) = (scene.alice.browser(), scene.server.browser());
    let page = person.authorize(&scene.acme.request()).await;
    let asked = scene.to_provider(&stranger, &scene.acme.request()).await;
    let answer = scene.vouch(&asked, "c");
    scene.server.advance(20);
    page.sign_in().await.callback().code();
    stranger.visit(&answer).await.callback().code();
}

#[tokio::test]
async fn a_client_that_is_registered_anew_gets_no_code_of_the_sign_in_before() {
    let (server, acme, alice) = scene().await;
    let page = alice.browser().authorize(&acme.request()).await;
    server
        .admin()
        .call(client::RemoveClient {
            client_id: "acme".to_owned(),
        })
        .await
        .unwrap();
    let anew = server.client("acme").await;
    let late = page.sign_in().await;
    assert_eq!((late.status, late.header("location")), (400, None));
    assert_eq!(late.browser().cookie(SESSION), None);
    anew.code(&alice.browser()).await;
}

/// The user may keep copies of the cookies; the answers that were used stay used.
#[tokio::test]
async fn no_answer_of_a_provider_signs_in_twice() {
    let scene = with_provider().await;
    let browser = scene.server.browser();
    let request = scene.acme.request();
    let page = browser.authorize(&request).await;
    let start = page.path.replace("/login?", "/federation/up/start?");
    let mut answers = Vec::new();
    for code in ["c-1", "c-2"] {
        let asked = browser.visit(&start).await;
        let answer = scene.vouch(&asked, code);
        let kept = browser.cookies();
        browser.visit(&answer).await.callback().code();
        browser.set_cookie(SESSION, "lost");
        answers.push((answer, kept));
    }
    let sessions = || {
        let store = &scene.server.app.core.store;
        store.read_blocking(|snapshot| SESSIONS.count(snapshot)).unwrap()
    };
    let (before, redeemed) = (sessions(), scene.upstream.seen("/token").len());
    for (answer, kept) in answers {
        for (name, value) in kept {
            browser.set_cookie(&name, &value);
        }
        browser.set_cookie(SESSION, "lost");
        let again = browser.visit(&answer).await;
        assert_eq!((again.status, again.page()), (200, "/login"));
        assert_eq!(browser.cookie(SESSION).as_deref(), Some("lost"));
    }
    assert_eq!(sessions(), before);
    assert_eq!(scene.upstream.seen("/token").len(), redeemed);
}

/// The length of the `Cookie` header.
fn cookie_bytes(browser: &Browser) -> usize {
    let cookies = browser.cookies().into_iter();
    cookies.map(|(name, value)| name.len() + value.len() + 3).sum()
}

/// The longest request that is accepted, in the header of which there is still room for what browsers add.
#[tokio::test]
async fn the_longest_request_passes_through_password_provider_and_consent() {
    const FOR_BROWSERS: usize = 1_500;
    let scene = with_provider().await;
    scene
        .server
        .change_client(&scene.acme, |client| client.consent = ConsentRequirement::Require)
        .await;
    let subjects: Vec<_> = (0..49).map(|_| Random::system().uuid_v4()).collect();
    let long = scene
        .acme
        .request()
        .with("state", &"s".repeat(4_096))
        .with("nonce", &"n".repeat(1_024))
        .with("login_hint", &"é".repeat(256))
        .with("ui_locales", &"l".repeat(256));
    let mut named: Vec<_> = subjects.iter().map(ToString::to_string).collect();
    named.push(scene.alice.sub());
    let claims = json!({"id_token": {"sub": {"values": named}, "email": null, "name": null}});
    let of_alice = long.clone().with("claims", &claims.to_string());
    let browser = scene.alice.browser();
    let header = |screen: &Screen| screen.path.len() + cookie_bytes(screen.browser()) + FOR_BROWSERS;
    let page = browser.authorize(&of_alice).await;
    assert!((8_000..16_384).contains(&header(&page)), "{}", header(&page));
    let consent = page.sign_in().await;
    assert!(header(&consent) < 16_384);
    let answer = consent.allow().await.callback();
    assert_eq!(answer.get("state").map(str::len), Some(4_096));
    answer.code();

    let browser = scene.server.browser();
    let asked = scene.to_provider(&browser, &long).await;
    let answer = scene.vouch(&asked, &"c".repeat(1_024));
    assert!(answer.len() + cookie_bytes(&browser) + FOR_BROWSERS < 16_384);
    let consent = browser.visit(&answer).await;
    consent.allow().await.callback().code();
}

/// A website can send a browser to the service as often as it wants.
#[tokio::test]
async fn what_a_browser_keeps_for_providers_stays_within_the_header_of_a_request() {
    let scene = with_provider().await;
    let browser = scene.server.browser();
    for state in [10, 4_096].into_iter().cycle().take(20) {
        let request = scene.acme.request().with("state", &"s".repeat(state));
        let asked = scene.to_provider(&browser, &request).await;
        assert!(cookie_bytes(&browser) < 8_000, "{}", cookie_bytes(&browser));
        let answer = scene.vouch(&asked, "c");
        let code = browser.visit(&answer).await.callback().code();
        assert!(!code.is_empty());
        browser.set_cookie(SESSION, "lost");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_ends_no_sign_in() {
    let upstream = Upstream::start().await;
    let service = Service::new().reaching(&upstream);
    let secret = service.folder.path().join("secret");
    std::fs::write(&secret, "the secret at the provider").unwrap();
    let add = [
        "provider",
        "add",
        "up",
        "--issuer",
        &upstream.issuer,
        "--client-id",
        "idsvc",
    ];
    let how = [
        "--create-users",
        "--json",
        "--client-secret-file",
        secret.to_str().unwrap(),
    ];
    service.json(&[&add[..], &how].concat());
    let add = "client add web --redirect-uri https://app.example/cb --provider up --json";
    service.json(&add.split(' ').collect::<Vec<_>>());
    let user = service.json(&[
        "user",
        "add",
        "alice@example.com",
        "--generate-password",
        "--json",
    ]);
    let request = format!(
        "/oauth2/authorize?client_id=web&response_type=code&redirect_uri=https://app.example/cb\
         &code_challenge={CHALLENGE}&code_challenge_method=S256"
    );

    let running = service.serve();
    let begun = running.request("GET", &request, &[], "").unwrap();
    let binding = begun.header("set-cookie").unwrap().split(';').next().unwrap();
    let login = begun.header("location").unwrap().to_owned();
    drop(running);

    let running = service.serve();
    let headers = [("Cookie", binding)];
    let page = running.request("GET", &login, &headers, "").unwrap();
    let start = login.replace("/login?", "/federation/up/start?");
    let asked = running.request("GET", &start, &headers, "").unwrap();
    assert_eq!(asked.status, 303, "{asked:?}");
    drop(running);

    let running = service.serve();
    let form = [
        ("transaction", page.hidden("transaction")),
        ("csrf", page.hidden("csrf")),
        ("username", "alice@example.com".to_owned()),
        ("password", user["password"].as_str().unwrap().to_owned()),
    ];
    let form: Vec<_> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let answer = running.post_form("/login", &headers, &form).unwrap();
    let to_client = answer.header("location").unwrap();
    assert!(
        to_client.starts_with("https://app.example/cb?code="),
        "{answer:?}"
    );

    let kept = asked
        .headers("set-cookie")
        .map(|cookie| cookie.split(';').next().unwrap());
    let cookies: Vec<_> = kept.chain([binding]).collect();
    let back = vouch_at(
        Clock::System.now(),
        &upstream,
        asked.header("location").unwrap(),
        "c",
    );
    let headers = [("Cookie", &*cookies.join("; "))];
    let answer = running.request("GET", &back, &headers, "").unwrap();
    let to_client = answer.header("location").unwrap();
    assert!(
        to_client.starts_with("https://app.example/cb?code="),
        "{answer:?}"
    );
}
