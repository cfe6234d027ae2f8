//! The HTTPS client for all outbound requests.
//!
//! Documents of other parties name the addresses, so the client does not trust them. It speaks https. It speaks http
//! only to this machine, if the operator named the address. It resolves the name, checks the address, and connects to
//! this same address. It follows no redirect. It limits the size of the answer, the time and the number of requests.

pub mod address;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, DATE, HOST, USER_AGENT,
};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::{Host, Url};
use zeroize::Zeroizing;

use super::alpn::HTTP_1_1;
use super::key_exchange::crypto_provider;
use super::tls_problem::tls_problem;

/// The largest known key sets and token answers have some tens of kibibytes.
const MAX_BODY_BYTES: usize = 512 * 1024;
const MAX_HEADER_BYTES: usize = 32 * 1024;
/// The time to connect to one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The time from the resolution of the name to the last byte of the answer.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses of one name that are tried, in the order of the resolver.
const MAX_ATTEMPTS: usize = 3;
/// Requests in progress to one host. Further ones fail at once, so that a slow host does not collect waiting requests.
const MAX_PER_HOST: usize = 32;

/// The `outbound` section of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboundPolicy {
    /// A PEM file of certificate authorities that are trusted beside those of the web.
    pub ca_file: Option<PathBuf>,
    /// Networks that may be connected to although they are not public.
    pub allow: Vec<IpNet>,
}

pub struct Request<'a> {
    /// Where to: https without user name and password, or http if `may_be_local`.
    pub url: &'a Url,
    /// The form to post; without one it is a GET.
    pub form: Option<Zeroizing<String>>,
    /// The value of `Authorization`.
    pub authorization: Option<Zeroizing<String>>,
    /// The longest answer that is read.
    pub max_bytes: usize,
    /// Whether the address may be http on this machine, because the operator named it.
    pub may_be_local: bool,
}

impl<'a> Request<'a> {
    /// A GET without credentials.
    pub fn get(url: &'a Url) -> Self {
        Self {
            url,
            form: None,
            authorization: None,
            max_bytes: MAX_BODY_BYTES,
            may_be_local: false,
        }
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code; never a redirect.
    pub status: u16,
    /// The media type, in lower case and without parameters.
    pub content_type: String,
    /// How long the sender lets it be kept (RFC 9111 section 5.2.2).
    pub max_age: Option<Duration>,
    /// The sender's clock, as it is written.
    pub date: Option<String>,
    pub body: Vec<u8>,
}

/// Why there is no answer. No variant quotes data that was sent or received. A host includes its port unless it is 443.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// Not https, or with a user name in it, or without a host.
    #[error("the address is not an https address without user name and password")]
    Address,
    /// The name has no address.
    #[error("{0} cannot be resolved")]
    Unresolved(String),
    /// Every address of the name is one that the service must not connect to.
    #[error("{0} is not on the public internet: outbound.allow names the networks that may still be reached")]
    Forbidden(String),
    /// No address of the name accepts connections.
    #[error("{0} does not accept connections")]
    Unreachable(String),
    /// The certificate is not valid, or TLS fails for another reason.
    #[error("{host}: TLS failed: {problem}")]
    Tls {
        host: String,
        /// What the TLS library says.
        problem: String,
    },
    /// The answer is not HTTP, or ends in the middle.
    #[error("{0} does not answer with proper HTTP")]
    Malformed(String),
    /// The answer is too long.
    #[error("the answer of {host} is longer than {} KiB", max_bytes / 1024)]
    TooLong {
        host: String,
        /// The limit.
        max_bytes: usize,
    },
    /// The answer is a redirect; none is followed.
    #[error("{0} answers with a redirect, which is not followed: give the final address")]
    Redirect(String),
    /// It takes too long.
    #[error("{0} did not answer within 10 seconds")]
    Timeout(String),
    /// Too many requests to this host are under way.
    #[error("too many requests to {0} are under way")]
    Busy(String),
}

/// Why the client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The file of certificate authorities cannot be read.
    #[error("{key}: {} cannot be read: {problem}", file.display())]
    Unreadable {
        key: &'static str,
        file: PathBuf,
        /// Why.
        problem: String,
    },
    /// There is no usable certificate in it.
    #[error("{key}: {} has no certificate authority in PEM form", file.display())]
    NoAuthority { key: &'static str, file: PathBuf },
    /// The TLS library cannot be set up.
    #[error("TLS towards others cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
}

/// The client. A clone shares its limits.
#[derive(Clone)]
pub struct Client {
    tls: TlsConnector,
    allow: Arc<[IpNet]>,
    in_progress: Arc<Mutex<HashMap<String, usize>>>,
}

