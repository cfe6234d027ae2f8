use super::*;
use crate::admin::SecretString;
use crate::admin::client;
use crate::admin::client::tests::request;
use crate::admin::tests::{admin, assert_faults, core, refusal};
use crate::jose::keyring::SigningKey;

fn eddsa(at_once: bool) -> RotateKey {
    RotateKey {
        alg: Algorithm::EdDsa,
        at_once,
    }
}

#[tokio::test]
async fn a_key_nobody_needs_can_be_retired() {
    let core = core();
    let key = admin(&core).call(eddsa(false)).await.unwrap();
    let retired = admin(&core)
        .call(RetireKey { kid: key.kid.clone() })
        .await
        .unwrap();
    assert!(matches!(retired.standing, KeyStateView::Retired { .. }));
    assert!(core.catalog().keyring().signer(Algorithm::EdDsa).is_none());
}

#[tokio::test]
async fn a_key_that_a_client_needs_stays_and_afterwards_is_kept_while_its_tokens_last() {
    let core = core();
    let key = admin(&core).call(eddsa(true)).await.unwrap();
    let mut web = request("web");
    web.fields.id_token_signed_response_alg = Some(Algorithm::EdDsa.into());
    admin(&core).call(web).await.unwrap();
    let refused = refusal(admin(&core).call(RetireKey { kid: key.kid.clone() }).await);
    assert_faults(&refused, &[(FaultCode::InUse, &[])]);
    assert!(refused[0].detail.contains("client web"), "{refused:?}");
    admin(&core)
        .call(client::RemoveClient {
            client_id: "web".to_owned(),
        })
        .await
        .unwrap();
    let retired = admin(&core)
        .call(RetireKey { kid: key.kid.clone() })
        .await
        .unwrap();
    let remove_at = core.clock.now() + core.policy.key_retention();
    assert_eq!(retired.standing, KeyStateView::Retired { remove_at });
    assert!(core.catalog().keyring().verifier(&key.kid).is_some());
}

#[tokio::test]
async fn a_retired_key_is_withdrawn_at_once_when_it_is_retired_again() {
    let core = core();
    let leaked = admin(&core).call(eddsa(true)).await.unwrap();
    let good = admin(&core).call(eddsa(true)).await.unwrap();
    assert!(core.catalog().keyring().verifier(&leaked.kid).is_some());
    let withdrawn = admin(&core)
        .call(RetireKey {
            kid: leaked.kid.clone(),
        })
        .await
        .unwrap();
    let remove_at = core.clock.now();
    assert_eq!(withdrawn.standing, KeyStateView::Retired { remove_at });
    assert!(core.catalog().keyring().verifier(&leaked.kid).is_none());
    assert_eq!(admin(&core).call(ListKeys).await.unwrap()[0].kid, good.kid);
    let unknown = refusal(admin(&core).call(RetireKey { kid: leaked.kid }).await);
    assert_faults(&unknown, &[(FaultCode::NotFound, &[])]);
}

#[tokio::test]
async fn the_key_that_signs_for_the_service_stays() {
    let core = core();
    let key = admin(&core)
        .call(RotateKey {
            alg: Algorithm::Es256,
            at_once: true,
        })
        .await
        .unwrap();
    let refused = refusal(admin(&core).call(RetireKey { kid: key.kid }).await);
    assert_faults(&refused, &[(FaultCode::InUse, &[])]);
}

#[tokio::test]
async fn an_announced_key_is_shown_and_can_be_taken_back() {
    let core = core();
    admin(&core).call(eddsa(false)).await.unwrap();
    let second = admin(&core).call(eddsa(false)).await.unwrap();
    assert_eq!(admin(&core).call(ListKeys).await.unwrap().len(), 2);
    let json = serde_json::to_value(&second).unwrap();
    assert_eq!(
        (&json["alg"], &json["state"]),
        (&"EdDSA".into(), &"announced".into())
    );
    assert!(json["active_from"].is_u64());
    let twice = refusal(admin(&core).call(eddsa(false)).await);
    assert_faults(&twice, &[(FaultCode::Conflict, &[])]);
    assert_eq!(twice[0].subject.as_ref().unwrap().id, second.kid);
    let made = SigningKey::generate_ed25519(&core.random).unwrap();
    let pem = pem_of(made.pkcs8());
    let bring = |at_once| ImportKey {
        pem: SecretString::new(pem.clone()),
        alg: None,
        at_once,
    };
    let third = refusal(admin(&core).call(bring(false)).await);
    assert_eq!(third, twice);
    admin(&core).call(bring(true)).await.unwrap();
    let again = refusal(admin(&core).call(bring(true)).await);
    assert_faults(&again, &[(FaultCode::AlreadyExists, &[])]);
    admin(&core).call(RetireKey { kid: second.kid }).await.unwrap();
    assert_eq!(admin(&core).call(ListKeys).await.unwrap().len(), 2);
}

fn pem_of(pkcs8: &[u8]) -> String {
    use base64::Engine;
    let body = base64::engine::general_purpose::STANDARD.encode(pkcs8);
    format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n")
}

#[tokio::test]
async fn a_file_without_a_key_is_refused() {
    let core = core();
    let request = ImportKey {
        pem: SecretString::new("nothing"),
        alg: None,
        at_once: false,
    };
    let refused = refusal(admin(&core).call(request).await);
    assert_faults(&refused, &[(FaultCode::Invalid, &["pem"])]);
}
