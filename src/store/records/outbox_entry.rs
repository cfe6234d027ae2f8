//! What waits to be sent to another system.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::store::record::Record;

/// A message that waits in the outbox, stored under the time of its next attempt in seconds and its time-ordered id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxEntry {
    /// How it is sent.
    pub channel: Channel,
    /// How many attempts have failed.
    pub failed_attempts: u32,
    /// Why the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The message, sealed with [`OutboxEntry::context`], base64url: it has links and codes in it.
    pub sealed: String,
    /// When it was put into the outbox.
    pub created_at: Timestamp,
    /// The session whose sign-in it tells, if another notice of the session may replace it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Uuid>,
    /// The address of the recipient, if the entry has a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    /// A [`crate::mail::Message`], by SMTP.
    Mail,
    /// Not at all: nobody is to get the message. It is stored so that the answer takes equally long.
    Decoy,
}

impl OutboxEntry {
    /// The context that the message of an entry is sealed with.
    pub fn context(id: Uuid) -> String {
        format!("outbox/{id}")
    }
}

impl Record for OutboxEntry {}
