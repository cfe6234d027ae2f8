//! Signing keys: list, rotate, retire, import.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::{Admin, AdminError, AdminRefusal, AdminResult, SecretString, TxResult, not_found};
use crate::clock::Timestamp;
use crate::flow::rotate_keys::{self, Introduction};
use crate::jose::alg::Algorithm;
use crate::jose::keyring::SigningKey;
use crate::oauth::FaultCode;
use crate::store::records::{KeyLifecycle, SigningKeyRecord};
use crate::store::tables::{CLIENTS, SIGNING_KEYS};

/// The kind of record in faults.
const KIND: &str = "key";

/// A signing key as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// The key's name.
    pub kid: String,
    /// The algorithm.
    pub alg: Algorithm,
    /// Its state: `announced`, `active` or `retired`, with the time at which that began or ends.
    #[serde(flatten)]
    pub standing: KeyStateView,
    /// When it was made or imported.
    pub created_at: Timestamp,
}

/// The state of a key, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum KeyStateView {
    /// It is published and does not sign yet.
    Announced {
        /// When it begins to sign.
        active_from: Timestamp,
    },
    /// It signs.
    Active {
        /// Since when.
        since: Timestamp,
    },
    /// It is published and no longer signs.
    Retired {
        /// When it is removed.
        remove_at: Timestamp,
    },
}

impl From<KeyLifecycle> for KeyStateView {
    fn from(standing: KeyLifecycle) -> Self {
        match standing {
            KeyLifecycle::Announced { active_from } => Self::Announced { active_from },
            KeyLifecycle::Active { since } => Self::Active { since },
            KeyLifecycle::Retired { remove_at } => Self::Retired { remove_at },
        }
    }
}

impl KeyView {
    fn of(kid: &str, record: &SigningKeyRecord) -> Self {
        Self {
            kid: kid.to_owned(),
            alg: record.alg,
            standing: record.standing.into(),
            created_at: record.created_at,
        }
    }
}

/// A request to replace the active key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RotateKey {
    /// The algorithm.
    pub alg: Algorithm,
    /// Whether it signs at once instead of being announced first.
    pub at_once: bool,
}

/// A request to import a key that was made elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportKey {
    /// The private key in PEM form.
    pub pem: SecretString,
    /// The algorithm, if the key allows several.
    pub alg: Option<Algorithm>,
    /// Whether it signs at once instead of being announced first.
    pub at_once: bool,
}

/// All keys, by algorithm: first the active one, then the announced one, then the retired ones from new to old.
pub async fn list(admin: Admin<'_>) -> AdminResult<Vec<KeyView>> {
    let mut keys: Vec<_> = admin
        .core
        .store
        .read(|snapshot| SIGNING_KEYS.scan(snapshot, .., usize::MAX))
        .await?
        .iter()
        .map(|(kid, record)| KeyView::of(kid, record))
        .collect();
    let rank = |key: &KeyView| match key.standing {
        KeyStateView::Active { .. } => 0,
        KeyStateView::Announced { .. } => 1,
        KeyStateView::Retired { .. } => 2,
    };
    keys.sort_by_cached_key(|key| (key.alg, rank(key), Reverse(key.created_at), key.kid.clone()));
    Ok(keys)
}

/// The answer after a key was introduced.
fn view_introduction(
    admin: Admin<'_>,
    command: &'static str,
    introduction: Introduction,
) -> Result<KeyView, AdminRefusal> {
    match introduction {
        Introduction::Placed { kid, record } => {
            admin.record(command, &kid);
            Ok(KeyView::of(&kid, &record))
        }
        Introduction::Known { kid } => {
            let detail = format!("key {kid} is here already");
            Err(FaultCode::AlreadyExists.of(KIND, &kid, detail).into())
        }
        Introduction::AnotherIsAnnounced { kid } => {
            let detail = format!("key {kid} of the same algorithm is announced already");
            Err(FaultCode::Conflict.of(KIND, &kid, detail).into())
        }
    }
}

/// Makes a new key and introduces it.
pub async fn rotate(admin: Admin<'_>, request: RotateKey) -> AdminResult<KeyView> {
    let introduction = rotate_keys::rotate(admin.core, request.alg, request.at_once).await?;
    Ok(view_introduction(admin, "key rotate", introduction)?)
}

/// Introduces a key from a PEM file.
pub async fn import(admin: Admin<'_>, request: ImportKey) -> AdminResult<KeyView> {
    let key = SigningKey::from_pem(request.pem.reveal(), request.alg)
        .map_err(|error| FaultCode::Invalid.at(["pem"], error.to_string()))?;
    let introduction = rotate_keys::introduce(admin.core, &key, request.at_once).await?;
    Ok(view_introduction(admin, "key import", introduction)?)
}

