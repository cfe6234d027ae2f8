//! RFC 9449: tokens that are bound to a key of the client.

use idsvc::jose::alg::Algorithm;
use idsvc::oauth::client::{GrantType, StoredApiKey};
use idsvc::random::Random;
use idsvc::secret::{ApiKey, Secret};
use serde_json::json;

use crate::harness::dpop::KeyHolder;
use crate::harness::relying_party::VERIFIER;
use crate::harness::wire::Call;
use crate::harness::{AuthorizationRequest, Person, RelyingParty, Server, Tokens, scene};

const OTHER_KEY: &str = "400 invalid_grant: the grant is bound to another key than that of the DPoP proof";
const NO_PROOF: &str = "400 invalid_grant: the grant is bound to a key; send a DPoP proof by this key";
const ALGS: &str = "algs=\"RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA Ed25519\"";

/// A public client, a user and a key.
async fn public_scene() -> (Server, RelyingParty, Person, KeyHolder) {
    let server = Server::start().await;
    let app = server.public_client("app").await;
    let alice = server.user("alice").await;
    (server, app, alice, KeyHolder::new())
}

fn proven(call: Call, key: &KeyHolder, server: &Server) -> Call {
    call.header("dpop", &key.for_token(server))
}

/// The tokens of a sign-in whose code was redeemed with a proof.
async fn bound_tokens(server: &Server, party: &RelyingParty, person: &Person, key: &KeyHolder) -> Tokens {
    let code = party.code(&person.browser()).await;
    proven(party.redeem(&code), key, server).await.tokens()
}

/// A request for claims in the scheme `DPoP`.
fn userinfo(server: &Server, token: &str, proof: &str) -> Call {
    let call = server.get("/oauth2/userinfo").header("dpop", proof);
    call.header("authorization", &format!("DPoP {token}"))
}

fn assert_bound(tokens: &Tokens, key: &KeyHolder) {
    assert_eq!(tokens.0["token_type"], "DPoP");
    assert_eq!(tokens.access().claims["cnf"], json!({ "jkt": key.thumbprint() }));
}

fn assert_unbound(tokens: &Tokens) {
    assert_eq!(tokens.0["token_type"], "bearer");
    assert_eq!(tokens.access().claims.get("cnf"), None);
}

/// Section 5: every grant takes a proof. Without one, tokens are as before.
#[tokio::test]
async fn every_grant_binds_its_access_token_to_the_key_of_a_proof() {
    let server = Server::start().await;
    let (alice, key) = (server.user("alice").await, KeyHolder::new());
    let api_key = Secret::<ApiKey>::generate(Random::system().uuid_v4().as_bytes(), &Random::system());
    let stored = StoredApiKey {
        id: uuid::Uuid::from_slice(api_key.locator()).unwrap(),
        digest: api_key.digest(),
        created_at: server.clock.now(),
    };
    let acme = server
        .client_with("acme", |client| {
            let further = [GrantType::Anonymous, GrantType::ClientCredentials];
            client.grant_types.extend(further);
            client.max_scope = Some("notes.read".parse().unwrap());
            client.api_keys.push(stored);
        })
        .await;
    let token = |grant: &str| acme.post("/oauth2/token").with("grant_type", grant);
    let anonymous = "urn:service:oauth2:grant-type:anonymous";
    let first = bound_tokens(&server, &acme, &alice, &key).await;
    assert_bound(&first, &key);
    for call in [
        token(anonymous),
        token("client_credentials").with("scope", "notes.read"),
        acme.refresh(first.refresh_token()),
    ] {
        assert_bound(&proven(call.clone(), &key, &server).await.tokens(), &key);
        assert_unbound(&call.await.tokens());
    }
    let refresh = || {
        let call = server.post("/v4/tokens").with("grant_type", "refresh_token");
        call.header("authorization", &format!("Basic {}", api_key.reveal()))
            .with("refresh_token", first.refresh_token())
    };
    let proof = key.proof(&server, "POST", "/v4/tokens").sign();
    assert_bound(&refresh().header("dpop", &proof).await.tokens(), &key);
    assert_unbound(&refresh().await.tokens());
    let elsewhere = refresh().header("dpop", &key.for_token(&server)).await;
    assert_eq!(elsewhere.error(), "invalid_dpop_proof");
}

