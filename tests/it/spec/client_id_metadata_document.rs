//! OAuth Client ID Metadata Document (draft-ietf-oauth-client-id-metadata-document): a client is known by the address of
//! its metadata.

use std::time::{Duration, Instant};

use idsvc::admin::api;
use idsvc::admin::client;
use idsvc::jose::jwt;
use idsvc::jose::keyring::SigningKey;
use idsvc::net::outbound::OutboundPolicy;
use idsvc::oauth::ApiFields;
use idsvc::oauth::authorize::UntrustedRedirect;
use idsvc::oauth::client::{Client, ClientOrigin, GrantType};
use idsvc::oauth::policy::Policy;
use idsvc::pages::text::EN;
use idsvc::random::Random;
use idsvc::store::tables::{CLIENTS, CONSENTS};
use serde_json::{Value, json};

use crate::harness::wire::Call;
use crate::harness::{
    Audit, AuthorizationRequest, ISSUER, Person, RelyingParty, Say, Server, Upstream, sweep_all, until,
};

const CALLBACK: &str = "https://app.example/cb";
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A client with a document on a website of its own, and a user.
struct Scene {
    website: Upstream,
    server: Server,
    alice: Person,
    app: RelyingParty,
}

impl Scene {
    async fn start() -> Self {
        Self::start_reaching(|_| {}).await
    }

    async fn start_reaching(change: impl FnOnce(&mut OutboundPolicy)) -> Self {
        Self::start_with(change, |_| {}).await
    }

    async fn start_with(
        change: impl FnOnce(&mut OutboundPolicy),
        change_policy: impl FnOnce(&mut Policy),
    ) -> Self {
        let website = Upstream::start().await;
        let mut terms = website.terms();
        change(&mut terms);
        let server = Server::start_reaching(&terms, |policy| {
            policy.metadata_documents = true;
            change_policy(policy);
        })
        .await;
        let alice = server.user("alice").await;
        let app = server.unregistered(&format!("{}/client", website.issuer), CALLBACK);
        let scene = Self {
            website,
            server,
            alice,
            app,
        };
        scene.publish(&json!({}));
        scene
    }

    fn document(&self) -> Value {
        json!({
            "client_id": self.app.client_id(),
            "client_name": "Notes <App>",
            "redirect_uris": [CALLBACK],
            "grant_types": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_method": "none",
        })
    }

    /// Publishes the usual document with other members.
    fn publish(&self, members: &Value) {
        let mut document = self.document();
        for (name, value) in members.as_object().unwrap() {
            document[name] = value.clone();
        }
        self.website.say("/client", Say::Json(document));
    }

    /// Publishes a body with header fields.
    fn publish_as(&self, head: &str, body: &str) {
        let length = body.len();
        let answer = format!("HTTP/1.1 200 OK\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        self.website.say("/client", Say::Raw(answer.into_bytes()));
    }

    fn fetched(&self) -> usize {
        self.website.seen("/client").len()
    }

    /// What the service answers to the authorization request of a client with this identifier.
    async fn page_for(&self, client_id: &str) -> String {
        let request = self.app.request().with("client_id", client_id);
        self.server.browser().authorize(&request).await.error_page()
    }

    fn stored(&self) -> Option<Client> {
        let store = &self.server.app.core.store;
        store
            .read_blocking(|snapshot| CLIENTS.get(snapshot, self.app.client_id()))
            .unwrap()
    }

    fn post_signed(&self, grant: &str, key: &SigningKey) -> Call {
        self.signed("/oauth2/token", key).with("grant_type", grant)
    }

    fn signed(&self, path: &str, key: &SigningKey) -> Call {
        let claims = json!({
            "iss": self.app.client_id(), "sub": self.app.client_id(), "aud": ISSUER,
            "exp": self.server.clock.now().seconds() + 60, "jti": Random::system().uuid_v4(),
        });
        self.server
            .post(path)
            .with("client_assertion_type", ASSERTION_TYPE)
            .with("client_assertion", &jwt::sign(key, "JWT", &claims).unwrap())
    }
}

fn unknown_client() -> String {
    format!("400 {}", UntrustedRedirect::UnknownClient)
}

fn members_with_key(key: &SigningKey) -> Value {
    json!({
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": { "keys": [key.public().to_jwk()] },
    })
}

#[tokio::test]
async fn a_client_that_nobody_registered_gets_tokens_once_a_person_has_allowed_it() {
    let audit = Audit::listen();
    let scene = Scene::start().await;
    let metadata = scene.server.get("/.well-known/openid-configuration").await.json();
    assert_eq!(metadata["client_id_metadata_document_supported"], true);
    let browser = scene.alice.browser();
    let page = browser.authorize(&scene.app.request()).await.sign_in().await;
    assert_eq!(page.page(), "/consent");
    assert_eq!(scene.stored(), None, "a request writes nothing");
    let name = |text: &str, host: &str| text.replace("{}", &format!("<bdi class=\"name\">{host}</bdi>"));
    for shown in [
        "Notes &lt;App&gt;".to_owned(),
        name(EN.consent_document, "localhost"),
        name(EN.consent_host, "app.example"),
    ] {
        assert!(page.text().contains(&shown), "{shown}");
    }
    let code = page.allow().await.callback().code();
    let stored = scene.stored().unwrap();
    assert_eq!(stored.origin, ClientOrigin::MetadataDocument);
    let events = audit.take(&["client_document_stored"]);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["client_id"], scene.app.client_id());
    let tokens = scene.app.redeem(&code).await.tokens();
    assert_eq!(tokens.id().claims["aud"], scene.app.client_id());
    scene.app.refresh(tokens.refresh_token()).await.tokens();
    assert!(scene.app.is_welcome(&tokens).await);
    let again = browser.authorize(&scene.app.request()).await.callback();
    scene.app.redeem(&again.code()).await.tokens();
    assert_eq!(scene.fetched(), 1);
    assert_eq!(scene.stored(), Some(stored), "nothing has changed");
}

