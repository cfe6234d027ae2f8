//! The lifecycle of keys: those of refresh tokens ([`refresh_keys`]), and the signing keys.
//!
//! Signing keys are made at the first start and announced before they sign. They stay published until the tokens that
//! they signed have expired, and the sessions that their ID tokens name are over.

pub mod refresh_keys;
#[cfg(test)]
mod tests;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Core, OpenError};
use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::jose::keyring::{SigningKey, SigningKeyError};
use crate::jose::rsa_keygen::{self, RsaKeygenError};
use crate::oauth::policy::KeyRotation;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::random::Random;
use crate::seal::{SealError, Sealer};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::records::{KeyLifecycle, SigningKeyRecord};
use crate::store::tables::SIGNING_KEYS;

/// A stored key cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("key {kid} cannot be read ({what}): restore a backup, or the master.key that belongs to it")]
pub struct KeyUnreadable {
    pub kid: String,
    /// What went wrong, without any part of the key.
    pub what: String,
}

/// Why a key was not made or introduced.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Making an RSA key failed.
    #[error(transparent)]
    Rsa(#[from] RsaKeygenError),
    /// The key cannot be used to sign.
    #[error(transparent)]
    Key(#[from] SigningKeyError),
    /// The thread that makes the key panicked or was stopped.
    #[error("making the key was interrupted")]
    Interrupted,
    /// The stored keys could not be read again.
    #[error(transparent)]
    Reload(#[from] OpenError),
}

/// The result of introducing a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Introduction {
    /// The key is stored.
    Placed { kid: String, record: SigningKeyRecord },
    /// The store has the key already.
    Known { kid: String },
    /// Another key of the algorithm is announced already.
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
    standing: KeyLifecycle,
    now: Timestamp,
) -> SigningKeyRecord {
    let ciphertext = sealer.seal(&context(key.kid()), key.pkcs8(), random);
    SigningKeyRecord {
        alg: key.alg(),
        standing,
        created_at: now,
        sealed: URL_SAFE_NO_PAD.encode(ciphertext),
        retention: 0,
    }
}

/// Makes a key. RSA takes some tenths of a second, on a thread of its own.
pub async fn generate(random: &Random, alg: Algorithm) -> Result<SigningKey, RotateError> {
    match alg {
        Algorithm::Es256 => Ok(SigningKey::generate_es256(random)?),
        Algorithm::EdDsa => Ok(SigningKey::generate_ed25519(random)?),
        Algorithm::Rs256 | Algorithm::Ps256 => {
            let random = random.clone();
            let pkcs8 = tokio::task::spawn_blocking(move || rsa_keygen::generate(&random))
                .await
                .map_err(|_| RotateError::Interrupted)??;
            Ok(SigningKey::from_pkcs8_der(alg, &pkcs8)?)
        }
        _ => Err(SigningKeyError::WrongAlgorithm.into()),
    }
}

/// The algorithms that must have a key: ES256, RS256 (OpenID Connect Core 15.1), and that of access tokens.
pub fn indispensable(core: &Core) -> Vec<Algorithm> {
    let mut algorithms = vec![Algorithm::Es256, Algorithm::Rs256];
    if !algorithms.contains(&core.policy.access_token_alg) {
        algorithms.push(core.policy.access_token_alg);
    }
    algorithms
}

/// Makes the keys that are missing, as at the first start, and records how long the tokens of the other keys are
/// valid by the current settings. Returns the algorithms of the new signing keys.
pub async fn ensure_keys(core: &Core) -> Result<Vec<Algorithm>, RotateError> {
    refresh_keys::ensure(core).await?;
    let mut made = Vec::new();
    let retention = core.policy.key_retention();
    for alg in indispensable(core) {
        if core.catalog().keyring().signer(alg).is_some() {
            continue;
        }
        let now = core.clock.now();
        let key = generate(&core.random, alg).await?;
        let standing = KeyLifecycle::Active { since: now };
        let mut record = seal(&core.sealer, &core.random, &key, standing, now);
        record.prolong(retention);
        let kid = key.kid().to_owned();
        let written = core
            .store
            .write("ensure_keys", move |tx| {
                let is_missing = signing(&*tx, alg)?.is_none();
                if is_missing {
                    SIGNING_KEYS.put(tx, &kid, &record)?;
                }
                Ok(is_missing)
            })
            .await;
        if core.reload_after::<_, StoreError, RotateError>(written).await? {
            made.push(alg);
        }
    }
    match prolong_keys(core, retention).await {
        // Without writes the service can still answer what needs none. The next start tries again.
        Err(error) if error.is_outage() => {
            tracing::warn!(%error, "the retention of the signing keys was not stored; the next start tries again");
        }
        prolonged => prolonged?,
    }
    Ok(made)
}

/// The active keys whose records name a shorter retention, prolonged to this one.
fn keys_to_prolong(
    snapshot: &dyn Snapshot,
    retention: Duration,
) -> Result<Vec<(String, SigningKeyRecord)>, StoreError> {
    let mut all = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
    all.retain_mut(|(_, key)| matches!(key.standing, KeyLifecycle::Active { .. }) && key.prolong(retention));
    Ok(all)
}

/// Records a longer retention with each active key.
async fn prolong_keys(core: &Core, retention: Duration) -> Result<(), StoreError> {
    let prolonged = core
        .store
        .read(|snapshot| keys_to_prolong(snapshot, retention))
        .await?;
    if prolonged.is_empty() {
        return Ok(());
    }
    let written = core.store.write("prolong_keys", move |tx| {
        for (kid, record) in keys_to_prolong(&*tx, retention)? {
            SIGNING_KEYS.put(tx, &kid, &record)?;
        }
        Ok(())
    });
    written.await
}

type FoundKey = Result<Option<(String, SigningKeyRecord)>, StoreError>;

/// The key of an algorithm that signs now.
pub fn signing(snapshot: &dyn Snapshot, alg: Algorithm) -> FoundKey {
    find(snapshot, alg, |standing| {
        matches!(standing, KeyLifecycle::Active { .. })
    })
}

fn announced(snapshot: &dyn Snapshot, alg: Algorithm) -> FoundKey {
    find(snapshot, alg, |standing| {
        matches!(standing, KeyLifecycle::Announced { .. })
    })
}

fn find(snapshot: &dyn Snapshot, alg: Algorithm, is_in_state: impl Fn(&KeyLifecycle) -> bool) -> FoundKey {
    let all = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
    Ok(all
        .into_iter()
        .find(|(_, key)| key.alg == alg && is_in_state(&key.standing)))
}

/// Makes `kid` the active key. The former one stays published until what it signed has expired: for `retention` by
/// the current settings.
fn activate(
    tx: &mut dyn Tx,
    kid: &str,
    record: &SigningKeyRecord,
    now: Timestamp,
    retention: Duration,
) -> Result<SigningKeyRecord, StoreError> {
    for (former_kid, mut former) in SIGNING_KEYS.scan(&*tx, .., usize::MAX)? {
        let is_former = former.alg == record.alg && matches!(former.standing, KeyLifecycle::Active { .. });
        if is_former && former_kid != kid {
            former.retire(now, retention);
            SIGNING_KEYS.put(tx, &former_kid, &former)?;
        }
    }
    let mut record = record.clone();
    record.begin(now, retention);
    SIGNING_KEYS.put(tx, kid, &record)?;
    Ok(record)
}

/// Replaces the key of an algorithm by a new one, which is announced first. With `at_once` it is active at once, and
/// so is an announced key instead of a new one.
pub async fn rotate(core: &Core, alg: Algorithm, at_once: bool) -> Result<Introduction, RotateError> {
    if at_once {
        let (now, retention) = (core.clock.now(), core.policy.key_retention());
        let written = core
            .store
            .write("rotate_keys", move |tx| {
                let Some((kid, record)) = announced(&*tx, alg)? else {
                    return Ok(None);
                };
                let record = activate(tx, &kid, &record, now, retention)?;
                Ok(Some(Introduction::Placed { kid, record }))
            })
            .await;
        if let Some(promoted) = core.reload_after::<_, StoreError, RotateError>(written).await? {
            return Ok(promoted);
        }
    }
    let key = generate(&core.random, alg).await?;
    introduce(core, &key, at_once).await
}

/// Stores a key, made here or elsewhere. The first key of an algorithm is active at once.
pub async fn introduce(core: &Core, key: &SigningKey, at_once: bool) -> Result<Introduction, RotateError> {
    let (now, retention) = (core.clock.now(), core.policy.key_retention());
    let active_from = now + core.policy.key_rotation.announce;
    let record = seal(
        &core.sealer,
        &core.random,
        key,
        KeyLifecycle::Announced { active_from },
        now,
    );
    let kid = key.kid().to_owned();
    let written = core
        .store
        .write("introduce_key", move |tx| -> Result<_, StoreError> {
            let (kid, record) = (kid.clone(), record.clone());
            if SIGNING_KEYS.contains(&*tx, &kid)? {
                return Ok(Introduction::Known { kid });
            }
            if at_once || signing(&*tx, record.alg)?.is_none() {
                let record = activate(tx, &kid, &record, now, retention)?;
                return Ok(Introduction::Placed { kid, record });
            }
            if let Some((kid, _)) = announced(&*tx, record.alg)? {
                return Ok(Introduction::AnotherIsAnnounced { kid });
            }
            SIGNING_KEYS.put(tx, &kid, &record)?;
            Ok(Introduction::Placed { kid, record })
        })
        .await;
    core.reload_after(written).await
}

/// The change that a key is due for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyChange {
    /// It has been announced long enough.
    Activate,
    /// It would be announced for longer than the setting says: the clock or the setting has changed since it was
    /// made.
    Hasten,
    /// It became active in the future: the clock was wrong then.
    Redate,
    /// What it signed has expired.
    Remove,
}

