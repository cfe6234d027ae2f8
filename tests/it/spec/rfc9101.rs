//! RFC 9101: authorization requests that the client signed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwk::PublicKey;
use idsvc::jose::keyring::SigningKey;
use idsvc::oauth::assertion::ASSERTION_TYPE;
use idsvc::oauth::client::{AuthMethod, Client};
use idsvc::oauth::redirect_uri::Mismatch;
use idsvc::random::Random;
use serde_json::{Map, Value, json};

use crate::anonymous_upgrade::{NOT_PUSHED, device, opted_in, uuid_of};
use crate::harness::relying_party::AuthorizationRequest;
use crate::harness::token::signed;
use crate::harness::wire::Call;
use crate::harness::{ISSUER, Jwt, Person, RelyingParty, Reply, Server, Upstream};

const TYP: &str = "oauth-authz-req+jwt";
const NOT_SIGNED: &str =
    "invalid_request: this client must send its authorization requests as signed request objects";

fn es256() -> SigningKey {
    SigningKey::generate_es256(&Random::system()).unwrap()
}

fn with_key(public: &PublicKey) -> impl FnOnce(&mut Client) {
    let jwk = public.to_jwk();
    move |client| client.jwks = vec![jwk]
}

/// A client that signs with a key of its own and authenticates with a secret, and its user.
struct Scene {
    server: Server,
    acme: RelyingParty,
    key: SigningKey,
    alice: Person,
}

impl Scene {
    async fn new() -> Self {
        let server = Server::start().await;
        let key = es256();
        Self {
            acme: server.client_with("acme", with_key(key.public())).await,
            alice: server.user("alice").await,
            server,
            key,
        }
    }

    /// A scene in which the client must sign its requests.
    async fn strict() -> Self {
        let scene = Self::new().await;
        scene
            .server
            .change_client(&scene.acme, |client| client.require_signed_request_object = true)
            .await;
        scene
    }

    /// The usual request as claims, with some that are others. Null leaves a claim out.
    fn claims(&self, changes: &Value) -> Value {
        let now = self.server.clock.now().seconds();
        let parameters = self.acme.request().parameters.into_iter();
        let mut claims: Map<_, _> = parameters.map(|(name, value)| (name, json!(value))).collect();
        for about in [
            json!({ "iss": "acme", "aud": ISSUER, "iat": now, "nbf": now, "exp": now + 60 }),
            changes.clone(),
        ] {
            claims.extend(about.as_object().unwrap().clone());
        }
        claims.retain(|_, value| !value.is_null());
        Value::Object(claims)
    }

    fn object(&self, changes: &Value) -> String {
        let header = json!({ "alg": "ES256", "typ": TYP });
        signed(&self.key, &header, &self.claims(changes))
    }

    /// A push of an object with these changes.
    fn push(&self, changes: &Value) -> Call {
        self.push_object(&self.object(changes))
    }

    fn push_object(&self, object: &str) -> Call {
        self.acme.post("/oauth2/par").with("request", object)
    }

    /// The refusal of a pushed object.
    async fn refusal(&self, object: &str) -> String {
        let refusal = self.push_object(object).await.refusal();
        let said = refusal.strip_prefix("400 invalid_request_object: the request object is refused: ");
        said.unwrap_or_else(|| panic!("{refusal}")).to_owned()
    }

    /// The parameters of a signed-in user's callback, and the scope and nonce of the tokens.
    async fn signs_in(&self, request: &AuthorizationRequest) -> (String, Vec<String>, Value) {
        let callback = self.alice.browser().authorize(request).await.through().await;
        assert_eq!(callback.uri, self.acme.redirect_uri());
        let tokens = self.acme.redeem(&callback.code()).await.tokens();
        let scope = tokens.scope().into_iter().map(ToOwned::to_owned).collect();
        let state = callback.get("state").unwrap_or_default().to_owned();
        (state, scope, tokens.id().claims["nonce"].clone())
    }
}

/// A request with no parameters outside the object.
fn by_value(object: &str) -> AuthorizationRequest {
    AuthorizationRequest::default()
        .with("client_id", "acme")
        .with("request", object)
}

