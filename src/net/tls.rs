//! The server's TLS, and the replacement of certificates while connections are open.

use std::fmt;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::pki_types::CertificateDer;
use rustls::server::ResolvesServerCert;
use rustls::sign::SingleCertAndKey;
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use super::certificate::{self, Pair};
use super::certificate_file::CertificateFolder;
use super::chain::{self, ChainWarning, KnownRoots};
use super::challenge::Challenges;
use super::client_certificate::ClientCertificates;
use super::self_signed;
use super::tls_config::{NoCertificate, mtls_config, server_config};
use super::tls_error::TlsError;
use super::validity::{ExpiryWarning, Validity};

/// The interval of a repeated warning, in seconds.
const DAY: u64 = 24 * 60 * 60;
/// The shortest interval between two reads of the certificate's files.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// Accepts TLS connections with the current certificate. A clone shares it.
#[derive(Clone, Debug)]
pub struct Acceptor {
    inner: Arc<Inner>,
    asks_for_certificates: bool,
}

#[derive(Debug)]
struct Inner {
    source: Source,
    current: ArcSwap<Current>,
    /// The fingerprint of the pair in `current`. Locked while `current` is replaced.
    fingerprint: Mutex<Option<u64>>,
    challenges: Option<ChallengeResponder>,
}

/// The open challenges, and the TLS configuration that answers them.
#[derive(Debug)]
struct ChallengeResponder {
    challenges: Challenges,
    config: Arc<ServerConfig>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    /// The configuration that asks for client certificates.
    mtls_config: Arc<ServerConfig>,
    validity: Option<Validity>,
    chain: Vec<CertificateDer<'static>>,
}

#[derive(Debug)]
enum Source {
    Files {
        certificate: PathBuf,
        key: PathBuf,
        /// The host of the service's address.
        host: Option<String>,
        known_roots: KnownRoots,
    },
    SelfSigned {
        directory: PathBuf,
        names: Vec<String>,
    },
    Acme {
        folder: CertificateFolder,
        domains: Vec<String>,
    },
}

impl Source {
    /// The pair to use. None until the certificate authority has issued one.
    fn read(&self, now_unix_seconds: u64) -> Result<Option<Pair>, TlsError> {
        match self {
            Self::Files { certificate, key, .. } => Pair::read(certificate, key).map(Some),
            Self::SelfSigned { directory, names } => {
                self_signed::self_signed(directory, names, now_unix_seconds).map(Some)
            }
            // The ACME task replaces a certificate that cannot be used, and logs why.
            Self::Acme { folder, domains } => Ok(Pair::read_for_some(folder, domains).unwrap_or_default()),
        }
    }

    /// Logs what the operator must do about their files.
    fn warn(&self, pair: &Pair, now_unix_seconds: u64) {
        let Self::Files {
            host,
            key,
            known_roots,
            ..
        } = self
        else {
            return;
        };
        if let Some(exposure) = certificate::exposure_warning(key, "the private key") {
            tracing::warn!("{exposure}");
        }
        self.warn_of(self.expiry_warning(pair.validity(), now_unix_seconds));
        if let Some(mismatch) = host.as_deref().and_then(|host| pair.mismatch_warning(host)) {
            tracing::warn!(file = %pair.certificate_file.display(), "{mismatch}");
        }
        self.warn_of(self.chain_warning(&pair.chain, now_unix_seconds));
        let followed = chain::follow(&pair.chain, known_roots, now_unix_seconds);
        self.warn_of(followed.ok().and_then(|followed| followed.end.warning()));
    }

