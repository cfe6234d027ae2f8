//! `/metrics` as a collector reads it, and what is made for it: the guide, the dashboard, the alerts.

use idsvc::observe::metrics::{Readings, Shortage};

use crate::harness::metrics::value;
use crate::harness::{Server, until};

#[tokio::test]
async fn refusals_are_counted_by_their_reason() {
    let server = Server::start().await;
    let count = |shortage: Shortage| {
        let text = server.app.metrics.text(&Readings::default());
        let sample = format!("idsvc_refusals_total{{reason=\"{}\"}}", shortage.reason());
        value(&text, &sample).unwrap()
    };
    for shortage in Shortage::ALL {
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
        [Shortage::Requests, Shortage::Bodies, Shortage::RateLimit].map(count),
        [1, 1, 1]
    );
}