fn pushed(reply: &Reply) -> AuthorizationRequest {
    assert_eq!(reply.status, 201, "{}", reply.text());
    AuthorizationRequest::default()
        .with("client_id", "acme")
        .with("request_uri", reply.json()["request_uri"].as_str().unwrap())
}

fn part(json: &Value) -> String {
    URL_SAFE_NO_PAD.encode(json.to_string())
}

/// Sections 5 and 6, and RFC 9126 section 3.
#[tokio::test]
async fn a_signed_request_signs_a_user_in_by_value_and_pushed() {
    let scene = Scene::strict().await;
    let object = scene.object(&json!({ "nonce": "n-1" }));
    let expected = (
        "state of acme".to_owned(),
        vec!["openid".to_owned(), "authenticated".to_owned()],
        json!("n-1"),
    );
    assert_eq!(scene.signs_in(&by_value(&object)).await, expected);
    // It may come again while it is valid: each push is a request of its own.
    for _ in 0..2 {
        let pushed = pushed(&scene.push_object(&object).await);
        assert_eq!(scene.signs_in(&pushed).await, expected);
    }
    for typ in [
        json!("JWT"),
        json!("application/oauth-authz-req+jwt"),
        Value::Null,
    ] {
        let header = json!({ "alg": "ES256", "typ": typ });
        let header = if typ.is_null() {
            json!({ "alg": "ES256" })
        } else {
            header
        };
        let object = signed(&scene.key, &header, &scene.claims(&json!({})));
        assert_eq!(scene.push_object(&object).await.status, 201, "{typ}");
    }
}

/// Section 6.3: only the parameters of the object count.
#[tokio::test]
async fn parameters_beside_the_object_are_ignored() {
    let scene = Scene::new().await;
    let object = scene.object(&json!({ "state": null, "nonce": "inside" }));
    let request = by_value(&object)
        .with("redirect_uri", "https://evil.example/cb")
        .with("scope", "openid email")
        .with("state", "outside")
        .with("nonce", "outside")
        .with("response_mode", "form_post")
        .with("response_type", "token")
        .with("code_challenge", "outside")
        .with("prompt", "none");
    let expected = (
        String::new(),
        vec!["openid".to_owned(), "authenticated".to_owned()],
        json!("inside"),
    );
    assert_eq!(scene.signs_in(&request).await, expected);
    let mut push = scene.push_object(&object);
    for (name, value) in request.without("client_id").without("request").parameters {
        push = push.with(&name, &value);
    }
    assert_eq!(scene.signs_in(&pushed(&push.await)).await, expected);
}

/// Section 10.7: no parameter from outside is added to a signed object.
#[tokio::test]
async fn nothing_is_added_to_an_object() {
    let scene = Scene::new().await;
    let browser = scene.alice.browser();
    let request = scene.acme.request();
    for (name, refusal) in [
        (
            "response_type",
            "invalid_request: response_type is missing; it must be code",
        ),
        (
            "client_id",
            "invalid_request_object: the request object is refused: client_id must be the client_id of the request",
        ),
    ] {
        let object = scene.object(&json!({ name: null }));
        let beside = request.clone().with("request", &object);
        let refused = browser.authorize(&beside).await.callback();
        assert_eq!(refused.refusal(), refusal, "{name}");
    }
    scene
        .server
        .change_client(&scene.acme, |client| {
            client.redirect_uris.push("https://other.example/cb".to_owned());
        })
        .await;
    let object = scene.object(&json!({ "redirect_uri": null }));
    let page = browser.authorize(&request.with("request", &object)).await;
    assert_eq!(page.error_page(), format!("400 {}", Mismatch::Missing));
}

