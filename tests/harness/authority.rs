//! A certificate authority that speaks ACME (RFC 8555) on loopback. It verifies signatures, checks the service by
//! TLS-ALPN-01 (RFC 8737), and issues certificates for three months, or as a test wants.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use idsvc::clock::Clock;
use idsvc::net::Limits;
use idsvc::net::acme::Plan;
use idsvc::net::listener::Listener;
use idsvc::net::outbound::OutboundPolicy;
use idsvc::net::tls::Acceptor;
use idsvc::random::Random;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, IsCa, Issuer, KeyPair, PublicKeyData};
use ring::digest::{SHA256, digest};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use tempfile::TempDir;

const DAY: u64 = 24 * 60 * 60;

/// How the authority deviates from the standard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// It does not deviate.
    Fair,
    /// Every answer to an order is this problem, with this `Retry-After`.
    Refusing(&'static str, &'static str),
    /// The answer to an order that replaces a certificate is this problem.
    RefusingReplacement(&'static str),
    /// Every answer is this, header and all: status, header field, body.
    Saying(u16, (&'static str, &'static str), String),
    /// This number of requests under the path get 503 and this body, as from a proxy in front of the authority.
    Away(&'static str, u32, &'static str),
    /// No answer comes.
    Silent,
    /// The nonces of this number of requests under the path are refused.
    Forgetful(&'static str, u32),
    /// It asks about a domain that was not ordered.
    AskingAbout(&'static str),
    /// The certificate is for another name.
    Misnaming,
    /// The certificate is for another key.
    Miskeying,
    /// This replaces the certificate.
    Instead(&'static str),
    /// The chain has this number of further certificates.
    Trailing(usize),
    /// Every order stays in processing, with this `Retry-After` unless it is empty.
    Processing(&'static str),
}

/// A request to the authority.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) payload: Value,
}

struct AuthorityState {
    behaviour: Behaviour,
    /// The certificate's first second, and its lifetime in seconds.
    validity: (u64, u64),
    window: Option<(u64, u64)>,
    services: HashMap<String, SocketAddr>,
    nonces: HashSet<String>,
    /// Public key (x and y) and contacts.
    accounts: HashMap<String, (Vec<u8>, Value)>,
    /// The deactivated accounts (RFC 8555 section 7.3.6).
    deactivated: HashSet<String>,
    orders: HashMap<String, Order>,
    asked: Vec<ReceivedRequest>,
    next: u64,
}

#[derive(Clone)]
struct Order {
    domains: Vec<String>,
    /// The result of the check of each domain.
    checks: Vec<Check>,
    replaces: Option<String>,
    chain: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Check {
    Open,
    Good,
    Bad(&'static str),
}

/// The authority. It stops when it is dropped.
pub(crate) struct Authority {
    pub(crate) base: String,
    folder: TempDir,
    state: Arc<Mutex<AuthorityState>>,
    root: CertificateDer<'static>,
    serving: JoinHandle<()>,
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Authority {
    pub(crate) async fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let now = Clock::System.now().seconds();
        let acceptor = Acceptor::self_signed(folder.path(), &[], now).unwrap();
        let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()], Limits::default())
            .await
            .unwrap();
        let base = format!("https://localhost:{}", listener.local_addrs()[0].port());
        let state = Arc::new(Mutex::new(AuthorityState {
            behaviour: Behaviour::Fair,
            validity: (now, 90 * DAY),
            window: None,
            services: HashMap::new(),
            nonces: HashSet::new(),
            accounts: HashMap::new(),
            deactivated: HashSet::new(),
            orders: HashMap::new(),
            asked: Vec::new(),
            next: 0,
        }));
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().der().clone();
        let server = AcmeServer {
            base: base.clone(),
            state: Arc::clone(&state),
            issuer: Arc::new(Issuer::new(params, key)),
        };
        let serving = tokio::spawn(listener.serve(
            Some(acceptor),
            move |request, _| {
                let server = server.clone();
                async move { server.answer(request).await }
            },
            std::future::pending(),
        ));
        Self {
            base,
            folder,
            state,
            root,
            serving,
        }
    }

    /// The outbound configuration with which the service reaches it.
    pub(crate) fn terms(&self) -> OutboundPolicy {
        OutboundPolicy {
            ca_file: Some(self.folder.path().join("certs/self-signed.pem")),
            allow: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        }
    }

    /// An order of a certificate for these domains.
    pub(crate) fn plan(&self, domains: &[&str]) -> Plan {
        Plan {
            domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
            contact: Some("mailto:admin@id.example".to_owned()),
            directory: format!("{}/directory", self.base).parse().unwrap(),
        }
    }

    /// Resolves a domain to this address from now on.
    pub(crate) fn resolve(&self, domain: &str, address: SocketAddr) {
        self.state().services.insert(domain.to_owned(), address);
    }

    pub(crate) fn set_behaviour(&self, behaviour: Behaviour) {
        self.state().behaviour = behaviour;
    }

    /// Issues certificates that are valid from `from` on, for `lasts` seconds.
    pub(crate) fn set_validity(&self, from: u64, lasts: u64) {
        self.state().validity = (from, lasts);
    }

    /// Sets the renewal window (RFC 9773).
    pub(crate) fn set_window(&self, from: u64, to: u64) {
        self.state().window = Some((from, to));
    }

    /// Forgets every account.
    pub(crate) fn forget_accounts(&self) {
        self.state().accounts.clear();
    }

    /// Deactivates all accounts.
    pub(crate) fn deactivate_accounts(&self) {
        let mut state = self.state();
        state.deactivated = state.accounts.keys().cloned().collect();
    }

    /// The requests to paths with this prefix.
    pub(crate) fn asked(&self, path: &str) -> Vec<ReceivedRequest> {
        let state = self.state();
        let asked = state.asked.iter().filter(|asked| asked.path.starts_with(path));
        asked.cloned().collect()
    }

    /// A connection to the service, as from a browser that trusts only this authority.
    pub(crate) async fn visit(
        &self,
        address: SocketAddr,
        domain: &str,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        let config = client().with_root_certificates(roots).with_no_client_auth();
        handshake(config, &[b"h2", b"http/1.1"], address, domain).await
    }

    fn state(&self) -> std::sync::MutexGuard<'_, AuthorityState> {
        self.state.lock().unwrap()
    }
}

/// A connection as an authority makes it, with these protocols. It accepts any certificate.
pub(crate) async fn check(
    address: SocketAddr,
    domain: &str,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let config = client()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate))
        .with_no_client_auth();
    handshake(config, protocols, address, domain).await
}

