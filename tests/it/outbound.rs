//! The outbound client against hostile servers. Neither an address in a published document nor an answer makes the
//! service do what the operator did not allow.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idsvc::net::outbound::{Client, OutboundError, OutboundPolicy, Request, Response, SetupError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use url::Url;
use zeroize::Zeroizing;

use crate::harness::{Say, Upstream};
use tempfile::TempDir;

async fn get(client: &Client, address: &str) -> Result<Response, OutboundError> {
    let url = Url::parse(address).unwrap();
    client.send(Request::get(&url)).await
}

fn raw(head: &str) -> Say {
    Say::Raw(format!("{head}\r\n\r\n").into_bytes())
}

/// Host and port of an address, as refusals name them.
fn place(address: &str) -> String {
    let url = Url::parse(address).unwrap();
    format!("{}:{}", url.host_str().unwrap(), url.port().unwrap())
}

/// A provider, and a client that may reach it.
async fn scene() -> (Upstream, Client) {
    let upstream = Upstream::start().await;
    let client = Client::new(&upstream.terms()).unwrap();
    (upstream, client)
}

/// A client that trusts the provider's certificate and may not reach private networks.
fn confined(upstream: &Upstream) -> Client {
    let terms = OutboundPolicy {
        allow: Vec::new(),
        ..upstream.terms()
    };
    Client::new(&terms).unwrap()
}

#[tokio::test]
async fn what_is_published_is_read() {
    let (upstream, client) = scene().await;
    let answer = get(&client, &format!("{}/jwks?x=1", upstream.issuer))
        .await
        .unwrap();
    assert_eq!(
        (answer.status, answer.content_type.as_str()),
        (200, "application/json")
    );
    assert_eq!(upstream.seen("/jwks").len(), 1);
    let head =
        "HTTP/1.1 200 OK\r\nCache-Control: public, MAX-AGE=77\r\nContent-Length: 0\r\nContent-Type: A/B; c=d";
    upstream.say("/dated", raw(head));
    let answer = get(&client, &format!("{}/dated", upstream.issuer)).await.unwrap();
    assert_eq!(
        (answer.max_age, answer.content_type.as_str()),
        (Some(Duration::from_secs(77)), "a/b")
    );
    assert_eq!(
        get(&client, &format!("{}/none", upstream.issuer))
            .await
            .unwrap()
            .status,
        404
    );
}

/// What is sent is what was given, and nothing that was not.
#[tokio::test]
async fn credentials_go_where_they_are_meant_to_go() {
    let (upstream, client) = scene().await;
    let url = Url::parse(&format!("{}/jwks", upstream.issuer)).unwrap();
    let form = Zeroizing::new("grant_type=authorization_code&code=a%20b".to_owned());
    let request = Request {
        form: Some(form),
        authorization: Some(Zeroizing::new("Basic eDp5".to_owned())),
        ..Request::get(&url)
    };
    client.send(request).await.unwrap();
    client.send(Request::get(&url)).await.unwrap();
    let [posted, got] = upstream.seen("/jwks").try_into().unwrap();
    assert_eq!(posted.field("code"), Some("a b"));
    assert_eq!(posted.authorization.as_deref(), Some("Basic eDp5"));
    assert_eq!((got.form.len(), got.authorization), (0, None));
}

/// Names and numbers that mean this machine, in every way to write them.
#[tokio::test]
async fn nothing_of_this_machine_is_reached_unless_the_operator_allows_it() {
    let upstream = Upstream::start().await;
    let client = confined(&upstream);
    let port = upstream.issuer.rsplit(':').next().unwrap();
    for host in [
        "localhost",
        "LOCALHOST",
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::]",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "[fe80::1]",
        "[fd00::1]",
        "[64:ff9b::7f00:1]",
    ] {
        let refused = get(&client, &format!("https://{host}:{port}/jwks")).await.err();
        assert!(
            matches!(refused, Some(OutboundError::Forbidden(_))),
            "{host}: {refused:?}"
        );
    }
    assert!(upstream.seen("/jwks").is_empty());
    let narrow = OutboundPolicy {
        allow: vec!["127.0.0.2/32".parse().unwrap()],
        ..upstream.terms()
    };
    let refused = get(
        &Client::new(&narrow).unwrap(),
        &format!("{}/jwks", upstream.issuer),
    )
    .await;
    assert_eq!(
        refused.err(),
        Some(OutboundError::Forbidden(place(&upstream.issuer)))
    );
}

