//! The real executable, with `--acme` and nothing else.

use std::time::{Duration, Instant};

use super::*;
use crate::harness::port::free_port;
use crate::harness::process::{Service, request, said, shown};
use crate::harness::until;

/// The settings of a service at `id.example` that has its certificate from this authority. What the internet does,
/// which brings port 443 of the domain to the service, the authority does here by asking at its port.
fn service(authority: &Authority) -> (Service, u16) {
    let metrics = free_port();
    let service = Service::empty()
        .without("IDSVC_BASE_URL")
        .without("IDSVC_TLS_MODE")
        .with("IDSVC_METRICS_LISTEN", &format!("127.0.0.1:{metrics}"))
        .with(
            "IDSVC_OUTBOUND_CA_FILE",
            authority.terms().ca_file.unwrap().to_str().unwrap(),
        )
        .with("IDSVC_OUTBOUND_ALLOW", "127.0.0.0/8,::1/128")
        .with("IDSVC_ACME_DIRECTORY", &format!("{}/directory", authority.base));
    (service, metrics)
}

/// What the address says that is there while nobody can reach the service itself.
fn readiness(metrics: u16) -> Option<(u16, String)> {
    request(metrics, "GET", "/readyz", &[], "").map(|reply| (reply.status, reply.body))
}

/// Waits for the process to say this.
async fn await_readiness(service: &Service, metrics: u16, wanted: impl Fn(u16, &str) -> bool) {
    let start = Instant::now();
    loop {
        let said = tokio::task::spawn_blocking(move || readiness(metrics))
            .await
            .unwrap();
        if said.as_ref().is_some_and(|(status, body)| wanted(*status, body)) {
            return;
        }
        assert!(
            start.elapsed() < Duration::from_mins(1),
            "{said:?} {}",
            service.log()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_domain_is_the_whole_set_up() {
    let authority = Authority::start().await;
    let (service, metrics) = service(&authority);
    let address: SocketAddr = format!("127.0.0.1:{}", service.port).parse().unwrap();
    let flags = ["serve", "--acme", "id.example"];

    let mut running = service.start(&flags);
    await_readiness(&service, metrics, |status, body| {
        status == 503 && body.contains("A or AAAA records of id.example")
    })
    .await;
    assert!(authority.visit(address, "id.example").await.is_err());
    let health = || service.run(&["health", "--acme", "id.example"]);
    let unhealthy = tokio::task::block_in_place(health);
    assert!(
        said(&unhealthy).contains("the service may have no certificate yet"),
        "{}",
        said(&unhealthy)
    );
    let doctor = || service.run(&["doctor", "--acme", "id.example"]);
    let sick = tokio::task::block_in_place(doctor);
    assert_eq!(sick.status.code(), Some(1));
    assert!(
        shown(&sick).contains("MEND  certificate id.example: "),
        "{}",
        shown(&sick)
    );
    assert!(
        shown(&sick).contains("A or AAAA records of id.example")
            && shown(&sick).contains("systemctl reload idsvc"),
        "{}",
        shown(&sick)
    );
    let told = |what: &[&str]| {
        let events = tokio::task::block_in_place(|| service.run(&["events", "--json"]));
        what.iter().all(|what| shown(&events).contains(what))
    };
    until(async || told(&["certificate_failed", "said dns (dns)"])).await;
    running.kill();
    let stopped = tokio::task::block_in_place(doctor);
    assert!(
        shown(&stopped).contains("start the service, which orders one")
            && !shown(&stopped).contains("SIGHUP"),
        "{}",
        shown(&stopped)
    );

    authority.resolve("id.example", address);
    let mut running = service.start(&flags);
    await_readiness(&service, metrics, |status, body| {
        status == 503 && body.contains("the next order is made after")
    })
    .await;
    assert_eq!(
        authority.asked("/new-order").len(),
        1,
        "a restart waits as before"
    );
    running.signal("HUP");
    await_readiness(&service, metrics, |status, _| status == 200).await;
    assert!(authority.visit(address, "id.example").await.is_ok());
    for said in [
        "there is no certificate to read again yet",
        "not waiting any longer with the next order",
        "ordering a certificate: there is none that can be used",
    ] {
        service.logged(said);
    }
    assert!(!service.log().contains("unchanged"), "{}", service.log());
    let page = request(metrics, "GET", "/metrics", &[], "").unwrap().body;
    assert!(
        page.contains("idsvc_certificate_orders_total{outcome=\"issued\"} 1"),
        "{page}"
    );
    let expiry = page
        .lines()
        .find_map(|line| line.strip_prefix("idsvc_certificate_not_after_seconds "));
    assert!(expiry.unwrap().parse::<u64>().unwrap() > now() + 80 * DAY);
    running.terminate();

    let asked = authority.asked("/").len();
    let mut running = service.start(&flags);
    await_readiness(&service, metrics, |status, _| status == 200).await;
    assert!(authority.visit(address, "id.example").await.is_ok());
    let healthy = tokio::task::block_in_place(doctor);
    assert!(!shown(&healthy).contains("MEND"), "{}", shown(&healthy));
    running.terminate();
    assert_eq!(authority.asked("/").len(), asked, "a restart asks for nothing");

    assert!(told(&[
        "certificate_failed",
        "said dns (dns)",
        "certificate_issued",
        "id.example"
    ]));
    let issuer = service.run(&["config", "check", "--acme", "id.example", "--json"]);
    assert!(shown(&issuer).contains("https://id.example"), "{}", said(&issuer));
    let told = "there is no certificate for id.example yet: one is ordered";
    until(async || service.log().matches(told).count() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_made_at_once_but_not_twice_within_half_a_minute() {
    let authority = Authority::start().await;
    let (service, metrics) = service(&authority);
    let mut running = service.start(&["serve", "--acme", "id.example"]);
    let refused = |body: &str| body.contains("the next order is made after");
    await_readiness(&service, metrics, |_, body| refused(body)).await;
    assert_eq!(authority.asked("/new-order").len(), 1);
    let log_has = async |what: &str| {
        let start = Instant::now();
        while !service.log().contains(what) {
            assert!(
                start.elapsed() < Duration::from_mins(1),
                "{what}: {}",
                service.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    running.signal("HUP");
    log_has("not waiting any longer with the next order").await;
    running.signal("HUP");
    log_has("the next order has to wait").await;
    let line = service.log();
    let line = line
        .lines()
        .find(|line| line.contains("the next order has to wait"));
    assert!(line.unwrap().contains("next_attempt"), "{line:?}");
    running.kill();
    assert_eq!(authority.asked("/new-order").len(), 2);
}
