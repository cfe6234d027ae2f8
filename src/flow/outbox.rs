//! The outbox: a mail is stored in the transaction that causes it, and sent after it.

use uuid::Uuid;

use super::Core;
use crate::clock::Timestamp;
use crate::mail::Message;
use crate::store::StoreError;
use crate::store::engine::Tx;
use crate::store::records::OutboxEntry;
use crate::store::records::outbox_entry::Channel;
use crate::store::tables::OUTBOX;

/// The most mails of one second among which one is looked for.
const MOST_AT_A_TIME: usize = 1000;

/// A mail before its transaction, sealed.
#[derive(Clone, Debug)]
pub struct DrawnMail {
    key: (u32, Uuid),
    to: String,
    entry: OutboxEntry,
}

impl DrawnMail {
    /// Seals a mail that is due at once.
    pub fn draw(core: &Core, message: &Message, now: Timestamp) -> Result<Self, StoreError> {
        Self::on(Channel::Mail, core, message, now)
    }

    /// The same for a mail that nobody is to get.
    pub fn decoy(core: &Core, message: &Message, now: Timestamp) -> Result<Self, StoreError> {
        Self::on(Channel::Decoy, core, message, now)
    }

    fn on(channel: Channel, core: &Core, message: &Message, now: Timestamp) -> Result<Self, StoreError> {
        let id = core.random.uuid_v7(core.clock.since_epoch());
        let plain = serde_json::to_string(message).map_err(|error| StoreError::Unencodable {
            table: OUTBOX.id().name(),
            what: error.to_string(),
        })?;
        Ok(Self {
            key: (due(now), id),
            to: message.to.clone(),
            entry: OutboxEntry {
                channel,
                failed_attempts: 0,
                last_error: None,
                sealed: core
                    .sealer
                    .seal_text(&OutboxEntry::context(id), &plain, &core.random),
                created_at: now,
                session: None,
                to: None,
            },
        })
    }

    pub fn id(&self) -> Uuid {
        self.key.1
    }

    /// Stores it. After the commit, [`Core::outbox_filled`] is to be notified.
    pub fn put(&self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        OUTBOX.put(tx, &self.key, &self.entry)
    }

    /// Stores it to be sent at this time, unless [`DrawnMail::remove_waiting`] removes it.
    pub fn put_later(&self, tx: &mut dyn Tx, session: Uuid, at: Timestamp) -> Result<(), StoreError> {
        let entry = OutboxEntry {
            session: Some(session),
            to: Some(self.to.clone()),
            ..self.entry.clone()
        };
        OUTBOX.put(tx, &(due(at), self.key.1), &entry)
    }

    /// Removes it in the transaction that stored it, because nobody is to get it: so the transaction takes as long as that
    /// of a mail.
    pub fn remove(&self, tx: &mut dyn Tx) -> Result<(), StoreError> {
        OUTBOX.remove(tx, &self.key).map(drop)
    }

    /// Removes the mail of this session that waits for this time, if it has the same recipient as this one.
    pub fn remove_waiting(&self, tx: &mut dyn Tx, session: Uuid, at: Timestamp) -> Result<(), StoreError> {
        for (key, entry) in OUTBOX.scan_prefix(&*tx, &due(at), MOST_AT_A_TIME)? {
            if entry.session == Some(session) && entry.to.as_ref() == Some(&self.to) {
                OUTBOX.remove(tx, &key)?;
            }
        }
        Ok(())
    }
}

/// The time of an attempt, as a part of the key.
pub fn due(at: Timestamp) -> u32 {
    u32::try_from(at.seconds()).unwrap_or(u32::MAX)
}
