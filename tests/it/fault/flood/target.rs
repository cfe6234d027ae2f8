//! The real binary behind TLS, what it costs, and a bystander who measures how it answers.

use std::fs;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::process::{Running, Service};

pub(super) const HTTP_1: &[u8] = b"http/1.1";
pub(super) const HTTP_2: &[u8] = b"h2";

/// A service with a certificate of its own.
pub(super) fn service(connections: usize) -> Service {
    let service = Service::new();
    let file = |name: &str| service.folder.path().join(name).to_str().unwrap().to_owned();
    let (certificate, key) = (file("cert.pem"), file("key.pem"));
    let port = service.port;
    service
        .with("IDSVC_BASE_URL", &format!("https://localhost:{port}"))
        .with("IDSVC_TLS_MODE", "files")
        .with("IDSVC_TLS_CERT", &certificate)
        .with("IDSVC_TLS_KEY", &key)
        .with("IDSVC_LIMITS_CONNECTIONS", &connections.to_string())
        .with("IDSVC_LOG_LEVEL", "warn")
}

/// A new certificate and key for localhost, in the service's folder.
pub(super) fn issue(service: &Service) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let folder = service.folder.path();
    fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    certificate.der().clone()
}

/// Where it listens, and whom to believe.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) port: u16,
    config: Arc<ClientConfig>,
}

impl Target {
    pub(super) fn new(port: u16, trusted: &[CertificateDer<'static>], protocol: &[u8]) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in trusted {
            roots.add(certificate.clone()).unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        // Every handshake is a whole one, and shows the certificate.
        config.resumption = Resumption::disabled();
        Self {
            port,
            config: Arc::new(config),
        }
    }

    /// The same service in another version of HTTP.
    pub(super) fn speaking(&self, protocol: &[u8]) -> Self {
        let mut config = (*self.config).clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        Self {
            port: self.port,
            config: Arc::new(config),
        }
    }

    pub(super) async fn plain(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    pub(super) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::clone(&self.config));
        connector.connect(name, self.plain().await?).await
    }
}

/// Asks for the keys on an open connection; an error unless the whole answer comes and is a success.
pub(super) async fn ask(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
    stream
        .write_all(b"GET /oauth2/jwks HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await?;
        answer.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            if length.is_some_and(|length| length.parse() == Ok(body.len())) {
                return if head.starts_with("HTTP/1.1 200 ") {
                    Ok(())
                } else {
                    Err(io::Error::other(head.to_owned()))
                };
            }
        }
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Starts the service and waits until it answers.
pub(super) async fn serve<'a>(service: &'a Service, target: &Target) -> Running<'a> {
    let mut running = service.launch();
    let begun = Instant::now();
    loop {
        if let Ok(mut stream) = target.connect().await
            && ask(&mut stream).await.is_ok()
        {
            return running;
        }
        assert!(
            running.ended().is_none() && begun.elapsed() < Duration::from_mins(1),
            "{}",
            service.log()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// What a bystander waited for answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) count: usize,
    pub(super) median: Duration,
    pub(super) worst: Duration,
}

/// Asks again and again for so long, every fourth time on a new connection. Each question is answered, or this fails.
pub(super) async fn bystander(target: &Target, during: Duration) -> Waits {
    let begun = Instant::now();
    let mut waits = Vec::new();
    let mut kept = target.connect().await.unwrap();
    while begun.elapsed() < during {
        let asked = Instant::now();
        if waits.len().is_multiple_of(4) {
            kept = target.connect().await.unwrap();
        }
        ask(&mut kept).await.unwrap();
        waits.push(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    waits.sort();
    Waits {
        count: waits.len(),
        median: waits[waits.len() / 2],
        worst: *waits.last().unwrap(),
    }
}

/// Fails when others were kept waiting out of all proportion. The attackers share the machine with the service, so
/// the proportion is generous: what it has to catch is a service that stands still.
pub(super) fn still_answers(calm: Waits, disturbed: Waits) {
    let least = Duration::from_millis(25);
    assert!(disturbed.count > 0);
    assert!(
        disturbed.median < calm.median.max(least) * 40,
        "others wait: {calm:?}, then {disturbed:?}"
    );
    assert!(
        disturbed.worst < calm.worst.max(least) * 200,
        "others wait: {calm:?}, then {disturbed:?}"
    );
}

/// A size of the process in KiB: `VmRSS`, or `VmHWM` for the most it ever was.
pub(super) fn memory(running: &Running<'_>, name: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    kib.parse().unwrap()
}

/// Lets a process open that many files, or as many as the machine permits: how many that are.
pub(super) fn allow_files(process: u32, wanted: usize) -> usize {
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let mut numbers = line.split_whitespace().skip(3);
    let mut next = || {
        numbers
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(usize::MAX)
    };
    let (soft, hard): (usize, usize) = (next(), next());
    let wish = |hard: usize| format!("--nofile={wanted}:{hard}");
    if soft < wanted {
        for hard in [hard.max(wanted), hard] {
            let raised = Command::new("prlimit")
                .args(["--pid", &process.to_string(), &wish(hard)])
                .output();
            if raised.is_ok_and(|output| output.status.success()) {
                return wanted;
            }
        }
    }
    soft.min(wanted)
}
