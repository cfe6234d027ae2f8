//! One round of keeping the certificate: look, and order, ask or rest.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Plan;
use super::failure::Failure;
use super::folder::{Folder, State};
use super::order::Conversation;
use super::schedule::{Held, Step, Window};
use crate::net::outbound::Client;
use crate::net::tls::Acceptor;
use crate::net::tls_error::TlsError;

/// The longest that one order may take in all, however its parts are drawn out.
const ORDER_TIMEOUT: Duration = Duration::from_mins(40);
/// The longest that the question when to renew may take.
const RENEWAL_INFO_TIMEOUT: Duration = Duration::from_secs(30);
/// When is looked again after the folder could not be read or written, in seconds; later when the authority asks for it.
const AFTER_FAULT: u64 = 10 * 60;
/// How long everything is left alone after a round that ended in a panic, in seconds.
const AFTER_PANIC: u64 = 3600;

/// Keeps the certificate of an acceptor. A clone keeps the same one.
#[derive(Clone)]
pub struct Renewal(Arc<Inner>);

struct Inner {
    plan: Plan,
    folder: Folder,
    client: Client,
    acceptor: Acceptor,
    /// What ended the latest round and could not be noted in the folder, and until when everything is left alone.
    fault: Mutex<Option<(Failure, u64)>>,
}

/// What a round came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Round {
    /// A new certificate is in use, until this second.
    Issued {
        /// Its last second.
        not_after: u64,
    },
    /// An attempt failed.
    Failed(Failure),
    /// A certificate is wanted, or its folder is in disorder, and that has to wait; for this failure, if for one.
    Waited(Option<Failure>),
    /// There was nothing to do.
    Rested,
}

impl Renewal {
    /// Keeps what `acceptor` shows, in `folder`, by way of `client`.
    pub fn new(plan: Plan, folder: Folder, client: Client, acceptor: Acceptor) -> Self {
        Self(Arc::new(Inner {
            plan,
            folder,
            client,
            acceptor,
            fault: Mutex::default(),
        }))
    }

    /// What is kept.
    pub fn plan(&self) -> &Plan {
        &self.0.plan
    }

    /// One round at `now`, and when the next is due, both in seconds since the epoch. `dice` is random. When `in_haste`
    /// an order that waits after a failure is made at once.
    pub async fn round(&self, now: u64, dice: u64, in_haste: bool) -> (Round, u64) {
        if let Some((failure, until)) = self.0.fault_at(now, in_haste) {
            return (Round::Waited(Some(failure)), until);
        }
        let round = self.0.round(now, dice, in_haste).await;
        round.unwrap_or_else(|failure| self.0.pause(now, failure))
    }

    /// What a round at `now` comes to that ended in a panic, which says this.
    pub fn broke(&self, now: u64, error: &str) -> (Round, u64) {
        let failure = Failure {
            wait: AFTER_PANIC,
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
            if let Err(error) = folder.keep(&state) {
                tracing::error!(%error, "the failure is not noted");
            }
        }
        // What lies in the folder may be what it fell over.
        self.0.pause(now, failure)
    }
}

impl Inner {
    /// The fault that is still left alone at `now`. It is forgotten when it is not, as when the clock was set back.
    fn fault_at(&self, now: u64, in_haste: bool) -> Option<(Failure, u64)> {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        *fault = fault.take().filter(|(failure, until)| {
            !in_haste && *until > now && *until - now <= AFTER_FAULT.max(failure.wait)
        });
        fault.clone()
    }

    /// Leaves everything alone for a while that is remembered in memory only.
    fn pause(&self, now: u64, failure: Failure) -> (Round, u64) {
        let until = now.saturating_add(AFTER_FAULT.max(failure.wait));
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some((failure.clone(), until));
        (Round::Failed(failure), until)
    }

    async fn round(&self, now: u64, dice: u64, in_haste: bool) -> Result<(Round, u64), Failure> {
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
            (Step::Wait(until), _) => Ok((Round::Waited(state.schedule.failure), until)),
            (Step::Rest(until), _) => Ok((Round::Rested, until)),
            (Step::Ask, held) => {
                // As if no answer came: what cannot be remembered is not asked, round after round.
                state.schedule.answer(None, now);
                self.folder.keep(&state)?;
                if let Some(held) = &held {
                    let answer = self.ask(&mut state, held, now).await;
                    state.schedule.answer(answer, now);
                    self.folder.keep(&state)?;
                }
                Ok((Round::Rested, next(&state, held.as_ref(), now)))
            }
            (Step::Order(reason), held) => {
                if let Some(error) = unusable {
                    tracing::warn!(%error, "the certificate in place cannot be used");
                }
                self.order(state, held, reason, (now, dice)).await
            }
        }
    }

    /// Orders a certificate and takes it into use.
    async fn order(
        &self,
        mut state: State,
        held: Option<Held>,
        reason: &str,
        (now, dice): (u64, u64),
    ) -> Result<(Round, u64), Failure> {
        let domains = self.plan.names();
        tracing::info!(%domains, directory = %self.plan.directory, "ordering a certificate: {reason}");
        state.schedule.attempt(now, dice);
        self.folder.keep(&state)?;
        let begun = Instant::now();
        let attempt = tokio::time::timeout(ORDER_TIMEOUT, self.attempt(&mut state, held, now)).await;
        if let Err(failure) = attempt.unwrap_or_else(|_| Err(slow(&self.plan))) {
            // Moments are whole seconds, cut off at the beginning and the end of the attempt.
            let ended = now.saturating_add(begun.elapsed().as_secs() + 2);
            state.schedule.fail(failure.clone(), ended, dice);
            return match self.folder.keep(&state) {
                Ok(()) => Ok((Round::Failed(failure), state.schedule.not_before)),
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
        self.folder.keep(&state)?;
        let not_after = held.validity.not_after;
        Ok((Round::Issued { not_after }, next(&state, Some(&held), now)))
    }

    /// Puts a new certificate in place.
    async fn attempt(&self, state: &mut State, held: Option<Held>, now: u64) -> Result<(), Failure> {
        let Some(challenges) = self.acceptor.challenges() else {
            return Err(Failure::new(
                "no challenge can be answered",
                "set tls.mode to acme",
            ));
        };
        self.folder.prove_room()?;
        let begun = Instant::now();
        let mut conversation = Conversation::new(&self.plan, &self.folder, state, &self.client, now);
        let replaced = held.and_then(|held| held.identifier);
        let issued = conversation.order(challenges, replaced).await?;
        let now = now.saturating_add(begun.elapsed().as_secs());
        let placed = self.folder.place(&self.plan, &issued.chain, &issued.key, now);
        placed.map_err(Failure::from)
    }

    /// The authority's window for the renewal of the certificate in place, and for how many seconds it stands; none
    /// when it does not say, which is no reason to worry.
    async fn ask(&self, state: &mut State, held: &Held, now: u64) -> Option<(Window, u64)> {
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

fn slow(plan: &Plan) -> Failure {
    Failure::new(
        format!("{} did not finish the order within forty minutes", plan.directory),
        "nothing need be done unless it stays so: the service tries again",
    )
}
