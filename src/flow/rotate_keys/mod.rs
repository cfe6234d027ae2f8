//! The life of signing keys: made at the first start, announced before they sign, published until the last
//! token they signed has expired and the sessions that their ID tokens name are over.

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

/// Makes the keys that are missing, as at the first start, and notes for how long what the others sign is of use by the
/// settings of this start. Says which were made.
pub async fn ensure_keys(core: &Core) -> Result<Vec<Algorithm>, RotateError> {
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
                let has_one = signing(&*tx, alg)?.is_some();
                if has_one {
                    Ok(())
                } else {
                    SIGNING_KEYS.put(tx, &kid, &record)
                }
            })
            .await;
        core.reload_after::<_, RotateError>(written)?;
        made.push(alg);
    }
    match prolong_keys(core, retention).await {
        // A disk that takes no writes keeps nobody from what needs none; the next start notes it.
        Err(error) if error.is_outage() => {
            tracing::warn!(%error, "it is not noted for how long the keys are of use that sign now");
        }
        noted => noted?,
    }
    Ok(made)
}

/// Those that sign whose records name a shorter time than this.
fn brief(
    snapshot: &dyn Snapshot,
    retention: Duration,
) -> Result<Vec<(String, SigningKeyRecord)>, StoreError> {
    let mut all = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
    all.retain_mut(|(_, key)| matches!(key.standing, KeyLifecycle::Active { .. }) && key.prolong(retention));
    Ok(all)
}

/// Notes with each key that signs for how long what it signs is of use, where that has become longer.
async fn prolong_keys(core: &Core, retention: Duration) -> Result<(), StoreError> {
    if core.store.read(|snapshot| brief(snapshot, retention))?.is_empty() {
        return Ok(());
    }
    let prolonged = core.store.write("prolong_keys", move |tx| {
        for (kid, record) in brief(&*tx, retention)? {
            SIGNING_KEYS.put(tx, &kid, &record)?;
        }
        Ok(())
    });
    prolonged.await
}

type Found = Result<Option<(String, SigningKeyRecord)>, StoreError>;

/// The key of an algorithm that signs now.
pub fn signing(snapshot: &dyn Snapshot, alg: Algorithm) -> Found {
    find(snapshot, alg, |standing| {
        matches!(standing, KeyLifecycle::Active { .. })
    })
}

/// The key of an algorithm that waits for its turn.
fn announced(snapshot: &dyn Snapshot, alg: Algorithm) -> Found {
    find(snapshot, alg, |standing| {
        matches!(standing, KeyLifecycle::Announced { .. })
    })
}

fn find(snapshot: &dyn Snapshot, alg: Algorithm, stands: impl Fn(&KeyLifecycle) -> bool) -> Found {
    let all = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
    Ok(all
        .into_iter()
        .find(|(_, key)| key.alg == alg && stands(&key.standing)))
}

/// Makes `kid` the key that signs. The one before stays published while what it signed is of use, for `retention` by
/// today's settings.
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

/// Replaces the key of an algorithm by a new one: announced first, or signing at once when `at_once`. A key
/// that is announced already is then put to work instead of a new one.
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
        if let Some(promoted) = core.reload_after::<_, RotateError>(written)? {
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
        KeyLifecycle::Announced { active_from },
        now,
    );
    let kid = key.kid().to_owned();
    let written = core
        .store
        .write("introduce_key", move |tx| {
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
    core.reload_after(written)
}

/// What the time asks of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// It has waited long enough.
    Activate,
    /// It waits for longer than keys are announced: the clock or the setting was changed after it was made.
    Hasten,
    /// It began to sign in the future: the clock was wrong then.
    Redate,
    /// Nothing that it signed is of use any more.
    Remove,
}

fn due(record: &SigningKeyRecord, now: Timestamp, announce: Duration) -> Option<Due> {
    match record.standing {
        KeyLifecycle::Announced { active_from } if active_from <= now => Some(Due::Activate),
        KeyLifecycle::Announced { active_from } if now + announce < active_from => Some(Due::Hasten),
        KeyLifecycle::Active { since } if since.is_ahead_of(now) => Some(Due::Redate),
        KeyLifecycle::Retired { remove_at } if remove_at <= now => Some(Due::Remove),
        KeyLifecycle::Announced { .. } | KeyLifecycle::Active { .. } | KeyLifecycle::Retired { .. } => None,
    }
}

