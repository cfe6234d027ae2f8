//! Scope values that the operator registers, with the claims that they release: OpenID Connect Core 5.4 and 5.5.

use idsvc::admin::scope::{AddScope, RemoveScope, UpdateScope};
use idsvc::oauth::ScopeFields;
use idsvc::oauth::client::{Client, ConsentRequirement, IdTokenContent};
use serde_json::{Value, json};

use crate::harness::process::{Service, said, shown};
use crate::harness::{Person, RelyingParty, Server};

fn fields(claims: &[&str], text: Option<&str>) -> ScopeFields {
    ScopeFields {
        claims: Some(claims.iter().map(|&claim| claim.to_owned()).collect()),
        text: text.map(ToOwned::to_owned),
        ..ScopeFields::default()
    }
}

async fn add_scope(server: &Server, name: &str, claims: &[&str]) {
    let request = AddScope {
        name: name.to_owned(),
        fields: fields(claims, Some("See your badge <here>")),
    };
    server.admin().call(request).await.unwrap();
}

/// A client that may ask for `staff`, and no more.
fn of_staff(client: &mut Client) {
    client.scope = "openid profile staff".parse().unwrap();
}

/// The scope `staff` releases four claims. The user has no claim `desk`.
async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start().await;
    add_scope(&server, "staff", &["badge", "teams", "email", "desk"]).await;
    let acme = server.client_with("acme", of_staff).await;
    let alice = server
        .user_with("alice", |user| {
            user.claims.insert("badge".to_owned(), json!(7));
            user.claims.insert("teams".to_owned(), json!([{"name": "a"}]));
        })
        .await;
    (server, acme, alice)
}

async fn userinfo(acme: &RelyingParty, token: &str) -> Value {
    acme.userinfo(token).await.json()
}

#[tokio::test]
async fn a_scope_releases_its_claims_at_userinfo_with_their_types() {
    let (_server, acme, alice) = scene().await;
    let request = acme.request().with("scope", "openid staff");
    let tokens = acme.tokens_for(&alice.browser(), &request).await;
    assert_eq!(
        userinfo(&acme, tokens.access_token()).await,
        json!({"sub": alice.sub(), "badge": 7, "teams": [{"name": "a"}], "email": "alice@example.com"})
    );
    let id = acme.verify(tokens.id_token()).await.claims;
    assert!(id.get("badge").is_none() && tokens.access().claims.get("badge").is_none());
}

#[tokio::test]
async fn a_client_without_the_scope_gets_nothing_of_it() {
    let (server, acme, alice) = scene().await;
    let tokens = acme
        .tokens_for(&alice.browser(), &acme.request().with("scope", "openid"))
        .await;
    assert_eq!(
        userinfo(&acme, tokens.access_token()).await,
        json!({"sub": alice.sub()})
    );
    let other = server.client("other").await;
    let request = other.request().with("scope", "openid staff").with(
        "claims",
        r#"{"userinfo":{"badge":null},"id_token":{"badge":null}}"#,
    );
    let tokens = other.tokens_for(&alice.browser(), &request).await;
    assert_eq!(tokens.scope(), ["openid", "authenticated"]);
    assert_eq!(
        userinfo(&other, tokens.access_token()).await,
        json!({"sub": alice.sub()})
    );
    assert_eq!(other.verify(tokens.id_token()).await.claims.get("badge"), None);
}

/// Section 5.5: the parameter asks for single claims of a scope that the client may have.
#[tokio::test]
async fn the_parameter_claims_reaches_the_claims_of_a_registered_scope() {
    let (server, acme, alice) = scene().await;
    let request = acme.request().with("scope", "openid").with(
        "claims",
        r#"{"userinfo":{"badge":null},"id_token":{"teams":null,"email":null,"phone_number":null}}"#,
    );
    let tokens = acme.tokens_for(&alice.browser(), &request).await;
    let expected = json!({"sub": alice.sub(), "badge": 7});
    assert_eq!(userinfo(&acme, tokens.access_token()).await, expected);
    let id = acme.verify(tokens.id_token()).await.claims;
    assert_eq!(
        (&id["teams"], &id["email"]),
        (&json!([{"name": "a"}]), &json!("alice@example.com"))
    );
    assert_eq!((id.get("badge"), id.get("phone_number")), (None, None));
    // The scope no longer releases what the grant remembers.
    let request = UpdateScope {
        name: "staff".to_owned(),
        fields: fields(&["teams"], None),
    };
    server.admin().call(request).await.unwrap();
    assert_eq!(
        userinfo(&acme, tokens.access_token()).await,
        json!({"sub": alice.sub()})
    );
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    let id = acme.verify(tokens.id_token()).await.claims;
    assert_eq!((&id["teams"], id.get("email")), (&json!([{"name": "a"}]), None));
}

