//! Sequences of HTTP/2 frames that cost a peer nothing and a careless server everything.

use std::collections::BTreeSet;
use std::io;
use std::slice;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;

use super::target::{
    HTTP_1, HTTP_2, Target, Waits, ask, bystander, issue, memory, serve, service, still_answers,
};
use crate::harness::frames::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, Method, PING, PREFACE,
    PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, get, header_block,
};
use crate::harness::port::free_port;
use crate::harness::process::Service;
use crate::harness::report::report;

const ATTACKERS: usize = 4;
/// Shorter than each timeout of a connection, so the flood must end the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);
/// How much memory a flood may cost, in KiB. The input is bounded for each connection.
const GROWTH: usize = 64 << 10;

/// The first bytes of an attacker, and the bytes of the n-th repetition.
struct Flood {
    name: &'static str,
    first: fn() -> Vec<u8>,
    then: fn(u32) -> Vec<u8>,
}

const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// A connection on which there was a request may be silent for a minute.
fn one_request() -> Vec<u8> {
    get(1, "/oauth2/jwks")
}

const FLOODS: [Flood; 12] = [
    Flood {
        name: "rapid reset (CVE-2023-44487)",
        first: Vec::new,
        then: |n| {
            let stream = 2 * n + 1;
            [get(stream, "/oauth2/jwks"), frame(RST_STREAM, 0, stream, &CANCEL)].concat()
        },
    },
    Flood {
        name: "resets made by the server",
        first: Vec::new,
        then: |n| {
            // A window that overflows makes the server reset the stream.
            let stream = 2 * n + 1;
            let most = 0x7fff_ffff_u32.to_be_bytes();
            [
                get(stream, "/oauth2/jwks"),
                frame(WINDOW_UPDATE, 0, stream, &most),
            ]
            .concat()
        },
    },
    Flood {
        name: "resets made by the server, by no window (CVE-2025-8671)",
        first: Vec::new,
        then: |n| {
            let stream = 2 * n + 1;
            [
                get(stream, "/oauth2/jwks"),
                frame(WINDOW_UPDATE, 0, stream, &[0; 4]),
            ]
            .concat()
        },
    },
    Flood {
        name: "resets made by the server, by bodies after the end",
        first: Vec::new,
        then: |n| {
            let stream = 2 * n + 1;
            [get(stream, "/oauth2/jwks"), frame(DATA, 0, stream, b"x")].concat()
        },
    },
    Flood {
        name: "resets made by the server, by priorities that depend on themselves",
        first: Vec::new,
        then: |n| {
            let stream = 2 * n + 1;
            let on_itself = [&stream.to_be_bytes()[..], &[1]].concat();
            [
                get(stream, "/oauth2/jwks"),
                frame(PRIORITY, 0, stream, &on_itself),
            ]
            .concat()
        },
    },
    Flood {
        name: "windows that are opened and closed",
        first: one_request,
        // The first window of each stream: none, and the largest one.
        then: |n| {
            let size = if n % 2 == 0 {
                [0; 4]
            } else {
                [0x7f, 0xff, 0xff, 0xff]
            };
            frame(SETTINGS, 0, 0, &[&[0, 4], &size[..]].concat())
        },
    },
    Flood {
        name: "CONTINUATION",
        first: || frame(HEADERS, 0, 1, &header_block(Method::Get, "/oauth2/jwks")),
        // A literal header without indexing: `x: y`.
        then: |_| frame(CONTINUATION, 0, 1, &[0, 1, b'x', 1, b'y'].repeat(100)),
    },
    Flood {
        name: "empty CONTINUATION",
        first: || frame(HEADERS, 0, 1, &header_block(Method::Get, "/oauth2/jwks")),
        then: |_| frame(CONTINUATION, 0, 1, &[]),
    },
    Flood {
        name: "empty DATA",
        first: || {
            let block = header_block(Method::Post, "/oauth2/token");
            frame(HEADERS, END_HEADERS, 1, &block)
        },
        then: |_| frame(DATA, 0, 1, &[]),
    },
    Flood {
        name: "SETTINGS",
        first: one_request,
        // The size of the header table, changed all the time.
        then: |n| frame(SETTINGS, 0, 0, &[0, 1, 0, 0, 16, u8::try_from(n % 2).unwrap()]),
    },
    Flood {
        name: "PING",
        first: one_request,
        then: |n| frame(PING, 0, 0, &u64::from(n).to_be_bytes()),
    },
    Flood {
        name: "PRIORITY",
        first: one_request,
        then: |n| frame(PRIORITY, 0, 2 * (n % 1000) + 3, &[0, 0, 0, 0, 1]),
    },
];