type Moves = Vec<(String, SigningKeyRecord, Due)>;

fn moves(snapshot: &dyn Snapshot, now: Timestamp, announce: Duration) -> Result<Moves, StoreError> {
    let all = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
    Ok(all
        .into_iter()
        .filter_map(|(kid, record)| due(&record, now, announce).map(|what| (kid, record, what)))
        .collect())
}

/// Does what the time asks of the keys: announces the successors of those that sign, puts announced ones to work
/// and removes retired ones. Says whether anything was to do.
pub async fn keep(core: &Core) -> Result<bool, RotateError> {
    let moved = advance(core).await?;
    Ok(renew(core).await? || moved)
}

async fn advance(core: &Core) -> Result<bool, RotateError> {
    let (now, retention) = (core.clock.now(), core.policy.key_retention());
    let announce = core.policy.key_rotation.announce;
    let is_quiet = core
        .store
        .read(|snapshot| moves(snapshot, now, announce))?
        .is_empty();
    if is_quiet {
        return Ok(false);
    }
    let written = core
        .store
        .write("advance_keys", move |tx| {
            let all = moves(&*tx, now, announce)?;
            for (kid, record, what) in &all {
                match what {
                    Due::Activate => {
                        activate(tx, kid, record, now, retention)?;
                    }
                    Due::Hasten => {
                        let mut record = record.clone();
                        record.standing = KeyLifecycle::Announced {
                            active_from: now + announce,
                        };
                        SIGNING_KEYS.put(tx, kid, &record)?;
                    }
                    Due::Redate => {
                        let mut record = record.clone();
                        record.standing = KeyLifecycle::Active { since: now };
                        SIGNING_KEYS.put(tx, kid, &record)?;
                    }
                    Due::Remove => {
                        SIGNING_KEYS.remove(tx, kid)?;
                    }
                }
            }
            Ok(all)
        })
        .await;
    let moved = core.reload_after::<_, RotateError>(written)?;
    for (kid, record, what) in &moved {
        let state = match what {
            Due::Activate | Due::Redate => "active",
            Due::Hasten => "announced",
            Due::Remove => "removed",
        };
        tell(kid, record.alg, state);
    }
    Ok(true)
}

fn tell(kid: &str, alg: Algorithm, state: &str) {
    audit::record(&Event::SigningKeyMoved {
        kid,
        alg: alg.as_str(),
        state,
    });
}

/// The algorithms whose key has signed so long that its successor must be announced, so that it can take over in time.
fn outworn(
    snapshot: &dyn Snapshot,
    now: Timestamp,
    rotation: KeyRotation,
) -> Result<Vec<Algorithm>, StoreError> {
    let Some(every) = rotation.every else {
        return Ok(Vec::new());
    };
    let all = SIGNING_KEYS.scan(snapshot, .., usize::MAX)?;
    let waits = |alg| {
        all.iter()
            .any(|(_, key)| key.alg == alg && matches!(key.standing, KeyLifecycle::Announced { .. }))
    };
    Ok(all
        .iter()
        .filter_map(|(_, key)| match key.standing {
            KeyLifecycle::Active { since } if since + every <= now + rotation.announce => Some(key.alg),
            _ => None,
        })
        .filter(|alg| !waits(*alg))
        .collect())
}

async fn renew(core: &Core) -> Result<bool, RotateError> {
    let (now, rotation) = (core.clock.now(), core.policy.key_rotation);
    let outworn = core.store.read(|snapshot| outworn(snapshot, now, rotation))?;
    for alg in &outworn {
        if let Introduction::Placed { kid, .. } = rotate(core, *alg, false).await? {
            tell(&kid, *alg, "announced");
        }
    }
    Ok(!outworn.is_empty())
}
