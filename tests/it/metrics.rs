//! `/metrics` as a collector reads it, and what is made for it: the dashboard, the alerts.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::thread;

use idsvc::clock::Clock;
use idsvc::observe::metrics::RefusalReason;
use idsvc::observe::readings::Readings;

use crate::harness::metrics::{Collector, value};
use crate::harness::process::{Running, Service};
use crate::harness::{Server, until};

/// A service with a client, and a collector of its metrics.
fn service_and_collector() -> (Service, Collector) {
    Collector::of(Service::with_client())
}

/// Scrapes until all of these are there: the first backup, for example, takes a moment.
fn scrape_until(running: &mut Running<'_>, collector: Collector, names: &[&str]) -> String {
    running.until(|_| {
        let scraped = collector.scrape();
        names.iter().all(|name| value(&scraped, name).is_some())
    });
    collector.scrape()
}

fn names(scraped: &str) -> BTreeSet<&str> {
    let samples = scraped.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .collect()
}

fn ask_for_a_token(running: &Running<'_>) {
    let form = [("Content-Type", "application/x-www-form-urlencoded")];
    let body = "grant_type=client_credentials&client_id=web&client_secret=wrong";
    let refused = running.request("POST", "/oauth2/token", &form, body).unwrap();
    assert_eq!(refused.status, 401);
}

#[test]
fn the_dashboard_and_the_alerts_name_the_metrics_that_there_are() {
    let (service, collector) = service_and_collector();
    let mut running = service.serve();
    ask_for_a_token(&running);
    service.run(&["client", "disable", "web"]);
    let issued = format!(
        "{{\"time\":{},\"event\":\"tokens_issued\"}}\n",
        Clock::System.now().seconds()
    );
    fs::write(service.data().join("events/tokens.jsonl"), issued).unwrap();
    let late = [
        "idsvc_backup_newest_timestamp_seconds",
        "idsvc_event_log_oldest_timestamp_seconds",
    ];
    let scraped = scrape_until(&mut running, collector, &late);
    let names = names(&scraped);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    for file in [
        "packaging/grafana/idsvc.json",
        "packaging/prometheus/idsvc.rules.yml",
        "tests/prometheus.yml",
    ] {
        let text = read(file);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: Vec<_> = words
            .filter(|word| word.starts_with("idsvc_") || word.starts_with("process_"))
            .collect();
        assert!(!named.is_empty(), "{file}");
        for name in named {
            assert!(names.contains(name), "{file} names {name}\n{scraped}");
        }
    }
    serde_json::from_str::<serde_json::Value>(&read("packaging/grafana/idsvc.json")).unwrap();
}

#[test]
fn what_the_service_takes_and_has_left_is_in_the_metrics() {
    const MADE: &str = "idsvc_backups_total{outcome=\"made\"}";
    let (service, collector) = service_and_collector();
    let mut running = service.serve();
    ask_for_a_token(&running);
    running.until(|_| collector.value(MADE) == Some(1));
    let scraped = collector.scrape();
    let value = |sample: &str| value(&scraped, sample).unwrap_or_else(|| panic!("{sample}\n{scraped}"));
    let build = format!("idsvc_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    for (sample, least, most) in [
        (build.as_str(), 1, 1),
        ("idsvc_ready", 1, 1),
        ("idsvc_disk_free_bytes", 1_000_000, value("idsvc_disk_size_bytes")),
        ("idsvc_database_live_bytes", 1_000, 100_000),
        (
            "idsvc_database_bytes",
            value("idsvc_database_live_bytes"),
            100_000_000,
        ),
        ("idsvc_database_unused_bytes", 0, 0),
        (MADE, 1, 1),
        ("idsvc_backups_total{outcome=\"failed\"}", 0, 0),
        ("idsvc_backup_failing", 0, 0),
        ("idsvc_backup_interval_seconds", 86_400, 86_400),
        ("idsvc_connections_max", 100, 10_000),
        ("process_resident_memory_bytes", 1_000_000, 1_000_000_000),
        ("process_open_fds", 8, value("process_max_fds")),
        ("process_start_time_seconds", 1_700_000_000, 100_000_000_000),
        (
            "idsvc_backup_newest_timestamp_seconds",
            value("process_start_time_seconds") - 1,
            value("process_start_time_seconds") + 600,
        ),
    ] {
        let found = value(sample);
        assert!((least..=most).contains(&found), "{sample} is {found}\n{scraped}");
    }
    let held = TcpStream::connect(("127.0.0.1", service.port)).unwrap();
    running.until(|_| collector.value("idsvc_connections").unwrap() >= 1);
    drop(held);
}

