//! The metrics in the text format of Prometheus.
//!
//! Labels come from small fixed sets. No part of a request becomes a label.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::audit;
use super::readings::{Kind, READINGS, Readings};

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
struct OutcomeLabel {
    outcome: &'static str,
}

/// The outcomes of a scheduled backup.
const BACKUP_OUTCOMES: [&str; 2] = ["made", "failed"];
/// The outcomes of a certificate order.
const ORDER_OUTCOMES: [&str; 2] = ["issued", "failed"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabel {
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// What the service lacks when it refuses a request or a connection that may be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The sender is over a rate limit (429).
    RateLimit,
    /// Too many requests are under way.
    Requests,
    /// Too many bodies are being read.
    Bodies,
    /// Too many passwords wait.
    Passwords,
    /// There is no memory for a password hash.
    Memory,
    /// Too many writes wait.
    Writes,
    /// The disk is nearly full, or full.
    Room,
    /// The store cannot be used: the disk fails or hangs, or the database is being compacted.
    Store,
    /// Too many connections are open.
    Connections,
}

impl RefusalReason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::RateLimit,
        Self::Requests,
        Self::Bodies,
        Self::Passwords,
        Self::Memory,
        Self::Writes,
        Self::Room,
        Self::Store,
        Self::Connections,
    ];

    /// The value of the label `reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::RateLimit => "rate_limited",
            Self::Requests => "too_many_requests",
            Self::Bodies => "too_many_bodies",
            Self::Passwords => "password_queue_full",
            Self::Memory => "no_memory",
            Self::Writes => "store_queue_full",
            Self::Room => "no_room",
            Self::Store => "store_unavailable",
            Self::Connections => "too_many_connections",
        }
    }
}

/// The registered metrics.
pub struct Metrics {
    registry: Registry,
    answered: Family<RequestLabels, Counter>,
    latency: Family<RouteLabel, Histogram>,
    granted: Family<GrantLabels, Counter>,
    certificate_orders: Family<OutcomeLabel, Counter>,
    backups: Family<OutcomeLabel, Counter>,
    backup_failing: Gauge<u64, AtomicU64>,
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
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        all.register("build", "The release that runs", build);
        let metrics = Self {
            answered,
            latency,
            granted: register(all, "grants", "Token requests by grant type and outcome"),
            certificate_orders: register(
                all,
                "certificate_orders",
                "Certificates ordered by ACME, by outcome",
            ),
            backups: register(all, "backups", "Scheduled backups, by outcome"),
            backup_failing: register(
                all,
                "backup_failing",
                "Whether the last attempt at a scheduled backup failed",
            ),
            refusals: register(
                all,
                "refusals",
                "Requests and connections that were refused for lack of something, by reason",
            ),
            events: register(all, "events", "Events of the audit by name"),
            registry,
        };
        // Counters start at zero, so that the first increase is seen as one.
        for outcome in ORDER_OUTCOMES {
            drop(
                metrics
                    .certificate_orders
                    .get_or_create(&OutcomeLabel { outcome }),
            );
        }
        for outcome in BACKUP_OUTCOMES {
            drop(metrics.backups.get_or_create(&OutcomeLabel { outcome }));
        }
        for shortage in RefusalReason::ALL {
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
            .get_or_create(&OutcomeLabel { outcome })
            .inc();
    }

    /// Notes that a scheduled backup was made, or that none was due.
    pub fn backup_succeeded(&self, was_made: bool) {
        let [outcome, _] = BACKUP_OUTCOMES;
        let count = u64::from(was_made);
        self.backups
            .get_or_create(&OutcomeLabel { outcome })
            .inc_by(count);
        self.backup_failing.set(0);
    }

    /// Counts a scheduled backup that failed.
    pub fn backup_failed(&self) {
        let [_, outcome] = BACKUP_OUTCOMES;
        self.backups.get_or_create(&OutcomeLabel { outcome }).inc();
        self.backup_failing.set(1);
    }

    /// Counts a request that is refused for lack of something.
    pub fn count_refusal(&self, shortage: RefusalReason) {
        self.refusals_for(shortage).inc();
    }

    fn refusals_for(&self, shortage: RefusalReason) -> Counter {
        let reason = shortage.reason();
        self.refusals.get_or_create_owned(&ReasonLabel { reason })
    }

    /// All metrics as text.
    pub fn text(&self, readings: &Readings) -> String {
        for (event, total) in audit::counts() {
            let counter = self.events.get_or_create(&EventLabel { event });
            counter.inner().store(total, Ordering::Relaxed);
        }
        let refused = self.refusals_for(RefusalReason::Connections);
        let total = refused.inner();
        total.store(readings.connections_refused, Ordering::Relaxed);
        let mut read = Registry::default();
        read.register_collector(Box::new(Collected(*readings)));
        let mut text = String::new();
        let encoded = encode_registry(&mut text, &self.registry)
            .and_then(|()| encode_registry(&mut text, &read))
            .and_then(|()| encode_eof(&mut text));
        // Writing to a string does not fail.
        encoded.map(|()| text).unwrap_or_default()
    }
}

/// Encodes the readings.
#[derive(Debug)]
struct Collected(Readings);

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for (name, kind, help, value) in READINGS {
            let Some(value) = value(&self.0) else { continue };
            match kind {
                Kind::Counter => {
                    let counter = ConstCounter::new(value);
                    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
                }
                Kind::Gauge => {
                    let gauge = ConstGauge::new(value);
                    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
                }
            }
        }
        Ok(())
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
