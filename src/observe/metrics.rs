//! The metrics in the text format of Prometheus.
//!
//! Labels come from small fixed sets. No part of a request becomes a label.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::audit;

/// The media type of the metrics (`OpenMetrics` 1.0).
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The buckets of the latency in seconds: from a refresh to a sign-in on a busy machine.
const BUCKETS: [f64; 12] = [
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabel {
    route: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GrantLabels {
    grant_type: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OrderLabel {
    outcome: &'static str,
}

/// The outcomes of a certificate order.
const ORDER_OUTCOMES: [&str; 2] = ["issued", "failed"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    event: &'static str,
}

/// The current values of counters in other parts of the service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readings {
    /// Commits of the store.
    pub store_commits: u64,
    /// Writes in those commits.
    pub store_writes: u64,
    /// Commits that failed.
    pub store_failures: u64,
    /// The largest number of writes in one commit.
    pub store_largest_batch: u64,
    /// Writes in the queue.
    pub store_queue: u64,
    /// Whether writes can be expected to succeed.
    pub store_is_writable: bool,
    /// Passwords that wait to be checked or hashed.
    pub password_queue: u64,
    /// Passwords that are being checked or hashed.
    pub password_running: u64,
    /// The end of the validity of the certificate in use, in seconds since the epoch; zero without a certificate.
    pub certificate_not_after: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// What the service lacks when it refuses a request or a connection that may be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The sender is over a rate limit (429).
    RateLimit,
    /// Too many requests are under way.
    Requests,
    /// Too many bodies are being read.
    Bodies,
    /// Too many passwords wait.
    Passwords,
    /// Too many writes wait.
    Writes,
    /// The disk is nearly full, or full.
    Room,
    /// The store cannot be used: the disk fails or hangs, or the database is being compacted.
    Store,
}

impl Shortage {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::RateLimit,
        Self::Requests,
        Self::Bodies,
        Self::Passwords,
        Self::Writes,
        Self::Room,
        Self::Store,
    ];

    /// The value of the label `reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::RateLimit => "rate_limited",
            Self::Requests => "too_many_requests",
            Self::Bodies => "too_many_bodies",
            Self::Passwords => "password_queue_full",
            Self::Writes => "store_queue_full",
            Self::Room => "no_room",
            Self::Store => "store_unavailable",
        }
    }
}

/// The registered metrics.
pub struct Metrics {
    registry: Registry,
    answered: Family<RequestLabels, Counter>,
    latency: Family<RouteLabel, Histogram>,
    granted: Family<GrantLabels, Counter>,
    store_commits: Counter,
    store_writes: Counter,
    store_failures: Counter,
    store_largest_batch: Gauge<u64, AtomicU64>,
    store_queue: Gauge<u64, AtomicU64>,
    store_writable: Gauge<u64, AtomicU64>,
    password_queue: Gauge<u64, AtomicU64>,
    password_running: Gauge<u64, AtomicU64>,
    certificate_not_after: Gauge<u64, AtomicU64>,
    certificate_orders: Family<OrderLabel, Counter>,
    refusals: Family<ReasonLabel, Counter>,
    events: Family<EventLabel, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("idsvc");
        let all = &mut registry;
        let answered = register(all, "requests", "Requests by route and status");
        let latency: Family<RouteLabel, Histogram> = Family::new_with_constructor(|| Histogram::new(BUCKETS));
        all.register_with_unit(
            "request_duration",
            "Time from the end of a request to its answer, by route",
            Unit::Seconds,
            latency.clone(),
        );
        let metrics = Self {
            answered,
            latency,
            granted: register(all, "grants", "Token requests by grant type and outcome"),
            store_commits: register(
                all,
                "store_commits",
                "Commits of the store, each of which waited for the disk",
            ),
            store_writes: register(all, "store_writes", "Writes that the commits held"),
            store_failures: register(all, "store_failures", "Commits that the disk did not take"),
            store_largest_batch: register(
                all,
                "store_largest_batch",
                "The most writes that shared one commit",
            ),
            store_queue: register(all, "store_queue", "Writes that wait"),
            store_writable: register(all, "store_writable", "Whether writes can be expected to succeed"),
            password_queue: register(
                all,
                "password_queue",
                "Passwords that wait to be checked or hashed",
            ),
            password_running: register(
                all,
                "password_running",
                "Passwords that are being checked or hashed",
            ),
            certificate_not_after: {
                let gauge = Gauge::default();
                let help = "The last second of the certificate in use, since the epoch; 0 without one";
                all.register_with_unit("certificate_not_after", help, Unit::Seconds, gauge.clone());
                gauge
            },
            certificate_orders: register(
                all,
                "certificate_orders",
                "Certificates ordered by ACME, by outcome",
            ),
            refusals: register(
                all,
                "refusals",
                "Requests that were refused for lack of something, by reason",
            ),
            events: register(all, "events", "Events of the audit by name"),
            registry,
        };
        // Counters start at zero, so that the first increase is seen as one.
        for outcome in ORDER_OUTCOMES {
            drop(metrics.certificate_orders.get_or_create(&OrderLabel { outcome }));
        }
        for shortage in Shortage::ALL {
            drop(metrics.refusals_for(shortage));
        }
        metrics
    }
}

/// Registers a metric under its name, with a help text.
fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

impl Metrics {
    /// Counts a request, and its duration if that is known. `route` is one of a fixed set of names.
    pub fn count_request(&self, route: &'static str, status: u16, took: Option<Duration>) {
        let status = u32::from(status);
        self.answered
            .get_or_create(&RequestLabels { route, status })
            .inc();
        if let Some(took) = took {
            let took = took.as_secs_f64();
            self.latency.get_or_create(&RouteLabel { route }).observe(took);
        }
    }

    /// Counts a token request. Both names are of fixed sets.
    pub fn count_grant(&self, grant_type: &'static str, outcome: &'static str) {
        self.granted
            .get_or_create(&GrantLabels { grant_type, outcome })
            .inc();
    }

    /// Counts a finished certificate order.
    pub fn count_certificate_order(&self, was_issued: bool) {
        let [issued, failed] = ORDER_OUTCOMES;
        let outcome = if was_issued { issued } else { failed };
        self.certificate_orders
            .get_or_create(&OrderLabel { outcome })
            .inc();
    }

    /// Counts a request that is refused for lack of something.
    pub fn count_refusal(&self, shortage: Shortage) {
        self.refusals_for(shortage).inc();
    }

    fn refusals_for(&self, shortage: Shortage) -> Counter {
        let reason = shortage.reason();
        self.refusals.get_or_create_owned(&ReasonLabel { reason })
    }

    /// All metrics as text.
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
            let counter = self.events.get_or_create(&EventLabel { event });
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
            // Writing to a string does not fail.
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
        metrics.count_request("token", 200, Some(Duration::from_millis(3)));
        metrics.count_request("token", 200, Some(Duration::from_millis(30)));
        metrics.count_grant("refresh_token", "issued");
        metrics.count_certificate_order(false);
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