/// Takes a key out of service. An active key stays published until what it signed has expired. An announced or
/// retired key is removed at once, and tokens that it signed are refused from then on.
pub async fn retire(admin: Admin<'_>, kid: String) -> AdminResult<KeyView> {
    let core = admin.core;
    let (now, retention) = (core.clock.now(), core.policy.key_retention());
    let indispensable = rotate_keys::indispensable(core);
    let written = core
        .store
        .write("key retire", move |tx| -> TxResult<KeyView> {
            let Some(mut record) = SIGNING_KEYS.get(&*tx, &kid)? else {
                return Ok(Err(not_found(KIND, &kid).into()));
            };
            match record.standing {
                KeyLifecycle::Announced { .. } | KeyLifecycle::Retired { .. } => {
                    SIGNING_KEYS.remove(tx, &kid)?;
                    record.standing = KeyLifecycle::Retired { remove_at: now };
                    return Ok(Ok(KeyView::of(&kid, &record)));
                }
                KeyLifecycle::Active { .. } => {}
            }
            let alg = record.alg;
            let clients = CLIENTS.scan(&*tx, .., usize::MAX)?;
            let user = clients.iter().find(|(_, client)| {
                let mut used = client.signing_algs().into_iter();
                used.any(|(_, used)| used == Some(alg))
            });
            if indispensable.contains(&alg) || user.is_some() {
                let who = match user {
                    Some((client_id, _)) => format!("client {client_id}"),
                    None => "the service".to_owned(),
                };
                let detail = format!("key {kid} is the active key of {alg}, which {who} needs");
                return Ok(Err(FaultCode::InUse.of(KIND, &kid, detail).into()));
            }
            record.retire(now, retention);
            SIGNING_KEYS.put(tx, &kid, &record)?;
            Ok(Ok(KeyView::of(&kid, &record)))
        })
        .await;
    let view = core.reload_after::<_, _, AdminError>(written).await??;
    admin.record("key retire", &view.kid);
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::client;
    use crate::admin::client::tests::request;
    use crate::admin::tests::{admin, assert_faults, core, refusal};

    fn eddsa(at_once: bool) -> RotateKey {
        RotateKey {
            alg: Algorithm::EdDsa,
            at_once,
        }
    }

    #[tokio::test]
    async fn a_key_nobody_needs_can_be_retired() {
        let core = core();
        let key = rotate(admin(&core), eddsa(false)).await.unwrap();
        let retired = retire(admin(&core), key.kid.clone()).await.unwrap();
        assert!(matches!(retired.standing, KeyStateView::Retired { .. }));
        assert!(core.catalog().keyring().signer(Algorithm::EdDsa).is_none());
    }

    #[tokio::test]
    async fn a_key_that_a_client_needs_stays_and_afterwards_is_kept_while_its_tokens_last() {
        let core = core();
        let key = rotate(admin(&core), eddsa(true)).await.unwrap();
        let mut web = request("web");
        web.fields.id_token_signed_response_alg = Some(Algorithm::EdDsa.into());
        client::add(admin(&core), web).await.unwrap();
        let refused = refusal(retire(admin(&core), key.kid.clone()).await);
        assert_faults(&refused, &[(FaultCode::InUse, &[])]);
        assert!(refused[0].detail.contains("client web"), "{refused:?}");
        client::remove(admin(&core), "web".to_owned()).await.unwrap();
        let retired = retire(admin(&core), key.kid.clone()).await.unwrap();
        let remove_at = core.clock.now() + core.policy.key_retention();
        assert_eq!(retired.standing, KeyStateView::Retired { remove_at });
        assert!(core.catalog().keyring().verifier(&key.kid).is_some());
    }

    #[tokio::test]
    async fn a_retired_key_is_withdrawn_at_once_when_it_is_retired_again() {
        let core = core();
        let leaked = rotate(admin(&core), eddsa(true)).await.unwrap();
        let good = rotate(admin(&core), eddsa(true)).await.unwrap();
        assert!(core.catalog().keyring().verifier(&leaked.kid).is_some());
        let withdrawn = retire(admin(&core), leaked.kid.clone()).await.unwrap();
        let remove_at = core.clock.now();
        assert_eq!(withdrawn.standing, KeyStateView::Retired { remove_at });
        assert!(core.catalog().keyring().verifier(&leaked.kid).is_none());
        assert_eq!(list(admin(&core)).await.unwrap()[0].kid, good.kid);
        let unknown = refusal(retire(admin(&core), leaked.kid).await);
        assert_faults(&unknown, &[(FaultCode::NotFound, &[])]);
    }

    #[tokio::test]
    async fn the_key_that_signs_for_the_service_stays() {
        let core = core();
        let key = rotate(
            admin(&core),
            RotateKey {
                alg: Algorithm::Es256,
                at_once: true,
            },
        )
        .await
        .unwrap();
        let refused = refusal(retire(admin(&core), key.kid).await);
        assert_faults(&refused, &[(FaultCode::InUse, &[])]);
    }

    #[tokio::test]
    async fn an_announced_key_is_shown_and_can_be_taken_back() {
        let core = core();
        rotate(admin(&core), eddsa(false)).await.unwrap();
        let second = rotate(admin(&core), eddsa(false)).await.unwrap();
        assert_eq!(list(admin(&core)).await.unwrap().len(), 2);
        let json = serde_json::to_value(&second).unwrap();
        assert_eq!(
            (&json["alg"], &json["state"]),
            (&"EdDSA".into(), &"announced".into())
        );
        assert!(json["active_from"].is_u64());
        let twice = refusal(rotate(admin(&core), eddsa(false)).await);
        assert_faults(&twice, &[(FaultCode::Conflict, &[])]);
        assert_eq!(twice[0].subject.as_ref().unwrap().id, second.kid);
        let made = SigningKey::generate_ed25519(&core.random).unwrap();
        let pem = pem_of(made.pkcs8());
        let bring = |at_once| ImportKey {
            pem: SecretString::new(pem.clone()),
            alg: None,
            at_once,
        };
        let third = refusal(import(admin(&core), bring(false)).await);
        assert_eq!(third, twice);
        import(admin(&core), bring(true)).await.unwrap();
        let again = refusal(import(admin(&core), bring(true)).await);
        assert_faults(&again, &[(FaultCode::AlreadyExists, &[])]);
        retire(admin(&core), second.kid).await.unwrap();
        assert_eq!(list(admin(&core)).await.unwrap().len(), 2);
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
        let refused = refusal(import(admin(&core), request).await);
        assert_faults(&refused, &[(FaultCode::Invalid, &["pem"])]);
    }
}
