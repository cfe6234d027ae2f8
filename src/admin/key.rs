//! Signing keys: list, rotate, retire, import.

use serde::{Deserialize, Serialize};

use super::{Admin, AdminError, AdminRefusal, Decided, Done, SecretString};
use crate::clock::Timestamp;
use crate::flow::rotate_keys::{self, Introduction};
use crate::jose::alg::Algorithm;
use crate::jose::keyring::SigningKey;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::records::{KeyLifecycle, SigningKeyRecord};
use crate::store::tables::{CLIENTS, SIGNING_KEYS};

/// A signing key as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// The key's name.
    pub kid: String,
    /// What it signs with.
    pub alg: Algorithm,
    /// Where it stands: `announced`, `active` or `retired`, with the moment from which that holds or ends.
    #[serde(flatten)]
    pub standing: StandingView,
    /// When it was made or imported.
    pub created_at: Timestamp,
}

/// Where a key stands, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum StandingView {
    /// Published and waiting.
    Announced {
        /// When it begins to sign.
        active_from: Timestamp,
    },
    /// Signing.
    Active {
        /// Since when.
        since: Timestamp,
    },
    /// Published, signing no more.
    Retired {
        /// When it goes.
        remove_at: Timestamp,
    },
}

impl From<KeyLifecycle> for StandingView {
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

/// A new key in place of the one that signs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RotateKey {
    /// What it signs with.
    pub alg: Algorithm,
    /// Whether it signs at once instead of being announced first.
    pub at_once: bool,
}

/// A key that was made elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportKey {
    /// The private key in PEM form.
    pub pem: SecretString,
    /// What it signs with, where the key allows several.
    pub alg: Option<Algorithm>,
    /// Whether it signs at once instead of being announced first.
    pub at_once: bool,
}

/// Every key: by algorithm, the one that signs first, then the one that is announced, then the newest retired one.
pub fn list(admin: Admin<'_>) -> Done<Vec<KeyView>> {
    let mut keys: Vec<_> = admin
        .core
        .store
        .read(|snapshot| SIGNING_KEYS.scan(snapshot, .., usize::MAX))?
        .iter()
        .map(|(kid, record)| KeyView::of(kid, record))
        .collect();
    let rank = |key: &KeyView| match key.standing {
        StandingView::Active { .. } => 0,
        StandingView::Announced { .. } => 1,
        StandingView::Retired { .. } => 2,
    };
    keys.sort_by(|one, other| {
        (one.alg, rank(one), other.created_at, &one.kid).cmp(&(
            other.alg,
            rank(other),
            one.created_at,
            &other.kid,
        ))
    });
    Ok(keys)
}

/// What came of a key; `otherwise` is what to do while another one waits for its turn.
fn introduced(
    command: &'static str,
    introduction: Introduction,
    otherwise: &str,
) -> Result<KeyView, AdminRefusal> {
    match introduction {
        Introduction::Placed { kid, record } => {
            audit::record(&Event::Administered {
                command,
                subject: &kid,
            });
            Ok(KeyView::of(&kid, &record))
        }
        Introduction::Known { kid } => {
            let refusal = AdminRefusal::new(format!("key {kid} is here already"));
            Err(refusal.with_hint("idsvc key list shows where it stands"))
        }
        Introduction::AnotherIsAnnounced { kid } => Err(AdminRefusal::new(format!(
            "key {kid} of the same algorithm is announced already"
        ))
        .with_hint(format!("idsvc key retire {kid} takes it back; {otherwise}"))),
    }
}

/// Brings in a new key.
pub async fn rotate(admin: Admin<'_>, request: RotateKey) -> Done<KeyView> {
    Ok(introduced(
        "key rotate",
        rotate_keys::rotate(admin.core, request.alg, request.at_once).await?,
        &format!(
            "idsvc key rotate --alg {} --now puts it to work at once",
            request.alg
        ),
    )?)
}

/// Brings in a key from a PEM file.
pub async fn import(admin: Admin<'_>, request: ImportKey) -> Done<KeyView> {
    let key = SigningKey::from_pem(request.pem.reveal(), request.alg)
        .map_err(|error| AdminRefusal::new(error.to_string()))?;
    Ok(introduced(
        "key import",
        rotate_keys::introduce(admin.core, &key, request.at_once).await?,
        "with --now, the imported key signs until that one takes over",
    )?)
}