impl Client {
    /// A client with this configuration.
    pub fn new(terms: &OutboundPolicy) -> Result<Self, SetupError> {
        let mut config = tls_config(terms)?;
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(Self {
            tls: TlsConnector::from(Arc::new(config)),
            allow: terms.allow.clone().into(),
            in_progress: Arc::default(),
        })
    }

    /// Sends a request and reads the whole answer, within the limits of this module.
    pub async fn send(&self, request: Request<'_>) -> Result<Response, OutboundError> {
        let (target, url) = (Target::of(request.url, request.may_be_local)?, request.url);
        let max_bytes = request.max_bytes;
        let message = message(request).ok_or(OutboundError::Address)?;
        let answer = self.carry_at_most(max_bytes, target, url, message).await?;
        let (head, body) = answer.into_parts();
        Ok(Response {
            status: head.status.as_u16(),
            content_type: media_type(&head.headers),
            max_age: max_age(&head.headers),
            date: text(&head.headers, &DATE),
            body: body.to_vec(),
        })
    }

    /// Sends a message and returns the answer with its header, within the limits of this module. It sets the target,
    /// `Host` and `User-Agent`. Protocols that use header fields need this.
    pub async fn carry(
        &self,
        url: &Url,
        message: http::Request<Full<Bytes>>,
    ) -> Result<http::Response<Bytes>, OutboundError> {
        self.carry_at_most(MAX_BODY_BYTES, Target::of(url, false)?, url, message)
            .await
    }

    async fn carry_at_most(
        &self,
        max_bytes: usize,
        target: Target,
        url: &Url,
        mut message: http::Request<Full<Bytes>>,
    ) -> Result<http::Response<Bytes>, OutboundError> {
        set_target(&mut message, url, &target.authority).ok_or(OutboundError::Address)?;
        let _slot = Slot::take(&self.in_progress, &target.host)?;
        let authority = target.authority.clone();
        tokio::time::timeout(TOTAL_TIMEOUT, Box::pin(self.exchange(target, message, max_bytes)))
            .await
            .unwrap_or(Err(OutboundError::Timeout(authority)))
    }

    async fn exchange(
        &self,
        target: Target,
        message: http::Request<Full<Bytes>>,
        max_bytes: usize,
    ) -> Result<http::Response<Bytes>, OutboundError> {
        let host = target.authority.clone();
        let stream = self.connect(&target).await?;
        let stream: Box<dyn Stream> = match target.name {
            None => Box::new(stream),
            Some(name) => {
                let secured = self.tls.connect(name, stream).await;
                Box::new(secured.map_err(|error| OutboundError::Tls {
                    host: host.clone(),
                    problem: tls_problem(&error),
                })?)
            }
        };
        let malformed = || OutboundError::Malformed(host.clone());
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(MAX_HEADER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| malformed())?;
        let answer = async {
            let response = sender.send_request(message).await.map_err(|_| malformed())?;
            if response.status().is_redirection() {
                return Err(OutboundError::Redirect(host.clone()));
            }
            let (head, body) = response.into_parts();
            let body = Limited::new(body, max_bytes).collect().await;
            let body = body.map_err(
                |error| match error.downcast::<http_body_util::LengthLimitError>() {
                    Ok(_) => OutboundError::TooLong {
                        host: host.clone(),
                        max_bytes,
                    },
                    Err(_) => malformed(),
                },
            )?;
            Ok(http::Response::from_parts(head, body.to_bytes()))
        };
        // The connection works only while it is polled beside the request; it ends with the answer.
        tokio::pin!(answer, connection);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            _ = &mut connection => answer.await,
        }
    }

    /// Connects to the first allowed address that accepts.
    async fn connect(&self, target: &Target) -> Result<TcpStream, OutboundError> {
        let host = || target.authority.clone();
        let addresses = target.resolve().await?;
        let allowed: Vec<SocketAddr> = addresses
            .into_iter()
            .filter(|address| match target.name {
                Some(_) => address::is_allowed(address.ip(), &self.allow),
                None => address.ip().is_loopback(),
            })
            .take(MAX_ATTEMPTS)
            .collect();
        if allowed.is_empty() {
            return Err(OutboundError::Forbidden(host()));
        }
        for address in allowed {
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
            if let Ok(Ok(stream)) = connected {
                return Ok(stream);
            }
        }
        Err(OutboundError::Unreachable(host()))
    }
}

/// TLS that trusts the authorities of the web and those of `outbound.ca_file`.
pub fn tls_config(terms: &OutboundPolicy) -> Result<ClientConfig, SetupError> {
    let provider = Arc::new(crypto_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(root_store(terms)?)
        .with_no_client_auth())
}

