//! What is counted while the service runs, in the text form that Prometheus reads.
//!
//! Labels come from small fixed sets: no part of a request becomes one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::audit;

/// The media type of the text (`OpenMetrics` 1.0).
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// From a refresh to a sign-in on a busy machine, in seconds.
const BUCKETS: [f64; 12] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: &'static str,
    status: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRoute {
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Granted {
    grant_type: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ordered {
    outcome: &'static str,
}

/// How an order of a certificate may end.
const ORDERED: [&str; 2] = ["issued", "failed"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEvent {
    event: &'static str,
}

/// What other parts of the service count themselves, as it is now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readings {
    /// Commits of the store.
    pub store_commits: u64,
    /// Writes that those commits held.
    pub store_writes: u64,
    /// Commits that the disk did not take.
    pub store_failures: u64,
    /// The most writes that shared one commit.
    pub store_largest_batch: u64,
    /// Writes that wait.
    pub store_queue: u64,
    /// Whether writes can be expected to succeed.
    pub store_is_writable: bool,
    /// Passwords that wait to be checked or hashed.
    pub password_queue: u64,
    /// Passwords that are being checked or hashed.
    pub password_running: u64,
    /// The last second of the certificate in use, in seconds since the epoch; zero without one.
    pub certificate_not_after: u64,
}

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    answered: Family<Answered, Counter>,
    latency: Family<OfRoute, Histogram>,
    granted: Family<Granted, Counter>,
    store_commits: Counter,
    store_writes: Counter,
    store_failures: Counter,
    store_largest_batch: Gauge<u64, AtomicU64>,
    store_queue: Gauge<u64, AtomicU64>,
    store_writable: Gauge<u64, AtomicU64>,
    password_queue: Gauge<u64, AtomicU64>,
    password_running: Gauge<u64, AtomicU64>,
    certificate_not_after: Gauge<u64, AtomicU64>,
    certificate_orders: Family<Ordered, Counter>,
    events: Family<OfEvent, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let this = Self {
            registry: Registry::with_prefix("idsvc"),
            answered: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            granted: Family::default(),
            store_commits: Counter::default(),
            store_writes: Counter::default(),
            store_failures: Counter::default(),
            store_largest_batch: Gauge::default(),
            store_queue: Gauge::default(),
            store_writable: Gauge::default(),
            password_queue: Gauge::default(),
            password_running: Gauge::default(),
            certificate_not_after: Gauge::default(),
            certificate_orders: Family::default(),
            events: Family::default(),
        };
        this.registered()
    }
}

impl Metrics {
    fn registered(mut self) -> Self {
        // What has not happened yet is zero, so that the first time is a rise.
        for outcome in ORDERED {
            drop(self.certificate_orders.get_or_create(&Ordered { outcome }));
        }
        let all = &mut self.registry;
        all.register("requests", "Requests by route and status", self.answered.clone());
        all.register_with_unit(
            "request_duration",
            "Time from the end of a request to its answer, by route",
            Unit::Seconds,
            self.latency.clone(),
        );
        all.register(
            "grants",
            "Token requests by grant type and outcome",
            self.granted.clone(),
        );
        all.register(
            "store_commits",
            "Commits of the store, each of which waited for the disk",
            self.store_commits.clone(),
        );
        all.register(
            "store_writes",
            "Writes that the commits held",
            self.store_writes.clone(),
        );
        all.register(
            "store_failures",
            "Commits that the disk did not take",
            self.store_failures.clone(),
        );
        all.register(
            "store_largest_batch",
            "The most writes that shared one commit",
            self.store_largest_batch.clone(),
        );
        all.register("store_queue", "Writes that wait", self.store_queue.clone());
        all.register(
            "store_writable",
            "Whether writes can be expected to succeed",
            self.store_writable.clone(),
        );
        all.register(
            "password_queue",
            "Passwords that wait to be checked or hashed",
            self.password_queue.clone(),
        );
        all.register(
            "password_running",
            "Passwords that are being checked or hashed",
            self.password_running.clone(),
        );
        all.register_with_unit(
            "certificate_not_after",
            "The last second of the certificate in use, since the epoch; 0 without one",
            Unit::Seconds,
            self.certificate_not_after.clone(),
        );
        all.register(
            "certificate_orders",
            "Certificates ordered by ACME, by outcome",
            self.certificate_orders.clone(),
        );
        all.register("events", "Events of the audit by name", self.events.clone());
        self
    }

    /// A request was answered, and how long that took, if that is known. `route` is one of a fixed set
    /// of names.
    pub fn answered(&self, route: &'static str, status: u16, took: Option<Duration>) {
        let status = u32::from(status);
        self.answered.get_or_create(&Answered { route, status }).inc();
        if let Some(took) = took {
            let took = took.as_secs_f64();
            self.latency.get_or_create(&OfRoute { route }).observe(took);
        }
    }

    /// A token request came to an end. Both names are of fixed sets.
    pub fn granted(&self, grant_type: &'static str, outcome: &'static str) {
        self.granted.get_or_create(&Granted { grant_type, outcome }).inc();
    }

    /// An order of a certificate came to an end.
    pub fn ordered(&self, was_issued: bool) {
        let [issued, failed] = ORDERED;
        let outcome = if was_issued { issued } else { failed };
        self.certificate_orders.get_or_create(&Ordered { outcome }).inc();
    }

    /// Everything as text.
    pub fn text(&self, readings: &Readings) -> String {
        let totals = [
            (&self.store_commits, readings.store_commits),
            (&self.store_writes, readings.store_writes),
            (&self.store_failures, readings.store_failures),
        ];
        for (counter, total) in totals {
            counter.inner().store(total, Ordering::Relaxed);
        }
        for (event, total) in audit::counts() {
            let counter = self.events.get_or_create(&OfEvent { event });
            counter.inner().store(total, Ordering::Relaxed);
        }
        self.store_largest_batch.set(readings.store_largest_batch);
        self.store_queue.set(readings.store_queue);
        self.store_writable.set(u64::from(readings.store_is_writable));
        self.password_queue.set(readings.password_queue);
        self.password_running.set(readings.password_running);
        self.certificate_not_after.set(readings.certificate_not_after);
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            // Writing to memory does not fail.
            Err(_) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_told() {
        let metrics = Metrics::default();
        metrics.answered("token", 200, Some(Duration::from_millis(3)));
        metrics.answered("token", 200, Some(Duration::from_millis(30)));
        metrics.granted("refresh_token", "issued");
        metrics.ordered(false);
        let readings = Readings {
            store_commits: 7,
            store_is_writable: true,
            certificate_not_after: 1_800_000_000,
            ..Readings::default()
        };
        let text = metrics.text(&readings);
        for line in [
            "idsvc_requests_total{route=\"token\",status=\"200\"} 2",
            "idsvc_request_duration_seconds_bucket{le=\"0.005\",route=\"token\"} 1",
            "idsvc_request_duration_seconds_count{route=\"token\"} 2",
            "idsvc_grants_total{grant_type=\"refresh_token\",outcome=\"issued\"} 1",
            "idsvc_store_commits_total 7",
            "idsvc_store_writable 1",
            "idsvc_certificate_not_after_seconds 1800000000",
            "idsvc_certificate_orders_total{outcome=\"failed\"} 1",
            "idsvc_certificate_orders_total{outcome=\"issued\"} 0",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        assert!(
            metrics
                .text(&Readings {
                    store_commits: 9,
                    ..readings
                })
                .contains("idsvc_store_commits_total 9")
        );
    }
}
