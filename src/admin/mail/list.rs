use std::io::Write;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::Admin;
use crate::admin::operation::Done;
use crate::admin::stream::{RecordStream, StreamError, StreamOperation, write_pages};
use crate::clock::Timestamp;
use crate::flow::deliver::{DueEntry, OutboxKey, entries_after, message};
use crate::store::StoreError;
use crate::store::page::Page;
use crate::store::records::OutboxEntry;
use crate::store::records::outbox_entry::Channel;

/// The most mails of one page.
const PAGE_ROWS: usize = 100;

/// A request for the mails that wait, in the order of their next attempts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListMails;

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

impl StreamOperation for ListMails {
    const NAME: &'static str = "mail list";

    fn write(self, admin: Admin<'_>, sink: &mut dyn Write) -> Result<Done<()>, StreamError> {
        write_pages(None, u64::MAX, sink, |after| page(admin, after))
    }
}

impl RecordStream for ListMails {
    type Record = QueuedMail;
}

fn page(admin: Admin<'_>, after: Option<OutboxKey>) -> Result<Page<QueuedMail, OutboxKey>, StoreError> {
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
