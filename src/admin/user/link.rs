//! Invites people, gives users a link to a new password, and locks users out.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::named::group_ids;
use super::super::{Admin, AdminResult, SecretString, TxResult, about, all_or_none, already_exists};
use super::{KIND, find};
use crate::clock::Timestamp;
use crate::flow::login::session::record_ended;
use crate::flow::one_time_link::DrawnLink;
use crate::flow::or_refuse;
use crate::flow::outbox::DrawnMail;
use crate::flow::users::end_sessions_and_families;
use crate::identity::claim::looks_like_email;
use crate::identity::{LinkPurpose, LoginName, NewAccount, OneTimeLink, Session, SignUp};
use crate::mail::{Content, Message};
use crate::oauth::FaultCode;
use crate::password::PasswordHash;
use crate::store::tables::{USERS, USERS_BY_LOGIN_NAME};

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

/// A user who gets a link to a new password.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ResetUser {
    /// E-mail address, account identifier or UUID.
    pub who: String,
    /// Whether the link is sent to the user's address. Otherwise the answer shows it.
    pub mail: bool,
}

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
    /// When it expires.
    pub expires_at: Timestamp,
}

/// A user who was locked out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockedUser {
    /// The UUID.
    pub uuid: Uuid,
    /// The account identifier.
    pub account_id: String,
    /// How many sessions ended.
    pub sessions_ended: usize,
    /// Until when APIs that do not ask this service may accept access tokens that were issued before.
    pub access_tokens_expire_at: Timestamp,
}

/// Invites a person to create an account. The link is sent by mail, or shown if no mail can be sent.
pub async fn invite(admin: Admin<'_>, request: InviteUser) -> AdminResult<LinkView> {
    let (core, catalog) = (admin.core, admin.core.catalog());
    let InviteUser {
        email,
        groups,
        client_id,
    } = request;
    let mut faults = Vec::new();
    if core.policy.accounts.sign_up == SignUp::Off {
        let detail = "accounts.sign_up is off, so nobody can be invited: set it to invitation or open, and restart the service";
        faults.push(FaultCode::NotAllowed.at([], detail));
    }
    if !looks_like_email(&email) {
        faults.push(FaultCode::Invalid.at(["email"], format!("{email:?} is no e-mail address")));
    }
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
    });
    let expires_at = core.clock.now() + OneTimeLink::INVITATION_LIFETIME;
    let link = DrawnLink::draw(core, purpose, expires_at);
    let content = |link| Content::Invitation { link, expires_at };
    let mail = Message {
        to: to.clone(),
        languages: None,
        client_id,
        content: content(link.address(&core.policy.issuer)),
    };
    let view = LinkView::of(admin, to, &link, sends_mail.then_some(&mail), expires_at);
    let mail = drawn(admin, sends_mail.then_some(&mail))?;
    core.store
        .write("user invite", move |tx| -> TxResult<()> {
            if USERS_BY_LOGIN_NAME.contains(&*tx, name.as_str())? {
                return Ok(Err(already_exists(KIND, name.as_str()).into()));
            }
            link.put(tx)?;
            mail.iter().try_for_each(|mail| mail.put(tx))?;
            Ok(Ok(()))
        })
        .await??;
    core.outbox_filled.notify_one();
    admin.record("user invite", &view.account_id);
    Ok(view)
}

/// Makes a link with which a user chooses a new password. The present one stays until then.
pub async fn reset(admin: Admin<'_>, request: ResetUser) -> AdminResult<LinkView> {
    let core = admin.core;
    let user = core.store.read(|snapshot| find(snapshot, &request.who)).await??;
    let mut faults = Vec::new();
    if !user.enabled {
        let detail = "the user is disabled: enable the user first";
        faults.push(FaultCode::NotAllowed.at([], detail));
    }
    if request.mail && user.email.is_none() {
        let detail = "the user has no e-mail address: pass the link on instead";
        faults.push(FaultCode::NotAllowed.at([], detail));
    }
    if request.mail && !core.policy.sends_mail {
        let detail = "no mail can be sent: set mail.url, or pass the link on instead";
        faults.push(FaultCode::NotAllowed.at([], detail));
    }
    all_or_none(about(KIND, &request.who, faults).collect())?;
    let email = user.email.clone().filter(|_| request.mail);
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
        client_id: None,
        content: Content::ResetPassword {
            link: link.address(&core.policy.issuer),
            code: None,
            expires_at,
        },
    });
    let view = LinkView::of(admin, user.account_id, &link, mail.as_ref(), expires_at);
    let mail = drawn(admin, mail.as_ref())?;
    core.store
        .write("user reset", move |tx| {
            link.put(tx)?;
            mail.iter().try_for_each(|mail| mail.put(tx))
        })
        .await?;
    core.outbox_filled.notify_one();
    admin.record("user reset", &user.uuid.to_string());
    Ok(view)
}

fn drawn(admin: Admin<'_>, mail: Option<&Message>) -> AdminResult<Option<DrawnMail>> {
    let draw = |mail| DrawnMail::draw(admin.core, mail, admin.core.clock.now());
    Ok(mail.map(draw).transpose()?)
}

impl LinkView {
    fn of(
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

/// Disables a user and ends all sessions and refresh tokens, in one transaction.
pub async fn lock(admin: Admin<'_>, who: String) -> AdminResult<LockedUser> {
    let core = admin.core;
    let now = core.clock.now();
    let (user, ended) = core
        .store
        .write("user lock", move |tx| -> TxResult<_> {
            let mut user = or_refuse!(find(&*tx, &who)?);
            user.enabled = false;
            user.updated_at = now;
            USERS.put(tx, &user.uuid, &user)?;
            let ended = end_sessions_and_families(tx, user.uuid, now)?;
            Ok(Ok((user, ended)))
        })
        .await??;
    let lifetimes = core.policy.lifetimes.session;
    let is_live = |(_, session): &&(Uuid, Session)| session.is_live(lifetimes, now);
    let sessions_ended = ended.iter().filter(is_live).count();
    record_ended(core, ended, now);
    admin.record("user lock", &user.uuid.to_string());
    Ok(LockedUser {
        uuid: user.uuid,
        account_id: user.account_id,
        sessions_ended,
        access_tokens_expire_at: now
            + core
                .catalog()
                .longest_access_token(core.policy.lifetimes.access_token),
    })
}
