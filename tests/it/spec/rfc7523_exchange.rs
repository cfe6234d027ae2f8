//! RFC 7523 section 2.1: a provider's ID token is exchanged for tokens of this service.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use idsvc::admin::provider::ProviderFields;
use idsvc::admin::user::{
    AddUser, ListUsers, NewPassword, RemoveUsers, ShowUser, UnlinkUser, UserFields, page,
};
use idsvc::federation::id_token::TokenProblem;
use idsvc::federation::provider::{AddressPolicy, LinkPolicy};
use idsvc::flow::token::jwt_bearer::{NOT_ACCEPTED, REPLAYED};
use idsvc::identity::{AuthenticationLevel, User};
use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwt;
use idsvc::jose::jwt::{JwtError, TimeError};
use idsvc::jose::keyring::SigningKey;
use idsvc::oauth::client::{Client, ConsentRequirement, GrantType};
use idsvc::random::Random;
use serde_json::{Value, json};

use crate::harness::dpop::KeyHolder;
use crate::harness::reply::line_of;
use crate::harness::sweep_all;
use crate::harness::wire::Call;
use crate::harness::{Audit, RelyingParty, START, Say, Server, Upstream};
use crate::people::{matching, never_signed_in};

const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// The audience that the provider's tokens are accepted for.
pub(super) const APP: &str = "https://app.example";

/// The line of the refusal of an assertion that has this problem.
pub(super) fn of_problem(problem: impl Into<TokenProblem>) -> String {
    format!("400 invalid_grant: assertion: {}", problem.into())
}

pub(super) struct Scene {
    pub(super) upstream: Upstream,
    pub(super) server: Server,
    pub(super) acme: RelyingParty,
}

fn exchanges(client: &mut Client) {
    client.grant_types.insert(GrantType::JwtBearer);
    client.providers.insert("up".to_owned());
}

fn trusting(upstream: &Upstream) -> ProviderFields {
    ProviderFields {
        issuer: Some(upstream.issuer.clone()),
        audiences: Some(vec![APP.to_owned()]),
        exchange: Some(true),
        create_users: Some(true),
        addresses: Some(AddressPolicy::Verified),
        ..ProviderFields::default()
    }
}

async fn scene() -> Scene {
    scene_with(|_| {}).await
}

pub(super) async fn scene_with(change: impl FnOnce(&mut ProviderFields)) -> Scene {
    let upstream = Upstream::start().await;
    let server = Server::start_reaching(&upstream.terms(), |_| {}).await;
    let mut fields = trusting(&upstream);
    change(&mut fields);
    server.provider("up", fields).await;
    let acme = server.client_with("acme", exchanges).await;
    Scene {
        upstream,
        server,
        acme,
    }
}

impl Scene {
    /// Another provider, that the client takes tokens of as well.
    async fn second_provider(&self) -> Upstream {
        let second = Upstream::start_other().await;
        self.server.provider("second", trusting(&second)).await;
        self.server
            .change_client(&self.acme, |client| {
                client.providers.insert("second".to_owned());
            })
            .await;
        second
    }

    pub(super) fn exchange(&self, assertion: &str) -> Call {
        self.acme
            .post("/oauth2/token")
            .with("grant_type", GRANT)
            .with("assertion", assertion)
    }

    /// The provider's usual claims with some changed; null removes one.
    pub(super) fn token(&self, changes: &Value) -> String {
        self.upstream.sign(&self.claims(changes))
    }

    fn claims(&self, changes: &Value) -> Value {
        let mut claims = self.upstream.claims(APP, "u-1");
        for (name, value) in changes.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else {
                claims[name] = value.clone();
            }
        }
        claims
    }

    async fn refusal(&self, changes: Value) -> String {
        self.exchange(&self.token(&changes)).await.refusal()
    }
}