    /// The warning about a chain that the operator must correct.
    fn chain_warning(&self, chain: &[CertificateDer<'_>], now_unix_seconds: u64) -> Option<ChainWarning> {
        match self {
            Self::Files { known_roots, .. } => ChainWarning::at(now_unix_seconds, chain, known_roots),
            Self::SelfSigned { .. } | Self::Acme { .. } => None,
        }
    }

    /// The warning about a certificate that the operator must renew. The service renews the other kinds itself.
    fn expiry_warning(&self, validity: Option<Validity>, now_unix_seconds: u64) -> Option<ExpiryWarning> {
        match self {
            Self::Files { .. } => ExpiryWarning::at(now_unix_seconds, validity),
            Self::SelfSigned { .. } | Self::Acme { .. } => None,
        }
    }

    fn warn_of(&self, warning: Option<impl fmt::Display>) {
        if let (Self::Files { certificate, .. }, Some(warning)) = (self, warning) {
            tracing::warn!(file = %certificate.display(), "{warning}");
        }
    }
}

/// Repeats a warning: when the condition begins or changes, and once a day while it lasts.
struct DailyReminder<T>(Option<(T, u64)>);

impl<T: PartialEq> DailyReminder<T> {
    /// Whether a warning about the condition is due at `now`. The condition is none if all is well.
    fn is_due(&mut self, condition: Option<T>, now: u64) -> bool {
        let Some(condition) = condition else {
            self.0 = None;
            return false;
        };
        if let Some((last, at)) = &self.0
            && *last == condition
            && now.abs_diff(*at) < DAY
        {
            return false;
        }
        self.0 = Some((condition, now));
        true
    }
}

impl Acceptor {
    /// Reads a PEM certificate chain, the server's own first, and its PEM private key.
    ///
    /// A certificate that has expired, is not valid yet, or is not for `host`, the host of the service, is logged and used,
    /// and so is a chain that does not lead to `known_roots`: clients that check it refuse it, and the others keep working.
    pub fn from_files(
        certificate: &Path,
        key: &Path,
        host: Option<String>,
        known_roots: KnownRoots,
        now_unix_seconds: u64,
    ) -> Result<Self, TlsError> {
        let source = Source::Files {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            host,
            known_roots,
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

    /// Uses the certificate that ACME stored in a data directory, if it is for these domains. Without a certificate, only
    /// the authority's handshakes succeed.
    pub fn acme(data_dir: &Path, domains: &[String], now_unix_seconds: u64) -> Result<Self, TlsError> {
        let source = Source::Acme {
            folder: CertificateFolder::of(data_dir),
            domains: domains.to_vec(),
        };
        Self::new(source, now_unix_seconds)
    }

    fn new(source: Source, now_unix_seconds: u64) -> Result<Self, TlsError> {
        let pair = source.read(now_unix_seconds)?;
        let current = match &pair {
            Some(pair) => {
                let current = Current::of(pair)?;
                source.warn(pair, now_unix_seconds);
                current
            }
            None => Current::new(Arc::new(NoCertificate), None, Vec::new())?,
        };
        let challenges = match source {
            Source::Acme { .. } => {
                let challenges = Challenges::default();
                let config = Arc::new(challenges.server_config()?);
                Some(ChallengeResponder { challenges, config })
            }
            Source::Files { .. } | Source::SelfSigned { .. } => None,
        };
        let inner = Arc::new(Inner {
            source,
            current: ArcSwap::from_pointee(current),
            fingerprint: Mutex::new(pair.map(|pair| pair.fingerprint())),
            challenges,
        });
        Ok(Self {
            inner,
            asks_for_certificates: false,
        })
    }

    /// The same certificate, for a listener that asks clients for theirs.
    #[must_use]
    pub fn with_client_certificates(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            asks_for_certificates: true,
        }
    }

    /// The certificates that the client of a connection showed. `None` if it was not asked for any.
    pub(super) fn certificates_of(&self, connection: &ServerConnection) -> Option<ClientCertificates> {
        self.asks_for_certificates
            .then(|| ClientCertificates::of(connection))
    }

    /// The last second of the certificate in use. None without a certificate.
    pub fn not_after(&self) -> Option<u64> {
        self.inner
            .current
            .load()
            .validity
            .map(|validity| validity.not_after)
    }

    /// Whether there is a certificate to show.
    pub fn has_certificate(&self) -> bool {
        let fingerprint = self
            .inner
            .fingerprint
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        fingerprint.is_some()
    }

    /// The challenges that it answers. None if the certificate does not come by ACME.
    pub fn challenges(&self) -> Option<&Challenges> {
        let responder = self.inner.challenges.as_ref()?;
        Some(&responder.challenges)
    }

    /// Reads the certificate and key again, and returns whether they changed. Open connections keep the old ones. If this
    /// fails, new connections get the old ones too.
    pub fn reload(&self, now_unix_seconds: u64) -> Result<bool, TlsError> {
        let inner = &self.inner;
        let mut fingerprint = inner.fingerprint.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pair) = inner.source.read(now_unix_seconds)? else {
            return Ok(false);
        };
        let found = Some(pair.fingerprint());
        if *fingerprint == found {
            return Ok(false);
        }
        let current = Current::of(&pair)?;
        inner.source.warn(&pair, now_unix_seconds);
        inner.current.store(Arc::new(current));
        *fingerprint = found;
        Ok(true)
    }

