//! Sends the mails of the outbox.
//!
//! A mail is sent after the commit that caused it. It stays in the outbox until the mail server has taken it, so that a
//! process that is killed in between sends it after its next start. Only if it is killed between the server's answer and
//! the removal of the row, the mail is sent twice. Of several nodes, one sends it ([`claim`]).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use uuid::Uuid;

use super::StartError;
use super::mail_drawing::{compose, draw};
use super::shutdown::stop_requested;
use crate::admin::mail::{TestedMail, test_message};
use crate::app::App;
use crate::config::mail::Mail as MailSettings;
use crate::config::{Settings, host_of};
use crate::flow::Core;
use crate::flow::deliver::{
    DueEntry, OutboxKey, OutboxUpdate, apply_updates, claim, due_entries, message, retry,
};
use crate::mail::catcher::CaughtMail;
use crate::mail::connection::{MailConnection, MailConnector};
use crate::mail::{Letter, Message, SendFault};
use crate::net::outbound::OutboundPolicy;
use crate::observe::audit;
use crate::observe::audit::Event;
use crate::store::StoreError;
use crate::store::records::OutboxEntry;
use crate::store::records::outbox_entry::Channel;
use crate::themes::folder::ThemeFolder;
use crate::themes::theme_set::Themes;

/// The most mails that are read at a time.
const BATCH: usize = 100;
/// The most connections to the mail server.
const MAX_CONNECTIONS: usize = 4;
/// How many mails one connection has to send before there is another.
const MAILS_PER_CONNECTION: usize = 8;
/// How long the sender waits at most. A clock that jumps delays mails for no longer.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long a mail may take on its way when the service stops.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends mails until the process is told to stop.
struct MailSender {
    app: Arc<App>,
    settings: Option<MailSettings>,
    /// `None` if mails are caught, or if none are sent.
    connector: Option<MailConnector>,
    host: String,
    stops: watch::Receiver<u32>,
    /// Updates of outbox rows that could not be stored yet.
    unstored_updates: Mutex<Vec<OutboxUpdate<OutboxEntry>>>,
}

pub struct RunningSender {
    what: &'static str,
    task: JoinHandle<()>,
}

impl RunningSender {
    /// A sender of these, as in `a mail`.
    pub(super) fn new(what: &'static str, task: JoinHandle<()>) -> Self {
        Self { what, task }
    }

    /// Waits for what is on its way.
    pub async fn finish(mut self) {
        if tokio::time::timeout(FINISH_TIMEOUT, &mut self.task)
            .await
            .is_err()
        {
            let what = self.what;
            tracing::warn!("{what} was on its way for too long: it is sent again after the next start");
            self.task.abort();
        }
    }
}

pub fn start(
    app: &Arc<App>,
    settings: Option<MailSettings>,
    outbound: &OutboundPolicy,
    stops: watch::Receiver<u32>,
) -> Result<RunningSender, StartError> {
    let host = host_of(&app.core.policy.issuer).unwrap_or_default();
    let connector = match &settings {
        Some(settings) => settings.connector(&host, outbound).map_err(StartError::new)?,
        None => None,
    };
    let sender = Arc::new(MailSender {
        app: Arc::clone(app),
        settings,
        connector,
        host,
        stops,
        unstored_updates: Mutex::default(),
    });
    Ok(RunningSender::new("a mail", tokio::spawn(sender.run())))
}

/// Mails that were due at the same time.
struct Batch {
    waiting: Mutex<VecDeque<DueEntry<OutboxEntry>>>,
    /// Why the server cannot be used. The rest of the batch is not tried then.
    problem: Mutex<Option<String>>,
}