/// Sections 6.2 and 10.1: only a key of the client's record counts.
#[tokio::test]
async fn an_object_that_another_key_signed_is_refused() {
    let scene = Scene::new().await;
    let other = es256();
    scene.server.client_with("other", with_key(other.public())).await;
    let claims = scene.claims(&json!({}));
    let header = |alg: &str| json!({ "alg": alg, "typ": TYP });
    let mut own_key = header("ES256");
    own_key["jwk"] = other.public().to_jwk();
    let mut other_name = header("ES256");
    other_name["kid"] = json!("unknown");
    let object = signed(&scene.key, &header("ES256"), &claims);
    let (_, signature) = object.rsplit_once('.').unwrap();
    let tampered = scene.claims(&json!({ "scope": "openid email" }));
    let tampered = format!("{}.{}.{signature}", part(&header("ES256")), part(&tampered));
    let unsigned = Jwt {
        header: header("none"),
        claims: claims.clone(),
    };
    let hmac = Jwt {
        header: header("HS256"),
        claims: claims.clone(),
    };
    let secret = scene.acme.secret.clone();
    let algorithm = "token is signed with an algorithm that is not allowed here";
    let signature = "token signature does not match";
    let encrypted = format!(
        "{}.a.b.c.d",
        part(&json!({ "alg": "RSA-OAEP", "enc": "A256GCM" }))
    );
    for (object, problem) in [
        (signed(&other, &header("ES256"), &claims), signature),
        (signed(&other, &own_key, &claims), signature),
        (
            signed(&scene.key, &other_name, &claims),
            "token is signed with an unknown key",
        ),
        (tampered, signature),
        (unsigned.forge(None), algorithm),
        (hmac.forge(Some(secret.as_bytes())), algorithm),
        (encrypted, "it is encrypted, which is not supported"),
        ("e30".to_owned(), "token is not three parts separated by dots"),
    ] {
        assert_eq!(scene.refusal(&object).await, problem, "{object}");
        let page = scene.alice.browser().authorize(&by_value(&object)).await;
        let refusal = format!("400 the request object is refused: {problem}");
        assert_eq!(page.error_page(), refusal);
    }
    let keyless = scene.server.client("keyless").await;
    let refused = keyless.post("/oauth2/par").with("request", &object).await;
    assert_eq!(
        refused.refusal(),
        "400 invalid_request_object: the request object is refused: the client has registered no key to verify it with"
    );
}

/// Section 7: an error goes to an address that is sure, and to no other.
#[tokio::test]
async fn an_error_goes_to_the_verified_or_the_registered_address_only() {
    let scene = Scene::new().await;
    let browser = scene.alice.browser();
    let expired = scene.object(&json!({ "exp": 1 }));
    let refused = browser.authorize(&by_value(&expired)).await.callback();
    assert_eq!(
        (refused.uri.as_str(), refused.get("state")),
        (scene.acme.redirect_uri(), Some("state of acme"))
    );
    assert_eq!(refused.error(), "invalid_request_object");

    let beside = by_value("e30.e30.")
        .with("redirect_uri", scene.acme.redirect_uri())
        .with("state", "beside");
    let refused = browser.authorize(&beside).await.callback();
    assert_eq!(
        (refused.error(), refused.get("state")),
        ("invalid_request_object".to_owned(), Some("beside"))
    );
    let elsewhere = beside.with("redirect_uri", "https://evil.example/cb");
    let page = browser.authorize(&elsewhere).await.error_page();
    assert_eq!(page, format!("400 {}", Mismatch::Unregistered));
    let inside = scene.object(&json!({ "redirect_uri": "https://evil.example/cb" }));
    let page = browser.authorize(&by_value(&inside)).await.error_page();
    assert_eq!(page, format!("400 {}", Mismatch::Unregistered));
    assert_eq!(scene.push_object(&inside).await.error(), "invalid_request");
}

