//! A mail server on loopback, whose answers a test chooses.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The certificate for 127.0.0.1 and 0.0.0.0, one that has expired, and the authority of every mail server.
static TLS: LazyLock<(Arc<ServerConfig>, Arc<ServerConfig>, String)> = LazyLock::new(|| {
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned(), "0.0.0.0".to_owned()];
    let mut params = CertificateParams::new(names).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    params.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let expired = params.signed_by(&key, &issuer).unwrap();
    let config = |certificate: &Certificate| server_config(certificate.der().clone(), &key);
    (config(&certificate), config(&expired), authority.pem())
});

/// A self-signed certificate, as an installer makes one for a relay. It is an authority too, and for another name.
static OWN: LazyLock<(Arc<ServerConfig>, String)> = LazyLock::new(|| {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["relay.internal".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    (server_config(certificate.der().clone(), &key), certificate.pem())
});

fn server_config(certificate: CertificateDer<'static>, key: &KeyPair) -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Arc::new(config)
}

/// The self-signed certificate of a mail server, as PEM.
pub(crate) fn own_certificate() -> &'static str {
    &OWN.1
}

/// The authority that signed the certificate of every other mail server, as PEM.
pub(crate) fn authority() -> &'static str {
    &TLS.2
}

/// What a mail server does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manner {
    /// TLS begins with the connection.
    pub(crate) implicit_tls: bool,
    /// STARTTLS is offered.
    pub(crate) starttls: bool,
    /// What comes with the reply to STARTTLS.
    pub(crate) injected: &'static str,
    /// Who has to sign in: name and password.
    pub(crate) sign_in: Option<(&'static str, &'static str)>,
    /// Connections are accepted, and nothing is said.
    pub(crate) is_silent: bool,
    /// The certificate is self-signed.
    pub(crate) own_certificate: bool,
    /// The certificate has expired.
    pub(crate) expired_certificate: bool,
    /// SMTPUTF8 is offered.
    pub(crate) utf8: bool,
    /// The pause before each reply to a whole mail.
    pub(crate) pause: Duration,
    /// The most mails of one connection; 0 for any number.
    pub(crate) most_mails: usize,
}

/// A mail that was taken.
#[derive(Clone, Debug)]
pub(crate) struct TakenMail {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) data: String,
    pub(crate) was_encrypted: bool,
}

#[derive(Default)]
struct Shared {
    manner: Mutex<Manner>,
    /// The replies to the next recipients; 250 afterwards.
    replies: Mutex<VecDeque<&'static str>>,
    taken: Mutex<Vec<TakenMail>>,
    connections: AtomicUsize,
    is_over: AtomicBool,
}

/// A mail server; it ends when it is dropped.
pub(crate) struct MailCatcher {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

impl Drop for MailCatcher {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl MailCatcher {
    pub(crate) fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            manner: Mutex::new(manner),
            ..Shared::default()
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if serving.is_over.load(Ordering::SeqCst) {
                    return;
                }
                serving.connections.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&serving);
                std::thread::spawn(move || drop(converse(&shared, stream)));
            }
        });
        Self { port, shared }
    }

    /// The address for `mail.url`, without a user.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.shared.manner.lock().unwrap().implicit_tls {
            "smtps"
        } else {
            "smtp"
        };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// The same by an address that is not known to be of this machine.
    pub(crate) fn far_url(&self) -> String {
        self.url().replace("127.0.0.1", "0.0.0.0")
    }

    /// From now on it behaves like this.
    pub(crate) fn behave(&self, manner: Manner) {
        *self.shared.manner.lock().unwrap() = manner;
    }

    /// The replies to the next recipients.
    pub(crate) fn reply(&self, replies: &[&'static str]) {
        self.shared.replies.lock().unwrap().extend(replies);
    }

    pub(crate) fn taken(&self) -> Vec<TakenMail> {
        self.shared.taken.lock().unwrap().clone()
    }

    /// How many connections there were.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

fn tls(stream: TcpStream, manner: &Manner) -> Box<dyn Wire> {
    let config = match manner {
        Manner {
            own_certificate: true,
            ..
        } => &OWN.0,
        Manner {
            expired_certificate: true,
            ..
        } => &TLS.1,
        _ => &TLS.0,
    };
    let connection = ServerConnection::new(Arc::clone(config)).unwrap();
    Box::new(StreamOwned::new(connection, stream))
}

fn line(wire: &mut dyn Wire) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        wire.read_exact(&mut byte)?;
        match byte[0] {
            b'\n' => return Ok(String::from_utf8_lossy(&line).trim_end().to_owned()),
            other => line.push(other),
        }
    }
}

