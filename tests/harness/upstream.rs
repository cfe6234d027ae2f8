//! An upstream OpenID provider on loopback, over TLS, whose answers a test chooses.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwt;
use idsvc::jose::keyring::SigningKey;
use idsvc::jose::rsa_keygen;
use idsvc::net::outbound::OutboundPolicy;
use idsvc::random::Random;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::{START, parse_form};

/// Keys take long enough to be made once.
static RSA_KEYS: LazyLock<[SigningKey; 4]> = LazyLock::new(|| {
    let make = || {
        let pkcs8 = rsa_keygen::generate(&Random::system()).unwrap();
        SigningKey::from_pkcs8_der(Algorithm::Rs256, &pkcs8).unwrap()
    };
    [make(), make(), make(), make()]
});

/// The certificate authority of every upstream, and the certificate that all of them use.
static TLS: LazyLock<(Arc<ServerConfig>, String)> = LazyLock::new(|| {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (Arc::new(config), authority.pem())
});

/// The first byte of TLS. What begins otherwise is served without it.
const TLS_HANDSHAKE: [u8; 1] = [22];

/// A request to the provider.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) form: Vec<(String, String)>,
}

impl ReceivedRequest {
    /// A field of the form.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.form.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// The answer at one path.
#[derive(Clone)]
pub(crate) enum Say {
    /// A JSON document.
    Json(Value),
    /// A JSON document, sent when the test notifies the handle.
    Held(Arc<Notify>, Value),
    /// These bytes, status line and all.
    Raw(Vec<u8>),
    /// Bytes without end.
    Forever,
    /// Nothing.
    Nothing,
}

#[derive(Default)]
struct Script {
    says: HashMap<String, Say>,
    seen: Vec<ReceivedRequest>,
}

/// The provider. It stops when it is dropped.
pub(crate) struct Upstream {
    pub(crate) issuer: String,
    keys: [&'static SigningKey; 2],
    folder: TempDir,
    script: Arc<Mutex<Script>>,
    serving: JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Upstream {
    /// A provider that publishes its discovery document and its first RSA key.
    pub(crate) async fn start() -> Self {
        Self::start_with([&RSA_KEYS[0], &RSA_KEYS[1]]).await
    }

    /// Another one, with keys of its own.
    pub(crate) async fn start_other() -> Self {
        Self::start_with([&RSA_KEYS[2], &RSA_KEYS[3]]).await
    }

    async fn start_with(keys: [&'static SigningKey; 2]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let issuer = format!("https://localhost:{}", address.port());
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("ca.pem"), &TLS.1).unwrap();
        let script = Arc::new(Mutex::new(Script::default()));
        let shared = Arc::clone(&script);
        let serving = tokio::spawn(async move {
            let acceptor = TlsAcceptor::from(Arc::clone(&TLS.0));
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, script) = (acceptor.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let mut first = [0];
                    if stream.peek(&mut first).await.is_ok() && first != TLS_HANDSHAKE {
                        drop(answer(stream, &script).await);
                    } else if let Ok(stream) = acceptor.accept(stream).await {
                        drop(answer(stream, &script).await);
                    }
                });
            }
        });
        let upstream = Self {
            issuer,
            keys,
            folder,
            script,
            serving,
        };
        let at = |path: &str| format!("{}{path}", upstream.issuer);
        upstream.say(
            "/.well-known/openid-configuration",
            Say::Json(json!({
                "issuer": upstream.issuer,
                "authorization_endpoint": at("/authorize"),
                "token_endpoint": at("/token"),
                "userinfo_endpoint": at("/userinfo"),
                "jwks_uri": at("/jwks"),
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported":
                    ["client_secret_basic", "client_secret_post", "private_key_jwt"],
            })),
        );
        upstream.publish(&[upstream.key()]);
        upstream
    }

    /// How the service reaches it.
    pub(crate) fn terms(&self) -> OutboundPolicy {
        OutboundPolicy {
            ca_file: Some(self.folder.path().join("ca.pem")),
            allow: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        }
    }

