use serde::{Deserialize, Serialize};

use super::link::drawn;
use super::{KIND, LinkView, find};
use crate::admin::operation::{Done, Effect, Operation};
use crate::admin::{Admin, AdminResult, about, all_or_none};
use crate::flow::one_time_link::DrawnLink;
use crate::identity::{LinkPurpose, OneTimeLink};
use crate::mail::{Content, Message};
use crate::oauth::FaultCode;
use crate::password::PasswordHash;

/// A user who gets a link to a new password.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResetUser {
    /// E-mail address, account identifier or UUID.
    pub who: String,
    /// Whether the link is sent to the user's address. Otherwise the answer shows it.
    pub mail: bool,
}

impl Operation for ResetUser {
    const NAME: &'static str = "user reset";
    const EFFECT: Effect = Effect::Write;
    type Output = LinkView;

    /// The present password stays until the link is used.
    async fn run(self, admin: Admin<'_>) -> AdminResult<Done<LinkView>> {
        let core = admin.core;
        let user = admin.read(|snapshot| find(snapshot, &self.who)).await?;
        let mut faults = Vec::new();
        if !user.enabled {
            let detail = "the user is disabled: enable the user first";
            faults.push(FaultCode::NotAllowed.at([], detail));
        }
        if self.mail && user.email.is_none() {
            let detail = "the user has no e-mail address: pass the link on instead";
            faults.push(FaultCode::NotAllowed.at([], detail));
        }
        if self.mail && !core.policy.sends_mail {
            let detail = "no mail can be sent: set mail.url, or pass the link on instead";
            faults.push(FaultCode::NotAllowed.at([], detail));
        }
        all_or_none(about(KIND, &self.who, faults).collect())?;
        let email = user.email.clone().filter(|_| self.mail);
        let purpose = LinkPurpose::ResetPassword {
            user: user.uuid,
            email: email.clone(),
            password: user.password.as_ref().map(PasswordHash::fingerprint),
        };
        let expires_at = core.clock.now() + OneTimeLink::OPERATOR_LIFETIME;
        let link = DrawnLink::draw(core, purpose, expires_at);
        let mail = email.map(|to| Message {
            to,
            languages: user.language(),
            zone: user.zone(),
            client_id: None,
            content: Content::ResetPassword {
                link: link.address(&core.policy.issuer),
                code: None,
                expires_at,
            },
        });
        let view = LinkView::of(admin, user.account_id, &link, mail.as_ref(), expires_at);
        let mail = drawn(admin, mail.as_ref())?;
        let write = admin.write(Self::NAME, move |tx| {
            link.put(tx)?;
            Ok(mail.iter().try_for_each(|mail| mail.put(tx))?)
        });
        write.await?;
        core.outbox_filled.notify_one();
        Ok(Done::about(user.uuid, view))
    }
}
