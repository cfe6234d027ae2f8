//! TLS as the server speaks it, and the exchange of certificates under running connections.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::ProducesTickets;
use rustls::sign::SingleCertAndKey;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificate::{self, Pair};

/// The protocol name of HTTP/2 over TLS (RFC 9113 section 3.1).
pub const HTTP_2: &[u8] = b"h2";
/// The protocol name of HTTP/1.1 (RFC 7301 section 6).
pub const HTTP_1_1: &[u8] = b"http/1.1";

/// The least time between two looks at the certificate's files.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// Why TLS cannot be offered with the certificate and key at hand.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or closed to this user.
    #[error("cannot read {}: {source}", file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// A file is cut off or damaged.
    #[error("{} is not valid PEM", .0.display())]
    NotPem(PathBuf),
    /// The certificate file holds none.
    #[error("no certificate in {}", .0.display())]
    NoCertificate(PathBuf),
    /// The key file holds none.
    #[error("no private key in {}", .0.display())]
    NoKey(PathBuf),
    /// The key is protected by a passphrase.
    #[error("the private key in {} is encrypted; store it without a passphrase, readable by this user only", .0.display())]
    EncryptedKey(PathBuf),
    /// The two files do not belong together.
    #[error("the key in {} does not belong to the certificate in {}", key.display(), certificate.display())]
    KeyMismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The certificate is of a kind that cannot name a host.
    #[error("the certificate in {} is X.509 version 1, which clients refuse: have it issued as version 3", .0.display())]
    Version1(PathBuf),
    /// The TLS library does not take them, as with an unsupported kind of key.
    #[error("cannot use the certificate in {}: {source}", certificate.display())]
    Refused {
        /// The certificate's file.
        certificate: PathBuf,
        /// What the library says.
        source: rustls::Error,
    },
    /// The self-signed certificate cannot be kept.
    #[error("cannot write {}: {source}", file.display())]
    Unwritable {
        /// Which file or directory.
        file: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// No certificate can be made for these names.
    #[error("cannot make a self-signed certificate: {0}")]
    Unmakeable(String),
    /// The library cannot be set up at all.
    #[error("cannot set up TLS: {0}")]
    Setup(rustls::Error),
}

/// Accepts TLS connections with whatever certificate is current. A clone shares it.
#[derive(Clone, Debug)]
pub struct Acceptor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Source,
    tickets: Arc<dyn ProducesTickets>,
    current: ArcSwap<ServerConfig>,
    /// What `current` was made of; held while it is replaced.
    fingerprint: Mutex<u64>,
}

#[derive(Debug)]
enum Source {
    Files { certificate: PathBuf, key: PathBuf },
    SelfSigned { directory: PathBuf, names: Vec<String> },
}

impl Source {
    fn read(&self, now_unix_seconds: u64) -> Result<Pair, TlsError> {
        match self {
            Self::Files { certificate, key } => Pair::read(certificate, key),
            Self::SelfSigned { directory, names } => {
                certificate::self_signed(directory, names, now_unix_seconds)
            }
        }
    }
}

impl Acceptor {
    /// Reads a PEM certificate chain, the server's own first, and its PEM private key.
    ///
    /// A certificate that has expired, or is not valid yet, is logged and used: peers that check will say
    /// so, and the rest keeps working.
    pub fn from_files(certificate: &Path, key: &Path, now_unix_seconds: u64) -> Result<Self, TlsError> {
        let source = Source::Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
        };
        Self::new(source, now_unix_seconds)
    }

    /// Uses the self-signed certificate in `directory/certs`, and makes one for localhost, its addresses
    /// and `names` when there is none, when it is for other names, or when it is about to expire.
    pub fn self_signed(directory: &Path, names: &[String], now_unix_seconds: u64) -> Result<Self, TlsError> {
        let source = Source::SelfSigned {
            directory: directory.to_owned(),
            names: names.to_vec(),
        };
        Self::new(source, now_unix_seconds)
    }

    fn new(source: Source, now_unix_seconds: u64) -> Result<Self, TlsError> {
        let pair = source.read(now_unix_seconds)?;
        let fingerprint = pair.fingerprint();
        let tickets = rustls::crypto::ring::Ticketer::new().map_err(TlsError::Setup)?;
        let config = server_config(&pair, Arc::clone(&tickets), now_unix_seconds)?;
        Ok(Self(Arc::new(Inner {
            source,
            tickets,
            current: ArcSwap::from_pointee(config),
            fingerprint: Mutex::new(fingerprint),
        })))
    }

    /// Reads the certificate and key again; true when they changed. Connections that are open keep the old
    /// ones, and so does everybody when this fails.
    pub fn reload(&self, now_unix_seconds: u64) -> Result<bool, TlsError> {
        let inner = &self.0;
        let mut fingerprint = inner.fingerprint.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = inner.source.read(now_unix_seconds)?;
        let found = pair.fingerprint();
        if *fingerprint == found {
            return Ok(false);
        }
        let config = server_config(&pair, Arc::clone(&inner.tickets), now_unix_seconds)?;
        inner.current.store(Arc::new(config));
        *fingerprint = found;
        Ok(true)
    }

    /// Reloads every `interval`, for ever. `now` says the time in seconds since the epoch.
    ///
    /// The files are read and compared whole: they are small, and neither their times nor their inodes can
    /// be relied on when they are mounted or linked. A fault is logged when it begins, not each time.
    pub async fn watch(self, interval: Duration, now: impl Fn() -> u64 + Send) {
        let mut last_fault = None;
        loop {
            tokio::time::sleep(interval.max(SHORTEST_INTERVAL)).await;
            let (acceptor, now) = (self.clone(), now());
            let reloaded = tokio::task::spawn_blocking(move || acceptor.reload(now)).await;
            let fault = match reloaded {
                Ok(Ok(changed)) => {
                    if changed {
                        tracing::info!("new certificate in use");
                    }
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            if let Some(error) = fault.as_ref().filter(|_| fault != last_fault) {
                tracing::error!(%error, "keeping the old certificate");
            }
            last_fault = fault;
        }
    }

    /// The handshake, with the certificate that is current when it begins.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        TlsAcceptor::from(self.0.current.load_full()).accept(stream).await
    }
}

/// TLS 1.2 and 1.3, no client certificates, tickets that need no memory here.
fn server_config(
    pair: &Pair,
    tickets: Arc<dyn ProducesTickets>,
    now_unix_seconds: u64,
) -> Result<ServerConfig, TlsError> {
    if let Some(warning) = pair.expiry_warning(now_unix_seconds) {
        tracing::warn!(file = %pair.certificate_file.display(), "{warning}");
    }
    let certified = Arc::new(SingleCertAndKey::from(pair.certified_key()?));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_no_client_auth()
        .with_cert_resolver(certified);
    config.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1_1.to_vec()];
    config.ticketer = tickets;
    Ok(config)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
