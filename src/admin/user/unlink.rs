use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{KIND, UserView, find, put};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, provider};
use crate::flow::login::session;
use crate::flow::user_activity;
use crate::identity::LinkedIdentity;
use crate::oauth::FaultCode;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::tables::USERS_BY_IDENTITY;

/// The links between a user and a provider, to be removed. A later sign-in at the provider links or creates a user again.
///
/// Sessions and refresh families that began there end, also those that began while the issuer had another id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UnlinkUser {
    /// E-mail address, account identifier or UUID.
    pub who: String,
    /// The provider's id.
    pub provider: String,
}

impl Operation for UnlinkUser {
    const NAME: &'static str = "user unlink";
    const EFFECT: Effect = Effect::Destructive;
    type Output = UserView;

    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<UserView>> {
        let now = admin.core.clock.now();
        let provider = self.provider.clone();
        let write = admin.write(Self::NAME, move |tx| {
            let mut user = find(&*tx, &self.who)?;
            let before = user.clone();
            let issuers = provider::issuers(&*tx)?;
            let issuer = issuers.get(&self.provider);
            let is_linked = |identity: &mut LinkedIdentity| {
                identity.provider == self.provider || Some(&identity.issuer) == issuer
            };
            let removed: Vec<_> = user.identities.extract_if(.., is_linked).collect();
            if removed.is_empty() {
                let detail = format!("user {} is not linked to provider {}", self.who, self.provider);
                let fault = FaultCode::NotFound.at(["identities"], detail);
                return Err(fault.about(KIND, &self.who).into());
            }
            user.updated_at = now;
            put(tx, Some(&before), &user)?;
            let mut providers = BTreeSet::new();
            for identity in removed {
                let ids = issuers.iter().filter(|(_, issuer)| **issuer == identity.issuer);
                providers.extend(ids.map(|(id, _)| id.clone()));
                providers.insert(identity.provider);
                USERS_BY_IDENTITY.remove(tx, &(identity.issuer, identity.subject))?;
            }
            session::end_federated(tx, user.uuid, &providers, now)?;
            let activity = user_activity::of_user(&*tx, user.uuid)?;
            Ok((user, activity))
        });
        let (user, activity) = write.await?;
        audit::record(&Event::Unlinked {
            subject: user.uuid,
            actor: &admin.actor.to_string(),
            provider: &provider,
        });
        let view = UserView::of(&user, admin.core.catalog().groups(), None, activity);
        Ok(Done::unrecorded(view))
    }
}