fn uuid(tokens: &crate::harness::Tokens) -> String {
    tokens.0["uuid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_user_whose_token_was_exchanged_is_not_among_those_who_never_signed_in() {
    let scene = scene().await;
    let bob = scene.server.user("bob").await;
    let tokens = scene.exchange(&scene.token(&json!({}))).await.tokens();
    assert_eq!(matching(&scene.server, never_signed_in()), ["bob"]);
    scene.server.advance(365 * 24 * 60 * 60);
    sweep_all(&scene.server).await;
    assert_eq!(matching(&scene.server, never_signed_in()), ["bob"]);
    let removal = RemoveUsers {
        users: vec![uuid(&tokens).parse().unwrap(), bob.user.uuid],
        filter: never_signed_in(),
        removed_before: 0,
        is_last: true,
    };
    let removed = scene.server.admin().call(removal).await.unwrap();
    assert_eq!(removed.removed, 1, "Bob alone");
    let who = uuid(&tokens);
    scene.server.admin().call(ShowUser { who }).await.unwrap();
}

/// RFC 9449 section 5.
#[tokio::test]
async fn an_exchange_with_a_dpop_proof_binds_the_access_token() {
    let (scene, key) = (scene().await, KeyHolder::new());
    let exchange = scene.exchange(&scene.token(&json!({"jti": "1"})));
    let proof = key.for_token(&scene.server);
    let tokens = exchange.header("dpop", &proof).await.tokens();
    assert_eq!(tokens.0["token_type"], "DPoP");
    assert_eq!(tokens.access().claims["cnf"], json!({ "jkt": key.thumbprint() }));
    let another = scene.exchange(&scene.token(&json!({"jti": "2"})));
    assert_eq!(
        another.clone().header("dpop", &proof).await.error(),
        "invalid_dpop_proof"
    );
    another.await.tokens();
}

#[tokio::test]
async fn a_providers_token_brings_tokens_of_a_user() {
    let scene = scene().await;
    let token = scene.token(&json!({
        "email": "ann@up.example", "email_verified": true, "name": "Ann Up", "auth_time": START.seconds() - 60,
    }));
    let tokens = scene.exchange(&token).await.tokens();
    let shown = |name: &str| tokens.0[name].clone();
    assert_eq!(shown("account_id"), "ann@up.example");
    assert_eq!(shown("email"), "ann@up.example");
    assert_eq!(shown("source"), "up");
    assert_eq!(shown("user_type"), "user");
    assert_eq!(shown("amr"), json!([{"authority": "up"}]));
    assert_eq!(shown("scope"), "openid notes.read authenticated");
    let access = scene.acme.verify(tokens.access_token()).await.claims;
    assert_eq!(access["amr"], json!([{"authority": "up"}]));
    assert_eq!(access["auth_time"], START.seconds() - 60);
    let id = scene.acme.verify(tokens.id_token()).await.claims;
    assert_eq!((&id["amr"], &id["sub"]), (&json!(["fed"]), &access["sub"]));
    let again = scene.acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(again.0["amr"], json!([{"authority": "up"}]));
    let later = scene.token(&json!({"name": "Ann Later"}));
    let later = scene.exchange(&later).await.tokens();
    assert_eq!(uuid(&later), uuid(&tokens), "the same person is the same user");
    let user = scene
        .server
        .admin()
        .call(ShowUser { who: uuid(&tokens) })
        .await
        .unwrap();
    assert_eq!(
        user.claims["name"], "Ann Later",
        "what the provider says anew is taken over"
    );
    assert_eq!(
        user.email.as_deref(),
        Some("ann@up.example"),
        "and what it leaves out stays"
    );
}

#[tokio::test]
async fn a_form_json_and_a_second_base64_are_taken_alike() {
    let scene = scene().await;
    let token = scene.token(&json!({}));
    let first = uuid(&scene.exchange(&token).await.tokens());
    for encoded in [STANDARD.encode(&token), URL_SAFE_NO_PAD.encode(&token)] {
        assert_eq!(uuid(&scene.exchange(&encoded).await.tokens()), first);
    }
    let body = json!({"grant_type": GRANT, "assertion": token, "scope": "notes.read"}).to_string();
    let tokens = scene.acme.post("/oauth2/token").body("application/json", body);
    let tokens = tokens.await.tokens();
    assert_eq!(
        (uuid(&tokens), tokens.scope()),
        (first, vec!["notes.read", "authenticated"])
    );
    assert!(tokens.0.get("id_token").is_none());
}

#[tokio::test]
async fn whoever_has_no_address_is_known_by_provider_and_subject() {
    let scene = scene().await;
    let tokens = scene.exchange(&scene.token(&json!({}))).await.tokens();
    assert_eq!(
        (&tokens.0["account_id"], &tokens.0["email"]),
        (&json!("up:u-1"), &json!(""))
    );
    let unverified = json!({"sub": "u-2", "email": "bob@up.example"});
    let tokens = scene.exchange(&scene.token(&unverified)).await.tokens();
    assert_eq!(
        tokens.0["account_id"], "up:u-2",
        "an unverified address names no account"
    );
    assert_eq!(tokens.0["email"], "");
    let upper = scene
        .exchange(&scene.token(&json!({"sub": "U-2"})))
        .await
        .tokens();
    assert_eq!(
        upper.0["account_id"], upper.0["uuid"],
        "subjects that differ in case are two people"
    );
}

/// A provider can write any address into its tokens.
#[tokio::test]
async fn an_address_is_given_only_if_its_provider_vouches_for_it() {
    let scene = scene_with(|fields| fields.addresses = None).await;
    let claims = json!({"email": "boss@example.com", "email_verified": true});
    let tokens = scene.exchange(&scene.token(&claims)).await.tokens();
    let access = scene.acme.verify(tokens.access_token()).await.claims;
    for said in [&tokens.0, &access] {
        assert_eq!(
            (&said["account_id"], &said["email"], &said["email_verified"]),
            (&json!("up:u-1"), &json!(""), &json!(false))
        );
    }
    let boss = AddUser {
        email: "boss@example.com".to_owned(),
        password: NewPassword::Generated,
        fields: UserFields::default(),
    };
    scene.server.admin().call(boss).await.unwrap();

    let fields = |fields: &mut ProviderFields| fields.domains = Some(vec!["up.example".to_owned()]);
    let scene = scene_with(fields).await;
    let given = async |subject: &str, email: &str| {
        let claims = json!({"sub": subject, "email": email, "email_verified": true});
        let tokens = scene.exchange(&scene.token(&claims)).await.tokens();
        (tokens.0["email"].clone(), tokens.0["email_verified"].clone())
    };
    assert_eq!(given("u-1", "boss@example.com").await, (json!(""), json!(false)));
    assert_eq!(
        given("u-2", "ann@UP.example").await,
        (json!("ann@UP.example"), json!(true))
    );
}

#[tokio::test]
async fn what_the_token_says_is_checked_in_full() {
    let scene = scene().await;
    let now = START.seconds();
    for (changes, problem) in [
        (json!({"aud": "https://other.example"}), TokenProblem::Audience),
        (json!({"aud": []}), TokenProblem::Audience),
        (json!({"aud": null}), JwtError::Claims.into()),
        (
            json!({"aud": [APP, "https://other.example"]}),
            TokenProblem::AuthorizedParty,
        ),
        (
            json!({"aud": [APP, "x"], "azp": "x"}),
            TokenProblem::AuthorizedParty,
        ),
        (json!({"sub": ""}), TokenProblem::Subject),
        (json!({"sub": "x".repeat(256)}), TokenProblem::Subject),
        (json!({"sub": "ü"}), TokenProblem::Subject),
        (json!({"sub": "a\nb"}), TokenProblem::Subject),
        (json!({"sub": 7}), JwtError::Claims.into()),
        (json!({"exp": now - 31}), TimeError::Expired.into()),
        (json!({"exp": null}), JwtError::Claims.into()),
        (json!({"iat": null}), JwtError::Claims.into()),
        (json!({"iat": now + 31}), TimeError::IssuedInFuture.into()),
        (json!({"nbf": now + 31}), TimeError::NotYetValid.into()),
        (json!({"iat": now - 3631}), TokenProblem::TooOld),
        (
            json!({"events": {"http://schemas.openid.net/event/backchannel-logout": {}}, "sid": "s"}),
            TokenProblem::Event,
        ),
    ] {
        let refusal = scene.refusal(changes.clone()).await;
        assert_eq!(refusal, of_problem(problem), "{changes}");
    }
    let foreign = json!({"iss": "https://other.example"});
    assert_eq!(scene.refusal(foreign).await, line_of(&NOT_ACCEPTED));
    let nameless = scene.token(&json!({"iss": null}));
    assert_eq!(scene.exchange(&nameless).await.error(), "invalid_grant");
    let tolerated = json!({"exp": now - 29, "iat": now + 29, "nbf": now + 29});
    scene.exchange(&scene.token(&tolerated)).await.tokens();
    let several = json!({"aud": [APP, "x"], "azp": APP});
    scene.exchange(&scene.token(&several)).await.tokens();
}

#[tokio::test]
async fn the_record_pins_the_algorithm_and_the_key() {
    let scene = scene().await;
    let claims = scene.claims(&json!({}));
    let (header, payload) = (
        |header: Value| URL_SAFE_NO_PAD.encode(header.to_string()),
        URL_SAFE_NO_PAD.encode(claims.to_string()),
    );
    let none = format!("{}.{payload}.", header(json!({"alg": "none"})));
    let pem = scene.upstream.key().public().to_jwk().to_string();
    let hmac = {
        let input = format!("{}.{payload}", header(json!({"alg": "HS256"})));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, pem.as_bytes());
        let tag = ring::hmac::sign(&key, input.as_bytes());
        format!("{input}.{}", URL_SAFE_NO_PAD.encode(tag))
    };
    for forged in [none, hmac] {
        assert_eq!(
            scene.exchange(&forged).await.refusal(),
            of_problem(JwtError::Algorithm)
        );
    }
    let es256 = SigningKey::generate_es256(&Random::system()).unwrap();
    scene.upstream.publish(&[scene.upstream.key(), &es256]);
    assert_eq!(
        scene
            .exchange(&jwt::sign(&es256, "JWT", &claims).unwrap())
            .await
            .refusal(),
        of_problem(JwtError::Algorithm),
        "published, but not in the record"
    );
    let stranger = jwt::sign(scene.upstream.next_key(), "JWT", &claims).unwrap();
    assert_eq!(
        scene.exchange(&stranger).await.refusal(),
        of_problem(JwtError::UnknownKey)
    );
    let access_token = jwt::sign(scene.upstream.key(), "at+jwt", &claims).unwrap();
    assert_eq!(
        scene.exchange(&access_token).await.refusal(),
        of_problem(JwtError::Typ)
    );
    let mut tampered = scene.token(&json!({}));
    tampered.truncate(tampered.len() - 4);
    tampered.push_str("AAAA");
    assert_eq!(
        scene.exchange(&tampered).await.refusal(),
        of_problem(JwtError::Signature)
    );
}

