//! Notices: mails that tell a user what happened to the account, with a link that secures it.

use super::Core;
use super::browser::Browser;
use super::one_time_link::DrawnLink;
use super::outbox::DrawnMail;
use crate::clock::Timestamp;
use crate::identity::one_time_link::NoticedEvent;
use crate::identity::{LinkPurpose, OneTimeLink, User};
use crate::mail::{Content, Message};
use crate::store::StoreError;
use crate::store::engine::Tx;
use uuid::Uuid;

/// A notice before its transaction.
#[derive(Clone)]
pub struct DrawnNotice {
    link: DrawnLink,
    mail: DrawnMail,
    event: NoticedEvent,
}

impl DrawnNotice {
    /// Draws a notice. `content` gets the link. `None` if no mail can be sent, or the user has no address.
    pub fn draw(
        core: &Core,
        user: &User,
        content: impl FnOnce(String) -> Content,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let Some(to) = user.email.clone().filter(|_| core.policy.sends_mail) else {
            return Ok(None);
        };
        let purpose = LinkPurpose::SecureAccount {
            user: user.uuid,
            email: to.clone(),
            replaced_by: None,
            event: None,
        };
        let link = DrawnLink::draw(core, purpose, now + OneTimeLink::NOTICE_LIFETIME);
        let message = Message {
            to,
            languages: user.language(),
            client_id: None,
            content: content(link.address(&core.policy.issuer)),
        };
        let mail = DrawnMail::draw(core, &message, now)?;
        let event = NoticedEvent::of_account(now);
        Ok(Some(Self { link, mail, event }))
    }

    /// Draws the notice of a browser in which nobody has signed in as this user before.
    pub fn of_new_device(
        core: &Core,
        user: &User,
        browser: &Browser,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let content = |link| Content::NewDevice {
            device: browser.device.name(),
            address: browser.device.address,
            at: now,
            link,
        };
        Self::draw(core, user, content, now)
    }

    /// The same notice, of an event in this session.
    #[must_use]
    pub fn in_session(self, session: Uuid) -> Self {
        Self {
            event: self.event.in_session(session),
            ..self
        }
    }

    /// The same notice, of an event in which these factors were added.
    #[must_use]
    pub fn adding(self, factors: Vec<Uuid>) -> Self {
        Self {
            event: self.event.adding(factors),
            ..self
        }
    }

    /// Stores the link and the mail.
    pub fn put(&self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        self.link.put_with_event(tx, &self.event)?;
        self.mail.put(tx)
    }
}