#[tokio::test]
async fn without_the_setting_the_address_is_an_unknown_client_and_is_not_fetched() {
    let website = Upstream::start().await;
    let server = Server::start_reaching(&website.terms(), |_| {}).await;
    let metadata = server.get("/.well-known/openid-configuration").await.json();
    assert_eq!(metadata.get("client_id_metadata_document_supported"), None);
    let app = server.unregistered(&format!("{}/client", website.issuer), CALLBACK);
    let page = server.browser().authorize(&app.request()).await;
    assert_eq!(page.error_page(), unknown_client());
    assert!(website.seen("/client").is_empty());
}

#[tokio::test]
async fn without_the_setting_a_stored_client_authenticates_by_its_record() {
    let website = Upstream::start().await;
    let server = Server::start_reaching(&website.terms(), |_| {}).await;
    let as_stored = |client: &mut Client| client.origin = ClientOrigin::MetadataDocument;
    let id = format!("{}/client", website.issuer);
    let app = server.client_with(&id, as_stored).await;
    assert_eq!(app.refresh("x").await.error(), "invalid_grant");
    assert!(website.seen("/client").is_empty());
}

#[tokio::test]
async fn other_ways_to_write_the_address_are_unknown_clients_and_are_not_fetched() {
    let scene = Scene::start().await;
    let origin = &scene.website.issuer;
    let port = origin.rsplit(':').next().unwrap();
    for client_id in [
        format!("{origin}/client#top"),
        format!("https://user@localhost:{port}/client"),
        format!("https://user:pass@localhost:{port}/client"),
        format!("{origin}/./client"),
        format!("{origin}/x/../client"),
        format!("{origin}/x/%2e%2e/client"),
        format!("https://LOCALHOST:{port}/client"),
        format!("https://localhost.:{port}/client"),
        format!("https://127.0.0.1:{port}/client"),
        format!("https://[::1]:{port}/client"),
        format!("http://localhost:{port}/client"),
        format!("{origin}/"),
        origin.clone(),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "https://\u{430}pp.example/client".to_owned(),
    ] {
        assert_eq!(scene.page_for(&client_id).await, unknown_client(), "{client_id}");
    }
    assert_eq!(scene.fetched(), 0);
    assert!(scene.website.seen("/").is_empty());
}

/// Section "Server Side Request Forgery (SSRF) Attacks".
#[tokio::test]
async fn a_host_that_is_not_on_the_public_internet_is_not_reached() {
    let audit = Audit::listen();
    let scene = Scene::start_reaching(|terms| terms.allow.clear()).await;
    assert_eq!(scene.page_for(scene.app.client_id()).await, unknown_client());
    assert_eq!(scene.fetched(), 0);
    let refusals = audit.refusals();
    let [refusal] = refusals.as_slice() else {
        panic!("{refusals:?}")
    };
    let problem = refusal["client_document"].as_str().unwrap();
    assert!(problem.contains("is not on the public internet"), "{problem}");
}