fn client() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
}

async fn handshake(
    mut config: ClientConfig,
    protocols: &[&[u8]],
    address: SocketAddr,
    domain: &str,
) -> std::io::Result<TlsStream<TcpStream>> {
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(domain.to_owned()).unwrap();
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    tokio::time::timeout(Duration::from_secs(20), connecting).await?
}

/// Accepts any certificate.
#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// A request whose signature is good.
struct Signed {
    account: Option<String>,
    key: Vec<u8>,
    payload: Value,
}

/// The way to say no.
type Problem = (u16, &'static str);

#[derive(Clone)]
struct AcmeServer {
    base: String,
    state: Arc<Mutex<AuthorityState>>,
    issuer: Arc<Issuer<'static, KeyPair>>,
}

impl AcmeServer {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = head.uri.path().to_owned();
        let payload = serde_json::from_slice::<Value>(&body)
            .ok()
            .and_then(|jws| json_of(&jws["payload"]));
        let payload = payload.unwrap_or_default();
        let is_replacing = payload["replaces"].is_string();
        self.state.lock().unwrap().asked.push(ReceivedRequest {
            path: path.clone(),
            payload,
        });
        let behaviour = self.state.lock().unwrap().behaviour.clone();
        let mut response = match behaviour {
            Behaviour::Silent => std::future::pending().await,
            Behaviour::Saying(status, (name, value), body) => Response::builder()
                .status(status)
                .header(name, value)
                .body(Full::from(body))
                .unwrap(),
            Behaviour::Refusing(kind, wait) if path == "/new-order" => {
                let mut response = problem(429, kind);
                response
                    .headers_mut()
                    .insert("retry-after", wait.parse().unwrap());
                response
            }
            Behaviour::Forgetful(of, left) if head.method == "POST" && path.starts_with(of) && left > 0 => {
                self.state.lock().unwrap().behaviour = Behaviour::Forgetful(of, left - 1);
                problem(400, "badNonce")
            }
            Behaviour::Away(of, left, said) if head.method == "POST" && path.starts_with(of) && left > 0 => {
                self.state.lock().unwrap().behaviour = Behaviour::Away(of, left - 1, said);
                Response::builder().status(503).body(Full::from(said)).unwrap()
            }
            Behaviour::RefusingReplacement(kind) if is_replacing => problem(403, kind),
            _ => match self.serve(&head, &path, &body).await {
                Ok(response) => response,
                Err((status, kind)) => problem(status, kind),
            },
        };
        let nonce = Random::system().uuid_v4().to_string();
        response
            .headers_mut()
            .insert("replay-nonce", nonce.parse().unwrap());
        self.state.lock().unwrap().nonces.insert(nonce);
        response
    }

    async fn serve(
        &self,
        head: &http::request::Parts,
        path: &str,
        body: &[u8],
    ) -> Result<Response<Full<Bytes>>, Problem> {
        let at = |path: &str| format!("{}{path}", self.base);
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts[..] {
            ["directory"] => {
                let mut directory = json!({
                    "newNonce": at("/new-nonce"),
                    "newAccount": at("/new-account"),
                    "newOrder": at("/new-order"),
                });
                if self.state.lock().unwrap().window.is_some() {
                    directory["renewalInfo"] = at("/renewal-info").into();
                }
                return Ok(document(200, &directory));
            }
            ["new-nonce"] => return Ok(Response::new(Full::default())),
            ["renewal-info", _] => {
                let (from, to) = self.state.lock().unwrap().window.ok_or((404, "malformed"))?;
                let moment = |at: u64| idsvc::clock::Timestamp::from_seconds(at).rfc3339();
                let window = json!({ "suggestedWindow": { "start": moment(from), "end": moment(to) } });
                return Ok(located(200, "retry-after", "21600", &window));
            }
            _ => {}
        }
        let signed = self.verify(head, path, body)?;
        match parts[..] {
            ["new-account"] => self.open_account(signed),
            ["account", id] => {
                let mut state = self.state.lock().unwrap();
                let account = state.accounts.get_mut(id).ok_or((400, "accountDoesNotExist"))?;
                account.1 = signed.payload["contact"].clone();
                Ok(document(200, &json!({ "status": "valid" })))
            }
            ["new-order"] => self.begin(&signed),
            ["order", id] => Ok(self.stand(id)),
            ["authorization", id, number] => Ok(document(200, &self.authorization(id, number))),
            ["challenge", id, number] => {
                let thumbprint = thumbprint(&signed.key);
                let found = self.look(id, number, &thumbprint).await;
                let mut state = self.state.lock().unwrap();
                state.orders.get_mut(id).unwrap().checks[number.parse::<usize>().unwrap()] = found;
                drop(state);
                // Authorities look later, and tell in the authorization what they found.
                let mut challenge = self.challenge(id, number);
                challenge["status"] = "processing".into();
                challenge["error"].take();
                Ok(document(200, &challenge))
            }
            ["finalize", id] => self.issue(id, &signed.payload),
            ["certificate", id] => {
                let state = self.state.lock().unwrap();
                let chain = state.orders[id].chain.clone().unwrap();
                Ok(Response::new(Full::from(chain)))
            }
            _ => Err((404, "malformed")),
        }
    }

    /// Checks the signature, its URL and its nonce (RFC 8555 sections 6.2 to 6.5).
    fn verify(&self, head: &http::request::Parts, path: &str, body: &[u8]) -> Result<Signed, Problem> {
        if head.method != "POST" || head.headers["content-type"] != "application/jose+json" {
            return Err((415, "malformed"));
        }
        if head.headers["user-agent"].to_str().unwrap().split('/').next() != Some("idsvc") {
            return Err((400, "malformed"));
        }
        let jws: Value = serde_json::from_slice(body).map_err(|_| (400, "malformed"))?;
        let header = json_of(&jws["protected"]).ok_or((400, "malformed"))?;
        let mut state = self.state.lock().unwrap();
        if !state.nonces.remove(header["nonce"].as_str().unwrap_or_default()) {
            return Err((400, "badNonce"));
        }
        if header["url"] != format!("{}{path}", self.base) || header["alg"] != "ES256" {
            return Err((401, "unauthorized"));
        }
        let (account, key) = match header["kid"].as_str() {
            Some(kid) => {
                let id = kid.rsplit('/').next().unwrap();
                let account = state.accounts.get(id).ok_or((400, "accountDoesNotExist"))?;
                if state.deactivated.contains(id) {
                    return Err((401, "unauthorized"));
                }
                (Some(id.to_owned()), account.0.clone())
            }
            None if path == "/new-account" => {
                let part = |name: &str| bytes_of(&header["jwk"][name]);
                let key = [part("x"), part("y")].concat();
                (None, key)
            }
            None => return Err((401, "unauthorized")),
        };
        let text = |name: &str| jws[name].as_str().unwrap_or_default();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, [&[4], &key[..]].concat())
            .verify(
                format!("{}.{}", text("protected"), text("payload")).as_bytes(),
                &bytes_of(&jws["signature"]),
            )
            .map_err(|_| (401, "unauthorized"))?;
        Ok(Signed {
            account,
            key,
            payload: json_of(&jws["payload"]).unwrap_or_default(),
        })
    }

    fn open_account(&self, signed: Signed) -> Result<Response<Full<Bytes>>, Problem> {
        if signed.payload["termsOfServiceAgreed"] != true {
            return Err((403, "userActionRequired"));
        }
        let mut state = self.state.lock().unwrap();
        let is_closed = |(id, account): (&String, &(Vec<u8>, Value))| {
            account.0 == signed.key && state.deactivated.contains(id)
        };
        if state.accounts.iter().any(is_closed) {
            return Err((403, "unauthorized"));
        }
        let id = state.number();
        let contact = signed.payload["contact"].clone();
        state.accounts.insert(id.clone(), (signed.key, contact));
        let location = format!("{}/account/{id}", self.base);
        Ok(located(201, "location", &location, &json!({ "status": "valid" })))
    }

    fn begin(&self, signed: &Signed) -> Result<Response<Full<Bytes>>, Problem> {
        assert!(signed.account.is_some());
        let identifiers = signed.payload["identifiers"]
            .as_array()
            .ok_or((400, "malformed"))?;
        let domains: Vec<String> = identifiers
            .iter()
            .map(|identifier| identifier["value"].as_str().unwrap().to_owned())
            .collect();
        let id = {
            let mut state = self.state.lock().unwrap();
            let id = state.number();
            let order = Order {
                checks: vec![Check::Open; domains.len()],
                domains,
                replaces: signed.payload["replaces"].as_str().map(str::to_owned),
                chain: None,
            };
            state.orders.insert(id.clone(), order);
            id
        };
        let location = format!("{}/order/{id}", self.base);
        Ok(located(201, "location", &location, &self.describe(&id)))
    }

    /// The order, and when to ask again.
    fn stand(&self, id: &str) -> Response<Full<Bytes>> {
        let mut response = document(200, &self.describe(id));
        let behaviour = self.state.lock().unwrap().behaviour.clone();
        if let Behaviour::Processing(wait) = behaviour
            && !wait.is_empty()
        {
            response
                .headers_mut()
                .insert("retry-after", wait.parse().unwrap());
        }
        response
    }

    fn describe(&self, id: &str) -> Value {
        let is_slow = matches!(self.state.lock().unwrap().behaviour, Behaviour::Processing(_));
        let order = self.state.lock().unwrap().orders[id].clone();
        let at = |kind: &str| format!("{}/{kind}/{id}", self.base);
        let all = |wanted: &Check| order.checks.iter().all(|check| check == wanted);
        let status = match &order.chain {
            Some(_) if is_slow => "processing",
            Some(_) => "valid",
            None if all(&Check::Good) => "ready",
            None if order.checks.contains(&Check::Open) => "pending",
            None => "invalid",
        };
        let mut document = json!({
            "status": status,
            "identifiers": order.domains.iter().map(|domain| json!({ "type": "dns", "value": domain })).collect::<Vec<_>>(),
            "authorizations": (0..order.domains.len()).map(|number| format!("{}/{number}", at("authorization"))).collect::<Vec<_>>(),
            "finalize": at("finalize"),
        });
        if let Some(replaces) = order.replaces {
            document["replaces"] = replaces.into();
        }
        if order.chain.is_some() && !is_slow {
            document["certificate"] = at("certificate").into();
        }
        document
    }

    fn check(&self, id: &str, number: &str) -> (String, Check) {
        let order = self.state.lock().unwrap().orders[id].clone();
        let number: usize = number.parse().unwrap();
        (order.domains[number].clone(), order.checks[number].clone())
    }

    fn authorization(&self, id: &str, number: &str) -> Value {
        let (ordered, check) = self.check(id, number);
        let domain = match self.state.lock().unwrap().behaviour {
            Behaviour::AskingAbout(other) => other.to_owned(),
            _ => ordered,
        };
        json!({
            "status": status(&check),
            "identifier": { "type": "dns", "value": domain },
            "challenges": [
                { "type": "http-01", "url": format!("{}/no", self.base), "token": "x", "status": "pending" },
                self.challenge(id, number),
            ],
        })
    }

    fn challenge(&self, id: &str, number: &str) -> Value {
        let (_, check) = self.check(id, number);
        let mut challenge = json!({
            "type": "tls-alpn-01",
            "url": format!("{}/challenge/{id}/{number}", self.base),
            "token": format!("token-of-{id}-{number}"),
            "status": status(&check),
        });
        if let Check::Bad(kind) = check {
            challenge["error"] = problem_document(kind);
        }
        challenge
    }

    /// Looks for the domain as RFC 8737 section 3 says.
    async fn look(&self, id: &str, number: &str, thumbprint: &str) -> Check {
        let (domain, _) = self.check(id, number);
        let found = self.state.lock().unwrap().services.get(&domain).copied();
        let Some(address) = found else {
            return Check::Bad("dns");
        };
        let Ok(stream) = check(address, &domain, &[b"acme-tls/1"]).await else {
            return Check::Bad("connection");
        };
        let (_, session) = stream.get_ref();
        if session.alpn_protocol() != Some(b"acme-tls/1") {
            return Check::Bad("unauthorized");
        }
        let shown = session.peer_certificates().unwrap()[0].clone();
        let authorization = format!("token-of-{id}-{number}.{thumbprint}");
        let digest = digest(&SHA256, authorization.as_bytes());
        // id-pe-acmeIdentifier, critical, an octet string in an octet string.
        let extension = [
            &[6, 8, 0x2b, 6, 1, 5, 5, 7, 1, 0x1f, 1, 1, 0xff, 4, 0x22, 4, 0x20],
            digest.as_ref(),
        ]
        .concat();
        let names = [
            &[0x30, u8::try_from(domain.len() + 2).unwrap()],
            &name(&domain)[..],
        ]
        .concat();
        if contains(&shown, &extension) && contains(&shown, &names) {
            Check::Good
        } else {
            Check::Bad("incorrectResponse")
        }
    }

    fn issue(&self, id: &str, payload: &Value) -> Result<Response<Full<Bytes>>, Problem> {
        let mut state = self.state.lock().unwrap();
        let order = state.orders[id].clone();
        if !order.checks.iter().all(|check| *check == Check::Good) {
            return Err((403, "orderNotReady"));
        }
        let request = bytes_of(&payload["csr"]);
        if !order
            .domains
            .iter()
            .all(|domain| contains(&request, &name(domain)))
        {
            return Err((400, "badCSR"));
        }
        let key = match state.behaviour {
            Behaviour::Miskeying => Requested(KeyPair::generate().unwrap().public_key_raw().to_vec()),
            _ => Requested::of(&request),
        };
        let domains = match state.behaviour {
            Behaviour::Misnaming => vec!["other.example".to_owned()],
            _ => order.domains,
        };
        let mut params = CertificateParams::new(domains).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.use_authority_key_identifier_extension = true;
        let (from, lasts) = state.validity;
        let moment = |at: u64| OffsetDateTime::from_unix_timestamp(i64::try_from(at).unwrap()).unwrap();
        params.not_before = moment(from);
        params.not_after = moment(from + lasts);
        let chain = match state.behaviour {
            Behaviour::Instead(text) => text.to_owned(),
            Behaviour::Trailing(more) => params
                .signed_by(&key, &self.issuer)
                .unwrap()
                .pem()
                .repeat(more + 1),
            _ => params.signed_by(&key, &self.issuer).unwrap().pem(),
        };
        state.orders.get_mut(id).unwrap().chain = Some(chain);
        drop(state);
        Ok(self.stand(id))
    }
}

