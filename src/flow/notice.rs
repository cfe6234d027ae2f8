//! Notices: mails that tell a user what happened to the account, with a link that secures it.

use std::time::Duration;

use super::Core;
use super::browser::Browser;
use super::one_time_link::DrawnLink;
use super::outbox::DrawnMail;
use crate::clock::Timestamp;
use crate::identity::one_time_link::NoticedEvent;
use crate::identity::{Factor, LinkPurpose, OneTimeLink, User};
use crate::mail::{Content, Message, NoticedFactor, Origin};
use crate::store::StoreError;
use crate::store::engine::Tx;
use uuid::Uuid;

/// How long the notice of a sign-in waits for the user to add a factor.
const WAIT_FOR_FACTOR: Duration = Duration::from_mins(2);

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
            zone: user.zone(),
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
        let Origin { device, address } = origin(browser);
        let content = |link| Content::NewDevice {
            device,
            address,
            at: now,
            link,
        };
        Self::draw(core, user, content, now)
    }

    /// Draws the notice that these factors were added.
    pub fn of_added(
        core: &Core,
        user: &User,
        browser: &Browser,
        factors: &[(Uuid, &Factor)],
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let content = |link| Content::FactorAdded {
            at: now,
            from: Some(origin(browser)),
            factors: named(factors.iter().map(|(_, factor)| *factor)),
            link,
        };
        let notice = Self::draw(core, user, content, now)?;
        let ids = factors.iter().map(|(id, _)| *id).collect();
        Ok(notice.map(|notice| notice.adding(ids)))
    }

    /// Draws the notice that these factors were removed. `browser` is `None` if the operator removed them.
    pub fn of_removed<'a>(
        core: &Core,
        user: &User,
        browser: Option<&Browser>,
        factors: impl Iterator<Item = &'a Factor>,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let content = |link| Content::FactorRemoved {
            at: now,
            from: browser.map(origin),
            factors: named(factors),
            link,
        };
        Self::draw(core, user, content, now)
    }

    /// Draws the notice that the password was changed.
    pub fn of_new_password(
        core: &Core,
        user: &User,
        browser: &Browser,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let content = |link| Content::PasswordChanged {
            at: now,
            from: Some(origin(browser)),
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
    pub(super) fn adding(self, factors: Vec<Uuid>) -> Self {
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

    /// Stores the notice of a sign-in whose user is asked whether to add a factor. It waits, and a factor that is added in
    /// this time is told in its place: one sign-in brings one mail.
    pub fn put_waiting(&self, tx: &mut dyn Tx, session: Uuid, now: Timestamp) -> Result<(), StoreError> {
        self.link.put_with_event(tx, &self.event)?;
        self.mail.put_later(tx, session, now + WAIT_FOR_FACTOR)
    }

    /// Stores the notice in place of the one that waits in this session for the same recipient, if there is one. After a
    /// change of address, the one for the previous address is sent too: its reader may be the only one who can undo that.
    pub fn put_in_place_of_waiting(
        &self,
        tx: &mut dyn Tx,
        session: Uuid,
        began_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.mail
            .remove_waiting(tx, session, began_at + WAIT_FOR_FACTOR)?;
        self.put(tx)
    }
}

fn origin(browser: &Browser) -> Origin {
    Origin {
        device: browser.device.name(),
        address: browser.device.address,
    }
}

/// The factors, as mails name them. A name that could be read as an address is left out: a thief of a session could have
/// chosen it.
fn named<'a>(factors: impl Iterator<Item = &'a Factor>) -> Vec<NoticedFactor> {
    let is_plain = |name: &str| !name.is_empty() && !name.contains(['.', '/', ':', '@']);
    let named = factors.map(|factor| NoticedFactor {
        kind: factor.kind.name().to_owned(),
        name: Some(factor.name.clone()).filter(|name| is_plain(name)),
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::totp_setup::new_factor;
    use crate::identity::{FactorKind, RecoveryCodes};

    #[test]
    fn a_name_that_could_be_read_as_an_address_is_left_out() {
        for (name, shown) in [
            ("Alice's phone", Some("Alice's phone")),
            ("", None),
            ("https://evil.example/secure", None),
            ("evil.example", None),
            ("help@evil", None),
        ] {
            let codes = FactorKind::RecoveryCodes(RecoveryCodes::default());
            let factor = Factor {
                name: name.to_owned(),
                ..new_factor(codes, Timestamp::from_seconds(0))
            };
            let named = named([&factor].into_iter());
            assert_eq!(
                (named[0].kind.as_str(), named[0].name.as_deref()),
                ("recovery_codes", shown)
            );
        }
    }
}
