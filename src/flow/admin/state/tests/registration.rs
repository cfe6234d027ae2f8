//! Clients, their secrets and their keys.

use super::*;
use crate::flow::admin::key::{self, RotateKey};
use crate::flow::introspect::live_access_token;
use crate::flow::mint::mint_for_client;
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

/// A file has no room for an end, so what it declares has none.
#[tokio::test]
async fn a_declared_secret_lasts_though_it_was_about_to_end() {
    let core = core();
    let [old, new] = ["o", "n"].map(|letter| Disclosed::new(letter.repeat(40)));
    let digest = |secret: &Disclosed| Digest::of(secret.reveal().as_bytes());
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
    let with = |secrets: &[&Disclosed]| DeclaredClient {
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
    other.fields.id_token_alg = Some(Algorithm::EdDsa);
    assert_eq!(refusal(client::add(admin(&core), other).await).message, told);
    let declared = DeclaredClient {
        access_token_alg: Some(Algorithm::EdDsa),
        ..web()
    };
    let refused = refusal(apply(admin(&core), request(Some(vec![declared]), None, false)).await);
    assert_eq!(refused.message, format!("client web: {told}"));
}

/// One of them would be left out without a word.
#[tokio::test]
async fn keys_are_said_in_one_way() {
    let core = core();
    let jwks =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let set: Value = serde_json::from_str(jwks).unwrap();
    let keyed = DeclaredClient {
        keys: set["keys"].as_array().cloned(),
        ..web()
    };
    for both in [
        DeclaredClient {
            jwks_uri: Some("https://app.example/jwks".to_owned()),
            ..keyed.clone()
        },
        DeclaredClient {
            jwks: Some(jwks.to_owned()),
            ..keyed.clone()
        },
    ] {
        let refused = refusal(apply(admin(&core), request(Some(vec![both]), None, false)).await);
        assert!(
            refused.message.contains("name one of keys,"),
            "{}",
            refused.message
        );
    }
    applied(&core, keyed).await;
}