/// Sections 4, 6.3 and 10.8; FAPI 2.0 Message Signing section 5.3.1.
#[tokio::test]
async fn claims_that_are_wrong_are_refused_and_the_description_says_why() {
    let scene = Scene::new().await;
    let now = scene.server.clock.now().seconds();
    for (changes, problem) in [
        (
            json!({ "client_id": "other" }),
            "client_id must be the client_id of the request",
        ),
        (json!({ "iss": "other" }), "iss must be the client_id"),
        (json!({ "sub": "acme" }), "sub must not be the client_id"),
        (
            json!({ "aud": "https://other.example" }),
            "aud must contain the issuer",
        ),
        (json!({ "aud": [] }), "aud must contain the issuer"),
        (
            json!({ "aud": { "a": 1 } }),
            "iss, sub, aud, exp, nbf or iat has the wrong type",
        ),
        (
            json!({ "exp": "soon" }),
            "iss, sub, aud, exp, nbf or iat has the wrong type",
        ),
        (json!({ "exp": now - 10 }), "token has expired"),
        (json!({ "nbf": now + 11 }), "token is not valid yet"),
        (json!({ "iat": now + 11 }), "token was issued in the future"),
        (
            json!({ "nbf": now - 3611, "exp": null }),
            "nbf is more than 60 minutes ago",
        ),
        (
            json!({ "nbf": now, "exp": now + 3601 }),
            "exp must be at most 60 minutes after nbf",
        ),
        (
            json!({ "request": "e30.e30." }),
            "it must not contain request or request_uri",
        ),
        (
            json!({ "request_uri": "urn:example:x" }),
            "it must not contain request or request_uri",
        ),
    ] {
        assert_eq!(scene.refusal(&scene.object(&changes)).await, problem, "{changes}");
    }
    for changes in [
        json!({ "aud": ["https://other.example", ISSUER] }),
        json!({ "sub": "alice" }),
        json!({ "nbf": now + 10, "iat": now + 10 }),
        json!({ "exp": now - 9 , "nbf": now - 60 }),
        json!({ "nbf": now - 3600, "exp": now }),
        json!({ "iss": null, "aud": null, "iat": null, "nbf": null, "exp": null }),
    ] {
        let reply = scene.push(&changes).await;
        assert_eq!(reply.status, 201, "{changes}: {}", reply.text());
    }
}

/// Section 10.5, and FAPI 2.0 Message Signing section 5.3.1.
#[tokio::test]
async fn a_client_that_must_sign_is_refused_otherwise() {
    let scene = Scene::strict().await;
    let browser = scene.alice.browser();
    let plain = scene.acme.request();
    let refused = browser.authorize(&plain).await.callback();
    assert_eq!(
        (refused.refusal().as_str(), refused.get("state")),
        (NOT_SIGNED, Some("state of acme"))
    );
    let parameters = plain.clone().without("client_id").parameters;
    let push = scene.acme.post("/oauth2/par").fields(&parameters).await;
    assert_eq!(push.refusal(), format!("400 {NOT_SIGNED}"));
    let unsigned = Jwt {
        header: json!({ "alg": "none" }),
        claims: scene.claims(&json!({})),
    };
    let refused = plain.with("request", &unsigned.forge(None));
    let refused = browser.authorize(&refused).await.callback();
    assert_eq!(refused.error(), "invalid_request_object");
    for name in ["aud", "exp", "nbf"] {
        let object = scene.object(&json!({ name: null }));
        assert_eq!(
            scene.refusal(&object).await,
            "this client must send aud, exp and nbf",
            "{name}"
        );
    }
    scene.signs_in(&by_value(&scene.object(&json!({})))).await;
}

/// OpenID Connect Dynamic Client Registration section 2: `request_object_signing_alg`.
#[tokio::test]
async fn an_algorithm_that_the_record_does_not_name_is_refused() {
    let scene = Scene::new().await;
    let object = scene.object(&json!({}));
    assert_eq!(scene.push_object(&object).await.status, 201);
    for (alg, is_accepted) in [(Algorithm::Es256, true), (Algorithm::Ps256, false)] {
        scene
            .server
            .change_client(&scene.acme, |client| {
                client.request_object_signing_alg = Some(alg);
            })
            .await;
        let reply = scene.push_object(&object).await;
        assert_eq!(reply.status == 201, is_accepted, "{alg}");
    }
}

