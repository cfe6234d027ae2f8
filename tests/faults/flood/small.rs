//! A service with little memory, which a control group ends if it takes more; and memory after a load.

use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;

use super::target::{HTTP_1, Target, allow_files, ask, issue, memory, serve, service};
use crate::harness::process::Service;
use crate::harness::report::{amount, report};
use crate::memory_group::MemoryGroup;

const BATCH: usize = 50;

/// Opens a connection, has a request answered, and sends this; nothing if the service does not let it in.
async fn open(target: Target, beginning: Vec<u8>) -> Option<TlsStream<TcpStream>> {
    let opened = tokio::time::timeout(Duration::from_secs(5), async {
        let mut stream = target.connect().await?;
        ask(&mut stream).await?;
        stream.write_all(&beginning).await?;
        std::io::Result::Ok(stream)
    });
    opened.await.ok()?.ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_64_mib_the_service_lives_through_5000_connections_and_answers() {
    let name = "connections with 64 MiB of memory";
    let group = match MemoryGroup::new(64 << 20) {
        Ok(group) => group,
        Err(reason) => return report(name, &format!("NOT RUN: {reason}")),
    };
    let attempts = amount(1500, 5000);
    let files = allow_files(std::process::id(), attempts + 1000);
    assert!(files > attempts, "{files} open files are too few");
    let service = service(0)
        .without("IDSVC_LIMITS_CONNECTIONS")
        .with("IDSVC_LOG_LEVEL", "info")
        .by(&group.wrapper());
    let target = Target::new(service.port, &[issue(&service)], HTTP_1);
    let mut running = serve(&service, &target).await;
    let log = service.logged("sized for the memory");
    assert!(
        log.contains("the limit of the control group") && log.contains("\"mib\":64"),
        "{log}"
    );
    let (mut kept, mut answered) = (Vec::new(), 0);
    for _ in 0..attempts / BATCH {
        let mut batch = JoinSet::new();
        for _ in 0..BATCH {
            batch.spawn(open(target.clone(), Vec::new()));
        }
        let opened = batch.join_all().await;
        answered += opened.iter().flatten().count();
        kept.extend(opened);
    }
    let most = memory(&running, "RssAnon");
    // A header that is long and has no end, on as many connections as there can be.
    let header = [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", &[b'a'; 15_000][..]].concat();
    let mut batch = JoinSet::new();
    for _ in 0..6 * BATCH {
        batch.spawn(open(target.clone(), header.clone()));
    }
    kept.extend(batch.join_all().await);
    let most = most.max(memory(&running, "RssAnon"));
    drop(kept);
    let served = tokio::time::timeout(Duration::from_secs(30), async {
        let mut stream = target.connect().await?;
        ask(&mut stream).await
    });
    served.await.unwrap().unwrap();
    report(
        name,
        &format!(
            "{attempts} attempts, {answered} answered, at most {} MiB in use",
            most >> 10
        ),
    );
    assert_eq!(running.ended(), None, "{}", service.log());
    assert_eq!(group.kills(), 0);
    running.kill();
}

/// The metadata of a client with as many keys as there may be.
fn metadata_with_keys(number: usize) -> String {
    let key = |index: u8| {
        let mut modulus: Vec<u8> = (0..512_usize)
            .map(|at| (at * 167 + number * 31).to_le_bytes()[0] ^ index)
            .collect();
        modulus[0] |= 0x80;
        modulus[511] |= 1;
        let n = URL_SAFE_NO_PAD.encode(modulus);
        json!({ "kty": "RSA", "alg": "RS256", "use": "sig", "kid": index.to_string(), "n": n, "e": "AQAB" })
    };
    let metadata = json!({
        "redirect_uris": ["https://app.example/cb"],
        "client_name": format!("client {number}"),
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": { "keys": [key(0), key(1), key(2), key(3)] },
    });
    metadata.to_string()
}

/// Also after a restart: what is in the store is read again.
#[test]
fn with_64_mib_the_service_lives_with_all_that_strangers_can_register() {
    let name = "registered clients with 64 MiB of memory";
    let group = match MemoryGroup::new(64 << 20) {
        Ok(group) => group,
        Err(reason) => return report(name, &format!("NOT RUN: {reason}")),
    };
    let service = Service::new()
        .with("IDSVC_CLIENTS_REGISTRATION", "open")
        .with("IDSVC_LIMITS_ENABLED", "false")
        .by(&group.wrapper());
    let (registrations, sign_ins) = (amount(1500, 10_000), amount(5, 60));
    let mut most = 0;
    let mut running = service.serve();
    for number in 0..registrations {
        let headers = [("Content-Type", "application/json")];
        let reply = running.request("POST", "/oauth2/register", &headers, &metadata_with_keys(number));
        let reply = reply.unwrap_or_else(|| panic!("no answer to registration {number}: {}", service.log()));
        assert_eq!(reply.status, 201, "{}", reply.body);
    }
    for is_restarted in [false, true] {
        if is_restarted {
            running.terminate();
            running = service.serve();
        }
        for _ in 0..sign_ins {
            let typed = running
                .type_in("/account", "nobody@example.com", "a wrong password")
                .0;
            assert!(typed.status < 500, "{}", typed.status);
            thread::sleep(Duration::from_secs(1));
        }
        most = most.max(memory(&running, "RssAnon"));
    }
    assert_eq!(running.ended(), None, "{}", service.log());
    assert_eq!(group.kills(), 0);
    report(
        name,
        &format!(
            "{registrations} registrations, {sign_ins} sign-ins twice, at most {} MiB in use",
            most >> 10
        ),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_load_memory_is_given_back() {
    let count = amount(500, 5000);
    let files = allow_files(std::process::id(), count + 1000);
    assert!(files > count, "{files} open files are too few");
    let service = service(count + BATCH);
    let target = Target::new(service.port, &[issue(&service)], HTTP_1);
    let mut running = serve(&service, &target).await;
    let before = memory(&running, "RssAnon");
    let mut kept = Vec::new();
    while kept.len() < count {
        let mut batch = JoinSet::new();
        for _ in 0..BATCH {
            batch.spawn(open(target.clone(), Vec::new()));
        }
        kept.extend(batch.join_all().await);
    }
    let grown = memory(&running, "RssAnon").saturating_sub(before);
    assert!(grown > count * 8, "{grown} KiB for {count} connections");
    drop(kept);
    let begun = Instant::now();
    let mut left = grown;
    while left > grown / 2 {
        assert!(
            begun.elapsed() < Duration::from_mins(2),
            "{left} of {grown} KiB are left"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
        left = memory(&running, "RssAnon").saturating_sub(before);
    }
    report(
        "memory after a load",
        &format!(
            "{count} connections took {grown} KiB, {left} are left after {:.0?}",
            begun.elapsed()
        ),
    );
    assert_eq!(running.ended(), None, "{}", service.log());
}
