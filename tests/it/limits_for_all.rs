//! What all addresses together may hold: each of them alone has less than its own share of it.

use std::net::IpAddr;
use std::sync::Arc;

use idsvc::app::RequestPermit;

use crate::harness::reply::Reply;
use crate::harness::server::Setup;
use crate::harness::{Server, until};

/// The room that one body of the greatest size takes.
const BODY: usize = 64 * 1024;
/// So many bodies of that size are 64 MiB.
const BODIES: usize = 1024;
const REQUESTS: usize = 8192;

/// Another IPv4 address for each number, each in a network of its own.
fn address(number: usize) -> IpAddr {
    let number = u32::try_from(number).unwrap();
    IpAddr::from((0xcb00_0000 + 256 * number).to_be_bytes())
}

/// Takes until there is no more, from as many addresses; how many it was.
fn take(take: impl Fn(IpAddr) -> Option<RequestPermit>) -> Vec<RequestPermit> {
    (0..2 * REQUESTS)
        .map_while(|number| take(address(number)))
        .collect()
}

/// Services with limits for each address and without them.
async fn services() -> [Server; 2] {
    let without = Setup {
        limits: idsvc::limit::LimitPolicy {
            enabled: false,
            ..Setup::default().limits
        },
        ..Setup::default()
    };
    [Server::start().await, without.start().await]
}

fn is_told_to_wait(reply: &Reply) -> bool {
    (reply.status, reply.header("retry-after")) == (503, Some("2"))
}

#[tokio::test]
async fn the_bodies_of_all_addresses_together_are_bounded() {
    for server in services().await {
        let app = Arc::clone(&server.app);
        let mut held = take(|from| app.permit_for_body(BODY, from));
        assert_eq!(held.len(), BODIES);
        let form = || server.post("/oauth2/token").with("grant_type", "refresh_token");
        assert!(is_told_to_wait(&form().await));
        assert_eq!(server.get("/oauth2/jwks").await.status, 200, "it has no body");
        held.truncate(BODIES - 1);
        assert_eq!(form().await.status, 401);
        let last = until_taken(|| app.permit_for_body(BODY, address(BODIES))).await;
        assert!(is_told_to_wait(&form().await));
        drop(last);
        assert_eq!(form().await.status, 401);
    }
}

#[tokio::test]
async fn the_requests_of_all_addresses_together_are_bounded() {
    for server in services().await {
        let app = Arc::clone(&server.app);
        let mut held = take(|from| app.permit_for_request(from));
        assert_eq!(held.len(), REQUESTS);
        let ask = || server.get("/oauth2/jwks");
        assert!(is_told_to_wait(&ask().await));
        held.truncate(REQUESTS - 1);
        assert_eq!(ask().await.status, 200);
        let last = until_taken(|| app.permit_for_request(address(REQUESTS))).await;
        assert!(is_told_to_wait(&ask().await));
        drop(last);
        assert_eq!(ask().await.status, 200);
    }
}

/// What a request held is free when its answer has been read, or a moment later.
async fn until_taken(take: impl Fn() -> Option<RequestPermit>) -> RequestPermit {
    let taken = std::cell::RefCell::new(None);
    until(async || {
        *taken.borrow_mut() = take();
        taken.borrow().is_some()
    })
    .await;
    taken.into_inner().unwrap()
}