impl MailSender {
    async fn run(self: Arc<Self>) {
        loop {
            let filled = self.app.core.outbox_filled.notified();
            tokio::pin!(filled);
            // From here on, a notification is not missed.
            filled.as_mut().enable();
            let wait = self.send_due().await.unwrap_or_else(|error| {
                // The store logs its own outage.
                if !error.is_outage() {
                    tracing::error!(%error, "mails were not sent");
                }
                LONGEST_WAIT
            });
            tokio::select! {
                biased;
                () = stop_requested(self.stops.clone(), 1) => return,
                () = filled => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    fn is_stopping(&self) -> bool {
        *self.stops.borrow() > 0
    }

    fn unstored_updates(&self) -> MutexGuard<'_, Vec<OutboxUpdate<OutboxEntry>>> {
        self.unstored_updates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores these updates, and those that could not be stored before. Updates that fail are tried again before the next
    /// mails are sent: otherwise a mail that was sent would be sent again.
    async fn store_updates(&self, updates: Vec<OutboxUpdate<OutboxEntry>>) -> Result<(), StoreError> {
        let mut updates = updates;
        updates.append(&mut self.unstored_updates());
        if updates.is_empty() {
            return Ok(());
        }
        let stored = apply_updates(&self.app.core, updates.clone()).await;
        if stored.is_err() {
            self.unstored_updates().append(&mut updates);
        }
        stored
    }

    /// Sends all mails that are due. Returns how long to wait for the next one.
    async fn send_due(self: &Arc<Self>) -> Result<Duration, StoreError> {
        let core = &self.app.core;
        while !self.is_stopping() {
            self.store_updates(Vec::new()).await?;
            let now = core.clock.now();
            let due = due_entries(core, now, BATCH, |_: &OutboxEntry| true).await?;
            if due.entries.is_empty() {
                let next = due.next.map_or(LONGEST_WAIT, |next| next.since(now));
                return Ok(next.clamp(Duration::from_secs(1), LONGEST_WAIT));
            }
            if !self.send_batch(due.entries).await? {
                break;
            }
        }
        Ok(LONGEST_WAIT)
    }

    /// Sends a batch over some connections. Returns whether nothing panicked.
    async fn send_batch(self: &Arc<Self>, entries: Vec<DueEntry<OutboxEntry>>) -> Result<bool, StoreError> {
        let connections = entries.len().div_ceil(MAILS_PER_CONNECTION).min(MAX_CONNECTIONS);
        let batch = Arc::new(Batch {
            waiting: Mutex::new(entries.into()),
            problem: Mutex::default(),
        });
        let mut workers = JoinSet::new();
        for _ in 0..connections {
            let (sender, batch) = (Arc::clone(self), Arc::clone(&batch));
            workers.spawn(async move { sender.send_in_turn(&batch).await });
        }
        let (mut result, mut is_sound) = (Ok(()), true);
        while let Some(ended) = workers.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => result = Err(error),
                Err(error) => {
                    tracing::error!(%error, "a mail was not sent");
                    is_sound = false;
                }
            }
        }
        result.map(|()| is_sound)
    }

    /// Sends mails of a batch over one connection, one after the other.
    async fn send_in_turn(&self, batch: &Batch) -> Result<(), StoreError> {
        let core = &self.app.core;
        let mut connection = None;
        let mut untried = Vec::new();
        while let Some(mut due) = self.next_of(batch) {
            let was_tried = batch.problem().is_none();
            if was_tried {
                match claim(core, due, core.clock.now()).await? {
                    Some(claimed) => due = claimed,
                    None => continue,
                }
            }
            let update = self.handle(due, batch, &mut connection).await;
            if was_tried {
                self.store_updates(vec![update]).await?;
            } else {
                untried.push(update);
            }
        }
        if let Some(connection) = connection {
            tokio::spawn(MailConnection::quit(connection));
        }
        self.store_updates(untried).await
    }

    fn next_of(&self, batch: &Batch) -> Option<DueEntry<OutboxEntry>> {
        if self.is_stopping() {
            return None;
        }
        batch
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    }

    /// Sends a mail and says what becomes of its row.
    async fn handle(
        &self,
        due: DueEntry<OutboxEntry>,
        batch: &Batch,
        connection: &mut Option<MailConnection>,
    ) -> OutboxUpdate<OutboxEntry> {
        let (core, key, id) = (&self.app.core, due.key, due.key.1);
        let is_decoy = due
            .entry
            .as_ref()
            .is_some_and(|entry| entry.channel == Channel::Decoy);
        if is_decoy {
            return OutboxUpdate::Remove(key);
        }
        let opened = due
            .entry
            .and_then(|entry| Some((message(core, id, &entry)?, entry)));
        let Some((message, entry)) = opened else {
            tracing::error!(mail = %id, "a mail in the outbox cannot be read, and is given up");
            let (kind, domain, reason) = ("unknown", "", "unreadable");
            audit::record(&Event::MailFailed {
                mail: id,
                kind,
                domain,
                reason,
            });
            return OutboxUpdate::Remove(key);
        };
        let sent = match batch.problem() {
            Some(problem) => Err(SendFault::Server(problem)),
            None => self.deliver(id, &entry, &message, connection).await,
        };
        match sent {
            Ok(answer) => {
                self.note_problem(None);
                let (kind, domain) = (message.content.kind(), domain_of(&message.to));
                audit::record(&Event::MailSent {
                    mail: id,
                    kind,
                    domain,
                });
                core.delivery_waiters.tell(id, || Ok(answer));
                OutboxUpdate::Remove(key)
            }
            Err(fault) => self.settle_failure(key, &entry, &message, &fault, batch),
        }
    }

    /// Tries again later, or gives up.
    fn settle_failure(
        &self,
        key: OutboxKey,
        entry: &OutboxEntry,
        message: &Message,
        fault: &SendFault,
        batch: &Batch,
    ) -> OutboxUpdate<OutboxEntry> {
        let (core, id) = (&self.app.core, key.1);
        let (kind, domain) = (message.content.kind(), domain_of(&message.to));
        let text = fault.to_string();
        match fault {
            SendFault::Server(problem) => {
                batch.note(problem);
                self.note_problem(Some(problem));
            }
            // The server answers.
            _ if fault.code().is_some() => self.note_problem(None),
            _ => {}
        }
        // The operator who tests the settings gets the answer now, and no mail later.
        let is_awaited = core.delivery_waiters.tell(id, || Err(text.clone()));
        let later = if fault.may_pass() && !is_awaited {
            retry(&core.random, key, entry, text.clone(), core.clock.now())
        } else {
            None
        };
        // The text of the server may name the recipient or the link. `mail list` shows it.
        let reason = fault.code().unwrap_or("no reply of the server");
        if let Some(later) = later {
            tracing::debug!(mail = %id, kind, domain, reason, "a mail waits for another attempt");
            return later;
        }
        tracing::warn!(mail = %id, kind, domain, reason, attempts = entry.failed_attempts + 1, "a mail is given up");
        let reason = match fault {
            SendFault::Refused(_) | SendFault::Deferred(_) => fault.code().unwrap_or("connection"),
            SendFault::Server(_) => "server",
            SendFault::Unsendable(_) => "address",
        };
        audit::record(&Event::MailFailed {
            mail: id,
            kind,
            domain,
            reason,
        });
        OutboxUpdate::Remove(key)
    }

    /// Hands a mail to the server, or to the catcher of the development server. Returns the answer.
    async fn deliver(
        &self,
        id: Uuid,
        entry: &OutboxEntry,
        message: &Message,
        connection: &mut Option<MailConnection>,
    ) -> Result<String, SendFault> {
        let Some(settings) = &self.settings else {
            return Err(SendFault::Server("mail.url is not set".to_owned()));
        };
        let (app, drawn_message) = (Arc::clone(&self.app), message.clone());
        let drawn = tokio::task::spawn_blocking(move || draw(&app.core, &app.themes, &drawn_message)).await;
        let mut drawn = drawn.map_err(|error| SendFault::Deferred(error.to_string()))?;
        for fault in std::mem::take(&mut drawn.faults) {
            tracing::warn!(place = %fault.place, "a template of a mail cannot be used: {}", fault.message);
        }
        let (subject, text, html) = (drawn.subject.clone(), drawn.text.clone(), drawn.html.clone());
        let letter = compose(settings, &self.host, id, entry.created_at, &message.to, drawn)
            .map_err(SendFault::Unsendable)?;
        if let Some(connector) = &self.connector {
            return send_over(connector, connection, &letter).await;
        }
        let Some(catcher) = &self.app.caught_mail else {
            return Err(SendFault::Server("mail.url is not set".to_owned()));
        };
        catcher.catch(CaughtMail {
            id,
            at: self.app.core.clock.now(),
            to: message.to.clone(),
            subject,
            text,
            html,
            source: String::from_utf8_lossy(letter.bytes()).into_owned(),
        });
        Ok("shown at /dev/mail".to_owned())
    }

    /// Keeps for readiness whether the mail server can be used, and logs when that changes.
    fn note_problem(&self, problem: Option<&str>) {
        let known = self.app.mail_problem.load_full();
        if known.as_deref().map(String::as_str) == problem {
            return;
        }
        if let Some(problem) = problem {
            tracing::warn!("mails wait: {problem}");
        } else {
            tracing::info!("mails are sent again");
        }
        self.app
            .mail_problem
            .store(problem.map(|problem| Arc::new(problem.to_owned())));
    }
}

impl Batch {
    fn problem(&self) -> Option<String> {
        self.problem
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note(&self, problem: &str) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(problem.to_owned());
    }
}

/// Sends a mail over the connection, or over a new one. If the server has ended a connection that was used before, and
/// cannot have the mail, it is sent over another one.
async fn send_over(
    connector: &MailConnector,
    connection: &mut Option<MailConnection>,
    letter: &Letter,
) -> Result<String, SendFault> {
    if let Some(mut used) = connection.take() {
        let sent = used.send(letter).await;
        if used.is_usable() {
            *connection = Some(used);
            return sent;
        }
        if !(matches!(sent, Err(SendFault::Deferred(_))) && used.cannot_have_mail()) {
            return sent;
        }
    }
    let mut fresh = connector.connect().await?;
    let sent = fresh.send(letter).await;
    if fresh.is_usable() {
        *connection = Some(fresh);
    }
    sent
}

/// The domain of an address. Events and the log do not name the person.
fn domain_of(address: &str) -> &str {
    address.rsplit_once('@').map_or("", |(_, domain)| domain)
}

/// Sends a test mail while no service runs: at once, and not by the outbox.
pub async fn send_test(core: &Core, settings: &Settings, to: &str) -> Result<TestedMail, String> {
    let host = host_of(&core.policy.issuer).unwrap_or_default();
    let mail = settings.mail.as_ref().ok_or("mail.url is not set")?;
    let connector = mail
        .connector(&host, &settings.outbound)
        .map_err(|error| error.to_string())?;
    let connector = connector.ok_or("mail.url is not set")?;
    let folder = ThemeFolder::new(&settings.theme_dir, &settings.data_dir);
    let themes = Themes::open("", &settings.theme, Some(folder));
    let (id, now) = (core.random.uuid_v7(core.clock.since_epoch()), core.clock.now());
    let drawn = draw(core, &themes, &test_message(to));
    let letter = compose(mail, &host, id, now, to, drawn)?;
    let sent = async {
        let mut connection = connector.connect().await?;
        let answer = connection.send(&letter).await?;
        connection.quit().await;
        Ok::<_, SendFault>(answer)
    };
    Ok(match sent.await {
        Ok(answer) => TestedMail {
            id,
            sent: true,
            answer,
        },
        Err(fault) => TestedMail {
            id,
            sent: false,
            answer: fault.to_string(),
        },
    })
}