fn say(wire: &mut dyn Wire, reply: &str) -> io::Result<()> {
    wire.write_all(format!("{reply}\r\n").as_bytes())?;
    wire.flush()
}

/// The text between the angle brackets.
fn path(command: &str) -> String {
    let inner = command.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
    inner.map_or_else(String::new, |(path, _)| path.to_owned())
}

fn converse(shared: &Shared, stream: TcpStream) -> io::Result<()> {
    let manner = shared.manner.lock().unwrap().clone();
    if manner.is_silent {
        // Until the other side gives up.
        return io::copy(&mut &stream, &mut io::sink()).map(drop);
    }
    let plain = stream.try_clone()?;
    let mut encrypted = manner.implicit_tls;
    let mut wire: Box<dyn Wire> = if encrypted {
        tls(stream, &manner)
    } else {
        Box::new(stream)
    };
    say(&mut *wire, "220 mail.example.test ESMTP")?;
    let (mut from, mut to, mut signed_in, mut mails) = (String::new(), String::new(), false, 0);
    loop {
        let command = line(&mut *wire)?;
        let verb = command
            .split([' ', ':'])
            .next()
            .unwrap_or_default()
            .to_ascii_uppercase();
        match verb.as_str() {
            "EHLO" => {
                let mut offers = vec!["mail.example.test", "8BITMIME"];
                if manner.starttls && !encrypted {
                    offers.push("STARTTLS");
                }
                if manner.sign_in.is_some() {
                    offers.push("AUTH PLAIN LOGIN");
                }
                if manner.utf8 {
                    offers.push("SMTPUTF8");
                }
                let (last, others) = offers.split_last().unwrap();
                for offer in others {
                    say(&mut *wire, &format!("250-{offer}"))?;
                }
                say(&mut *wire, &format!("250 {last}"))?;
            }
            "STARTTLS" => {
                say(&mut *wire, &format!("220 go ahead{}", manner.injected))?;
                wire = tls(plain.try_clone()?, &manner);
                encrypted = true;
            }
            "AUTH" => {
                let given = command.split(' ').nth(2).unwrap_or_default();
                let given = STANDARD.decode(given).unwrap_or_default();
                let wanted = manner
                    .sign_in
                    .map(|(name, password)| format!("\0{name}\0{password}"));
                signed_in = wanted.is_some_and(|wanted| wanted.as_bytes() == given);
                let reply = if signed_in {
                    "235 2.7.0 welcome"
                } else {
                    "535 5.7.8 bad credentials"
                };
                say(&mut *wire, reply)?;
            }
            "MAIL" if manner.sign_in.is_some() && !signed_in => say(&mut *wire, "530 5.7.0 sign in first")?,
            "MAIL" if manner.most_mails > 0 && mails >= manner.most_mails => {
                return say(&mut *wire, "421 4.7.0 enough for one connection");
            }
            "MAIL" => {
                from = path(&command);
                say(&mut *wire, "250 2.1.0 ok")?;
            }
            "RCPT" => {
                to = path(&command);
                let reply = shared.replies.lock().unwrap().pop_front();
                say(&mut *wire, reply.unwrap_or("250 2.1.5 ok"))?;
            }
            "DATA" => {
                say(&mut *wire, "354 go on")?;
                let mut data = String::new();
                loop {
                    let line = line(&mut *wire)?;
                    if line == "." {
                        break;
                    }
                    data.push_str(line.strip_prefix('.').unwrap_or(&line));
                    data.push('\n');
                }
                std::thread::sleep(manner.pause);
                mails += 1;
                let mail = TakenMail {
                    from: from.clone(),
                    to: to.clone(),
                    data,
                    was_encrypted: encrypted,
                };
                shared.taken.lock().unwrap().push(mail);
                say(&mut *wire, "250 2.0.0 queued as 4711")?;
            }
            "QUIT" => return say(&mut *wire, "221 2.0.0 bye"),
            _ => say(&mut *wire, "250 2.0.0 ok")?,
        }
    }
}
