//! The authenticator apps of a line.

use serde_json::Value;
use uuid::Uuid;

use super::{LeftOutApp, ParsedLine};
use crate::admin::{Admin, AdminResult, AdminTxError};
use crate::clock::Timestamp;
use crate::flow::factors::{self, MAX_PER_USER, seal_seed};
use crate::identity::{ExportedTotp, Factor, FactorKind, Totp, TotpExportError, User};
use crate::oauth::{Fault, FaultCode};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};

/// The most factors of a user after an import: there is room left for recovery codes.
const MOST: usize = MAX_PER_USER - 1;

/// The apps of a line.
#[derive(Clone, Default)]
pub(super) struct LineSeeds {
    apps: Vec<ExportedTotp>,
    /// Why others are left out.
    unsupported: Vec<String>,
    /// The factors of the apps, sealed for this user.
    sealed: Option<(Uuid, Vec<(Uuid, Factor)>)>,
}

impl LineSeeds {
    /// Reads the member `totp`.
    pub(super) fn read(value: &Value) -> Result<Self, Fault> {
        let bad = |detail: String| FaultCode::Invalid.at(["totp"], detail);
        let mut seeds = Self::default();
        let list = match value {
            Value::Null => return Ok(seeds),
            Value::Array(list) if list.len() <= MAX_PER_USER => list,
            _ => return Err(bad(format!("it is no list of {MAX_PER_USER} at most"))),
        };
        for value in list {
            match ExportedTotp::read(value) {
                Ok(app) => seeds.apps.push(app),
                Err(TotpExportError::Unsupported(reason)) => seeds.unsupported.push(reason),
                Err(error) => return Err(bad(error.to_string())),
            }
        }
        Ok(seeds)
    }

    /// Records in `user` the apps that are new, and decides which factors are added.
    pub(super) fn take(
        &self,
        line: u64,
        snapshot: &dyn Snapshot,
        user: &mut User,
    ) -> Result<TakenSeeds, AdminTxError> {
        let mut taken = TakenSeeds {
            user: user.uuid,
            ..TakenSeeds::default()
        };
        if let Some((owner, _)) = &self.sealed
            && *owner != user.uuid
        {
            let detail = "the user of this name was replaced during the import";
            return Err(FaultCode::NotAllowed.at([], detail).into());
        }
        let mut reasons = self.unsupported.clone();
        let mut count = factors::of_user(snapshot, user.uuid)?.len();
        for (index, app) in self.apps.iter().enumerate() {
            if count >= MOST {
                reasons.push(format!("the user has {count} factors already"));
            } else if user.take_declared_seed(&app.seed) {
                count += 1;
                taken.count += 1;
                let sealed = self.sealed.as_ref().and_then(|(_, factors)| factors.get(index));
                taken.factors.extend(sealed.cloned());
            }
        }
        let left_out = |reason| LeftOutApp {
            line,
            user: user.account_id.clone(),
            reason,
        };
        taken.left_out = reasons.into_iter().map(left_out).collect();
        Ok(taken)
    }
}

/// The apps of a line that are added.
#[derive(Default)]
pub(super) struct TakenSeeds {
    user: Uuid,
    pub(super) count: u64,
    /// The factors; none if the lines are only checked.
    factors: Vec<(Uuid, Factor)>,
    pub(super) left_out: Vec<LeftOutApp>,
}

impl TakenSeeds {
    /// Stores the factors.
    pub(super) fn put(&self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        for (id, factor) in &self.factors {
            factors::add(tx, self.user, *id, factor)?;
        }
        Ok(())
    }
}

/// Seals the seeds of the lines. This needs entropy and the identifiers of the users, so it comes before the transaction.
pub(super) async fn seal(admin: Admin<'_>, parsed: &mut [ParsedLine], now: Timestamp) -> AdminResult<()> {
    let core = admin.core;
    let since_epoch = core.clock.since_epoch();
    for parsed_line in parsed.iter_mut().filter(|line| !line.seeds.apps.is_empty()) {
        let fields = &parsed_line.fields;
        let existing = fields.existing_now(admin).await?;
        let user = existing
            .map(|user| user.uuid)
            .or(fields.uuid)
            .unwrap_or(parsed_line.new_uuid);
        let apps = &parsed_line.seeds.apps;
        let mut ids: Vec<_> = apps.iter().map(|_| core.random.uuid_v7(since_epoch)).collect();
        ids.sort_unstable();
        let factor = |app: &ExportedTotp| Factor {
            name: app.name.clone(),
            added_at: now,
            last_used_at: None,
            kind: FactorKind::Totp(Totp {
                sealed: seal_seed(core, user, &app.seed),
                last_step: 0,
            }),
        };
        let factors = ids.into_iter().zip(apps.iter().map(factor)).collect();
        parsed_line.seeds.sealed = Some((user, factors));
    }
    Ok(())
}
