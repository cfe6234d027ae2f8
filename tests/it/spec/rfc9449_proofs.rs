//! RFC 9449 sections 4.3, 8 and 11.1: which proofs are accepted, and how often.

use idsvc::clock::Clock;
use idsvc::oauth::client::GrantType;
use idsvc::oauth::dpop::DpopNonce;
use idsvc::store::tables::USED_ASSERTIONS;
use serde_json::json;

use crate::harness::dpop::{KeyHolder, Proof};
use crate::harness::process::Service;
use crate::harness::{Audit, RelyingParty, Server, Tokens, scene, sweep_all};

const TOKEN: &str = "/oauth2/token";
const REPLAYED: &str = "400 invalid_dpop_proof: DPoP proof: it was used before";

/// A confidential client with a refresh token, and a key.
async fn refreshing() -> (Server, RelyingParty, Tokens, KeyHolder) {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    (server, acme, tokens, KeyHolder::new())
}

fn used(server: &Server) -> usize {
    let store = &server.app.core.store;
    let rows = store.read_blocking(|snapshot| USED_ASSERTIONS.scan(snapshot, .., 100));
    rows.unwrap().len()
}

/// Section 4.3: each of its points. The description says which one.
#[tokio::test]
async fn a_proof_that_is_not_for_this_request_is_refused_and_the_description_says_why() {
    let (server, acme, tokens, key) = refreshing().await;
    let proof = || key.proof(&server, "POST", TOKEN);
    let other = KeyHolder::new();
    let of_another_key = other.proof(&server, "POST", TOKEN).sign();
    let (header, _) = of_another_key.split_once('.').unwrap();
    let good = proof().sign();
    let (_, rest) = good.split_once('.').unwrap();
    let now = server.clock.now().seconds();
    let cases: [(String, &str); 16] = [
        (proof().with("htm", "GET").sign(), "htm must be POST"),
        (
            proof().with("htu", "https://id.example.test/v4/tokens").sign(),
            "htu must be https://id.example.test/oauth2/token",
        ),
        (
            proof()
                .with("htu", "https://other.example.test/oauth2/token")
                .sign(),
            "htu must be https://id.example.test/oauth2/token",
        ),
        (
            proof()
                .with("htu", "https://id.example.test/oauth2/token/")
                .sign(),
            "htu must be https://id.example.test/oauth2/token",
        ),
        (
            proof().with("iat", now + 11).sign(),
            "iat is more than 10 s after the time of the service",
        ),
        (
            proof().with("iat", now - 61).sign(),
            "iat is more than 60 s before the time of the service",
        ),
        (
            proof().with("iat", json!(null)).sign(),
            "a claim is missing or malformed: jti, htm, htu, ath and nonce are text; iat, exp and nbf are seconds",
        ),
        (
            proof().with("jti", "").sign(),
            "jti must have 1 to 255 characters",
        ),
        (
            proof().with_header("typ", "at+jwt").sign(),
            "typ must be dpop+jwt",
        ),
        (
            proof().with_header("alg", "none").sign(),
            "alg must be one of RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA Ed25519",
        ),
        (
            proof().with_header("alg", "HS256").sign(),
            "alg must be one of RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 EdDSA Ed25519",
        ),
        (
            proof().with_key_member("d", "AAAA").sign(),
            "jwk: key is a private key: give the public one only, and replace this one if it has been published",
        ),
        (
            proof()
                .with_header("jwk", json!({ "kty": "oct", "k": "AAAA" }))
                .sign(),
            "jwk: key is neither RSA nor P-256, P-384 or Ed25519",
        ),
        (
            format!("{header}.{rest}"),
            "the signature is not by the key in jwk",
        ),
        ("x".to_owned(), "token is not three parts separated by dots"),
        ("a".repeat(10_000), "token is not three parts separated by dots"),
    ];
    for (proof, problem) in cases {
        let reply = acme.refresh(tokens.refresh_token()).header("dpop", &proof).await;
        assert_eq!(
            reply.refusal(),
            format!("400 invalid_dpop_proof: DPoP proof: {problem}")
        );
    }
    let twice = acme
        .refresh(tokens.refresh_token())
        .header("dpop", &proof().sign())
        .header("dpop", &proof().sign());
    let refusal = "400 invalid_dpop_proof: the request has more than one DPoP header";
    assert_eq!(twice.await.refusal(), refusal);
    assert_eq!(used(&server), 0);
    acme.refresh(tokens.refresh_token())
        .header("dpop", &good)
        .await
        .tokens();
}

