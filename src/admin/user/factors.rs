use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::find;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::clock::Timestamp;
use crate::flow::factors::of_user;
use crate::identity::{Factor, FactorKind};

/// A request for the factors of a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListFactors {
    /// E-mail address, account identifier or UUID.
    pub who: String,
}

/// A factor as it is shown: without what verifies it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactorView {
    pub id: Uuid,
    /// `passkey`, `totp` or `recovery_codes`.
    pub kind: String,
    /// The name that the user gave it; empty if the user gave none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub added_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// How many recovery codes are unused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub codes_left: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UserFactors {
    /// The user's identifier in the platform.
    pub uuid: Uuid,
    /// The account identifier.
    pub account_id: String,
    /// The factors; those that were removed in the answer to a reset.
    pub factors: Vec<FactorView>,
    /// When the wait is over after which the password removes the factors, because the user has said that none is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors_end_at: Option<Timestamp>,
}

impl Operation for ListFactors {
    const NAME: &'static str = "user factors";
    const EFFECT: Effect = Effect::Read;
    type Output = UserFactors;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<UserFactors>> {
        let now = admin.core.clock.now();
        let read = admin.read(|snapshot| {
            let user = find(snapshot, &self.who)?;
            Ok(UserFactors {
                factors: FactorView::all(&of_user(snapshot, user.uuid)?),
                factors_end_at: user.factors_end(now),
                uuid: user.uuid,
                account_id: user.account_id,
            })
        });
        Ok(Done::unrecorded(read.await?))
    }
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
