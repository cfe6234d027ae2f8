use serde::{Deserialize, Serialize};

use super::link::drawn;
use super::revoke_invitations::record_revoked;
use super::{KIND, LinkView};
use crate::admin::groups::group_ids;
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, about, all_or_none, already_exists, checked_email};
use crate::flow::one_time_link::{DrawnLink, invitations};
use crate::identity::{LinkPurpose, LoginName, NewAccount, OneTimeLink, SignUp};
use crate::mail::{Content, Message};
use crate::oauth::FaultCode;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::login_names;

/// A person to be invited.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InviteUser {
    /// The e-mail address.
    pub email: String,
    /// The names of the groups that the user will be in.
    pub groups: Vec<String>,
    /// The client that the person is invited to.
    pub client_id: Option<String>,
}

impl Operation for InviteUser {
    const NAME: &'static str = "user invite";
    const EFFECT: Effect = Effect::Write;
    type Output = LinkView;

    /// The link is sent by mail, or shown if no mail can be sent. An earlier invitation of the address becomes void.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<LinkView>> {
        let (core, catalog) = (admin.core, admin.core.catalog());
        let Self {
            email,
            groups,
            client_id,
        } = self;
        let mut faults = Vec::new();
        if core.policy.accounts.sign_up == SignUp::Off {
            let detail = "accounts.sign_up is off, so nobody can be invited: set it to invitation or open, and restart the service";
            faults.push(FaultCode::NotAllowed.at([], detail));
        }
        let email = checked_email(&mut faults, None, &email);
        let groups = group_ids(catalog.groups(), &groups, &mut faults);
        if let Some(client_id) = client_id.as_ref().filter(|id| catalog.client(id).is_none()) {
            let detail = format!("there is no client {client_id}");
            faults.push(FaultCode::NotFound.at(["client_id"], detail));
        }
        all_or_none(about(KIND, &email, faults).collect())?;
        let (name, to) = (LoginName::new(&email), email.clone());
        let sends_mail = core.policy.sends_mail;
        let purpose = LinkPurpose::CreateAccount(NewAccount {
            email,
            is_verified: sends_mail,
            is_invited: true,
            groups,
            client_id: client_id.clone(),
            invited_by: Some(admin.actor.to_string()),
        });
        let expires_at = core.clock.now() + OneTimeLink::INVITATION_LIFETIME;
        let link = DrawnLink::draw(core, purpose, expires_at);
        let content = |link| Content::Invitation { link, expires_at };
        let mail = Message {
            to: to.clone(),
            languages: None,
            zone: None,
            client_id: client_id.clone(),
            content: content(link.address(&core.policy.issuer)),
        };
        let view = LinkView::of(admin, to, &link, sends_mail.then_some(&mail), expires_at);
        let mail = drawn(admin, sends_mail.then_some(&mail))?;
        invitations::build_index(core).await?;
        let (invitation, now) = (link.key.1, core.clock.now());
        let write = admin.write(Self::NAME, move |tx| {
            if login_names::owner(&*tx, &name)?.is_some() {
                return Err(already_exists(KIND, name.as_str()).into());
            }
            mail.iter().try_for_each(|mail| mail.put(tx))?;
            Ok(invitations::replace(tx, name.as_str(), &link, now)?)
        });
        let replaced = write.await?;
        core.outbox_filled.notify_one();
        record_revoked(admin, &replaced, "replaced");
        audit::record(&Event::PersonInvited {
            invitation,
            client_id: client_id.as_deref(),
            actor: &admin.actor.to_string(),
        });
        Ok(Done::about(view.account_id.clone(), view))
    }
}