#[tokio::test]
async fn only_plain_https_addresses_are_asked() {
    let (upstream, client) = scene().await;
    let port = upstream.issuer.rsplit(':').next().unwrap();
    for address in [
        format!("http://localhost:{port}/jwks"),
        format!("ftp://localhost:{port}/jwks"),
        "file:///etc/passwd".to_owned(),
        "data:application/json,{}".to_owned(),
        format!("https://user@localhost:{port}/jwks"),
        format!("https://user:password@localhost:{port}/jwks"),
        format!("https://:password@localhost:{port}/jwks"),
    ] {
        assert_eq!(
            get(&client, &address).await.err(),
            Some(OutboundError::Address),
            "{address}"
        );
    }
    assert!(upstream.seen("/jwks").is_empty());
}

#[tokio::test]
async fn a_redirect_leads_nowhere() {
    let (upstream, client) = scene().await;
    let inside = Upstream::start_other().await;
    for status in [
        "301 Moved",
        "302 Found",
        "303 See Other",
        "307 T",
        "308 P",
        "304 N",
        "300 M",
    ] {
        let location = format!("{}/inside", inside.issuer);
        let head = format!("HTTP/1.1 {status}\r\nlocation: {location}\r\ncontent-length: 0");
        upstream.say("/jwks", raw(&head));
        let refused = get(&client, &format!("{}/jwks", upstream.issuer)).await.err();
        assert_eq!(
            refused,
            Some(OutboundError::Redirect(place(&upstream.issuer))),
            "{status}"
        );
    }
    assert!(inside.seen("/inside").is_empty());
}

#[tokio::test]
async fn an_answer_without_end_is_cut() {
    let (upstream, client) = scene().await;
    let address = format!("{}/jwks", upstream.issuer);
    let mib = 1024 * 1024;
    let announced = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 50 * mib);
    let mut large = announced.into_bytes();
    large.resize(large.len() + 50 * mib, b' ');
    let chunk = format!("{:x}\r\n{}\r\n", mib, " ".repeat(mib));
    let chunked = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
    let says = [Say::Raw(large), Say::Raw(chunked.into_bytes()), Say::Forever];
    for say in says {
        upstream.say("/jwks", say);
        let begun = Instant::now();
        let refused = get(&client, &address).await.err();
        let too_long = OutboundError::TooLong {
            host: place(&address),
            max_bytes: 512 * 1024,
        };
        assert_eq!(refused, Some(too_long));
        assert!(
            begun.elapsed() < Duration::from_secs(8),
            "cut by its length, not by the clock"
        );
    }
    let fitting = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}",
        512 * 1024,
        " ".repeat(512 * 1024)
    );
    upstream.say("/jwks", Say::Raw(fitting.into_bytes()));
    assert_eq!(get(&client, &address).await.unwrap().body.len(), 512 * 1024);
}

#[tokio::test]
async fn an_answer_that_is_none_is_refused() {
    let (upstream, client) = scene().await;
    let long_header = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(64 * 1024));
    let says = [
        raw("SSH-2.0-OpenSSH_9.9"),
        raw(&long_header),
        raw("HTTP/1.1 200 OK\r\ncontent-length: 100"),
        raw("HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6"),
        raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz"),
        Say::Raw(Vec::new()),
        Say::Raw(vec![0; 1000]),
    ];
    for say in says {
        upstream.say("/jwks", say.clone());
        let refused = get(&client, &format!("{}/jwks", upstream.issuer)).await.err();
        let Say::Raw(bytes) = say else { unreachable!() };
        let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert_eq!(
            refused,
            Some(OutboundError::Malformed(place(&upstream.issuer))),
            "{begin:?}"
        );
    }
}

/// Time has one bound for all of it, however the sender spends it.
#[tokio::test]
async fn who_says_nothing_is_left_after_ten_seconds() {
    let (upstream, client) = scene().await;
    upstream.say("/jwks", Say::Nothing);
    // one that accepts and does not even begin with TLS
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mute = format!("https://localhost:{}/jwks", mute.local_addr().unwrap().port());
    let silent = format!("{}/jwks", upstream.issuer);
    let begun = Instant::now();
    let (late, later) = tokio::join!(get(&client, &silent), get(&client, &mute));
    assert_eq!(late.err(), Some(OutboundError::Timeout(place(&silent))));
    assert_eq!(later.err(), Some(OutboundError::Timeout(place(&mute))));
    let waited = begun.elapsed().as_secs();
    assert!((9..20).contains(&waited), "{waited} s");
}

/// A server that shows a certificate of its own for `name`, and sends a letter each quarter of a second.
async fn dripping(name: &str, is_ca: IsCa) -> (String, TempDir) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = is_ca;
    let certificate = params.self_signed(&key).unwrap();
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                drop(stream.read(&mut [0; 1024]).await);
                drop(
                    stream
                        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n")
                        .await,
                );
                while stream.write_all(b" ").await.is_ok() && stream.flush().await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(250)).await;
                }
            });
        }
    });
    (address, folder)
}

