//! One round of renewal: order a certificate, ask when to renew, or rest.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Plan;
use super::failure::Failure;
use super::folder::{Folder, State};
use super::order::Conversation;
use super::schedule::{Held, RenewalInfo, Step};
use crate::net::outbound::Client;
use crate::net::tls::Acceptor;
use crate::net::tls_error::TlsError;

/// The longest time for one whole order.
const ORDER_TIMEOUT: Duration = Duration::from_mins(40);
/// The longest time for the question when to renew.
const RENEWAL_INFO_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after the folder could not be read or written, in seconds. It is longer if the authority asks for that.
const PAUSE_AFTER_FAULT: u64 = 10 * 60;
/// The pause after a panic, in seconds.
const PAUSE_AFTER_PANIC: u64 = 3600;

/// Renews the certificate of an acceptor. A clone renews the same one.
#[derive(Clone)]
pub struct Renewal(Arc<Inner>);

struct Inner {
    plan: Plan,
    folder: Folder,
    client: Client,
    acceptor: Acceptor,
    /// The failure of the latest round, if the folder could not hold it.
    fault: Mutex<Option<Fault>>,
}

/// A failure that is kept in memory only, and the end of the pause after it.
#[derive(Clone)]
struct Fault {
    failure: Failure,
    paused_until: u64,
}

/// The result of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Round {
    /// A new certificate is in use, until this second.
    Issued {
        /// Its last second.
        not_after: u64,
    },
    /// An attempt failed.
    Failed(Failure),
    /// A certificate is needed, but the next attempt has to wait, because of this failure if there was one.
    Waited(Option<Failure>),
    /// There was nothing to do.
    Rested,
}

/// What a round has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundResult {
    /// The outcome.
    pub round: Round,
    /// When the next round is due, in seconds since the epoch.
    pub next_at: u64,
}

impl Round {
    fn and_next_at(self, next_at: u64) -> RoundResult {
        RoundResult { round: self, next_at }
    }
}

impl Renewal {
    /// Renews the certificate of `acceptor` in `folder`, by `client`.
    pub fn new(plan: Plan, folder: Folder, client: Client, acceptor: Acceptor) -> Self {
        Self(Arc::new(Inner {
            plan,
            folder,
            client,
            acceptor,
            fault: Mutex::default(),
        }))
    }

    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// Runs one round at `now`, in seconds since the epoch. `dice` is random. With `in_haste`, an order that waits after a failure is made at once.
    pub async fn round(&self, now: u64, dice: u64, in_haste: bool) -> RoundResult {
        if let Some(fault) = self.0.fault_at(now, in_haste) {
            return Round::Waited(Some(fault.failure)).and_next_at(fault.paused_until);
        }
        let round = self.0.round(now, dice, in_haste).await;
        round.unwrap_or_else(|failure| self.0.pause(now, failure))
    }

    /// The result of a round at `now` that ended in a panic with this message.
    pub fn broke(&self, now: u64, error: &str) -> RoundResult {
        let failure = Failure {
            wait: PAUSE_AFTER_PANIC,
            ..Failure::new(
                format!("the certificate was not looked after: {error}"),
                "this is a fault of the service, whose log says more: report it; the service tries again",
            )
        };
        let Inner { plan, folder, .. } = self.0.as_ref();
        if let Ok(mut state) = folder.state() {
            state.schedule.keep_to(&plan.line(), None);
            state.schedule.attempt(now, 0);
            state.schedule.fail(failure.clone(), now, 0);
            if let Err(error) = folder.save(&state) {
                tracing::error!(%error, "the failure is not noted");
            }
        }
        // The content of the folder may have caused the panic.
        self.0.pause(now, failure)
    }
}

impl Inner {
    /// The fault whose pause includes `now`. Another fault is forgotten: its pause is over, or the clock was set back.
    fn fault_at(&self, now: u64, in_haste: bool) -> Option<Fault> {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        *fault = fault.take().filter(|fault| {
            let longest_pause = PAUSE_AFTER_FAULT.max(fault.failure.wait);
            let left = fault.paused_until.saturating_sub(now);
            !in_haste && left > 0 && left <= longest_pause
        });
        fault.clone()
    }

    /// Begins a pause that is kept in memory only.
    fn pause(&self, now: u64, failure: Failure) -> RoundResult {
        let paused_until = now.saturating_add(PAUSE_AFTER_FAULT.max(failure.wait));
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(Fault {
            failure: failure.clone(),
            paused_until,
        });
        Round::Failed(failure).and_next_at(paused_until)
    }

