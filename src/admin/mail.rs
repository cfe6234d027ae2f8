//! The outbox: what waits in it, and a mail that tests the way.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::page::Page;
use super::{Admin, AdminResult};
use crate::clock::Timestamp;
use crate::flow::deliver::{DueEntry, OutboxKey, entries_after, message, within};
use crate::flow::outbox::DrawnMail;
use crate::mail::{Content, Message};
use crate::oauth::FaultCode;
use crate::store::StoreError;
use crate::store::records::OutboxEntry;
use crate::store::records::outbox_entry::Channel;

/// The most mails of one page.
const PAGE_ROWS: usize = 100;
/// How long the result of a test is waited for.
const TEST_TIMEOUT: Duration = Duration::from_secs(100);

/// A mail that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedMail {
    /// Its id, the first part of its `Message-ID`.
    pub id: Uuid,
    /// What it is for; `None` if it cannot be read.
    pub kind: Option<String>,
    /// The address of the recipient.
    pub to: Option<String>,
    /// How many attempts have failed.
    pub failed_attempts: u32,
    /// When it is tried next.
    pub next_attempt_at: Timestamp,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
    /// When it was caused.
    pub created_at: Timestamp,
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestedMail {
    /// The id of the mail.
    pub id: Uuid,
    /// Whether the server took it.
    pub sent: bool,
    /// The answer of the server, or the problem.
    pub answer: String,
}

/// The mails that wait, in the order of their next attempts.
pub fn page(admin: Admin<'_>, after: Option<OutboxKey>) -> Result<Page<QueuedMail, OutboxKey>, StoreError> {
    let rows = entries_after(admin.core, after, PAGE_ROWS)?;
    let next = rows.last().map(|row| row.key).filter(|_| rows.len() == PAGE_ROWS);
    let is_mail = |row: &DueEntry<OutboxEntry>| {
        row.entry
            .as_ref()
            .is_none_or(|entry| entry.channel == Channel::Mail)
    };
    let records = rows
        .into_iter()
        .filter(is_mail)
        .map(|row| view(admin, row))
        .collect();
    Ok(Page { records, next })
}

fn view(admin: Admin<'_>, row: DueEntry<OutboxEntry>) -> QueuedMail {
    let (second, id) = row.key;
    let opened = row
        .entry
        .as_ref()
        .and_then(|entry| message(admin.core, id, entry));
    QueuedMail {
        id,
        kind: opened.as_ref().map(|message| message.content.kind().to_owned()),
        to: opened.map(|message| message.to),
        failed_attempts: row.entry.as_ref().map_or(0, |entry| entry.failed_attempts),
        next_attempt_at: Timestamp::from_seconds(second.into()),
        last_error: row.entry.and_then(|entry| entry.last_error),
        created_at: Timestamp::of_id(id),
    }
}

/// The mail of a test.
pub fn test_message(to: &str) -> Message {
    Message {
        to: to.to_owned(),
        languages: None,
        client_id: None,
        content: Content::Test,
    }
}

/// Queues a mail and waits for the result of its first attempt, which is the only one.
pub async fn test(admin: Admin<'_>, to: String) -> AdminResult<TestedMail> {
    let core = admin.core;
    if !core.policy.sends_mail {
        return Err(FaultCode::Invalid
            .at([], "mail.url is not set, so the service sends no mail")
            .into());
    }
    let drawn = DrawnMail::draw(core, &test_message(&to), core.clock.now())?;
    let id = drawn.id();
    let result = core.delivery_waiters.of(id);
    core.store
        .write("queue_test_mail", move |tx| drawn.put(tx))
        .await?;
    core.outbox_filled.notify_one();
    admin.record("mail test", &id.to_string());
    let (sent, answer) = match within(TEST_TIMEOUT, result).await {
        Some(Ok(answer)) => (true, answer),
        Some(Err(problem)) => (false, problem),
        None => (false, "there is no result yet, and the mail waits".to_owned()),
    };
    Ok(TestedMail { id, sent, answer })
}
