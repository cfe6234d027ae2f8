//! A link that an operator makes for a person.

use serde::{Deserialize, Serialize};

use crate::admin::{Admin, AdminResult, SecretString};
use crate::clock::Timestamp;
use crate::flow::one_time_link::DrawnLink;
use crate::flow::outbox::DrawnMail;
use crate::mail::Message;

/// A link that was made for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkView {
    /// The address or the account identifier of the person.
    pub account_id: String,
    /// The address to which the link is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_to: Option<String>,
    /// The link, if it is not sent. Only this answer shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<SecretString>,
    pub expires_at: Timestamp,
}

impl LinkView {
    pub(super) fn of(
        admin: Admin<'_>,
        account_id: String,
        link: &DrawnLink,
        mail: Option<&Message>,
        expires_at: Timestamp,
    ) -> Self {
        let address = || SecretString::new(link.address(&admin.core.policy.issuer));
        Self {
            account_id,
            sent_to: mail.map(|mail| mail.to.clone()),
            link: mail.is_none().then(address),
            expires_at,
        }
    }
}

/// The mail with the link, if it is sent.
pub(super) fn drawn(admin: Admin<'_>, mail: Option<&Message>) -> AdminResult<Option<DrawnMail>> {
    let draw = |mail| DrawnMail::draw(admin.core, mail, admin.core.clock.now());
    Ok(mail.map(draw).transpose()?)
}
