//! Renews the ACME certificate of `serve`, and reports each round to the log, the audit events, the metrics, the
//! service manager and `/readyz`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::app::App;
use crate::clock::Timestamp;
use crate::net::acme::Plan;
use crate::net::acme::failure::Failure;
use crate::net::acme::renewal::{Renewal, Round, RoundResult};
use crate::net::notify;
use crate::net::tls::Acceptor;
use crate::observe::audit;
use crate::observe::audit::Event;

/// The longest pause between rounds. Clocks jump and machines sleep, so a longer one could miss a due round.
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// The shortest pause between rounds.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// The least time between two requested orders.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_secs(30);

/// Marks the service as unreachable if it has no certificate. Call it before `/readyz` is answered.
pub fn report_missing_certificate(app: &App, plan: &Plan, acceptor: &Acceptor) {
    if acceptor.has_certificate() {
        return;
    }
    let why = format!("there is no certificate for {} yet", plan.names());
    tracing::warn!(
        directory = %plan.directory,
        "{why}: one is ordered, and until it is here only the certificate authority is answered"
    );
    set_unreachable(app, why);
}

/// Renews the certificate until the task is aborted. `order_request` starts an order at once that would wait after a
/// failure.
pub async fn renew(app: Arc<App>, renewal: Renewal, acceptor: Acceptor, order_request: Arc<Notify>) {
    let names = renewal.plan().names();
    let mut is_requested = false;
    let mut last_request: Option<Timestamp> = None;
    loop {
        let now = app.core.clock.now();
        let jitter = u64::from_be_bytes(app.core.random.bytes());
        let task_renewal = renewal.clone();
        // In a task of its own, so that a panic ends only this round.
        let task = async move { task_renewal.round(now.seconds(), jitter, is_requested).await };
        let finished = tokio::spawn(task).await;
        if is_requested {
            last_request = Some(now);
        }
        let RoundResult { round, next_at } = match finished {
            Ok(result) => result,
            Err(error) => renewal.broke(now.seconds(), &error.to_string()),
        };
        let next_at = Timestamp::from_seconds(next_at);
        report(&app, &names, &acceptor, &round, next_at);
        let is_order_waiting = matches!(round, Round::Failed(_) | Round::Waited(_));
        let pause = next_at.since(app.core.clock.now()).clamp(MIN_PAUSE, MAX_PAUSE);
        is_requested = tokio::select! {
            () = tokio::time::sleep(pause) => false,
            () = order_request.notified() => {
                let now = app.core.clock.now();
                let is_soon = last_request
                    .is_some_and(|before| (before..before + MIN_REQUEST_INTERVAL).contains(&now));
                if is_order_waiting && is_soon {
                    tracing::info!(
                        domains = names,
                        next_attempt = next_at.rfc3339(),
                        "no certificate is ordered at once so soon after the last time: the next order has to wait"
                    );
                } else if is_order_waiting {
                    tracing::info!(domains = names, "not waiting any longer with the next order");
                }
                !is_soon
            }
        };
    }
}

fn report(app: &App, names: &str, acceptor: &Acceptor, round: &Round, next_at: Timestamp) {
    let next = next_at.rfc3339();
    match round {
        Round::Issued { not_after } => {
            let expires = Timestamp::from_seconds(*not_after).rfc3339();
            tracing::info!(domains = names, expires, "new certificate in use");
            app.metrics.count_certificate_order(true);
            audit::record(&Event::CertificateIssued {
                domains: names,
                not_after: *not_after,
            });
        }
        Round::Failed(failure) => {
            let Failure { message, remedy, .. } = failure;
            tracing::error!(error = message, remedy, next_attempt = next, "no new certificate");
            app.metrics.count_certificate_order(false);
            audit::record(&Event::CertificateFailed {
                domains: names,
                reason: message,
            });
            if let Some(why) = missing_certificate(app, names, acceptor, Some(failure), &next) {
                set_unreachable(app, why);
            }
        }
        Round::Waited(failure) => {
            if let Some(why) = missing_certificate(app, names, acceptor, failure.as_ref(), &next) {
                tracing::warn!("{why}");
                set_unreachable(app, why);
            }
        }
        Round::Rested => {}
    }
    if acceptor.has_certificate() && app.unreachable.swap(None).is_some() {
        notify::status("");
    }
}

/// A message about the missing certificate. `None` if there is one, or if `/readyz` has the same message already.
fn missing_certificate(
    app: &App,
    names: &str,
    acceptor: &Acceptor,
    failure: Option<&Failure>,
    next: &str,
) -> Option<String> {
    let reason = failure.map(|failure| format!(" ({failure})")).unwrap_or_default();
    let why =
        format!("there is no certificate for {names} yet, and the next order is made after {next}{reason}");
    let is_reported = app.unreachable.load().as_deref() == Some(&why);
    (!acceptor.has_certificate() && !is_reported).then_some(why)
}

fn set_unreachable(app: &App, why: String) {
    notify::status(&why);
    app.unreachable.store(Some(Arc::new(why)));
}
