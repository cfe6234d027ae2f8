use serde::{Deserialize, Serialize};

use super::{FactorView, UserFactors, find};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::flow::factor_wait::{end_wait, record_end};
use crate::flow::factors::{of_user, remove_all};
use crate::flow::failed_passwords;
use crate::flow::notice::DrawnNotice;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::USERS;

/// A user whose factors are all removed. The user gets a notice. A wait without factors ends.
///
/// Then one step is enough to sign in, until the user adds a factor. Where a second factor is required, the next sign-in
/// sets one up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResetFactors {
    /// E-mail address, account identifier or UUID.
    pub who: String,
}

impl Operation for ResetFactors {
    const NAME: &'static str = "user reset";
    const EFFECT: Effect = Effect::Destructive;
    type Output = UserFactors;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<UserFactors>> {
        let (core, now) = (admin.core, admin.core.clock.now());
        let user = admin.read(|snapshot| find(snapshot, &self.who)).await?;
        let uuid = user.uuid;
        let present = admin.read(|snapshot| Ok(of_user(snapshot, uuid)?)).await?;
        let present = present.iter().map(|(_, factor)| factor);
        let notice = DrawnNotice::of_removed(core, &user, None, present, now)?;
        let write = admin.write(Self::NAME, move |tx| {
            failed_passwords::reset_second_step(tx, uuid)?;
            let removed = remove_all(tx, uuid)?;
            if !removed.is_empty() {
                notice.iter().try_for_each(|notice| notice.put(tx))?;
            }
            let Some(mut user) = USERS.get(&*tx, &uuid)? else {
                return Ok((removed, false));
            };
            let waited = end_wait(&mut user);
            if waited {
                USERS.put(tx, &uuid, &user)?;
            }
            Ok((removed, waited))
        });
        let (removed, waited) = write.await?;
        if waited {
            record_end(uuid, "operator");
        }
        core.outbox_filled.notify_one();
        for (_, factor) in &removed {
            let (user, factor) = (uuid, factor.kind.name());
            audit::record(&Event::FactorRemoved { user, factor });
        }
        let factors = UserFactors {
            uuid,
            account_id: user.account_id,
            factors: FactorView::all(&removed),
            factors_end_at: None,
        };
        Ok(Done::about(uuid, factors))
    }
}
