//! Certificates that change under running connections.

use rustls::HandshakeKind;
use rustls::version::{TLS12, TLS13};

use super::*;
use crate::net::chain::KnownRoots;
use crate::net::outbound::OutboundPolicy;

fn web_roots() -> KnownRoots {
    KnownRoots::of(&OutboundPolicy::default())
}

#[tokio::test]
async fn a_new_certificate_serves_the_next_connection() {
    let (old, new) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let now = UnixTime::now().as_secs();
    let (_, old_certificate) = self_signed(&old);
    let (_, new_certificate) = self_signed(&new);
    let (certificate, key) = (
        old.path().join("certs/self-signed.pem"),
        old.path().join("certs/self-signed.key"),
    );
    let acceptor = Acceptor::from_files(&certificate, &key, None, web_roots(), now).unwrap();
    let server = Server::start(Limits::default(), Some(acceptor.clone())).await;
    let mut before = secured(&server, &old_certificate, &[]).await.unwrap();
    assert!(!acceptor.reload(now).unwrap());

    std::fs::copy(new.path().join("certs/self-signed.pem"), &certificate).unwrap();
    assert!(acceptor.reload(now).is_err());
    secured(&server, &old_certificate, &[]).await.unwrap();

    std::fs::copy(new.path().join("certs/self-signed.key"), &key).unwrap();
    assert!(acceptor.reload(now).unwrap());
    secured(&server, &new_certificate, &[]).await.unwrap();
    assert!(secured(&server, &old_certificate, &[]).await.is_err());
    ask(&mut before, GET, "from 127.0.0.1").await;
}

#[tokio::test]
async fn a_watched_certificate_is_exchanged_without_being_asked() {
    let (old, new) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (_, old_certificate) = self_signed(&old);
    let (_, new_certificate) = self_signed(&new);
    let (certificate, key) = (
        old.path().join("certs/self-signed.pem"),
        old.path().join("certs/self-signed.key"),
    );
    let acceptor =
        Acceptor::from_files(&certificate, &key, None, web_roots(), UnixTime::now().as_secs()).unwrap();
    let server = Server::start(Limits::default(), Some(acceptor.clone())).await;
    let watch = tokio::spawn(acceptor.watch(Duration::from_millis(20), || UnixTime::now().as_secs()));
    secured(&server, &old_certificate, &[]).await.unwrap();
    for (from, to) in [
        ("certs/self-signed.key", &key),
        ("certs/self-signed.pem", &certificate),
    ] {
        let beside = old.path().join("beside");
        std::fs::copy(new.path().join(from), &beside).unwrap();
        std::fs::rename(beside, to).unwrap();
    }
    in_time(async {
        while secured(&server, &new_certificate, &[]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    watch.abort();
}

#[tokio::test]
async fn a_session_ends_with_the_certificate_that_it_began_with() {
    let (old, new) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let now = UnixTime::now().as_secs();
    let (_, old_certificate) = self_signed(&old);
    let (_, new_certificate) = self_signed(&new);
    let files = ["certs/self-signed.pem", "certs/self-signed.key"];
    let [certificate, key] = files.map(|file| old.path().join(file));
    let acceptor = Acceptor::from_files(&certificate, &key, None, web_roots(), now).unwrap();
    let server = Server::start(Limits::default(), Some(acceptor.clone())).await;
    let clients = [&TLS12, &TLS13].map(|version| {
        let mut roots = RootCertStore::empty();
        roots.add(old_certificate.clone()).unwrap();
        roots.add(new_certificate.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    });
    let handshakes = async || {
        let mut kinds = Vec::new();
        for client in &clients {
            let mut peer = connect(&server, client).await.unwrap();
            kinds.push(peer.get_ref().1.handshake_kind().unwrap());
            // The tickets arrive with the answer.
            ask(&mut peer, GET, "from 127.0.0.1").await;
        }
        kinds
    };
    assert_eq!(handshakes().await, [HandshakeKind::Full; 2]);
    assert_eq!(handshakes().await, [HandshakeKind::Resumed; 2]);
    assert!(!acceptor.reload(now).unwrap());
    assert_eq!(handshakes().await, [HandshakeKind::Resumed; 2]);
    for (file, to) in files.into_iter().zip([&certificate, &key]) {
        std::fs::copy(new.path().join(file), to).unwrap();
    }
    assert!(acceptor.reload(now).unwrap());
    assert_eq!(handshakes().await, [HandshakeKind::Full; 2]);
    assert_eq!(handshakes().await, [HandshakeKind::Resumed; 2]);
}
