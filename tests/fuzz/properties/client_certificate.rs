//! Client certificates, and the names that are registered for them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::jose::jwk::JwkSet;
use idsvc::oauth::client_certificate::{ClientCertificate, ExpectedName};
use ring::digest;
use rustls::pki_types::CertificateDer;

/// The thumbprint of a certificate that is read is that of its bytes. It is the certificate of no key that is not
/// registered, and with a byte behind its end it is none.
pub(super) fn client_certificate(data: &[u8]) -> bool {
    let parse = |der: &[u8]| ClientCertificate::parse(&[CertificateDer::from(der.to_vec())]);
    let Some(certificate) = parse(data) else {
        return registered_name(data);
    };
    let digest = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, data));
    let thumbprint = serde_json::to_value(&certificate.thumbprint).unwrap();
    assert_eq!(thumbprint, serde_json::json!(digest));
    assert!(!certificate.has_key_of(&JwkSet::default()));
    assert!(parse(&[data, &[0]].concat()).is_none());
    true
}

/// A registered name is the same however often it is read. None is a certificate.
fn registered_name(data: &[u8]) -> bool {
    for field in [
        "tls_client_auth_subject_dn",
        "tls_client_auth_san_dns",
        "tls_client_auth_san_uri",
        "tls_client_auth_san_ip",
        "tls_client_auth_san_email",
    ] {
        let parse = |text| ExpectedName::parse(field, text).ok();
        if let Ok(text) = std::str::from_utf8(data) {
            assert_eq!(parse(text), parse(text));
        }
    }
    false
}
