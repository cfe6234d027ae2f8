//! `jwks_uri` of clients (RFC 7591 section 2, RFC 7517): assertions are checked with the keys that the client
//! publishes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idsvc::admin::client;
use idsvc::clock::Timestamp;
use idsvc::jose::jwt;
use idsvc::jose::keyring::SigningKey;
use idsvc::oauth::client::{AuthMethod, Client, GrantType};
use idsvc::random::Random;
use idsvc::store::tables::FAMILIES;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::harness::registration::{Registrant, open};
use crate::harness::server::Setup;
use crate::harness::wire::Call;
use crate::harness::{Audit, ISSUER, RelyingParty, Reply, Say, Server, Upstream, until};

const ANONYMOUS: &str = "urn:service:oauth2:grant-type:anonymous";
const TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const UNREACHABLE: &str = "temporarily_unavailable";
const UNKNOWN: &str = "invalid_client";

/// A client whose keys are on a website of its own.
struct Scene {
    website: Upstream,
    server: Server,
    robot: RelyingParty,
}

fn publishing(jwks_uri: String) -> impl FnOnce(&mut Client) {
    move |client| {
        client.jwks_uri = Some(jwks_uri);
        client.token_endpoint_auth_methods = [AuthMethod::PrivateKeyJwt].into();
        client.secrets.clear();
        client.grant_types = [GrantType::ClientCredentials, GrantType::Anonymous].into();
    }
}

async fn scene() -> Scene {
    let website = Upstream::start().await;
    let server = Server::start_reaching(&website.terms(), |_| {}).await;
    let jwks_uri = format!("{}/jwks", website.issuer);
    let robot = server.client_with("robot", publishing(jwks_uri)).await;
    Scene {
        website,
        server,
        robot,
    }
}

fn assertion(client_id: &str, key: &SigningKey, now: Timestamp) -> String {
    let claims = json!({
        "iss": client_id, "sub": client_id, "aud": ISSUER, "exp": now.seconds() + 60,
        "jti": Random::system().uuid_v4(),
    });
    jwt::sign(key, "JWT", &claims).unwrap()
}

impl Scene {
    fn ask(&self, key: &SigningKey) -> Call {
        self.ask_as("robot", key)
    }

    fn ask_as(&self, client_id: &str, key: &SigningKey) -> Call {
        self.server
            .post("/oauth2/token")
            .with("grant_type", "client_credentials")
            .with("scope", "notes.read")
            .with("client_assertion_type", TYPE)
            .with(
                "client_assertion",
                &assertion(client_id, key, self.server.clock.now()),
            )
    }

    /// What comes of asking after the website has begun to say this.
    async fn with(&self, say: Say) -> Reply {
        self.website.say("/jwks", say);
        self.ask(self.website.key()).await
    }

    /// Asks for a token, and comes back once the keys are being fetched for it.
    async fn ask_and_hold(&self, grant: &str) -> (Arc<Notify>, JoinHandle<Reply>) {
        let held = self.website.hold_keys();
        let call = self.ask(self.website.key()).with("grant_type", grant);
        let reply = tokio::spawn(call.without("scope").into_future());
        until(async || self.fetched() > 0).await;
        (held, reply)
    }

    fn fetched(&self) -> usize {
        self.website.seen("/jwks").len()
    }
}

fn raw(head: &str) -> Say {
    Say::Raw(format!("{head}\r\n\r\n").into_bytes())
}

#[tokio::test]
async fn published_keys_are_fetched_once_and_kept() {
    let scene = scene().await;
    for _ in 0..5 {
        scene.ask(scene.website.key()).await.tokens();
    }
    let many = (0..8).map(|_| tokio::spawn(scene.ask(scene.website.key()).into_future()));
    for reply in many.collect::<Vec<_>>() {
        reply.await.unwrap().tokens();
    }
    assert_eq!(scene.fetched(), 1);
    let introspected = scene
        .server
        .post("/oauth2/introspect")
        .with("client_assertion_type", TYPE)
        .with(
            "client_assertion",
            &assertion("robot", scene.website.key(), scene.server.clock.now()),
        )
        .with("token", "x")
        .await;
    assert_eq!(introspected.json(), json!({"active": false}));
    assert_eq!(scene.fetched(), 1, "wherever the client authenticates");
}

#[tokio::test]
async fn many_who_come_first_at_once_cause_one_request() {
    let scene = scene().await;
    let many = (0..16).map(|_| tokio::spawn(scene.ask(scene.website.key()).into_future()));
    for reply in many.collect::<Vec<_>>() {
        reply.await.unwrap().tokens();
    }
    assert_eq!(scene.fetched(), 1);
}

