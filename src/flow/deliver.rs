//! The rows of a queue on their way out: which ones are due, what is in them, and what becomes of them. Mails and notices
//! of logouts have a queue each, so that neither delays the other.
//!
//! If several nodes use the store, a node claims a row before it sends it ([`claim`]).

use std::collections::HashMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use uuid::Uuid;

use super::Core;
use super::outbox::due;
use crate::clock::Timestamp;
use crate::mail::Message;
use crate::random::Random;
use crate::store::StoreError;
use crate::store::engine::{Snapshot, Tx};
use crate::store::record::Record;
use crate::store::records::{LogoutNotice, OutboxEntry};
use crate::store::table::{Key, KeyBytes, Table};
use crate::store::tables::{LOGOUT_NOTICES, OUTBOX};

/// The longest pause before the first repetition.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The longest pause before any other one.
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// How long a message is tried.
const LIFETIME: Duration = Duration::from_hours(24);
/// More attempts than fit into the lifetime. The bound holds while the clock is wrong.
const MAX_ATTEMPTS: u32 = 100;

/// The key of a row: the time of the next attempt, and the id of the message.
pub type OutboxKey = (u32, Uuid);

/// A record of a queue, which is sent after the transaction that caused it, and tried again if that fails.
pub trait Queued: Record + Clone + Send + Sync + 'static {
    const QUEUE: Table<OutboxKey, Self>;
    /// How long a claim lasts. It is longer than an attempt can take, so that the node has finished or has ended when
    /// another one tries.
    const CLAIM_PERIOD: Duration;

    /// When it was put into the queue.
    fn created_at(&self) -> Timestamp;

    /// How many attempts have failed.
    fn failed_attempts(&self) -> u32;

    /// The record after one more attempt that failed.
    #[must_use]
    fn after_failure(&self, error: String) -> Self;
}

impl Queued for OutboxEntry {
    const QUEUE: Table<OutboxKey, Self> = OUTBOX;
    /// Longer than all timeouts of [`crate::mail::connection`] together.
    const CLAIM_PERIOD: Duration = Duration::from_mins(20);

    fn created_at(&self) -> Timestamp {
        self.created_at
    }

    fn failed_attempts(&self) -> u32 {
        self.failed_attempts
    }

    fn after_failure(&self, error: String) -> Self {
        Self {
            failed_attempts: self.failed_attempts + 1,
            last_error: Some(error),
            ..self.clone()
        }
    }
}

impl Queued for LogoutNotice {
    const QUEUE: Table<OutboxKey, Self> = LOGOUT_NOTICES;
    /// Longer than the timeouts of a request and of a write together.
    const CLAIM_PERIOD: Duration = Duration::from_mins(2);

    fn created_at(&self) -> Timestamp {
        self.created_at
    }

    fn failed_attempts(&self) -> u32 {
        self.failed_attempts
    }

    fn after_failure(&self, _: String) -> Self {
        Self {
            failed_attempts: self.failed_attempts + 1,
            ..self.clone()
        }
    }
}

/// A row that is due.
#[derive(Debug)]
pub struct DueEntry<R> {
    pub key: OutboxKey,
    /// The row; `None` if it cannot be read.
    pub entry: Option<R>,
}

/// The rows that are due.
#[derive(Debug)]
pub struct DueEntries<R> {
    /// Those that are due now, in the order in which they became due.
    pub entries: Vec<DueEntry<R>>,
    /// When the next one is due, if none is due now.
    pub next: Option<Timestamp>,
}

