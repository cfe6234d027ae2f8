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

use super::readings::{Description, Kind, READINGS, Readings, UserCounts};
use super::{audit, sign_ins};
use crate::described::described;

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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

described! {
    /// What the service lacks when it refuses a request or a connection that may be right.
    pub enum RefusalReason {
        /// The sender is over a rate limit (429).
        RateLimit = "rate_limited",
        /// Too many requests are under way (503).
        Requests = "too_many_requests",
        /// Too many bodies are being read (503).
        Bodies = "too_many_bodies",
        /// Too many passwords wait (503).
        Passwords = "password_queue_full",
        /// There is no memory for a password hash (503).
        Memory = "no_memory",
        /// Too many writes wait (503).
        Writes = "store_queue_full",
        /// The disk is nearly full, or full (503).
        Room = "no_room",
        /// The store cannot be used: the disk fails or hangs, or the database is being compacted (503).
        Store = "store_unavailable",
        /// Too many connections are open: this one is closed at once.
        Connections = "too_many_connections",
    }
}

/// The metrics that are counted.
pub const COUNTED: [Description; 11] = [
    counted(
        "idsvc_requests",
        Kind::Counter,
        &["route", "status"],
        "Answers, by route and status. The route none is a path that does not exist.",
    ),
    counted(
        "idsvc_request_duration_seconds",
        Kind::Histogram,
        &["route"],
        "Seconds from the whole request, or what was waited for of it, to its answer, by route.",
    ),
    counted("idsvc_build", Kind::Info, &["version"], "The release that runs."),
    counted(
        "idsvc_grants",
        Kind::Counter,
        &["grant_type", "outcome"],
        "Token requests, by grant type and outcome: issued, the code of the error, throttled (429), busy (503) or failed.",
    ),
    counted(
        "idsvc_certificate_orders",
        Kind::Counter,
        &["outcome"],
        "Certificates ordered by ACME since the start, by outcome: issued or failed.",
    ),
    counted(
        "idsvc_backups",
        Kind::Counter,
        &["outcome"],
        "Scheduled backups since the start, by outcome: made or failed.",
    ),
    counted(
        "idsvc_backup_failing",
        Kind::Gauge,
        &[],
        "Whether the last attempt at a scheduled backup failed.",
    ),
    counted(
        "idsvc_refusals",
        Kind::Counter,
        &["reason"],
        "Requests and connections that were refused for lack of something, by reason.",
    ),
    counted("idsvc_events", Kind::Counter, &["event"], "Events, by name."),
    counted(
        "idsvc_sign_ins",
        Kind::Counter,
        &["method"],
        "Sign-ins, by the method of the first step: password, email, passkey or provider.",
    ),
    counted(
        "idsvc_users",
        Kind::Gauge,
        &["state"],
        "Users, by state: enabled, disabled, or anonymous. Counted every ten minutes; one of several nodes has it.",
    ),
];

const fn counted(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Description {
    Description {
        name,
        kind,
        labels,
        help,
    }
}

/// All metrics: those that are counted, and those that are read.
pub fn descriptions() -> impl Iterator<Item = Description> {
    let read = READINGS.iter().map(|(description, _)| *description);
    COUNTED.into_iter().chain(read)
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
    sign_ins: Family<MethodLabel, Counter>,
    users: Family<StateLabel, Gauge<u64, AtomicU64>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let [
            requests,
            duration,
            build,
            grants,
            orders,
            backups,
            failing,
            refusals,
            events,
            sign_ins,
            users,
        ] = &COUNTED;
        let mut registry = Registry::default();
        let all = &mut registry;
        let answered = register(all, requests, Family::default());
        let histogram = || Histogram::new(BUCKETS);
        let latency = register(
            all,
            duration,
            Family::new_with_constructor(histogram as fn() -> _),
        );
        let release = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        all.register(build.name, help(build), release);
        let metrics = Self {
            answered,
            latency,
            granted: register(all, grants, Family::default()),
            certificate_orders: register(all, orders, Family::default()),
            backups: register(all, backups, Family::default()),
            backup_failing: register(all, failing, Gauge::default()),
            refusals: register(all, refusals, Family::default()),
            events: register(all, events, Family::default()),
            sign_ins: register(all, sign_ins, Family::default()),
            users: register(all, users, Family::default()),
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

/// Registers a metric as it is described.
fn register<M: Metric + Clone>(registry: &mut Registry, described: &Description, metric: M) -> M {
    match described.name.strip_suffix("_seconds") {
        Some(name) => registry.register_with_unit(name, help(described), Unit::Seconds, metric.clone()),
        None => registry.register(described.name, help(described), metric.clone()),
    }
    metric
}

/// The help text without its full stop, which the registry adds.
fn help(described: &Description) -> &'static str {
    described.help.trim_end_matches('.')
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
        let reason = shortage.as_str();
        self.refusals.get_or_create_owned(&ReasonLabel { reason })
    }

    /// Sets the users by state, or leaves them out.
    fn set_users(&self, users: Option<UserCounts>) {
        let Some(users) = users else {
            self.users.clear();
            return;
        };
        for (state, count) in [
            ("enabled", users.enabled),
            ("disabled", users.disabled),
            ("anonymous", users.anonymous),
        ] {
            self.users.get_or_create(&StateLabel { state }).set(count);
        }
    }

    pub fn text(&self, readings: &Readings) -> String {
        for (event, total) in audit::counts() {
            let counter = self.events.get_or_create(&EventLabel { event });
            counter.inner().store(total, Ordering::Relaxed);
        }
        for (method, total) in sign_ins::counts() {
            let method = method.as_str();
            let counter = self.sign_ins.get_or_create(&MethodLabel { method });
            counter.inner().store(total, Ordering::Relaxed);
        }
        self.set_users(readings.users);
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
        for &(Description { name, kind, help, .. }, value) in READINGS {
            let Some(value) = value(&self.0) else { continue };
            if kind == Kind::Counter {
                let counter = ConstCounter::new(value);
                counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
            } else {
                let gauge = ConstGauge::new(value);
                gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_labels_of_its_description() {
        let metrics = Metrics::default();
        metrics.count_request("token", 200, Some(Duration::from_millis(3)));
        metrics.count_grant("refresh_token", "issued");
        let text = metrics.text(&Readings {
            users: Some(UserCounts::default()),
            ..Readings::default()
        });
        for described in COUNTED {
            let name = match described.kind {
                Kind::Histogram => format!("{}_count", described.name),
                _ => described.exposed_name(),
            };
            let sample = text
                .lines()
                .find_map(|line| line.strip_prefix(&name)?.split_once(' '))
                .unwrap_or_else(|| panic!("{name}\n{text}"))
                .0;
            let labels: Vec<_> = sample
                .trim_matches(['{', '}'])
                .split_terminator(',')
                .map(|label| label.split_once('=').unwrap().0)
                .collect();
            assert_eq!(labels, described.labels, "{name}");
            assert!(text.contains(&format!("# HELP {} {}\n", described.name, described.help)));
            assert!(text.contains(&format!(
                "# TYPE {} {}\n",
                described.name,
                described.kind.as_str()
            )));
        }
    }

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
            users: Some(UserCounts {
                disabled: 3,
                ..UserCounts::default()
            }),
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
            "idsvc_users{state=\"disabled\"} 3",
            "idsvc_users{state=\"anonymous\"} 0",
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
        assert!(!metrics.text(&Readings::default()).contains("idsvc_users{"));
    }
}
