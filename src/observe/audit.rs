//! What happened that somebody may have to account for: one structured log line each.
//!
//! The lines go to the log under the target `audit`. No event can hold a secret: there is no field for one.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// The name of every event, and of the line that stands for those that could not be kept.
pub const NAMES: &[&str] = &[
    "signed_in",
    "sign_in_failed",
    "consent_answered",
    "tokens_issued",
    "assertion_replayed",
    "anonymous_user_created",
    "anonymous_user_removed",
    "federated_user_created",
    "identity_linked",
    "provider_token_replayed",
    "code_replayed",
    "refresh_token_replayed",
    "token_revoked",
    "signed_out",
    "password_changed",
    "password_change_failed",
    "application_disconnected",
    "signing_key_moved",
    "certificate_issued",
    "certificate_failed",
    "backed_up",
    "administered",
    "events_lost",
];

/// How many events of each name this process has recorded, in the order of [`NAMES`].
static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Counts events that could not be kept.
pub fn lost(events: u64) {
    let [.., count] = &COUNTS;
    count.fetch_add(events, Ordering::Relaxed);
}

/// How many events of each name this process has recorded.
pub fn counts() -> impl Iterator<Item = (&'static str, u64)> {
    let counts = COUNTS.iter().map(|count| count.load(Ordering::Relaxed));
    NAMES.iter().copied().zip(counts)
}

/// Something to be accounted for.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A user signed in.
    SignedIn {
        /// The user.
        user: Uuid,
        /// The session.
        session: Uuid,
        /// How.
        authority: &'a str,
        /// The client that sent the browser.
        client_id: &'a str,
    },
    /// A sign-in failed: wrong password, unknown or disabled user, one of a provider who may not be let in.
    SignInFailed {
        /// The user, when the name is somebody's.
        user: Option<Uuid>,
        /// The address it came from, past trusted proxies.
        from: IpAddr,
        /// The client that sent the browser.
        client_id: &'a str,
    },
    /// A user answered the consent page.
    ConsentAnswered {
        /// The user.
        user: Uuid,
        /// The client.
        client_id: &'a str,
        /// Whether the answer was yes.
        allowed: bool,
    },
    /// Tokens were issued.
    TokensIssued {
        /// The subject.
        user: Uuid,
        /// The client.
        client_id: &'a str,
        /// The grant.
        grant_type: &'a str,
        /// The access token's identifier.
        jti: Uuid,
        /// The family; none for a client that acts for itself.
        family: Option<Uuid>,
    },
    /// A client assertion was used again, and refused.
    AssertionReplayed {
        /// The client that signed it.
        client_id: &'a str,
    },
    /// A device was given a user of its own.
    AnonymousUserCreated {
        /// The user.
        user: Uuid,
        /// The client that asked.
        client_id: &'a str,
    },
    /// An anonymous user whose refresh tokens had long ended was removed.
    AnonymousUserRemoved {
        /// The user.
        user: Uuid,
    },
    /// Somebody whom a provider speaks of became a user.
    FederatedUserCreated {
        /// The user.
        user: Uuid,
        /// The provider.
        provider: &'a str,
    },
    /// Somebody whom a provider speaks of was found to be a user that existed.
    IdentityLinked {
        /// The user.
        user: Uuid,
        /// The provider.
        provider: &'a str,
    },
    /// A provider's ID token was exchanged again, and refused.
    ProviderTokenReplayed {
        /// The provider that issued it.
        provider: &'a str,
        /// The client that presented it.
        client_id: &'a str,
    },
    /// An authorization code was used again; what it had brought was revoked.
    CodeReplayed {
        /// The client that presented it.
        client_id: &'a str,
        /// The family that was revoked.
        family: Uuid,
    },
    /// A refresh token that had been replaced was used again; its family was revoked.
    RefreshTokenReplayed {
        /// The client that presented it.
        client_id: &'a str,
        /// The family that was revoked.
        family: Uuid,
    },
    /// A client revoked a token.
    TokenRevoked {
        /// The client.
        client_id: &'a str,
        /// What kind of token.
        token_type: &'a str,
    },
    /// A user signed out.
    SignedOut {
        /// The user.
        user: Uuid,
        /// The session.
        session: Uuid,
    },
    /// A user chose another password; every other session and every grant ended with it.
    PasswordChanged {
        /// The user.
        user: Uuid,
        /// The session that goes on in the place of the one in which it was done.
        session: Uuid,
    },
    /// A user who is signed in typed another password than the present one.
    PasswordChangeFailed {
        /// The user.
        user: Uuid,
        /// The address it came from, past trusted proxies.
        from: IpAddr,
    },
    /// A user took back what a client had been granted.
    ApplicationDisconnected {
        /// The user.
        user: Uuid,
        /// The client.
        client_id: &'a str,
    },
    /// A signing key was announced, began to sign or was withdrawn, because its time had come.
    SigningKeyMoved {
        /// The key's name.
        kid: &'a str,
        /// What it signs with.
        alg: &'a str,
        /// `announced`, `active` or `removed`.
        state: &'a str,
    },
    /// A certificate authority issued the certificate that is shown from now on.
    CertificateIssued {
        /// The names that it is for.
        domains: &'a str,
        /// Its last second, in seconds since the epoch.
        not_after: u64,
    },
    /// A certificate that was ordered did not come.
    CertificateFailed {
        /// The names that it was to be for.
        domains: &'a str,
        /// Why.
        reason: &'a str,
    },
    /// The service made a backup by itself.
    BackedUp {
        /// The file.
        file: &'a str,
    },
    /// An administrator changed something.
    Administered {
        /// The command.
        command: &'a str,
        /// What it was about: the uuid of a user, the identifier of a client, a provider, a session or a key, the
        /// fingerprint of the master key, or what else there is to say.
        subject: &'a str,
    },
    /// An administrator had a declared state brought about, and a record changed. Recorded as `administered`.
    Applied {
        /// `provider`, `client` or `user`.
        kind: &'a str,
        /// Which, as for [`Event::Administered`].
        subject: &'a str,
    },
    /// An administrator took a provider's word for a user away. Recorded as `administered`.
    Unlinked {
        /// The user.
        user: Uuid,
        /// The provider.
        provider: &'a str,
    },
}