#[tokio::test]
async fn a_new_key_is_looked_for_at_most_once_a_minute() {
    let scene = scene().await;
    scene.ask(scene.website.key()).await.tokens();
    for _ in 0..10 {
        assert_eq!(scene.ask(scene.website.next_key()).await.error(), UNKNOWN);
    }
    assert_eq!(scene.fetched(), 1, "it was fetched just now");
    scene.website.publish(&[scene.website.next_key()]);
    scene.server.advance(59);
    assert_eq!(scene.ask(scene.website.next_key()).await.error(), UNKNOWN);
    scene.server.advance(1);
    scene.ask(scene.website.next_key()).await.tokens();
    assert_eq!(scene.fetched(), 2);
    assert_eq!(
        scene.ask(scene.website.key()).await.error(),
        UNKNOWN,
        "what is no longer published is no longer believed"
    );
    assert_eq!(scene.fetched(), 2);
}

/// A stranger who names the client causes no more requests than the client does.
#[tokio::test]
async fn strangers_do_not_make_the_service_knock() {
    let scene = scene().await;
    scene.ask(scene.website.key()).await.tokens();
    for _ in 0..5 {
        let stranger = SigningKey::generate_es256(&Random::system()).unwrap();
        assert_eq!(scene.ask(&stranger).await.error(), UNKNOWN);
        scene.server.advance(61);
        scene.ask(&stranger).await.refusal();
        scene.ask(&stranger).await.refusal();
    }
    assert_eq!(
        scene.fetched(),
        6,
        "once a minute, for any key that they sign with"
    );
    scene
        .server
        .change_client(&scene.robot, |client| client.enabled = false)
        .await;
    scene.server.advance(61);
    assert_eq!(scene.ask(scene.website.next_key()).await.error(), UNKNOWN);
    assert_eq!(scene.fetched(), 6, "and never for a client that is disabled");
}

#[tokio::test]
async fn keys_of_another_client_prove_nothing() {
    let scene = scene().await;
    let other = Upstream::start_other().await;
    let jwks_uri = format!("{}/jwks", other.issuer);
    scene.server.client_with("other", publishing(jwks_uri)).await;
    scene.ask_as("other", other.key()).await.tokens();
    assert_eq!(scene.ask_as("robot", other.key()).await.error(), UNKNOWN);
    assert_eq!(scene.ask_as("other", scene.website.key()).await.error(), UNKNOWN);
}

#[tokio::test]
async fn what_cannot_be_fetched_is_said_and_tried_again_after_a_pause() {
    let scene = scene().await;
    for (say, what) in [
        (raw("HTTP/1.1 500 Oops\r\ncontent-length: 0"), "a failure"),
        (raw("HTTP/1.1 404 None\r\ncontent-length: 0"), "nothing"),
        (raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"), "no JSON"),
        (Say::Json(json!([])), "no object"),
        (Say::Json(json!({"keys": {}})), "no list"),
        (Say::Forever, "no end"),
        (
            raw(&format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}",
                50 * 1024 * 1024
            )),
            "far too much",
        ),
    ] {
        assert_eq!(scene.with(say).await.error(), UNREACHABLE, "{what}");
        scene.server.advance(5);
    }
    let before = scene.fetched();
    scene.with(raw("HTTP/1.1 500 Oops\r\ncontent-length: 0")).await;
    for _ in 0..10 {
        assert_eq!(scene.ask(scene.website.key()).await.error(), UNREACHABLE);
    }
    assert_eq!(
        scene.fetched(),
        before + 1,
        "a website that is down is left in peace"
    );
    scene.website.publish(&[scene.website.key()]);
    scene.server.advance(5);
    scene.ask(scene.website.key()).await.tokens();
}

/// An attacker who knows a client's name can trigger fetches of its keys at any time.
#[tokio::test]
async fn keys_that_cannot_be_had_are_warned_of_once_for_each_attempt_to_fetch_them() {
    let audit = Audit::listen();
    let scene = scene().await;
    scene
        .website
        .say("/jwks", raw("HTTP/1.1 500 Oops\r\ncontent-length: 0"));
    for _ in 0..2 {
        for _ in 0..10 {
            assert_eq!(scene.ask(scene.website.key()).await.error(), UNREACHABLE);
        }
        let told = audit.warnings_of("answers with status 500");
        assert_eq!(told, 1);
        scene.server.advance(5);
    }
}

