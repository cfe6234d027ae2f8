//! The clock jumps a day forward and a day back under the running service, and is decades ahead when it starts.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idsvc::admin::installation::ReadInstallation;
use idsvc::clock::Clock;
use idsvc::flow::login::transaction::LoginTransactionError;
use serde_json::Value;

use super::kiosk::{Kiosk, is_ready};
use super::shim::{Fault, Faults};
use crate::harness::metrics::Collector;
use crate::harness::process::{Running, Service, shown};
use crate::harness::reply::Reply;
use crate::harness::scene;
use crate::harness::sweep_all;
use crate::harness::token::Jwt;

const DAY: i64 = 86_400;

struct Scene<'a> {
    faults: &'a Faults,
    kiosk: &'a Kiosk,
    running: &'a Running<'a>,
}

impl Scene<'_> {
    /// Sets the service's clock to this many seconds from the true time.
    fn jump(&self, seconds: i64) -> u64 {
        self.faults.set(Fault::Clock, seconds);
        let now = Clock::System.now().seconds();
        now.checked_add_signed(seconds).unwrap()
    }

    /// New tokens, which last as long as promised by the clock as it is.
    fn tokens(&self, now: u64) -> Value {
        let tokens = self.kiosk.tokens(self.running);
        let claims = Jwt::read(tokens["access_token"].as_str().unwrap()).claims;
        let (issued, expires) = (claims["iat"].as_u64().unwrap(), claims["exp"].as_u64().unwrap());
        assert!(issued.abs_diff(now) < 60, "iat {issued} at {now}");
        assert_eq!(expires - issued, tokens["expires_in"].as_u64().unwrap());
        tokens
    }

    fn is_active(&self, tokens: &Value) -> bool {
        let token = tokens["access_token"].as_str().unwrap();
        let reply = self.kiosk.introspect(self.running, token);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()["active"].as_bool().unwrap()
    }

    fn refresh(&self, tokens: &Value) -> Result<String, u16> {
        let token = tokens["refresh_token"].as_str().unwrap();
        self.kiosk
            .refresh(self.running, token)
            .map_err(|reply| reply.status)
    }
}

/// A connection on which half a request has been sent.
fn half_asked(port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n").unwrap();
    stream
}

