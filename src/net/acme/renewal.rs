//! One round of keeping the certificate: look, and order, ask or rest.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use instant_acme::{Account, CertificateIdentifier, Order};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::time::Instant;

use super::failure::Failure;
use super::folder::{Folder, SavedOrder};
use super::order::ASKED_AT_MOST;
use super::timetable::{Held, Progress, Reason, Step};
use super::transport::Transport;
use super::{Plan, order};
use crate::net::certificate::Pair;
use crate::net::outbound::Client;
use crate::net::tls::Acceptor;
use crate::net::tls_error::TlsError;

/// The longest that one order may take in all, however its parts are drawn out.
const LONGEST_ORDER: Duration = Duration::from_mins(5);
/// How much of that the authority has to check the challenges and to issue.
const PATIENCE: Duration = Duration::from_secs(270);
/// The longest that the question when to renew may take.
const LONGEST_QUESTION: Duration = Duration::from_secs(30);
/// When is looked again after the folder could not be read or written, in seconds; later when the authority asks for it.
const AFTER_FAULT: u64 = 10 * 60;
/// How long everything is left alone after a round that ended in a panic, in seconds.
const AFTER_PANIC: u64 = 3600;
/// How long an authority waits for an order that wants a certificate replaced as soon as it has issued it, in seconds.
const AFTER_NONSENSE: u64 = 12 * 3600;

/// Keeps the certificate of an acceptor. A clone keeps the same one.
#[derive(Clone)]
pub struct Renewal(Arc<Inner>);

struct Inner {
    plan: Plan,
    folder: Folder,
    client: Client,
    acceptor: Acceptor,
    /// What ended the latest round and could not be noted in the folder, and until when it is left alone.
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

/// What lies in the folder.
struct Standing {
    /// The certificate in place, if it can be used.
    held: Option<(Pair, Held)>,
    /// What is remembered of it and of orders.
    progress: Progress,
    /// Why the certificate in place cannot be used.
    unusable: Option<TlsError>,
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
        if let Some((failure, until)) = self.fault_at(now, in_haste) {
            return (Round::Waited(Some(failure)), until);
        }
        match tokio::time::timeout(LONGEST_ORDER, self.attempt(now, dice, in_haste)).await {
            Ok(Ok(done)) => done,
            Ok(Err(failure)) => self.pause(now, failure),
            Err(_) => self.note(now, LONGEST_ORDER, slow(&self.0.plan)).await,
        }
    }

    /// What a round at `now` comes to that ended in a panic, which says this.
    pub async fn broke(&self, now: u64, error: &str) -> (Round, u64) {
        let failure = Failure {
            wait: AFTER_PANIC,
            ..Failure::new(
                format!("the certificate was not looked after: {error}"),
                "this is a fault of the service, whose log says more: report it; the service tries again",
            )
        };
        let (_, noted) = self.note(now, Duration::ZERO, failure.clone()).await;
        // What lies in the folder may be what it fell over.
        let (round, until) = self.pause(now, failure);
        (round, until.max(noted))
    }

    /// The fault that is still left alone at `now`. It is forgotten when it is not, as when the clock was set back.
    fn fault_at(&self, now: u64, in_haste: bool) -> Option<(Failure, u64)> {
        let mut fault = self.0.fault.lock().unwrap_or_else(PoisonError::into_inner);
        *fault = fault.take().filter(|(failure, until)| {
            !in_haste && *until > now && *until - now <= AFTER_FAULT.max(failure.wait)
        });
        fault.clone()
    }

    /// Leaves everything alone for a while that is remembered in memory only.
    fn pause(&self, now: u64, failure: Failure) -> (Round, u64) {
        let until = now.saturating_add(AFTER_FAULT.max(failure.wait));
        *self.0.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some((failure.clone(), until));
        (Round::Failed(failure), until)
    }

    async fn attempt(&self, now: u64, dice: u64, in_haste: bool) -> Result<(Round, u64), Failure> {
        let Standing {
            held,
            mut progress,
            unusable,
        } = self.look(dice).await?;
        if in_haste {
            progress.not_before = 0;
        }
        let standing = held.as_ref().map(|(_, held)| held);
        match progress.step(standing, now) {
            Step::Wait(until) => Ok((Round::Waited(progress.failure), until)),
            Step::Rest(until) => Ok((Round::Rested, until)),
            Step::Ask => {
                let Some(standing) = standing else {
                    return Ok((Round::Rested, progress.renew_at));
                };
                // As if no answer came: what cannot be remembered is not asked, round after round.
                let progress = progress.told(None, standing, now, dice);
                self.remember(progress.clone()).await?;
                let answer = self.ask(held.as_ref(), now).await;
                let progress = progress.told(answer, standing, now, dice);
                let until = progress.ask_at.min(progress.renew_at);
                self.remember(progress).await?;
                Ok((Round::Rested, until))
            }
            Step::Order(reason) => {
                if let Some(error) = unusable {
                    tracing::warn!(%error, "the certificate in place cannot be used");
                }
                tracing::info!(
                    domains = %self.0.plan.names(),
                    directory = %self.0.plan.directory,
                    "ordering a certificate: {}",
                    describe(reason)
                );
                let progress = progress.attempting(now, dice);
                self.remember(progress.clone()).await?;
                let begun = Instant::now();
                match self.order(held.as_ref().map(|(pair, _)| pair), now).await {
                    Err(failure) => Ok(self.note(now, begun.elapsed(), failure).await),
                    Ok(()) => self.settle(progress, now, dice).await,
                }
            }
        }
    }