/// How a connection ended.
struct End {
    after: Duration,
    /// The code and text of the service's GOAWAY, if it could still be read.
    word: Option<(u32, String)>,
}

/// A connection that has said that it is one of HTTP/2 (RFC 9113 section 3.4).
pub(super) async fn greet(target: Target) -> io::Result<TlsStream<TcpStream>> {
    let mut stream = target.connect().await?;
    stream.write_all(PREFACE).await?;
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    Ok(stream)
}

/// Sends until the connection ends; nothing when it has not in time.
async fn attack(target: Target, flood: &'static Flood, reads: bool) -> Option<End> {
    const AT_ONCE: u32 = 32;
    let stream = greet(target).await.unwrap();
    let begun = Instant::now();
    let (mut reader, mut writer) = tokio::io::split(stream);
    let sending = async {
        writer.write_all(&(flood.first)()).await?;
        let mut n = 0;
        loop {
            let frames: Vec<u8> = (n..n + AT_ONCE).flat_map(|n| (flood.then)(n)).collect();
            writer.write_all(&frames).await?;
            writer.flush().await?;
            n += AT_ONCE;
            tokio::task::yield_now().await;
        }
        #[expect(unreachable_code, reason = "names the type of the error")]
        Ok::<(), std::io::Error>(())
    };
    let mut word = None;
    let reading = async {
        if !reads {
            return std::future::pending().await;
        }
        while let Ok(Frame { kind, payload, .. }) = frames::read(&mut reader).await {
            if let (GOAWAY, Some((code, text))) = (kind, payload.get(4..).and_then(<[u8]>::split_first_chunk))
            {
                word = Some((
                    u32::from_be_bytes(*code),
                    String::from_utf8_lossy(text).into_owned(),
                ));
            }
        }
    };
    let ended = async {
        tokio::select! {
            _ = sending => {}
            () = reading => {}
        }
    };
    tokio::time::timeout(CLOSE_TIMEOUT, ended).await.ok()?;
    Some(End {
        after: begun.elapsed(),
        word,
    })
}