/// Section 4.3: the clocks may differ by ten seconds, and query and fragment of `htu` do not count.
#[tokio::test]
async fn a_proof_is_good_for_a_minute_and_ten_seconds_ahead_at_any_spelling_of_the_address() {
    let (server, acme, tokens, key) = refreshing().await;
    let now = server.clock.now().seconds();
    let proof = || key.proof(&server, "POST", TOKEN);
    let mut token = tokens.refresh_token().to_owned();
    for proof in [
        proof().with("iat", now - 60),
        proof().with("iat", now + 10),
        proof().with("htu", "HTTPS://ID.example.test:443/oauth2/token?a=b#c"),
        proof().with("htu", "https://id.example.test/oauth2/%74oken"),
        proof().with("jti", "j".repeat(255)),
        proof().with("anything", json!({ "else": 1 })),
    ] {
        let next = acme.refresh(&token).header("dpop", &proof.sign()).await.tokens();
        next.refresh_token().clone_into(&mut token);
    }
}

/// Section 11.1: a proof is accepted once. Its use is remembered as long as the proof is valid.
#[tokio::test]
async fn a_proof_counts_once_and_its_use_is_remembered_for_its_life() {
    let (server, acme, tokens, key) = refreshing().await;
    let (proof, audit) = (key.for_token(&server), Audit::listen());
    let next = acme
        .refresh(tokens.refresh_token())
        .header("dpop", &proof)
        .await
        .tokens();
    server.advance(60);
    sweep_all(&server).await;
    for token in [&tokens, &next] {
        let again = acme.refresh(token.refresh_token()).header("dpop", &proof).await;
        assert_eq!(again.refusal(), REPLAYED);
    }
    assert_eq!(used(&server), 1);
    let events = audit.take(&["proof_replayed"]);
    assert_eq!(events.len(), 2);
    assert_eq!(events[0]["client_id"], "acme");
    let fresh = key.for_token(&server);
    acme.refresh(next.refresh_token())
        .header("dpop", &fresh)
        .await
        .tokens();
    server.advance(2 * 3600);
    sweep_all(&server).await;
    assert_eq!(used(&server), 0);
}

/// A stranger who gets nothing stores nothing.
#[tokio::test]
async fn a_proof_beside_an_invalid_grant_is_not_recorded() {
    let (server, acme, tokens, key) = refreshing().await;
    let proof = key.for_token(&server);
    for call in [acme.refresh("idsvc_rt_x"), acme.redeem("idsvc_ac_x")] {
        assert_eq!(call.header("dpop", &proof).await.error(), "invalid_grant");
    }
    let narrow = acme.refresh(tokens.refresh_token()).with("scope", "notes.write");
    assert_eq!(narrow.header("dpop", &proof).await.error(), "invalid_scope");
    assert_eq!(used(&server), 0);
    acme.refresh(tokens.refresh_token())
        .header("dpop", &proof)
        .await
        .tokens();
    assert_eq!(used(&server), 1);
}

/// A recorded request that is sent again is refused. It does not end the family, although its refresh token was replaced.
#[tokio::test]
async fn a_stolen_request_ends_no_family() {
    let (server, acme, alice) = scene().await;
    let key = KeyHolder::new();
    let code = acme.code(&alice.browser()).await;
    let redeem = acme.redeem(&code).header("dpop", &key.for_token(&server));
    let first = redeem.clone().await.tokens();
    let refresh = acme
        .refresh(first.refresh_token())
        .header("dpop", &key.for_token(&server));
    let second = refresh.clone().await.tokens();
    let third = acme
        .refresh(second.refresh_token())
        .header("dpop", &key.for_token(&server));
    let third = third.await.tokens();
    assert_eq!(redeem.await.refusal(), REPLAYED);
    assert_eq!(refresh.await.refusal(), REPLAYED);
    acme.refresh(third.refresh_token()).await.tokens();
}

