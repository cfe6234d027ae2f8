//! Clients, their secrets and their keys.

use crate::admin::apply::tests::*;
use crate::admin::key::RotateKey;
use crate::federation::provider::UpstreamAuth;
use crate::flow::token::introspect::live_access_token;
use crate::flow::token::issue::issue_tokens_for_client;
use crate::jose::alg::Algorithm;
use crate::oauth::Client;
use crate::oauth::client::IdTokenContent;
use crate::oauth::resource::TokenTarget;
use crate::secret::Digest;
use crate::store::tables::{CLIENTS, SIGNING_KEYS};

async fn applied(core: &Core, client: DeclaredClient) -> Applied {
    let done = admin(core).call(request(Some(vec![client]), None, false)).await;
    done.unwrap()
}

fn registered(core: &Core) -> Client {
    Client::clone(&core.catalog().client("web").unwrap())
}

/// The file was applied with an earlier release, which accepted the addresses.
#[tokio::test]
async fn a_file_of_before_is_applied_though_its_addresses_would_not_be_taken_any_more() {
    let core = core();
    applied(&core, web()).await;
    let mut row = registered(&core);
    row.cors_origins = vec!["https://*.app.example".to_owned()];
    let written = core
        .store
        .write("test_client", move |tx| CLIENTS.put(tx, &row.client_id, &row));
    written.await.unwrap();
    core.reload_catalog().await.unwrap();
    let with = |origins: &[&str], name: &str| {
        web_with(|fields| {
            fields.cors_origins = Some(origins.iter().map(|&origin| origin.to_owned()).collect());
            fields.client_name = Some(name.to_owned());
        })
    };
    let before = ["https://*.app.example"];
    assert_eq!(applied(&core, with(&before, "Acme")).await.changes.len(), 1);
    assert_eq!(applied(&core, with(&before, "Acme")).await.unchanged, 1);
    let other = request(Some(vec![with(&["https://*.example"], "Acme")]), None, false);
    let refused = refusal(admin(&core).call(other).await);
    assert_faults(&refused, &[(FaultCode::Invalid, &["cors_origins"])]);
}

/// A file cannot declare when a secret expires, so a declared secret does not.
#[tokio::test]
async fn a_declared_secret_lasts_though_it_was_about_to_end() {
    let core = core();
    let [old, new] = ["o", "n"].map(|letter| SecretString::new(letter.repeat(40)));
    let digest = |secret: &SecretString| Digest::of(secret.reveal().as_bytes());
    let first = DeclaredClient {
        secret: Some(old.clone()),
        ..web()
    };
    applied(&core, first).await;
    let rotate = RotateSecret {
        client_id: "web".to_owned(),
        secret: Some(new.clone()),
        keep_old_seconds: Some(60),
    };
    admin(&core).call(rotate).await.unwrap();
    let with = |secrets: &[&SecretString]| DeclaredClient {
        secret_sha256: Some(secrets.iter().map(|secret| digest(secret)).collect()),
        ..web()
    };
    assert_eq!(
        applied(&core, with(&[&new])).await.unchanged,
        1,
        "it ends by itself"
    );
    assert_eq!(applied(&core, with(&[&new, &old])).await.changes.len(), 1);
    assert_eq!(applied(&core, with(&[&new, &old])).await.unchanged, 1);
    core.clock.advance(Duration::from_mins(2));
    assert!(registered(&core).accepts_secret(&digest(&old), core.clock.now()));
}

/// An export has the `client_uuid`, which is the `sub` of the client's own tokens.
#[tokio::test]
async fn a_client_that_comes_again_has_none_of_the_tokens_of_the_one_that_went() {
    let core = core();
    crate::flow::rotate_keys::ensure_keys(&core).await.unwrap();
    let now = core.clock.now();
    let with_uuid = DeclaredClient {
        client_uuid: Some(uuid::Uuid::from_u128(1)),
        ..web_with(|fields| {
            fields.grant_types = Some(vec![GrantType::AuthorizationCode, GrantType::ClientCredentials]);
            fields.max_scope = Some(vec!["openid".to_owned()]);
        })
    };
    let token_of = |client: &Client| {
        let made = issue_tokens_for_client(&core, client, TokenTarget::default(), None, now).unwrap();
        made.access_token
    };
    let is_live = async |token: &str| live_access_token(&core, token, now).await.unwrap().is_some();
    applied(&core, with_uuid.clone()).await;
    let before = token_of(&registered(&core));
    let mut renamed = with_uuid.clone();
    renamed.fields.client_name = Some("Acme".to_owned());
    applied(&core, renamed).await;
    assert!(is_live(&before).await);
    admin(&core)
        .call(client::RemoveClient {
            client_id: "web".to_owned(),
        })
        .await
        .unwrap();
    applied(&core, with_uuid).await;
    assert!(!is_live(&before).await);
    assert!(is_live(&token_of(&registered(&core))).await);
}

