use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use tempfile::TempDir;

use super::*;
use crate::config::backups::backups;
use crate::config::reader::Reader;
use crate::config::resolve::resolve_all;

const URL: (&str, &str) = ("store.url", "postgres://idsvc:s3cret@db.example.com/idsvc");

/// A folder for the files that settings name.
struct Files(TempDir);

impl Files {
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn files() -> Files {
    Files(TempDir::new().unwrap())
}

fn settings_of(flags: &[(&'static str, &str)]) -> Result<Settings, ConfigError> {
    resolve_settings(&sources_of(flags, &[], WHOLE))
}

fn pem(is_authority: bool) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["idsvc".to_owned()]).unwrap();
    if is_authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn the_address_of_the_database_comes_from_a_setting_or_a_file() {
    assert_eq!(settings_of(&[]).unwrap().store, None);
    let shown = "postgres://idsvc:…@db.example.com/idsvc";
    assert_eq!(settings_of(&[URL]).unwrap().store.unwrap().to_string(), shown);
    let files = files();
    let file = files.write("url", &format!("{}\n", URL.1));
    let env = [("IDSVC_STORE_URL_FILE", file.as_str())];
    let settings = resolve_settings(&sources_of(&[], &env, WHOLE)).unwrap();
    let address = settings.store.clone().unwrap();
    assert_eq!(address.reveal_url(), format!("{}?sslmode=require", URL.1));
    assert!(!format!("{settings:?}").contains("s3cret"));
}

#[test]
fn the_files_for_tls_are_read() {
    let files = files();
    let (authority, _) = pem(true);
    let (certificate, key) = pem(false);
    let (ca, cert, key_file) = (
        files.write("ca", &authority),
        files.write("cert", &certificate),
        files.write("key", &key),
    );
    let flags = [
        URL,
        ("store.ca_file", ca.as_str()),
        ("store.cert_file", cert.as_str()),
        ("store.key_file", key_file.as_str()),
    ];
    let address = settings_of(&flags).unwrap().store.unwrap();
    assert_eq!(address.authorities.as_deref(), Some(authority.as_bytes()));
    let identity = address.identity.unwrap();
    assert_eq!(identity.certificate, certificate.as_bytes());
    assert_eq!(identity.key.as_slice(), key.as_bytes());
}

#[test]
fn a_wrong_setting_of_the_database_is_one_fault_without_a_secret() {
    let files = files();
    let (certificate, key) = pem(false);
    let (cert, other_key) = (
        files.write("cert", &certificate),
        files.write("key", &pem(false).1),
    );
    let (url, none) = (files.write("url", URL.1), files.write("none", ""));
    files.write("unused", &key);
    for (flags, expected) in [
        (
            vec![("store.url", "mysql://u:s3cret@h")],
            "--store-url: store.url: it is not a PostgreSQL address",
        ),
        (
            vec![("store.url", "postgres://u:s3cret@/db")],
            "store.url: it names no host",
        ),
        (
            vec![(
                "store.url",
                "postgres://u:s3cret@db.example.com/db?sslmode=disable",
            )],
            "TLS may be off only for a unix socket or loopback",
        ),
        (vec![("store.url", " ")], "store.url is empty"),
        (vec![URL, ("store.url_file", &url)], "both set"),
        (
            vec![("store.url_file", &none)],
            "store.url_file: it is not a PostgreSQL address",
        ),
        (
            vec![("store.url_file", "/nonexistent/url")],
            "store.url_file: /nonexistent/url cannot be read",
        ),
        (
            vec![URL, ("store.ca_file", "/nonexistent/ca")],
            "store.ca_file: /nonexistent/ca cannot be read",
        ),
        (vec![URL, ("store.ca_file", &none)], "it has no certificate"),
        (
            vec![("store.ca_file", &cert)],
            "store.ca_file is set, and no database",
        ),
        (
            vec![URL, ("store.cert_file", &cert)],
            "it needs its key: set store.key_file",
        ),
        (
            vec![URL, ("store.key_file", &other_key)],
            "it needs its certificate: set store.cert_file",
        ),
        (
            vec![URL, ("store.cert_file", &cert), ("store.key_file", &other_key)],
            "store.cert_file: ",
        ),
    ] {
        let error = settings_of(&flags).unwrap_err();
        let said = error.to_string();
        assert!(
            error.faults.len() == 1 && said.contains(expected),
            "{expected}: {said}"
        );
        assert!(!said.contains("s3cret"), "{said}");
    }
}

#[test]
fn a_database_that_nodes_share_goes_with_certificates_from_files_and_backups_of_its_own() {
    let resolved = |flags: &[(&'static str, &str)]| {
        resolve(&sources_of(flags, &[], WHOLE)).map_err(|error| error.to_string())
    };
    let interval = |flags: &[(&'static str, &str)]| {
        let sources = sources_of(flags, &[], WHOLE);
        backups(&mut Reader::of(&sources), Ok(true)).unwrap().interval
    };
    assert_eq!(interval(&[URL]), None);
    let six_hours = ("backup.interval", "6h");
    assert_eq!(interval(&[URL, six_hours]), Some(Duration::from_hours(6)));
    if !cfg!(feature = "postgres") {
        let said = resolved(&[URL]).unwrap_err();
        assert!(said.contains("this idsvc was built without postgres"), "{said}");
    }
    let said = resolved(&[URL, ("acme.domains", "id.example.com")]).unwrap_err();
    assert!(said.contains("set tls.mode to files"), "{said}");
}

#[test]
fn a_file_with_a_password_is_for_its_owner() {
    let files = files();
    let secret = PathBuf::from(files.write("url", URL.1));
    let config_file = files.write("idsvc.toml", &format!("{WHOLE}[store]\nurl = \"{}\"\n", URL.1));
    let warnings = |sources: &Sources| {
        let resolved = resolve_all(sources);
        let warnings = resolved.warnings.iter().map(ToString::to_string);
        warnings
            .filter(|warning| warning.contains("open to others"))
            .count()
    };
    let flags = [("store.url_file", secret.to_str().unwrap())];
    let by_file = || sources_of(&flags, &[], WHOLE);
    let in_settings = || Sources::collect(&[], &[], Some(Path::new(&config_file)));
    let set_mode = |mode| {
        for path in [&secret, &PathBuf::from(&config_file)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    set_mode(0o644);
    assert_eq!((warnings(&by_file()), warnings(&in_settings())), (1, 1));
    set_mode(0o640);
    assert_eq!((warnings(&by_file()), warnings(&in_settings())), (0, 0));
}
