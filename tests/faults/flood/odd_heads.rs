//! Heads of HTTP/2 requests that no browser sends, and HTTP/2 where it is not spoken.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tokio::io::AsyncWriteExt;

use super::http_2::greet;
use super::target::{HTTP_1, HTTP_2, Target, issue, serve, service};
use crate::harness::frames::{
    self, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, Method, PREFACE, RST_STREAM, SETTINGS,
    frame, header_block,
};
use crate::harness::process::Service;

const DISCOVERY: &str = "/.well-known/openid-configuration";
/// `:status: 200` and `:status: 500` of the static table (RFC 7541 appendix A).
const OK: u8 = 0x88;
const INTERNAL: u8 = 0x8e;

/// A field with a name of its own (RFC 7541 section 6.2.2).
fn field(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        block.push(u8::try_from(text.len()).unwrap());
        block.extend_from_slice(text);
    }
}

fn block(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        field(&mut block, name, value);
    }
    block
}

/// A request for the discovery document, with more fields behind its own.
fn and(more: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut head = header_block(Method::Get, DISCOVERY);
    head.extend(block(more));
    head
}

type Field = (&'static [u8], &'static [u8]);
const GET: Field = (b":method", b"GET");
const HTTPS: Field = (b":scheme", b"https");
const PATH: Field = (b":path", b"/.well-known/openid-configuration");
const HOST: Field = (b":authority", b"localhost");

/// Heads that are malformed (RFC 9113 sections 8.1.1, 8.2 and 8.3), or of a method that is not offered.
fn refused() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("no method", block(&[HTTPS, PATH, HOST])),
        ("no scheme", block(&[GET, PATH, HOST])),
        ("no path", block(&[GET, HTTPS, HOST])),
        ("an empty path", block(&[GET, HTTPS, (b":path", b""), HOST])),
        (
            "a path without a slash",
            block(&[GET, HTTPS, (b":path", b"oauth2/jwks"), HOST]),
        ),
        (
            "a path with a space",
            block(&[GET, HTTPS, (b":path", b"/a b"), HOST]),
        ),
        (
            "a path with a line in it",
            block(&[GET, HTTPS, (b":path", b"/a\r\nx: y"), HOST]),
        ),
        ("two paths", and(&[PATH])),
        ("two methods", block(&[GET, GET, HTTPS, PATH, HOST])),
        (
            "a pseudo field behind another",
            block(&[GET, HTTPS, HOST, (b"x", b"y"), PATH]),
        ),
        (
            "an unknown pseudo field",
            block(&[GET, HTTPS, PATH, HOST, (b":x", b"y")]),
        ),
        ("a status", block(&[GET, HTTPS, PATH, HOST, (b":status", b"200")])),
        ("a name in upper case", and(&[(b"X-Y", b"z")])),
        ("an empty name", and(&[(b"", b"z")])),
        ("a name with a colon", and(&[(b"x:y", b"z")])),
        (
            "a value with a line in it",
            and(&[(b"x", b"a\r\nhost: evil.example")]),
        ),
        ("a value with a nought", and(&[(b"x", b"a\0b")])),
        ("connection", and(&[(b"connection", b"close")])),
        ("transfer-encoding", and(&[(b"transfer-encoding", b"chunked")])),
        ("a length without a body", and(&[(b"content-length", b"5")])),
        ("a length that is none", and(&[(b"content-length", b"-1")])),
        (
            "two lengths",
            and(&[(b"content-length", b"0"), (b"content-length", b"5")]),
        ),
        (
            "an authority that is none",
            block(&[GET, HTTPS, PATH, (b":authority", b"a b/c")]),
        ),
        ("CONNECT", block(&[(b":method", b"CONNECT"), HOST])),
        (
            "CONNECT to a path",
            block(&[(b":method", b"CONNECT"), HTTPS, PATH, HOST]),
        ),
        (
            "CONNECT for another protocol",
            block(&[
                (b":method", b"CONNECT"),
                (b":protocol", b"websocket"),
                HTTPS,
                PATH,
                HOST,
            ]),
        ),
        (
            "a method that is none",
            block(&[(b":method", b"G T"), HTTPS, PATH, HOST]),
        ),
        ("an index that is in no table", vec![0xff, 0xff, 0xff, 0xff, 0x7f]),
        (
            "a table that is too large",
            [
                &[0x3f, 0xff, 0xff, 0xff, 0x7f][..],
                &header_block(Method::Get, DISCOVERY),
            ]
            .concat(),
        ),
    ]
}

