//! The limits on a connection: header and body arrive in time, and the header has a bounded size. The tests run the
//! real executable over TLS in both versions of HTTP, and without TLS for HTTP/1 alone.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use idsvc::route::{FIXED, Route};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::harness::Server;
use crate::harness::frames::{PREFACE, SETTINGS, frame};
use crate::harness::port::free_port;
use crate::harness::process::request;
use crate::harness::tls::{HTTP_1, HTTP_2, Target, ask, issue, serve, service};

const FORM: &str = "application/x-www-form-urlencoded";

/// The body of a request, of which nothing ever comes.
struct Never;

impl Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

/// A client of HTTP/2.
struct Http2(SendRequest<BoxBody<Bytes, Infallible>>);

impl Http2 {
    async fn to(target: &Target) -> Self {
        let stream = target.speaking(HTTP_2).connect().await.unwrap();
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    /// The answer to a request without a body.
    async fn ask(&mut self, method: Method, path: &str, headers: &[(String, String)]) -> Response<Incoming> {
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.uri(format!("https://localhost{path}"));
        let request = request.body(BoxBody::new(Empty::new())).unwrap();
        self.0.send_request(request).await.unwrap()
    }

    /// The status of the answer to a request for the keys, with these headers and more in the query.
    async fn get(&mut self, query: &str, headers: &[(String, String)]) -> StatusCode {
        let path = format!("/oauth2/jwks{query}");
        self.ask(Method::GET, &path, headers).await.status()
    }

    /// The status of the answer to a form that never comes.
    async fn post_never(&mut self) -> StatusCode {
        let request = Request::builder()
            .method(Method::POST)
            .uri("https://localhost/oauth2/token")
            .header("content-type", FORM)
            .body(BoxBody::new(Never))
            .unwrap();
        self.0.send_request(request).await.unwrap().status()
    }
}

/// Asks once if `is_kept`, sends these bytes, and reads what comes until the service ends the connection.
async fn unfinished(target: Target, is_kept: bool, sent: Vec<u8>) -> String {
    let mut stream = target.connect().await.unwrap();
    if is_kept {
        ask(&mut stream).await.unwrap();
    }
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut answer = Vec::new();
    let sending = async {
        writer.write_all(&sent).await?;
        writer.flush().await
    };
    // The connection may end before all is said, and without a goodbye.
    let _ = tokio::join!(sending, reader.read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

/// Ten seconds, as they are seen from outside on a machine that has other things to do.
fn is_ten_seconds(time: Duration) -> bool {
    Duration::from_secs(8) < time && time < Duration::from_secs(30)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_or_a_body_is_waited_for_ten_seconds() {
    let service = service(1000);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let _running = serve(&service, &target).await;
    let head = "GET /oauth2/jwks HTTP/1.1\r\nHost: local";
    let body = format!(
        "POST /oauth2/token HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\nContent-Length: 30\r\n\r\ngrant_type="
    );
    let greeting = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let mut peers = JoinSet::new();
    let cases = [
        ("nothing at all", HTTP_1, false, Vec::new(), ""),
        ("half a header", HTTP_1, false, head.into(), ""),
        ("half of a second header", HTTP_1, true, head.into(), ""),
        ("half a body", HTTP_1, false, body.into(), "HTTP/1.1 408 "),
    ];
    for (what, protocol, is_kept, sent, answer) in cases {
        let target = target.speaking(protocol);
        peers.spawn(async move {
            let begun = Instant::now();
            let got = unfinished(target, is_kept, sent).await;
            assert!(
                got.starts_with(answer) && got.is_empty() == answer.is_empty(),
                "{what}: {got}"
            );
            (what, begun.elapsed())
        });
    }
    let of_http_2 = target.clone();
    peers.spawn(async move {
        let mut client = Http2::to(&of_http_2).await;
        let begun = Instant::now();
        assert_eq!(client.post_never().await, StatusCode::REQUEST_TIMEOUT);
        let time = begun.elapsed();
        assert_eq!(
            client.get("", &[]).await,
            StatusCode::OK,
            "its connection goes on"
        );
        ("no body on HTTP/2", time)
    });
    let silent = target.speaking(HTTP_2);
    peers.spawn(async move {
        let begun = Instant::now();
        unfinished(silent, false, greeting).await;
        ("no request on HTTP/2", begun.elapsed())
    });
    for (what, time) in peers.join_all().await {
        assert!(is_ten_seconds(time), "{what}: {time:?}");
    }
    ask(&mut target.connect().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_header_of_more_than_16_kib_or_100_fields_is_refused_in_both_versions_of_http() {
    let service = service(1000);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let _running = serve(&service, &target).await;
    let one = |length: usize| vec![("x-long".to_owned(), "~".repeat(length))];
    let many = |count: usize| {
        (0..count)
            .map(|n| (format!("x-{n}"), "~".to_owned()))
            .collect::<Vec<_>>()
    };
    let query = |length: usize| format!("?{}", "x".repeat(length));
    let mut client = Http2::to(&target).await;
    for (query, headers, is_refused) in [
        (String::new(), one(17 << 10), true),
        (String::new(), one(15 << 10), false),
        (String::new(), many(500), true),
        (String::new(), many(101), true),
        (String::new(), many(98), false),
        (query(17 << 10), Vec::new(), true),
        (query(15 << 10), Vec::new(), false),
        (query(10 << 10), one(10 << 10), true),
        (String::new(), Vec::new(), false),
    ] {
        let expected = if is_refused {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
        } else {
            StatusCode::OK
        };
        let what = format!("a query of {}, {} headers", query.len(), headers.len());
        assert_eq!(client.get(&query, &headers).await, expected, "{what} on HTTP/2");
        let mut head =
            format!("GET /oauth2/jwks{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        for (name, value) in &headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        let answer = unfinished(target.clone(), false, head.into()).await;
        let status = format!("HTTP/1.1 {} ", expected.as_str());
        assert!(answer.starts_with(&status), "{what}: {answer}");
    }
}

/// Status and headers of an answer, but for those that no two answers share, and how long its body is.
async fn measured(answer: Response<Incoming>) -> (StatusCode, HeaderMap, usize) {
    let (mut parts, body) = answer.into_parts();
    for name in ["date", "x-request-id"] {
        assert!(parts.headers.remove(name).is_some(), "{name}");
    }
    // The value of a cookie is random, so only its name is compared.
    if let Some(cookie) = parts.headers.get_mut("set-cookie") {
        let name = cookie.to_str().unwrap().split('=').next().unwrap();
        *cookie = name.parse().unwrap();
    }
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status, parts.headers, body.len())
}

/// RFC 9110 section 9.3.2. On HTTP/2 a body is a protocol error (RFC 9113 section 8.1.1).
#[tokio::test]
async fn head_is_told_what_get_is_but_for_the_body_in_both_versions_of_http() {
    let service = service(1000);
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let _running = serve(&service, &target).await;
    let mut http_2 = Http2::to(&target).await;
    let stream = TokioIo::new(target.connect().await.unwrap());
    let (mut http_1, connection) = http1::handshake(stream).await.unwrap();
    tokio::spawn(connection);

    let page = http_2.ask(Method::GET, "/logged-out", &[]).await;
    let page = page.into_body().collect().await.unwrap().to_bytes();
    let page = std::str::from_utf8(&page).unwrap();
    let linked = page.split('"').filter_map(Route::recognise);
    let files: Vec<_> = linked
        .filter(|route| matches!(route, Route::ThemeFile(_)))
        .collect();
    assert!(!files.is_empty(), "{page}");
    let others = [
        Route::Asset("none.css".to_owned()),
        Route::FederationLogo("none".to_owned()),
    ];
    let routes = FIXED.iter().chain(&files).chain(&others);
    let routes: Vec<_> = routes
        .filter(|route| route.methods().contains(&Method::HEAD))
        .collect();
    assert!(routes.len() > 10);
    for (name, value) in [("authorization", "Bearer x"), ("accept", "text/html")] {
        let headers = [(name.to_owned(), value.to_owned())];
        for route in &routes {
            let path = route.path();
            let got = measured(http_2.ask(Method::GET, &path, &headers).await).await;
            let (status, fields, length) = &got;
            assert_eq!(fields["content-length"], *length.to_string(), "{path}");
            let told = (*status, fields.clone(), 0);
            let head = http_2.ask(Method::HEAD, &path, &headers).await;
            assert_eq!(measured(head).await, told, "{path} on HTTP/2");
            for (method, expected) in [(Method::GET, &got), (Method::HEAD, &told)] {
                let request = Request::builder().method(&method).uri(&*path);
                let request = request.header("host", "localhost").header(name, value);
                let request = request.body(Empty::<Bytes>::new()).unwrap();
                let answer = measured(http_1.send_request(request).await.unwrap()).await;
                assert_eq!(answer, *expected, "{method} {path} on HTTP/1");
            }
        }
    }
}

/// Sends these pieces, with a moment between them, and reads what comes until the service ends the connection: whole
/// answers, not cut off by a reset.
async fn said_to(server: &Server, pieces: &[&str]) -> String {
    let (mut reader, mut writer) = server.connect().await.into_split();
    let mut answers = String::new();
    let sending = async {
        for piece in pieces {
            // The service may have closed by now; what it said is what counts.
            let _ = writer.write_all(piece.as_bytes()).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let reading = tokio::time::timeout(Duration::from_mins(1), reader.read_to_string(&mut answers));
    let ((), read) = tokio::join!(sending, reading);
    read.unwrap().unwrap();
    answers
}

/// RFC 9112 section 9.6: a peer loses the next request that it sends on a connection that ends.
#[tokio::test]
async fn a_body_that_nobody_reads_ends_the_connection_and_the_answer_says_so() {
    let server = Server::start().await;
    let (small, large) = ("0123456789", "x".repeat(60_000));
    let head = |request: &str, length: usize| {
        format!("{request} HTTP/1.1\r\nHost: a\r\nContent-Type: {FORM}\r\nContent-Length: {length}\r\n\r\n")
    };
    let chunked = "POST /nothing HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let is_last = |answers: &str, status: &str| {
        answers.starts_with(status)
            && answers.matches("HTTP/1.1 ").count() == 1
            && answers.contains("\r\nconnection: close\r\n")
    };
    let next = "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    for (request, status) in [
        ("POST /nothing", "HTTP/1.1 404 "),
        ("PUT /oauth2/token", "HTTP/1.1 405 "),
        ("GET /oauth2/jwks", "HTTP/1.1 200 "),
    ] {
        for body in [small, &large] {
            let answers = said_to(&server, &[&head(request, body.len()), body]).await;
            assert!(is_last(&answers, status), "{request}, {}: {answers}", body.len());
            let answers = said_to(&server, &[&(head(request, body.len()) + body), next]).await;
            assert!(is_last(&answers, status), "{request}, {}: {answers}", body.len());
        }
    }
    let answers = said_to(&server, &[chunked, "5\r\nhello\r\n", "0\r\n\r\n"]).await;
    assert!(is_last(&answers, "HTTP/1.1 404 "), "{answers}");
    let here = "127.0.0.1".parse().unwrap();
    let room: Vec<_> = (0..128)
        .map(|_| server.app.permit_for_body(64 * 1024, here).unwrap())
        .collect();
    let answers = said_to(&server, &[&head("POST /oauth2/token", large.len()), &large]).await;
    assert!(is_last(&answers, "HTTP/1.1 503 "), "{answers}");
    drop(room);
    for read in [
        head("POST /oauth2/token", small.len()) + small,
        chunked.replace("nothing", "oauth2/token") + "5\r\nhello\r\n0\r\n\r\n",
        "POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".to_owned(),
    ] {
        let answers = said_to(&server, &[&read, next]).await;
        assert_eq!(answers.matches("HTTP/1.1 ").count(), 2, "{answers}");
        assert_eq!(answers.matches("connection: close").count(), 1, "{answers}");
    }
}

/// RFC 9112 section 3.2.
#[tokio::test]
async fn a_request_that_does_not_name_one_host_is_refused() {
    let server = Server::start().await;
    for (version, hosts, status) in [
        ("1.1", "", 400),
        ("1.1", "Host: a\r\nHost: a\r\n", 400),
        ("1.1", "Host: a b\r\n", 400),
        ("1.1", "Host: a/b\r\n", 400),
        ("1.1", "Host: a:8443\r\n", 200),
        ("1.0", "Host: a\r\nHost: b\r\n", 400),
        ("1.0", "Host: a\r\n", 200),
        ("1.0", "", 200),
    ] {
        let request = format!("GET /healthz HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n");
        let answer = said_to(&server, &[&request]).await;
        assert!(
            answer.starts_with(&format!("HTTP/{version} {status} ")),
            "{request}{answer}"
        );
    }
}

#[tokio::test]
async fn plain_http_is_redirected_to_the_same_path_at_the_issuer_whatever_host_it_names() {
    let redirect_port = free_port();
    let service = service(64).with("IDSVC_REDIRECT_PORT", &redirect_port.to_string());
    let certificate = issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let _running = serve(&service, &target).await;
    let issuer = format!("https://localhost:{}", service.port);
    for (method, asked, path) in [
        (
            "GET",
            "/oauth2/authorize?state=a%2Fb",
            "/oauth2/authorize?state=a%2Fb",
        ),
        ("POST", "/oauth2/token", "/oauth2/token"),
        ("GET", "http://evil.example/login", "/login"),
        ("GET", "//evil.example/", "//evil.example/"),
        ("OPTIONS", "*", "/"),
    ] {
        let headers = [("X-Forwarded-Host", "evil.example")];
        let reply = tokio::task::spawn_blocking(move || request(redirect_port, method, asked, &headers, ""))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(reply.status, 308, "{asked}");
        assert_eq!(reply.header("location"), Some(format!("{issuer}{path}").as_str()));
    }
}