/// The authorities of the web and those of `outbound.ca_file`.
pub fn root_store(terms: &OutboundPolicy) -> Result<RootCertStore, SetupError> {
    let mut roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    if let Some(file) = &terms.ca_file {
        let mut has_authority = false;
        for certificate in read_authorities("outbound.ca_file", file)? {
            has_authority |= roots.add(certificate).is_ok();
        }
        if !has_authority {
            return Err(SetupError::NoAuthority {
                key: "outbound.ca_file",
                file: file.clone(),
            });
        }
    }
    Ok(roots)
}

/// The certificates in the file of a setting.
pub fn read_authorities(key: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let unreadable = |problem: String| SetupError::Unreadable {
        key,
        file: file.to_owned(),
        problem,
    };
    let pem = std::fs::read(file).map_err(|error| unreadable(error.to_string()))?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>();
    certificates.map_err(|_| unreadable("it is not valid PEM".to_owned()))
}

/// A connection, secured or to this machine.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The destination of a request.
struct Target {
    host: String,
    port: u16,
    authority: String,
    /// The name in the certificate. `None` for http, which goes to this machine only.
    name: Option<ServerName<'static>>,
}

impl Target {
    fn of(url: &Url, may_be_local: bool) -> Result<Self, OutboundError> {
        let is_known = matches!((url.scheme(), may_be_local), ("https", _) | ("http", true));
        let is_plain = is_known && url.username().is_empty() && url.password().is_none();
        let host = url.host().filter(|_| is_plain).ok_or(OutboundError::Address)?;
        let name = match &host {
            _ if url.scheme() == "http" => None,
            Host::Domain(name) => {
                let name = ServerName::try_from((*name).to_owned());
                Some(name.map_err(|_| OutboundError::Address)?)
            }
            Host::Ipv4(address) => Some(ServerName::from(IpAddr::from(*address))),
            Host::Ipv6(address) => Some(ServerName::from(IpAddr::from(*address))),
        };
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        };
        Ok(Self {
            host: host.to_string(),
            port: url.port_or_known_default().unwrap_or(443),
            authority,
            name,
        })
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, OutboundError> {
        let name = self.host.trim_start_matches('[').trim_end_matches(']');
        match tokio::net::lookup_host((name, self.port)).await {
            Ok(addresses) => Ok(addresses.collect()),
            Err(_) => Err(OutboundError::Unresolved(self.host.clone())),
        }
    }
}

/// Sets the parts of a message that follow from the address.
fn set_target(message: &mut http::Request<Full<Bytes>>, url: &Url, authority: &str) -> Option<()> {
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    *message.uri_mut() = target.parse().ok()?;
    let headers = message.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(authority).ok()?);
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("idsvc/", env!("CARGO_PKG_VERSION"))),
    );
    Some(())
}

fn message(request: Request<'_>) -> Option<http::Request<Full<Bytes>>> {
    let mut builder = http::Request::builder()
        .method(if request.form.is_some() {
            Method::POST
        } else {
            Method::GET
        })
        .header(ACCEPT, "application/json")
        .header(ACCEPT_ENCODING, "identity");
    if let Some(authorization) = request.authorization {
        let mut value = HeaderValue::from_str(&authorization).ok()?;
        value.set_sensitive(true);
        builder = builder.header(AUTHORIZATION, value);
    }
    let body = match request.form {
        None => Full::default(),
        Some(form) => {
            builder = builder.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            Full::from(form.as_bytes().to_vec())
        }
    };
    builder.body(body).ok()
}

fn text(headers: &HeaderMap, name: &http::HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(ToOwned::to_owned)
}

fn media_type(headers: &HeaderMap) -> String {
    let value = text(headers, &CONTENT_TYPE).unwrap_or_default();
    value
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

fn max_age(headers: &HeaderMap) -> Option<Duration> {
    let value = text(headers, &CACHE_CONTROL)?.to_ascii_lowercase();
    let mut directives = value.split(',').map(str::trim);
    let seconds = directives.find_map(|directive| directive.strip_prefix("max-age="))?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Counts a request to one host until it is dropped.
struct Slot {
    in_progress: Arc<Mutex<HashMap<String, usize>>>,
    host: String,
}

impl Slot {
    fn take(in_progress: &Arc<Mutex<HashMap<String, usize>>>, host: &str) -> Result<Self, OutboundError> {
        let mut counts = in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(host.to_owned()).or_default();
        if *count >= MAX_PER_HOST {
            return Err(OutboundError::Busy(host.to_owned()));
        }
        *count += 1;
        Ok(Self {
            in_progress: Arc::clone(in_progress),
            host: host.to_owned(),
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut counts = self.in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.host);
            }
        }
    }
}