/// Of many requests with one proof, one is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proof_that_is_sent_by_many_at_once_counts_once() {
    let server = Server::start().await;
    let robot = acting_for_itself(&server).await;
    let key = KeyHolder::new();
    let proof = key.for_token(&server);
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let call = robot
            .post(TOKEN)
            .with("grant_type", "client_credentials")
            .header("dpop", &proof);
        requests.spawn(call.into_future());
    }
    let replies = requests.join_all().await;
    let granted = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(granted, 1);
    for refused in replies.iter().filter(|reply| reply.status != 200) {
        assert_eq!(refused.refusal(), REPLAYED);
    }
}

async fn acting_for_itself(server: &Server) -> RelyingParty {
    server
        .client_with("robot", |client| {
            client.grant_types.insert(GrantType::ClientCredentials);
            client.max_scope = Some("notes.read".parse().unwrap());
            client.default_scope = "notes.read".parse().unwrap();
        })
        .await
}

/// The executable, killed between two requests with the same proof.
#[test]
fn a_used_proof_stays_used_through_a_kill() {
    let service = Service::new();
    let add = "client add robot --grant client_credentials --scope notes.read --allow-secret-credentials \
               --max-scope notes.read --require-dpop --json";
    let added = service.json(&add.split_whitespace().collect::<Vec<_>>());
    assert_eq!(added["dpop_bound_access_tokens"], true);
    let form = [
        ("grant_type", "client_credentials"),
        ("scope", "notes.read"),
        ("client_id", "robot"),
        ("client_secret", added["client_secret"].as_str().unwrap()),
    ];
    let form = form.map(|(name, value)| (name, value.to_owned()));
    let key = KeyHolder::new();
    let url = format!("{}{TOKEN}", service.issuer());
    let mut running = service.serve();
    let now = Clock::System.now();
    let proof = key.proof_at("POST", &url, now).sign();
    let ask = |running: &crate::harness::process::Running<'_>, headers: &[(&str, &str)]| {
        let form: Vec<_> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
        running.post_form(TOKEN, headers, &form).unwrap()
    };
    let without = ask(&running, &[]);
    assert_eq!(without.json()["error"], "invalid_dpop_proof");
    let first = ask(&running, &[("DPoP", &proof)]);
    assert_eq!((first.status, &first.json()["token_type"]), (200, &json!("DPoP")));
    running.kill();
    let running = service.serve();
    let again = ask(&running, &[("DPoP", &proof)]);
    assert_eq!(again.status, 400);
    assert_eq!(
        again.json()["error_description"],
        "DPoP proof: it was used before"
    );
    let fresh = key.proof_at("POST", &url, Clock::System.now()).sign();
    assert_eq!(ask(&running, &[("DPoP", &fresh)]).status, 200);
}

/// Section 8: with `dpop.nonce` a proof needs a nonce of the last five minutes. Each answer brings another one.
#[tokio::test]
async fn a_required_nonce_costs_one_repeated_request() {
    let server = Server::start_with(|policy| policy.dpop_nonce = DpopNonce::Required).await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let tokens = acme.tokens(&alice.browser()).await;
    let key = KeyHolder::new();
    let proof = |path: &str, method: &str| key.proof(&server, method, path);
    let with = |proof: Proof<'_>, nonce: &str| proof.with("nonce", nonce).sign();
    let needed = "400 use_dpop_nonce: the nonce of the DPoP proof must be the one in the header DPoP-Nonce";
    let refresh = |token: &str, proof: &str| acme.refresh(token).header("dpop", proof);

    let first = refresh(tokens.refresh_token(), &key.for_token(&server)).await;
    assert_eq!(first.refusal(), needed);
    let nonce = first.header("dpop-nonce").unwrap().to_owned();
    let proof_with = with(proof(TOKEN, "POST"), &nonce);
    let granted = refresh(tokens.refresh_token(), &proof_with).await;
    let bound = granted.tokens();
    assert!(granted.header("dpop-nonce").is_some());
    for wrong in ["x", "", &nonce[1..]] {
        let refused = refresh(bound.refresh_token(), &with(proof(TOKEN, "POST"), wrong)).await;
        assert_eq!(refused.refusal(), needed);
    }
    server.advance(300);
    let still = refresh(bound.refresh_token(), &with(proof(TOKEN, "POST"), &nonce))
        .await
        .tokens();
    server.advance(1);
    let late = refresh(still.refresh_token(), &with(proof(TOKEN, "POST"), &nonce)).await;
    assert_eq!(late.refusal(), needed);

    let userinfo = |proof: &str| {
        let call = server.get("/oauth2/userinfo").header("dpop", proof);
        call.header("authorization", &format!("DPoP {}", still.access_token()))
    };
    let asked = userinfo(&key.for_userinfo(&server, still.access_token())).await;
    assert_eq!(asked.status, 401);
    assert!(asked.challenge().contains("error=\"use_dpop_nonce\""));
    let nonce = asked.header("dpop-nonce").unwrap().to_owned();
    let proof = proof("/oauth2/userinfo", "GET").of(still.access_token());
    assert_eq!(userinfo(&with(proof, &nonce)).await.status, 200);
    let bearer = acme.refresh(still.refresh_token()).await;
    assert_eq!(bearer.tokens().0["token_type"], "bearer");
    assert_eq!(bearer.header("dpop-nonce"), None);
}