#[tokio::test]
async fn a_set_without_a_usable_key_opens_nothing() {
    let scene = scene().await;
    let symmetric = json!({"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"});
    for keys in [json!([]), json!([symmetric]), json!([7]), json!([{"kty": "RSA"}])] {
        let refusal = scene.with(Say::Json(json!({ "keys": keys }))).await.refusal();
        assert!(refusal.starts_with("401 invalid_client: "), "{keys}: {refusal}");
        scene.server.advance(3600);
    }
}

#[tokio::test]
async fn keys_that_are_known_outlast_a_website_that_is_down() {
    let scene = scene().await;
    scene.ask(scene.website.key()).await.tokens();
    scene
        .website
        .say("/jwks", raw("HTTP/1.1 500 Oops\r\ncontent-length: 0"));
    scene.server.advance(2 * 3600);
    scene.ask(scene.website.key()).await.tokens();
    scene.server.advance(48 * 3600);
    assert_eq!(scene.ask(scene.website.key()).await.error(), UNREACHABLE);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let scene = scene().await;
    let inside = Upstream::start_other().await;
    let head = format!(
        "HTTP/1.1 302 Found\r\nlocation: {}/jwks\r\ncontent-length: 0",
        inside.issuer
    );
    assert_eq!(scene.with(raw(&head)).await.error(), UNREACHABLE);
    assert!(inside.seen("/jwks").is_empty());
}

#[tokio::test]
async fn an_address_inside_is_not_asked() {
    let website = Upstream::start().await;
    let terms = idsvc::net::outbound::OutboundPolicy {
        allow: Vec::new(),
        ..website.terms()
    };
    let server = Server::start_reaching(&terms, |_| {}).await;
    let jwks_uri = format!("{}/jwks", website.issuer);
    let robot = server.client_with("robot", publishing(jwks_uri)).await;
    let scene = Scene {
        website,
        server,
        robot,
    };
    assert_eq!(scene.ask(scene.website.key()).await.error(), UNREACHABLE);
    assert_eq!(scene.fetched(), 0);
}

/// A website that does not answer holds its own client up for ten seconds, and nobody else.
#[tokio::test]
async fn a_silent_website_delays_nobody_else() {
    let scene = scene().await;
    scene.website.say("/jwks", Say::Nothing);
    let waiting = tokio::spawn(scene.ask(scene.website.key()).into_future());
    while scene.fetched() == 0 {
        tokio::task::yield_now().await;
    }
    let begun = Instant::now();
    let other = Upstream::start_other().await;
    let own = SigningKey::generate_es256(&Random::system()).unwrap();
    let jwk = own.public().to_jwk();
    scene
        .server
        .client_with("other", |client| {
            publishing(String::new())(client);
            client.jwks_uri = None;
            client.jwks = vec![jwk];
        })
        .await;
    scene.ask_as("other", &own).await.tokens();
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(other);
    assert_eq!(waiting.await.unwrap().error(), UNREACHABLE);
    let waited = begun.elapsed().as_secs();
    assert!((8..20).contains(&waited), "{waited} s");
}

/// Who has its keys fetched chooses how long that takes: what counts is the client as it is afterwards.
#[tokio::test]
async fn a_client_that_goes_while_its_keys_are_fetched_gets_nothing() {
    for grant in ["client_credentials", ANONYMOUS] {
        let scene = scene().await;
        let (held, reply) = scene.ask_and_hold(grant).await;
        let off = |client: &mut Client| client.enabled = false;
        scene.server.change_client(&scene.robot, off).await;
        held.notify_one();
        assert_eq!(reply.await.unwrap().error(), UNKNOWN, "{grant}");
    }
    let scene = scene().await;
    let (held, reply) = scene.ask_and_hold(ANONYMOUS).await;
    scene
        .server
        .admin()
        .call(client::RemoveClient {
            client_id: "robot".to_owned(),
        })
        .await
        .unwrap();
    let jwks_uri = format!("{}/jwks", scene.website.issuer);
    scene.server.client_with("robot", publishing(jwks_uri)).await;
    held.notify_one();
    assert_eq!(
        reply.await.unwrap().error(),
        UNKNOWN,
        "a namesake is another client"
    );
    let store = &scene.server.app.core.store;
    let begun = store
        .read_blocking(|snapshot| FAMILIES.scan(snapshot, .., usize::MAX))
        .unwrap();
    assert!(begun.is_empty());
}

