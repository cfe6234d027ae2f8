mod id_token_claims;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::admin::SecretString;
use crate::admin::client::*;
use crate::admin::provider::{AddProvider, ProviderFields};
use crate::admin::tests::{admin, assert_faults, core, refusal};
use crate::jose::alg::Algorithm;
use crate::oauth::ClientFields;
use crate::oauth::client::{AuthMethod, ConsentRequirement, GrantType, RefreshPolicy};
use crate::secret::Digest;

/// A client with a secret and one redirect URI.
pub(in crate::admin) fn request(client_id: &str) -> AddClient {
    AddClient {
        api_key: false,
        client_id: client_id.to_owned(),
        public: false,
        secret: None,
        fields: ClientFields {
            redirect_uris: Some(vec!["https://app.example/cb".to_owned()]),
            ..ClientFields::default()
        },
    }
}

fn change_of(client_id: &str, fields: ClientFields) -> UpdateClient {
    UpdateClient {
        client_id: client_id.to_owned(),
        no_secret: false,
        fields,
    }
}

#[tokio::test]
async fn a_client_with_a_redirect_uri_may_sign_people_in() {
    let core = core();
    let view = admin(&core).call(request("web")).await.unwrap();
    let secret = view.client_secret.clone().unwrap();
    let catalog = core.catalog();
    let client = catalog.client("web").unwrap();
    assert!(client.accepts_secret(&Digest::of(secret.reveal().as_bytes()), core.clock.now()));
    assert_eq!(client.grant_types.len(), 2);
    assert_eq!(client.default_scope, "openid".parse().unwrap());
    assert!(
        admin(&core)
            .call(ShowClient {
                client_id: "web".to_owned()
            })
            .await
            .unwrap()
            .client_secret
            .is_none()
    );
    let json = serde_json::to_string(
        &admin(&core)
            .call(ShowClient {
                client_id: "web".to_owned(),
            })
            .await
            .unwrap(),
    )
    .unwrap();
    assert!(!json.contains("digest"), "{json}");
}

#[tokio::test]
async fn a_misspelled_scope_is_refused() {
    let core = core();
    let mut bad = request("web");
    bad.fields.scope = Some(vec!["opnid".to_owned(), "openid".to_owned()]);
    let refused = refusal(admin(&core).call(bad).await);
    assert_eq!(
        (refused[0].code, &*refused[0].fields),
        (FaultCode::Invalid, &["scope".to_owned()][..])
    );
    assert!(refused[0].detail.contains("did you mean openid"));
}

#[tokio::test]
async fn all_that_is_wrong_is_said_at_once() {
    let core = core();
    let mut bad = request("a b");
    bad.fields.redirect_uris = Some(vec!["http://app.example/".to_owned()]);
    bad.fields.scope = Some(vec!["authenticated".to_owned()]);
    bad.fields.default_scope = Some(vec!["openid".to_owned()]);
    bad.fields.id_token_signed_response_alg = Some(Algorithm::EdDsa.into());
    bad.secret = Some(SecretString::new("short"));
    let refused = refusal(admin(&core).call(bad).await);
    assert_eq!(refused.len(), 6, "{refused:?}");
    let subjects = refused.iter().map(|fault| &fault.subject.as_ref().unwrap().id);
    assert!(subjects.into_iter().all(|id| id == "a b"), "{refused:?}");
    assert!(page(admin(&core), None).unwrap().records.is_empty());
}

/// A client that could never get a token is refused when it is registered.
#[tokio::test]
async fn a_client_whose_people_could_do_nothing_is_refused() {
    let core = core();
    let fields = ProviderFields {
        issuer: Some("https://corp.example".to_owned()),
        exchange: Some(true),
        audiences: Some(vec!["app".to_owned()]),
        ..ProviderFields::default()
    };
    let id = "corp".to_owned();
    admin(&core)
        .call(AddProvider {
            id,
            client_secret: None,
            fields,
        })
        .await
        .unwrap();
    let mut closed = request("closed");
    closed.fields.providers = Some(vec!["corp".to_owned()]);
    closed.fields.password_sign_in = Some(false);
    let mut exchanging = request("exchanging");
    exchanging.fields.providers = Some(vec!["corp".to_owned()]);
    exchanging.fields.consent = Some(ConsentRequirement::Require);
    exchanging.fields.grant_types = Some(vec![GrantType::JwtBearer, GrantType::AuthorizationCode]);
    admin(&core).call(exchanging.clone()).await.unwrap();
    let mut unasked = exchanging;
    unasked.client_id = "unasked".to_owned();
    unasked.fields.redirect_uris = None;
    unasked.fields.grant_types = Some(vec![GrantType::JwtBearer]);
    let shut: &[&str] = &["password_sign_in", "providers"];
    for (bad, fields) in [
        (closed, shut),
        (unasked.clone(), &["consent", "grant_types", "redirect_uris"]),
    ] {
        let refused = refusal(admin(&core).call(bad).await);
        assert_faults(&refused, &[(FaultCode::NotAllowed, fields)]);
    }
    unasked.fields.consent = None;
    admin(&core).call(unasked).await.unwrap();
    let fields = ClientFields {
        password_sign_in: Some(false),
        ..ClientFields::default()
    };
    let refused = refusal(admin(&core).call(change_of("exchanging", fields)).await);
    assert_faults(&refused, &[(FaultCode::NotAllowed, shut)]);
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let core = core();
    admin(&core).call(request("web")).await.unwrap();
    let refused = refusal(admin(&core).call(request("web")).await);
    assert_faults(&refused, &[(FaultCode::AlreadyExists, &[])]);
}

