//! A mail before it is drawn: the recipient, the language, and what it says.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// A mail to one recipient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The address of the recipient.
    pub to: String,
    /// The preferred languages, as in `Accept-Language` or `ui_locales`; none for the default language.
    pub languages: Option<String>,
    /// The time zone of the recipient, as in `Europe/Brussels`; none if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The client whose theme the mail has; none for the theme of the service.
    pub client_id: Option<String>,
    /// What it says.
    pub content: Content,
}

/// Where something was done: the browser and its address, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The names of browser and system.
    pub device: Option<String>,
    pub address: Option<IpAddr>,
}

/// A factor in a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoticedFactor {
    /// `passkey`, `totp` or `recovery_codes`.
    pub kind: String,
    /// The name that the user gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What a mail says. Links are made of the issuer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// The operator tests the settings.
    Test,
    /// A person asked for an account: the link or the code proves the address.
    SignUp {
        /// Leads to the page that creates the account.
        link: String,
        /// Six digits for the page on which the person asked.
        code: String,
        /// When the link expires; unknown in a mail that waits since before this was stored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<Timestamp>,
    },
    /// A person asked for an account with an address that has one.
    AlreadySignedUp {
        /// Leads to the sign-in page.
        link: String,
    },
    /// The operator invites a person.
    Invitation {
        /// Leads to the page that creates the account.
        link: String,
        /// When the link expires.
        expires_at: Timestamp,
    },
    /// A person forgot the password, or the operator reset it.
    ResetPassword {
        /// Leads to the page that sets a new password.
        link: String,
        /// Six digits for the page on which the person asked; none if the operator asked.
        code: Option<String>,
        /// When the link expires.
        expires_at: Timestamp,
    },
    /// A person asked to sign in without a password.
    SignIn {
        /// Signs in, in the browser in which the person asked.
        link: String,
        /// Six digits for the page on which the person asked.
        code: String,
        /// When the link expires; unknown in a mail that waits since before this was stored.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<Timestamp>,
    },
    /// A person wants to use this address from now on.
    VerifyAddress {
        /// The name of the user who typed the address; none if the user has no name that says nothing more.
        account_id: Option<String>,
        /// Confirms the address.
        link: String,
    },
    /// A browser that was not used before signed in.
    NewDevice {
        /// The names of browser and system, if they are known.
        device: Option<String>,
        /// The address of the browser.
        address: Option<IpAddr>,
        /// When it signed in.
        at: Timestamp,
        /// Leads to the page that secures the account.
        link: String,
    },
    PasswordChanged {
        at: Timestamp,
        /// None in a mail that waits since before this was stored, as in the two below.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Origin>,
        /// Leads to the page that secures the account.
        link: String,
    },
    /// A factor was added, or the recovery codes were replaced.
    FactorAdded {
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Origin>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        factors: Vec<NoticedFactor>,
        /// Leads to the page that secures the account.
        link: String,
    },
    FactorRemoved {
        at: Timestamp,
        /// None if the operator removed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Origin>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        factors: Vec<NoticedFactor>,
        /// Leads to the page that secures the account.
        link: String,
    },
    /// The second step ends in a day, because the user has none of the factors any more.
    FactorsEnd {
        at: Timestamp,
        /// Leads to the page that secures the account; none at an address that does not secure it.
        link: Option<String>,
    },
    /// The address was changed. This mail goes to the previous one.
    AddressChanged {
        /// The new address.
        to: String,
        at: Timestamp,
        /// Leads to the page that secures the account; none if the link of such a mail set the address back.
        link: Option<String>,
    },
}

impl Content {
    /// What the mail is for, in a word: the name of its templates.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::SignUp { .. } => "sign-up",
            Self::AlreadySignedUp { .. } => "already-signed-up",
            Self::Invitation { .. } => "invitation",
            Self::ResetPassword { .. } => "reset-password",
            Self::SignIn { .. } => "sign-in",
            Self::VerifyAddress { .. } => "verify-address",
            Self::NewDevice { .. } => "new-device",
            Self::PasswordChanged { .. } => "password-changed",
            Self::FactorAdded { .. } => "factor-added",
            Self::FactorRemoved { .. } => "factor-removed",
            Self::FactorsEnd { .. } => "factors-end",
            Self::AddressChanged { .. } => "address-changed",
        }
    }
}