#[test]
fn a_backup_that_fails_is_in_the_metrics() {
    let (service, collector) = service_and_collector();
    let data = service.data();
    fs::write(data.join("backups"), "in the way").unwrap();
    let mut running = service.serve();
    running.until(|_| collector.value("idsvc_backup_failing") == Some(1));
    let scraped = collector.scrape();
    assert_eq!(
        value(&scraped, "idsvc_backups_total{outcome=\"failed\"}"),
        Some(1)
    );
    assert_eq!(value(&scraped, "idsvc_backup_newest_timestamp_seconds"), None);
}

#[test]
fn connections_that_are_closed_at_the_cap_are_in_the_metrics() {
    let (service, collector) = service_and_collector();
    let service = service
        .without("IDSVC_LIMITS_EXEMPT")
        .with("IDSVC_LIMITS_CONNECTIONS", "20");
    let mut running = service.serve();
    let most = collector.value("idsvc_connections_max");
    assert_eq!(most, Some(20));
    // No address gets more than half of them. A connection with half a request is not idle.
    let held: Vec<_> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", service.port)).unwrap();
            drop(stream.write_all(b"GET /healthz HTTP/1.1\r\n"));
            stream
        })
        .collect();
    let refused = "idsvc_refusals_total{reason=\"too_many_connections\"}";
    running.until(|_| collector.value(refused).unwrap() > 0);
    assert!(collector.value("idsvc_connections") <= most);
    drop(held);
    running.until(|_| collector.value("idsvc_connections") == Some(0));
}

/// The data directory is gone. What is open goes on.
#[test]
fn what_cannot_be_measured_is_left_out_and_keeps_nobody_waiting() {
    let (service, collector) = service_and_collector();
    let mut running = service.serve();
    scrape_until(
        &mut running,
        collector,
        &["idsvc_backup_newest_timestamp_seconds"],
    );
    let data = service.data();
    let elsewhere = service.folder.path().join("elsewhere");
    fs::rename(&data, &elsewhere).unwrap();
    let scraped = collector.scrape();
    let names = names(&scraped);
    for name in [
        "idsvc_disk_free_bytes",
        "idsvc_database_bytes",
        "idsvc_database_unused_bytes",
        "idsvc_event_log_bytes",
        "idsvc_backup_newest_timestamp_seconds",
    ] {
        assert!(!names.contains(name), "{name}\n{scraped}");
    }
    assert!(names.contains("idsvc_database_live_bytes"), "{scraped}");
    assert_eq!(value(&scraped, "idsvc_ready"), Some(1));
    ask_for_a_token(&running);
    fs::rename(&elsewhere, &data).unwrap();
    assert!(collector.value("idsvc_disk_free_bytes").is_some());
}

#[test]
fn what_is_scraped_under_load_is_whole_and_counters_only_grow() {
    const REQUESTS: u64 = 200;
    let (service, collector) = service_and_collector();
    let running = service.serve();
    let refused = "idsvc_grants_total{grant_type=\"client_credentials\",outcome=\"invalid_client\"}";
    ask_for_a_token(&running);
    thread::scope(|scope| {
        let load = scope.spawn(|| (0..REQUESTS).for_each(|_| ask_for_a_token(&running)));
        let mut before = 1;
        while !load.is_finished() {
            let scraped = collector.scrape();
            assert!(scraped.ends_with("\n# EOF\n"), "{scraped}");
            let now = value(&scraped, refused).unwrap();
            assert!(now >= before, "{now} after {before}");
            before = now;
        }
    });
    assert_eq!(collector.value(refused), Some(REQUESTS + 1));
}

#[tokio::test]
async fn refusals_are_counted_by_their_reason() {
    let server = Server::start().await;
    let count = |shortage: RefusalReason| {
        let text = server.app.metrics.text(&Readings::default());
        let sample = format!("idsvc_refusals_total{{reason=\"{}\"}}", shortage.as_str());
        value(&text, &sample).unwrap()
    };
    for shortage in RefusalReason::ALL {
        assert_eq!(count(shortage), 0, "{shortage:?}");
    }
    let from = "127.0.0.1".parse().unwrap();
    let held: Vec<_> = std::iter::from_fn(|| server.app.permit_for_request(from)).collect();
    assert_eq!(server.get("/oauth2/jwks").await.status, 503);
    drop(held);
    let held: Vec<_> = std::iter::from_fn(|| server.app.permit_for_body(64 << 10, from)).collect();
    let form = || server.post("/oauth2/token").with("grant_type", "refresh_token");
    assert_eq!(form().await.status, 503);
    drop(held);
    until(async || form().with("client_id", "nobody").await.status == 429).await;
    assert_eq!(
        [
            RefusalReason::Requests,
            RefusalReason::Bodies,
            RefusalReason::RateLimit
        ]
        .map(count),
        [1, 1, 1]
    );
}