/// Section 11.1: with a nonce, the time of the client does not count. The proof still counts once as long as its nonce
/// is accepted. Section 4.3: the address may be written in any way, at each endpoint.
#[tokio::test]
async fn with_a_nonce_a_client_needs_no_clock() {
    let server = Server::start_with(|policy| policy.dpop_nonce = DpopNonce::Required).await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let mut tokens = acme.tokens(&alice.browser()).await;
    let key = KeyHolder::new();
    let now = server.clock.now().seconds();
    let asked = acme
        .refresh(tokens.refresh_token())
        .header("dpop", &key.for_token(&server));
    let nonce = asked.await.header("dpop-nonce").unwrap().to_owned();
    let proof = |method: &str, path: &str| key.proof(&server, method, path).with("nonce", nonce.as_str());
    for iat in [now + 20, now + 120, now - 3600, 0, now + 86_400] {
        let proof = proof("POST", TOKEN).with("iat", iat).sign();
        let refresh = async |token: &str| acme.refresh(token).header("dpop", &proof).await;
        tokens = refresh(tokens.refresh_token()).await.tokens();
        assert_eq!(refresh(tokens.refresh_token()).await.refusal(), REPLAYED, "{iat}");
    }
    let first = proof("POST", TOKEN).with("iat", now - 3600).sign();
    tokens = acme
        .refresh(tokens.refresh_token())
        .header("dpop", &first)
        .await
        .tokens();
    server.advance(300);
    sweep_all(&server).await;
    let again = acme.refresh(tokens.refresh_token()).header("dpop", &first).await;
    assert_eq!(again.refusal(), REPLAYED);

    let push = proof("POST", "/oauth2/par")
        .with("iat", now - 7200)
        .with("htu", "https://ID.example.test:443/oauth2/p%61r");
    let pushed = acme
        .post("/oauth2/par")
        .fields(&acme.request().without("client_id").parameters);
    assert_eq!(pushed.header("dpop", &push.sign()).await.status, 201);
    let claims = proof("GET", "/oauth2/userinfo")
        .of(tokens.access_token())
        .with("iat", now + 7200)
        .with("htu", "https://id.example.test/oauth2/%75serinf%6F");
    let userinfo = server.get("/oauth2/userinfo").header("dpop", &claims.sign());
    let userinfo = userinfo.header("authorization", &format!("DPoP {}", tokens.access_token()));
    assert_eq!(userinfo.await.status, 200);
    server.advance(1);
    let late = proof("POST", TOKEN).sign();
    let late = acme.refresh(tokens.refresh_token()).header("dpop", &late).await;
    assert_eq!(late.error(), "use_dpop_nonce");
}

/// Nothing is truncated: `nonce` and `state` of 384 characters come back whole with a bound code.
#[tokio::test]
async fn long_values_of_a_request_survive_beside_a_key() {
    let (server, acme, alice) = scene().await;
    let key = KeyHolder::new();
    let long = "n".repeat(384);
    let request = acme
        .request()
        .with("nonce", &long)
        .with("state", &long)
        .with("dpop_jkt", &key.thumbprint());
    let callback = alice.browser().authorize(&request).await.through().await;
    assert_eq!(callback.get("state"), Some(long.as_str()));
    let redeem = acme
        .redeem(&callback.code())
        .header("dpop", &key.for_token(&server));
    let tokens = redeem.await.tokens();
    assert_eq!(tokens.id().claims["nonce"], long);
}
