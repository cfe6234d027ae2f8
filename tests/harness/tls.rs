//! The real executable behind TLS, and the way to it.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::process::{Running, Service};

pub(crate) const HTTP_1: &[u8] = b"http/1.1";
pub(crate) const HTTP_2: &[u8] = b"h2";

/// A service with a certificate of its own.
pub(crate) fn service(connections: usize) -> Service {
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
pub(crate) fn issue(service: &Service) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let folder = service.folder.path();
    fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    certificate.der().clone()
}

/// Its address, and the trusted certificate.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) port: u16,
    config: Arc<ClientConfig>,
}

impl Target {
    pub(crate) fn new(port: u16, trusted: &[CertificateDer<'static>], protocol: &[u8]) -> Self {
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
    pub(crate) fn speaking(&self, protocol: &[u8]) -> Self {
        let mut config = (*self.config).clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        Self {
            port: self.port,
            config: Arc::new(config),
        }
    }

    pub(crate) async fn plain(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    pub(crate) async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::clone(&self.config));
        connector.connect(name, self.plain().await?).await
    }

    /// The handshake on a connection of a thread that may wait.
    pub(crate) fn secure(
        &self,
        mut stream: std::net::TcpStream,
    ) -> io::Result<StreamOwned<ClientConnection, std::net::TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(Arc::clone(&self.config), name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(tls, stream))
    }
}

/// Asks for the keys on an open connection; an error unless the whole answer comes and is a success.
pub(crate) async fn ask(stream: &mut TlsStream<TcpStream>) -> io::Result<()> {
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
pub(crate) async fn serve<'a>(service: &'a Service, target: &Target) -> Running<'a> {
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