/// Takes a key out of service: one that signs stays published while what it signed is of use, one that is only
/// announced goes at once, and so does one that is retired already: what it signed is refused from then on.
pub async fn retire(admin: Admin<'_>, kid: String) -> Done<KeyView> {
    let core = admin.core;
    let (now, retention) = (core.clock.now(), core.policy.key_retention());
    let indispensable = rotate_keys::indispensable(core);
    let written = core
        .store
        .write("key retire", move |tx| -> Decided<KeyView> {
            let Some(mut record) = SIGNING_KEYS.get(&*tx, &kid)? else {
                let refusal = AdminRefusal::new(format!("there is no key {kid}"));
                return Ok(Err(refusal.with_hint("idsvc key list shows all")));
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
            let users = CLIENTS
                .scan(&*tx, .., usize::MAX)?
                .into_iter()
                .map(|(_, client)| client)
                .find(|client| {
                    [client.id_token_signed_response_alg, client.access_token_alg].contains(&Some(alg))
                });
            if indispensable.contains(&alg) || users.is_some() {
                let who = users.map_or_else(
                    || "the service".to_owned(),
                    |client| format!("client {}", client.client_id),
                );
                let refusal = AdminRefusal::new(format!(
                    "key {kid} is the one that signs {alg}, which {who} needs"
                ));
                return Ok(Err(refusal.with_hint(format!(
                    "replace it with idsvc key rotate --alg {alg} --now"
                ))));
            }
            record.retire(now, retention);
            SIGNING_KEYS.put(tx, &kid, &record)?;
            Ok(Ok(KeyView::of(&kid, &record)))
        })
        .await;
    let view = core.reload_after::<_, AdminError>(written)??;
    audit::record(&Event::Administered {
        command: "key retire",
        subject: &view.kid,
    });
    Ok(view)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::client;
    use crate::admin::client::tests::request;
    use crate::admin::tests::{admin, core, refusal};

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
        assert!(matches!(retired.standing, StandingView::Retired { .. }));
        assert!(core.catalog().keyring().signer(Algorithm::EdDsa).is_none());
    }

    #[tokio::test]
    async fn a_key_that_a_client_needs_stays_and_afterwards_is_kept_while_its_tokens_last() {
        let core = core();
        let key = rotate(admin(&core), eddsa(true)).await.unwrap();
        let mut web = request("web");
        web.fields.id_token_signed_response_alg = Some(Algorithm::EdDsa);
        client::add(admin(&core), web).await.unwrap();
        let refused = refusal(retire(admin(&core), key.kid.clone()).await).message;
        assert!(refused.ends_with("which client web needs"), "{refused}");
        client::remove(admin(&core), "web".to_owned()).await.unwrap();
        let retired = retire(admin(&core), key.kid.clone()).await.unwrap();
        let remove_at = core.clock.now() + core.policy.key_retention();
        assert_eq!(retired.standing, StandingView::Retired { remove_at });
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
        assert_eq!(withdrawn.standing, StandingView::Retired { remove_at });
        assert!(core.catalog().keyring().verifier(&leaked.kid).is_none());
        assert_eq!(list(admin(&core)).unwrap()[0].kid, good.kid);
        let unknown = refusal(retire(admin(&core), leaked.kid).await);
        assert!(unknown.message.contains("there is no key"));
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
        assert!(
            refusal(retire(admin(&core), key.kid).await)
                .hint
                .unwrap()
                .contains("key rotate --alg ES256")
        );
    }

    #[tokio::test]
    async fn an_announced_key_is_shown_and_can_be_taken_back() {
        let core = core();
        rotate(admin(&core), eddsa(false)).await.unwrap();
        let second = rotate(admin(&core), eddsa(false)).await.unwrap();
        assert_eq!(list(admin(&core)).unwrap().len(), 2);
        let json = serde_json::to_value(&second).unwrap();
        assert_eq!(
            (&json["alg"], &json["state"]),
            (&"EdDSA".into(), &"announced".into())
        );
        assert!(json["active_from"].is_u64());
        let twice = refusal(rotate(admin(&core), eddsa(false)).await);
        assert_eq!(
            twice.hint.unwrap(),
            format!(
                "idsvc key retire {} takes it back; idsvc key rotate --alg EdDSA --now puts it to work at once",
                second.kid
            )
        );
        let made = SigningKey::generate_ed25519(&core.random).unwrap();
        let pem = pem_of(made.pkcs8());
        let bring = |at_once| ImportKey {
            pem: SecretString::new(pem.clone()),
            alg: None,
            at_once,
        };
        let third = refusal(import(admin(&core), bring(false)).await).hint.unwrap();
        assert!(
            third.ends_with("with --now, the imported key signs until that one takes over"),
            "{third}"
        );
        import(admin(&core), bring(true)).await.unwrap();
        let again = refusal(import(admin(&core), bring(true)).await);
        assert_eq!(
            again.hint.as_deref(),
            Some("idsvc key list shows where it stands")
        );
        retire(admin(&core), second.kid).await.unwrap();
        assert_eq!(list(admin(&core)).unwrap().len(), 2);
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
        assert!(
            refusal(import(admin(&core), request).await)
                .message
                .contains("no private key")
        );
    }
}