fn due_change(record: &SigningKeyRecord, now: Timestamp, announce: Duration) -> Option<KeyChange> {
    match record.standing {
        KeyLifecycle::Announced { active_from } if active_from <= now => Some(KeyChange::Activate),
        KeyLifecycle::Announced { active_from } if now + announce < active_from => Some(KeyChange::Hasten),
        KeyLifecycle::Active { since } if since.is_ahead_of(now) => Some(KeyChange::Redate),
        KeyLifecycle::Retired { remove_at } if remove_at <= now => Some(KeyChange::Remove),
        KeyLifecycle::Announced { .. } | KeyLifecycle::Active { .. } | KeyLifecycle::Retired { .. } => None,
    }
}

struct DueKey {
    kid: String,
    record: SigningKeyRecord,
    change: KeyChange,
}

fn due_keys(snapshot: &dyn Snapshot, now: Timestamp, announce: Duration) -> Result<Vec<DueKey>, StoreError> {
    let mut due = Vec::new();
    for (kid, record) in SIGNING_KEYS.scan(snapshot, .., usize::MAX)? {
        if let Some(change) = due_change(&record, now, announce) {
            due.push(DueKey { kid, record, change });
        }
    }
    Ok(due)
}

/// Makes the changes that keys are due for: announces successors, activates announced keys, removes retired ones, and
/// rotates the key of refresh tokens. Returns whether there was a change.
pub async fn keep(core: &Core) -> Result<bool, RotateError> {
    let has_advanced = advance(core).await?;
    let has_announced = announce_successors(core).await?;
    Ok(refresh_keys::keep(core).await? || has_announced || has_advanced)
}

