//! A collector of metrics.

use super::port::free_port;
use super::process::{Service, request};

/// Asks a service for its metrics.
#[derive(Clone, Copy)]
pub(crate) struct Collector {
    port: u16,
}

impl Collector {
    /// The same service with metrics, and a collector of them.
    pub(crate) fn of(service: Service) -> (Service, Self) {
        let port = free_port();
        let service = service.with("IDSVC_METRICS_LISTEN", &format!("127.0.0.1:{port}"));
        (service, Self { port })
    }

    pub(crate) fn scrape(self) -> String {
        let scraped = request(self.port, "GET", "/metrics", &[], "").unwrap();
        assert_eq!(scraped.status, 200, "{scraped:?}");
        scraped.body
    }

    /// The value of a sample that is scraped now.
    pub(crate) fn value(self, sample: &str) -> Option<u64> {
        value(&self.scrape(), sample)
    }
}

/// The value of a sample.
pub(crate) fn value(scraped: &str, sample: &str) -> Option<u64> {
    let found = |line: &str| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok();
    scraped.lines().find_map(found)
}