/// The page says only that the client is unknown. The log says what the developer of the client must correct.
#[tokio::test]
async fn what_is_wrong_with_a_document_is_logged_and_not_shown() {
    let audit = Audit::listen();
    let scene = Scene::start().await;
    let json_type = "content-type: application/json";
    let body = scene.document().to_string();
    let long = format!("{body}{}", " ".repeat(16 * 1024));
    let other = |members: Value| {
        let mut document = scene.document();
        for (name, value) in members.as_object().unwrap() {
            document[name] = value.clone();
        }
        document.to_string()
    };
    let elsewhere = format!("location: {}/other\r\n{json_type}", scene.website.issuer);
    for (status, head, body, problem) in [
        (
            "404 Not Found",
            json_type,
            body.as_str(),
            "answers with status 404",
        ),
        ("204 No Content", json_type, "", "answers with status 204"),
        ("302 Found", &elsewhere, "", "answers with a redirect"),
        ("200 OK", json_type, &long, "is longer than 16 KiB"),
        (
            "200 OK",
            "content-type: text/html",
            &body,
            "is not served as application/json",
        ),
        ("200 OK", json_type, "[]", "must be one JSON object"),
        (
            "200 OK",
            json_type,
            &other(json!({ "client_id": "https://app.example/client" })),
            "its client_id is not the address",
        ),
        (
            "200 OK",
            json_type,
            &other(json!({ "client_secret": "x" })),
            "it has client_secret",
        ),
        (
            "200 OK",
            json_type,
            &other(json!({ "token_endpoint_auth_method": "client_secret_basic" })),
            "its token_endpoint_auth_method is client_secret_basic",
        ),
        (
            "200 OK",
            json_type,
            &other(json!({ "redirect_uris": [] })),
            "needs a redirect URI",
        ),
        (
            "200 OK",
            json_type,
            &other(json!({ "redirect_uris": ["http://app.example/cb"] })),
            "a redirect URI uses https",
        ),
    ] {
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        scene.website.say("/client", Say::Raw(answer.into_bytes()));
        scene.server.advance(60);
        assert_eq!(
            scene.page_for(scene.app.client_id()).await,
            unknown_client(),
            "{problem}"
        );
        let refusals = audit.refusals();
        let [refusal] = refusals.as_slice() else {
            panic!("{refusals:?}")
        };
        assert_eq!(refusal["reason"], "client_document");
        let logged = refusal["client_document"].as_str().unwrap();
        assert!(logged.contains(problem), "{logged}");
    }
    assert!(scene.website.seen("/other").is_empty(), "no redirect is followed");
    let roomy = format!("{body}{}", " ".repeat(16 * 1024 - body.len()));
    scene.publish_as("content-type: application/oauth-client+json", &roomy);
    scene.server.advance(60);
    let page = scene.alice.browser().authorize(&scene.app.request()).await;
    assert_eq!(page.page(), "/login");
}

#[tokio::test]
async fn a_host_that_is_down_or_silent_delays_no_other_client() {
    let scene = Scene::start().await;
    let down = Upstream::start_other().await;
    let gone = format!("{}/client", down.issuer);
    drop(down);
    assert_eq!(scene.page_for(&gone).await, unknown_client());
    scene.website.say("/silent", Say::Nothing);
    let silent = format!("{}/silent", scene.website.issuer);
    let browser = scene.server.browser();
    let request = scene.app.request().with("client_id", &silent);
    let waiting = tokio::spawn(async move { browser.authorize(&request).await.error_page() });
    until(async || !scene.website.seen("/silent").is_empty()).await;
    let begun = Instant::now();
    scene.app.tokens(&scene.alice.browser()).await;
    assert!(begun.elapsed() < Duration::from_secs(8));
    assert_eq!(waiting.await.unwrap(), unknown_client());
}

#[tokio::test]
async fn many_requests_at_once_fetch_a_document_once() {
    let scene = Scene::start().await;
    let held = scene.website.hold("/client");
    let many: Vec<_> = (0..16)
        .map(|_| {
            let (browser, request) = (scene.server.browser(), scene.app.request());
            tokio::spawn(async move { browser.authorize(&request).await.page().to_owned() })
        })
        .collect();
    until(async || scene.fetched() > 0).await;
    held.notify_one();
    for page in many {
        assert_eq!(page.await.unwrap(), "/login");
    }
    assert_eq!(scene.fetched(), 1);
}