/// Section 10.8: one kind of token does not pass for another.
#[tokio::test]
async fn no_other_token_is_a_request_object_and_an_object_is_no_assertion() {
    let scene = Scene::new().await;
    let now = scene.server.clock.now().seconds();
    let assertion = json!({
        "iss": "acme", "sub": "acme", "aud": ISSUER, "exp": now + 60, "jti": Random::system().uuid_v4(),
    });
    for typ in ["JWT", "client-authentication+jwt"] {
        let header = json!({ "alg": "ES256", "typ": typ });
        let assertion = signed(&scene.key, &header, &assertion);
        assert_eq!(
            scene.push_object(&assertion).await.error(),
            "invalid_request_object"
        );
    }
    // Even an assertion with all parameters in it is none.
    let both = scene.object(&json!({ "sub": "acme", "jti": "j-1" }));
    assert_eq!(scene.refusal(&both).await, "sub must not be the client_id");
    let tokens = scene.acme.tokens(&scene.alice.browser()).await;
    for token in [tokens.id_token(), tokens.access_token()] {
        assert_eq!(scene.push_object(token).await.error(), "invalid_request_object");
    }
    scene
        .server
        .change_client(&scene.acme, |client| {
            client
                .token_endpoint_auth_methods
                .insert(AuthMethod::PrivateKeyJwt);
        })
        .await;
    for object in [scene.object(&json!({ "jti": "j-2" })), both] {
        let reply = scene
            .server
            .post("/oauth2/par")
            .fields(&scene.acme.request().parameters)
            .with("client_assertion_type", ASSERTION_TYPE)
            .with("client_assertion", &object)
            .await;
        assert_eq!(reply.error(), "invalid_client");
    }
}

/// Section 5: `request` and `request_uri` exclude each other, and no address is fetched.
#[tokio::test]
async fn an_object_beside_a_request_uri_is_refused() {
    let scene = Scene::new().await;
    let (browser, object) = (scene.alice.browser(), scene.object(&json!({})));
    let pushed = pushed(&scene.push_object(&object).await);
    for request_uri in [
        pushed.get("request_uri").unwrap(),
        "https://acme.example/request.jwt",
    ] {
        let both = by_value(&object).with("request_uri", request_uri);
        let page = browser.authorize(&both).await.error_page();
        assert_eq!(
            page,
            "400 request and request_uri exclude each other (RFC 9101 section 5)"
        );
        let push = scene.push_object(&object).with("request_uri", request_uri).await;
        assert_eq!(push.error(), "invalid_request");
    }
    let twice = by_value(&object).and("request", &object);
    let page = browser.authorize(&twice).await.error_page();
    assert_eq!(page, "400 request was sent more than once");
    scene.signs_in(&pushed).await;
}

/// Section 4: numbers and objects are JSON, and what the object says of the response counts.
#[tokio::test]
async fn the_values_of_an_object_may_be_json() {
    let scene = Scene::new().await;
    let object = scene.object(&json!({
        "response_mode": "form_post",
        "state": "\"<&é> +%",
        "max_age": 0,
        "claims": { "id_token": { "acr": { "essential": true } } },
        "authorization_details": [{ "type": "unknown" }],
        "is_unknown": true,
    }));
    let browser = scene.alice.browser();
    let page = browser.authorize(&by_value(&object)).await.sign_in().await;
    let callback = page.posted_callback();
    assert_eq!(callback.get("state"), Some("\"<&é> +%"));
    let tokens = scene.acme.redeem(&callback.code()).await.tokens();
    assert_eq!(tokens.id().claims["acr"], "1");
    for changes in [
        json!({ "max_age": 1.5 }),
        json!({ "max_age": -1 }),
        json!({ "scope": ["openid"] }),
        json!({ "claims": [] }),
        json!({ "resource": ["https://unknown.example", "https://other.example"] }),
    ] {
        let reply = scene.push(&changes).await;
        assert_eq!(reply.status, 400, "{changes}: {}", reply.text());
    }
}

