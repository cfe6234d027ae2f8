//! The factors of a user: read in one range, and bounded in number. Codes are matched here.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::PoisonError;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Core, lease, passkey_index};
use crate::clock::Timestamp;
use crate::identity::{Factor, FactorKind, Passkey, RecoveryCodes, SecondFactor, Totp, TotpSeed};
use crate::secret::{Digest, RecoveryCode};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::{FACTORS, USERS};

/// The most factors of one user. A sign-in reads all of them.
pub const MAX_PER_USER: usize = 20;

/// The users whose factors are read at once.
const PAGE_USERS: usize = 1000;

/// The factors of a user, in the order in which they were added.
pub fn of_user(snapshot: &dyn Snapshot, user: Uuid) -> Result<Vec<(Uuid, Factor)>, StoreError> {
    let rows = FACTORS.scan_prefix(snapshot, &user, usize::MAX)?;
    Ok(rows.into_iter().map(|((_, id), factor)| (id, factor)).collect())
}

/// Whether the user has a factor that answers the second step of a sign-in. Recovery codes that are used up count: a
/// thief who used the last one does not switch the second step off.
pub fn has_second_factor(snapshot: &dyn Snapshot, user: Uuid) -> Result<bool, StoreError> {
    Ok(answer_second_step(&of_user(snapshot, user)?))
}

/// Whether one of these factors is an app or recovery codes.
pub fn answer_second_step(factors: &[(Uuid, Factor)]) -> bool {
    let mut factors = factors.iter();
    factors.any(|(_, factor)| factor.kind.second_factor().is_some())
}

/// Adds a factor. Returns whether there was room.
pub fn add(tx: &mut dyn Tx, user: Uuid, id: Uuid, factor: &Factor) -> Result<bool, StoreError> {
    if of_user(&*tx, user)?.len() >= MAX_PER_USER {
        return Ok(false);
    }
    put(tx, user, id, factor)?;
    Ok(true)
}

/// Writes a factor.
pub(in crate::flow) fn put(tx: &mut dyn Tx, user: Uuid, id: Uuid, factor: &Factor) -> Result<(), StoreError> {
    passkey_index::insert(tx, user, factor)?;
    FACTORS.put(tx, &(user, id), factor)
}

/// Removes a factor.
pub(in crate::flow) fn remove(
    tx: &mut dyn Tx,
    user: Uuid,
    id: Uuid,
    factor: &Factor,
) -> Result<(), StoreError> {
    passkey_index::remove(tx, user, factor)?;
    FACTORS.remove(tx, &(user, id)).map(drop)
}

/// Removes the factors of a user that are `chosen`, and returns what was removed. With the last other factor, the recovery
/// codes are removed too.
pub(in crate::flow) fn remove_these(
    tx: &mut dyn Tx,
    user: Uuid,
    chosen: impl Fn(Uuid, &Factor) -> bool,
) -> Result<Vec<Factor>, StoreError> {
    let removed = chosen_of(of_user(&*tx, user)?, chosen);
    for (id, factor) in &removed {
        remove(tx, user, *id, factor)?;
    }
    Ok(removed.into_iter().map(|(_, factor)| factor).collect())
}

/// The factors that [`remove_these`] removes.
pub(in crate::flow) fn chosen_of(
    mut factors: Vec<(Uuid, Factor)>,
    chosen: impl Fn(Uuid, &Factor) -> bool,
) -> Vec<(Uuid, Factor)> {
    let mut removed: Vec<_> = factors
        .extract_if(.., |(id, factor)| chosen(*id, factor))
        .collect();
    let is_codes = |factor: &Factor| matches!(factor.kind, FactorKind::RecoveryCodes(_));
    if !removed.is_empty() && factors.iter().all(|(_, factor)| is_codes(factor)) {
        removed.append(&mut factors);
    }
    removed
}

/// Removes all factors of a user, and returns them.
pub fn remove_all(tx: &mut dyn Tx, user: Uuid) -> Result<Vec<(Uuid, Factor)>, StoreError> {
    let factors = of_user(&*tx, user)?;
    for (id, factor) in &factors {
        remove(tx, user, *id, factor)?;
    }
    Ok(factors)
}