/// Section 5.2: the client said at its registration that all its tokens are bound.
#[tokio::test]
async fn a_client_that_must_use_dpop_gets_no_token_without_a_proof() {
    let (server, acme, alice) = scene().await;
    let key = KeyHolder::new();
    server
        .change_client(&acme, |client| client.dpop_bound_access_tokens = true)
        .await;
    let code = acme.code(&alice.browser()).await;
    let refusal = "400 invalid_dpop_proof: this client must send a DPoP proof with each token request";
    assert_eq!(acme.redeem(&code).await.refusal(), refusal);
    let tokens = proven(acme.redeem(&code), &key, &server).await.tokens();
    assert_eq!(acme.refresh(tokens.refresh_token()).await.refusal(), refusal);
    let next = proven(acme.refresh(tokens.refresh_token()), &key, &server).await;
    assert_bound(&next.tokens(), &key);
}

/// Section 10: `dpop_jkt` binds the code.
#[tokio::test]
async fn a_code_that_was_asked_for_with_a_key_is_redeemed_with_a_proof_by_this_key_only() {
    for is_public in [false, true] {
        let server = Server::start().await;
        let alice = server.user("alice").await;
        let party = if is_public {
            server.public_client("app").await
        } else {
            server.client("acme").await
        };
        let (key, other) = (KeyHolder::new(), KeyHolder::new());
        let request = party.request().with("dpop_jkt", &key.thumbprint());
        let code = alice.browser().authorize(&request).await.through().await.code();
        assert_eq!(party.redeem(&code).await.refusal(), NO_PROOF);
        assert_eq!(
            proven(party.redeem(&code), &other, &server).await.refusal(),
            OTHER_KEY
        );
        let tokens = proven(party.redeem(&code), &key, &server).await.tokens();
        assert_bound(&tokens, &key);
        assert_eq!(
            proven(party.redeem(&code), &other, &server).await.refusal(),
            OTHER_KEY
        );
        let userinfo = userinfo(
            &server,
            tokens.access_token(),
            &key.for_userinfo(&server, tokens.access_token()),
        );
        assert_eq!(userinfo.await.status, 200, "a code without the key ends nothing");
    }
}

/// Section 10: a thumbprint is SHA-256 in base64url.
#[tokio::test]
async fn a_dpop_jkt_that_is_no_thumbprint_is_an_invalid_request() {
    let (_server, acme, alice) = scene().await;
    for key in ["x", &"a".repeat(44), &"=".repeat(43)] {
        let request = acme.request().with("dpop_jkt", key);
        let callback = alice.browser().authorize(&request).await.callback();
        assert_eq!(callback.error(), "invalid_request", "{key}");
    }
}

/// Section 5: a refresh token of a public client needs a proof by its key. A lost answer can be asked for again, with a new
/// proof.
#[tokio::test]
async fn the_refresh_tokens_of_a_public_client_are_bound_to_its_key() {
    let (server, app, alice, key) = public_scene().await;
    let first = bound_tokens(&server, &app, &alice, &key).await;
    let other = KeyHolder::new();
    for _ in 0..2 {
        let refresh = || app.refresh(first.refresh_token());
        assert_eq!(refresh().await.refusal(), NO_PROOF);
        assert_eq!(proven(refresh(), &other, &server).await.refusal(), OTHER_KEY);
        let next = proven(refresh(), &key, &server).await.tokens();
        assert_bound(&next, &key);
    }
    let second = proven(app.refresh(first.refresh_token()), &key, &server)
        .await
        .tokens();
    let third = proven(app.refresh(second.refresh_token()), &key, &server)
        .await
        .tokens();
    // A replaced token in other hands does not end the family.
    assert_eq!(app.refresh(first.refresh_token()).await.refusal(), NO_PROOF);
    assert_eq!(
        proven(app.refresh(first.refresh_token()), &other, &server)
            .await
            .refusal(),
        OTHER_KEY
    );
    proven(app.refresh(third.refresh_token()), &key, &server)
        .await
        .tokens();
}