/// Section "Metadata Caching".
#[tokio::test]
async fn a_document_is_kept_for_as_long_as_its_host_says_between_five_minutes_and_a_day() {
    let body = Scene::start().await.document().to_string();
    for (header, kept, fetched_again) in [
        ("cache-control: no-store", 269, 300),
        ("cache-control: max-age=1", 269, 300),
        ("cache-control: max-age=7200", 6479, 7200),
        ("cache-control: max-age=31536000", 77_759, 86_400),
    ] {
        let scene = Scene::start().await;
        let body = body.replace(
            serde_json::from_str::<Value>(&body).unwrap()["client_id"]
                .as_str()
                .unwrap(),
            scene.app.client_id(),
        );
        scene.publish_as(&format!("content-type: application/json\r\n{header}"), &body);
        for (wait, fetched) in [(0, 1), (kept, 1), (fetched_again - kept, 2)] {
            scene.server.advance(wait);
            let page = scene.server.browser().authorize(&scene.app.request()).await;
            assert_eq!(page.page(), "/login");
            assert_eq!(scene.fetched(), fetched, "{header} after {wait} s");
        }
    }
}

#[tokio::test]
async fn a_document_that_cannot_be_used_is_asked_for_again_after_a_pause() {
    for wrong in [
        Say::Raw(b"HTTP/1.1 404 None\r\ncontent-length: 0\r\n\r\n".into()),
        Say::Json(json!({})),
    ] {
        let scene = Scene::start().await;
        scene.website.say("/client", wrong);
        for _ in 0..5 {
            assert_eq!(scene.page_for(scene.app.client_id()).await, unknown_client());
        }
        assert_eq!(scene.fetched(), 1);
        scene.publish(&json!({ "redirect_uris": ["http://app.example/cb"] }));
        scene.server.advance(5);
        for _ in 0..5 {
            assert_eq!(scene.page_for(scene.app.client_id()).await, unknown_client());
        }
        assert_eq!(scene.fetched(), 2);
        scene.publish(&json!({}));
        scene.server.advance(5);
        scene.app.tokens(&scene.alice.browser()).await;
    }
}

