//! RFC 8705 section 2: the handshake proves that the client has the key of its certificate.

use std::io;
use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, HandshakeKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::mtls::{CertificateListener, ClientCa, Holder, start};

/// One request on one connection, and how the connection began.
async fn handshake(listener: &CertificateListener, client: &Arc<ClientConfig>) -> io::Result<HandshakeKind> {
    let mut stream = listener.connect(client).await?;
    // With TLS 1.3 the service judges the certificate after the client has finished.
    let request = b"GET /healthz HTTP/1.1\r\nhost: id.example.test\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    assert!(answer.starts_with(b"HTTP/1.1 200 "));
    Ok(stream.get_ref().1.handshake_kind().unwrap())
}

#[tokio::test]
async fn a_certificate_without_its_key_ends_the_handshake() {
    let ca = ClientCa::new();
    let (_server, listener) = start(&ca).await;
    let (holder, thief) = (ca.issue(&[]), Holder::self_signed(&[]));
    for version in [&TLS12, &TLS13] {
        let with_key_of = |signer| listener.client(version, &holder, signer);
        handshake(&listener, &with_key_of(&holder)).await.unwrap();
        let refused = handshake(&listener, &with_key_of(&thief)).await;
        assert!(refused.is_err(), "{:?}", version.version);
    }
}

/// A resumed session would come without a proof of the key.
#[tokio::test]
async fn no_session_of_a_client_with_a_certificate_is_resumed() {
    let ca = ClientCa::new();
    let (_server, listener) = start(&ca).await;
    let holder = ca.issue(&[]);
    for version in [&TLS12, &TLS13] {
        let client = listener.client(version, &holder, &holder);
        for _ in 0..2 {
            let kind = handshake(&listener, &client).await.unwrap();
            assert_eq!(kind, HandshakeKind::Full, "{:?}", version.version);
        }
    }
}