/// Heads that name another host, in all places. The answer has only the addresses of the configuration.
fn foreign() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        (
            "an authority with a user",
            block(&[GET, HTTPS, PATH, (b":authority", b"user@localhost")]),
        ),
        (
            "another authority",
            block(&[GET, HTTPS, PATH, (b":authority", b"evil.example")]),
        ),
        ("another host", and(&[(b"host", b"evil.example")])),
        (
            "a host alone",
            block(&[GET, HTTPS, PATH, (b"host", b"evil.example")]),
        ),
        ("another scheme", block(&[GET, (b":scheme", b"http"), PATH, HOST])),
        (
            "a whole address",
            block(&[
                GET,
                HTTPS,
                (b":path", b"https://evil.example/.well-known/openid-configuration"),
                HOST,
            ]),
        ),
        (
            "a forwarded host",
            and(&[
                (b"x-forwarded-host", b"evil.example"),
                (b"forwarded", b"host=evil.example"),
            ]),
        ),
    ]
}

/// How a request with this head ends: the first byte of the head of the answer, and its body; nothing of a refused one.
async fn answer(target: &Target, head: &[u8]) -> Option<(u8, Vec<u8>)> {
    let mut stream = greet(target.speaking(HTTP_2)).await.unwrap();
    let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, head);
    stream.write_all(&request).await.unwrap();
    stream.flush().await.unwrap();
    let (mut status, mut body) = (None, Vec::new());
    let reading = async {
        while let Ok(Frame {
            kind,
            flags,
            stream,
            payload,
        }) = frames::read(&mut stream).await
        {
            match (kind, stream) {
                (GOAWAY, _) | (RST_STREAM, 1) => return,
                (HEADERS, 1) => status = payload.iter().copied().find(|byte| !(0x20..0x40).contains(byte)),
                (DATA, 1) => body.extend(payload),
                _ => {}
            }
            if stream == 1 && flags & END_STREAM != 0 {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .unwrap();
    status.map(|status| (status, body))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_heads_are_refused_and_no_host_of_a_request_is_in_an_answer() {
    let service = service(1000);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let mut running = serve(&service, &target).await;
    let right = answer(&target, &header_block(Method::Get, DISCOVERY)).await;
    let (status, document) = right.unwrap();
    assert_eq!(status, OK);
    for (name, head) in refused() {
        let status = answer(&target, &head).await.map(|(status, _)| status);
        assert!(
            ![Some(OK), Some(INTERNAL)].contains(&status),
            "{name}: {status:?}"
        );
    }
    for (name, head) in foreign() {
        if let Some((status, body)) = answer(&target, &head).await {
            assert_ne!(status, INTERNAL, "{name}");
            assert!(
                status != OK || body == document,
                "{name}: {}",
                String::from_utf8_lossy(&body)
            );
        }
    }
    assert_eq!(running.ended(), None, "{}", service.log());
    assert!(!service.log().contains("panic"), "{}", service.log());
}

/// What the service answers to these bytes on plain HTTP, up to its end or a pause.
fn said_to(service: &Service, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", service.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Behind a proxy the service speaks HTTP/1 only.
#[test]
fn without_tls_nobody_gets_http_2() {
    let service = Service::new();
    let _running = service.serve();
    let preface = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frames::get(1, DISCOVERY)].concat();
    let answer = said_to(&service, &preface);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400 "),
        "{answer}"
    );
    let upgrade =
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\
        HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
    let answer = said_to(&service, upgrade);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(!answer.to_ascii_lowercase().contains("upgrade"), "{answer}");
    let mut connect = Vec::from(&b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n"[..]);
    connect.extend(upgrade);
    let answer = said_to(&service, &connect);
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}
