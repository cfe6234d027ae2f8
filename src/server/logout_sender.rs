//! Sends the logout notices.
//!
//! A notice is sent after the commit that ended the session, and stays in the queue until the client has taken it. Some
//! clients are told at once, each of them one notice at a time. So a client that does not answer occupies one place.
//! If the process is killed between the client's answer and the removal of the notice, the client is told twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{Id, JoinSet};

use super::mail_sender::RunningSender;
use super::shutdown::stop_requested;
use crate::app::App;
use crate::flow::Core;
use crate::flow::deliver::{DueEntry, OutboxKey, OutboxUpdate, apply_updates, claim, due_entries};
use crate::flow::logout_notice::{NoticeFailure, send, settle};
use crate::store::StoreError;
use crate::store::records::LogoutNotice;

/// The most clients that are told at once.
const MAX_CLIENTS: usize = 16;
/// The most notices that are read at a time.
const BATCH: usize = 200;
/// The most notices of a client in one turn. Then it is another client's turn.
const NOTICES_PER_TURN: usize = 20;
/// How long the sender waits at most. A clock that jumps delays notices for no longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Sends notices until the process is told to stop.
struct LogoutSender {
    app: Arc<App>,
    stops: watch::Receiver<u32>,
}

/// The clients that are being told, each with its task. Clients of one host that registered themselves count as one.
#[derive(Default)]
struct Turns {
    tasks: JoinSet<Result<(), StoreError>>,
    places: HashMap<Id, String>,
}

/// A readable notice that is due.
type DueNotice = (OutboxKey, LogoutNotice);

pub fn start(app: &Arc<App>, stops: watch::Receiver<u32>) -> RunningSender {
    let sender = LogoutSender {
        app: Arc::clone(app),
        stops,
    };
    RunningSender::new("a logout notice", tokio::spawn(Arc::new(sender).run()))
}

impl LogoutSender {
    async fn run(self: Arc<Self>) {
        let mut turns = Turns::default();
        loop {
            let queued = self.core().logout_queued.notified();
            tokio::pin!(queued);
            // From here on, a notification is not missed.
            queued.as_mut().enable();
            let wait = self.begin_turns(&mut turns).await.unwrap_or_else(|error| {
                log(&error);
                LONGEST_WAIT
            });
            tokio::select! {
                biased;
                () = stop_requested(self.stops.clone(), 1) => break,
                Some(ended) = turns.tasks.join_next_with_id() => match ended {
                    Ok((task, Ok(()))) => {
                        turns.places.remove(&task);
                    }
                    Ok((task, Err(error))) => {
                        log(&error);
                        self.rest(&mut turns, task);
                    }
                    Err(error) => {
                        tracing::error!(%error, "a logout notice was not sent");
                        self.rest(&mut turns, error.id());
                    }
                },
                () = queued => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        while turns.tasks.join_next().await.is_some() {}
    }

    fn core(&self) -> &Core {
        &self.app.core
    }

    fn is_stopping(&self) -> bool {
        *self.stops.borrow() > 0
    }

    /// Begins turns of clients that have notices to be sent. Returns how long to wait for the next notice.
    async fn begin_turns(self: &Arc<Self>, turns: &mut Turns) -> Result<Duration, StoreError> {
        let core = self.core();
        while !self.is_stopping() && turns.places.len() < MAX_CLIENTS {
            let now = core.clock.now();
            let is_waiting = |notice: &LogoutNotice| {
                let mut told = turns.places.values();
                !told.any(|place| *place == notice.place())
            };
            let due = due_entries(core, now, BATCH, is_waiting).await?;
            if due.entries.is_empty() {
                let next = due.next.map_or(LONGEST_WAIT, |next| next.since(now));
                return Ok(next.clamp(Duration::from_secs(1), LONGEST_WAIT));
            }
            for (place, notices) in self.by_place(due.entries).await? {
                if turns.places.len() < MAX_CLIENTS {
                    let task = turns.tasks.spawn(Arc::clone(self).tell(notices));
                    turns.places.insert(task.id(), place);
                }
            }
        }
        Ok(LONGEST_WAIT)
    }

    /// The notices of a turn of each client. Clients come in the order of their first notices. Unreadable notices are
    /// removed.
    async fn by_place(
        &self,
        entries: Vec<DueEntry<LogoutNotice>>,
    ) -> Result<Vec<(String, Vec<DueNotice>)>, StoreError> {
        let mut places: Vec<(String, Vec<DueNotice>)> = Vec::new();
        for DueEntry { key, entry } in entries {
            let Some(notice) = entry else {
                tracing::error!(notice = %key.1, "a logout notice cannot be read, and is given up");
                let remove = OutboxUpdate::<LogoutNotice>::Remove(key);
                apply_updates(self.core(), vec![remove]).await?;
                continue;
            };
            let known = places.iter_mut().find(|(place, _)| *place == notice.place());
            match known {
                Some((_, notices)) if notices.len() < NOTICES_PER_TURN => notices.push((key, notice)),
                Some(_) => {}
                None => places.push((notice.place().to_owned(), vec![(key, notice)])),
            }
        }
        Ok(places)
    }

    /// Sends these notices, one after the other. After a failed attempt the others of the client wait for a later one.
    async fn tell(self: Arc<Self>, notices: Vec<DueNotice>) -> Result<(), StoreError> {
        let core = self.core();
        let mut failures: HashMap<String, NoticeFailure> = HashMap::new();
        for (key, entry) in notices {
            if self.is_stopping() {
                break;
            }
            let row = DueEntry {
                key,
                entry: Some(entry),
            };
            let Some(DueEntry {
                key,
                entry: Some(notice),
            }) = claim(core, row, core.clock.now()).await?
            else {
                continue;
            };
            let sent = match failures.get(&notice.client_id) {
                Some(failure) => Err(failure.clone()),
                None => send(core, &notice).await,
            };
            if let Some(failure) = sent.clone().err().filter(NoticeFailure::may_pass) {
                failures.insert(notice.client_id.clone(), failure);
            }
            settle(core, key, notice, sent).await?;
        }
        Ok(())
    }

    /// Leaves a client alone for a while after a failure of this service.
    fn rest(&self, turns: &mut Turns, task: Id) {
        let Some(client_id) = turns.places.remove(&task) else {
            return;
        };
        let stops = self.stops.clone();
        let resting = turns.tasks.spawn(async move {
            tokio::select! {
                () = stop_requested(stops, 1) => {}
                () = tokio::time::sleep(LONGEST_WAIT) => {}
            }
            Ok(())
        });
        turns.places.insert(resting.id(), client_id);
    }
}

/// The store logs its own outage.
fn log(error: &StoreError) {
    if !error.is_outage() {
        tracing::error!(%error, "logout notices were not sent");
    }
}