#[tokio::test]
async fn a_replaced_secret_is_kept_for_as_long_as_was_asked() {
    let core = core();
    let old = admin(&core)
        .call(request("web"))
        .await
        .unwrap()
        .client_secret
        .unwrap();
    let rotate = |keep_old_seconds| RotateSecret {
        client_id: "web".to_owned(),
        secret: None,
        keep_old_seconds,
    };
    let new = admin(&core)
        .call(rotate(Some(60)))
        .await
        .unwrap()
        .client_secret
        .unwrap();
    let accepts = |secret: &SecretString| {
        let digest = Digest::of(secret.reveal().as_bytes());
        core.catalog()
            .client("web")
            .unwrap()
            .accepts_secret(&digest, core.clock.now())
    };
    assert!(accepts(&old) && accepts(&new));
    core.clock.advance(Duration::from_mins(1));
    assert!(!accepts(&old) && accepts(&new));
    admin(&core).call(rotate(None)).await.unwrap();
    assert!(!accepts(&new));
}

#[tokio::test]
async fn a_secret_that_is_about_to_end_is_prolonged_by_no_later_one() {
    let core = core();
    let added = admin(&core).call(request("web")).await.unwrap();
    let oldest = Digest::of(added.client_secret.unwrap().reveal().as_bytes());
    for keep in [60, 3_600] {
        let request = RotateSecret {
            client_id: "web".to_owned(),
            secret: None,
            keep_old_seconds: Some(keep),
        };
        admin(&core).call(request).await.unwrap();
    }
    let accepted = || {
        let client = core.catalog().client("web").unwrap().clone();
        client.accepts_secret(&oldest, core.clock.now())
    };
    assert!(accepted());
    core.clock.advance(Duration::from_mins(1));
    assert!(!accepted());
}

/// The key of RFC 8037 appendix A.
pub(in crate::admin) fn keys() -> Vec<serde_json::Value> {
    let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    vec![serde_json::json!({"kty": "OKP", "crv": "Ed25519", "x": x})]
}

/// Otherwise replaced keys would be valid again when the address is removed, and the address would override the keys
/// that replaced it.
#[tokio::test]
async fn registered_keys_and_published_ones_replace_each_other() {
    let core = core();
    let mut robot = request("robot");
    robot.fields.jwks = Some(keys());
    admin(&core).call(robot).await.unwrap();
    let change = async |fields: ClientFields| {
        let done = admin(&core).call(change_of("robot", fields)).await;
        done.unwrap();
        let client = core.catalog().client("robot").unwrap().clone();
        (client.jwks.len(), client.jwks_uri.is_some())
    };
    let published = ClientFields {
        jwks_uri: Some("https://app.example/jwks".to_owned()),
        ..ClientFields::default()
    };
    assert_eq!(change(published).await, (0, true));
    let registered = ClientFields {
        jwks: Some(keys()),
        ..ClientFields::default()
    };
    assert_eq!(change(registered).await, (1, false));
}