/// At most `limit` rows that are due and that `is_wanted` selects. Unreadable rows are wanted. A row that is further ahead
/// than any pause was stored while the clock was wrong, and is due as well. In a shared store, no row is due while the
/// store has a problem, such as a wrong clock: other nodes send the rows.
pub async fn due_entries<R: Queued>(
    core: &Core,
    now: Timestamp,
    limit: usize,
    is_wanted: impl Fn(&R) -> bool,
) -> Result<DueEntries<R>, StoreError> {
    if core.store.is_shared() && core.store.problem().is_some() {
        return Ok(DueEntries {
            entries: Vec::new(),
            next: None,
        });
    }
    core.store
        .read(|snapshot| {
            let key_of = |second: u32| {
                let mut key = Vec::new();
                (second, Uuid::nil()).encode(&mut key);
                key
            };
            let far = due(now + 2 * LONGEST_PAUSE);
            let next = key_of(due(now).saturating_add(1));
            let mut entries = rows(
                snapshot,
                Bound::Unbounded,
                Bound::Excluded(&next),
                limit,
                &is_wanted,
            )?;
            let rest = limit.saturating_sub(entries.len());
            let far = key_of(far);
            entries.extend(rows(
                snapshot,
                Bound::Included(&far),
                Bound::Unbounded,
                rest,
                &is_wanted,
            )?);
            let first = rows::<R>(snapshot, Bound::Included(&next), Bound::Unbounded, 1, |_| true)?;
            Ok(DueEntries {
                entries,
                next: first.first().map(|row| Timestamp::from_seconds(row.key.0.into())),
            })
        })
        .await
}

/// At most `limit` rows after a key, in the order of their next attempts.
pub fn entries_after<R: Queued>(
    core: &Core,
    after: Option<OutboxKey>,
    limit: usize,
) -> Result<Vec<DueEntry<R>>, StoreError> {
    core.store.read_blocking(|snapshot| {
        let from = after.map(|key| {
            let mut bytes = Vec::new();
            key.encode(&mut bytes);
            bytes
        });
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        rows(snapshot, from, Bound::Unbounded, limit, |_| true)
    })
}

