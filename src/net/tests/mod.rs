//! Tests of the server over real sockets, with well-behaved and misbehaving peers.

mod cap;
mod certificates;
mod http_2;
mod key_exchange;
mod stopping;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::alpn::{HTTP_1_1, HTTP_2};
use super::listener::Listener;
use super::tls::Acceptor;
use super::{FailedRequest, Limits, Peer};

const SHORT: Duration = Duration::from_millis(100);
/// A test that takes this long has failed.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Controls `/slow`: it notifies `begun`, then waits for `go_on`.
#[derive(Clone, Default)]
struct Slow {
    begun: Arc<Notify>,
    go_on: Arc<Notify>,
}

struct Server {
    address: SocketAddr,
    slow: Slow,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(limits: Limits, tls: Option<Acceptor>) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), limits, tls).await
    }

    async fn start_on(address: IpAddr, limits: Limits, tls: Option<Acceptor>) -> Self {
        let listener = Listener::bind(&[(address, 0).into()], limits).await.unwrap();
        let listener = listener.with_fallback(|FailedRequest { status, peer, .. }| {
            let answer = Response::builder().status(status);
            let answer = answer.header("x-fallback", peer.tls.to_string());
            answer.body(Full::default()).unwrap()
        });
        let address = listener.local_addrs()[0];
        let slow = Slow::default();
        let (stop, stopped) = oneshot::channel::<()>();
        let waiting = slow.clone();
        let service = move |request: Request<Incoming>, peer: Peer| answer(request, peer, waiting.clone());
        let task = tokio::spawn(listener.serve(tls, service, async {
            let _ = stopped.await;
        }));
        Self {
            address,
            slow,
            stop,
            task,
        }
    }

    async fn plain(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

async fn answer(request: Request<Incoming>, peer: Peer, slow: Slow) -> Response<Full<Bytes>> {
    let text = match request.uri().path() {
        "/panic" => panic!("a panic on purpose"),
        "/never" => std::future::pending().await,
        "/slow" => {
            slow.begun.notify_one();
            slow.go_on.notified().await;
            "slow".to_owned()
        }
        _ => format!("tls={} from {}", peer.tls, peer.addr.ip()),
    };
    Response::new(Full::from(text))
}

async fn in_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(TEST_TIMEOUT, future).await.unwrap()
}

