//! What `config check` and `doctor` say of the certificate chain in `tls.cert`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::harness::process::{Service, said, shown};

/// An authority, and its certificate as PEM.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn authority(name: &str, by: Option<&Authority>, last_year: i32) -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
    let certificate = match by {
        Some(by) => params.signed_by(&key, &by.issuer),
        None => params.self_signed(&key),
    };
    Authority {
        pem: certificate.unwrap().pem(),
        issuer: Issuer::new(params, key),
    }
}

/// A service with this certificate and these others behind it.
fn service(by: &Authority, others: &[&Authority]) -> Service {
    let service = Service::new();
    let folder = service.folder.path();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let mut chain = leaf.signed_by(&key, &by.issuer).unwrap().pem();
    for other in others {
        chain.push_str(&other.pem);
    }
    let (cert, private) = (folder.join("chain.pem"), folder.join("key.pem"));
    fs::write(&cert, chain).unwrap();
    fs::write(&private, key.serialize_pem()).unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o600)).unwrap();
    let port = service.port;
    service
        .with("IDSVC_TLS_MODE", "files")
        .with("IDSVC_TLS_CERT", cert.to_str().unwrap())
        .with("IDSVC_TLS_KEY", private.to_str().unwrap())
        .with("IDSVC_BASE_URL", &format!("https://127.0.0.1:{port}"))
}

/// The same on a machine that knows this root.
fn knowing(root: &Authority, service: Service) -> Service {
    let file = service.folder.path().join("root.pem");
    fs::write(&file, &root.pem).unwrap();
    service.with("IDSVC_OUTBOUND_CA_FILE", file.to_str().unwrap())
}

/// The findings of the doctor about the certificate.
fn doctor(service: &Service) -> String {
    let told = shown(&service.run(&["doctor", "--all"]));
    let mut lines: Vec<_> = told.lines().collect();
    lines.retain(|line| line.contains("certificate "));
    lines.join("\n")
}

#[test]
fn a_chain_that_clients_cannot_follow_is_a_fault_of_check_and_doctor() {
    let root = authority("Test Root", None, 4000);
    let between = authority("Test Between", Some(&root), 4000);
    let other = authority("Test Other", Some(&root), 4000);
    let expired = authority("Test Between", Some(&root), 2001);
    let leaf_only = knowing(&root, service(&between, &[]));
    for (service, named) in [
        (leaf_only, "append the certificate of CN=Test Between"),
        (
            service(&between, &[&other]),
            "number 2 (CN=Test Other) did not issue",
        ),
        (
            service(&between, &[&root]),
            "number 2 (CN=Test Root) did not issue",
        ),
        (
            knowing(&root, service(&between, &[&other])),
            "number 2 (CN=Test Other) did not issue",
        ),
        (service(&expired, &[&expired]), "(CN=Test Between) has expired"),
        (
            knowing(&root, service(&expired, &[&expired, &root])),
            "(CN=Test Between) has expired",
        ),
    ] {
        let checked = service.run(&["config", "check"]);
        assert_eq!(checked.status.code(), Some(1), "{named}: {}", said(&checked));
        assert!(said(&checked).contains(named), "{named}: {}", said(&checked));
        let found = doctor(&service);
        assert!(
            found.starts_with("MEND") && found.contains(named),
            "{named}: {found}"
        );
    }
}

#[test]
fn a_chain_of_a_private_authority_is_no_fault() {
    let root = authority("Test Root", None, 4000);
    let between = authority("Test Between", Some(&root), 4000);
    for (service, found) in [
        (service(&between, &[&between]), "good  certificate"),
        (service(&between, &[&between, &root]), "good  certificate"),
        (service(&root, &[&root]), "good  certificate"),
        (knowing(&root, service(&between, &[&between])), "chain.pem: valid"),
        (knowing(&root, service(&root, &[])), "chain.pem: valid"),
        // It cannot be known whether the authority is a root.
        (service(&root, &[]), "advice  certificate"),
    ] {
        let checked = service.run(&["config", "check"]);
        assert!(checked.status.success(), "{}", said(&checked));
        let told = doctor(&service);
        assert!(told.contains(found), "{found}: {told}");
        let is_advice = found.starts_with("advice");
        assert_eq!(
            said(&checked).contains("warning"),
            is_advice,
            "{}",
            said(&checked)
        );
    }
}

#[test]
fn a_service_starts_with_a_chain_that_is_incomplete() {
    let root = authority("Test Root", None, 4000);
    let between = authority("Test Between", Some(&root), 4000);
    let service = knowing(&root, service(&between, &[]));
    let mut running = service.launch();
    running.until(|running| running.run(&["health"]).status.success());
}

#[test]
fn a_running_service_warns_of_a_chain_that_clients_cannot_follow_at_the_start_and_on_each_signal() {
    let root = authority("Test Root", None, 4000);
    let between = authority("Test Between", Some(&root), 4000);
    let other = authority("Test Other", Some(&root), 4000);
    let service = service(&between, &[&other]);
    let fault = "number 2 (CN=Test Other) did not issue";
    let mut running = service.launch();
    running.until(|running| running.run(&["health"]).status.success());
    let count = || service.log().matches(fault).count();
    assert_eq!(count(), 1, "{}", service.log());
    running.signal("HUP");
    running.until(|_| count() == 2);
    let whole = fs::read_to_string(service.folder.path().join("chain.pem")).unwrap();
    let own = whole
        .split_inclusive("-----END CERTIFICATE-----\n")
        .next()
        .unwrap();
    fs::write(
        service.folder.path().join("chain.pem"),
        format!("{own}{}", between.pem),
    )
    .unwrap();
    running.signal("HUP");
    running.until(|_| service.log().contains("new certificate in use"));
    running.signal("HUP");
    running.until(|_| service.log().contains("the certificate is unchanged"));
    assert_eq!(count(), 2, "{}", service.log());
}

#[test]
fn a_certificate_that_has_expired_is_a_fault_beside_the_chain_and_another_order_is_named() {
    let root = authority("Test Root", None, 4000);
    let between = authority("Test Between", Some(&root), 4000);
    let service = service(&between, &[&root]);
    let folder = service.folder.path();
    let key = KeyPair::from_pem(&fs::read_to_string(folder.join("key.pem")).unwrap()).unwrap();
    let mut leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    leaf.not_after = rcgen::date_time_ymd(2001, 1, 1);
    let expired = leaf.signed_by(&key, &between.issuer).unwrap().pem();
    let broken = "number 2 (CN=Test Root) did not issue";
    for (chain, named) in [
        (
            format!("{expired}{}", between.pem),
            vec!["the certificate has expired"],
        ),
        (
            format!("{expired}{}", root.pem),
            vec!["the certificate has expired", broken],
        ),
        (
            format!("{}{expired}", between.pem),
            vec!["the server's own certificate is number 2 in the chain: put it first"],
        ),
    ] {
        fs::write(folder.join("chain.pem"), chain).unwrap();
        let checked = service.run(&["config", "check"]);
        assert_eq!(checked.status.code(), Some(1), "{}", said(&checked));
        let found = doctor(&service);
        for named in named {
            assert!(said(&checked).contains(named), "{named}: {}", said(&checked));
            assert!(found.contains(named), "{named}: {found}");
        }
        let path = folder.join("chain.pem").display().to_string();
        assert!(
            found.lines().all(|line| line.matches(&path).count() == 1),
            "{found}"
        );
    }
}
