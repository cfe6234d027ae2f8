//! Shows the factors of a user, and removes all of them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::{Admin, AdminResult, TxResult};
use super::find;
use crate::clock::Timestamp;
use crate::flow::factors::{of_user, remove_all};
use crate::flow::notice::DrawnNotice;
use crate::flow::{failed_passwords, or_refuse};
use crate::identity::{Factor, FactorKind};
use crate::mail::Content;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::engine::Snapshot;

/// A factor as it is shown: without what verifies it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactorView {
    /// Its id.
    pub id: Uuid,
    /// `passkey`, `totp` or `recovery_codes`.
    pub kind: String,
    /// The name that the user gave it; empty if the user gave none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When it was added.
    pub added_at: Timestamp,
    /// When it was last used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// How many recovery codes are unused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codes_left: Option<usize>,
}

/// The factors of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserFactors {
    /// The user's identifier in the platform.
    pub uuid: Uuid,
    /// The account identifier.
    pub account_id: String,
    /// The factors; those that were removed in the answer to a reset.
    pub factors: Vec<FactorView>,
}

impl FactorView {
    pub(super) fn all(factors: &[(Uuid, Factor)]) -> Vec<Self> {
        let view = |(id, factor): &(Uuid, Factor)| Self {
            id: *id,
            kind: factor.kind.name().to_owned(),
            name: factor.name.clone(),
            added_at: factor.added_at,
            last_used_at: factor.last_used_at,
            codes_left: match &factor.kind {
                FactorKind::RecoveryCodes(codes) => Some(codes.unused.len()),
                FactorKind::Passkey(_) | FactorKind::Totp(_) => None,
            },
        };
        factors.iter().map(view).collect()
    }
}

/// The factors of a user.
pub async fn factors(admin: Admin<'_>, who: &str) -> AdminResult<UserFactors> {
    let read = |snapshot: &dyn Snapshot| -> TxResult<UserFactors> {
        let user = or_refuse!(find(snapshot, who)?);
        Ok(Ok(UserFactors {
            factors: FactorView::all(&of_user(snapshot, user.uuid)?),
            uuid: user.uuid,
            account_id: user.account_id,
        }))
    };
    Ok(admin.core.store.read(read).await??)
}

/// Removes all factors of a user, who gets a notice. Then one step is enough to sign in, until the user adds a factor.
/// Where a second factor is required, the next sign-in sets one up.
pub async fn reset_factors(admin: Admin<'_>, who: String) -> AdminResult<UserFactors> {
    let (core, now) = (admin.core, admin.core.clock.now());
    let user = core.store.read(|snapshot| find(snapshot, &who)).await??;
    let content = |link| Content::FactorRemoved { at: now, link };
    let notice = DrawnNotice::draw(core, &user, content, now)?;
    let uuid = user.uuid;
    let removed = core
        .store
        .write("user reset", move |tx| -> Result<_, crate::store::StoreError> {
            failed_passwords::reset_second_step(tx, uuid)?;
            let removed = remove_all(tx, uuid)?;
            if !removed.is_empty() {
                notice.iter().try_for_each(|notice| notice.put(tx))?;
            }
            Ok(removed)
        })
        .await?;
    core.outbox_filled.notify_one();
    for (_, factor) in &removed {
        let (user, factor) = (uuid, factor.kind.name());
        audit::record(&Event::FactorRemoved { user, factor });
    }
    admin.record("user reset", &uuid.to_string());
    Ok(UserFactors {
        uuid,
        account_id: user.account_id,
        factors: FactorView::all(&removed),
    })
}
