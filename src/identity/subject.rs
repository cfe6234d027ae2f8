//! What every token says of its user.

use std::ops::Not;

use serde::{Deserialize, Serialize};

use super::User;

/// As much of a user as every refresh needs: what any token says, and whether there may be one. Each refresh family
/// has it too, which spares a refresh the user's own row, so the names are short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// [`User::account_id`].
    #[serde(rename = "acct")]
    pub account_id: String,
    /// [`User::email`].
    #[serde(default, rename = "mail", skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// [`User::phone_number`].
    #[serde(default, rename = "tel", skip_serializing_if = "Option::is_none")]
    pub phone_number: Option<String>,
    /// [`User::user_type`].
    #[serde(rename = "type")]
    pub user_type: String,
    /// [`User::venue_id`].
    #[serde(default, rename = "venue", skip_serializing_if = "Option::is_none")]
    pub venue_id: Option<String>,
    /// [`User::organization`].
    #[serde(rename = "org")]
    pub organization: String,
    /// [`User::source`].
    #[serde(rename = "src")]
    pub source: String,
    /// Whether the user may be given no tokens: not [`User::enabled`].
    #[serde(default, rename = "off", skip_serializing_if = "Not::not")]
    pub is_disabled: bool,
}

impl From<&User> for Subject {
    fn from(user: &User) -> Self {
        Self {
            account_id: user.account_id.clone(),
            email: user.email.clone(),
            phone_number: user.phone_number.clone(),
            user_type: user.user_type.clone(),
            venue_id: user.venue_id.clone(),
            organization: user.organization.clone(),
            source: user.source.clone(),
            is_disabled: !user.enabled,
        }
    }
}