/// Two administrators at once: the record of the client is checked against the keys at the time of the write.
#[tokio::test]
async fn no_client_is_left_with_an_algorithm_that_lost_its_key_meanwhile() {
    let core = core();
    let rotate = RotateKey {
        alg: Algorithm::EdDsa,
        at_once: true,
    };
    let key = admin(&core).call(rotate).await.unwrap();
    admin(&core).call(client::tests::request("web")).await.unwrap();
    let gone = core
        .store
        .write("test_retire", move |tx| SIGNING_KEYS.remove(tx, &key.kid));
    assert!(gone.await.unwrap());
    assert!(
        core.catalog().keyring().signer(Algorithm::EdDsa).is_some(),
        "nobody has heard"
    );
    let fields = ClientFields {
        access_token_alg: Some(Algorithm::EdDsa.into()),
        ..ClientFields::default()
    };
    let change = client::UpdateClient {
        client_id: "web".to_owned(),
        no_secret: false,
        fields,
    };
    let refused = refusal(admin(&core).call(change).await);
    assert_faults(&refused, &[(FaultCode::NotFound, &["access_token_alg"])]);
    let mut other = client::tests::request("other");
    other.fields.id_token_signed_response_alg = Some(Algorithm::EdDsa.into());
    let refused = refusal(admin(&core).call(other).await);
    assert_faults(
        &refused,
        &[(FaultCode::NotFound, &["id_token_signed_response_alg"])],
    );
    let declared = web_with(|fields| fields.access_token_alg = Some(Algorithm::EdDsa.into()));
    let refused = refusal(
        admin(&core)
            .call(request(Some(vec![declared]), None, false))
            .await,
    );
    assert_faults(&refused, &[(FaultCode::NotFound, &["access_token_alg"])]);
}

/// One of them would be ignored.
#[tokio::test]
async fn keys_are_said_in_one_way() {
    let core = core();
    let keyed = web_with(|fields| fields.jwks = Some(client::tests::keys()));
    let mut both = keyed.clone();
    both.fields.jwks_uri = Some("https://app.example/jwks".to_owned());
    let refused = refusal(admin(&core).call(request(Some(vec![both]), None, false)).await);
    assert_faults(&refused, &[(FaultCode::NotAllowed, &["keys", "jwks_uri"])]);
    applied(&core, keyed).await;
}

/// A leaked secret is removed when the file no longer has it.
#[tokio::test]
async fn of_the_secrets_only_those_stay_that_are_declared() {
    let core = core();
    let digest = |text: &str| crate::secret::Digest::of(text.as_bytes());
    let with = |secrets: &[&str]| DeclaredClient {
        secret_sha256: Some(secrets.iter().map(|text| digest(text)).collect()),
        ..web()
    };
    let accepted = || {
        let client = core.catalog().client("web").unwrap().clone();
        ["one", "two"].map(|text| client.accepts_secret(&digest(text), core.clock.now()))
    };
    for (declared, expected) in [
        (with(&["one", "two"]), [true, true]),
        (with(&["two"]), [false, true]),
        (with(&["one"]), [true, false]),
    ] {
        admin(&core)
            .call(request(Some(vec![declared]), None, false))
            .await
            .unwrap();
        assert_eq!(accepted(), expected);
    }
}

/// The `sub` of a client's own tokens is its `client_uuid`.
#[tokio::test]
async fn a_client_keeps_its_uuid() {
    let core = core();
    let with = |uuid: u128| DeclaredClient {
        client_uuid: Some(uuid::Uuid::from_u128(uuid)),
        ..web()
    };
    let ours = request(Some(vec![with(1)]), None, false);
    admin(&core).call(ours.clone()).await.unwrap();
    let other = refusal(admin(&core).call(request(Some(vec![with(2)]), None, false)).await);
    assert_faults(&other, &[(FaultCode::NotAllowed, &["client_uuid"])]);
    assert_eq!(admin(&core).call(ours).await.unwrap().unchanged, 1);
}

/// An empty list in the file is not the same as a missing list.
#[tokio::test]
async fn a_client_may_be_declared_to_have_no_grants() {
    let core = core();
    let api = DeclaredClient {
        client_id: "api".to_owned(),
        fields: ClientFields {
            grant_types: Some(Vec::new()),
            ..ClientFields::default()
        },
        ..DeclaredClient::default()
    };
    let wanted = request(Some(vec![api]), None, false);
    let applied = admin(&core).call(wanted.clone()).await.unwrap();
    assert!(applied.changes[0].client_secret.is_some());
    assert_eq!(admin(&core).call(wanted).await.unwrap().unchanged, 1);
    let Exported::Client(entry) = &exported(&core, false)[0] else {
        panic!("a client is there");
    };
    assert_eq!(entry["grant_types"], serde_json::json!([]));
}

