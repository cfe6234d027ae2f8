//! The notices of the account page.

use super::{AccountSection, Text};

/// The field for the present password.
pub(super) const CURRENT_PASSWORD: &str = "current-password";
/// The field for the new password.
pub(super) const NEW_PASSWORD: &str = "new-password";

/// The result of an action on the account page, shown at its top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountNotice {
    PasswordChanged,
    /// Sessions were ended.
    SignedOut,
    /// An application lost its access.
    Disconnected,
    LanguageChosen,
    /// The profile was saved.
    ProfileEdited,
    /// A mail was sent to a new address.
    EmailRequested,
    /// The typed text is no e-mail address.
    NoAddress,
    /// The operator does not allow this address, or not yet.
    AddressNotAllowed,
    /// The account was not deleted, because another name was typed.
    NotDeleted,
    FactorAdded,
    PasskeyAdded,
    /// A passkey has another name.
    FactorRenamed,
    /// The passkey was not accepted.
    PasskeyRefused,
    FactorRemoved,
    /// No factor was added, because the user has too many.
    TooManyFactors,
    /// The action required a new sign-in and was not done.
    ActionPending,
    /// The typed present password or code is wrong, or the passkey was not accepted.
    WrongPassword,
    /// The new password is too short.
    TooShort,
    /// The new password is too long.
    TooLong,
    /// The new password is easy to guess.
    Guessable,
    /// The new password is the present one.
    SamePassword,
    /// Too many passwords were wrong; this one was not checked.
    Throttled,
    /// The service is busy.
    Busy,
    /// The service is short of memory.
    OutOfMemory,
    /// The form was too old or came from elsewhere.
    Expired,
}

impl AccountNotice {
    /// Every notice, for tests and previews.
    pub const ALL: [Self; 25] = [
        Self::PasswordChanged,
        Self::SignedOut,
        Self::Disconnected,
        Self::LanguageChosen,
        Self::ProfileEdited,
        Self::EmailRequested,
        Self::NoAddress,
        Self::AddressNotAllowed,
        Self::NotDeleted,
        Self::FactorAdded,
        Self::PasskeyAdded,
        Self::FactorRenamed,
        Self::PasskeyRefused,
        Self::FactorRemoved,
        Self::TooManyFactors,
        Self::ActionPending,
        Self::WrongPassword,
        Self::TooShort,
        Self::TooLong,
        Self::Guessable,
        Self::SamePassword,
        Self::Throttled,
        Self::Busy,
        Self::OutOfMemory,
        Self::Expired,
    ];

    /// The name in the address, for a notice that is shown after a redirect; `None` for the direct answer to a form.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::PasswordChanged => Some("password"),
            Self::SignedOut => Some("sessions"),
            Self::Disconnected => Some("applications"),
            Self::LanguageChosen => Some("language"),
            Self::ProfileEdited => Some("profile"),
            Self::EmailRequested => Some("email"),
            Self::FactorAdded => Some("factor-added"),
            Self::PasskeyAdded => Some("passkey-added"),
            Self::FactorRenamed => Some("factor-renamed"),
            Self::FactorRemoved => Some("factor-removed"),
            Self::ActionPending => Some("nothing"),
            _ => None,
        }
    }

    /// The word that templates can compare.
    pub fn kind(self) -> &'static str {
        match self {
            Self::PasswordChanged => "password-changed",
            Self::SignedOut => "signed-out",
            Self::Disconnected => "disconnected",
            Self::LanguageChosen => "language-chosen",
            Self::ProfileEdited => "profile-edited",
            Self::EmailRequested => "email-requested",
            Self::NoAddress => "no-address",
            Self::AddressNotAllowed => "address-not-allowed",
            Self::NotDeleted => "not-deleted",
            Self::FactorAdded => "factor-added",
            Self::PasskeyAdded => "passkey-added",
            Self::FactorRenamed => "factor-renamed",
            Self::PasskeyRefused => "passkey-refused",
            Self::FactorRemoved => "factor-removed",
            Self::TooManyFactors => "too-many-factors",
            Self::ActionPending => "action-pending",
            Self::WrongPassword => "wrong-password",
            Self::TooShort => "too-short",
            Self::TooLong => "too-long",
            Self::Guessable => "guessable",
            Self::SamePassword => "same-password",
            Self::Throttled => "throttled",
            Self::Busy => "busy",
            Self::OutOfMemory => "out-of-memory",
            Self::Expired => "expired",
        }
    }

    /// The section that it is about, for tests and previews.
    pub(super) fn section(self) -> AccountSection {
        match self {
            Self::LanguageChosen
            | Self::ProfileEdited
            | Self::EmailRequested
            | Self::NoAddress
            | Self::AddressNotAllowed
            | Self::Expired => AccountSection::Profile,
            Self::NotDeleted => AccountSection::Data,
            Self::FactorAdded
            | Self::PasskeyAdded
            | Self::FactorRenamed
            | Self::PasskeyRefused
            | Self::FactorRemoved
            | Self::TooManyFactors => AccountSection::Security,
            Self::SignedOut | Self::ActionPending => AccountSection::Devices,
            Self::Disconnected => AccountSection::Applications,
            _ => AccountSection::Password,
        }
    }

    /// The field that has to be filled in again.
    pub(super) fn field(self) -> Option<&'static str> {
        match self {
            Self::WrongPassword => Some(CURRENT_PASSWORD),
            Self::TooShort | Self::TooLong | Self::Guessable | Self::SamePassword => Some(NEW_PASSWORD),
            _ => None,
        }
    }

    pub(super) fn text<'a>(self, text: &Text<'a>) -> &'a str {
        match self {
            Self::PasswordChanged => text.account_password_changed,
            Self::SignedOut => text.account_signed_out,
            Self::Disconnected => text.account_disconnected,
            Self::LanguageChosen => text.account_language_chosen,
            Self::ProfileEdited => text.account_profile_edited,
            Self::EmailRequested => text.account_email_requested,
            Self::NoAddress => text.problem_no_address,
            Self::AddressNotAllowed => text.account_email_not_allowed,
            Self::NotDeleted => text.problem_delete_confirm,
            Self::FactorAdded => text.security_added,
            Self::PasskeyAdded => text.passkey_added,
            Self::FactorRenamed => text.factor_renamed,
            Self::PasskeyRefused => text.problem_passkey_add,
            Self::FactorRemoved => text.security_removed,
            Self::TooManyFactors => text.problem_too_many_factors,
            Self::ActionPending => text.account_action_pending,
            Self::WrongPassword => text.problem_current_password,
            Self::TooShort => text.problem_too_short,
            Self::TooLong => text.problem_too_long,
            Self::Guessable => text.problem_guessable,
            Self::SamePassword => text.problem_same_password,
            Self::Throttled => text.problem_throttled,
            Self::Busy => text.problem_busy,
            Self::OutOfMemory => text.problem_out_of_memory,
            Self::Expired => text.problem_expired_account,
        }
    }
}