impl AuthorityState {
    fn number(&mut self) -> String {
        self.next += 1;
        self.next.to_string()
    }
}

/// The P-256 key of a certificate request.
struct Requested(Vec<u8>);

impl Requested {
    fn of(request: &[u8]) -> Self {
        const POINT: &[u8] = &[3, 0x42, 0, 4];
        let at = request
            .windows(POINT.len())
            .position(|window| window == POINT)
            .unwrap()
            + 3;
        Self(request[at..at + 65].to_vec())
    }
}

impl PublicKeyData for Requested {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// A domain as a `dNSName` (RFC 5280 section 4.2.1.6).
fn name(domain: &str) -> Vec<u8> {
    [&[0x82, u8::try_from(domain.len()).unwrap()], domain.as_bytes()].concat()
}

fn contains(whole: &[u8], part: &[u8]) -> bool {
    whole.windows(part.len()).any(|window| window == part)
}

fn status(check: &Check) -> &'static str {
    match check {
        Check::Open => "pending",
        Check::Good => "valid",
        Check::Bad(_) => "invalid",
    }
}

/// RFC 7638.
fn thumbprint(key: &[u8]) -> String {
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let jwk = format!(
        "{{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"{}\",\"y\":\"{}\"}}",
        part(&key[..32]),
        part(&key[32..])
    );
    part(digest(&SHA256, jwk.as_bytes()).as_ref())
}

fn bytes_of(value: &Value) -> Vec<u8> {
    URL_SAFE_NO_PAD
        .decode(value.as_str().unwrap_or_default())
        .unwrap_or_default()
}

fn json_of(value: &Value) -> Option<Value> {
    serde_json::from_slice(&bytes_of(value)).ok()
}

fn problem_document(kind: &str) -> Value {
    json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": format!("said {kind}") })
}

fn problem(status: u16, kind: &str) -> Response<Full<Bytes>> {
    document(status, &problem_document(kind))
}

fn document(status: u16, document: &Value) -> Response<Full<Bytes>> {
    located(status, "content-type", "application/json", document)
}

fn located(status: u16, name: &'static str, value: &str, document: &Value) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header(name, value)
        .body(Full::from(document.to_string()))
        .unwrap()
}