/// Anyone can name addresses, so the service must not flood other hosts with requests.
#[tokio::test]
async fn one_address_causes_a_limited_number_of_fetches_and_known_clients_are_not_held_up() {
    let scene = Scene::start().await;
    scene.app.tokens(&scene.alice.browser()).await;
    let fetched = || {
        (0..50)
            .filter(|n| !scene.website.seen(&format!("/n{n}")).is_empty())
            .count()
    };
    let mut limited = 0;
    for n in 0..50 {
        let client_id = format!("{}/n{n}", scene.website.issuer);
        let request = scene.app.request().with("client_id", &client_id);
        match scene.server.browser().authorize(&request).await.status {
            400 => {}
            429 => limited += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((fetched(), limited), (29, 21));
    scene.server.advance(9);
    let before = scene.fetched();
    scene.app.tokens(&scene.alice.browser()).await;
    assert_eq!(scene.fetched(), before);
}

/// A fetch from a silent host lasts long, and few go on at once.
#[tokio::test]
async fn pages_of_a_sign_in_and_clients_without_a_document_cause_a_limited_number_of_fetches() {
    let scene = Scene::start().await;
    let browser = scene.server.browser();
    let page = browser.authorize(&scene.app.request()).await;
    assert_eq!(page.page(), "/login");
    let form = page.login_form();
    let login = format!("/login?transaction={}", form.value("transaction").unwrap());
    let stored = format!("{}/stored", scene.website.issuer);
    let mut document = scene.document();
    document["client_id"] = json!(stored);
    scene.website.say("/stored", Say::Json(document));
    let stored = scene.server.unregistered(&stored, CALLBACK);
    stored.tokens(&scene.alice.browser()).await;
    let gone = || Say::Raw(b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n".into());
    scene.website.say("/client", gone());
    scene.website.say("/stored", gone());
    scene.server.advance(300);
    let fetched = || (scene.fetched(), scene.website.seen("/stored").len());
    let before = fetched();
    for n in 0..30 {
        scene.page_for(&format!("{}/n{n}", scene.website.issuer)).await;
    }
    assert_eq!(browser.fetch(&login).await.status, 429);
    let asked = async || scene.server.browser().authorize(&stored.request()).await.status;
    assert_eq!(asked().await, 400, "its document was there so far");
    scene.server.advance(5);
    assert_eq!(asked().await, 429);
    assert_eq!(stored.redeem("x").await.error(), "invalid_grant");
    assert_eq!(fetched(), (before.0, before.1 + 1));
}

/// RFC 9126: nothing is stored of the client yet, so its document says who it is.
#[tokio::test]
async fn a_client_that_nobody_registered_can_push_its_first_request() {
    let scene = Scene::start().await;
    let parameters = scene.app.request().without("client_id").parameters;
    for key in [None, Some(scene.website.key())] {
        if let Some(key) = key {
            scene.publish(&members_with_key(key));
            scene.server.advance(300);
        }
        let unproven = scene.app.post("/oauth2/par").fields(&parameters);
        let pushed = match key {
            None => unproven.await,
            Some(key) => {
                assert_eq!(unproven.await.error(), "invalid_client");
                scene.signed("/oauth2/par", key).fields(&parameters).await
            }
        };
        assert_eq!(pushed.status, 201, "{}", pushed.text());
        let request = AuthorizationRequest::default()
            .with("client_id", scene.app.client_id())
            .with("request_uri", pushed.json()["request_uri"].as_str().unwrap());
        let page = scene.alice.browser().authorize(&request).await.sign_in().await;
        let callback = page.follow().await;
        assert!(callback.status < 400, "{}", callback.text());
    }
    let unknown = scene
        .server
        .unregistered("https://nobody.example/client", CALLBACK);
    let refused = unknown.post("/oauth2/par").fields(&parameters).await;
    assert_eq!(
        (refused.status, refused.error()),
        (401, "invalid_client".to_owned())
    );
}

#[tokio::test]
async fn a_redirect_uri_that_the_document_does_not_list_is_refused() {
    let scene = Scene::start().await;
    let request = scene
        .app
        .request()
        .with("redirect_uri", "https://evil.example/cb");
    let page = scene.server.browser().authorize(&request).await;
    assert_eq!(
        page.error_page(),
        "400 redirect_uri is not registered for this client"
    );
}

/// RFC 8252 section 7.3: a native application learns its port when it starts.
#[tokio::test]
async fn a_native_application_comes_back_at_any_port_of_the_device() {
    let scene = Scene::start().await;
    scene.publish(&json!({ "redirect_uris": ["http://127.0.0.1/cb", "http://localhost/cb"] }));
    let request = scene
        .app
        .request()
        .with("redirect_uri", "http://127.0.0.1:51234/cb");
    let page = scene.alice.browser().authorize(&request).await.sign_in().await;
    assert!(page.text().contains(EN.consent_device));
    let callback = page.allow().await.callback();
    assert_eq!(callback.uri, "http://127.0.0.1:51234/cb");
}

#[tokio::test]
async fn only_apis_that_are_open_can_be_reached() {
    let scene = Scene::start().await;
    for (id, open) in [("notes", true), ("mail", false)] {
        let fields = ApiFields {
            scope: Some(vec![format!("{id}.all")]),
            open: Some(open),
            ..ApiFields::default()
        };
        let request = api::AddApi {
            id: id.to_owned(),
            identifier: format!("https://api.example/{id}"),
            fields,
        };
        scene.server.admin().call(request).await.unwrap();
    }
    let browser = scene.alice.browser();
    let asked = scene.app.request().with("scope", "openid notes.all mail.all");
    let tokens = scene.app.tokens_for(&browser, &asked).await;
    assert_eq!(tokens.0["scope"], "openid notes.all authenticated");
    let closed = asked.with("resource", "https://api.example/mail");
    let refused = browser.authorize(&closed).await.callback();
    assert_eq!(refused.error(), "invalid_target");
    let open = scene
        .app
        .request()
        .without("scope")
        .with("resource", "https://api.example/notes");
    let tokens = scene.app.tokens_for(&browser, &open).await;
    assert_eq!(tokens.0["scope"], "openid notes.all authenticated");
}

/// Section "Changes in Client Metadata".
#[tokio::test]
async fn a_code_for_a_redirect_uri_that_has_left_the_document_is_refused() {
    let scene = Scene::start().await;
    let browser = scene.alice.browser();
    scene.app.tokens(&browser).await;
    scene.server.advance(260);
    let code = browser.authorize(&scene.app.request()).await.callback().code();
    scene.publish(&json!({ "redirect_uris": ["https://other.example/cb"] }));
    scene.server.advance(50);
    assert_eq!(scene.app.redeem(&code).await.error(), "invalid_grant");
    assert_eq!(scene.fetched(), 2);
}

/// Otherwise the next owner of the document's host would silently get codes of all its users.
#[tokio::test]
async fn users_are_asked_again_once_the_document_names_another_host_to_go_back_to() {
    let scene = Scene::start().await;
    let browser = scene.alice.browser();
    let all = scene.app.request().with("scope", "openid email");
    let tokens = scene.app.tokens_for(&browser, &all).await;
    scene.publish(&json!({
        "redirect_uris": [CALLBACK, "https://app.example/other", "http://127.0.0.1/cb"],
    }));
    scene.server.advance(300);
    browser.authorize(&all).await.callback().code();
    scene.publish(&json!({ "redirect_uris": [CALLBACK, "https://other.example/cb"] }));
    scene.server.advance(300);
    scene.app.refresh(tokens.refresh_token()).await.tokens();
    let less = scene
        .app
        .request()
        .with("redirect_uri", "https://other.example/cb");
    let page = browser.authorize(&less.clone().with("scope", "openid")).await;
    assert_eq!(page.page(), "/consent");
    page.allow().await.callback().code();
    scene.server.advance(300);
    browser
        .authorize(&less.with("scope", "openid"))
        .await
        .callback()
        .code();
    let page = browser.authorize(&all).await;
    assert_eq!(page.page(), "/consent", "what was allowed before is forgotten");
}

/// Section "Changes in Client Keys".
#[tokio::test]
async fn the_keys_of_the_document_count_as_they_are_now() {
    let scene = Scene::start().await;
    let (old, new) = (scene.website.key(), scene.website.next_key());
    scene.publish(&members_with_key(old));
    let page = scene
        .alice
        .browser()
        .authorize(&scene.app.request())
        .await
        .sign_in()
        .await;
    let code = page.allow().await.callback().code();
    let redeem = |key| {
        scene
            .post_signed("authorization_code", key)
            .with("code", &code)
            .with("redirect_uri", CALLBACK)
            .with("code_verifier", crate::harness::relying_party::VERIFIER)
    };
    let unsigned = scene.app.redeem(&code).await;
    assert_eq!(
        unsigned.error(),
        "invalid_client",
        "a client with a key must use it"
    );
    assert_eq!(redeem(new).await.error(), "invalid_client");
    let tokens = redeem(old).await.tokens();
    scene.publish(&members_with_key(new));
    scene.server.advance(300);
    let refresh = |key| {
        let call = scene.post_signed("refresh_token", key);
        call.with("refresh_token", tokens.refresh_token())
    };
    assert_eq!(refresh(old).await.error(), "invalid_client");
    refresh(new).await.tokens();
    let jwks_uri = format!("{}/jwks", scene.website.issuer);
    scene.publish(&json!({ "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": jwks_uri }));
    scene.server.advance(300);
    assert_eq!(
        refresh(new).await.error(),
        "invalid_client",
        "the keys of before are gone"
    );
}

/// The keys of the record may be revoked, so they do not count because there is no room for the new ones.
#[tokio::test]
async fn a_client_whose_document_has_grown_without_room_for_it_is_refused_until_it_fits() {
    let scene = Scene::start_with(|_| {}, |policy| policy.registration.room = 6144).await;
    let (old, new) = (scene.website.key(), scene.website.next_key());
    scene.publish(&members_with_key(old));
    let page = scene
        .alice
        .browser()
        .authorize(&scene.app.request())
        .await
        .sign_in()
        .await;
    let code = page.allow().await.callback().code();
    let redeem = scene
        .post_signed("authorization_code", old)
        .with("code", &code)
        .with("redirect_uri", CALLBACK)
        .with("code_verifier", crate::harness::relying_party::VERIFIER);
    let tokens = redeem.await.tokens();
    let mut members = members_with_key(new);
    let uris = ["p", "q"].map(|name| format!("https://app.example/{}", name.repeat(1900)));
    members["post_logout_redirect_uris"] = json!(uris);
    scene.publish(&members);
    scene.server.advance(300);
    let refresh = |key| {
        let call = scene.post_signed("refresh_token", key);
        call.with("refresh_token", tokens.refresh_token())
    };
    for key in [old, new] {
        let refused = refresh(key).await;
        assert_eq!(
            (refused.status, &*refused.error()),
            (503, "temporarily_unavailable")
        );
    }
    let pushed = scene.signed("/oauth2/par", old).await;
    assert_eq!(
        (pushed.status, &*pushed.error()),
        (503, "temporarily_unavailable")
    );
    scene.page_for(scene.app.client_id()).await;
    scene.publish(&members_with_key(new));
    scene.server.advance(300);
    assert_eq!(refresh(old).await.error(), "invalid_client");
    refresh(new).await.tokens();
}

#[tokio::test]
async fn a_client_that_makes_room_for_another_document_is_recorded() {
    let scene = Scene::start_with(|_| {}, |policy| policy.registration.most_clients = 1).await;
    scene.app.code(&scene.alice.browser()).await;
    let other_id = format!("{}/other", scene.website.issuer);
    let mut document = scene.document();
    document["client_id"] = json!(other_id);
    scene.website.say("/other", Say::Json(document));
    let other = scene.server.unregistered(&other_id, CALLBACK);
    let bob = scene.server.user("bob").await;
    let audit = Audit::listen();
    other.code(&bob.browser()).await;
    let removed = audit.take(&["client_registration_removed"]);
    let expected = json!({
        "event": "client_registration_removed", "client_id": scene.app.client_id(), "name": "Notes <App>", "reason": "replaced",
    });
    assert_eq!(removed, [expected]);
    assert_eq!(scene.stored(), None);
}

#[tokio::test]
async fn if_the_document_is_gone_new_requests_are_refused_and_refreshes_go_on() {
    let scene = Scene::start().await;
    let browser = scene.alice.browser();
    let tokens = scene.app.tokens(&browser).await;
    let gone = b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n";
    scene.website.say("/client", Say::Raw(gone.into()));
    scene.server.advance(300);
    let page = browser.authorize(&scene.app.request()).await;
    assert_eq!(page.error_page(), unknown_client());
    scene.app.refresh(tokens.refresh_token()).await.tokens();
}

#[tokio::test]
async fn the_operator_can_disable_such_a_client_and_remove_it() {
    let scene = Scene::start().await;
    let browser = scene.alice.browser();
    let tokens = scene.app.tokens(&browser).await;
    let client_id = scene.app.client_id().to_owned();
    let (disabled, enabled) = (client_id.clone(), client_id.clone());
    let disable = client::DisableClient { client_id: disabled };
    scene.server.admin().call(disable).await.unwrap();
    scene.server.advance(300);
    let page = browser.authorize(&scene.app.request()).await;
    assert_eq!(page.error_page(), unknown_client());
    assert_eq!(scene.fetched(), 1);
    let refused = scene.app.refresh(tokens.refresh_token()).await;
    assert_eq!(refused.error(), "invalid_client");
    let enable = client::EnableClient { client_id: enabled };
    scene.server.admin().call(enable).await.unwrap();
    let tokens = scene.app.tokens(&browser).await;
    scene
        .server
        .admin()
        .call(client::RemoveClient {
            client_id: client_id.clone(),
        })
        .await
        .unwrap();
    let refused = scene.app.refresh(tokens.refresh_token()).await;
    assert_eq!(refused.error(), "invalid_client");
    let page = browser.authorize(&scene.app.request()).await;
    assert_eq!(page.page(), "/consent", "the consent is gone as well");
    page.allow().await.callback().code();
    let refused = scene.app.refresh(tokens.refresh_token()).await;
    assert_eq!(
        refused.error(),
        "invalid_grant",
        "what was granted does not come back"
    );
}

#[tokio::test]
async fn a_client_that_is_disabled_during_a_sign_in_gets_no_code() {
    let scene = Scene::start().await;
    let browser = scene.alice.browser();
    scene.app.tokens(&browser).await;
    let more = scene.app.request().with("scope", "openid email");
    let page = browser.authorize(&more).await;
    let client_id = scene.app.client_id().to_owned();
    scene
        .server
        .admin()
        .call(client::DisableClient { client_id })
        .await
        .unwrap();
    assert_eq!(page.allow().await.error_page_status(), 400);
}

/// Section "Pre-Registering Client ID Metadata Document URLs".
#[tokio::test]
async fn an_address_that_the_operator_registered_is_not_fetched() {
    let scene = Scene::start().await;
    let registered = scene.server.public_client(scene.app.client_id()).await;
    registered.tokens(&scene.alice.browser()).await;
    assert_eq!(scene.fetched(), 0);
    assert_eq!(scene.stored().unwrap().origin, ClientOrigin::Operator);
}

#[tokio::test]
async fn a_client_that_the_operator_registers_during_the_fetch_stays_as_registered() {
    let scene = Scene::start().await;
    let held = scene.website.hold("/client");
    let (browser, request) = (scene.alice.browser(), scene.app.request());
    let asked = tokio::spawn(async move { browser.authorize(&request).await });
    until(async || scene.fetched() > 0).await;
    let registered = scene.server.public_client(scene.app.client_id()).await;
    held.notify_one();
    let page = asked.await.unwrap();
    assert_eq!(
        page.error_page(),
        "400 redirect_uri is not registered for this client",
        "the document's redirect URI"
    );
    registered.tokens(&scene.alice.browser()).await;
    assert_eq!(scene.stored().unwrap().origin, ClientOrigin::Operator);
}

#[tokio::test]
async fn a_refresh_counts_as_a_use_without_the_document_and_a_request_that_fails_does_not() {
    let scene = Scene::start().await;
    let tokens = scene.app.tokens(&scene.alice.browser()).await;
    let stored = scene.stored();
    scene.server.advance(2 * 24 * 3600);
    assert_eq!(scene.app.redeem("x").await.error(), "invalid_grant");
    assert_eq!(scene.app.refresh("x").await.error(), "invalid_grant");
    assert_eq!(scene.stored(), stored);
    let gone = b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n";
    scene.website.say("/client", Say::Raw(gone.into()));
    scene.server.advance(24 * 3600);
    scene.app.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(scene.stored().unwrap().updated_at, scene.server.clock.now());
}

#[tokio::test]
async fn a_client_without_a_use_for_longer_than_a_refresh_token_lasts_is_removed() {
    let scene = Scene::start().await;
    let browser = scene.alice.browser();
    let tokens = scene.app.tokens(&browser).await;
    let day = 24 * 3600;
    let kept = scene
        .server
        .app
        .core
        .policy
        .lifetimes
        .refresh_token
        .as_secs()
        .max(30 * day);
    scene.server.advance(2 * day);
    let tokens = scene.app.refresh(tokens.refresh_token()).await.tokens();
    scene.server.advance(kept - 1);
    sweep_all(&scene.server).await;
    scene.app.refresh(tokens.refresh_token()).await.tokens();
    scene.server.advance(kept + day);
    sweep_all(&scene.server).await;
    assert_eq!(scene.stored(), None);
    let consents = scene
        .server
        .app
        .core
        .store
        .read_blocking(|snapshot| CONSENTS.scan(snapshot, .., 10));
    assert!(consents.unwrap().is_empty());
}

/// One document is for many services: what this one does not offer is left out of the lists.
#[tokio::test]
async fn the_lists_of_a_document_are_reduced_to_what_is_offered() {
    let scene = Scene::start().await;
    scene.publish(&json!({
        "grant_types": ["authorization_code", "refresh_token", "implicit", "urn:ietf:params:oauth:grant-type:device_code"],
        "response_types": ["code", "id_token"],
        "scope": "openid unknown",
        "default_max_age": 3600,
        "userinfo_signed_response_alg": "ES256",
        "tos_uri": "https://claude.ai/tos",
    }));
    let code = scene.alice.browser().authorize(&scene.app.request()).await;
    code.through().await.code();
    let stored = scene.stored().unwrap();
    assert_eq!(
        stored.grant_types,
        [GrantType::AuthorizationCode, GrantType::RefreshToken].into()
    );
    assert_eq!(stored.default_scope.to_string(), "openid");
    assert_eq!(stored.default_max_age, Some(3600));
    assert_eq!(stored.tos_uri.as_deref(), Some("https://claude.ai/tos"));
    scene.publish(&json!({ "userinfo_signed_response_alg": "HS256" }));
    scene.server.advance(24 * 3600);
    assert_eq!(scene.page_for(scene.app.client_id()).await, unknown_client());
}

/// RFC 9700 section 4.11.2: anybody can publish a document.
#[tokio::test]
async fn before_a_person_is_there_a_client_that_nobody_registered_gets_no_error_by_redirect() {
    let scene = Scene::start().await;
    let silent = scene.app.request().with("prompt", "none");
    assert_eq!(
        scene
            .server
            .browser()
            .authorize(&silent)
            .await
            .error_page_status(),
        400
    );
    let browser = scene.alice.browser();
    let consent = browser.authorize(&scene.app.request()).await.sign_in().await;
    consent.allow().await.callback().code();
    let stale = silent.clone().with("max_age", "0");
    assert_eq!(
        browser.authorize(&stale).await.callback().error(),
        "login_required"
    );
    browser.authorize(&silent).await.callback().code();
}
