//! Clients with certificates, and the listener where they show them (RFC 8705).

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::jose::jwk::PublicKey;
use idsvc::net::listener::Listener;
use idsvc::net::outbound::OutboundPolicy;
use idsvc::net::tls::Acceptor;
use idsvc::net::{Limits, Peer};
use idsvc::oauth::client_certificate::ClientAuthorities;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};
use ring::digest;
use rustls::client::WantsClientCert;
use rustls::crypto::ring::default_provider;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, SupportedProtocolVersion};
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::server::{Server, Setup};
use super::wire::Wire;

/// An authority that gives certificates to clients.
pub(crate) struct ClientCa {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

impl ClientCa {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A certificate with this subject, the most general attribute first.
    pub(crate) fn issue(&self, subject: &[(DnType, &str)]) -> Holder {
        self.issue_with(|params| params.distinguished_name = name(subject))
    }

    pub(crate) fn issue_with(&self, change: impl FnOnce(&mut CertificateParams)) -> Holder {
        let (params, key) = draw(change);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Holder {
            chain: vec![certificate.der().clone()],
            key,
        }
    }
}

/// A name, the most general attribute first.
pub(crate) fn name(attributes: &[(DnType, &str)]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for (kind, value) in attributes {
        name.push(kind.clone(), *value);
    }
    name
}

fn draw(change: impl FnOnce(&mut CertificateParams)) -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::default();
    change(&mut params);
    (params, KeyPair::generate().unwrap())
}

/// A certificate and its key.
pub(crate) struct Holder {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
}

impl Holder {
    pub(crate) fn self_signed(subject: &[(DnType, &str)]) -> Self {
        let (params, key) = draw(|params| params.distinguished_name = name(subject));
        let certificate = params.self_signed(&key).unwrap();
        Self {
            chain: vec![certificate.der().clone()],
            key,
        }
    }

    /// Another certificate for the same key.
    pub(crate) fn renewed(self, subject: &[(DnType, &str)]) -> Self {
        let (params, _) = draw(|params| params.distinguished_name = name(subject));
        let certificate = params.self_signed(&self.key).unwrap();
        Self {
            chain: vec![certificate.der().clone()],
            key: self.key,
        }
    }

    /// The public key as it is registered.
    pub(crate) fn jwk(&self) -> Value {
        PublicKey::from_pem(&self.key.public_key_pem()).unwrap().to_jwk()
    }

    /// `x5t#S256` of the certificate.
    pub(crate) fn thumbprint(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, &self.chain[0]))
    }

    fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.serialize_der()).unwrap()
    }
}

/// The listener of a test server where clients show certificates.
pub(crate) struct CertificateListener {
    address: SocketAddr,
    roots: RootCertStore,
    serving: JoinHandle<()>,
    _folder: TempDir,
}

impl Drop for CertificateListener {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl CertificateListener {
    pub(crate) async fn open(server: &Server) -> Self {
        let folder = TempDir::new().unwrap();
        let names = ["id.example.test".to_owned()];
        let acceptor = Acceptor::self_signed(folder.path(), &names, UnixTime::now().as_secs()).unwrap();
        let pem = fs::read(folder.path().join("certs/self-signed.pem")).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
        let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()], Limits::default())
            .await
            .unwrap();
        let address = listener.local_addrs()[0];
        let app = Arc::clone(&server.app);
        let service = move |request, peer: Peer| idsvc::http::respond(Arc::clone(&app), request, peer);
        let serving = listener.serve(
            Some(acceptor.with_client_certificates()),
            service,
            std::future::pending(),
        );
        Self {
            address,
            roots,
            serving: tokio::spawn(serving),
            _folder: folder,
        }
    }

    /// The way of a client with this certificate.
    pub(crate) fn with(&self, holder: &Holder) -> Wire {
        let config = self
            .config()
            .with_client_auth_cert(holder.chain.clone(), holder.key());
        Wire::over_tls(self.address, config.unwrap())
    }

    /// The way of a client without a certificate.
    pub(crate) fn without(&self) -> Wire {
        Wire::over_tls(self.address, self.config().with_no_client_auth())
    }

    /// A client of this version that shows the certificate of one holder, and signs with the key of another.
    pub(crate) fn client(
        &self,
        version: &'static SupportedProtocolVersion,
        shown: &Holder,
        signer: &Holder,
    ) -> Arc<ClientConfig> {
        let key = any_supported_type(&signer.key()).unwrap();
        let pair = SingleCertAndKey::from(CertifiedKey::new(shown.chain.clone(), key));
        let config = self.config_of(&[version]);
        Arc::new(config.with_client_cert_resolver(Arc::new(pair)))
    }

    /// A connection of this client.
    pub(crate) async fn connect(&self, client: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("id.example.test").unwrap();
        TlsConnector::from(Arc::clone(client)).connect(name, stream).await
    }

    fn config(&self) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        self.config_of(rustls::DEFAULT_VERSIONS)
    }

    fn config_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ConfigBuilder<ClientConfig, WantsClientCert> {
        ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots.clone())
    }
}

/// The service with this authority for the certificates of clients, and the listener for them.
pub(crate) async fn start(ca: &ClientCa) -> (Server, CertificateListener) {
    start_reaching(ca, OutboundPolicy::default()).await
}

/// The same, with another way to what clients publish.
pub(crate) async fn start_reaching(ca: &ClientCa, outbound: OutboundPolicy) -> (Server, CertificateListener) {
    let mut setup = Setup {
        outbound,
        ..Setup::default()
    };
    setup.policy.mtls.port = Some(9443);
    setup.policy.mtls.has_authorities = true;
    setup.client_authorities = Some(ClientAuthorities::of_pem(ca.pem().as_bytes()).unwrap());
    let server = setup.start().await;
    let listener = CertificateListener::open(&server).await;
    (server, listener)
}