fn trusting(folder: &TempDir) -> Client {
    let terms = OutboundPolicy {
        ca_file: Some(folder.path().join("ca.pem")),
        allow: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
    };
    Client::new(&terms).unwrap()
}

#[tokio::test]
async fn who_sends_letter_by_letter_is_left_after_ten_seconds() {
    let (address, folder) = dripping("localhost", IsCa::NoCa).await;
    let begun = Instant::now();
    let refused = get(&trusting(&folder), &address).await.err();
    assert_eq!(refused, Some(OutboundError::Timeout(place(&address))));
    let waited = begun.elapsed().as_secs();
    assert!((9..20).contains(&waited), "{waited} s");
}

#[tokio::test]
async fn a_certificate_has_to_be_trusted_and_of_that_name() {
    let (upstream, _) = scene().await;
    let address = format!("{}/jwks", upstream.issuer);
    let web_only = OutboundPolicy {
        ca_file: None,
        ..upstream.terms()
    };
    let refused = get(&Client::new(&web_only).unwrap(), &address).await.err();
    assert!(matches!(refused, Some(OutboundError::Tls { .. })), "{refused:?}");
    let (address, folder) = dripping("other.example", IsCa::NoCa).await;
    let refused = get(&trusting(&folder), &address).await.err();
    assert!(matches!(refused, Some(OutboundError::Tls { .. })), "{refused:?}");
    let authority = IsCa::Ca(BasicConstraints::Unconstrained);
    let (address, folder) = dripping("localhost", authority).await;
    let refused = get(&trusting(&folder), &address).await.err().unwrap();
    assert!(
        refused.to_string().contains("is that of a certificate authority"),
        "{refused}"
    );
    assert!(upstream.seen("/jwks").is_empty());
}

#[tokio::test]
async fn who_is_not_there_is_said_not_to_be() {
    let (_, client) = scene().await;
    let gone = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let refused = get(&client, &format!("https://127.0.0.1:{}/", gone.port()))
        .await
        .err();
    assert_eq!(refused, Some(OutboundError::Unreachable(gone.to_string())));
    let refused = get(&client, "https://nobody.invalid/").await.err();
    assert_eq!(
        refused,
        Some(OutboundError::Unresolved("nobody.invalid".to_owned()))
    );
}

/// A host that is slow does not gather all that ask for it, and keeps nobody from the others.
#[tokio::test]
async fn a_slow_host_takes_its_share_and_no_more() {
    let (upstream, client) = scene().await;
    upstream.say("/slow", Say::Nothing);
    let slow = format!("{}/slow", upstream.issuer);
    let waiting: Vec<_> = (0..32)
        .map(|_| {
            let (client, slow) = (client.clone(), slow.clone());
            tokio::spawn(async move { get(&client, &slow).await.map(|_| ()) })
        })
        .collect();
    let patience = Instant::now();
    while upstream.seen("/slow").len() < 32 {
        assert!(
            patience.elapsed() < Duration::from_secs(8),
            "all of them are under way"
        );
        tokio::task::yield_now().await;
    }
    let refused = get(&client, &format!("{}/jwks", upstream.issuer)).await.err();
    assert_eq!(refused, Some(OutboundError::Busy("localhost".to_owned())));
    let other = upstream.issuer.replace("localhost", "127.0.0.1");
    assert_eq!(get(&client, &format!("{other}/jwks")).await.unwrap().status, 200);
    for one in waiting {
        one.abort();
        drop(one.await);
    }
    let again = get(&client, &format!("{}/jwks", upstream.issuer)).await;
    assert_eq!(again.unwrap().status, 200, "a place is given back");
}

#[test]
fn a_bad_file_of_authorities_is_refused_by_its_name() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("ca.pem");
    let problem = |content: Option<&str>| {
        match content {
            Some(content) => std::fs::write(&file, content).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let terms = OutboundPolicy {
            ca_file: Some(file.clone()),
            allow: Vec::new(),
        };
        Client::new(&terms).err().unwrap()
    };
    let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
    for (content, is_readable) in [(Some(""), true), (Some(broken), false), (None, false)] {
        let problem = problem(content);
        let named = match &problem {
            SetupError::NoAuthority { file: named, .. } if is_readable => named,
            SetupError::Unreadable { file: named, .. } if !is_readable => named,
            _ => panic!("{problem}"),
        };
        assert_eq!(*named, file);
        assert!(problem.to_string().starts_with("outbound.ca_file: "), "{problem}");
    }
}