    /// What lies in the folder.
    async fn look(&self, dice: u64) -> Result<Standing, Failure> {
        let this = self.clone();
        blocking(move || {
            let Inner { plan, folder, .. } = this.0.as_ref();
            let (held, unusable) = match folder.held(plan) {
                Err(error @ TlsError::Unreadable { .. }) => return Err(error),
                Err(error) => (None, Some(error)),
                Ok(held) => (held, None),
            };
            let about = held.as_ref().map(|(_, held)| held);
            let progress = folder.progress()?.about(&plan.line(), about, dice);
            Ok(Standing {
                held,
                progress,
                unusable,
            })
        })
        .await
    }

    async fn remember(&self, progress: Progress) -> Result<(), Failure> {
        let folder = self.0.folder.clone();
        blocking(move || folder.keep_progress(&progress)).await
    }

    /// Remembers that the attempt at `now` failed after it `took` so long: waits begin when it ends.
    async fn note(&self, now: u64, took: Duration, failure: Failure) -> (Round, u64) {
        let took = took.as_secs();
        let (line, folder, noted) = (self.0.plan.line(), self.0.folder.clone(), failure.clone());
        let kept = blocking(move || {
            let progress = folder.progress()?;
            // The attempt was counted before it was made.
            let progress = if progress.order == line {
                progress
            } else {
                Progress::default().about(&line, None, 0).attempting(now, 0)
            };
            let progress = Progress {
                not_before: progress.not_before.saturating_add(took),
                ..progress
            };
            let progress = progress.failed(noted, now.saturating_add(took));
            folder.keep_progress(&progress)?;
            Ok(progress.not_before)
        });
        match kept.await {
            Ok(until) => (Round::Failed(failure), until),
            Err(_) => self.pause(now.saturating_add(took), failure),
        }
    }