    /// Logs the warnings about the certificate again.
    pub fn warn_again(&self, now_unix_seconds: u64) {
        if let Ok(Some(pair)) = self.inner.source.read(now_unix_seconds) {
            self.inner.source.warn(&pair, now_unix_seconds);
        }
    }

    /// Reloads every `interval` until it is cancelled. `now` returns the time in seconds since the epoch.
    ///
    /// The files are read and compared as a whole: they are small, and neither times nor inodes are reliable with mounts or
    /// links. An error is logged when it begins and once a day while it lasts, and so are the warnings that the certificate
    /// in use expires or has expired, and that clients cannot follow its chain.
    pub async fn watch(self, interval: Duration, now: impl Fn() -> u64 + Send) {
        let source = &self.inner.source;
        let expiry_warning = |now| source.expiry_warning(self.inner.current.load().validity, now);
        let chain_warning = |now| source.chain_warning(&self.inner.current.load().chain, now);
        let mut error_reminder = DailyReminder(None);
        let (mut expiry_reminder, mut chain_reminder) = (DailyReminder(None), DailyReminder(None));
        // The start has logged these warnings already.
        let begun = now();
        expiry_reminder.is_due(expiry_warning(begun).as_ref().map(mem::discriminant), begun);
        chain_reminder.is_due(chain_warning(begun).as_ref().map(mem::discriminant), begun);
        loop {
            tokio::time::sleep(interval.max(SHORTEST_INTERVAL)).await;
            let (acceptor, now) = (self.clone(), now());
            let reloaded = tokio::task::spawn_blocking(move || acceptor.reload(now)).await;
            let mut has_changed = false;
            let error = match reloaded {
                Ok(Ok(changed)) => {
                    has_changed = changed;
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            if has_changed {
                tracing::info!("new certificate in use");
            }
            if error_reminder.is_due(error.clone(), now)
                && let Some(error) = error
            {
                tracing::error!(%error, "keeping the old certificate");
            }
            // The reload has logged the warnings about a new certificate.
            let warning = expiry_warning(now);
            if expiry_reminder.is_due(warning.as_ref().map(mem::discriminant), now) && !has_changed {
                source.warn_of(warning);
            }
            let warning = chain_warning(now);
            if chain_reminder.is_due(warning.as_ref().map(mem::discriminant), now) && !has_changed {
                source.warn_of(warning);
            }
        }
    }

    /// The handshake with the current certificate. With an authority that checks a challenge, it selects the protocol
    /// `acme-tls/1`.
    pub async fn accept<IO>(&self, stream: IO) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let current = || {
            let current = self.inner.current.load();
            Arc::clone(if self.asks_for_certificates {
                &current.mtls_config
            } else {
                &current.config
            })
        };
        let Some(responder) = &self.inner.challenges else {
            return TlsAcceptor::from(current()).accept(stream).await;
        };
        let begun = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        let config = if Challenges::is_validation(&begun.client_hello()) {
            Arc::clone(&responder.config)
        } else {
            current()
        };
        begun.into_stream(config).await
    }
}

impl Current {
    fn of(pair: &Pair) -> Result<Self, TlsError> {
        let certified = SingleCertAndKey::from(pair.certified_key()?);
        Self::new(Arc::new(certified), pair.validity(), pair.chain.clone())
    }

    fn new(
        certificates: Arc<dyn ResolvesServerCert>,
        validity: Option<Validity>,
        chain: Vec<CertificateDer<'static>>,
    ) -> Result<Self, TlsError> {
        Ok(Self {
            config: Arc::new(server_config(Arc::clone(&certificates))?),
            mtls_config: Arc::new(mtls_config(certificates)?),
            validity,
            chain,
        })
    }
}

#[cfg(test)]
mod tests;