/// At most `limit` rows of a range that are wanted. One that cannot be read is wanted, and is without its entry, so that
/// the other rows are sent.
fn rows<R: Queued>(
    snapshot: &dyn Snapshot,
    from: Bound<&[u8]>,
    to: Bound<&[u8]>,
    limit: usize,
    is_wanted: impl Fn(&R) -> bool,
) -> Result<Vec<DueEntry<R>>, StoreError> {
    let mut rows = Vec::new();
    if limit == 0 {
        return Ok(rows);
    }
    snapshot.range(R::QUEUE.id(), from, to, &mut |key, stored| {
        let entry = R::decode(stored).ok();
        if let Some(key) = OutboxKey::decode(key).filter(|_| entry.as_ref().is_none_or(&is_wanted)) {
            rows.push(DueEntry { key, entry });
        }
        Ok(if rows.len() < limit {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })?;
    Ok(rows)
}

/// Claims a row for this node, which may then send it. `None` if another node was first.
///
/// The claim moves the row to the time at which another node may try. If this node ends before that, the row is late,
/// and not lost. The claim counts as no attempt. A store of one process needs no claims, and nothing is written.
///
/// Nodes whose clocks differ by more than a claim lasts may send a row twice.
pub async fn claim<R: Queued>(
    core: &Core,
    mut row: DueEntry<R>,
    now: Timestamp,
) -> Result<Option<DueEntry<R>>, StoreError> {
    let Some(entry) = row.entry.clone().filter(|_| core.store.is_shared()) else {
        return Ok(Some(row));
    };
    let (old, new) = (row.key, (due(now + R::CLAIM_PERIOD), row.key.1));
    row.key = new;
    let claimed = core
        .store
        .write("claim_row", move |tx| move_row(tx, &old, &new, &entry));
    Ok(claimed.await?.then_some(row))
}

/// Moves a row to another key. Returns false if the row is gone.
fn move_row<R: Queued>(
    tx: &mut dyn Tx,
    old: &OutboxKey,
    new: &OutboxKey,
    entry: &R,
) -> Result<bool, StoreError> {
    let was_there = R::QUEUE.remove(tx, old)?;
    if was_there {
        R::QUEUE.put(tx, new, entry)?;
    }
    Ok(was_there)
}

/// The message of a row; `None` if it cannot be opened or read.
pub fn message(core: &Core, id: Uuid, entry: &OutboxEntry) -> Option<Message> {
    let opened = core
        .sealer
        .open_text(&OutboxEntry::context(id), &entry.sealed)
        .ok()?;
    serde_json::from_str(&opened).ok()
}

/// What becomes of a row.
#[derive(Clone, Debug)]
pub enum OutboxUpdate<R> {
    /// It was sent, or is given up.
    Remove(OutboxKey),
    /// It is tried again.
    Retry(OutboxKey, OutboxKey, R),
}

impl<R: Queued> OutboxUpdate<R> {
    /// Stores it. Returns false if the row is gone.
    pub fn apply(&self, tx: &mut dyn Tx) -> Result<bool, StoreError> {
        match self {
            Self::Remove(key) => R::QUEUE.remove(tx, key),
            Self::Retry(old, new, entry) => move_row(tx, old, new, entry),
        }
    }
}

/// A later attempt, if the row is not too old for one.
pub fn retry<R: Queued>(
    random: &Random,
    key: OutboxKey,
    entry: &R,
    error: String,
    now: Timestamp,
) -> Option<OutboxUpdate<R>> {
    let pause = pause(random, entry.failed_attempts());
    let is_over = now.since(entry.created_at()) + pause > LIFETIME || entry.failed_attempts() >= MAX_ATTEMPTS;
    (!is_over).then(|| OutboxUpdate::Retry(key, (due(now + pause), key.1), entry.after_failure(error)))
}

/// The pause after so many failures: it doubles, up to the longest one. A random part of up to a half is taken off it, so
/// that mails that failed together do not come back together.
fn pause(random: &Random, failed_attempts: u32) -> Duration {
    let whole = FIRST_PAUSE
        .saturating_mul(2_u32.saturating_pow(failed_attempts))
        .min(LONGEST_PAUSE);
    let [byte] = random.bytes::<1>();
    whole.saturating_sub(whole / 2 * u32::from(byte) / 255)
}

/// Stores what becomes of rows, in one transaction.
pub async fn apply_updates<R: Queued>(core: &Core, updates: Vec<OutboxUpdate<R>>) -> Result<(), StoreError> {
    core.store
        .write("settle_outbox", move |tx| {
            for update in &updates {
                update.apply(tx)?;
            }
            Ok(())
        })
        .await
}

/// How many rows of a queue wait, and since when the oldest. Blocks.
pub fn queue(
    core: &Core,
    table: Table<OutboxKey, impl Queued>,
) -> Result<(u64, Option<Timestamp>), StoreError> {
    core.store.stream(|snapshot| {
        let (mut count, mut oldest) = (0, None);
        let (from, to) = (Bound::Unbounded, Bound::Unbounded);
        snapshot.range(table.id(), from, to, &mut |key, _| {
            count += 1;
            let since = OutboxKey::decode(key).map(|(_, id)| Timestamp::of_id(id));
            oldest = oldest.into_iter().chain(since).min();
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((count, oldest))
    })
}

/// The result of a message's first attempt: the server's answer, or the problem.
pub type DeliveryResult = Result<String, String>;

/// Who waits for the result of an attempt.
#[derive(Debug, Default)]
pub struct DeliveryWaiters(Mutex<HashMap<Uuid, oneshot::Sender<DeliveryResult>>>);

impl DeliveryWaiters {
    /// The result of the first attempt for this message.
    pub fn of(&self, id: Uuid) -> oneshot::Receiver<DeliveryResult> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, sender| !sender.is_closed());
        waiting.insert(id, sender);
        receiver
    }

    /// Tells a result. Returns whether a command waited for it.
    pub fn tell(&self, id: Uuid, result: impl FnOnce() -> DeliveryResult) -> bool {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        sender.is_some_and(|sender| sender.send(result()).is_ok())
    }
}

/// A result, if it comes in time.
pub async fn within(limit: Duration, result: oneshot::Receiver<DeliveryResult>) -> Option<DeliveryResult> {
    tokio::time::timeout(limit, result).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::tests::core;
    use crate::flow::outbox::DrawnMail;
    use crate::mail::Content;

    const START: Timestamp = Timestamp::from_seconds(1_800_000_000);
    const ALL: fn(&OutboxEntry) -> bool = |_| true;

    fn mail() -> Message {
        Message {
            to: "bob@example.com".to_owned(),
            languages: None,
            zone: None,
            client_id: None,
            content: Content::Test,
        }
    }

    async fn queue_mail(core: &Core, at: Timestamp) {
        let drawn = DrawnMail::draw(core, &mail(), at).unwrap();
        core.store.write("test", move |tx| drawn.put(tx)).await.unwrap();
    }

    async fn due_at(core: &Core, now: Timestamp) -> usize {
        due_entries(core, now, 100, ALL).await.unwrap().entries.len()
    }

    #[tokio::test]
    async fn a_mail_is_due_at_its_time_and_opened_by_its_id() {
        let core = core();
        queue_mail(&core, START + Duration::from_mins(1)).await;
        let early = due_entries(&core, START, 100, ALL).await.unwrap();
        assert!(early.entries.is_empty());
        assert_eq!(early.next, Some(START + Duration::from_mins(1)));
        let found = due_entries(&core, START + Duration::from_mins(1), 100, ALL)
            .await
            .unwrap()
            .entries
            .remove(0);
        let entry = found.entry.unwrap();
        assert_eq!(message(&core, found.key.1, &entry), Some(mail()));
        assert_eq!(message(&core, Uuid::nil(), &entry), None, "another row's message");
    }

    #[tokio::test]
    async fn a_clock_that_jumped_delays_no_mail_for_longer_than_a_pause() {
        let core = core();
        queue_mail(&core, START + Duration::from_hours(24 * 365)).await;
        assert_eq!(due_at(&core, START).await, 1);
        queue_mail(&core, START + Duration::from_mins(30)).await;
        assert_eq!(due_at(&core, START).await, 1);
    }

    #[tokio::test]
    async fn an_unreadable_row_holds_no_other_up() {
        let core = core();
        queue_mail(&core, START).await;
        let mut key = Vec::new();
        (due(START) - 1, Uuid::nil()).encode(&mut key);
        let put = core
            .store
            .write("test", move |tx| tx.put(OUTBOX.id(), &key, b"\xffjunk"));
        put.await.unwrap();
        let found = due_entries(&core, START, 100, ALL).await.unwrap().entries;
        assert_eq!(
            found.iter().map(|due| due.entry.is_some()).collect::<Vec<_>>(),
            [false, true]
        );
        apply_updates(
            &core,
            found
                .iter()
                .map(|due| OutboxUpdate::<OutboxEntry>::Remove(due.key))
                .collect(),
        )
        .await
        .unwrap();
        assert_eq!(queue(&core, OUTBOX).unwrap(), (0, None));
    }

    #[tokio::test]
    async fn pauses_double_from_half_a_minute_to_an_hour_and_end_after_a_day() {
        let core = core();
        queue_mail(&core, START).await;
        let mut now = START;
        let mut pauses = Vec::new();
        loop {
            let found = due_entries(&core, now, 1, ALL).await.unwrap().entries.remove(0);
            let entry = found.entry.unwrap();
            let Some(update) = retry(&core.random, found.key, &entry, "421".to_owned(), now) else {
                break;
            };
            apply_updates(&core, vec![update]).await.unwrap();
            let next = due_entries(&core, now, 1, ALL).await.unwrap().next.unwrap();
            pauses.push(next.since(now).as_secs());
            now = next;
        }
        assert!((15..=30).contains(&pauses[0]), "{pauses:?}");
        assert!((30..=60).contains(&pauses[1]), "{pauses:?}");
        assert!(
            pauses.iter().all(|pause| *pause <= 3600) && pauses.len() > 20,
            "{pauses:?}"
        );
        let tried = now.since(START);
        assert!(
            tried > Duration::from_hours(22) && tried <= Duration::from_hours(24),
            "{tried:?}"
        );
    }
}
