//! Limits of mails, and of what is typed after them.

use std::net::IpAddr;

use super::buckets::{Buckets, Key, RetryAfter};
use super::{Attempt, Limiter, charge_all};
use crate::clock::Timestamp;

impl Limiter {
    /// Charges a mail that is requested from the address `from`. `recipient` is the name or address that was typed.
    pub fn request_mail(&self, recipient: &str, from: IpAddr, now: Timestamp) -> Result<(), RetryAfter> {
        charge_all(self.mail_charges(recipient, from), now).map(|_| ())
    }

    /// As [`Limiter::request_mail`], for a new account. These mails go to addresses that no user has, so they are limited for
    /// all people together. An address that a user has counts too: otherwise the limit would tell them apart.
    pub fn request_account(&self, recipient: &str, from: IpAddr, now: Timestamp) -> Result<(), RetryAfter> {
        let mut charges = self.mail_charges(recipient, from);
        if !charges.is_empty() {
            charges.push((&self.all_people, self.key_of(&[b"account"])));
        }
        charge_all(charges, now).map(|_| ())
    }

    fn mail_charges(&self, recipient: &str, from: IpAddr) -> Vec<(&Buckets, Key)> {
        let mut charges = Vec::new();
        if !self.is_exempt(from) {
            charges.push((&self.mail_recipients, self.mailbox_key(recipient)));
            charges.extend(self.network_keys(from).map(|key| (&self.mail_senders, key)));
        }
        charges
    }

    /// Whether this user may get a notice of a new device now.
    pub fn allows_notice(&self, user: &[u8], now: Timestamp) -> bool {
        let key = || self.key_of(&[b"notice", user]);
        self.mail_recipients.check(key, now).is_ok()
    }

    /// Charges a notice of a new device.
    pub fn charge_notice(&self, user: &[u8], now: Timestamp) {
        self.mail_recipients.add(self.key_of(&[b"notice", user]), now);
    }

    /// Charges a code or a password that is typed after a mail.
    pub fn type_code(&self, from: IpAddr, now: Timestamp) -> Result<(), RetryAfter> {
        let mut charges = Vec::new();
        if !self.is_exempt(from) {
            charges.extend(self.network_keys(from).map(|key| (&self.typed_codes, key)));
        }
        charge_all(charges, now).map(|_| ())
    }

    /// Charges a code that is typed after a mail to this recipient, whether a user has the name or not. The caller refunds a
    /// right one.
    pub fn guess_code(
        &self,
        recipient: &str,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<Attempt<'_>, RetryAfter> {
        let mut charges = Vec::new();
        if !self.is_exempt(from) {
            charges.push((&self.wrong_codes, self.mailbox_key(recipient)));
        }
        charge_all(charges, now)
    }

    /// The key of a mailbox. What follows `+` in the local part is chosen by the person who types the address, and the mail
    /// comes to the same mailbox (RFC 5233). Names without a domain, such as telephone numbers, are mailboxes of their own.
    fn mailbox_key(&self, recipient: &str) -> Key {
        let (local, domain) = recipient.rsplit_once('@').unwrap_or((recipient, ""));
        let user = local.split('+').next().unwrap_or_default();
        let has_detail = !domain.is_empty() && !user.is_empty();
        let user = if has_detail { user } else { local };
        self.key_of(&[b"mailbox", user.as_bytes(), domain.as_bytes()])
    }
}
