//! Clients, their secrets and their keys.

use crate::admin::apply::tests::*;
use crate::admin::key;
use crate::admin::key::RotateKey;
use crate::flow::token::introspect::live_access_token;
use crate::flow::token::issue::issue_tokens_for_client;
use crate::jose::alg::Algorithm;
use crate::oauth::Client;
use crate::oauth::scope::Scope;
use crate::secret::Digest;
use crate::store::tables::SIGNING_KEYS;

async fn applied(core: &Core, client: DeclaredClient) -> Applied {
    let done = apply(admin(core), request(Some(vec![client]), None, false)).await;
    done.unwrap()
}

fn registered(core: &Core) -> Client {
    Client::clone(core.catalog().client("web").unwrap())
}

/// The file was applied with an earlier release, which took the addresses.
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
    core.reload_catalog().unwrap();
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
    let refused = refusal(apply(admin(&core), other).await).message;
    assert!(refused.contains("https://*.example"), "{refused}");
}

/// A file has no room for an end, so what it declares has none.
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
    client::rotate_secret(admin(&core), rotate).await.unwrap();
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

/// An export names the `client_uuid`, which the tokens of a client for itself name too.
#[tokio::test]
async fn a_client_that_comes_again_has_none_of_the_tokens_of_the_one_that_went() {
    let core = core();
    crate::flow::rotate_keys::ensure_keys(&core).await.unwrap();
    let now = core.clock.now();
    let with_uuid = DeclaredClient {
        client_uuid: Some(uuid::Uuid::from_u128(1)),
        ..web()
    };
    let token_of = |client: &Client| {
        let made = issue_tokens_for_client(&core, client, Scope::empty(), now).unwrap();
        made.access_token
    };
    let is_live = |token: &str| live_access_token(&core, token, now).unwrap().is_some();
    applied(&core, with_uuid.clone()).await;
    let before = token_of(&registered(&core));
    let mut renamed = with_uuid.clone();
    renamed.fields.client_name = Some("Acme".to_owned());
    applied(&core, renamed).await;
    assert!(is_live(&before));
    client::remove(admin(&core), "web".to_owned()).await.unwrap();
    applied(&core, with_uuid).await;
    assert!(!is_live(&before));
    assert!(is_live(&token_of(&registered(&core))));
}

/// Two administrators at once: the record of the client is held against the keys that are there when it is written.
#[tokio::test]
async fn no_client_is_left_with_an_algorithm_that_lost_its_key_meanwhile() {
    let core = core();
    let rotate = RotateKey {
        alg: Algorithm::EdDsa,
        at_once: true,
    };
    let key = key::rotate(admin(&core), rotate).await.unwrap();
    client::add(admin(&core), client::tests::request("web"))
        .await
        .unwrap();
    let gone = core
        .store
        .write("test_retire", move |tx| SIGNING_KEYS.remove(tx, &key.kid));
    assert!(gone.await.unwrap());
    assert!(
        core.catalog().keyring().signer(Algorithm::EdDsa).is_some(),
        "nobody has heard"
    );
    let fields = ClientFields {
        access_token_alg: Some(Algorithm::EdDsa),
        ..ClientFields::default()
    };
    let told = "there is no key for EdDSA: make one with idsvc key rotate --alg EdDSA";
    let change = client::UpdateClient {
        client_id: "web".to_owned(),
        no_secret: false,
        fields,
    };
    assert_eq!(refusal(client::update(admin(&core), change).await).message, told);
    let mut other = client::tests::request("other");
    other.fields.id_token_signed_response_alg = Some(Algorithm::EdDsa);
    assert_eq!(refusal(client::add(admin(&core), other).await).message, told);
    let declared = web_with(|fields| fields.access_token_alg = Some(Algorithm::EdDsa));
    let refused = refusal(apply(admin(&core), request(Some(vec![declared]), None, false)).await);
    assert_eq!(refused.message, format!("client web: {told}"));
}

/// One of them would be left out without a word.
#[tokio::test]
async fn keys_are_said_in_one_way() {
    let core = core();
    let keyed = web_with(|fields| fields.jwks = Some(client::tests::keys()));
    let mut both = keyed.clone();
    both.fields.jwks_uri = Some("https://app.example/jwks".to_owned());
    let refused = refusal(apply(admin(&core), request(Some(vec![both]), None, false)).await);
    assert_eq!(
        refused.message,
        "client web: keys beside jwks_uri: give one of them"
    );
    applied(&core, keyed).await;
}
