//! Peers that take their time, and peers that do nothing.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::target::{
    HTTP_1, Target, allow_files, ask, bystander, issue, memory, serve, service, still_answers,
};
use crate::harness::report::{amount, is_long, report};

/// Longer than each timeout of a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(100);
const SLOW: usize = 1000;

/// How many of these connections this machine permits. Reports it if there are fewer.
fn permitted(name: &str, wanted: usize) -> usize {
    let files = allow_files(std::process::id(), wanted + 1000);
    let count = wanted.min(files.saturating_sub(500));
    assert!(count > 0, "{files} open files are too few for any test");
    if count < wanted {
        report(
            name,
            &format!("NOT RUN with {wanted}: no more than {files} files may be open"),
        );
    }
    count
}

/// Sends one byte a second until the connection ends: whether that was in time.
async fn trickle<IO: AsyncReadExt + AsyncWriteExt + Unpin>(mut stream: IO, bytes: Vec<u8>) -> bool {
    let mut buffer = [0; 512];
    let all = async {
        for byte in bytes.iter().cycle() {
            if stream.write_all(&[*byte]).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            let pause = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut buffer));
            if let Ok(Ok(0) | Err(_)) = pause.await {
                return;
            }
        }
    };
    tokio::time::timeout(CLOSE_TIMEOUT, all).await.is_ok()
}

/// The part of a request that a slow peer sends slowly.
#[derive(Clone, Copy)]
enum Slow {
    Handshake,
    Header,
    Body,
}

async fn slow(target: Target, what: Slow) -> bool {
    match what {
        Slow::Handshake => {
            let record = [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &[7; 500]].concat();
            trickle(target.plain().await.unwrap(), record).await
        }
        Slow::Header => {
            let header = b"GET /oauth2/jwks HTTP/1.1\r\nX-Slow: very very very very slow".to_vec();
            trickle(target.connect().await.unwrap(), header).await
        }
        Slow::Body => {
            let mut stream = target.connect().await.unwrap();
            let head = "POST /oauth2/token HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            trickle(stream, b"a=b&".to_vec()).await
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_that_send_a_byte_a_second_hinder_nobody_and_are_cut_off() {
    let service = service(2 * SLOW);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let mut running = serve(&service, &target).await;
    let clients = permitted("slow clients", SLOW);
    let calm = bystander(&target, Duration::from_secs(1)).await;
    let (before, begun) = (memory(&running, "VmRSS"), Instant::now());
    let mut peers = JoinSet::new();
    for number in 0..clients {
        let what = match number % 4 {
            0 => Slow::Handshake,
            1 if is_long() => Slow::Body,
            _ => Slow::Header,
        };
        peers.spawn(slow(target.clone(), what));
    }
    let disturbed = bystander(&target, Duration::from_secs(3)).await;
    let cut = peers.join_all().await;
    let grown = memory(&running, "VmHWM").saturating_sub(before);
    report(
        "slow clients",
        &format!(
            "{clients} at a byte a second: others {:?} (calm {:?}), worst {:?} (calm {:?}); all cut off after {:.0?}; {} KiB each",
            disturbed.median,
            calm.median,
            disturbed.worst,
            calm.worst,
            begun.elapsed(),
            grown / clients
        ),
    );
    assert!(cut.iter().all(|was_cut| *was_cut), "slow clients go on");
    assert_eq!(running.ended(), None, "{}", service.log());
    assert!(grown < clients * 128, "{grown} KiB for {clients} slow clients");
    still_answers(calm, disturbed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_tls_connections_cost_little_and_end() {
    let count = permitted("idle TLS connections", amount(500, 10_000));
    let service = service(count + 500);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let mut running = serve(&service, &target).await;
    let permitted = allow_files(running.id(), count + 1000);
    assert!(permitted > count, "the service may open {permitted} files only");
    let calm = bystander(&target, Duration::from_secs(1)).await;
    let before = memory(&running, "VmRSS");
    let mut idle = Vec::new();
    let opened = Instant::now();
    while idle.len() < count {
        let mut batch = JoinSet::new();
        for _ in 0..50.min(count - idle.len()) {
            let target = target.clone();
            batch.spawn(async move {
                let mut stream = target.connect().await.unwrap();
                ask(&mut stream).await.unwrap();
                stream
            });
        }
        idle.extend(batch.join_all().await);
    }
    let opened = opened.elapsed();
    let open = std::fs::read_dir(format!("/proc/{}/fd", running.id()))
        .unwrap()
        .count();
    let disturbed = bystander(&target, Duration::from_secs(1)).await;
    let each = memory(&running, "VmHWM").saturating_sub(before) / count;
    report(
        "idle TLS connections",
        &format!(
            "{count} ({open} files open at once, opened in {opened:.1?}): others {:?} (calm {:?}), worst {:?} (calm {:?}); {each} KiB each",
            disturbed.median, calm.median, disturbed.worst, calm.worst
        ),
    );
    assert!(each < 96, "{each} KiB for an idle connection");
    still_answers(calm, disturbed);
    if is_long() {
        let mut buffer = [0; 64];
        for stream in &mut idle {
            let end = tokio::time::timeout(CLOSE_TIMEOUT, stream.read(&mut buffer)).await;
            assert!(matches!(end, Ok(Ok(0) | Err(_))), "an idle connection stays open");
        }
        let after = memory(&running, "VmRSS") >> 10;
        report(
            "idle TLS connections",
            &format!("all ended by the service; {after} MiB in use then"),
        );
    }
    assert_eq!(running.ended(), None, "{}", service.log());
}
