//! Links that work once: made here, read by [`find`], used up in the transaction that does what they are for.
//!
//! A person requests a mail on a page of the sign-in. [`request_mail`] draws a link and a code, and one transaction stores
//! both rows: [`OneTimeLink`] with the digest of the secret, and the sealed mail in the outbox ([`super::outbox`]). If no user
//! has the name, the mail is removed in the same transaction, so the answer takes equally long. After the commit,
//! `server/mail_sender` reads the rows that are due ([`super::deliver`]), draws each mail by the theme and in the language of
//! the reader, and hands it to the mail server. If several nodes use the store, one of them claims the row. A row is removed
//! after the server has taken the mail. A failed attempt moves it to a later key, for a day.
//!
//! To open a link changes nothing, because scanners of mails open every link. In the browser that requested it, the page
//! continues the sign-in there, which a cookie keeps. In another browser it begins a new one, and a link to sign in is refused. The form of the page
//! uses the link up ([`redeem`]). The row stays until the link expires, and says why the link no longer works. Codes are typed only in the requesting browser, five at most. Other causes of mails use the
//! same two rows: invitations, which are also in an index ([`invitations`]), resets by the operator, and the notices of
//! [`super::notice`].

pub mod change_email;
pub mod check_code;
pub mod create_account;
pub mod invitations;
pub mod redeem;
pub mod redeem_result;
pub mod request_mail;
pub mod reset_password;
pub mod secure_account;
pub mod sign_in;

use uuid::Uuid;
use zeroize::Zeroizing;

use super::Core;
use crate::clock::Timestamp;
use crate::identity::one_time_link::{LinkEnd, LinkKey, NoticedEvent, RequestingSignIn};
use crate::identity::{LinkCode, LinkPurpose, OneTimeLink};
use crate::oauth::access_token::hour_of;
use crate::route::Route;
use crate::secret::{LinkSecret, Secret};
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::tables::ONE_TIME_LINKS;

/// How many different codes there are: six digits.
const CODES: u64 = 1_000_000;

/// A link before its transaction, with all that is random in it.
#[derive(Clone)]
pub struct DrawnLink {
    pub key: LinkKey,
    pub secret: Secret<LinkSecret>,
    link: OneTimeLink,
}

impl DrawnLink {
    /// Draws a link without a code.
    pub fn draw(core: &Core, purpose: LinkPurpose, expires_at: Timestamp) -> Self {
        let id = core.random.uuid_v7(core.clock.since_epoch());
        let key = (hour_of(expires_at), id);
        let secret = Secret::generate(&locator(key), &core.random);
        Self {
            link: OneTimeLink {
                digest: secret.digest(),
                purpose,
                code: None,
                expires_at,
                requested_in: None,
                ended: None,
            },
            key,
            secret,
        }
    }

    /// Adds a code, and returns its digits.
    fn add_code(&mut self, core: &Core) -> Zeroizing<String> {
        let number = u64::from_be_bytes(core.random.bytes()) % CODES;
        let digits = Zeroizing::new(format!("{number:06}"));
        let context = LinkCode::context(self.key.1);
        self.link.code = Some(LinkCode {
            sealed: core.sealer.seal_text(&context, &digits, &core.random),
            tries_left: LinkCode::TRIES,
        });
        digits
    }

    /// Sets the sign-in in which it was requested.
    fn request_in(&mut self, sign_in: RequestingSignIn) {
        self.link.requested_in = Some(sign_in);
    }

    /// The address of the page that it leads to.
    pub fn address(&self, issuer: &str) -> String {
        address(issuer, &self.secret)
    }

    pub fn put(&self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        ONE_TIME_LINKS.put(tx, &self.key, &self.link)
    }

    /// Stores the link of a notice. What the event was is known in its transaction only.
    pub(in crate::flow) fn put_with_event(
        &self,
        tx: &mut dyn Tx,
        noticed: &NoticedEvent,
    ) -> Result<(), StoreError> {
        let mut link = self.link.clone();
        if let LinkPurpose::SecureAccount { event, .. } = &mut link.purpose {
            *event = Some(noticed.clone());
        }
        ONE_TIME_LINKS.put(tx, &self.key, &link)
    }
}

/// The address of the page that a link leads to.
fn address(issuer: &str, secret: &Secret<LinkSecret>) -> String {
    format!("{}?token={}", Route::Link.url(issuer), secret.reveal())
}

fn locator((hour, id): LinkKey) -> [u8; 20] {
    let mut locator = [0; 20];
    let (first, rest) = locator.split_at_mut(4);
    first.copy_from_slice(&hour.to_be_bytes());
    rest.copy_from_slice(id.as_bytes());
    locator
}

fn key_of(secret: &Secret<LinkSecret>) -> Option<LinkKey> {
    let (hour, id) = secret.locator().split_first_chunk()?;
    Some((u32::from_be_bytes(*hour), Uuid::from_slice(id).ok()?))
}

/// What is known of a link by its secret.
#[derive(Debug)]
pub enum LinkState {
    /// It can be used.
    Usable(Box<OneTimeLink>),
    Ended(LinkEnd),
    Expired,
    /// Nothing more than that it cannot be used.
    Unknown,
}

/// Reads what is known of the link with this secret.
pub fn look_up(
    snapshot: &dyn Snapshot,
    secret: &Secret<LinkSecret>,
    now: Timestamp,
) -> Result<LinkState, StoreError> {
    let Some(key) = key_of(secret) else {
        return Ok(LinkState::Unknown);
    };
    let Some(link) = ONE_TIME_LINKS.get(snapshot, &key)? else {
        // The sweep has removed the links of earlier hours.
        let is_of_earlier_hour = key.0 < hour_of(now);
        return Ok(if is_of_earlier_hour {
            LinkState::Expired
        } else {
            LinkState::Unknown
        });
    };
    if link.is_valid(key.1, secret.digest(), now) {
        return Ok(LinkState::Usable(Box::new(link)));
    }
    Ok(match link.ended {
        _ if link.digest != secret.digest() => LinkState::Unknown,
        Some(end) => LinkState::Ended(end),
        None if link.has_expired(now) => LinkState::Expired,
        None => LinkState::Unknown,
    })
}

/// The link with this secret, if it can be used.
pub fn find(
    snapshot: &dyn Snapshot,
    secret: &Secret<LinkSecret>,
    now: Timestamp,
) -> Result<Option<OneTimeLink>, StoreError> {
    Ok(match look_up(snapshot, secret, now)? {
        LinkState::Usable(link) => Some(*link),
        LinkState::Ended(_) | LinkState::Expired | LinkState::Unknown => None,
    })
}

/// Uses a link up. Returns it, if it could be used. If it creates an account, the invitations of its address are used up too.
fn use_up(
    tx: &mut dyn Tx,
    secret: &Secret<LinkSecret>,
    now: Timestamp,
) -> Result<Option<OneTimeLink>, StoreError> {
    let link = find(&*tx, secret, now)?;
    if let (Some(link), Some(key)) = (&link, key_of(secret)) {
        if let LinkPurpose::CreateAccount(new) = &link.purpose {
            invitations::end(tx, &new.email, LinkEnd::Used, now)?;
        }
        ONE_TIME_LINKS.put(tx, &key, &link.clone().ended(LinkEnd::Used))?;
    }
    Ok(link)
}
