//! OAuth 2.0 Dynamic Client Registration Management Protocol.

use idsvc::admin::api::AddApi;
use idsvc::oauth::ApiFields;
use idsvc::store::tables::{CLIENTS, CONSENTS, FAMILIES};
use serde_json::{Value, json};

use crate::harness::registration::Registrant;
use crate::harness::{Audit, Server, sweep_all};

const CALLBACK: &str = "https://notes.example/cb";

fn web() -> Value {
    json!({
        "redirect_uris": [CALLBACK],
        "client_name": "Notes",
        "grant_types": ["authorization_code", "refresh_token"],
    })
}

async fn registered() -> (Server, Registrant) {
    let server = Server::open().await;
    let client = server.registrant(&web()).await;
    (server, client)
}

/// Section 2.1: the client reads what it registered. Its secret is not shown again.
#[tokio::test]
async fn a_client_reads_its_registration() {
    let (server, client) = registered().await;
    let reply = client.manage(&server, "GET").await;
    assert_eq!(reply.status, 200);
    assert!(reply.is_not_stored());
    let mut expected = client.answer.clone();
    for secret in ["client_secret", "client_secret_expires_at"] {
        expected.as_object_mut().unwrap().remove(secret);
    }
    assert_eq!(reply.json(), expected);
}

/// Section 2: only the token of this registration is accepted. An unknown client gets the same answer.
#[tokio::test]
async fn the_token_of_another_registration_is_401() {
    let (server, client) = registered().await;
    let other = server.registrant(&web()).await;
    let unknown = "/oauth2/register/0193b2a4-7a10-7cc0-8000-000000000001";
    for method in ["GET", "PUT", "DELETE"] {
        let body = json!({ "client_id": client.party.client_id() }).to_string();
        let call = |path: &str| {
            let call = server.call(method, path);
            call.body("application/json", body.clone())
        };
        assert_eq!(call(client.path()).await.status, 401, "{method}");
        for (path, token) in [
            (client.path(), other.token()),
            (client.path(), "idsvc_rat_"),
            (unknown, client.token()),
        ] {
            let reply = call(path).bearer(token).await;
            assert_eq!(
                (reply.status, reply.error()),
                (401, "invalid_token".to_owned()),
                "{method}"
            );
        }
    }
    server
        .change_client(&client.party, |record| record.enabled = false)
        .await;
    assert_eq!(client.manage(&server, "GET").await.status, 401);
    assert_eq!(other.manage(&server, "GET").await.status, 200);
}

/// Section 2.2: a change replaces all metadata. A member that is left out loses its value, and the secret stays.
#[tokio::test]
async fn a_change_replaces_all_metadata() {
    let (server, client) = registered().await;
    let audit = Audit::listen();
    let change = json!({
        "redirect_uris": [CALLBACK],
        "client_secret": client.answer["client_secret"],
        "post_logout_redirect_uris": ["https://notes.example/bye"],
    });
    let reply = client.change(&server, change).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answer = reply.json();
    assert!(answer.get("client_name").is_none() && answer.get("client_secret").is_none());
    assert_eq!(answer["grant_types"], json!(["authorization_code"]));
    assert_eq!(
        answer["client_id_issued_at"],
        client.answer["client_id_issued_at"]
    );
    assert_eq!(
        answer["post_logout_redirect_uris"],
        json!(["https://notes.example/bye"])
    );
    assert_eq!(audit.take(&["client_registration_changed"]).len(), 1);
    let still = client.party.post("/oauth2/introspect").with("token", "any").await;
    assert_eq!(still.status, 200);
    assert_eq!(client.manage(&server, "GET").await.json(), answer);
}

/// Section 2.2: a change names the client and its secret, and nothing that the service decides.
#[tokio::test]
async fn a_change_of_what_the_service_decides_is_refused() {
    let (server, client) = registered().await;
    for (name, value) in [
        ("client_secret", json!("another")),
        ("registration_access_token", json!(client.token())),
        (
            "registration_client_uri",
            client.answer["registration_client_uri"].clone(),
        ),
        ("client_id_issued_at", json!(1)),
        ("client_secret_expires_at", json!(0)),
        ("grant_types", json!(["password"])),
    ] {
        let mut change = web();
        change[name] = value;
        assert_eq!(
            client.change(&server, change).await.error(),
            "invalid_client_metadata",
            "{name}"
        );
    }
    let mut other = web();
    other["client_id"] = json!("another");
    let call = client.manage(&server, "PUT");
    let reply = call.body("application/json", other.to_string()).await;
    assert_eq!(reply.error(), "invalid_client_metadata");
    let mut evil = web();
    evil["redirect_uris"] = json!(["javascript:alert(1)"]);
    assert_eq!(client.change(&server, evil).await.error(), "invalid_redirect_uri");
    assert_eq!(client.manage(&server, "GET").await.json()["client_name"], "Notes");
}

/// Section 2.2: a client that becomes public loses its secret. A client that becomes confidential gets a new secret.
#[tokio::test]
async fn a_client_that_becomes_public_loses_its_secret_and_may_get_another() {
    let (server, client) = registered().await;
    let asks = || client.party.post("/oauth2/introspect").with("token", "any");
    assert_eq!(asks().await.status, 200);
    let mut public = web();
    public["token_endpoint_auth_method"] = json!("none");
    let answer = client.change(&server, public).await.json();
    assert!(answer.get("client_secret").is_none());
    assert_eq!(asks().await.error(), "invalid_client");
    let answer = client.change(&server, web()).await.json();
    let secret = answer["client_secret"].as_str().unwrap();
    assert_ne!(answer["client_secret"], client.answer["client_secret"]);
    assert_eq!(asks().await.error(), "invalid_client");
    let again = server.party(client.party.client_id(), secret);
    assert_eq!(
        again.post("/oauth2/introspect").with("token", "any").await.status,
        200
    );
}