/// Section 5: after the first refresh with a proof, the refresh tokens are bound too.
#[tokio::test]
async fn a_public_client_that_begins_to_use_dpop_is_bound_from_then_on() {
    let (server, app, alice, key) = public_scene().await;
    let code = app.code(&alice.browser()).await;
    let first = app.redeem(&code).await.tokens();
    assert_unbound(&first);
    let second = proven(app.refresh(first.refresh_token()), &key, &server)
        .await
        .tokens();
    assert_bound(&second, &key);
    assert_eq!(app.refresh(second.refresh_token()).await.refusal(), NO_PROOF);
    proven(app.refresh(second.refresh_token()), &key, &server)
        .await
        .tokens();
}

/// A thief can bind the family of a stolen refresh token to a key of his own. The owner then uses the same token. This ends
/// the family (RFC 9700 section 4.14.2).
#[tokio::test]
async fn a_thief_who_binds_a_family_is_found_when_the_owner_comes() {
    let (server, app, alice, key) = public_scene().await;
    let code = app.code(&alice.browser()).await;
    let stolen = app.redeem(&code).await.tokens();
    let of_thief = proven(app.refresh(stolen.refresh_token()), &key, &server)
        .await
        .tokens();
    app.refresh(stolen.refresh_token()).await.refusal();
    let ended = proven(app.refresh(of_thief.refresh_token()), &key, &server).await;
    assert_eq!(
        ended.refusal(),
        "400 invalid_grant: refresh_token has been revoked"
    );
}

/// The answer to a retry contains the same refresh token as the first answer, which is not bound.
#[tokio::test]
async fn a_retry_binds_nothing_that_its_first_use_did_not_bind() {
    let (server, app, alice, key) = public_scene().await;
    let code = app.code(&alice.browser()).await;
    let first = app.redeem(&code).await.tokens();
    app.refresh(first.refresh_token()).await.tokens();
    let retry = proven(app.refresh(first.refresh_token()), &key, &server).await;
    assert_eq!(
        retry.refusal(),
        "400 invalid_grant: this refresh_token was first used without a DPoP proof or a certificate; \
         send the retry as the first request was sent"
    );
    assert_unbound(&app.refresh(first.refresh_token()).await.tokens());
}

/// Section 5: the refresh token of a client that authenticates is bound to the client. So it may change its key.
#[tokio::test]
async fn a_client_that_authenticates_may_refresh_with_another_key() {
    let (server, acme, alice) = scene().await;
    let (key, other) = (KeyHolder::new(), KeyHolder::new());
    let first = bound_tokens(&server, &acme, &alice, &key).await;
    let second = proven(acme.refresh(first.refresh_token()), &other, &server)
        .await
        .tokens();
    assert_bound(&second, &other);
    let token = second.access_token();
    let with_old_key = userinfo(&server, token, &key.for_userinfo(&server, token)).await;
    assert!(with_old_key.challenge().contains("error=\"invalid_token\""));
    assert_eq!(
        userinfo(&server, token, &other.for_userinfo(&server, token))
            .await
            .status,
        200
    );
}