#[tokio::test]
async fn a_scope_that_was_removed_releases_nothing() {
    let (server, acme, alice) = scene().await;
    let request = acme
        .request()
        .with("scope", "openid staff")
        .with("claims", r#"{"id_token":{"badge":null}}"#);
    let tokens = acme.tokens_for(&alice.browser(), &request).await;
    assert_eq!(acme.verify(tokens.id_token()).await.claims["badge"], 7);
    server
        .admin()
        .call(RemoveScope {
            name: "staff".to_owned(),
        })
        .await
        .unwrap();
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    assert!(tokens.scope().contains(&"staff"));
    assert_eq!(
        userinfo(&acme, tokens.access_token()).await,
        json!({"sub": alice.sub()})
    );
    assert_eq!(acme.verify(tokens.id_token()).await.claims.get("badge"), None);
}

#[tokio::test]
async fn discovery_lists_the_scope_that_a_client_may_have_and_its_claims_once() {
    let (server, ..) = scene().await;
    let document = server.get("/.well-known/openid-configuration").await.json();
    let count = |member: &str, name: &str| {
        let values = document[member].as_array().unwrap();
        values.iter().filter(|value| **value == name).count()
    };
    assert_eq!(count("scopes_supported", "staff"), 1);
    for claim in ["badge", "teams", "desk", "email", "groups"] {
        assert_eq!(count("claims_supported", claim), 1, "{claim}");
    }
}

#[tokio::test]
async fn the_consent_page_shows_the_text_of_the_scope_unless_the_client_has_one() {
    let (server, acme, alice) = scene().await;
    server
        .change_client(&acme, |client| client.consent = ConsentRequirement::Require)
        .await;
    let request = acme
        .request()
        .with("scope", "openid")
        .with("claims", r#"{"userinfo":{"badge":null}}"#);
    let page = alice.browser().authorize(&request).await.sign_in().await;
    assert!(
        page.text().contains("See your badge &lt;here&gt;"),
        "{}",
        page.text()
    );
    server
        .change_client(&acme, |client| {
            client
                .scope_texts
                .insert("staff".to_owned(), "Know your desk".to_owned());
        })
        .await;
    let page = alice.browser().authorize(&request).await.sign_in().await;
    assert!(page.text().contains("Know your desk") && !page.text().contains("See your badge"));
}

/// For software that never asks `UserInfo`.
#[tokio::test]
async fn a_client_may_have_the_claims_of_the_scope_in_its_id_token() {
    let (server, acme, alice) = scene().await;
    server
        .change_client(&acme, |client| client.id_token_claims = IdTokenContent::Userinfo)
        .await;
    let request = acme.request().with("scope", "openid profile staff");
    let tokens = acme.tokens_for(&alice.browser(), &request).await;
    let id = acme.verify(tokens.id_token()).await.claims;
    let Value::Object(at_userinfo) = userinfo(&acme, tokens.access_token()).await else {
        panic!("no object");
    };
    assert!(at_userinfo.len() > 10);
    for (name, value) in &at_userinfo {
        assert_eq!(id.get(name), Some(value), "{name}");
    }
    let narrow = acme.refresh(tokens.refresh_token()).with("scope", "openid");
    let id = acme.verify(narrow.await.tokens().id_token()).await.claims;
    assert_eq!((id.get("badge"), id.get("name")), (None, None));
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn a_scope_with_a_meaning_of_its_own_or_a_claim_of_the_service_is_refused() {
    let service = Service::with_client();
    for name in [
        "openid",
        "email",
        "groups",
        "offline_access",
        "authenticated",
        "anonymous",
    ] {
        let output = service.run(&["scope", "add", name, "--claim", "badge"]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(
            said(&output).contains("has a meaning of its own"),
            "{}",
            said(&output)
        );
    }
    for claim in [
        "sub", "iss", "aud", "exp", "sid", "nonce", "acr", "groups", "roles", "grant_id", "a b",
    ] {
        let output = service.run(&["scope", "add", "staff", "--claim", "badge", "--claim", claim]);
        assert_eq!(output.status.code(), Some(1), "{claim}");
        assert!(
            said(&output).contains("belongs to the service"),
            "{}",
            said(&output)
        );
    }
    for name in ["a b", "\"", "é"] {
        assert_eq!(
            service.run(&["scope", "add", name]).status.code(),
            Some(1),
            "{name}"
        );
    }
    assert_eq!(service.json(&["scope", "list", "--json"]), json!([]));
}

#[test]
fn a_claim_keeps_its_json_type_and_is_warned_of_until_a_scope_releases_it() {
    let service = Service::with_client();
    let add = "user add alice@example.com --no-password --claim badge=7 --claim desk=\"7\" --claim plain=a7";
    let output = service.run(&[words(add), vec!["--json"]].concat());
    let said_of = |output| said(output).matches("applications do not get the claim").count();
    assert_eq!(said_of(&output), 3);
    let alice: Value = serde_json::from_str(&shown(&output)).unwrap();
    assert_eq!(alice["claims"], json!({"badge": 7, "desk": "7", "plain": "a7"}));
    service.json(&words("scope add staff --claim badge --claim desk --json"));
    let update = "user update alice@example.com --claim badge=8 --claim desk=[true] --claim plain=b";
    let output = service.run(&words(update));
    assert_eq!(said_of(&output), 1, "{}", said(&output));
    assert!(said(&output).contains("claim plain: no scope includes it"));
    let shown = service.json(&words("user show alice@example.com --json"));
    assert_eq!(shown["claims"], json!({"badge": 8, "desk": [true], "plain": "b"}));
    let shown = service.json(&[
        "scope", "update", "staff", "--claim", "", "--text", "Staff", "--json",
    ]);
    assert_eq!((&shown["claims"], &shown["text"]), (&json!([]), &json!("Staff")));
}
