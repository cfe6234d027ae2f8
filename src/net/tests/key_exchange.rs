//! The key exchange that both sides agree on.

use rustls::pki_types::PrivateKeyDer;
use rustls::{HandshakeKind, NamedGroup, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::net::key_exchange::crypto_provider;

#[tokio::test]
async fn the_key_exchange_resists_quantum_computers_if_the_client_offers_that() {
    let directory = TempDir::new().unwrap();
    let (acceptor, certificate) = self_signed(&directory);
    let server = Server::start(Limits::default(), Some(acceptor)).await;
    for (provider, group) in [
        (crypto_provider(), NamedGroup::X25519MLKEM768),
        (default_provider(), NamedGroup::X25519),
    ] {
        let config = Arc::new(client_config(provider, &certificate));
        let peer = connect(&server, &config).await.unwrap();
        let connection = peer.get_ref().1;
        let agreed = connection.negotiated_key_exchange_group().unwrap();
        assert_eq!(
            (agreed.name(), connection.handshake_kind()),
            (group, Some(HandshakeKind::Full))
        );
    }
}

#[tokio::test]
async fn a_server_with_x25519_alone_needs_no_second_hello() {
    let directory = TempDir::new().unwrap();
    let (_, certificate) = self_signed(&directory);
    let key = PrivateKeyDer::from_pem_file(directory.path().join("certs/self-signed.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let (near, far) = tokio::io::duplex(16 * 1024);
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(client_config(crypto_provider(), &certificate)));
    let accepted = TlsAcceptor::from(Arc::new(config)).accept(far);
    let (connected, accepted) =
        in_time(async { tokio::join!(connector.connect(name, near), accepted) }).await;
    accepted.unwrap();
    let connected = connected.unwrap();
    let connection = connected.get_ref().1;
    let agreed = connection.negotiated_key_exchange_group().unwrap();
    assert_eq!(
        (agreed.name(), connection.handshake_kind()),
        (NamedGroup::X25519, Some(HandshakeKind::Full))
    );
}
