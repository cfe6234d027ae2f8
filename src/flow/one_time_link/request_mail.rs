//! A person on a page of a sign-in requests a mail: to choose a new password, to create an account, or to sign in.
//!
//! The answer and its time are the same whether an account exists or not: the same rows are written. A mail without a
//! recipient is removed in the same transaction, so that only a short row is left: of the sign-in, the browser keeps the
//! rest.

use std::collections::BTreeSet;

use super::DrawnLink;
use crate::clock::Timestamp;
use crate::flow::login::sealed;
use crate::flow::login::transaction::LoginContext;
use crate::flow::outbox::DrawnMail;
use crate::flow::users::user_named;
use crate::flow::{Core, Failure, FlowError};
use crate::identity::claim::parse_email;
use crate::identity::one_time_link::{MailReason, RequestedMail, RequestingSignIn};
use crate::identity::{LinkPurpose, LoginName, NewAccount, OneTimeLink, SecondFactor, User};
use crate::mail::{Content, Message};
use crate::password::PasswordHash;
use crate::route::Route;
use crate::secret::{LinkSecret, Secret};
use crate::store::StoreError;

/// What a person typed to get a mail.
pub struct MailRequest<'a> {
    /// The name or address.
    pub recipient: &'a str,
    pub language: String,
}

pub enum AccountBegun {
    /// A mail was sent. The browser keeps this of it, sealed.
    MailSent(String),
    /// Addresses are not verified: the person goes on with this link.
    Link(Secret<LinkSecret>),
}

/// Why no account is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignUpProblem {
    /// People may not create accounts.
    Closed,
    /// The text is no e-mail address.
    NoAddress,
    /// Addresses of this domain may not sign up.
    NotAllowed,
    /// Users of this domain sign in at a provider.
    AtProvider,
    /// A user has this address. It is told only if addresses are not verified.
    Taken,
}

/// Sends a link to choose a new password, if a user has this name and an address. A user without a password who signs in
/// at a provider gets none. Returns what the browser keeps, sealed.
pub async fn request_reset(
    core: &Core,
    login: &LoginContext,
    request: &MailRequest<'_>,
    now: Timestamp,
) -> Result<String, Failure> {
    let user = user_named(core, &LoginName::new(request.recipient)).await?;
    let found = user.as_ref().filter(|user| user.enabled).and_then(|user| {
        let password = user.password.as_ref().map(PasswordHash::fingerprint);
        if password.is_none() && !user.identities.is_empty() {
            return None;
        }
        let purpose = LinkPurpose::ResetPassword {
            user: user.uuid,
            email: user.email.clone(),
            password,
        };
        Some((user.email.clone()?, purpose))
    });
    let expires_at = now + OneTimeLink::REQUESTED_LIFETIME;
    let (to, purpose) = found.unzip();
    let link = |link, code| Content::ResetPassword {
        link,
        code: Some(code),
        expires_at,
    };
    let mail = LinkMail {
        to,
        purpose,
        content: &link,
        reason: MailReason::Reset,
    };
    send(core, login, request, mail, now).await
}

/// Makes a link with which a user who has just typed the present password chooses another one, because the operator
/// requires it. `second_factor` is the second step that the user has answered.
pub async fn request_change(
    core: &Core,
    login: &LoginContext,
    user: &User,
    second_factor: Option<SecondFactor>,
    now: Timestamp,
) -> Result<Secret<LinkSecret>, Failure> {
    let purpose = LinkPurpose::ResetPassword {
        user: user.uuid,
        email: None,
        password: user.password.as_ref().map(PasswordHash::fingerprint),
    };
    let mut link = DrawnLink::draw(core, purpose, now + OneTimeLink::REQUESTED_LIFETIME);
    link.request_in(RequestingSignIn {
        transaction: login.transaction.id,
        sealed: Some(login.sealed.clone()),
        second_factor,
    });
    let secret = link.secret.clone();
    core.store.write("request_change", move |tx| link.put(tx)).await?;
    Ok(secret)
}

/// Sends a link and a code to sign in, if a user who did not come from a provider has this name and a verified address.
/// Returns what the browser keeps, sealed.
pub async fn request_sign_in(
    core: &Core,
    login: &LoginContext,
    request: &MailRequest<'_>,
    now: Timestamp,
) -> Result<String, Failure> {
    let user = user_named(core, &LoginName::new(request.recipient)).await?;
    let found = user
        .as_ref()
        .filter(|user| user.may_sign_in_by_mail())
        .and_then(|user| {
            let email = user.email.clone()?;
            let purpose = LinkPurpose::SignIn {
                user: user.uuid,
                email: email.clone(),
            };
            Some((email, purpose))
        });
    let expires_at = Some(now + OneTimeLink::REQUESTED_LIFETIME);
    let link = |link, code| Content::SignIn {
        link,
        code,
        expires_at,
    };
    let (to, purpose) = found.unzip();
    let mail = LinkMail {
        to,
        purpose,
        content: &link,
        reason: MailReason::SignIn,
    };
    send(core, login, request, mail, now).await
}

