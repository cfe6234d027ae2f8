use std::fs;

use super::*;

const BASE: &str = "base_url = \"https://id.example.com/a\"\ntls.mode = \"self-signed\"\n";

#[test]
fn a_listener_for_certificates_is_off_until_it_has_an_address() {
    let off = resolve(&sources_of(&[], &[], BASE)).unwrap();
    assert_eq!(off.settings.mtls.listen, None);
    assert_eq!(off.policy().mtls.base(&off.issuer), None);
    let base_of = |flags: &[(&'static str, &str)]| {
        let config = resolve(&sources_of(flags, &[], BASE)).unwrap();
        config.policy().mtls.base(&config.issuer)
    };
    let listen = ("tls.mtls_listen", "0.0.0.0:9443");
    assert_eq!(
        base_of(&[listen]).as_deref(),
        Some("https://id.example.com:9443/a")
    );
    let mapped = ("tls.mtls_base_url", "https://mtls.example.com");
    assert_eq!(
        base_of(&[listen, mapped]).as_deref(),
        Some("https://mtls.example.com/a")
    );
}

#[test]
fn an_address_that_cannot_work_is_a_fault() {
    let listen = ("tls.mtls_listen", "0.0.0.0:9443");
    for (flags, named) in [
        (vec![("tls.mtls_listen", "9443")], "is no address with a port"),
        (vec![("tls.mtls_listen", "0.0.0.0:443")], "is taken by listen"),
        (
            vec![("tls.mtls_listen", "127.0.0.1:80"), ("redirect_port", "80")],
            "is taken by redirect_port",
        ),
        (
            vec![listen, ("metrics.listen", "127.0.0.1:9443")],
            "is taken by metrics.listen",
        ),
        (
            vec![listen, ("tls.mode", "off"), ("trusted_proxies", "10.0.0.0/8")],
            "no header of a proxy replaces a certificate",
        ),
        (
            vec![listen, ("tls.mtls_base_url", "https://id.example.com/a")],
            "scheme, host and port only",
        ),
        (
            vec![listen, ("tls.mtls_base_url", "http://id.example.com")],
            "scheme, host and port only",
        ),
        (
            vec![("tls.mtls_ca", "/nonexistent/ca.pem")],
            "/nonexistent/ca.pem: ",
        ),
    ] {
        let told = faults(&sources_of(&flags, &[], BASE));
        assert!(
            told.contains(named) && told.lines().count() == 1,
            "{named}: {told}"
        );
    }
    let dev = sources_of(&[listen], &[], "").for_development();
    assert!(faults(&dev).contains("loopback only"));
}

#[test]
fn authorities_are_read_from_every_file() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let authority = || {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    };
    let (one, two) = (file("one.pem", &authority()), file("two.pem", &authority()));
    let both = format!("{one},{two}");
    let config = resolve(&sources_of(&[("tls.mtls_ca", &both)], &[], BASE)).unwrap();
    assert!(config.policy().mtls.has_authorities);
    assert!(config.settings.mtls.authorities().unwrap().is_some());
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    for wrong in [file("empty.pem", ""), file("key.pem", &key)] {
        let told = faults(&sources_of(
            &[("tls.mtls_ca", &format!("{one},{wrong}"))],
            &[],
            BASE,
        ));
        assert!(told.contains(&wrong) && told.contains("no certificate"), "{told}");
    }
    let mut params = rcgen::CertificateParams::default();
    let leaf = |params: &rcgen::CertificateParams| {
        let key = rcgen::KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().pem()
    };
    let of_client = file("client.pem", &leaf(&params));
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    let signs_nothing = file("signs-nothing.pem", &leaf(&params));
    for wrong in [of_client, signs_nothing] {
        let told = faults(&sources_of(&[("tls.mtls_ca", &wrong)], &[], BASE));
        assert!(told.contains("not that of an authority"), "{told}");
    }
}