    async fn round(&self, now: u64, dice: u64, in_haste: bool) -> Result<RoundResult, Failure> {
        let (held, unusable) = match self.folder.held(&self.plan) {
            Err(error @ TlsError::Unreadable { .. }) => return Err(error.into()),
            Err(error) => (None, Some(error)),
            Ok(held) => (held, None),
        };
        let mut state = self.folder.state()?;
        state.schedule.keep_to(&self.plan.line(), held.as_ref());
        if in_haste {
            state.schedule.not_before = 0;
        }
        match (state.schedule.step(held.as_ref(), now), held) {
            (Step::Wait(until), _) => Ok(Round::Waited(state.schedule.failure).and_next_at(until)),
            (Step::Rest(until), _) => Ok(Round::Rested.and_next_at(until)),
            (Step::Ask, held) => {
                // Saved before the question, so that a folder that cannot be written does not cause a question each round.
                state.schedule.answer(None, now);
                self.folder.save(&state)?;
                if let Some(held) = &held {
                    let answer = self.ask(&mut state, held, now).await;
                    state.schedule.answer(answer, now);
                    self.folder.save(&state)?;
                }
                Ok(Round::Rested.and_next_at(next(&state, held.as_ref(), now)))
            }
            (Step::Order(reason), held) => {
                if let Some(error) = unusable {
                    tracing::warn!(%error, "the certificate in place cannot be used");
                }
                self.order(state, held, reason, now, dice).await
            }
        }
    }

    /// Orders a certificate and puts it into use.
    async fn order(
        &self,
        mut state: State,
        held: Option<Held>,
        reason: &str,
        now: u64,
        dice: u64,
    ) -> Result<RoundResult, Failure> {
        let domains = self.plan.names();
        tracing::info!(%domains, directory = %self.plan.directory, "ordering a certificate: {reason}");
        state.schedule.attempt(now, dice);
        self.folder.save(&state)?;
        let begun = Instant::now();
        let attempt = tokio::time::timeout(ORDER_TIMEOUT, self.attempt(&mut state, held, now)).await;
        if let Err(failure) = attempt.unwrap_or_else(|_| Err(order_timeout(&self.plan))) {
            // Times are rounded down to seconds at the beginning and the end of the attempt.
            let ended = now.saturating_add(begun.elapsed().as_secs() + 2);
            state.schedule.fail(failure.clone(), ended, dice);
            return match self.folder.save(&state) {
                Ok(()) => Ok(Round::Failed(failure).and_next_at(state.schedule.not_before)),
                Err(_) => Ok(self.pause(ended, failure)),
            };
        }
        self.acceptor.reload(now)?;
        let Some(held) = self.folder.held(&self.plan)? else {
            return Err(Failure::new(
                "the certificate that came cannot be found",
                "let nothing else write to the folder certs of the data directory",
            ));
        };
        let answer = self.ask(&mut state, &held, now).await;
        state.schedule.succeed(&held, answer, now);
        self.folder.save(&state)?;
        let not_after = held.validity.not_after;
        Ok(Round::Issued { not_after }.and_next_at(next(&state, Some(&held), now)))
    }

    /// Orders and installs a new certificate.
    async fn attempt(&self, state: &mut State, held: Option<Held>, now: u64) -> Result<(), Failure> {
        let Some(challenges) = self.acceptor.challenges() else {
            return Err(Failure::new(
                "no challenge can be answered",
                "set tls.mode to acme",
            ));
        };
        self.folder.check_disk_space()?;
        let begun = Instant::now();
        let mut conversation = Conversation::new(&self.plan, &self.folder, state, &self.client, now);
        let replaced = held.and_then(|held| held.identifier);
        let issued = conversation.order(challenges, replaced).await?;
        let now = now.saturating_add(begun.elapsed().as_secs());
        let placed = self.folder.install(&self.plan, &issued.chain, &issued.key, now);
        placed.map_err(Failure::from)
    }

    /// When the authority wants the current certificate renewed. None if the authority does not answer, which is no failure.
    async fn ask(&self, state: &mut State, held: &Held, now: u64) -> Option<RenewalInfo> {
        let identifier = held.identifier.as_ref()?;
        let mut conversation = Conversation::new(&self.plan, &self.folder, state, &self.client, now);
        let asked = conversation.renewal_window(identifier);
        let answer = tokio::time::timeout(RENEWAL_INFO_TIMEOUT, asked).await.ok()?;
        if let Err(error) = &answer {
            tracing::debug!(%error, "the certificate authority does not say when to renew");
        }
        answer.ok()
    }
}

/// When the next round is due after one at `now`.
fn next(state: &State, held: Option<&Held>, now: u64) -> u64 {
    match state.schedule.step(held, now) {
        Step::Wait(until) | Step::Rest(until) => until,
        Step::Ask | Step::Order(_) => now,
    }
}

fn order_timeout(plan: &Plan) -> Failure {
    Failure::new(
        format!("{} did not finish the order within forty minutes", plan.directory),
        "nothing need be done unless it stays so: the service tries again",
    )
}