/// Section 7.1: a bound token needs the scheme `DPoP` and a proof for this token and this request. The name of the scheme
/// may be in upper or lower case.
#[tokio::test]
async fn a_bound_token_opens_userinfo_with_a_proof_for_this_token_only() {
    let (server, app, alice, key) = public_scene().await;
    let tokens = bound_tokens(&server, &app, &alice, &key).await;
    let token = tokens.access_token();
    let ask = |proof: String| userinfo(&server, token, &proof);
    let claims = ask(key.for_userinfo(&server, token)).await;
    assert_eq!(claims.json()["sub"], alice.sub());
    let lower = server
        .get("/oauth2/userinfo")
        .header("authorization", &format!("dpop {token}"));
    let lower = lower.header("dpop", &key.for_userinfo(&server, token)).await;
    assert_eq!(lower.json(), claims.json());
    let post = server
        .post("/oauth2/userinfo")
        .header("authorization", &format!("DPoP {token}"));
    let for_post = key.proof(&server, "POST", "/oauth2/userinfo").of(token).sign();
    assert_eq!(post.header("dpop", &for_post).await.json(), claims.json());

    let other = bound_tokens(&server, &app, &alice, &key).await;
    let proof = || key.proof(&server, "GET", "/oauth2/userinfo");
    for wrong in [
        proof().sign(),
        proof().of(other.access_token()).sign(),
        proof().with("ath", tokens.refresh_token()).sign(),
        for_post,
        key.proof(&server, "GET", "/oauth2/token").of(token).sign(),
    ] {
        let expected = format!("401 DPoP realm=\"idsvc\", {ALGS}, error=\"invalid_dpop_proof\"");
        assert_eq!(ask(wrong).await.challenge(), expected);
    }
    let none = server
        .get("/oauth2/userinfo")
        .header("authorization", &format!("DPoP {token}"))
        .await;
    assert!(none.challenge().contains("error=\"invalid_dpop_proof\""));
    let stranger = KeyHolder::new().for_userinfo(&server, token);
    let expected = format!("401 DPoP realm=\"idsvc\", {ALGS}, error=\"invalid_token\"");
    assert_eq!(ask(stranger).await.challenge(), expected);
}

/// Section 11.1: one proof opens `UserInfo` once.
#[tokio::test]
async fn a_proof_for_userinfo_counts_once() {
    let (server, app, alice, key) = public_scene().await;
    let tokens = bound_tokens(&server, &app, &alice, &key).await;
    let token = tokens.access_token();
    let proof = key.for_userinfo(&server, token);
    assert_eq!(userinfo(&server, token, &proof).await.status, 200);
    let again = userinfo(&server, token, &proof).await;
    assert_eq!(again.status, 401);
    assert_eq!(
        again.json()["error_description"],
        "DPoP proof: it was used before"
    );
}

/// Section 7.2: a bound token is refused in the scheme `Bearer` and in the form. An unbound token is refused in the scheme
/// `DPoP`.
#[tokio::test]
async fn a_bound_token_is_refused_as_a_bearer_token_and_an_unbound_one_with_a_proof() {
    let (server, app, alice, key) = public_scene().await;
    let bound = bound_tokens(&server, &app, &alice, &key).await;
    let token = bound.access_token();
    let with_proof = server.get("/oauth2/userinfo").bearer(token);
    for call in [
        app.userinfo(token),
        with_proof.header("dpop", &key.for_userinfo(&server, token)),
        server.post("/oauth2/userinfo").with("access_token", token),
    ] {
        let reply = call.await;
        assert_eq!(
            reply.challenge(),
            "401 Bearer realm=\"idsvc\", error=\"invalid_token\""
        );
        let schemes: Vec<_> = reply.headers.get_all("www-authenticate").iter().collect();
        assert_eq!(schemes.len(), 2);
        assert_eq!(schemes[1], format!("DPoP realm=\"idsvc\", {ALGS}").as_str());
    }
    let unbound = app.redeem(&app.code(&alice.browser()).await).await.tokens();
    let token = unbound.access_token();
    let reply = userinfo(&server, token, &key.for_userinfo(&server, token)).await;
    assert!(reply.challenge().starts_with("401 DPoP"), "{}", reply.challenge());
    assert_eq!(reply.json()["error"], "invalid_token");
    assert!(app.is_welcome(&unbound).await);
}

/// Section 7.1: without a token, both schemes are offered and no error is named.
#[tokio::test]
async fn without_a_token_both_schemes_are_offered() {
    let server = Server::start().await;
    let reply = server.get("/oauth2/userinfo").await;
    let offered: Vec<_> = reply.headers.get_all("www-authenticate").iter().collect();
    assert_eq!(
        offered,
        ["Bearer realm=\"idsvc\"", &format!("DPoP realm=\"idsvc\", {ALGS}")]
    );
}

/// Section 6.2: introspection tells an API the key.
#[tokio::test]
async fn introspection_tells_the_key_of_a_bound_token() {
    let (server, acme, alice) = scene().await;
    let key = KeyHolder::new();
    let tokens = bound_tokens(&server, &acme, &alice, &key).await;
    let told = acme.introspect(tokens.access_token()).await.json();
    assert_eq!(told["token_type"], "DPoP");
    assert_eq!(told["cnf"], json!({ "jkt": key.thumbprint() }));
}