/// Attacks one listener, and asks at another one meanwhile.
async fn under(target: &Target, attacked: &Target, flood: &'static Flood) -> (Waits, Vec<Option<End>>) {
    let mut attackers = JoinSet::new();
    for number in 0..ATTACKERS {
        attackers.spawn(attack(attacked.speaking(HTTP_2), flood, number % 2 == 0));
    }
    let disturbed = bystander(target, Duration::from_secs(1)).await;
    (disturbed, attackers.join_all().await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_frames_end_with_the_connection_and_others_are_answered_meanwhile() {
    let service = service(1000);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    flood_with(&service, &target, &target, &FLOODS).await;
}

/// There, too, a peer says nothing of who it is before its frames.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_where_clients_show_certificates_end_with_the_connection_too() {
    let port = free_port();
    let service = service(1000).with("IDSVC_TLS_MTLS_LISTEN", &format!("127.0.0.1:{port}"));
    let certificate = issue(&service);
    let target = Target::new(service.port, slice::from_ref(&certificate), HTTP_1);
    let attacked = Target::new(port, &[certificate], HTTP_1);
    flood_with(&service, &target, &attacked, &FLOODS[..6]).await;
}

async fn flood_with(service: &Service, target: &Target, attacked: &Target, floods: &'static [Flood]) {
    let mut running = serve(service, target).await;
    let calm = bystander(target, Duration::from_secs(1)).await;
    let before = memory(&running, "VmRSS");
    for flood in floods {
        let (disturbed, ends) = under(target, attacked, flood).await;
        assert_eq!(running.ended(), None, "{}: {}", flood.name, service.log());
        let ended: Vec<_> = ends.iter().flatten().collect();
        let words: BTreeSet<_> = ended.iter().filter_map(|end| end.word.as_ref()).collect();
        report(
            &format!("HTTP/2 {}", flood.name),
            &format!(
                "others {:?} (calm {:?}), worst {:?} (calm {:?}); {} of {ATTACKERS} attackers ended, the last after {:.1?}, told {words:?}; peak {} MiB",
                disturbed.median,
                calm.median,
                disturbed.worst,
                calm.worst,
                ended.len(),
                ended.iter().map(|end| end.after).max().unwrap_or_default(),
                memory(&running, "VmHWM") >> 10,
            ),
        );
        still_answers(calm, disturbed);
        assert_eq!(ended.len(), ATTACKERS, "{}: attackers go on", flood.name);
        let grown = memory(&running, "VmHWM").saturating_sub(before);
        assert!(grown < GROWTH, "{}: {grown} KiB more", flood.name);
    }
}

/// Forms whose bodies never come, behind headers that are short on the wire and long in memory: a field that is in the
/// table of the connection is one byte (RFC 7541 section 6.1), and an empty one counts 33 against the limit.
fn repeated_fields(requests: u32, fields: usize) -> Vec<u8> {
    const NEW_FIELD: [u8; 4] = [0x40, 1, b'a', 0];
    const NEWEST_FIELD: u8 = 0x80 + 62;
    (0..requests)
        .flat_map(|number| {
            let mut block = header_block(Method::Post, "/oauth2/token");
            block.extend(NEW_FIELD);
            block.resize(block.len() + fields - 1, NEWEST_FIELD);
            frame(HEADERS, END_HEADERS, 2 * number + 1, &block)
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_are_short_on_the_wire_and_long_in_memory_do_not_gather_there() {
    const CONNECTIONS: usize = 200;
    const STREAMS: u32 = 32;
    let service = service(1000).with("IDSVC_LIMITS_EXEMPT", "");
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let running = serve(&service, &target).await;
    for (name, fields) in [("too many fields", 420), ("as many fields as are taken", 95)] {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(greet(target.speaking(HTTP_2)).await.unwrap());
        }
        let before = memory(&running, "VmRSS");
        let sent = repeated_fields(STREAMS, fields);
        let mut attackers = JoinSet::new();
        for mut connection in connections {
            let sent = sent.clone();
            attackers.spawn(async move {
                connection.write_all(&sent).await.unwrap();
                connection.flush().await.unwrap();
                // Each is answered at once, but for the few that are waited for.
                let mut answers = 0;
                while answers < STREAMS {
                    let frame = frames::read(&mut connection).await.unwrap();
                    answers += u32::from(frame.kind == HEADERS);
                }
            });
        }
        attackers.join_all().await;
        let grown = memory(&running, "VmHWM").saturating_sub(before);
        report(
            &format!("HTTP/2 {name}"),
            &format!(
                "{CONNECTIONS} connections, {STREAMS} requests each: {} MiB more",
                grown >> 10
            ),
        );
        ask(&mut target.connect().await.unwrap()).await.unwrap();
        assert!(grown < GROWTH, "{name}: {grown} KiB more");
    }
}

/// The type of the frame that ends the answer on a stream; an error when the connection does.
async fn answered(reader: &mut (impl AsyncRead + Unpin), stream: u32) -> io::Result<u8> {
    loop {
        let frame = frames::read(reader).await?;
        if frame.stream == stream && (frame.kind == RST_STREAM || frame.flags & END_STREAM != 0) {
            return Ok(frame.kind);
        }
    }
}

#[tokio::test]
async fn a_connection_with_requests_on_it_may_carry_far_more_than_a_flood() {
    let service = service(1000);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let _running = serve(&service, &target).await;
    let (mut reader, mut writer) = tokio::io::split(greet(target.speaking(HTTP_2)).await.unwrap());
    let piece = [b'x'; 15 << 10];
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(1000);
    let mut sent = 0;
    for number in 0..40 {
        // A body of 60 KiB, and a thousand pings around it.
        let stream = 2 * number + 1;
        let mut bytes = frame(
            HEADERS,
            END_HEADERS,
            stream,
            &header_block(Method::Post, "/oauth2/token"),
        );
        for part in 0..4 {
            let flags = if part == 3 { END_STREAM } else { 0 };
            bytes.extend(frame(DATA, flags, stream, &piece));
            bytes.extend_from_slice(&pings[..pings.len() / 4]);
        }
        sent += bytes.len();
        let (written, answer) = tokio::join!(writer.write_all(&bytes), answered(&mut reader, stream));
        written.unwrap();
        answer.unwrap();
    }
    assert!(sent > 2 << 20, "{sent}");
    let last = get(81, "/oauth2/jwks");
    writer.write_all(&last).await.unwrap();
    assert_eq!(answered(&mut reader, 81).await.unwrap(), DATA);
}

#[tokio::test]
async fn one_connection_carries_32_requests_at_once_and_refuses_the_next() {
    const STREAMS: u32 = 32;
    const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];
    let service = service(1000);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let _running = serve(&service, &target).await;
    let (mut reader, mut writer) = tokio::io::split(greet(target.speaking(HTTP_2)).await.unwrap());
    // The bodies are waited for, and so nothing is answered.
    let head = |number: u32| {
        let block = header_block(Method::Post, "/oauth2/token");
        frame(HEADERS, END_HEADERS, 2 * number + 1, &block)
    };
    let requests: Vec<_> = (0..=STREAMS).flat_map(head).collect();
    writer.write_all(&requests).await.unwrap();
    let refused = first_about_a_stream(&mut reader).await;
    assert_eq!((refused.kind, refused.stream), (RST_STREAM, 2 * STREAMS + 1));
    assert_eq!(
        refused.payload, REFUSED_STREAM,
        "it may be asked again (RFC 9113 section 8.7)"
    );
    // When one of them is over there is room for another.
    let over = frame(RST_STREAM, 0, 1, &CANCEL);
    let next = get(2 * STREAMS + 3, "/oauth2/jwks");
    writer.write_all(&[over, next].concat()).await.unwrap();
    let answer = first_about_a_stream(&mut reader).await;
    assert_eq!((answer.kind, answer.stream), (HEADERS, 2 * STREAMS + 3));
}

async fn first_about_a_stream(reader: &mut (impl AsyncRead + Unpin)) -> Frame {
    loop {
        let frame = frames::read(reader).await.unwrap();
        if frame.stream != 0 {
            return frame;
        }
    }
}

/// How long after its answer the rest of a body on this stream is refused.
async fn refused_after(reader: &mut (impl AsyncRead + Unpin), stream: u32) -> Duration {
    assert_ne!(answered(reader, stream).await.unwrap(), RST_STREAM);
    let begun = Instant::now();
    loop {
        let frame = frames::read(reader).await.unwrap();
        if frame.stream == stream && frame.kind == RST_STREAM {
            assert_eq!(frame.payload, [0; 4], "NO_ERROR (RFC 9113 section 8.1)");
            return begun.elapsed();
        }
    }
}

#[tokio::test]
async fn a_body_that_nobody_reads_is_refused_when_its_sender_has_had_time_to_read_the_answer() {
    let service = service(1000);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let _running = serve(&service, &target).await;
    let (mut reader, mut writer) = tokio::io::split(greet(target.speaking(HTTP_2)).await.unwrap());
    let mut longest = Duration::ZERO;
    for (number, path) in (0..).zip(["/nothing", "/oauth2/jwks", "/nothing/else"]) {
        let stream = 2 * number + 1;
        let head = frame(HEADERS, END_HEADERS, stream, &header_block(Method::Post, path));
        let part = frame(DATA, 0, stream, &[b'x'; 15 << 10]);
        writer.write_all(&[head, part].concat()).await.unwrap();
        longest = longest.max(refused_after(&mut reader, stream).await);
    }
    // A peer that is kept from reading sees both at once. One of them must not.
    assert!(longest >= Duration::from_millis(100), "{longest:?}");
}