/// Users allowed access to the address that the consent page showed. A thief of the registration access token must not
/// get codes by adding a redirect URI.
#[tokio::test]
async fn a_client_that_is_used_gets_no_further_redirect_uri() {
    let (server, client) = registered().await;
    let alice = server.user("alice").await;
    let moved = |uri: &str| {
        let mut metadata = web();
        metadata["redirect_uris"] = json!([CALLBACK, uri]);
        metadata
    };
    let early = client.change(&server, moved("https://notes.example/2")).await;
    assert_eq!(early.status, 200, "nobody has used it");
    let tokens = client.party.tokens(&alice.browser()).await;
    let refused = client.change(&server, moved("https://evil.example/cb")).await;
    assert_eq!(
        (refused.status, refused.error()),
        (400, "invalid_redirect_uri".to_owned())
    );
    let mut renamed = web();
    renamed["client_name"] = json!("Notes 2");
    assert_eq!(client.change(&server, renamed).await.status, 200);
    client.party.refresh(tokens.refresh_token()).await.tokens();
}

/// Section 2.3: the secret, the tokens and the grants of a removed client end.
#[tokio::test]
async fn a_client_that_removes_itself_takes_everything_along() {
    let (server, client) = registered().await;
    let alice = server.user("alice").await;
    let tokens = client.party.tokens(&alice.browser()).await;
    let bystander = server.registrant(&web()).await;
    let kept = bystander.party.tokens(&alice.browser()).await;
    assert!(client.party.is_welcome(&tokens).await);
    let audit = Audit::listen();
    let reply = client.manage(&server, "DELETE").await;
    assert_eq!((reply.status, reply.text()), (204, ""));
    let removed = audit.take(&["client_registration_removed"]);
    assert_eq!(removed[0]["reason"], "request");
    assert_eq!(removed[0]["name"], web()["client_name"]);
    assert!(!client.party.is_welcome(&tokens).await && bystander.party.is_welcome(&kept).await);
    assert_eq!(
        client.party.refresh(tokens.refresh_token()).await.error(),
        "invalid_client"
    );
    for method in ["GET", "DELETE"] {
        assert_eq!(client.manage(&server, method).await.status, 401);
    }
    let page = alice.browser().authorize(&client.party.request()).await;
    assert_eq!(page.error_page_status(), 400);
    server.advance(server.app.core.policy.lifetimes.access_token.as_secs() + 1);
    sweep_all(&server).await;
    assert_eq!(audit.take(&["client_registration_removed"]).len(), 0);
    let id = client.party.client_id().to_owned();
    let kept = server.app.core.store.read_blocking(|snapshot| {
        let families = FAMILIES.keys_where(snapshot, |_, family| {
            family.authorization.client_id == id && family.revoked_at.is_none()
        })?;
        let consents = CONSENTS.keys_where(snapshot, |(_, client), _| *client == id)?;
        Ok((CLIENTS.contains(snapshot, &id)?, families.len(), consents.len()))
    });
    assert_eq!(kept.unwrap(), (false, 0, 0), "the sweep ends what is left");
}

/// Otherwise another client with its identifier, such as that of a metadata document, could introspect their tokens.
#[tokio::test]
async fn apis_forget_a_client_that_removes_itself() {
    let (server, client) = registered().await;
    let fields = ApiFields {
        introspection_clients: Some(vec![client.party.client_id().to_owned()]),
        ..ApiFields::default()
    };
    let request = AddApi {
        id: "notes".to_owned(),
        identifier: "https://api.example/notes".to_owned(),
        fields,
    };
    server.admin().call(request).await.unwrap();
    let named = || {
        let catalog = server.app.core.catalog();
        let api = catalog.apis().named("https://api.example/notes").unwrap();
        api.metadata.introspection_clients.len()
    };
    assert_eq!(named(), 1);
    client.manage(&server, "DELETE").await;
    assert_eq!(named(), 0);
}

/// Otherwise anyone could fill the memory with origins, by registering clients and removing them.
#[tokio::test]
async fn scripts_of_a_removed_client_are_no_longer_allowed() {
    let server = Server::open().await;
    let is_allowed = async |origin: &str| {
        let reply = server.post("/oauth2/token").header("origin", origin).await;
        reply.header("access-control-allow-origin") == Some(origin)
    };
    let public = |hosts: &[&str]| {
        let uris: Vec<_> = hosts
            .iter()
            .map(|host| format!("https://{host}.example/cb"))
            .collect();
        json!({ "redirect_uris": uris, "token_endpoint_auth_method": "none" })
    };
    let (own, shared) = ("https://own.example", "https://shared.example");
    let client = server.registrant(&public(&["own", "shared", "moved"])).await;
    let other = server.registrant(&public(&["shared"])).await;
    assert!(is_allowed(own).await && is_allowed(shared).await);
    let reply = client.change(&server, public(&["own", "shared"])).await;
    assert_eq!(reply.status, 200);
    assert!(!is_allowed("https://moved.example").await && is_allowed(own).await);
    client.manage(&server, "DELETE").await;
    assert!(!is_allowed(own).await && is_allowed(shared).await);
    other.manage(&server, "DELETE").await;
    assert!(!is_allowed(shared).await);
}