#[tokio::test]
async fn an_object_of_any_size_is_accepted_or_refused() {
    let scene = Scene::new().await;
    let with_padding = |bytes: usize| scene.object(&json!({ "padding": "p".repeat(bytes) }));
    let fits = with_padding(10_000);
    assert_eq!(scene.push_object(&fits).await.status, 201);
    scene.signs_in(&by_value(&fits)).await;
    let refusal = scene.refusal(&with_padding(20_000)).await;
    assert_eq!(refusal, "token is longer than 16 KiB");
    assert_eq!(scene.push_object(&with_padding(100_000)).await.status, 413);
    let mut many = json!({});
    for n in 0..65 {
        many[format!("p{n}")] = json!("x");
    }
    assert_eq!(scene.refusal(&scene.object(&many)).await, "too many parameters");
}

/// Section 6.2: the keys may be published (RFC 7591 section 2).
#[tokio::test]
async fn published_keys_verify_an_object_too() {
    let website = Upstream::start().await;
    let server = Server::start_reaching(&website.terms(), |_| {}).await;
    let jwks_uri = format!("{}/jwks", website.issuer);
    let acme = server
        .client_with("acme", |client| client.jwks_uri = Some(jwks_uri))
        .await;
    let alice = server.user("alice").await;
    let parameters = acme.request().parameters.into_iter();
    let claims: Map<_, _> = parameters.map(|(name, value)| (name, json!(value))).collect();
    let object = website.sign(&Value::Object(claims));
    let reply = acme.post("/oauth2/par").with("request", &object).await;
    assert_eq!(reply.status, 201);
    let callback = alice
        .browser()
        .authorize(&by_value(&object))
        .await
        .through()
        .await;
    acme.redeem(&callback.code()).await.tokens();
    assert_eq!(website.seen("/jwks").len(), 1);
}

/// RFC 7591 section 2: a client registers both members itself.
#[tokio::test]
async fn a_client_that_registers_itself_may_sign() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let key = es256();
    let mut metadata = json!({
        "redirect_uris": ["https://app.example/cb"],
        "jwks": { "keys": [key.public().to_jwk()] },
        "request_object_signing_alg": "ES256",
        "require_signed_request_object": true,
    });
    let registrant = server.registrant(&metadata).await;
    assert_eq!(registrant.answer["request_object_signing_alg"], "ES256");
    assert_eq!(registrant.answer["require_signed_request_object"], true);
    let party = &registrant.party;
    let refused = alice.browser().authorize(&party.request()).await;
    assert_eq!(refused.error_page_status(), 400);
    let now = server.clock.now().seconds();
    let parameters = party.request().parameters.into_iter();
    let mut claims: Map<_, _> = parameters.map(|(name, value)| (name, json!(value))).collect();
    for (name, value) in [
        ("aud", json!(ISSUER)),
        ("nbf", json!(now)),
        ("exp", json!(now + 60)),
    ] {
        claims.insert(name.to_owned(), value);
    }
    let object = signed(&key, &json!({ "alg": "ES256" }), &Value::Object(claims));
    let request = by_value(&object).with("client_id", party.client_id());
    let callback = alice.browser().authorize(&request).await.through().await;
    party.redeem(&callback.code()).await.tokens();
    metadata.as_object_mut().unwrap().remove("jwks");
    let keyless = server.register(&metadata).await;
    assert_eq!(keyless.error(), "invalid_client_metadata");
}

/// It is a parameter as any other, and must not be in an address in an object either.
#[tokio::test]
async fn the_refresh_token_of_an_anonymous_user_is_in_the_object_and_the_object_is_pushed() {
    let scene = Scene::new().await;
    scene.server.change_client(&scene.acme, opted_in).await;
    let device = device(&scene.acme).await;
    let changes = json!({ "anonymous_refresh_token": device.refresh_token() });
    let browser = scene.alice.browser();
    let request = by_value(&scene.object(&changes));
    assert_eq!(browser.authorize(&request).await.callback().refusal(), NOT_PUSHED);
    let request = pushed(&scene.push(&changes).await);
    let code = browser.authorize(&request).await.through().await.code();
    let tokens = scene.acme.redeem(&code).await.tokens();
    assert_eq!(tokens.access().claims["anonymous_sub"], json!(uuid_of(&device)));
}
