//! The certificate is replaced while requests come in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use tokio::task::JoinSet;

use super::target::{HTTP_1, Target, ask, issue, serve, service};
use crate::harness::report::{amount, report};

async fn shown(target: &Target) -> CertificateDer<'static> {
    let stream = target.connect().await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_replaced_under_load_and_no_request_fails() {
    let service = service(1000);
    let mut later: Vec<_> = (0..amount(3, 20)).map(|_| keep(&service)).collect();
    let first = issue(&service);
    let mut trusted: Vec<_> = later
        .iter()
        .map(|(certificate, ..)| certificate.clone())
        .collect();
    trusted.push(first.clone());
    let target = Target::new(service.port, &trusted, HTTP_1);
    let running = serve(&service, &target).await;
    assert_eq!(shown(&target).await, first);
    let over = Arc::new(AtomicBool::new(false));
    let mut load = JoinSet::new();
    for number in 0..4_usize {
        let (target, over) = (target.clone(), Arc::clone(&over));
        load.spawn(async move {
            let mut kept = target.connect().await.unwrap();
            let mut count = 0_usize;
            while !over.load(Ordering::Relaxed) {
                if number.is_multiple_of(2) {
                    kept = target.connect().await.unwrap();
                }
                ask(&mut kept).await.unwrap();
                count += 1;
            }
            count
        });
    }
    let replaced = later.len();
    for (certificate, pem, key) in later.drain(..) {
        std::fs::write(service.folder.path().join("cert.pem"), pem).unwrap();
        std::fs::write(service.folder.path().join("key.pem"), key).unwrap();
        running.signal("HUP");
        let begun = Instant::now();
        while shown(&target).await != certificate {
            assert!(begun.elapsed() < Duration::from_mins(1), "{}", service.log());
        }
    }
    over.store(true, Ordering::Relaxed);
    let requests: usize = load.join_all().await.into_iter().sum();
    assert!(requests > replaced);
    report(
        "certificates",
        &format!("{replaced} replaced during {requests} requests, none failed"),
    );
}

/// A certificate for later: itself, and the two files.
fn keep(service: &crate::harness::process::Service) -> (CertificateDer<'static>, Vec<u8>, Vec<u8>) {
    let certificate = issue(service);
    let read = |name: &str| std::fs::read(service.folder.path().join(name)).unwrap();
    (certificate, read("cert.pem"), read("key.pem"))
}
