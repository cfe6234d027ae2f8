//! The audit: events, each as one structured log line under the target `audit`. No event has a field for a secret.
//!
//! A routine event has the level `debug`: it says that tokens were issued, or that an anonymous user came or went. There
//! are as many of them as requests, and anyone can cause them. All other events are security events.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// One event, for the guide.
#[derive(Clone, Copy, Debug)]
pub struct EventDescription {
    pub name: &'static str,
    /// Its level in the log; empty if it is not in the log.
    pub level: &'static str,
    /// What happened.
    pub meaning: &'static str,
    /// The names of its members and what they say.
    pub members: &'static [(&'static str, &'static str)],
}

/// The note in the event files that some events could not be written.
const EVENTS_LOST: EventDescription = EventDescription {
    name: "events_lost",
    level: "",
    meaning: "Some events could not be written.",
    members: &[("count", "How many events were lost.")],
};

/// Declares the events: name, level and log fields of each, then its members. An event without a name is recorded as
/// `administered`. The level `debug` makes it a routine event. Doc comments are text of the guide.
macro_rules! events {
    ($lifetime:lifetime $(
        $(#[doc = $doc:literal])*
        $event:ident $(= $name:literal)?: $level:ident($($fields:tt)*) {
            $($(#[doc = $member_doc:literal])* $member:ident: $type:ty,)*
        }
    )*) => {
        /// The names of all events, and of the line that counts lost events.
        pub const NAMES: &[&str] = &[$($($name,)?)* EVENTS_LOST.name];

        /// All events. Several may have one name.
        pub const EVENTS: &[EventDescription] = &[
            $(EventDescription {
                name: events!(@name $($name)?),
                level: stringify!($level),
                meaning: concat!($($doc),*).trim_ascii(),
                members: &[$((stringify!($member), concat!($($member_doc),*).trim_ascii()),)*],
            },)*
            EVENTS_LOST,
        ];

        pub fn is_routine(name: &str) -> bool {
            match name {
                $($($name => stringify!($level) == "debug",)?)*
                _ => false,
            }
        }

        #[derive(Clone, Debug)]
        pub enum Event<$lifetime> {
            $($(#[doc = $doc])* $event { $($(#[doc = $member_doc])* $member: $type,)* },)*
        }

        impl Event<'_> {
            fn name(&self) -> &'static str {
                match self {
                    $(Self::$event { .. } => events!(@name $($name)?),)*
                }
            }

            fn log(&self, name: &'static str) {
                match self {
                    $(Self::$event { $($member),* } => {
                        tracing::$level!(target: "audit", event = name, $($fields)*);
                    })*
                }
            }
        }
    };
    (@name $name:literal) => { $name };
    (@name) => { "administered" };
}

events! { 'a
    /// A user signed in.
    SignedIn = "signed_in": info(%user, %session, authority, client_id) {
        /// The user.
        user: Uuid,
        /// The session.
        session: Uuid,
        /// The authority that authenticated the user.
        authority: &'a str,
        /// The client that sent the browser.
        client_id: &'a str,
    }
    /// A sign-in failed: wrong password or code of a mail, unknown or disabled user, or a user of a provider who is not allowed.
    SignInFailed = "sign_in_failed": warn(user = user.map(tracing::field::display), %from, client_id) {
        /// The user, if the name or the account at a provider belongs to one.
        user: Option<Uuid>,
        /// The client's address, past trusted proxies.
        from: IpAddr,
        /// The client that sent the browser.
        client_id: &'a str,
    }
    /// A user who is signed in, or whose grant or token was presented, got nothing for a client that they may not use.
    AccessRefused = "access_refused": warn(%user, client_id, reason) {
        /// The user. One whom the token of a provider would have created is not stored.
        user: Uuid,
        /// The client.
        client_id: &'a str,
        /// `not_in_group`: the user is in no group that may use the client.
        reason: &'a str,
    }
    /// A user has had the hundredth wrong password in a row. Only known browsers are let in with the right password.
    PasswordLimitReached = "password_limit_reached": warn(%user) {
        /// The user.
        user: Uuid,
    }
    /// A user has had the hundredth wrong code of the second step in a row. Only a recovery code is accepted.
    SecondStepLimitReached = "second_step_limit_reached": warn(%user) {
        /// The user.
        user: Uuid,
    }
    /// A user answered the second step of a sign-in. The event `signed_in` follows.
    SecondStepDone = "second_step_done": info(%user, factor) {
        /// The user.
        user: Uuid,
        /// `totp`, or `recovery_code`.
        factor: &'a str,
    }
    /// A user added a factor, or replaced the recovery codes.
    FactorAdded = "factor_added": warn(%user, factor) {
        /// The user.
        user: Uuid,
        /// `totp`, `recovery_codes` or `passkey`.
        factor: &'a str,
    }
    /// A factor of a user was removed.
    FactorRemoved = "factor_removed": warn(%user, factor) {
        /// The user.
        user: Uuid,
        /// `totp`, `recovery_codes` or `passkey`.
        factor: &'a str,
    }
    /// A user who has secured the account said at the second step that no factor is left. If nothing ends the wait before, a
    /// sign-in with the password removes the factors after it.
    LostFactorsWaitBegan = "lost_factors_wait_began": warn(%user, ends_at, %from) {
        /// The user.
        user: Uuid,
        /// When the wait is over, in seconds since 1970.
        ends_at: u64,
        /// The client's address, past trusted proxies.
        from: IpAddr,
    }
    /// The wait of a user who has no factor left has ended.
    LostFactorsWaitEnded = "lost_factors_wait_ended": warn(%user, reason) {
        /// The user.
        user: Uuid,
        /// `factor` if the user showed a factor, `secured` if the account was secured again, `operator` if a command ended
        /// it, `over` if a sign-in after it removed the factors. `expired` if there was none for a week.
        reason: &'a str,
    }
    /// A user answered the consent page.
    ConsentAnswered = "consent_answered": info(%user, client_id, allowed) {
        /// The user.
        user: Uuid,
        /// The client.
        client_id: &'a str,
        /// Whether the answer was yes.
        allowed: bool,
    }
    /// A user decided about a device that showed a code.
    DeviceDecided = "device_decided": info(%user, client_id, allowed, %from) {
        /// The user.
        user: Uuid,
        /// The client on the device.
        client_id: &'a str,
        /// Whether the user allowed it.
        allowed: bool,
        /// The address that the device asked from, past trusted proxies.
        from: IpAddr,
    }
    /// A person typed a user code that no device shows.
    UserCodeRefused = "user_code_refused": warn(user = user.map(tracing::field::display), %from) {
        /// The user who is signed in, if there is one.
        user: Option<Uuid>,
        /// The client's address, past trusted proxies.
        from: IpAddr,
    }
    /// A client with a metadata document was stored: a user allowed the client for the first time, or its document
    /// changed.
    ClientDocumentStored = "client_document_stored": info(client_id) {
        /// The client: the address of its document.
        client_id: &'a str,
    }
    /// Tokens were issued.
    TokensIssued = "tokens_issued": debug(user = user.map(tracing::field::display), client_id, grant_type, audience = audience.join(" "), %jti, family = family.map(tracing::field::display), actor, exchanged_of) {
        /// The user; absent for a client that acts for itself.
        user: Option<Uuid>,
        /// The client.
        client_id: &'a str,
        /// The grant.
        grant_type: &'a str,
        /// The `aud` of the access token, separated by spaces.
        audience: &'a [String],
        /// The access token's identifier.
        jti: Uuid,
        /// The refresh family; absent for a client that acts for itself. After a token exchange, that of the exchanged token.
        family: Option<Uuid>,
        /// The party that acts for the user; absent without one.
        actor: Option<&'a str>,
        /// The client whose access token was exchanged; absent for other grants.
        exchanged_of: Option<&'a str>,
    }
    /// A token was not issued, because it would be longer than the endpoints of the service accept. Take the user out
    /// of groups, shorten the claim, or let the client have less scope.
    TokenTooLong = "token_too_long": warn(user = user.map(tracing::field::display), client_id, token, claim, length) {
        /// The user; absent for a client that acts for itself.
        user: Option<Uuid>,
        /// The client.
        client_id: &'a str,
        /// `access_token` or `id_token`.
        token: &'a str,
        /// The longest claim.
        claim: &'a str,
        /// The bytes of the token.
        length: usize,
    }
    /// A client assertion was used again and refused.
    AssertionReplayed = "assertion_replayed": warn(client_id) {
        /// The client that signed it.
        client_id: &'a str,
    }
    /// A DPoP proof was used again and refused.
    ProofReplayed = "proof_replayed": warn(client_id) {
        /// The client that the request or the access token names.
        client_id: &'a str,
    }
    /// An anonymous user was created for a device.
    AnonymousUserCreated = "anonymous_user_created": debug(%user, client_id) {
        /// The user.
        user: Uuid,
        /// The client that asked.
        client_id: &'a str,
    }
    /// An anonymous user was removed: its refresh tokens had expired long ago.
    AnonymousUserRemoved = "anonymous_user_removed": debug(%user) {
        /// The user.
        user: Uuid,
    }
    /// An anonymous user became an account: the sign-in on its device created one.
    AnonymousUserUpgraded = "anonymous_user_upgraded": info(%user, client_id) {
        /// The user, whose identifier stays.
        user: Uuid,
        /// The client that sent the browser.
        client_id: &'a str,
    }
    /// The person behind an anonymous user signed in to an existing account. The grants of the anonymous user ended.
    AnonymousUserLinked = "anonymous_user_linked": info(%user, %anonymous, client_id) {
        /// The account.
        user: Uuid,
        /// The anonymous user.
        anonymous: Uuid,
        /// The client that sent the browser.
        client_id: &'a str,
    }
    /// A user was created for an identity of a provider.
    FederatedUserCreated = "federated_user_created": info(%user, provider) {
        /// The user.
        user: Uuid,
        /// The provider.
        provider: &'a str,
    }
    /// An identity of a provider was linked to an existing user.
    IdentityLinked = "identity_linked": info(%user, provider) {
        /// The user.
        user: Uuid,
        /// The provider.
        provider: &'a str,
    }
    /// A provider's ID token was exchanged again and refused.
    ProviderTokenReplayed = "provider_token_replayed": warn(provider, client_id) {
        /// The provider that issued it.
        provider: &'a str,
        /// The client that presented it.
        client_id: &'a str,
    }
    /// An authorization code or device code was used again. Its refresh family was revoked.
    CodeReplayed = "code_replayed": warn(client_id, %family) {
        /// The client that presented it.
        client_id: &'a str,
        /// The family that was revoked.
        family: Uuid,
    }
    /// A refresh was repeated during `refresh.retry_window`. The answer had the same refresh token.
    RefreshRepeated = "refresh_repeated": debug(client_id, %family) {
        /// The client that repeated it.
        client_id: &'a str,
        /// The family.
        family: Uuid,
    }
    /// A replaced refresh token was used again. Its family was revoked.
    RefreshTokenReplayed = "refresh_token_replayed": warn(client_id, %family) {
        /// The client that presented it.
        client_id: &'a str,
        /// The family that was revoked.
        family: Uuid,
    }
    /// A client revoked a token.
    TokenRevoked = "token_revoked": info(client_id, token_type) {
        /// The client.
        client_id: &'a str,
        /// The kind of token.
        token_type: &'a str,
    }
    /// A user signed out.
    SignedOut = "signed_out": info(%user, %session) {
        /// The user.
        user: Uuid,
        /// The session.
        session: Uuid,
    }
    /// A client was told that a session has ended (back-channel logout).
    LogoutNotified = "logout_notified": debug(%user, %session, client_id) {
        /// The user.
        user: Uuid,
        /// The session.
        session: Uuid,
        /// The client.
        client_id: &'a str,
    }
    /// A client was not told that a session has ended: it refused the logout token, or did not accept one for a day.
    LogoutNoticeFailed = "logout_notice_failed": warn(%user, %session, client_id, reason) {
        /// The user.
        user: Uuid,
        /// The session.
        session: Uuid,
        /// The client.
        client_id: &'a str,
        /// The problem of the last attempt.
        reason: &'a str,
    }
    /// A user changed the password. All sessions and grants ended, and the browser got another session.
    PasswordChanged = "password_changed": info(%user, %session) {
        /// The user.
        user: Uuid,
        /// The session that the browser got.
        session: Uuid,
    }
    /// A user set a new password by a link, after forgetting it or a reset by the operator. All sessions and grants ended.
    PasswordReset = "password_reset": info(%user, session = session.map(tracing::field::display)) {
        /// The user.
        user: Uuid,
        /// The session that the browser got; absent if the second step of the sign-in follows.
        session: Option<Uuid>,
    }
    /// A user secured the account by the link of a notice. What the notice is about was undone, the session of that ended, and
    /// the password was removed. All sessions ended if the notice is not about one session.
    AccountSecured = "account_secured": warn(%user) {
        /// The user.
        user: Uuid,
    }
    /// A user edited the profile.
    ProfileEdited = "profile_edited": info(%user) {
        /// The user.
        user: Uuid,
    }
    /// A user changed the e-mail address by the link that was sent to the new one.
    EmailChanged = "email_changed": info(%user) {
        /// The user.
        user: Uuid,
    }
    /// A user deleted the account.
    AccountDeleted = "account_deleted": warn(%user) {
        /// The user.
        user: Uuid,
    }
    /// A person created an account.
    AccountCreated = "account_created": info(%user, invited, client_id) {
        /// The user.
        user: Uuid,
        /// Whether the operator had invited the person.
        invited: bool,
        /// The client that sent the browser.
        client_id: &'a str,
    }
    /// An administrator invited a person.
    PersonInvited = "person_invited": info(%invitation, client_id, actor) {
        /// The id of the invitation, as `user invitations` shows it. The event `administered` of the same command has the address.
        invitation: Uuid,
        /// The client that the person is invited to; absent without one.
        client_id: Option<&'a str>,
        /// The user of the machine who ran the command, as in `uid 0`.
        actor: &'a str,
    }
    /// An invitation was revoked, or a newer one for the same address replaced it. Its link no longer works.
    InvitationRevoked = "invitation_revoked": info(%invitation, reason, actor) {
        /// The id of the invitation.
        invitation: Uuid,
        /// `command` if an administrator took it back, `replaced` if there is a newer one.
        reason: &'a str,
        /// The user of the machine who ran the command, as in `uid 0`.
        actor: &'a str,
    }
    /// A person created an account by an invitation. The event `account_created` has the same user.
    InvitationAccepted = "invitation_accepted": info(%user, %invitation) {
        /// The user.
        user: Uuid,
        /// The id of the invitation.
        invitation: Uuid,
    }
    /// A signed-in user gave a wrong current password, code or passkey for a change of the account.
    PasswordChangeFailed = "password_change_failed": warn(%user, %from) {
        /// The user.
        user: Uuid,
        /// The client's address, past trusted proxies.
        from: IpAddr,
    }
    /// A user revoked the grants of a client.
    ApplicationDisconnected = "application_disconnected": info(%user, client_id) {
        /// The user.
        user: Uuid,
        /// The client.
        client_id: &'a str,
    }
    /// A client registered itself.
    ClientRegistered = "client_registered": info(client_id, name, %from, token = token.map(tracing::field::display)) {
        /// The client.
        client_id: &'a str,
        /// The name that it gives itself; absent without one.
        name: Option<&'a str>,
        /// The client's address, past trusted proxies.
        from: IpAddr,
        /// The id of the initial access token; absent if registration is open.
        token: Option<Uuid>,
    }
    /// A client changed its registration.
    ClientRegistrationChanged = "client_registration_changed": info(client_id, %from) {
        /// The client.
        client_id: &'a str,
        /// The client's address, past trusted proxies.
        from: IpAddr,
    }
    /// A client that registered itself, or that has a metadata document, was removed.
    ClientRegistrationRemoved = "client_registration_removed": info(client_id, name, reason) {
        /// The client.
        client_id: &'a str,
        /// The name that it gave itself; absent without one.
        name: Option<&'a str>,
        /// `request` if the client asked for it; `unused` if no user allowed it anything within 30 days. `replaced` if another
        /// client took its place (`clients.most_registered`, `limits.memory`), or if it had no room at the start. With a
        /// metadata document, `unused` if nobody used it for 30 days, or for the lifetime of a refresh token if that is longer.
        reason: &'a str,
    }
    /// A signing key was announced, activated or removed on schedule.
    SigningKeyMoved = "signing_key_moved": info(kid, alg, state) {
        /// The key's name.
        kid: &'a str,
        /// The algorithm of the key.
        alg: &'a str,
        /// `announced`, `active` or `removed`.
        state: &'a str,
    }
    /// A certificate authority issued a certificate, which is used from now on.
    CertificateIssued = "certificate_issued": info(domains, not_after) {
        /// The names on the certificate.
        domains: &'a str,
        /// The end of its validity, in seconds since 1970.
        not_after: u64,
    }
    /// The order of a certificate failed.
    CertificateFailed = "certificate_failed": warn(domains, reason) {
        /// The names in the order.
        domains: &'a str,
        /// The reason of the failure.
        reason: &'a str,
    }
    /// The service made a scheduled backup.
    BackedUp = "backed_up": info(file) {
        /// The file.
        file: &'a str,
    }
    /// The mail server took a mail. No event names a recipient in full.
    MailSent = "mail_sent": debug(%mail, kind, domain) {
        /// The id of the mail, the first part of its `Message-ID`.
        mail: Uuid,
        /// What the mail is for: the name of its template.
        kind: &'a str,
        /// The domain of the recipient.
        domain: &'a str,
    }
    /// A mail was given up: the mail server refused it, or did not take it for a day.
    MailFailed = "mail_failed": warn(%mail, kind, domain, reason) {
        /// The id of the mail, the first part of its `Message-ID`.
        mail: Uuid,
        /// What the mail was for: the name of its template.
        kind: &'a str,
        /// The domain of the recipient.
        domain: &'a str,
        /// The code of the server's last reply, as in `550 5.1.1`. Without a code: `connection` if the connection broke,
        /// `server` if the server could not be used. `address` means that the recipient's address cannot be used, and
        /// `unreadable` that the mail cannot be read.
        reason: &'a str,
    }
    /// An administrator changed something.
    Administered = "administered": info(command, subject, actor) {
        /// The command.
        command: &'a str,
        /// The object of the command: the `uuid` of a user, the `kid` of a key, the name of a scope or a group, or the
        /// identifier of any other record. With `backup` and `restore` it is the fingerprint of the master key, with
        /// `config set-issuer` the issuer, and with `compact` and `migrate` the word `database`. With `user import` it says
        /// how many users were added and updated. With `user remove` of several users, the last event says how many. With `mail test` it is the id of the mail.
        subject: &'a str,
        /// The user of the machine who ran the command, as in `uid 0`.
        actor: &'a str,
    }
    /// `idsvc apply` changed a record. Recorded as `administered`.
    Applied: info(command = "apply", subject, actor, kind) {
        /// With `apply`, the kind of the record: `scope`, `group`, `provider`, `api`, `client` or `user`.
        kind: &'a str,
        /// The identifier of the record.
        subject: &'a str,
        /// The user of the machine who applied the state.
        actor: &'a str,
    }
    /// An administrator revoked a secret or an API key of a client. Recorded as `administered`.
    CredentialRevoked: info(command, subject, actor, credential) {
        /// The command.
        command: &'a str,
        /// The client.
        subject: &'a str,
        /// The user of the machine who revoked it.
        actor: &'a str,
        /// With `client secret revoke` and `client api-key revoke`, the id of the secret or key.
        credential: &'a str,
    }
    /// An administrator unlinked a user from a provider. Recorded as `administered`.
    Unlinked: info(command = "user unlink", %subject, actor, provider) {
        /// The user.
        subject: Uuid,
        /// The user of the machine who removed the link.
        actor: &'a str,
        /// With `user unlink`, the provider.
        provider: &'a str,
    }
}

/// How many events of each name this process has recorded, in the order of [`NAMES`].
static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Counts events that could not be written.
pub fn lost(events: u64) {
    let [.., count] = &COUNTS;
    count.fetch_add(events, Ordering::Relaxed);
}

/// How many events of each name this process has recorded.
pub fn counts() -> impl Iterator<Item = (&'static str, u64)> {
    let counts = COUNTS.iter().map(|count| count.load(Ordering::Relaxed));
    NAMES.iter().copied().zip(counts)
}

/// Logs the event and counts it.
pub fn record(event: &Event<'_>) {
    let name = event.name();
    if let Some((_, count)) = NAMES.iter().zip(&COUNTS).find(|(known, _)| **known == name) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    event.log(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_counted_under_its_name() {
        let of = |name: &str| counts().find(|(known, _)| *known == name).unwrap().1;
        let (before, lost_before) = (of("application_disconnected"), of("events_lost"));
        let (user, client_id) = (Uuid::nil(), "web");
        record(&Event::ApplicationDisconnected { user, client_id });
        lost(7);
        assert!(of("application_disconnected") > before);
        assert!(of("events_lost") >= lost_before + 7);
    }
}
