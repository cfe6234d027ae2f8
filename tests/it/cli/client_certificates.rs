//! Clients with certificates (RFC 8705), as an operator registers them.

use std::fs;

use crate::harness::mtls::ClientCa;
use crate::harness::port::free_port;
use crate::harness::process::Service;
use crate::harness::tls;

fn add<'a>(id: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    let base = [
        "client",
        "add",
        id,
        "--grant",
        "client_credentials",
        "--scope",
        "notes.read",
        "--json",
    ];
    [&base, flags].concat()
}

fn refusal(service: &Service, arguments: &[&str]) -> String {
    let output = service.run(arguments);
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_client_with_a_certificate_of_an_authority_needs_an_authority() {
    let service = Service::new();
    let subject = ["--tls-client-auth-subject-dn", "CN=bank,O=Example,C=BE"];
    assert!(refusal(&service, &add("bank", &subject)).contains("tls.mtls_ca"));
    let ca = service.folder.path().join("clients-ca.pem");
    fs::write(&ca, ClientCa::new().pem()).unwrap();
    let service = service.with("IDSVC_TLS_MTLS_CA", ca.to_str().unwrap());
    let bank = service.json(&add("bank", &subject));
    assert_eq!(bank["auth_methods"], serde_json::json!(["tls_client_auth"]));
    assert_eq!(bank.get("client_secret"), None);
    for (flags, problem) in [
        (
            ["--tls-client-auth-subject-dn", "bank"],
            "is no distinguished name",
        ),
        (
            ["--tls-client-auth-subject-dn", "XY=bank"],
            "attribute type XY is unknown",
        ),
        (["--tls-client-auth-san-dns", "a b"], "is no DNS name"),
        (["--tls-client-auth-san-uri", "bank"], "is no URI"),
        (["--tls-client-auth-san-uri", "urn:bank a"], "is no URI"),
        (["--tls-client-auth-san-ip", "192.0.2"], "is no address"),
        (["--tls-client-auth-san-email", "bank"], "is no mail address"),
    ] {
        let told = refusal(&service, &add("other", &flags));
        assert!(told.contains(problem), "{told}");
    }
    let two = [subject, ["--tls-client-auth-san-dns", "bank.example.com"]].concat();
    assert!(refusal(&service, &add("other", &two)).contains("known by one name"));
    let self_signed = [&subject[..], &["--self-signed-tls-client-auth"]].concat();
    let told = refusal(&service, &add("other", &self_signed));
    assert!(
        told.contains("register the key") && told.contains("not both"),
        "{told}"
    );
    let both = [
        &subject[..],
        &["--tls-client-certificate-bound-access-tokens", "--require-dpop"],
    ]
    .concat();
    assert!(refusal(&service, &add("other", &both)).contains("not to both"));
    let public = [
        "client",
        "add",
        "app",
        "--public",
        "--redirect-uri",
        "com.example.app:/cb",
    ];
    let told = refusal(&service, &[&public[..], &subject[..]].concat());
    assert!(told.contains("a public client has no key"), "{told}");
    // The method goes with the name.
    let update = ["client", "update", "bank", "--tls-client-auth-subject-dn", ""];
    assert!(refusal(&service, &update).contains("needs a key or a secret"));
    let doctor = service.run(&["doctor"]);
    let told = String::from_utf8(doctor.stdout).unwrap();
    assert!(told.contains("set tls.mtls_listen to an address"), "{told}");
}

#[test]
fn registered_keys_are_for_certificates_if_the_client_says_so() {
    let service = Service::new();
    let key = service.folder.path().join("key.pem");
    fs::write(&key, rcgen::KeyPair::generate().unwrap().public_key_pem()).unwrap();
    let with_key = ["--public-key-file", key.to_str().unwrap()];
    let flags = [&with_key[..], &["--self-signed-tls-client-auth"]].concat();
    let bank = service.json(&add("bank", &flags));
    assert_eq!(
        bank["auth_methods"],
        serde_json::json!(["self_signed_tls_client_auth"])
    );
    let update = [
        "client",
        "update",
        "bank",
        "--self-signed-tls-client-auth=false",
        "--json",
    ];
    assert_eq!(
        service.json(&update)["auth_methods"],
        serde_json::json!(["private_key_jwt"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_says_where_clients_show_certificates() {
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let service = tls::service(100)
        .with("IDSVC_TLS_MTLS_LISTEN", &address)
        .with("IDSVC_LOG_LEVEL", "info");
    let certificate = tls::issue(&service);
    let target = tls::Target::new(service.port, std::slice::from_ref(&certificate), tls::HTTP_1);
    let mut running = tls::serve(&service, &target).await;
    let line = service.logged("ready");
    assert!(line.contains(&address), "{line}");
    let other = tls::Target::new(port, &[certificate], tls::HTTP_1);
    let mut stream = other.connect().await.unwrap();
    let refused = tls::ask(&mut stream).await.unwrap_err().to_string();
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
    drop(stream);
    running.terminate();
    assert_eq!(service.log().matches("stopping: ").count(), 1, "told once");
}