/// All that the server sends until it closes. A reset counts as closing.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let _ = in_time(stream.read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends a request and reads one answer whose body ends with `end`.
async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &[u8], end: &str) -> String {
    stream.write_all(request).await.unwrap();
    let mut text = String::new();
    while !text.ends_with(end) {
        let mut buffer = [0; 1024];
        let count = in_time(stream.read(&mut buffer)).await.unwrap();
        assert_ne!(count, 0, "closed after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
    }
    text
}

fn self_signed(directory: &TempDir) -> (Acceptor, CertificateDer<'static>) {
    let acceptor = Acceptor::self_signed(directory.path(), &[], UnixTime::now().as_secs()).unwrap();
    (acceptor, certificate_in(&directory.path().join("certs")))
}

fn certificate_in(directory: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(directory.join("self-signed.pem")).unwrap()
}

/// A client that trusts this certificate.
fn client_config(provider: CryptoProvider, certificate: &CertificateDer<'static>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

async fn secured(
    server: &Server,
    certificate: &CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = client_config(default_provider(), certificate);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    connect(server, &Arc::new(config)).await
}

async fn connect(server: &Server, config: &Arc<ClientConfig>) -> std::io::Result<TlsStream<TcpStream>> {
    let connector = TlsConnector::from(Arc::clone(config));
    let name = ServerName::try_from("localhost").unwrap();
    in_time(connector.connect(name, server.plain().await)).await
}

#[tokio::test]
async fn a_connection_carries_one_request_after_another() {
    let server = Server::start(Limits::default(), None).await;
    let mut peer = server.plain().await;
    for _ in 0..3 {
        let text = ask(&mut peer, GET, "from 127.0.0.1").await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.ends_with("tls=false from 127.0.0.1"), "{text}");
    }
}

#[tokio::test]
async fn a_peer_that_never_sends_a_request_is_dropped() {
    let limits = Limits {
        header_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::start(limits, None).await;
    assert_eq!(rest(&mut server.plain().await).await, "");
}

#[tokio::test]
async fn a_header_that_trickles_in_is_not_waited_for_even_after_a_good_request() {
    let limits = Limits {
        header_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::start(limits, None).await;
    let mut peer = server.plain().await;
    ask(&mut peer, GET, "from 127.0.0.1").await;
    let (mut read, mut write) = peer.into_split();
    let trickle = tokio::spawn(async move {
        write.write_all(b"GET / HTTP/1.1\r\nx: ").await.unwrap();
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    });
    assert_eq!(rest(&mut read).await, "");
    in_time(trickle).await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let limits = Limits {
        idle_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::start(limits, None).await;
    let mut peer = server.plain().await;
    ask(&mut peer, GET, "from 127.0.0.1").await;
    assert_eq!(rest(&mut peer).await, "");
}

#[tokio::test]
async fn a_header_over_the_limit_is_431() {
    let server = Server::start(Limits::default(), None).await;
    for over in [
        format!(
            "GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
            "x".repeat(16 * 1024)
        ),
        format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(2_000)),
        format!("GET /?{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(16 * 1024)),
    ] {
        let mut peer = server.plain().await;
        let mut text = String::new();
        let (mut read, mut write) = peer.split();
        let send = async {
            let _ = write.write_all(over.as_bytes()).await;
        };
        let ((), answer) = tokio::join!(send, rest(&mut read));
        text.push_str(&answer);
        assert!(text.starts_with("HTTP/1.1 431 "), "{text:?}");
    }
    let fits = format!(
        "GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n",
        "x".repeat(15 * 1024)
    );
    ask(&mut server.plain().await, fits.as_bytes(), "from 127.0.0.1").await;
}

#[tokio::test]
async fn a_panic_is_a_500_and_the_next_request_is_served() {
    let server = Server::start(Limits::default(), None).await;
    let mut peer = server.plain().await;
    let text = ask(&mut peer, b"GET /panic HTTP/1.1\r\nhost: a\r\n\r\n", "\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 500 "), "{text}");
    assert!(text.contains("x-fallback: false\r\n"), "{text}");
    ask(&mut peer, GET, "from 127.0.0.1").await;
    ask(&mut server.plain().await, GET, "from 127.0.0.1").await;
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_a_503() {
    let limits = Limits {
        request_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::start(limits, None).await;
    let mut peer = server.plain().await;
    let text = ask(&mut peer, b"GET /never HTTP/1.1\r\nhost: a\r\n\r\n", "\r\n\r\n").await;
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    assert!(text.contains("x-fallback: false\r\n"), "{text}");
}

/// hyper answers these by itself; they have no body, and there is no hook to add a header.
#[tokio::test]
async fn a_header_that_is_no_request_is_answered_without_a_body() {
    let server = Server::start(Limits::default(), None).await;
    let mut peer = server.plain().await;
    peer.write_all(b"NO HTTP AT ALL\r\n\r\n").await.unwrap();
    let text = rest(&mut peer).await;
    assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
    assert!(
        text.contains("content-length: 0\r\n") && text.ends_with("\r\n\r\n"),
        "{text}"
    );
}

#[tokio::test]
async fn one_address_gets_no_more_connections_than_its_share() {
    let limits = Limits {
        max_connections_per_address: 2,
        ..Limits::default()
    };
    let server = Server::start(limits, None).await;
    let mut first = server.plain().await;
    let mut second = server.plain().await;
    ask(&mut first, GET, "from 127.0.0.1").await;
    ask(&mut second, GET, "from 127.0.0.1").await;
    assert_eq!(rest(&mut server.plain().await).await, "");
    drop(first);
    let again = async {
        loop {
            let mut peer = server.plain().await;
            let _ = peer.write_all(GET).await;
            if matches!(peer.read(&mut [0; 64]).await, Ok(count) if count > 0) {
                return;
            }
        }
    };
    in_time(again).await;
}

#[tokio::test]
async fn one_address_gets_no_more_than_half_of_the_connections_that_there_are() {
    let limits = Limits {
        max_connections: 4,
        header_timeout: Duration::from_hours(1),
        ..Limits::default()
    };
    let server = Server::start(limits, None).await;
    let (mut first, mut second) = (server.plain().await, server.plain().await);
    ask(&mut first, GET, "from 127.0.0.1").await;
    ask(&mut second, GET, "from 127.0.0.1").await;
    assert_eq!(rest(&mut server.plain().await).await, "");
}

/// A socket for both versions of IP names such a peer by an IPv6 address.
#[tokio::test]
async fn a_peer_that_comes_by_ipv4_to_an_ipv6_socket_goes_by_its_ipv4_address() {
    let limits = Limits {
        max_connections_per_address: 0,
        uncounted: vec!["127.0.0.0/8".parse().unwrap()],
        ..Limits::default()
    };
    let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
    let server = Server::start_on(mapped.into(), limits, None).await;
    assert!(server.address.is_ipv6());
    let mut peer = server.plain().await;
    ask(&mut peer, GET, "from 127.0.0.1").await;
}

#[tokio::test]
async fn a_silent_tls_peer_is_dropped() {
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let limits = Limits {
        handshake_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::start(limits, Some(acceptor)).await;
    assert_eq!(rest(&mut server.plain().await).await, "");
    let mut peer = secured(&server, &certificate, &[]).await.unwrap();
    let text = ask(&mut peer, GET, "from 127.0.0.1").await;
    assert!(text.contains("tls=true"), "{text}");
}

#[tokio::test]
async fn plain_http_at_the_port_for_tls_is_a_400_in_words_and_then_closed() {
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let server = Server::start(Limits::default(), Some(acceptor)).await;
    for request in [
        GET,
        b"POST /slow HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\na=b",
    ] {
        let mut peer = server.plain().await;
        peer.write_all(request).await.unwrap();
        let text = rest(&mut peer).await;
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
        assert!(text.contains("connection: close\r\n"), "{text}");
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(body.contains("https://"), "{text}");
    }
    // Neither TLS nor HTTP.
    let mut peer = server.plain().await;
    peer.write_all(&[0x80, 0x2e, 1, 0, 2]).await.unwrap();
    assert!(!rest(&mut peer).await.contains("HTTP/1.1"));
    let mut peer = secured(&server, &certificate, &[]).await.unwrap();
    ask(&mut peer, GET, "from 127.0.0.1").await;
}

#[tokio::test]
async fn the_peer_chooses_the_http_version() {
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let server = Server::start(Limits::default(), Some(acceptor)).await;

    let mut peer = secured(&server, &certificate, &[HTTP_1_1]).await.unwrap();
    assert_eq!(peer.get_ref().1.alpn_protocol(), Some(HTTP_1_1));
    ask(&mut peer, GET, "from 127.0.0.1").await;

    let mut peer = secured(&server, &certificate, &[HTTP_2, HTTP_1_1]).await.unwrap();
    assert_eq!(peer.get_ref().1.alpn_protocol(), Some(HTTP_2));
    peer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    assert_eq!(frame(&mut peer).await.0, SETTINGS);

    let mut peer = secured(&server, &certificate, &[b"http/1.0"]).await.unwrap();
    ask(&mut peer, GET, "from 127.0.0.1").await;

    assert!(secured(&server, &certificate, &[b"spdy/3"]).await.is_err());
}

const HEADERS: u8 = 1;
const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;

/// The type and the payload of the next HTTP/2 frame (RFC 9113 section 4.1).
async fn frame(peer: &mut (impl AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let mut header = [0; 9];
    in_time(peer.read_exact(&mut header)).await.unwrap();
    let length = usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]);
    let mut payload = vec![0; length];
    in_time(peer.read_exact(&mut payload)).await.unwrap();
    (header[3], payload)
}

async fn frame_of(peer: &mut (impl AsyncRead + Unpin), kind: u8) -> Vec<u8> {
    first_of(peer, &[kind]).await.1
}

async fn first_of(peer: &mut (impl AsyncRead + Unpin), kinds: &[u8]) -> (u8, Vec<u8>) {
    loop {
        let found = frame(peer).await;
        if kinds.contains(&found.0) {
            return found;
        }
    }
}

/// A peer that sends requests and reads no answer is cut off after the idle timeout.
#[tokio::test]
async fn who_asks_and_never_reads_is_cut_off() {
    let limits = Limits {
        header_timeout: SHORT,
        idle_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::start(limits, None).await;
    let mut peer = server.plain().await;
    let requests = GET.repeat(1000);
    let asking = async { while peer.write_all(&requests).await.is_ok() {} };
    in_time(asking).await;
}

#[tokio::test]
async fn a_peer_that_sends_no_more_after_its_request_gets_the_answer() {
    async fn is_answered(server: &Server, mut peer: impl AsyncRead + AsyncWrite + Unpin) {
        let slow = b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n";
        peer.write_all(slow).await.unwrap();
        peer.shutdown().await.unwrap();
        in_time(server.slow.begun.notified()).await;
        // Until the end of what the peer sends has arrived for certain.
        tokio::time::sleep(SHORT).await;
        server.slow.go_on.notify_one();
        assert!(rest(&mut peer).await.ends_with("slow"));
    }
    let plain = Server::start(Limits::default(), None).await;
    is_answered(&plain, plain.plain().await).await;
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let secure = Server::start(Limits::default(), Some(acceptor)).await;
    is_answered(
        &secure,
        secured(&secure, &certificate, &[HTTP_1_1]).await.unwrap(),
    )
    .await;
}

#[tokio::test]
async fn a_peer_that_is_gone_holds_its_connection_no_longer_than_a_request_may_take() {
    let limits = Limits {
        max_connections: 1,
        uncounted: vec!["127.0.0.0/8".parse().unwrap()],
        request_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::start(limits, None).await;
    let mut gone = server.plain().await;
    gone.write_all(b"GET /never HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await
        .unwrap();
    drop(gone);
    ask(&mut server.plain().await, GET, "from 127.0.0.1").await;
    // One that has asked for nothing holds it no longer at all.
    server.plain().await.shutdown().await.unwrap();
    ask(&mut server.plain().await, GET, "from 127.0.0.1").await;
}
