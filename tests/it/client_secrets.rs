//! Client secrets: which one is used, and one that ends alone.

use std::time::Duration;

use idsvc::admin::client::{ListSecrets, RevokeSecret, UsedSecretView};
use idsvc::flow::secret_uses;
use idsvc::oauth::client::StoredSecret;
use idsvc::oauth::client_secret::id_of;
use idsvc::secret::Digest;
use idsvc::store::tables::CLIENT_SECRET_USES;

use crate::harness::process::{Service, said, shown};
use crate::harness::{Audit, START, Server, scene};

const NEW: &str = "the new secret, of more than 32 bytes";

async fn listed(server: &Server) -> Vec<UsedSecretView> {
    let list = ListSecrets {
        client_id: "acme".to_owned(),
    };
    server.admin().call(list).await.unwrap()
}

#[test]
fn the_secret_that_is_unused_is_told_and_one_of_two_ends_alone() {
    let service = Service::new();
    let web = service.json(&[
        "client",
        "add",
        "web",
        "--redirect-uri",
        "https://app.example/cb",
        "--json",
    ]);
    let old = web["client_secret"].as_str().unwrap().to_owned();
    let rotate = ["client", "rotate-secret", "web", "--keep-old", "24h", "--json"];
    let new = service.json(&rotate)["client_secret"]
        .as_str()
        .unwrap()
        .to_owned();
    let mut running = service.serve();
    let introspect = |secret: &str| {
        let form = [("client_id", "web"), ("client_secret", secret), ("token", "none")];
        service
            .post_form("/oauth2/introspect", &[], &form)
            .unwrap()
            .status
    };
    let list = || service.json(&["client", "secret", "list", "web", "--json"]);
    assert_eq!(introspect(&old), 200);

    let both = list();
    let [newest, oldest] = &both.as_array().unwrap()[..] else {
        panic!("{both}")
    };
    assert!(
        newest["expires_at"].is_null() && newest["last_used"].is_null(),
        "{both}"
    );
    assert!(
        oldest["expires_at"].is_u64() && oldest["last_used"].is_u64(),
        "{both}"
    );
    let members: Vec<_> = oldest.as_object().unwrap().keys().collect();
    assert_eq!(members, ["created_at", "expires_at", "id", "last_used"]);
    let id = oldest["id"].as_str().unwrap();
    assert!(!old.contains(id) && !new.contains(id));
    let table = shown(&service.run(&["client", "secret", "list", "web"]));
    assert!(table.contains("LAST USED") && table.contains(id), "{table}");

    // What was noted in memory is there after a restart.
    running.terminate();
    assert_eq!(list(), both);
    let mut running = service.serve();
    assert_eq!(list(), both);

    let revoke = ["client", "secret", "revoke", "web", id];
    assert_eq!(service.run(&revoke).status.code(), Some(2), "it asks");
    let revoked = service.json(&[&revoke[..], &["--yes", "--json"]].concat());
    assert_eq!(revoked["revoked"], true);
    assert_eq!((introspect(&old), introspect(&new)), (401, 200));

    let last = newest["id"].as_str().unwrap();
    let refused = service.run(&["client", "secret", "revoke", "web", last, "--yes"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(said(&refused).contains("rotate-secret"), "{}", said(&refused));
    assert_eq!(introspect(&new), 200);
    let twice = service.run(&[&revoke[..], &["--yes"]].concat());
    assert!(said(&twice).contains("has no secret"), "{}", said(&twice));
    let by_itself = service.run(&["client", "secret", "revoke", "web", &new, "--yes"]);
    assert_eq!(by_itself.status.code(), Some(2));
    assert!(!said(&by_itself).contains(&new));
    running.terminate();
}

/// A client with a key goes on without a secret.
#[test]
fn the_last_secret_of_a_client_with_a_key_may_end() {
    let service = Service::new();
    let key = service.folder.path().join("jwks.json");
    let jwks =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    std::fs::write(&key, jwks).unwrap();
    let file = key.to_str().unwrap();
    service.json(&[
        "client",
        "add",
        "web",
        "--redirect-uri",
        "https://app.example/cb",
        "--jwks-file",
        file,
        "--json",
    ]);
    service.json(&["client", "rotate-secret", "web", "--json"]);
    let listed = service.json(&["client", "secret", "list", "web", "--json"]);
    let id = listed[0]["id"].as_str().unwrap();
    service.json(&["client", "secret", "revoke", "web", id, "--yes", "--json"]);
    let left = service.json(&["client", "show", "web", "--json"]);
    assert_eq!(left["auth_methods"], serde_json::json!(["private_key_jwt"]));
    let listed = service.json(&["client", "secret", "list", "web", "--json"]);
    assert_eq!(listed, serde_json::json!([]));
}

#[tokio::test]
async fn a_request_writes_no_use_and_of_two_nodes_the_later_use_counts() {
    let (server, acme, alice) = scene().await;
    let core = &server.app.core;
    let stored = || {
        let read = core
            .store
            .read_blocking(|snapshot| CLIENT_SECRET_USES.get(snapshot, "acme"));
        read.unwrap().map(|uses| uses.last_used_at)
    };
    let tokens = acme.tokens(&alice.browser()).await;
    assert_eq!(stored(), None);
    assert_eq!(listed(&server).await[0].last_used, Some(START));
    secret_uses::store(core).await.unwrap();
    server.advance(100);
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    secret_uses::store(core).await.unwrap();
    let later = START + Duration::from_secs(100);
    let id = id_of(&Digest::of(acme.secret.as_bytes()));
    assert_eq!(stored(), Some([(id, later)].into()));

    // A node that is late stores what it noted before.
    core.secret_uses
        .note("acme", &Digest::of(acme.secret.as_bytes()), START);
    secret_uses::store(core).await.unwrap();
    assert_eq!(listed(&server).await[0].last_used, Some(later));
    let wrong = acme
        .refresh(tokens.refresh_token())
        .basic("acme", "guessed")
        .await;
    assert_eq!(wrong.status, 401);
    secret_uses::store(core).await.unwrap();
    assert_eq!(stored().unwrap().len(), 1);
}

#[tokio::test]
async fn uses_of_secrets_and_clients_that_are_gone_are_forgotten() {
    let (server, mut acme, alice) = scene().await;
    let core = &server.app.core;
    acme.tokens(&alice.browser()).await;
    server
        .change_client(&acme, |client| {
            client.secrets[0].expires_at = Some(START + Duration::from_secs(100));
            let newer = StoredSecret {
                digest: Digest::of(NEW.as_bytes()),
                created_at: START,
                expires_at: None,
            };
            client.secrets.insert(0, newer);
        })
        .await;
    let id = id_of(&Digest::of(acme.secret.as_bytes()));
    let revoke = RevokeSecret {
        client_id: "acme".to_owned(),
        id: id.clone(),
    };
    let audit = Audit::listen();
    server.admin().call(revoke).await.unwrap();
    let events = audit.take(&["administered"]);
    let named: Vec<_> = events
        .iter()
        .map(|event| [&event["command"], &event["subject"], &event["credential"]])
        .collect();
    assert_eq!(named, [["client secret revoke", "acme", &id]]);
    acme.secret = NEW.to_owned();
    let browser = alice.browser();
    acme.tokens(&browser).await;
    secret_uses::store(core).await.unwrap();
    let read = || {
        core.store
            .read_blocking(|snapshot| CLIENT_SECRET_USES.get(snapshot, "acme"))
    };
    let ids: Vec<_> = read().unwrap().unwrap().last_used_at.into_keys().collect();
    assert_eq!(ids, [id_of(&Digest::of(NEW.as_bytes()))]);

    acme.tokens(&browser).await;
    let remove = idsvc::admin::client::RemoveClient {
        client_id: "acme".to_owned(),
    };
    server.admin().call(remove).await.unwrap();
    secret_uses::store(core).await.unwrap();
    assert_eq!(read().unwrap(), None);
}