/// A passkey of a user, with its id among the user's factors.
pub(in crate::flow) struct StoredPasskey {
    pub(in crate::flow) user: Uuid,
    pub(in crate::flow) id: Uuid,
    pub(in crate::flow) passkey: Passkey,
}

/// The passkey of this user with this credential id.
pub(in crate::flow) fn passkey_of(
    snapshot: &dyn Snapshot,
    user: Uuid,
    credential_id: &[u8],
) -> Result<Option<StoredPasskey>, StoreError> {
    let mut factors = of_user(snapshot, user)?.into_iter();
    Ok(factors.find_map(|(id, factor)| match factor.kind {
        FactorKind::Passkey(passkey) if passkey.credential_id == credential_id => {
            Some(StoredPasskey { user, id, passkey })
        }
        _ => None,
    }))
}

/// The passkeys of all users with this credential id.
pub(in crate::flow) fn passkeys_with(
    snapshot: &dyn Snapshot,
    credential_id: &[u8],
) -> Result<Vec<StoredPasskey>, StoreError> {
    let candidates = passkey_index::candidates(snapshot, credential_id)?.into_iter();
    let found = candidates.map(|user| passkey_of(snapshot, user, credential_id));
    found.filter_map(Result::transpose).collect()
}

/// A code that fits a factor. It may have been used before.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The code of a time step.
    Totp(u64),
    RecoveryCode(Digest<RecoveryCode>),
}

impl Answer {
    /// The second step that it answers.
    pub fn second_factor(&self) -> SecondFactor {
        match self {
            Self::Totp(_) => SecondFactor::Totp,
            Self::RecoveryCode(_) => SecondFactor::RecoveryCode,
        }
    }
}

/// The factor that a typed code fits, if there is one.
pub fn matching(
    core: &Core,
    user: Uuid,
    factors: &[(Uuid, Factor)],
    typed: &str,
    now: Timestamp,
) -> Option<(Uuid, Answer)> {
    let fits = |(id, factor): &(Uuid, Factor)| {
        let answer = match &factor.kind {
            FactorKind::Passkey(_) => None,
            FactorKind::Totp(totp) => {
                let step = open_seed(core, user, totp)?.step_of(typed, now)?;
                Some(Answer::Totp(step))
            }
            FactorKind::RecoveryCodes(codes) => {
                let digest = RecoveryCodes::digest(*id, typed)?;
                let is_unused = codes.unused.contains(&digest);
                is_unused.then_some(Answer::RecoveryCode(digest))
            }
        };
        answer.map(|answer| (*id, answer))
    };
    factors.iter().find_map(fits)
}

/// Uses a code up. Returns whether it was unused: a code of a time step, or of an earlier one, is accepted once (RFC 6238
/// section 5.2).
pub(in crate::flow) fn use_up(
    tx: &mut dyn Tx,
    user: Uuid,
    id: Uuid,
    answer: &Answer,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let Some(mut factor) = FACTORS.get(&*tx, &(user, id))? else {
        return Ok(false);
    };
    let is_unused = match (&mut factor.kind, answer) {
        (FactorKind::Totp(totp), Answer::Totp(step)) => {
            let is_later = *step > totp.last_step;
            totp.last_step = totp.last_step.max(*step);
            is_later
        }
        (FactorKind::RecoveryCodes(codes), Answer::RecoveryCode(code)) => codes.use_up(code),
        _ => false,
    };
    if is_unused {
        factor.last_used_at = Some(now);
        put(tx, user, id, &factor)?;
    }
    Ok(is_unused)
}

/// Seals the seed of a user, as the store keeps it.
pub fn seal_seed(core: &Core, user: Uuid, seed: &TotpSeed) -> String {
    core.sealer
        .seal_base64(&Totp::context(user), seed.as_bytes(), &core.random)
}

/// The seed of a user's factor. `None` if it was sealed under another master key.
fn open_seed(core: &Core, user: Uuid, totp: &Totp) -> Option<TotpSeed> {
    let plain = core.sealer.open_base64(&Totp::context(user), &totp.sealed);
    TotpSeed::new(&plain.ok()?)
}

