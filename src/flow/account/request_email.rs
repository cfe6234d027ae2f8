//! A user changes the e-mail address: a link is sent to the new one.

use super::present_proof::PresentProof;
use super::{ActionResult, act_with_proof};
use crate::clock::Timestamp;
use crate::flow::browser::Browser;
use crate::flow::login::session;
use crate::flow::one_time_link::DrawnLink;
use crate::flow::one_time_link::request_mail::check_address;
use crate::flow::outbox::DrawnMail;
use crate::flow::{Core, Failure};
use crate::identity::claim::parse_email;
use crate::identity::{LinkPurpose, LoginName, OneTimeLink, User};
use crate::mail::{Content, Message};
use crate::store::login_names;

/// What a user types to change the address.
pub struct NewEmail {
    /// The address.
    pub email: String,
    /// The language of the mail.
    pub language: String,
}

/// The result of a request for another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmailRequest {
    /// A mail is on its way to the new address, or another user has the address.
    Sent,
    /// The text is no address.
    NoAddress,
    /// The operator does not allow this address, or not yet.
    NotAllowed,
}

/// Sends a link to the new address. The address changes when the link is used. If another user has the address, the answer
/// is the same and no mail is sent.
///
/// A mail to the new address can then set a password, so a proof is needed as for a new password.
pub async fn request_email(
    core: &Core,
    browser: &Browser,
    typed: NewEmail,
    proof: &PresentProof,
    now: Timestamp,
) -> Result<ActionResult<EmailRequest>, Failure> {
    let done = |result| Ok(ActionResult::Done(result));
    let name = LoginName::new(&typed.email);
    let Some(email) = parse_email(&typed.email).ok().filter(|_| name.is_storable()) else {
        return done(EmailRequest::NoAddress);
    };
    let live = session::signed_in(core, browser, now).await?;
    let Some(live) = live.filter(|live| live.session.is_fresh(now)) else {
        return Ok(ActionResult::SignInRequired);
    };
    let is_allowed = core.policy.accounts.self_service.email && core.policy.sends_mail;
    if !is_allowed || !live.user.may_change_email(now) || check_address(core, &email).is_err() {
        return done(EmailRequest::NotAllowed);
    }
    let purpose = LinkPurpose::ChangeEmail {
        user: live.user.uuid,
        session: live.id,
        from: live.user.email.clone(),
        to: email.clone(),
    };
    let expires_at = now + OneTimeLink::REQUESTED_LIFETIME;
    let link = DrawnLink::draw(core, purpose, expires_at);
    let no_link = DrawnLink::draw(core, LinkPurpose::Nothing, expires_at);
    let message = Message {
        to: email,
        languages: Some(typed.language),
        zone: live.user.zone(),
        client_id: None,
        content: Content::VerifyAddress {
            account_id: name_in_mails(&live.user).map(str::to_owned),
            link: link.address(&core.policy.issuer),
        },
    };
    let mail = DrawnMail::draw(core, &message, now)?;
    let decoy = DrawnMail::decoy(core, &message, now)?;
    let user = live.user.uuid;
    let result = act_with_proof(core, browser, proof, "request_email", now, move |tx, live, _| {
        let is_free = !login_names::is_of_another(&*tx, &name, user)?;
        if is_free && live.user.uuid == user && !live.user.comes_from_provider() {
            link.put(tx)?;
            mail.put(tx)?;
        } else {
            no_link.put(tx)?;
            decoy.put(tx)?;
        }
        Ok(ActionResult::Done(()))
    })
    .await?;
    core.outbox_filled.notify_one();
    Ok(result.map(|()| EmailRequest::Sent))
}

/// How a mail to an address that anybody typed names the account: by an identifier of one word or two, else by the address
/// that the user has proven. Another identifier may be a sentence, or be a link in mail programs. The scripts up to Cyrillic
/// put spaces between words.
fn name_in_mails(user: &User) -> Option<&str> {
    const LONGEST: usize = 64;
    let name = user.account_id.as_str();
    let is_letter = |c: char| c.is_alphanumeric() && c < '\u{530}';
    let is_word = |word: &str| !word.is_empty() && word.chars().all(is_letter);
    let is_short = name.chars().count() <= LONGEST && name.split(['_', '-']).count() <= 2;
    if is_short && name.split(['_', '-']).all(is_word) {
        return Some(name);
    }
    user.email.as_deref().filter(|_| user.email_verified)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_name_of_an_account_brings_neither_a_sentence_nor_a_link_into_a_mail_to_others() {
        let named = |account_id: &str, is_proven: bool| {
            let mut user = User::local(Uuid::nil(), "a@example.com", "", Timestamp::from_seconds(0));
            account_id.clone_into(&mut user.account_id);
            user.email_verified = is_proven;
            name_in_mails(&user).map(str::to_owned)
        };
        for name in ["alice", "jürgen", "Алиса", "alice-2", "alice_smith"] {
            assert_eq!(named(name, false).as_deref(), Some(name));
        }
        for phrase in [
            "",
            "alice@example.com",
            "up:www.evil.example",
            "www.evil.example",
            "evil.example",
            "Your-account-is-locked.Call-555",
            "Your-account-is-locked-Call-555",
            "up:Your account is locked. Call 555 0100",
            "up:https://evil.example",
            "evil.example/login@evil.example",
            "a\u{a0}b",
            "a\r\nb",
            "您的账户已被锁定请致电5550100",
            &"a".repeat(65),
        ] {
            assert_eq!(named(phrase, false), None, "{phrase}");
            assert_eq!(named(phrase, true).as_deref(), Some("a@example.com"), "{phrase}");
        }
    }
}