#[tokio::test]
async fn a_key_that_is_new_at_the_provider_is_fetched_at_most_once_a_minute() {
    let scene = scene().await;
    scene.exchange(&scene.token(&json!({}))).await.tokens();
    let next = jwt::sign(scene.upstream.next_key(), "JWT", &scene.claims(&json!({}))).unwrap();
    for _ in 0..5 {
        scene.exchange(&next).await.refusal();
    }
    assert_eq!(scene.upstream.seen("/jwks").len(), 1);
    scene
        .upstream
        .publish(&[scene.upstream.key(), scene.upstream.next_key()]);
    scene.server.advance(60);
    scene.exchange(&next).await.tokens();
    for _ in 0..5 {
        scene.exchange(&next).await.tokens();
    }
    assert_eq!(scene.upstream.seen("/jwks").len(), 2);
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_is_no_fault_of_the_client() {
    let audit = Audit::listen();
    let scene = scene().await;
    scene.upstream.say(
        "/jwks",
        Say::Raw(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n".to_vec()),
    );
    let reply = scene.exchange(&scene.token(&json!({}))).await;
    assert_eq!(reply.header("retry-after"), Some("2"));
    assert_eq!(reply.error(), "temporarily_unavailable");
    scene.exchange(&scene.token(&json!({}))).await.refusal();
    assert_eq!(audit.warnings_of("answers with status 500"), 1);
    scene.upstream.publish(&[scene.upstream.key()]);
    scene.server.advance(5);
    scene.exchange(&scene.token(&json!({}))).await.tokens();
    scene.upstream.say("/jwks", Say::Nothing);
    scene.server.advance(1800);
    scene.exchange(&scene.token(&json!({}))).await.tokens();
}

#[tokio::test]
async fn a_jti_counts_once() {
    let scene = scene().await;
    let token = scene.token(&json!({"jti": "once"}));
    scene.exchange(&token).await.tokens();
    assert_eq!(scene.exchange(&token).await.refusal(), line_of(&REPLAYED));
    let both = [
        scene.token(&json!({"jti": "two"})),
        scene.token(&json!({"jti": "two"})),
    ];
    let (one, other) = tokio::join!(scene.exchange(&both[0]), scene.exchange(&both[1]));
    let statuses = [one.status, other.status];
    assert!(statuses == [200, 400] || statuses == [400, 200], "{statuses:?}");
}

#[tokio::test]
async fn only_providers_of_the_client_that_are_in_service_count() {
    let scene = scene().await;
    let token = scene.token(&json!({}));
    let other = scene
        .server
        .client_with("other", |client| {
            client.grant_types.insert(GrantType::JwtBearer);
            client.providers.clear();
        })
        .await;
    let ask = |party: &RelyingParty| {
        party
            .post("/oauth2/token")
            .with("grant_type", GRANT)
            .with("assertion", &token)
    };
    assert_eq!(ask(&other).await.refusal(), line_of(&NOT_ACCEPTED));
    let change = |exchange, enabled| {
        let fields = ProviderFields {
            exchange,
            enabled,
            client_id: Some("idsvc".to_owned()),
            ..ProviderFields::default()
        };
        scene.server.change_provider("up", fields)
    };
    change(Some(false), None).await;
    assert_eq!(ask(&scene.acme).await.refusal(), line_of(&NOT_ACCEPTED));
    change(Some(true), None).await;
    let tokens = ask(&scene.acme).await.tokens();
    change(None, Some(false)).await;
    assert_eq!(ask(&scene.acme).await.refusal(), line_of(&NOT_ACCEPTED));
    assert_eq!(
        scene.acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
    change(None, Some(true)).await;
    scene.acme.refresh(tokens.refresh_token()).await.tokens();
    let public = scene.server.public_client("public").await;
    scene.server.change_client(&public, exchanges).await;
    assert_eq!(ask(&public).await.error(), "unauthorized_client");
}

#[tokio::test]
async fn somebody_unknown_stays_outside_unless_the_provider_may_bring_users() {
    let scene = scene_with(|fields| fields.create_users = Some(false)).await;
    assert_eq!(
        scene.exchange(&scene.token(&json!({}))).await.error(),
        "invalid_grant"
    );
    let shown = page(scene.server.admin(), &ListUsers::default()).unwrap().records;
    assert!(shown.is_empty());
}

#[tokio::test]
async fn accounts_are_linked_by_addresses_verified_on_both_sides_only() {
    let scene = scene_with(|fields| fields.link = Some(LinkPolicy::VerifiedEmail)).await;
    let alice = scene.server.user("alice").await;
    let known = |sub: &str, email: &str, verified: bool| {
        scene.token(&json!({"sub": sub, "email": email, "email_verified": verified}))
    };
    let unverified = scene
        .exchange(&known("a", "alice@example.com", false))
        .await
        .tokens();
    assert_ne!(uuid(&unverified), alice.sub());
    let kelvin = scene.server.user("mike").await;
    let lookalike = scene
        .exchange(&known("m", "mi\u{212a}e@example.com", true))
        .await
        .tokens();
    assert_ne!(
        uuid(&lookalike),
        kelvin.sub(),
        "letters that only fold together are others"
    );
    let bob = scene
        .server
        .user_with("bob", |bob| bob.email_verified = false)
        .await;
    let taken = scene
        .exchange(&known("b", "bob@example.com", true))
        .await
        .tokens();
    assert_ne!(uuid(&taken), bob.sub(), "the address here was never verified");
    assert_eq!(taken.0["account_id"], "up:b");
    let linked = scene
        .exchange(&known("c", "Alice@Example.com", true))
        .await
        .tokens();
    assert_eq!(uuid(&linked), alice.sub());
    assert_eq!(
        (&linked.0["source"], &linked.0["amr"]),
        (&json!("LOCAL"), &json!([{"authority": "up"}]))
    );
    let user = scene
        .server
        .admin()
        .call(ShowUser { who: alice.sub() })
        .await
        .unwrap();
    assert_eq!(
        user.claims["name"], "alice Example",
        "the provider does not speak over the operator"
    );
    assert_eq!(user.identities.len(), 1);
    let request = || UnlinkUser {
        who: alice.sub(),
        provider: "up".to_owned(),
    };
    scene.server.admin().call(request()).await.unwrap();
    assert_eq!(
        scene.acme.refresh(linked.refresh_token()).await.error(),
        "invalid_grant"
    );
    assert!(scene.server.admin().call(request()).await.is_err());
}

#[tokio::test]
async fn an_address_that_passes_on_takes_no_account_along() {
    let scene = scene_with(|fields| fields.link = Some(LinkPolicy::VerifiedEmail)).await;
    let alice = scene.server.user("alice").await;
    let holder =
        |sub: &str, email: &str| scene.token(&json!({"sub": sub, "email": email, "email_verified": true}));
    let linked = scene.exchange(&holder("1", "alice@example.com")).await.tokens();
    assert_eq!(uuid(&linked), alice.sub());
    let heir = scene.exchange(&holder("2", "alice@example.com")).await.tokens();
    assert_ne!(uuid(&heir), alice.sub());
    assert_eq!(heir.0["account_id"], "up:2");
    let brought = scene.exchange(&holder("3", "carol@up.example")).await.tokens();
    let heir = scene.exchange(&holder("4", "carol@up.example")).await.tokens();
    assert_ne!(uuid(&brought), uuid(&heir));
    let request = UnlinkUser {
        who: alice.sub(),
        provider: "up".to_owned(),
    };
    scene.server.admin().call(request).await.unwrap();
    let anew = scene.exchange(&holder("5", "alice@example.com")).await.tokens();
    assert_eq!(uuid(&anew), alice.sub(), "the operator has said that it may be");
}

#[tokio::test]
async fn a_disabled_user_comes_in_by_no_other_door() {
    let scene = scene_with(|fields| fields.link = Some(LinkPolicy::VerifiedEmail)).await;
    let alice = scene
        .server
        .user_with("alice", |alice| alice.enabled = false)
        .await;
    let token = scene.token(&json!({"email": "alice@example.com", "email_verified": true}));
    assert_eq!(scene.exchange(&token).await.error(), "invalid_grant");
    scene
        .server
        .change_user(&alice, |alice| alice.enabled = true)
        .await;
    scene.exchange(&token).await.tokens();
    scene
        .server
        .change_user(&alice, |alice| alice.enabled = false)
        .await;
    assert_eq!(scene.exchange(&token).await.error(), "invalid_grant");
}

#[tokio::test]
async fn two_providers_with_the_same_subject_are_two_users() {
    let scene = scene().await;
    let second = scene.second_provider().await;
    let one = scene.exchange(&scene.token(&json!({}))).await.tokens();
    let other = scene
        .exchange(&second.sign(&second.claims(APP, "u-1")))
        .await
        .tokens();
    assert_ne!(uuid(&one), uuid(&other));
    let claims_of_the_first = second.sign(&scene.upstream.claims(APP, "u-1"));
    assert_eq!(
        scene.exchange(&claims_of_the_first).await.refusal(),
        of_problem(JwtError::UnknownKey)
    );
}

/// A token is good for half a minute more than it says, and its `jti` is remembered for as long.
#[tokio::test]
async fn a_jti_counts_once_to_the_end() {
    let scene = scene().await;
    scene.server.advance(3_580);
    let token = scene.token(&json!({"jti": "once", "exp": START.seconds() + 3_590}));
    scene.exchange(&token).await.tokens();
    scene.server.advance(25);
    sweep_all(&scene.server).await;
    assert_eq!(scene.exchange(&token).await.refusal(), line_of(&REPLAYED));
}

/// RFC 7519 section 4.1.7: each issuer has its own `jti`.
#[tokio::test]
async fn a_jti_of_one_provider_uses_up_none_of_another() {
    let scene = scene().await;
    let second = scene.second_provider().await;
    let mut claims = second.claims(APP, "u-1");
    claims["jti"] = "same".into();
    scene
        .exchange(&scene.token(&json!({"jti": "same"})))
        .await
        .tokens();
    scene.exchange(&second.sign(&claims)).await.tokens();
}

#[tokio::test]
async fn consent_is_needed_where_the_client_asks_for_it() {
    let scene = scene().await;
    scene
        .server
        .change_client(&scene.acme, |client| client.consent = ConsentRequirement::Require)
        .await;
    assert_eq!(
        scene.exchange(&scene.token(&json!({}))).await.error(),
        "invalid_grant"
    );
}

#[tokio::test]
async fn hostile_forms_are_refused_without_a_request_to_anybody() {
    let scene = scene().await;
    for (assertion, expected) in [
        (String::new(), "invalid_request"),
        ("a.b.c".to_owned(), "invalid_grant"),
        ("A".repeat(40_000), "invalid_grant"),
        (STANDARD.encode([0xff; 64]), "invalid_grant"),
        (format!("{}.{}.x", "e30", "e".repeat(20_000)), "invalid_grant"),
    ] {
        assert_eq!(scene.exchange(&assertion).await.error(), expected);
    }
    let deep = format!(
        r#"{{"iss":"{}","x":{}1{}}}"#,
        scene.upstream.issuer,
        "[".repeat(500),
        "]".repeat(500)
    );
    let twice = format!(r#"{{"iss":"{0}","iss":"{0}"}}"#, scene.upstream.issuer);
    for payload in [deep, twice] {
        let token = format!(
            "{}.{}.AAAA",
            URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256"}"#),
            URL_SAFE_NO_PAD.encode(payload)
        );
        assert_eq!(scene.exchange(&token).await.error(), "invalid_grant");
    }
    assert!(scene.upstream.seen("/jwks").is_empty());
    assert_eq!(
        scene
            .acme
            .post("/oauth2/token")
            .with("grant_type", GRANT)
            .with("assertion", &scene.token(&json!({})))
            .with("scope", "anonymous")
            .await
            .error(),
        "invalid_scope"
    );
}

#[tokio::test]
async fn keys_from_a_file_need_no_network() {
    let upstream = Upstream::start().await;
    let server = Server::start().await;
    let fields = ProviderFields {
        keys: Some(vec![upstream.key().public().to_jwk()]),
        algs: Some(vec![Algorithm::Rs256]),
        ..trusting(&upstream)
    };
    server.provider("up", fields).await;
    let acme = server.client_with("acme", exchanges).await;
    let token = upstream.sign(&upstream.claims(APP, "u-1"));
    let call = acme
        .post("/oauth2/token")
        .with("grant_type", GRANT)
        .with("assertion", &token);
    call.await.tokens();
    assert!(upstream.seen("/jwks").is_empty());
}

#[tokio::test]
async fn a_provider_that_may_not_vouch_prepares_no_account_for_another_to_link_to() {
    let scene = scene_with(|fields| fields.link = Some(LinkPolicy::VerifiedEmail)).await;
    let sly = Upstream::start_other().await;
    let fields = ProviderFields {
        addresses: None,
        ..trusting(&sly)
    };
    scene.server.provider("sly", fields).await;
    scene
        .server
        .change_client(&scene.acme, |client| {
            client.providers.insert("sly".to_owned());
        })
        .await;
    let mut claims = sly.claims(APP, "waiting");
    claims["email"] = "victim@example.com".into();
    claims["email_verified"] = true.into();
    let prepared = scene.exchange(&sly.sign(&claims)).await.tokens();
    let token = scene.token(&json!({"email": "victim@example.com", "email_verified": true}));
    let victim = scene.exchange(&token).await.tokens();
    assert_ne!(uuid(&prepared), uuid(&victim));
}

/// `client --acr`: the provider says how many factors the user had.
#[tokio::test]
async fn an_id_token_brings_no_tokens_below_the_level_that_the_client_demands() {
    let scene = scene_with(|fields| fields.mfa_amr = Some(vec!["mfa".to_owned()])).await;
    let one = scene.exchange(&scene.token(&json!({"jti": "1"}))).await.tokens();
    assert_eq!(one.access().claims["acr"], "1");
    let demand = async |level| {
        scene
            .server
            .change_client(&scene.acme, |client| client.acr = Some(level))
            .await;
    };
    demand(AuthenticationLevel::TwoFactors).await;
    assert_eq!(
        scene.refusal(json!({"jti": "2", "amr": ["pwd"]})).await,
        "400 invalid_grant: the user signed in with fewer factors than this client demands"
    );
    let two = json!({"jti": "3", "amr": ["pwd", "mfa"]});
    let tokens = scene.exchange(&scene.token(&two)).await.tokens();
    assert_eq!(tokens.access().claims["acr"], "2");
    demand(AuthenticationLevel::PhishingResistant).await;
    let refused = scene
        .exchange(&scene.token(&json!({"jti": "4", "amr": ["mfa"]})))
        .await;
    assert_eq!(refused.error(), "invalid_grant");
}

/// The provider's word is the first proof of the address.
#[tokio::test]
async fn an_id_token_that_proves_the_address_of_an_unproven_holder_ends_what_that_person_has() {
    let scene = scene_with(|fields| fields.link = Some(LinkPolicy::VerifiedEmail)).await;
    let unproven = |user: &mut User| {
        user.email_verified = false;
        user.unproven_holder = true;
    };
    let bob = scene.server.user_with("bob", unproven).await;
    let theirs = scene.acme.tokens(&bob.browser()).await;
    let token = |jti: &str| {
        scene.token(&json!({
            "jti": jti, "sub": "b", "email": "bob@example.com", "email_verified": true,
        }))
    };
    let owned = scene.exchange(&token("1")).await.tokens();
    assert_eq!(uuid(&owned), bob.sub());
    assert!(scene.acme.is_welcome(&owned).await);
    assert!(!scene.acme.is_welcome(&theirs).await);
    let login = bob.browser().authorize(&scene.acme.request()).await;
    assert_eq!(login.sign_in().await.page(), "/login");
    let again = scene.exchange(&token("2")).await.tokens();
    assert_eq!(uuid(&again), bob.sub());
    assert!(scene.acme.is_welcome(&owned).await);
}
