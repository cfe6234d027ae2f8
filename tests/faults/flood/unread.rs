//! Peers that send requests and never read the answers (CVE-2019-9511, CVE-2019-9517).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;

use super::target::{HTTP_1, HTTP_2, Target, bystander, issue, memory, serve, service, still_answers};
use crate::harness::frames::{self, HEADERS, PING, PREFACE, SETTINGS, frame, get};
use crate::harness::report::{amount, is_long, report};

/// As many requests as one HTTP/2 connection carries at once.
const REQUESTS: u32 = 32;
/// Longer than each timeout of a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(100);
/// How much memory all of them together may cost, in KiB.
const GROWTH: usize = 64 << 10;

/// A page that is rendered for each request.
const PAGE: &str = "/";

type Halves = (ReadHalf<TlsStream<TcpStream>>, WriteHalf<TlsStream<TcpStream>>);

/// A connection with so large a window for each answer (RFC 9113 section 6.5.2) that asks for `path` as often as it may.
async fn ask_on_http_2(target: &Target, path: &str, window: u32) -> Halves {
    const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
    let stream = target.speaking(HTTP_2).connect().await.unwrap();
    let settings = [&INITIAL_WINDOW_SIZE[..], &window.to_be_bytes()].concat();
    let mut bytes = [PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat();
    bytes.extend((0..REQUESTS).flat_map(|number| get(2 * number + 1, path)));
    let (reader, mut writer) = tokio::io::split(stream);
    writer.write_all(&bytes).await.unwrap();
    writer.flush().await.unwrap();
    (reader, writer)
}

/// Reads until all requests are answered but for the bodies, for which there is no window.
async fn take_the_heads((mut reader, writer): Halves) -> Halves {
    let mut heads = 0;
    while heads < REQUESTS {
        let frame = frames::read(&mut reader).await.unwrap();
        heads += u32::from(frame.kind == HEADERS);
    }
    (reader, writer)
}

/// Answers pings until the connection ends.
async fn answer_pings((mut reader, mut writer): Halves) {
    const ACK: u8 = 1;
    while let Ok(found) = frames::read(&mut reader).await {
        if found.kind == PING && found.flags & ACK == 0 {
            let _ = writer.write_all(&frame(PING, ACK, 0, &found.payload)).await;
            let _ = writer.flush().await;
        }
    }
}

/// Asks on, and reads nothing, for as long as anything is taken and until the connection ends.
async fn ask_on((_reader, mut writer): Halves, path: &'static str) {
    for number in (REQUESTS..).step_by(100) {
        let requests: Vec<_> = (number..number + 100)
            .flat_map(|number| get(2 * number + 1, path))
            .collect();
        if writer.write_all(&requests).await.is_err() || writer.flush().await.is_err() {
            return;
        }
    }
}

/// Asks on HTTP/1, without reading, for as long as anything is taken and until the connection ends.
async fn ask_on_http_1(target: Target, begun: &Semaphore) {
    let mut stream = target.connect().await.unwrap();
    let requests = b"GET /oauth2/jwks HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    begun.add_permits(1);
    while stream.write_all(&requests).await.is_ok() && stream.flush().await.is_ok() {}
}

/// The attackers.
#[derive(Clone, Copy, Debug)]
enum Unread {
    /// HTTP/2 without a window for the bodies.
    NoWindow,
    /// HTTP/2 with a window as large as can be, on a connection from which nothing is read.
    Http2,
    /// HTTP/1 with one request after the other.
    Http1,
}

async fn attack(target: Target, what: Unread, begun: Arc<Semaphore>) {
    const MOST: u32 = 0x7fff_ffff;
    match what {
        Unread::NoWindow => {
            let halves = take_the_heads(ask_on_http_2(&target, PAGE, 0).await).await;
            begun.add_permits(1);
            answer_pings(halves).await;
        }
        Unread::Http2 => {
            let halves = ask_on_http_2(&target, PAGE, MOST).await;
            begun.add_permits(1);
            ask_on(halves, PAGE).await;
        }
        Unread::Http1 => ask_on_http_1(target, &begun).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_and_never_reads_hinders_nobody_takes_little_memory_and_is_cut_off() {
    let service = service(1000);
    let connections = amount(50, 200);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let mut running = serve(&service, &target).await;
    let calm = bystander(&target, Duration::from_secs(1)).await;
    for what in [Unread::NoWindow, Unread::Http2, Unread::Http1] {
        let (started, begun) = (Instant::now(), Arc::new(Semaphore::new(0)));
        let before = memory(&running, "VmRSS");
        let mut attackers = JoinSet::new();
        for _ in 0..connections {
            attackers.spawn(attack(target.clone(), what, Arc::clone(&begun)));
        }
        let all = u32::try_from(connections).unwrap();
        drop(begun.acquire_many(all).await.unwrap());
        let disturbed = bystander(&target, Duration::from_secs(2)).await;
        let mut ended = 0;
        if is_long() {
            let each = async {
                while let Some(end) = attackers.join_next().await {
                    end.unwrap();
                    ended += 1;
                }
            };
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, each).await;
        }
        let grown = memory(&running, "VmHWM").saturating_sub(before);
        report(
            &format!("answers that nobody reads, {what:?}"),
            &format!(
                "others {:?} (calm {:?}), worst {:?} (calm {:?}); {} MiB more for {connections} connections, of which {ended} were ended within {:.0?}",
                disturbed.median,
                calm.median,
                disturbed.worst,
                calm.worst,
                grown >> 10,
                started.elapsed(),
            ),
        );
        assert_eq!(running.ended(), None, "{}", service.log());
        still_answers(calm, disturbed);
        assert!(grown < GROWTH, "{what:?}: {grown} KiB more");
        assert!(!is_long() || ended == connections, "{what:?}: attackers go on");
    }
}
