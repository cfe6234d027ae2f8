use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult};
use crate::flow::one_time_link::invitations;
use crate::identity::LoginName;
use crate::identity::one_time_link::LinkEnd;
use crate::oauth::FaultCode;
use crate::observe::audit;
use crate::observe::audit::Event;

/// An address whose invitation is revoked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RevokeInvitations {
    /// The e-mail address.
    pub email: String,
}

/// The invitations that were revoked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevokedInvitations {
    /// The address, in its one form.
    pub email: String,
    /// Their ids. An earlier release let an address have several.
    pub revoked: Vec<Uuid>,
}

impl Operation for RevokeInvitations {
    const NAME: &'static str = "user invitations";
    const EFFECT: Effect = Effect::Destructive;
    type Output = RevokedInvitations;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<RevokedInvitations>> {
        let core = admin.core;
        invitations::build_index(core).await?;
        let (email, now) = (LoginName::new(&self.email).as_str().to_owned(), core.clock.now());
        let address = email.clone();
        let write = admin.write(Self::NAME, move |tx| {
            let revoked = invitations::end(tx, &address, LinkEnd::Revoked, now)?;
            if revoked.is_empty() {
                let detail = format!("there is no open invitation for {address}");
                return Err(FaultCode::NotFound.of("invitation", &address, detail).into());
            }
            Ok(revoked)
        });
        let revoked = write.await?;
        record_revoked(admin, &revoked, "command");
        Ok(Done::about(email.clone(), RevokedInvitations { email, revoked }))
    }
}

/// Records that these invitations no longer work.
pub(super) fn record_revoked(admin: Admin<'_>, revoked: &[Uuid], reason: &str) {
    let actor = &admin.actor.to_string();
    for invitation in revoked {
        audit::record(&Event::InvitationRevoked {
            invitation: *invitation,
            reason,
            actor,
        });
    }
}