#[tokio::test]
async fn what_a_client_may_and_how_it_proves_who_it_is_counts_as_it_is_once_its_keys_are_there() {
    type Change = fn(&mut Client);
    let changes: [(Change, &str); 5] = [
        (
            |client| client.jwks_uri = Some("https://robot.example/jwks".to_owned()),
            UNKNOWN,
        ),
        (
            |client| {
                let other = SigningKey::generate_es256(&Random::system()).unwrap();
                client.jwks_uri = None;
                client.jwks = vec![other.public().to_jwk()];
            },
            UNKNOWN,
        ),
        (
            |client| client.token_endpoint_auth_methods = [AuthMethod::ClientSecretBasic].into(),
            "invalid_client",
        ),
        (
            |client| client.grant_types = [GrantType::Anonymous].into(),
            "unauthorized_client",
        ),
        (|client| client.client_name = Some("Robot".to_owned()), ""),
    ];
    for (change, error) in changes {
        let scene = scene().await;
        let (held, reply) = scene.ask_and_hold("client_credentials").await;
        scene.server.change_client(&scene.robot, change).await;
        held.notify_one();
        let reply = reply.await.unwrap();
        if error.is_empty() {
            reply.tokens();
        } else {
            assert_eq!(reply.error(), error);
        }
    }
}

/// The metadata of a client that registers itself, with keys at this address.
fn registration(jwks_uri: &str) -> Value {
    json!({
        "redirect_uris": ["https://notes.example/cb"],
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks_uri": jwks_uri,
    })
}

fn introspect(server: &Server, client: &Registrant, key: &SigningKey) -> Call {
    let assertion = assertion(client.party.client_id(), key, server.clock.now());
    let call = server.post("/oauth2/introspect").with("token", "x");
    call.with("client_assertion_type", TYPE)
        .with("client_assertion", &assertion)
}

/// Otherwise strangers who register clients could fill the memory, and delay the renewal of the keys of providers.
#[tokio::test]
async fn keys_of_a_client_that_registered_itself_are_short_and_fetched_for_its_requests_only() {
    let website = Upstream::start().await;
    let server = Server::start_reaching(&website.terms(), |policy| policy.registration = open(100)).await;
    let jwks_uri = format!("{}/jwks", website.issuer);
    let client = server.registrant(&registration(&jwks_uri)).await;
    let fetched = || website.seen("/jwks").len();
    for _ in 0..2 {
        let reply = introspect(&server, &client, website.key()).await;
        assert_eq!(reply.json(), json!({ "active": false }));
    }
    assert_eq!(fetched(), 1);
    website.publish(&[website.next_key()]);
    server.advance(60);
    let reply = introspect(&server, &client, website.next_key()).await;
    assert_eq!(reply.json(), json!({ "active": false }));
    assert_eq!(fetched(), 2, "a new key is looked for");
    server.advance(3600);
    let core = &server.app.core;
    let jwks_uris = core.catalog().jwks_uris();
    core.upstreams.refresh(&[], &jwks_uris, core.clock.now()).await;
    assert_eq!(fetched(), 2, "nothing is fetched in the background");
    let long = json!({ "keys": [], "padding": " ".repeat(16 * 1024) });
    website.say("/jwks", Say::Json(long));
    let reply = introspect(&server, &client, website.next_key()).await;
    assert_eq!(reply.error(), UNREACHABLE);
    assert_eq!(fetched(), 3);
}

#[tokio::test]
async fn an_address_that_has_keys_of_many_registered_clients_fetched_is_429_and_others_are_not() {
    let website = Upstream::start().await;
    let mut setup = Setup {
        trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
        outbound: website.terms(),
        ..Setup::default()
    };
    setup.policy.registration = open(100);
    let server = setup.start().await;
    let mut clients = Vec::new();
    for number in 0..31 {
        let jwks_uri = format!("{}/keys/{number}", website.issuer);
        clients.push(server.registrant(&registration(&jwks_uri)).await);
        server.advance(300);
    }
    let ask = |client, from| introspect(&server, client, website.key()).header("x-forwarded-for", from);
    let (last, others) = clients.split_last().unwrap();
    for client in others {
        assert_eq!(ask(client, "192.0.2.1").await.error(), UNREACHABLE);
        assert_eq!(
            ask(client, "192.0.2.1").await.status,
            503,
            "no request is sent or charged"
        );
    }
    let over = ask(last, "192.0.2.1").await;
    assert_eq!(over.status, 429);
    assert!(over.header("retry-after").is_some());
    assert!(website.seen("/keys/30").is_empty());
    assert_eq!(ask(last, "198.51.100.7").await.status, 503);
    assert_eq!(website.seen("/keys/30").len(), 1);
}