#[tokio::test]
async fn a_secret_that_is_about_to_end_is_in_no_export() {
    let core = core();
    admin(&core).call(client::tests::request("web")).await.unwrap();
    let rotate = RotateSecret {
        client_id: "web".to_owned(),
        secret: None,
        keep_old_seconds: Some(60),
    };
    admin(&core).call(rotate).await.unwrap();
    let kept = core.catalog().client("web").unwrap().secrets.clone();
    let [Exported::Client(entry)] = &exported(&core, true)[..] else {
        panic!("one client")
    };
    let lasting = kept.iter().find(|secret| secret.expires_at.is_none()).unwrap();
    assert_eq!(
        (kept.len(), &entry["secret_sha256"]),
        (2, &serde_json::json!([lasting.digest]))
    );
}

#[tokio::test]
async fn a_file_takes_a_secret_away_where_a_key_is_left() {
    let core = core();
    let declared = |client| admin(&core).call(request(Some(vec![client]), None, false));
    declared(web()).await.unwrap();
    let bare = DeclaredClient {
        secret_sha256: Some(Vec::new()),
        ..web()
    };
    let refused = refusal(declared(bare.clone()).await);
    assert_faults(&refused, &[(FaultCode::Required, &["keys", "jwks_uri"])]);
    let mut keyed = bare;
    keyed.fields.jwks_uri = Some("https://app.example/jwks".to_owned());
    declared(keyed).await.unwrap();
    assert!(core.catalog().client("web").unwrap().secrets.is_empty());
}

#[tokio::test]
async fn a_secret_that_goes_is_told_apart_from_one_that_comes() {
    let core = core();
    let corp = || DeclaredProvider {
        id: "corp".to_owned(),
        client_secret: Some(SecretString::new("zzzzzzzz")),
        fields: ProviderFields {
            issuer: Some("https://login.corp.example".to_owned()),
            client_id: Some("us".to_owned()),
            ..ProviderFields::default()
        },
    };
    let both = |provider, client| Apply {
        state: DeclaredState {
            provider: Some(vec![provider]),
            client: Some(vec![client]),
            ..DeclaredState::default()
        },
        dry_run: false,
        prune: false,
        ..Apply::default()
    };
    let told = |applied: &Applied| -> Vec<(String, Option<SecretChange>)> {
        let fields = applied.changes.iter().flat_map(|change| &change.fields);
        fields
            .filter(|field| field.name.contains("secret"))
            .map(|field| (field.name.clone(), field.secret))
            .collect()
    };
    let first = admin(&core).call(both(corp(), web())).await.unwrap();
    let (client_secret, secret) = ("client_secret".to_owned(), "secret".to_owned());
    assert_eq!(
        told(&first),
        [
            (client_secret.clone(), Some(SecretChange::New)),
            (secret.clone(), Some(SecretChange::New))
        ]
    );
    let mut signing = corp();
    signing.client_secret = None;
    signing.fields.auth_method = Some(UpstreamAuth::PrivateKeyJwt);
    let public = DeclaredClient {
        public: true,
        ..web()
    };
    let second = admin(&core).call(both(signing, public.clone())).await.unwrap();
    assert_eq!(
        told(&second),
        [
            (client_secret, Some(SecretChange::Removed)),
            (secret, Some(SecretChange::Removed))
        ]
    );
    let third = admin(&core)
        .call(request(Some(vec![public]), None, false))
        .await
        .unwrap();
    assert!(third.changes.is_empty());
}

/// A client that is older than this default keeps its value, also if an older file is applied again.
#[tokio::test]
async fn a_file_without_the_claims_of_id_tokens_gives_the_default_to_a_new_client_only() {
    let core = core();
    applied(&core, web()).await;
    assert_eq!(registered(&core).id_token_claims, IdTokenContent::Userinfo);
    let exact = web_with(|fields| fields.id_token_claims = Some(IdTokenContent::Requested));
    assert_eq!(applied(&core, exact).await.changes.len(), 1);
    assert_eq!(applied(&core, web()).await.unchanged, 1);
    assert_eq!(registered(&core).id_token_claims, IdTokenContent::Requested);
    let Exported::Client(entry) = exported(&core, false).remove(0) else {
        panic!("no client");
    };
    assert_eq!(entry["id_token_claims"], "requested");
}
