//! Keeps the certificate of `serve` that comes from an authority, and tells the log, the events, the metrics, the service
//! manager and `/readyz` what each round came to.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::app::App;
use crate::clock::Timestamp;
use crate::net::acme::Plan;
use crate::net::acme::failure::Failure;
use crate::net::acme::renewal::{Renewal, Round};
use crate::net::notify;
use crate::net::tls::Acceptor;
use crate::observe::audit;
use crate::observe::audit::Event;

/// The longest rest: clocks jump, and machines sleep.
const LONGEST_REST: Duration = Duration::from_mins(1);
/// The shortest rest.
const SHORTEST_REST: Duration = Duration::from_secs(1);
/// The least time between two rounds in haste.
const LEAST_BETWEEN_HASTE: Duration = Duration::from_secs(30);

/// Says that the service cannot be reached while it has no certificate. To be called before `/readyz` is answered.
pub fn begin(app: &App, plan: &Plan, acceptor: &Acceptor) {
    if acceptor.has_certificate() {
        return;
    }
    let why = format!("there is no certificate for {} yet", plan.names());
    tracing::warn!(
        directory = %plan.directory,
        "{why}: one is ordered, and until it is here only the certificate authority is answered"
    );
    unreachable_for(app, why);
}

/// Keeps the certificate for as long as the service runs. `haste` makes an order at once that waits after a failure.
pub async fn keep(app: Arc<App>, renewal: Renewal, acceptor: Acceptor, haste: Arc<Notify>) {
    let names = renewal.plan().names();
    let mut in_haste = false;
    let mut hasty_before: Option<Timestamp> = None;
    loop {
        let (now, dice) = (app.core.clock.now(), u64::from_be_bytes(app.core.random.bytes()));
        let working = renewal.clone();
        let round = tokio::spawn(async move { working.round(now.seconds(), dice, in_haste).await }).await;
        if in_haste {
            hasty_before = Some(now);
        }
        let (round, until) = match round {
            Ok(done) => done,
            Err(error) => renewal.broke(now.seconds(), &error.to_string()),
        };
        tell(&app, &names, &acceptor, &round, until);
        let until = Timestamp::from_seconds(until);
        let next_order = matches!(round, Round::Failed(_) | Round::Waited(_)).then_some(until);
        let rest = until
            .since(app.core.clock.now())
            .clamp(SHORTEST_REST, LONGEST_REST);
        in_haste = tokio::select! {
            () = tokio::time::sleep(rest) => false,
            () = haste.notified() => {
                let now = app.core.clock.now();
                let is_soon = hasty_before
                    .is_some_and(|before| (before..before + LEAST_BETWEEN_HASTE).contains(&now));
                match next_order {
                    Some(next) if is_soon => tracing::info!(
                        domains = names,
                        next_attempt = next.rfc3339(),
                        "no certificate is ordered at once so soon after the last time: the next order has to wait"
                    ),
                    Some(_) => tracing::info!(domains = names, "not waiting any longer with the next order"),
                    None => {}
                }
                !is_soon
            }
        };
    }
}

fn tell(app: &App, names: &str, acceptor: &Acceptor, round: &Round, until: u64) {
    match round {
        Round::Issued { not_after } => {
            let expires = Timestamp::from_seconds(*not_after).rfc3339();
            tracing::info!(domains = names, expires, "new certificate in use");
            app.metrics.ordered(true);
            audit::record(&Event::CertificateIssued {
                domains: names,
                not_after: *not_after,
            });
        }
        Round::Failed(failure) => {
            let next = Timestamp::from_seconds(until).rfc3339();
            let Failure { message, remedy, .. } = failure;
            tracing::error!(error = message, remedy, next_attempt = next, "no new certificate");
            app.metrics.ordered(false);
            audit::record(&Event::CertificateFailed {
                domains: names,
                reason: message,
            });
            if let Some(why) = lacking(app, names, acceptor, Some(failure), &next) {
                unreachable_for(app, why);
            }
        }
        Round::Waited(failure) => {
            let next = Timestamp::from_seconds(until).rfc3339();
            if let Some(why) = lacking(app, names, acceptor, failure.as_ref(), &next) {
                tracing::warn!("{why}");
                unreachable_for(app, why);
            }
        }
        Round::Rested => {}
    }
    if acceptor.has_certificate() && app.unreachable.swap(None).is_some() {
        notify::status("");
    }
}

/// The sentence about a missing certificate; none when there is a certificate, or when `/readyz` says the same already.
fn lacking(
    app: &App,
    names: &str,
    acceptor: &Acceptor,
    failure: Option<&Failure>,
    next: &str,
) -> Option<String> {
    let reason = failure.map(|failure| format!(" ({failure})")).unwrap_or_default();
    let why =
        format!("there is no certificate for {names} yet, and the next order is made after {next}{reason}");
    let is_said = app.unreachable.load().as_deref() == Some(&why);
    (!acceptor.has_certificate() && !is_said).then_some(why)
}

fn unreachable_for(app: &App, why: String) {
    notify::status(&why);
    app.unreachable.store(Some(Arc::new(why)));
}