#[tokio::test]
async fn a_client_gets_nothing_that_is_for_others() {
    let core = core();
    let public = AddClient {
        public: true,
        ..request("phone")
    };
    admin(&core).call(public).await.unwrap();
    let mut robot = request("robot");
    robot.fields = ClientFields {
        grant_types: Some(vec![GrantType::ClientCredentials]),
        scope: Some(vec!["read".to_owned()]),
        max_scope: Some(vec!["read".to_owned()]),
        ..ClientFields::default()
    };
    admin(&core).call(robot).await.unwrap();
    let refused = async |client_id: &str, fields: ClientFields| {
        refusal(admin(&core).call(change_of(client_id, fields)).await)
    };
    let reuse = ClientFields {
        refresh_policy: Some(RefreshPolicy::Reuse),
        ..ClientFields::default()
    };
    assert_faults(
        &refused("phone", reuse).await,
        &[(FaultCode::NotAllowed, &["refresh_policy"])],
    );
    let beyond = ClientFields {
        max_scope: Some(vec!["read".to_owned(), "write".to_owned()]),
        ..ClientFields::default()
    };
    assert_faults(
        &refused("robot", beyond).await,
        &[(FaultCode::NotAllowed, &["max_scope", "scope"])],
    );
    let unknown = ClientFields {
        providers: Some(vec!["corp".to_owned()]),
        ..ClientFields::default()
    };
    assert_faults(
        &refused("phone", unknown).await,
        &[(FaultCode::NotFound, &["providers"])],
    );
}

#[tokio::test]
async fn an_update_changes_what_it_names() {
    let core = core();
    admin(&core).call(request("web")).await.unwrap();
    let fields = ClientFields {
        client_name: Some("Web".to_owned()),
        scope: Some(vec!["services:all".to_owned()]),
        ..ClientFields::default()
    };
    let view = admin(&core).call(change_of("web", fields)).await.unwrap();
    assert_eq!(
        (view.client_name.as_deref(), view.scope.to_string()),
        (Some("Web"), "services:all".to_owned())
    );
    assert!(view.default_scope.is_empty());
    assert_eq!(view.redirect_uris, ["https://app.example/cb"]);
}

#[tokio::test]
async fn a_client_whose_address_could_not_be_registered_any_more_keeps_it_until_it_is_mended() {
    const OLD: &str = "https:/app.example/cb";
    let core = core();
    admin(&core).call(request("web")).await.unwrap();
    core.store
        .write("test", |tx| {
            let id = "web".to_owned();
            let mut client = CLIENTS.get(&*tx, &id)?.unwrap();
            client.redirect_uris = vec![OLD.to_owned()];
            client.cors_origins = vec!["https://*.app.example".to_owned()];
            CLIENTS.put(tx, &id, &client)
        })
        .await
        .unwrap();
    core.reload_catalog().await.unwrap();
    let shown = admin(&core)
        .call(ShowClient {
            client_id: "web".to_owned(),
        })
        .await
        .unwrap();
    assert_eq!(shown.redirect_uris, [OLD]);
    admin(&core)
        .call(DisableClient {
            client_id: "web".to_owned(),
        })
        .await
        .unwrap();
    let change = |uris: Option<&[&str]>| {
        let fields = ClientFields {
            client_name: Some("Web".to_owned()),
            redirect_uris: uris.map(|uris| uris.iter().map(|&uri| uri.to_owned()).collect()),
            ..ClientFields::default()
        };
        change_of("web", fields)
    };
    let kept = admin(&core).call(change(None)).await.unwrap();
    assert_eq!(kept.redirect_uris, [OLD]);
    let refused = admin(&core)
        .call(change(Some(&[OLD, "https:/app.example/other"])))
        .await;
    let refused = refusal(refused);
    assert_faults(&refused, &[(FaultCode::Invalid, &["redirect_uris"])]);
    assert!(
        refused[0].detail.contains("https:/app.example/other"),
        "{refused:?}"
    );
    let mended = change(Some(&["https://app.example/cb"]));
    admin(&core).call(mended).await.unwrap();
    let refused = refusal(admin(&core).call(change(Some(&[OLD]))).await);
    assert_faults(&refused, &[(FaultCode::Invalid, &["redirect_uris"])]);
}

#[tokio::test]
async fn a_removed_client_is_gone() {
    let core = core();
    admin(&core).call(request("web")).await.unwrap();
    admin(&core)
        .call(RemoveClient {
            client_id: "web".to_owned(),
        })
        .await
        .unwrap();
    assert!(core.catalog().client("web").is_none());
    let refused = refusal(
        admin(&core)
            .call(RemoveClient {
                client_id: "web".to_owned(),
            })
            .await,
    );
    assert_faults(&refused, &[(FaultCode::NotFound, &[])]);
}