    /// Orders a certificate and puts it in place. Begins afresh while the authority does not know its own nonces.
    async fn order(&self, replaced: Option<&Pair>, now: u64) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        let mut outcome = self.order_once(replaced, now, until).await;
        for _ in 1..ASKED_AT_MOST {
            match outcome {
                Err(failure) if failure.is_nonce => outcome = self.order_once(replaced, now, until).await,
                _ => break,
            }
        }
        outcome.map_err(|failure| Failure {
            is_nonce: false,
            ..failure
        })
    }

    async fn order_once(&self, replaced: Option<&Pair>, now: u64, until: Instant) -> Result<(), Failure> {
        let Inner {
            plan,
            folder,
            client,
            acceptor,
            ..
        } = self.0.as_ref();
        let begun = Instant::now();
        let Some(challenges) = acceptor.challenges() else {
            return Err(Failure::new(
                "no challenge can be answered",
                "set tls.mode to acme",
            ));
        };
        let room = folder.clone();
        blocking(move || room.prove_room()).await?;
        let transport = Transport::new(client.clone(), now);
        // Moments are whole seconds, cut off at the beginning and the end of the attempt.
        let patient = |failure: Failure| Failure {
            wait: match transport.wait() {
                0 => 0,
                wait => wait.saturating_add(2),
            },
            ..failure
        };
        let failed = |error: instant_acme::Error| patient(Failure::of(&error, plan));
        let opened = order::account(plan, folder, &transport).await.map_err(patient)?;
        let left_over = self.left_over(&opened.account, replaced, &transport, now).await;
        let (mut order, saved) = if let Some(left_over) = left_over.map_err(patient)? {
            left_over
        } else {
            let replaced = replaced.and_then(identifier);
            let begun = match order::begin(&opened.account, plan, replaced).await {
                Err(error)
                    if !opened.is_new && order::is_account_refused(&opened.account, plan, &error).await =>
                {
                    let opened = order::replace_account(plan, folder, &transport, &error).await;
                    order::begin(&opened.map_err(patient)?.account, plan, None).await
                }
                begun => begun,
            };
            let mut order = begun.map_err(failed)?;
            let proven = order::prove(&mut order, plan, challenges, &transport, until).await;
            proven.map_err(patient)?;
            let saved = order::to_keep(&order, plan, now)?;
            // Before anything is issued: what is lost then is ordered again, and the authority counts.
            folder.keep_order(&saved)?;
            (order, saved)
        };
        let chain = match order::collect(&mut order, &saved, plan, &transport, until).await {
            Ok(chain) => chain,
            Err(error) => {
                if order::is_end(&mut order, &error, &transport) {
                    folder.drop_order()?;
                }
                return Err(failed(error));
            }
        };
        let (this, now) = (self.clone(), now.saturating_add(begun.elapsed().as_secs()));
        blocking(move || {
            let Inner { plan, folder, .. } = this.0.as_ref();
            let placed = folder.place(plan, &chain, &saved.key, now);
            // The same certificate can be had again when there is room for it, and is no use when it does not fit.
            if matches!(placed, Err(TlsError::Unwritable { .. })) {
                return placed;
            }
            folder.drop_order().and(placed)
        })
        .await
    }

    /// The order that an earlier round had to leave, if a certificate comes of it that is not in place yet. One of which
    /// none comes is forgotten.
    async fn left_over(
        &self,
        account: &Account,
        held: Option<&Pair>,
        transport: &Transport,
        now: u64,
    ) -> Result<Option<(Order, SavedOrder)>, Failure> {
        let Inner { plan, folder, .. } = self.0.as_ref();
        let Some(saved) = folder.order()? else {
            return Ok(None);
        };
        let key = PrivateKeyDer::from_pem_slice(saved.key.as_bytes()).ok();
        let is_in_place = held.is_some_and(|held| key.is_some_and(|key| key == held.private_key));
        if !is_in_place {
            let resumed = order::resume(account, &saved, plan, transport, now).await;
            if let Some(order) = resumed.map_err(|error| Failure::of(&error, plan))? {
                tracing::info!(order = saved.url, "going on with the order that is open");
                return Ok(Some((order, saved)));
            }
        }
        folder.drop_order()?;
        Ok(None)
    }

    /// Takes the certificate that was put in place into use, and asks when to renew it.
    async fn settle(&self, progress: Progress, now: u64, dice: u64) -> Result<(Round, u64), Failure> {
        let acceptor = self.0.acceptor.clone();
        blocking(move || acceptor.reload(now)).await?;
        let Standing { held, .. } = self.look(dice).await?;
        let Some((_, standing)) = &held else {
            return Err(Failure::new(
                "the certificate that came cannot be found",
                "let nothing else write to the folder certs of the data directory",
            ));
        };
        let not_after = standing.validity.not_after;
        let progress = progress.with(standing, now, dice);
        self.remember(progress.clone()).await?;
        let answer = self.ask(held.as_ref(), now).await;
        let mut progress = progress.told(answer, standing, now, dice);
        if progress.renew_at <= now {
            // Whoever wants a certificate replaced that it has just issued gets no order every few minutes.
            progress.not_before = progress.not_before.max(now + AFTER_NONSENSE);
        }
        let until = progress.ask_at.min(progress.renew_at).max(progress.not_before);
        self.remember(progress).await?;
        Ok((Round::Issued { not_after }, until))
    }

    /// The authority's window for the renewal of the certificate in place, and for how many seconds it stands
    /// (RFC 9773); none when it does not say, which is no reason to worry.
    async fn ask(&self, held: Option<&(Pair, Held)>, now: u64) -> Option<((u64, u64), u64)> {
        let Inner {
            plan, folder, client, ..
        } = self.0.as_ref();
        let identifier = identifier(&held?.0)?;
        let transport = Transport::new(client.clone(), now);
        let asked = async {
            let opened = order::account(plan, folder, &transport).await?;
            let answer = opened.account.renewal_info(&identifier).await;
            answer.map_err(|error| Failure::of(&error, plan))
        };
        match tokio::time::timeout(LONGEST_QUESTION, asked).await.ok()? {
            Ok((information, lasts)) => {
                let window = information.suggested_window;
                let second = |moment: time::OffsetDateTime| u64::try_from(moment.unix_timestamp()).ok();
                Some(((second(window.start)?, second(window.end)?), lasts.as_secs()))
            }
            Err(error) => {
                tracing::debug!(%error, "the certificate authority does not say when to renew");
                None
            }
        }
    }
}

/// By what name an authority knows the certificate (RFC 9773 section 4.1), if it tells by which key it was signed.
fn identifier(pair: &Pair) -> Option<CertificateIdentifier<'static>> {
    let identifier = CertificateIdentifier::try_from(pair.chain.first()?).ok()?;
    Some(identifier.into_owned())
}

fn describe(reason: Reason) -> &'static str {
    match reason {
        Reason::Missing => "there is none that can be used",
        Reason::Changed => "the domains or the authority have changed",
        Reason::Due => "the one in use is due for renewal",
    }
}

fn slow(plan: &Plan) -> Failure {
    Failure::new(
        format!(
            "{} did not finish the order within four and a half minutes",
            plan.directory
        ),
        "nothing need be done unless it stays so: the service tries again",
    )
}

/// Runs what reads and writes files where it delays nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, TlsError> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(Failure::from),
        Err(error) => Err(Failure::new(
            format!("the folder of certificates was not looked at: {error}"),
            "restart the service",
        )),
    }
}