/// Begins an account: sends a link to the address, or returns it if addresses are not verified. A user who has the address
/// already gets a mail that says so.
pub async fn request_account(
    core: &Core,
    login: &LoginContext,
    request: &MailRequest<'_>,
    now: Timestamp,
) -> Result<AccountBegun, FlowError<SignUpProblem>> {
    let policy = &core.policy.accounts;
    if !policy.is_open() {
        return Err(SignUpProblem::Closed.into());
    }
    let name = LoginName::new(request.recipient);
    let Some(email) = parse_email(request.recipient).ok().filter(|_| name.is_storable()) else {
        return Err(SignUpProblem::NoAddress.into());
    };
    check_address(core, &email)?;
    let is_taken = user_named(core, &name).await?.is_some();
    let new = LinkPurpose::CreateAccount(NewAccount {
        email: email.clone(),
        is_verified: policy.verify_email,
        is_invited: false,
        groups: BTreeSet::new(),
        client_id: None,
        invited_by: None,
    });
    let expires_at = now + OneTimeLink::REQUESTED_LIFETIME;
    if !policy.verify_email {
        if is_taken {
            return Err(SignUpProblem::Taken.into());
        }
        let link = DrawnLink::draw(core, new, expires_at);
        let secret = link.secret.clone();
        core.store
            .write("request_account", move |tx| link.put(tx))
            .await?;
        return Ok(AccountBegun::Link(secret));
    }
    let to = Some(email);
    let sealed = if is_taken {
        let account = Route::Account.url(&core.policy.issuer);
        let content = |_, _| Content::AlreadySignedUp {
            link: account.clone(),
        };
        let mail = LinkMail {
            to,
            purpose: None,
            content: &content,
            reason: MailReason::SignUp,
        };
        send(core, login, request, mail, now).await?
    } else {
        let content = |link, code| Content::SignUp {
            link,
            code,
            expires_at: Some(expires_at),
        };
        let mail = LinkMail {
            to,
            purpose: Some(new),
            content: &content,
            reason: MailReason::SignUp,
        };
        send(core, login, request, mail, now).await?
    };
    Ok(AccountBegun::MailSent(sealed))
}

/// Checks whether a user may take this address: the operator allows its domain, and its users do not sign in at a provider.
pub(in crate::flow) fn check_address(core: &Core, email: &str) -> Result<(), SignUpProblem> {
    if !core.policy.accounts.allows_address(email) {
        return Err(SignUpProblem::NotAllowed);
    }
    let catalog = core.catalog();
    let mut providers = catalog.providers();
    if providers.any(|provider| provider.enabled && provider.serves_domain_of(email)) {
        return Err(SignUpProblem::AtProvider);
    }
    Ok(())
}

struct LinkMail<'a> {
    to: Option<String>,
    purpose: Option<LinkPurpose>,
    /// The mail with this link and this code.
    content: &'a (dyn Fn(String, String) -> Content + Sync),
    reason: MailReason,
}

/// Stores a link and a mail with it in one transaction. Without a recipient, the mail is removed again. Without a purpose,
/// the link is worth nothing.
async fn send(
    core: &Core,
    login: &LoginContext,
    request: &MailRequest<'_>,
    mail: LinkMail<'_>,
    now: Timestamp,
) -> Result<String, Failure> {
    let LinkMail {
        to,
        purpose,
        content,
        reason,
    } = mail;
    let is_usable = purpose.is_some();
    let mut link = DrawnLink::draw(
        core,
        purpose.unwrap_or(LinkPurpose::Nothing),
        now + OneTimeLink::REQUESTED_LIFETIME,
    );
    let code = link.add_code(core);
    if is_usable {
        link.request_in(RequestingSignIn {
            transaction: login.transaction.id,
            sealed: None,
            second_factor: None,
        });
    }
    let is_for_nobody = to.is_none();
    let message = Message {
        to: to.unwrap_or_else(|| request.recipient.to_owned()),
        languages: Some(request.language.clone()),
        zone: None,
        client_id: login.transaction.purpose.client_id().map(ToOwned::to_owned),
        content: content(link.address(&core.policy.issuer), code.to_string()),
    };
    let mail = DrawnMail::draw(core, &message, now)?;
    let requested = RequestedMail {
        link: link.key,
        recipient: request.recipient.to_owned(),
        reason,
    };
    core.store
        .write("request_mail", move |tx| -> Result<_, StoreError> {
            link.put(tx)?;
            mail.put(tx)?;
            if is_for_nobody {
                mail.remove(tx)?;
            }
            Ok(())
        })
        .await?;
    core.outbox_filled.notify_one();
    let context = RequestedMail::sealing_context(login.transaction.id);
    Ok(sealed::seal(core, &context, &requested, now)?)
}

/// The mail that was requested in this sign-in, as the browser keeps it.
pub fn requested_mail(core: &Core, login: &LoginContext, sealed: &str) -> Option<RequestedMail> {
    sealed::open(
        core,
        &RequestedMail::sealing_context(login.transaction.id),
        sealed,
    )
}
