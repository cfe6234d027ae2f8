//! `urn:{service_name}:oauth2:grant-type:anonymous`: a user for the holder of a device.

use idsvc::admin::user::{ListUsers, page};
use idsvc::flow::sweep::{Cursor, sweep};
use idsvc::identity::User;
use idsvc::oauth::client::{AuthMethod, Client, ConsentRequirement, GrantType, StoredApiKey};
use idsvc::oauth::parameters::ParameterError;
use idsvc::oauth::policy::Policy;
use idsvc::random::Random;
use idsvc::secret::{ApiKey, Secret};
use idsvc::store::tables::{FAMILIES, USERS};
use serde_json::json;

use crate::harness::reply::line_of;
use crate::harness::wire::Call;
use crate::harness::{ISSUER, RelyingParty, START, Server, Tokens};

const GRANT: &str = "urn:service:oauth2:grant-type:anonymous";
const DAY: u64 = 24 * 60 * 60;

fn opted_in(client: &mut Client) {
    client.grant_types.insert(GrantType::Anonymous);
}

fn ask(party: &RelyingParty) -> Call {
    party.post("/oauth2/token").with("grant_type", GRANT)
}

async fn scene() -> (Server, RelyingParty) {
    let server = Server::start().await;
    let acme = server.client_with("acme", opted_in).await;
    (server, acme)
}

fn uuid_of(tokens: &Tokens) -> String {
    tokens.0["uuid"].as_str().unwrap().to_owned()
}

fn user_of(server: &Server, tokens: &Tokens) -> Option<User> {
    let uuid = uuid_of(tokens).parse().unwrap();
    server
        .app
        .core
        .store
        .read_blocking(|snapshot| USERS.get(snapshot, &uuid))
        .unwrap()
}

/// Sweeps everything that can be swept now.
async fn sweep_all(server: &Server) {
    let mut cursor = Cursor::default();
    while sweep(&server.app.core, &mut cursor, server.clock.now())
        .await
        .unwrap()
        .more
    {}
}

#[tokio::test]
async fn a_device_gets_a_user_of_its_own() {
    let (server, acme) = scene().await;
    let tokens = ask(&acme).await.tokens();
    let uuid = uuid_of(&tokens);
    let shown = |name: &str| tokens.0[name].clone();
    assert_eq!(shown("account_id"), uuid);
    assert_eq!(shown("user_type"), "anonymous");
    assert_eq!(shown("source"), "ANONYMOUS");
    assert_eq!(shown("email"), "");
    assert_eq!(shown("organization"), "default");
    assert_eq!(shown("amr"), json!([{"authority": "anonymous"}]));
    assert_eq!(
        (shown("phone_number"), shown("venueId")),
        (json!(null), json!(null))
    );
    assert_eq!(shown("scope"), "openid notes.read anonymous");
    assert_eq!(shown("expires_in"), DAY);
    let access = acme.verify(tokens.access_token()).await.claims;
    assert_eq!(
        (&access["sub"], &access["client_id"]),
        (&json!(uuid), &json!("acme"))
    );
    assert_eq!(access["amr"], shown("amr"));
    assert!(access.get("auth_time").is_none());
    let id = acme.verify(tokens.id_token()).await.claims;
    let mut names: Vec<_> = id.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        ["at_hash", "aud", "azp", "exp", "iat", "iss", "sub"],
        "nobody signed in"
    );
    assert_ne!(uuid_of(&ask(&acme).await.tokens()), uuid);
    let listed = page(server.admin(), &ListUsers::default()).unwrap().records;
    assert!(
        listed
            .iter()
            .any(|user| user.account_id == uuid && user.user_type == "anonymous")
    );
}

