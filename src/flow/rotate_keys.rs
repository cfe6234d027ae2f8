//! The life of signing keys: made at the first start, announced before they sign, published until the last
//! token they signed has expired.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Core, OpenError};
use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::jose::keyring::{SigningKey, SigningKeyError};
use crate::jose::rsa_keygen::{self, RsaKeygenError};
use crate::random::Random;
use crate::seal::{SealError, Sealer};
use crate::store::StoreError;
use crate::store::backend::{Snapshot, Tx};
use crate::store::records::{KeyStanding, SigningKeyRecord};
use crate::store::tables::SIGNING_KEYS;

const RSA_BITS: usize = 2048;

/// A stored signing key does not open.
#[derive(Clone, Debug, thiserror::Error)]
#[error("signing key {kid} cannot be read ({what}): restore a backup, or the master.key that belongs to it")]
pub struct KeyUnreadable {
    /// Which key.
    pub kid: String,
    /// What went wrong; holds nothing of the key.
    pub what: String,
}

/// Why a key was not made or put in place.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No RSA key could be made.
    #[error(transparent)]
    Rsa(#[from] RsaKeygenError),
    /// The key is not fit to sign.
    #[error(transparent)]
    Key(#[from] SigningKeyError),
    /// The thread that made the key came to no end.
    #[error("making the key was interrupted")]
    Interrupted,
    /// The new keys could not be read back.
    #[error(transparent)]
    Reload(#[from] OpenError),
}

/// What came of bringing in a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Introduction {
    /// The key is in place.
    Placed {
        /// Its name.
        kid: String,
        /// Its record.
        record: SigningKeyRecord,
    },
    /// The store has the key already.
    Known {
        /// Its name.
        kid: String,
    },
    /// Another key of the algorithm waits for its turn.
    AnotherIsAnnounced {
        /// The name of that key.
        kid: String,
    },
}

fn context(kid: &str) -> String {
    format!("signing_keys/{kid}")
}

/// Opens a stored key.
pub fn open_signing_key(
    sealer: &Sealer,
    kid: &str,
    record: &SigningKeyRecord,
) -> Result<SigningKey, KeyUnreadable> {
    let unreadable = |what: String| KeyUnreadable {
        kid: kid.to_owned(),
        what,
    };
    let ciphertext = URL_SAFE_NO_PAD
        .decode(&record.sealed)
        .map_err(|_| unreadable("it is no base64url".to_owned()))?;
    let pkcs8 = sealer
        .open(&context(kid), &ciphertext)
        .map_err(|error: SealError| unreadable(error.to_string()))?;
    let key =
        SigningKey::from_pkcs8_der(record.alg, &pkcs8).map_err(|error| unreadable(error.to_string()))?;
    if key.kid() == kid {
        Ok(key)
    } else {
        Err(unreadable("it is another key than its name says".to_owned()))
    }
}

fn seal(
    sealer: &Sealer,
    random: &Random,
    key: &SigningKey,
    standing: KeyStanding,
    now: Timestamp,
) -> SigningKeyRecord {
    let ciphertext = sealer.seal(&context(key.kid()), key.pkcs8(), random);
    SigningKeyRecord {
        alg: key.alg(),
        standing,
        created_at: now,
        sealed: URL_SAFE_NO_PAD.encode(ciphertext),
    }
}

/// Makes a key. RSA takes some tenths of a second, on a thread of its own.
pub async fn generate(random: &Random, alg: Algorithm) -> Result<SigningKey, RotateError> {
    match alg {
        Algorithm::Es256 => Ok(SigningKey::generate_es256(random)?),
        Algorithm::EdDsa => Ok(SigningKey::generate_ed25519(random)?),
        Algorithm::Rs256 | Algorithm::Ps256 => {
            let random = random.clone();
            let pkcs8 = tokio::task::spawn_blocking(move || rsa_keygen::generate(RSA_BITS, &random))
                .await
                .map_err(|_| RotateError::Interrupted)??;
            Ok(SigningKey::from_pkcs8_der(alg, &pkcs8)?)
        }
    }
}

/// The algorithms that must always have a key: ES256, RS256 (OpenID Connect Core 15.1), and that of access tokens.
pub fn indispensable(core: &Core) -> Vec<Algorithm> {
    let mut algorithms = vec![Algorithm::Es256, Algorithm::Rs256];
    if !algorithms.contains(&core.policy.access_token_alg) {
        algorithms.push(core.policy.access_token_alg);
    }
    algorithms
}

/// Makes the keys that are missing, as at the first start. Says which.
pub async fn ensure_keys(core: &Core) -> Result<Vec<Algorithm>, RotateError> {
    let mut made = Vec::new();
    for alg in indispensable(core) {
        if core.catalog().keyring().signer(alg).is_some() {
            continue;
        }
        let now = core.clock.now();
        let key = generate(&core.random, alg).await?;
        let record = seal(
            &core.sealer,
            &core.random,
            &key,
            KeyStanding::Active { since: now },
            now,
        );
        let kid = key.kid().to_owned();
        core.store
            .write("ensure_keys", move |tx| {
                let has_one = signing(&*tx, alg)?.is_some();
                if has_one {
                    Ok(())
                } else {
                    SIGNING_KEYS.put(tx, &kid, &record)
                }
            })
            .await?;
        made.push(alg);
    }
    if !made.is_empty() {
        core.reload_catalog()?;
    }
    Ok(made)
}

type Found = Result<Option<(String, SigningKeyRecord)>, StoreError>;

/// The key of an algorithm that signs now.
fn signing(snapshot: &dyn Snapshot, alg: Algorithm) -> Found {
    find(snapshot, alg, |standing| {
        matches!(standing, KeyStanding::Active { .. })
    })
}

/// The key of an algorithm that waits for its turn.
fn announced(snapshot: &dyn Snapshot, alg: Algorithm) -> Found {
    find(snapshot, alg, |standing| {
        matches!(standing, KeyStanding::Announced { .. })
    })
}

fn find(snapshot: &dyn Snapshot, alg: Algorithm, stands: impl Fn(&KeyStanding) -> bool) -> Found {
    let all = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
    Ok(all
        .into_iter()
        .find(|(_, key)| key.alg == alg && stands(&key.standing)))
}

/// Makes `kid` the key that signs. The one before stays published until `remove_at`.
fn activate(
    tx: &mut dyn Tx,
    kid: &str,
    record: &SigningKeyRecord,
    now: Timestamp,
    remove_at: Timestamp,
) -> Result<SigningKeyRecord, StoreError> {
    for (former_kid, mut former) in SIGNING_KEYS.scan(&*tx, .., usize::MAX)? {
        let is_former = former.alg == record.alg && matches!(former.standing, KeyStanding::Active { .. });
        if is_former && former_kid != kid {
            former.standing = KeyStanding::Retired { remove_at };
            SIGNING_KEYS.put(tx, &former_kid, &former)?;
        }
    }
    let record = SigningKeyRecord {
        standing: KeyStanding::Active { since: now },
        ..record.clone()
    };
    SIGNING_KEYS.put(tx, kid, &record)?;
    Ok(record)
}

/// Replaces the key of an algorithm by a new one: announced first, or signing at once when `at_once`. A key
/// that is announced already is then put to work instead of a new one.
pub async fn rotate(core: &Core, alg: Algorithm, at_once: bool) -> Result<Introduction, RotateError> {
    if at_once {
        let (now, retention) = (core.clock.now(), core.policy.key_retention());
        let promoted = core
            .store
            .write("rotate_keys", move |tx| {
                let Some((kid, record)) = announced(&*tx, alg)? else {
                    return Ok(None);
                };
                let record = activate(tx, &kid, &record, now, now + retention)?;
                Ok(Some(Introduction::Placed { kid, record }))
            })
            .await?;
        if let Some(promoted) = promoted {
            core.reload_catalog()?;
            return Ok(promoted);
        }
    }
    let key = generate(&core.random, alg).await?;
    introduce(core, &key, at_once).await
}

/// Brings in a key, made here or elsewhere. The first of its algorithm has nobody to wait for and signs at once.
pub async fn introduce(core: &Core, key: &SigningKey, at_once: bool) -> Result<Introduction, RotateError> {
    let (now, retention) = (core.clock.now(), core.policy.key_retention());
    let active_from = now + core.policy.key_rotation.announce;
    let record = seal(
        &core.sealer,
        &core.random,
        key,
        KeyStanding::Announced { active_from },
        now,
    );
    let kid = key.kid().to_owned();
    let introduction = core
        .store
        .write("introduce_key", move |tx| {
            let (kid, record) = (kid.clone(), record.clone());
            if SIGNING_KEYS.contains(&*tx, &kid)? {
                return Ok(Introduction::Known { kid });
            }
            if at_once || signing(&*tx, record.alg)?.is_none() {
                let record = activate(tx, &kid, &record, now, now + retention)?;
                return Ok(Introduction::Placed { kid, record });
            }
            if let Some((kid, _)) = announced(&*tx, record.alg)? {
                return Ok(Introduction::AnotherIsAnnounced { kid });
            }
            SIGNING_KEYS.put(tx, &kid, &record)?;
            Ok(Introduction::Placed { kid, record })
        })
        .await?;
    core.reload_catalog()?;
    Ok(introduction)
}

/// Whether a key's time has come: to sign, or to go.
fn is_due(record: &SigningKeyRecord, now: Timestamp) -> bool {
    match record.standing {
        KeyStanding::Announced { active_from } => active_from <= now,
        KeyStanding::Active { .. } => false,
        KeyStanding::Retired { remove_at } => remove_at <= now,
    }
}

fn due(snapshot: &dyn Snapshot, now: Timestamp) -> Result<Vec<(String, SigningKeyRecord)>, StoreError> {
    let all = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
    Ok(all
        .into_iter()
        .filter(|(_, record)| is_due(record, now))
        .collect())
}

/// Puts announced keys to work and removes retired ones, each when its time has come. Says whether any was due.
pub async fn advance(core: &Core) -> Result<bool, RotateError> {
    let (now, retention) = (core.clock.now(), core.policy.key_retention());
    if core.store.read(|snapshot| due(snapshot, now))?.is_empty() {
        return Ok(false);
    }
    core.store
        .write("advance_keys", move |tx| {
            for (kid, record) in due(&*tx, now)? {
                match record.standing {
                    KeyStanding::Announced { .. } => {
                        activate(tx, &kid, &record, now, now + retention)?;
                    }
                    KeyStanding::Retired { .. } => {
                        SIGNING_KEYS.remove(tx, &kid)?;
                    }
                    KeyStanding::Active { .. } => {}
                }
            }
            Ok(())
        })
        .await?;
    core.reload_catalog()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::flow::admin::tests::core;

    const DAY: Duration = Duration::from_hours(24);

    fn signer(core: &Core) -> String {
        core.catalog()
            .keyring()
            .signer(Algorithm::EdDsa)
            .unwrap()
            .kid()
            .to_owned()
    }

    fn placed(introduction: Introduction) -> String {
        match introduction {
            Introduction::Placed { kid, .. } => kid,
            other => panic!("not placed: {other:?}"),
        }
    }

    #[tokio::test]
    async fn the_first_start_makes_the_keys_and_the_second_none() {
        let core = core();
        assert_eq!(
            ensure_keys(&core).await.unwrap(),
            [Algorithm::Es256, Algorithm::Rs256]
        );
        assert_eq!(
            core.catalog().keyring().algorithms(),
            [Algorithm::Rs256, Algorithm::Es256]
        );
        assert!(ensure_keys(&core).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_new_key_is_announced_then_signs_then_the_old_one_goes() {
        let core = core();
        let first = placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap());
        assert_eq!(signer(&core), first);
        let second = placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap());
        assert_eq!(signer(&core), first);
        assert!(core.catalog().keyring().verifier(&second).is_some());
        assert!(!advance(&core).await.unwrap());
        core.clock.advance(DAY);
        assert!(advance(&core).await.unwrap());
        assert_eq!(signer(&core), second);
        assert!(core.catalog().keyring().verifier(&first).is_some());
        core.clock.advance(Duration::from_secs(24 * 60 * 60 - 1));
        assert!(!advance(&core).await.unwrap());
        core.clock.advance(Duration::from_secs(1));
        assert!(advance(&core).await.unwrap());
        assert!(core.catalog().keyring().verifier(&first).is_none());
    }

    #[tokio::test]
    async fn an_announced_key_is_not_overtaken_but_can_be_hurried() {
        let core = core();
        rotate(&core, Algorithm::EdDsa, false).await.unwrap();
        let second = placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap());
        assert_eq!(
            rotate(&core, Algorithm::EdDsa, false).await.unwrap(),
            Introduction::AnotherIsAnnounced { kid: second.clone() }
        );
        assert_eq!(
            placed(rotate(&core, Algorithm::EdDsa, true).await.unwrap()),
            second
        );
        assert_eq!(signer(&core), second);
    }

    #[tokio::test]
    async fn a_key_opens_under_its_own_name_and_master_key_only() {
        let core = core();
        let kid = placed(rotate(&core, Algorithm::EdDsa, true).await.unwrap());
        let record = core
            .store
            .read(|snapshot| SIGNING_KEYS.get(snapshot, &kid))
            .unwrap()
            .unwrap();
        assert_eq!(open_signing_key(&core.sealer, &kid, &record).unwrap().kid(), kid);
        assert!(open_signing_key(&core.sealer, "other", &record).is_err());
        assert!(open_signing_key(&Sealer::new(&[8; 32]), &kid, &record).is_err());
    }
}