impl Event<'_> {
    /// Counts it, under the name that comes back.
    fn counted(&self) -> &'static str {
        let name = self.name();
        if let Some((_, count)) = NAMES.iter().zip(&COUNTS).find(|(known, _)| **known == name) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        name
    }

    /// Its name: one of [`NAMES`].
    fn name(&self) -> &'static str {
        match self {
            Self::SignedIn { .. } => "signed_in",
            Self::SignInFailed { .. } => "sign_in_failed",
            Self::ConsentAnswered { .. } => "consent_answered",
            Self::TokensIssued { .. } => "tokens_issued",
            Self::AssertionReplayed { .. } => "assertion_replayed",
            Self::AnonymousUserCreated { .. } => "anonymous_user_created",
            Self::AnonymousUserRemoved { .. } => "anonymous_user_removed",
            Self::FederatedUserCreated { .. } => "federated_user_created",
            Self::IdentityLinked { .. } => "identity_linked",
            Self::ProviderTokenReplayed { .. } => "provider_token_replayed",
            Self::CodeReplayed { .. } => "code_replayed",
            Self::RefreshTokenReplayed { .. } => "refresh_token_replayed",
            Self::TokenRevoked { .. } => "token_revoked",
            Self::SignedOut { .. } => "signed_out",
            Self::PasswordChanged { .. } => "password_changed",
            Self::PasswordChangeFailed { .. } => "password_change_failed",
            Self::ApplicationDisconnected { .. } => "application_disconnected",
            Self::SigningKeyMoved { .. } => "signing_key_moved",
            Self::CertificateIssued { .. } => "certificate_issued",
            Self::CertificateFailed { .. } => "certificate_failed",
            Self::BackedUp { .. } => "backed_up",
            Self::Administered { .. } | Self::Applied { .. } | Self::Unlinked { .. } => "administered",
        }
    }
}