#[tokio::test]
async fn a_form_and_json_are_taken_alike() {
    let (_server, acme) = scene().await;
    let post = |body: String| acme.post("/oauth2/token").body("application/json", body);
    let tokens = post(json!({"grant_type": GRANT, "scope": "anonymous openid"}).to_string())
        .await
        .tokens();
    assert_eq!(tokens.scope(), ["openid", "anonymous"]);
    let twice = format!(r#"{{"grant_type":"{GRANT}","scope":"openid","scope":"notes.read"}}"#);
    assert_eq!(post(twice).await.error(), "invalid_request");
    let listed = json!({"grant_type": GRANT, "scope": ["openid"]}).to_string();
    assert_eq!(post(listed).await.error(), "invalid_request");
    assert_eq!(
        post("[]".to_owned()).await.refusal(),
        line_of(&ParameterError::NotAnObject.into())
    );
    let refresh = json!({"grant_type": "refresh_token", "refresh_token": tokens.refresh_token()});
    assert_eq!(post(refresh.to_string()).await.error(), "invalid_request");
    let unknown = json!({"grant_type": "password", "username": "alice"});
    assert_eq!(post(unknown.to_string()).await.error(), "unsupported_grant_type");
    assert_eq!(post("{}".to_owned()).await.error(), "invalid_request");
}

#[tokio::test]
async fn only_clients_that_opted_in_and_prove_who_they_are_may_ask() {
    let (server, acme) = scene().await;
    let other = server.client("other").await;
    assert_eq!(ask(&other).await.error(), "unauthorized_client");
    assert_eq!(ask(&acme).basic("acme", "wrong").await.error(), "invalid_client");
    let nameless = server.post("/oauth2/token").with("grant_type", GRANT).await;
    assert_eq!(nameless.error(), "invalid_client");
    let native = server
        .client_with("native", |client| {
            opted_in(client);
            client.token_endpoint_auth_methods = [AuthMethod::None].into();
            client.secrets.clear();
        })
        .await;
    assert_eq!(ask(&native).await.error(), "unauthorized_client");
    let users = server
        .app
        .core
        .store
        .read_blocking(|snapshot| USERS.scan(snapshot, .., 10))
        .unwrap();
    assert!(users.is_empty(), "a refusal makes nobody");
}

#[tokio::test]
async fn the_scope_is_what_the_client_may_have_and_the_marker() {
    let (server, acme) = scene().await;
    for (asked, granted) in [
        ("anonymous", "anonymous"),
        ("openid", "openid anonymous"),
        ("anonymous openid", "openid anonymous"),
        ("notes.write profile", "notes.write profile anonymous"),
    ] {
        let tokens = ask(&acme).with("scope", asked).await.tokens();
        assert_eq!(tokens.0["scope"], granted, "{asked}");
        assert_eq!(
            tokens.0.get("id_token").is_some(),
            granted.contains("openid"),
            "{asked}"
        );
        assert_eq!(tokens.access().claims["scope"], granted);
    }
    for asked in ["authenticated", "openid authenticated", "services:all", "a\"b"] {
        assert_eq!(
            ask(&acme).with("scope", asked).await.error(),
            "invalid_scope",
            "{asked}"
        );
    }
    server
        .change_client(&acme, |client| {
            client.scope = "notes.read".parse().unwrap();
            client.default_scope = "notes.read".parse().unwrap();
        })
        .await;
    let tokens = ask(&acme).await.tokens();
    assert_eq!(
        tokens.0["scope"], "notes.read anonymous",
        "openid is not this client's"
    );
}

/// An API must be able to tell an anonymous user from a person.
#[tokio::test]
async fn an_anonymous_user_is_marked_also_for_a_client_without_the_other_marker() {
    let (server, acme) = scene().await;
    server
        .change_client(&acme, |client| client.scope_marker = false)
        .await;
    let tokens = ask(&acme).await.tokens();
    assert_eq!(tokens.scope(), ["openid", "notes.read", "anonymous"]);
}

#[tokio::test]
async fn people_cannot_ask_to_be_anonymous() {
    let (server, acme) = scene().await;
    let alice = server.user("alice").await;
    let request = acme.request().with("scope", "openid anonymous");
    let tokens = acme.tokens_for(&alice.browser(), &request).await;
    assert_eq!(tokens.scope(), ["openid", "authenticated"]);
    let wider = acme
        .refresh(tokens.refresh_token())
        .with("scope", "openid anonymous")
        .await;
    assert_eq!(wider.error(), "invalid_scope");
}

#[tokio::test]
async fn the_identity_lasts_as_long_as_the_device_refreshes() {
    let (server, acme) = scene().await;
    let mut tokens = ask(&acme).with("scope", "openid notes.read").await.tokens();
    let uuid = uuid_of(&tokens);
    for _ in 0..8 {
        server.advance(60 * DAY);
        sweep_all(&server).await;
        tokens = acme.refresh(tokens.refresh_token()).await.tokens();
        assert_eq!(uuid_of(&tokens), uuid);
        assert_eq!(tokens.scope(), ["openid", "notes.read", "anonymous"]);
        assert_eq!(tokens.0["amr"], json!([{"authority": "anonymous"}]));
        assert_eq!(tokens.id().claims["sub"], uuid);
    }
    let narrow = acme
        .refresh(tokens.refresh_token())
        .with("scope", "openid")
        .await
        .tokens();
    assert_eq!(narrow.scope(), ["openid", "anonymous"]);
    let wider = acme
        .refresh(narrow.refresh_token())
        .with("scope", "authenticated");
    assert_eq!(wider.await.error(), "invalid_scope");
}

#[tokio::test]
async fn a_device_refreshes_with_an_api_key() {
    let (server, acme) = scene().await;
    let random = Random::system();
    let id = random.uuid_v4();
    let key = Secret::<ApiKey>::generate(id.as_bytes(), &random);
    let stored = StoredApiKey {
        id,
        digest: key.digest(),
        created_at: START,
    };
    server
        .change_client(&acme, |client| client.api_keys.push(stored))
        .await;
    let tokens = ask(&acme).await.tokens();
    let fresh = server
        .post("/v4/tokens")
        .basic(key.reveal(), "")
        .with("grant_type", "refresh_token")
        .with("refresh_token", tokens.refresh_token())
        .await
        .tokens();
    assert_eq!(uuid_of(&fresh), uuid_of(&tokens));
}

#[tokio::test]
async fn an_abandoned_user_is_swept_and_nobody_else() {
    let (server, acme) = scene().await;
    let alice = server.user("alice").await;
    acme.tokens(&alice.browser()).await;
    let abandoned = ask(&acme).await.tokens();
    let upgraded = ask(&acme).await.tokens();
    let mut kept = ask(&acme).await.tokens();
    let uuid = uuid_of(&upgraded).parse().unwrap();
    let mut user = user_of(&server, &upgraded).unwrap();
    user.email = Some("now-a-person@example.com".to_owned());
    let store = &server.app.core.store;
    store
        .write("test", move |tx| USERS.put(tx, &uuid, &user))
        .await
        .unwrap();
    for _ in 0..4 {
        server.advance(60 * DAY);
        sweep_all(&server).await;
        kept = acme.refresh(kept.refresh_token()).await.tokens();
    }
    assert!(
        user_of(&server, &abandoned).is_some(),
        "240 days: its refresh token ended after 90, 150 days ago"
    );
    server.advance(31 * DAY);
    sweep_all(&server).await;
    assert!(user_of(&server, &abandoned).is_none());
    assert!(user_of(&server, &upgraded).is_some());
    assert!(user_of(&server, &kept).is_some());
    let users = store
        .read_blocking(|snapshot| USERS.scan(snapshot, .., 10))
        .unwrap();
    assert_eq!(users.len(), 3);
    let families = store
        .read_blocking(|snapshot| FAMILIES.scan(snapshot, .., 10))
        .unwrap();
    assert_eq!(families.len(), 1);
    acme.refresh(kept.refresh_token()).await.tokens();
    assert_eq!(
        acme.refresh(abandoned.refresh_token()).await.error(),
        "invalid_grant"
    );
}

#[tokio::test]
async fn a_disabled_user_is_refused() {
    let (server, acme) = scene().await;
    let tokens = ask(&acme).await.tokens();
    assert!(acme.is_welcome(&tokens).await);
    let mut user = user_of(&server, &tokens).unwrap();
    user.enabled = false;
    server
        .app
        .core
        .store
        .write("test", move |tx| USERS.put(tx, &user.uuid, &user))
        .await
        .unwrap();
    assert_eq!(
        acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
    assert!(!acme.is_welcome(&tokens).await);
    let verdict = acme.introspect(tokens.access_token()).await.json();
    assert_eq!(verdict, json!({"active": false}));
}

#[tokio::test]
async fn its_tokens_are_judged_and_revoked_like_others() {
    let (_server, acme) = scene().await;
    let tokens = ask(&acme).await.tokens();
    let uuid = uuid_of(&tokens);
    let verdict = acme.introspect(tokens.access_token()).await.json();
    assert_eq!(verdict["active"], true);
    assert_eq!(
        (&verdict["sub"], &verdict["username"]),
        (&json!(uuid), &json!(uuid))
    );
    assert_eq!(verdict["scope"], "openid notes.read anonymous");
    assert_eq!(acme.userinfo(tokens.access_token()).await.json()["sub"], uuid);
    let plain = ask(&acme).with("scope", "notes.read").await.tokens();
    assert_eq!(acme.userinfo(plain.access_token()).await.status, 403);
    acme.revoke(tokens.refresh_token()).await;
    assert!(!acme.is_welcome(&tokens).await);
    assert_eq!(
        acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
}

#[tokio::test]
async fn granted_claims_are_in_the_id_token_for_nothing_else_could_ask_for_them() {
    let (server, acme) = scene().await;
    let tokens = ask(&acme).with("scope", "openid profile email").await.tokens();
    let id = acme.verify(tokens.id_token()).await.claims;
    assert_eq!(id["updated_at"], START.seconds());
    assert!(
        id.get("email").is_none() && id.get("email_verified").is_none(),
        "there is none"
    );
    let mut user = user_of(&server, &tokens).unwrap();
    user.claims.insert("nickname".to_owned(), "kiosk 7".into());
    server
        .app
        .core
        .store
        .write("test", move |tx| USERS.put(tx, &user.uuid, &user))
        .await
        .unwrap();
    let fresh = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(fresh.id().claims["nickname"], "kiosk 7");
}

#[tokio::test]
async fn nobody_is_asked_for_consent() {
    let (server, acme) = scene().await;
    server
        .change_client(&acme, |client| client.consent = ConsentRequirement::Require)
        .await;
    let tokens = ask(&acme).await.tokens();
    acme.refresh(tokens.refresh_token()).await.tokens();
}

#[tokio::test]
async fn the_grant_bears_the_name_of_the_service() {
    let server =
        Server::start_with(|policy: &mut Policy| "acme-tv".clone_into(&mut policy.service_name)).await;
    let acme = server.client_with("acme", opted_in).await;
    assert_eq!(ask(&acme).await.error(), "unsupported_grant_type");
    let own = "urn:acme-tv:oauth2:grant-type:anonymous";
    let tokens = ask(&acme).with("grant_type", own).await.tokens();
    assert_eq!(tokens.0["iss"], ISSUER);
    let document = server.get("/.well-known/openid-configuration").await.json();
    let grants = document["grant_types_supported"].as_array().unwrap();
    assert!(grants.contains(&json!(own)) && !grants.contains(&json!(GRANT)));
}