async fn advance(core: &Core) -> Result<bool, RotateError> {
    let (now, retention) = (core.clock.now(), core.policy.key_retention());
    let announce = core.policy.key_rotation.announce;
    let due = core
        .store
        .read(|snapshot| due_keys(snapshot, now, announce))
        .await?;
    if due.is_empty() {
        return Ok(false);
    }
    let written = core
        .store
        .write("advance_keys", move |tx| {
            let due = due_keys(&*tx, now, announce)?;
            for key in &due {
                let mut record = key.record.clone();
                record.standing = match key.change {
                    KeyChange::Activate => {
                        activate(tx, &key.kid, &record, now, retention)?;
                        continue;
                    }
                    KeyChange::Remove => {
                        SIGNING_KEYS.remove(tx, &key.kid)?;
                        continue;
                    }
                    KeyChange::Hasten => KeyLifecycle::Announced {
                        active_from: now + announce,
                    },
                    KeyChange::Redate => KeyLifecycle::Active { since: now },
                };
                SIGNING_KEYS.put(tx, &key.kid, &record)?;
            }
            Ok(due)
        })
        .await;
    for key in core.reload_after::<_, StoreError, RotateError>(written).await? {
        let state = match key.change {
            KeyChange::Activate | KeyChange::Redate => "active",
            KeyChange::Hasten => "announced",
            KeyChange::Remove => "removed",
        };
        record_change(&key.kid, key.record.alg, state);
    }
    Ok(true)
}

fn record_change(kid: &str, alg: Algorithm, state: &str) {
    audit::record(&Event::SigningKeyMoved {
        kid,
        alg: alg.as_str(),
        state,
    });
}

/// The algorithms whose successor must be announced now, so that it can take over in time.
fn without_successor(
    snapshot: &dyn Snapshot,
    now: Timestamp,
    rotation: KeyRotation,
) -> Result<Vec<Algorithm>, StoreError> {
    let Some(every) = rotation.every else {
        return Ok(Vec::new());
    };
    let mut algorithms = Vec::new();
    for (_, key) in SIGNING_KEYS.scan(snapshot, .., usize::MAX)? {
        if let KeyLifecycle::Active { since } = key.standing
            && since + every <= now + rotation.announce
            && announced(snapshot, key.alg)?.is_none()
        {
            algorithms.push(key.alg);
        }
    }
    Ok(algorithms)
}

async fn announce_successors(core: &Core) -> Result<bool, RotateError> {
    let (now, rotation) = (core.clock.now(), core.policy.key_rotation);
    let due = core
        .store
        .read(|snapshot| without_successor(snapshot, now, rotation))
        .await?;
    let mut has_announced = false;
    for alg in due {
        has_announced |= announce_successor(core, alg).await?;
    }
    Ok(has_announced)
}

/// Announces a new key of an algorithm. Returns whether it did: not if another process was first.
async fn announce_successor(core: &Core, alg: Algorithm) -> Result<bool, RotateError> {
    let (now, rotation) = (core.clock.now(), core.policy.key_rotation);
    let key = generate(&core.random, alg).await?;
    let active_from = now + rotation.announce;
    let standing = KeyLifecycle::Announced { active_from };
    let record = seal(&core.sealer, &core.random, &key, standing, now);
    let kid = key.kid().to_owned();
    let written = core
        .store
        .write("announce_successor", move |tx| {
            let is_due = without_successor(&*tx, now, rotation)?.contains(&alg);
            if is_due {
                SIGNING_KEYS.put(tx, &kid, &record)?;
            }
            Ok(is_due)
        })
        .await;
    let is_announced = core.reload_after::<_, StoreError, RotateError>(written).await?;
    if is_announced {
        record_change(key.kid(), alg, "announced");
    }
    Ok(is_announced)
}