    /// The key it signs with.
    pub(crate) fn key(&self) -> &'static SigningKey {
        self.keys[0]
    }

    /// A key that it does not publish yet.
    pub(crate) fn next_key(&self) -> &'static SigningKey {
        self.keys[1]
    }

    /// Says something else at a path from now on.
    pub(crate) fn say(&self, path: &str, say: Say) {
        self.script.lock().unwrap().says.insert(path.to_owned(), say);
    }

    /// What it says at a path now.
    pub(crate) fn honest_answer(&self, path: &str) -> Option<Say> {
        self.script.lock().unwrap().says.get(path).cloned()
    }

    /// Publishes these keys.
    pub(crate) fn publish(&self, keys: &[&SigningKey]) {
        self.say("/jwks", Say::Json(published(keys)));
    }

    /// Makes requests for the keys wait until the returned handle is notified.
    pub(crate) fn hold_keys(&self) -> Arc<Notify> {
        self.publish(&[self.key()]);
        self.hold("/jwks")
    }

    /// Makes requests for the document at a path wait until the returned handle is notified.
    pub(crate) fn hold(&self, path: &str) -> Arc<Notify> {
        let gone = Arc::new(Notify::new());
        let mut script = self.script.lock().unwrap();
        let Some(Say::Json(document)) = script.says.remove(path) else {
            panic!("no document is said at {path}")
        };
        let held = Say::Held(Arc::clone(&gone), document);
        script.says.insert(path.to_owned(), held);
        gone
    }

    /// Everything that was asked of it at a path.
    pub(crate) fn seen(&self, path: &str) -> Vec<ReceivedRequest> {
        let script = self.script.lock().unwrap();
        script
            .seen
            .iter()
            .filter(|seen| seen.path == path)
            .cloned()
            .collect()
    }

    /// The claims of an ID token for `audience`, good for an hour from the moment at which tests begin.
    pub(crate) fn claims(&self, audience: &str, subject: &str) -> Value {
        json!({
            "iss": self.issuer,
            "sub": subject,
            "aud": audience,
            "iat": START.seconds(),
            "exp": START.seconds() + 3600,
        })
    }

    /// Signs claims with the key it publishes.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        jwt::sign(self.key(), "JWT", claims).unwrap()
    }
}

fn published(keys: &[&SigningKey]) -> Value {
    let keys: Vec<_> = keys.iter().map(|key| key.public().to_jwk()).collect();
    json!({ "keys": keys })
}

async fn answer(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    script: &Mutex<Script>,
) -> std::io::Result<()> {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    let head_end = loop {
        if let Some(at) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => received.extend_from_slice(&buffer[..length]),
        }
    };
    let head = String::from_utf8_lossy(&received[..head_end]).into_owned();
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let wanted = header("content-length").map_or(0, |length| length.parse::<usize>().unwrap());
    while received.len() < head_end + wanted {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => received.extend_from_slice(&buffer[..length]),
        }
    }
    let target = head.split(' ').nth(1).unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default().to_owned();
    let say = {
        let mut script = script.lock().unwrap();
        script.seen.push(ReceivedRequest {
            path: path.clone(),
            authorization: header("authorization"),
            form: parse_form(&String::from_utf8_lossy(&received[head_end..])),
        });
        script.says.get(&path).cloned()
    };
    let say = match say {
        Some(Say::Held(gone, document)) => {
            gone.notified().await;
            Some(Say::Json(document))
        }
        say => say,
    };
    match say {
        Some(Say::Json(document) | Say::Held(_, document)) => {
            let body = document.to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(body.as_bytes()).await?;
        }
        Some(Say::Raw(bytes)) => stream.write_all(&bytes).await?,
        Some(Say::Forever) => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n[")
                .await?;
            loop {
                stream.write_all(&[b' '; 16 * 1024]).await?;
                stream.flush().await?;
            }
        }
        Some(Say::Nothing) => tokio::time::sleep(Duration::from_mins(10)).await,
        None => {
            stream
                .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
                .await?;
        }
    }
    stream.flush().await?;
    stream.shutdown().await
}