fn ask_the_rest(mut stream: TcpStream) -> String {
    stream.write_all(b"Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_clock_that_jumps_a_day_and_back_lengthens_no_token_and_breaks_nothing() {
    let faults = Faults::none();
    let service = faults.over(
        Service::empty()
            .with("IDSVC_LIFETIMES_ACCESS_TOKEN", "12h")
            .with("IDSVC_LIFETIMES_REFRESH_TOKEN", "30d"),
    );
    let (service, collector) = Collector::of(service);
    let kiosk = Kiosk::register(&service);
    let running = service.serve();
    let has_run_for_a_moment = |now: u64| {
        let started = collector.value("process_start_time_seconds").unwrap();
        assert!(
            started.abs_diff(now) < 60,
            "started at {started} by a clock at {now}"
        );
    };
    let scene = Scene {
        faults: &faults,
        kiosk: &kiosk,
        running: &running,
    };
    let now = scene.jump(0);
    let (today, also_today) = (scene.tokens(now), scene.tokens(now));
    let retired = scene.tokens(now);
    let revoked = retired["refresh_token"].as_str().unwrap();
    assert_eq!(kiosk.revoke(&running, revoked).status, 200);
    let waiting = half_asked(service.port);

    let now = scene.jump(DAY);
    has_run_for_a_moment(now);
    assert!(!scene.is_active(&today), "a token outlives its twelve hours");
    let tomorrow = scene.tokens(now);
    assert!(scene.is_active(&tomorrow));
    scene.refresh(&today).unwrap();
    assert!(
        ask_the_rest(waiting).starts_with("HTTP/1.1 200"),
        "a timer follows the clock"
    );
    let waiting = half_asked(service.port);

    let now = scene.jump(-DAY);
    has_run_for_a_moment(now);
    let yesterday = scene.tokens(now);
    assert!(scene.is_active(&yesterday));
    assert!(!scene.is_active(&also_today), "a token is from a day ahead");
    scene.refresh(&tomorrow).unwrap();
    assert_eq!(scene.refresh(&retired), Err(400), "a revoked family came back");
    assert!(
        ask_the_rest(waiting).starts_with("HTTP/1.1 200"),
        "a timer follows the clock"
    );
    let added = service.run(&[
        "client",
        "add",
        "later",
        "--redirect-uri",
        "https://app.example/cb",
    ]);
    assert!(added.status.success(), "{added:?}");

    let now = scene.jump(0);
    assert!(scene.is_active(&also_today));
    assert!(!scene.is_active(&yesterday), "a token outlives its twelve hours");
    assert!(!scene.is_active(&tomorrow), "a token is from a day ahead");
    for tokens in [&also_today, &yesterday] {
        scene.refresh(tokens).unwrap();
    }
    scene.tokens(now);
    assert_eq!(scene.refresh(&retired), Err(400), "a revoked family came back");
    assert!(is_ready(&running));
    assert!(!service.log().contains("panic"), "{}", service.log());
}

/// An anonymous account is lost if its refresh token is lost.
#[test]
fn a_start_decades_ahead_removes_nobody() {
    let faults = Faults::none();
    let service = faults.over(Service::empty());
    let kiosk = Kiosk::register(&service);
    let mut running = service.serve();
    let token = kiosk.enter(&running).unwrap();
    running.terminate();

    faults.set(Fault::Clock, 73 * 365 * DAY);
    for starts in 1..=2 {
        let mut running = service.serve();
        running.until(|running| {
            running
                .log()
                .matches("the clock is more than a day ahead")
                .count()
                == starts
        });
        // By the wrong clock the store is of today then.
        kiosk.enter(&running).unwrap();
        running.terminate();
    }
    let doctor = shown(&service.run(&["doctor"]));
    assert!(doctor.contains("advice  clock system clock: "), "{doctor}");

    faults.set(Fault::Clock, 0);
    let running = service.serve();
    kiosk.refresh(&running, &token).unwrap();
    let removed = service.json(&["events", "--event", "anonymous_user_removed", "--json"]);
    assert_eq!(removed, serde_json::json!([]));
    let added = shown(&service.run(&["events", "--client", "kiosk", "--event", "administered"]));
    assert!(added.contains("command=\"client add\""), "{added}");
}

#[tokio::test]
async fn what_was_issued_while_the_clock_was_ahead_has_expired_and_refresh_tokens_go_on() {
    let (server, acme, alice) = scene().await;
    let core = &server.app.core;
    let Clock::Manual(hand) = &core.clock else {
        panic!("a test holds the clock");
    };
    let now = hand.load(Ordering::SeqCst);
    server.advance(73 * 365 * 86_400);
    let browser = alice.browser();
    let tokens = acme.tokens(&browser).await;
    let code = acme.code(&browser).await;
    let open = alice.browser().authorize(&acme.request()).await;
    assert_eq!(open.page(), "/login");

    hand.store(now, Ordering::SeqCst);
    assert_eq!(acme.redeem(&code).await.error(), "invalid_grant");
    assert!(!acme.is_welcome(&tokens).await);
    let introspected: Reply = acme.introspect(tokens.access_token()).await;
    assert_eq!(introspected.json()["active"], false);
    assert_eq!(browser.authorize(&acme.request()).await.page(), "/login");
    let gone = open.browser().visit(&open.path).await.error_page();
    assert_eq!(gone, format!("400 {}", LoginTransactionError::Expired));
    // Not for good: it may be now that the clock is wrong.
    assert_eq!(sweep_all(&server).await, 0);

    let outlasting = async || server.admin().call(ReadInstallation).await.unwrap().outlasting;
    assert_eq!(outlasting().await, 1);
    let next = acme.refresh(tokens.refresh_token()).await.tokens();
    assert!(acme.is_welcome(&next).await);
    assert_eq!(outlasting().await, 0);
    server.advance(90 * 86_400);
    assert_eq!(acme.refresh(next.refresh_token()).await.error(), "invalid_grant");
}