#[tokio::test]
async fn an_address_leaves_to_answers_what_they_add() {
    let core = core();
    let mut taken = request("web");
    taken.fields.redirect_uris = Some(vec!["https://app.example/cb?code=1".to_owned()]);
    taken.fields.post_logout_redirect_uris = Some(vec!["https://app.example/?state=1".to_owned()]);
    let refused = refusal(admin(&core).call(taken.clone()).await);
    let expected: [(FaultCode, &[&str]); 2] = [
        (FaultCode::Invalid, &["redirect_uris"]),
        (FaultCode::Invalid, &["post_logout_redirect_uris"]),
    ];
    assert_faults(&refused, &expected);
    taken.fields.redirect_uris = Some(vec!["https://app.example/cb?to=code".to_owned()]);
    taken.fields.post_logout_redirect_uris = Some(vec!["https://app.example/?code=1".to_owned()]);
    admin(&core).call(taken).await.unwrap();
}

#[tokio::test]
async fn a_secret_is_taken_away_where_a_key_is_left() {
    let core = core();
    let secret = admin(&core)
        .call(request("web"))
        .await
        .unwrap()
        .client_secret
        .unwrap();
    let without = |jwks_uri: Option<&str>| UpdateClient {
        client_id: "web".to_owned(),
        no_secret: true,
        fields: ClientFields {
            jwks_uri: jwks_uri.map(str::to_owned),
            ..ClientFields::default()
        },
    };
    let refused = refusal(admin(&core).call(without(None)).await);
    assert_faults(&refused, &[(FaultCode::Required, &["keys", "jwks_uri"])]);
    let is_good = || {
        let digest = Digest::of(secret.reveal().as_bytes());
        let catalog = core.catalog();
        catalog
            .client("web")
            .unwrap()
            .accepts_secret(&digest, core.clock.now())
    };
    assert!(is_good());
    let view = admin(&core)
        .call(without(Some("https://app.example/jwks")))
        .await
        .unwrap();
    assert!(!is_good() && view.secrets.is_empty());
    assert_eq!(view.auth_methods, BTreeSet::from([AuthMethod::PrivateKeyJwt]));
    let mut keyless = without(Some(""));
    keyless.no_secret = false;
    refusal(admin(&core).call(keyless.clone()).await);
    let again = RotateSecret {
        client_id: "web".to_owned(),
        secret: Some(secret.clone()),
        keep_old_seconds: None,
    };
    let view = admin(&core).call(again).await.unwrap();
    assert!(is_good() && view.client_secret.is_none());
    assert!(!view.auth_methods.contains(&AuthMethod::None));
    assert_eq!(view.auth_methods.len(), 3);
    admin(&core).call(keyless).await.unwrap();
}

#[tokio::test]
async fn what_only_the_secret_allowed_goes_with_it() {
    let core = core();
    let fields = ClientFields {
        grant_types: Some(vec![GrantType::ClientCredentials]),
        scope: Some(vec!["a".to_owned()]),
        max_scope: Some(vec!["a".to_owned()]),
        jwks_uri: Some("https://app.example/jwks".to_owned()),
        ..ClientFields::default()
    };
    let robot = AddClient {
        fields,
        ..request("robot")
    };
    assert!(admin(&core).call(robot).await.unwrap().max_scope.is_some());
    let without = UpdateClient {
        client_id: "robot".to_owned(),
        no_secret: true,
        fields: ClientFields::default(),
    };
    let view = admin(&core).call(without).await.unwrap();
    assert!(view.max_scope.is_none() && view.secrets.is_empty());
    let again = RotateSecret {
        client_id: "robot".to_owned(),
        secret: None,
        keep_old_seconds: None,
    };
    let view = admin(&core).call(again).await.unwrap();
    assert!(view.max_scope.is_none(), "it does not come back with a secret");
}

/// An API that only introspects tokens has a secret or a key, and needs no grants.
#[tokio::test]
async fn a_client_without_grants_has_to_be_meant() {
    let core = core();
    let of = |grant_types| {
        let mut api = request("api");
        api.fields.redirect_uris = None;
        api.fields.grant_types = grant_types;
        api
    };
    assert_faults(
        &refusal(admin(&core).call(of(None)).await),
        &[(FaultCode::Required, &["redirect_uris", "grant_types"])],
    );
    let public = AddClient {
        public: true,
        ..of(Some(Vec::new()))
    };
    assert_faults(
        &refusal(admin(&core).call(public).await),
        &[(FaultCode::NotAllowed, &["grant_types"])],
    );
    let view = admin(&core).call(of(Some(Vec::new()))).await.unwrap();
    assert!(view.grant_types.is_empty() && view.client_secret.is_some());
    let named = ClientFields {
        client_name: Some("Our API".to_owned()),
        ..ClientFields::default()
    };
    let view = admin(&core).call(change_of("api", named)).await.unwrap();
    assert!(view.grant_types.is_empty());
}
