//! Client certificates, and the names that are registered for them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::jose::jwk::JwkSet;
use idsvc::oauth::client_certificate::{ClientCertificate, ExpectedName};
use ring::digest;
use rustls::pki_types::CertificateDer;

/// The thumbprint of a certificate is that of its bytes. It is the certificate of no key that is not registered. One that
/// is read has either a name or not, and with a byte behind its end it cannot be read.
pub(super) fn client_certificate(data: &[u8]) -> bool {
    let certificate = |der: &[u8]| {
        let chain = [CertificateDer::from(der.to_vec())].into();
        ClientCertificate::new(chain, digest::digest(&digest::SHA256, der).as_ref()).unwrap()
    };
    let own = certificate(data);
    let digest = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, data));
    let thumbprint = serde_json::to_value(&own.thumbprint).unwrap();
    assert_eq!(thumbprint, serde_json::json!(digest));
    assert!(!own.has_key_of(&JwkSet::default()));
    let names = ["CN=a", "CN=bank,O=Example,C=BE"]
        .map(|subject| ExpectedName::parse("tls_client_auth_subject_dn", subject).unwrap())
        .into_iter()
        .chain([ExpectedName::Dns("a.example".to_owned())]);
    let read: Vec<_> = names.map(|name| own.has_name(&name).is_ok()).collect();
    if !read.contains(&true) {
        return registered_name(data);
    }
    let longer = certificate(&[data, &[0]].concat());
    assert!(
        longer
            .has_name(&ExpectedName::Dns("a.example".to_owned()))
            .is_err()
    );
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