/// How many users have each kind of factor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FactorCounts {
    /// Authenticator apps.
    pub totp: u64,
    pub passkey: u64,
}

/// How many users may sign in, by the factors that they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactorSummary {
    /// Users who may sign in. Anonymous users are not counted.
    pub users: u64,
    /// Those with an authenticator app.
    pub totp: u64,
    pub passkey: u64,
    pub neither: u64,
    /// Those who have neither a passkey nor an unused recovery code beside the authenticator app.
    pub only_totp: u64,
}

impl FactorSummary {
    /// Counts these users, which are in the order of their rows. Reads their factors in one range.
    fn add(&mut self, snapshot: &dyn Snapshot, users: &[Uuid]) -> Result<(), StoreError> {
        #[derive(Clone, Copy, Default)]
        struct Has {
            totp: bool,
            passkey: bool,
            unused_code: bool,
        }
        let (Some(first), Some(last)) = (users.first(), users.last()) else {
            return Ok(());
        };
        let mut by_user: BTreeMap<Uuid, Has> = users.iter().map(|user| (*user, Has::default())).collect();
        let rows = (*first, Uuid::nil())..=(*last, Uuid::max());
        FACTORS.visit(snapshot, rows, |(user, _), factor| {
            if let Some(has) = by_user.get_mut(&user) {
                match factor.kind {
                    FactorKind::Totp(_) => has.totp = true,
                    FactorKind::Passkey(_) => has.passkey = true,
                    FactorKind::RecoveryCodes(codes) => has.unused_code |= !codes.unused.is_empty(),
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        for has in by_user.values() {
            self.users += 1;
            self.totp += u64::from(has.totp);
            self.passkey += u64::from(has.passkey);
            self.neither += u64::from(!has.totp && !has.passkey);
            self.only_totp += u64::from(has.totp && !has.unused_code && !has.passkey);
        }
        Ok(())
    }
}

/// Reads all users and their factors.
pub fn summary(snapshot: &dyn Snapshot) -> Result<FactorSummary, StoreError> {
    let mut summary = FactorSummary::default();
    let mut page = Vec::new();
    USERS.visit(snapshot, .., |uuid, user| {
        if user.enabled && !user.is_anonymous() {
            page.push(uuid);
        }
        if page.len() == PAGE_USERS {
            summary.add(snapshot, &page)?;
            page.clear();
        }
        Ok(ControlFlow::Continue(()))
    })?;
    summary.add(snapshot, &page)?;
    Ok(summary)
}

/// How many users have a factor.
pub fn users_with_factors(snapshot: &dyn Snapshot) -> Result<u64, StoreError> {
    // The rows of a user are side by side.
    let (mut last, mut count) = (None, 0);
    FACTORS.visit(snapshot, .., |(user, _), _| {
        if last.replace(user) != Some(user) {
            count += 1;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(count)
}

/// How long a count is reported before the rows are counted again.
const COUNTED_EVERY: Duration = Duration::from_mins(10);

/// How many users have each kind of factor. The rows are read at most every ten minutes. `None` if another node counts
/// them. Blocks.
pub fn counts(core: &Core, now: Timestamp) -> Result<Option<FactorCounts>, StoreError> {
    if !lease::acquire_blocking(core, lease::FACTOR_COUNTS)? {
        return Ok(None);
    }
    let mut known = core.factor_counts.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((at, counts)) = *known
        && now.since(at) < COUNTED_EVERY
    {
        return Ok(Some(counts));
    }
    let counts = core.store.stream(count)?;
    *known = Some((now, counts));
    Ok(Some(counts))
}

fn count(snapshot: &dyn Snapshot) -> Result<FactorCounts, StoreError> {
    // The rows of a user are side by side.
    let mut last: BTreeMap<&str, Uuid> = BTreeMap::new();
    let mut counts = FactorCounts::default();
    FACTORS.visit(snapshot, .., |(user, _), factor| {
        let kind = factor.kind.name();
        if last.insert(kind, user) != Some(user) {
            match factor.kind {
                FactorKind::Totp(_) => counts.totp += 1,
                FactorKind::Passkey(_) => counts.passkey += 1,
                FactorKind::RecoveryCodes(_) => {}
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(counts)
}