/// Writes the event down, and counts it.
pub fn record(event: &Event<'_>) {
    let name = event.counted();
    match event {
        Event::SignedIn {
            user,
            session,
            authority,
            client_id,
        } => {
            tracing::info!(target: "audit", event = name, %user, %session, authority, client_id);
        }
        Event::SignInFailed {
            user,
            from,
            client_id,
        } => {
            let user = user.map(tracing::field::display);
            tracing::warn!(target: "audit", event = name, user, %from, client_id);
        }
        Event::ConsentAnswered {
            user,
            client_id,
            allowed,
        } => {
            tracing::info!(target: "audit", event = name, %user, client_id, allowed);
        }
        Event::TokensIssued {
            user,
            client_id,
            grant_type,
            jti,
            family,
        } => {
            let family = family.map(tracing::field::display);
            tracing::info!(target: "audit", event = name, %user, client_id, grant_type, %jti, family);
        }
        Event::AssertionReplayed { client_id } => {
            tracing::warn!(target: "audit", event = name, client_id);
        }
        Event::AnonymousUserCreated { user, client_id } => {
            tracing::info!(target: "audit", event = name, %user, client_id);
        }
        Event::AnonymousUserRemoved { user } => {
            tracing::info!(target: "audit", event = name, %user);
        }
        Event::FederatedUserCreated { user, provider } => {
            tracing::info!(target: "audit", event = name, %user, provider);
        }
        Event::IdentityLinked { user, provider } => {
            tracing::info!(target: "audit", event = name, %user, provider);
        }
        Event::ProviderTokenReplayed { provider, client_id } => {
            tracing::warn!(target: "audit", event = name, provider, client_id);
        }
        Event::CodeReplayed { client_id, family } => {
            tracing::warn!(target: "audit", event = name, client_id, %family);
        }
        Event::RefreshTokenReplayed { client_id, family } => {
            tracing::warn!(target: "audit", event = name, client_id, %family);
        }
        Event::TokenRevoked {
            client_id,
            token_type,
        } => {
            tracing::info!(target: "audit", event = name, client_id, token_type);
        }
        Event::SignedOut { user, session } => {
            tracing::info!(target: "audit", event = name, %user, %session);
        }
        Event::PasswordChanged { user, session } => {
            tracing::info!(target: "audit", event = name, %user, %session);
        }
        Event::PasswordChangeFailed { user, from } => {
            tracing::warn!(target: "audit", event = name, %user, %from);
        }
        Event::ApplicationDisconnected { user, client_id } => {
            tracing::info!(target: "audit", event = name, %user, client_id);
        }
        Event::SigningKeyMoved { kid, alg, state } => {
            tracing::info!(target: "audit", event = name, kid, alg, state);
        }
        Event::CertificateIssued { domains, not_after } => {
            tracing::info!(target: "audit", event = name, domains, not_after);
        }
        Event::CertificateFailed { domains, reason } => {
            tracing::warn!(target: "audit", event = name, domains, reason);
        }
        Event::BackedUp { file } => {
            tracing::info!(target: "audit", event = name, file);
        }
        Event::Administered { command, subject } => {
            tracing::info!(target: "audit", event = name, command, subject);
        }
        Event::Applied { kind, subject } => {
            tracing::info!(target: "audit", event = name, command = "apply", subject, kind);
        }
        Event::Unlinked { user, provider } => {
            tracing::info!(target: "audit", event = name, command = "user unlink", subject = %user, provider);
        }
    }
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

    #[test]
    fn every_event_is_in_the_list_of_names() {
        let code = include_str!("audit.rs").split("#[cfg(test)]").next().unwrap();
        let marker = "} => \"";
        let mut recorded: Vec<_> = code
            .split(marker)
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .chain(["events_lost"])
            .collect();
        recorded.dedup();
        assert_eq!(recorded, NAMES);
        let guide = include_str!("../../README.md");
        for name in NAMES {
            assert!(guide.contains(&format!("`{name}`")), "{name}");
        }
    }
}