/// Section 5.1 and the Fetch standard: scripts learn what they need.
#[tokio::test]
async fn discovery_names_the_algorithms_and_scripts_may_read_the_nonce() {
    let (server, app, _, _) = public_scene().await;
    let document = server.get("/.well-known/openid-configuration").await.json();
    let algs = Algorithm::RECEIVED_NAMES;
    assert_eq!(document["dpop_signing_alg_values_supported"], json!(algs));
    let reply = app.userinfo("x").header("origin", "https://app.example").await;
    let exposed = reply.header("access-control-expose-headers").unwrap();
    for name in ["dpop-nonce", "www-authenticate"] {
        assert!(exposed.contains(name), "{exposed}");
    }
}

/// RFC 7636 section 4.6: a proof does not replace the verifier, and a wrong verifier is `invalid_grant`.
#[tokio::test]
async fn a_code_of_a_public_client_needs_verifier_and_key() {
    let (server, app, alice, key) = public_scene().await;
    let request = app.request().with("dpop_jkt", &key.thumbprint());
    let code = alice.browser().authorize(&request).await.through().await.code();
    let wrong = app
        .redeem(&code)
        .with("code_verifier", &VERIFIER.replace('d', "e"));
    assert_eq!(proven(wrong, &key, &server).await.error(), "invalid_grant");
    proven(app.redeem(&code), &key, &server).await.tokens();
}

/// Section 5.2: a client that registers itself may demand that its tokens are bound.
#[tokio::test]
async fn a_client_may_register_that_its_tokens_are_bound() {
    let (server, key) = (Server::open().await, KeyHolder::new());
    let alice = server.user("alice").await;
    let metadata = json!({
        "redirect_uris": ["https://app.example/cb"],
        "token_endpoint_auth_method": "none",
        "dpop_bound_access_tokens": true,
    });
    let app = server.registrant(&metadata).await;
    assert_eq!(app.answer["dpop_bound_access_tokens"], true);
    let code = app.party.code(&alice.browser()).await;
    assert_eq!(app.party.redeem(&code).await.error(), "invalid_dpop_proof");
    assert_bound(
        &proven(app.party.redeem(&code), &key, &server).await.tokens(),
        &key,
    );
}

/// Section 10.1: the proof of a pushed request binds the code, as `dpop_jkt` does. A proof is accepted once.
#[tokio::test]
async fn the_proof_of_a_pushed_request_binds_the_code() {
    let (server, acme, alice) = scene().await;
    let (key, other) = (KeyHolder::new(), KeyHolder::new());
    let push = |request: &AuthorizationRequest| {
        let parameters = request.clone().without("client_id").parameters;
        acme.post("/oauth2/par").fields(&parameters)
    };
    let proof = key.proof(&server, "POST", "/oauth2/par").sign();
    let named = acme.request().with("dpop_jkt", &other.thumbprint());
    let refusal = "400 invalid_dpop_proof: DPoP proof: it is not signed by the key of dpop_jkt";
    assert_eq!(push(&named).header("dpop", &proof).await.refusal(), refusal);
    let elsewhere = push(&acme.request()).header("dpop", &key.for_token(&server));
    assert_eq!(elsewhere.await.error(), "invalid_dpop_proof");
    let pushed = push(&acme.request()).header("dpop", &proof);
    let reply = pushed.clone().await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert_eq!(pushed.await.error(), "invalid_dpop_proof");
    let request = AuthorizationRequest::default()
        .with("client_id", "acme")
        .with("request_uri", reply.json()["request_uri"].as_str().unwrap());
    let code = alice.browser().authorize(&request).await.through().await.code();
    assert_eq!(acme.redeem(&code).await.refusal(), NO_PROOF);
    assert_eq!(
        proven(acme.redeem(&code), &other, &server).await.refusal(),
        OTHER_KEY
    );
    assert_bound(&proven(acme.redeem(&code), &key, &server).await.tokens(), &key);
}
