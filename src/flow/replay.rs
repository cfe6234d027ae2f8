//! Remembers what may be used once until it expires: assertions of clients, and proofs of possession (RFC 9449).

use super::{Core, FlowError};
use crate::clock::Timestamp;
use crate::oauth::assertion::ReplayKey;
use crate::oauth::confirmation::Possession;
use crate::oauth::dpop::REPLAYED;
use crate::oauth::error::Refusal;
use crate::observe::audit::{self, Event};
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::USED_ASSERTIONS;
use crate::store::{StoreError, TxError};

/// Whether a use is recorded. The signer of an assertion may choose another `exp` for the same `jti`, so each hour that an
/// assertion can expire in is looked at. A token of a provider may expire later.
pub(super) fn was_used(
    snapshot: &dyn Snapshot,
    replay_key: ReplayKey,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let hours = ReplayKey::hours(now);
    let own = Some(replay_key.hour).filter(|hour| !hours.contains(hour));
    for hour in hours.chain(own) {
        if USED_ASSERTIONS.contains(snapshot, &(hour, replay_key.digest))? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn record_use(tx: &mut dyn Tx, replay_key: ReplayKey) -> Result<(), StoreError> {
    USED_ASSERTIONS.put(tx, &(replay_key.hour, replay_key.digest), &())
}

/// Records a use in a transaction of its own, and returns whether there was no earlier one.
pub(super) async fn use_once(
    core: &Core,
    name: &'static str,
    replay_key: ReplayKey,
    now: Timestamp,
) -> Result<bool, StoreError> {
    core.store
        .write(name, move |tx| {
            let is_first = !was_used(&*tx, replay_key, now)?;
            if is_first {
                record_use(tx, replay_key)?;
            }
            Ok(is_first)
        })
        .await
}

/// Refuses a proof that was used before. A grant calls this first, so a replayed request revokes nothing. It records the
/// use last, so a refused request stores nothing.
pub(super) fn check_proof(
    snapshot: &dyn Snapshot,
    possession: Option<&Possession>,
    now: Timestamp,
) -> Result<(), TxError<Refusal>> {
    match possession.and_then(Possession::replay_key) {
        Some(replay_key) if was_used(snapshot, replay_key, now)? => Err(REPLAYED.into()),
        Some(_) | None => Ok(()),
    }
}

/// Records the event if this is the refusal of a proof that was used before.
pub fn record_refusal(error: &FlowError, client_id: &str) {
    if matches!(error, FlowError::Refused(refusal) if *refusal == REPLAYED) {
        audit::record(&Event::ProofReplayed { client_id });
    }
}

/// Records the use of a proof in the transaction of the grant.
pub(super) fn record_proof(tx: &mut dyn Tx, possession: Option<&Possession>) -> Result<(), StoreError> {
    let replay_key = possession.and_then(Possession::replay_key);
    replay_key.map_or(Ok(()), |replay_key| record_use(tx, replay_key))
}

/// Records the use of a proof for an answer without a transaction of its own. Refuses a proof that was used before.
pub(super) async fn use_proof(
    core: &Core,
    replay_key: Option<ReplayKey>,
    now: Timestamp,
) -> Result<(), FlowError> {
    let Some(replay_key) = replay_key else {
        return Ok(());
    };
    let is_first = use_once(core, "use_proof", replay_key, now).await?;
    if is_first { Ok(()) } else { Err(REPLAYED.into()) }
}
