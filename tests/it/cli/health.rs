//! `idsvc health`, as a container asks its own service.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::port::free_port;
use crate::harness::process::{Service, said, shown};

#[test]
fn a_service_that_is_ready_is_healthy_however_it_listens() {
    let (one, other) = (free_port(), free_port());
    let named = |host: &str, port: u16| format!("{host}:{port}");
    for (listen, tls, base_url) in [
        (named("127.0.0.1", one), "off", "http://127.0.0.1"),
        (named("0.0.0.0", one), "off", "https://id.example.com"),
        (named("0.0.0.0", one), "self-signed", "https://id.example.com"),
        (named("127.0.0.1", one), "self-signed", "https://192.0.2.1"),
        (named("[::]", one), "self-signed", "https://id.example.com/x"),
        (
            format!("{},{}", named("127.0.0.2", one), named("127.0.0.1", other)),
            "off",
            "http://127.0.0.1",
        ),
    ] {
        let service = Service::new()
            .with("IDSVC_LISTEN", &listen)
            .with("IDSVC_TLS_MODE", tls)
            .with("IDSVC_BASE_URL", base_url)
            .with("IDSVC_TRUSTED_PROXIES", "192.0.2.0/24");
        let mut running = service.launch();
        running.until(|running| running.run(&["health"]).status.success());
        let asked = running.run(&["health"]);
        assert_eq!(
            (shown(&asked).as_str(), said(&asked).as_str()),
            ("ready\n", ""),
            "{listen}"
        );
        let json = running.json(&["health", "--json"]);
        assert_eq!(
            (&json["ready"], &json["status"]),
            (&true.into(), &200.into()),
            "{json}"
        );
    }
}

#[test]
fn a_flag_and_a_file_name_the_address_too() {
    let service = Service::new();
    let listen = format!("127.0.0.1:{}", service.port);
    let running = service.serve();
    let file = format!("listen = [\"{listen}\"]\nbase_url = \"{}\"\n", service.issuer());
    std::fs::write(service.folder.path().join("idsvc.toml"), file).unwrap();
    let ask = |words: &[&str]| {
        let mut command = running.command(words);
        command.env_remove("IDSVC_LISTEN").env_remove("IDSVC_BASE_URL");
        command.output().unwrap().status.success()
    };
    assert!(ask(&["health"]));
    assert!(ask(&[
        "health",
        "--config",
        "/dev/null",
        "--listen",
        &listen,
        "--base-url",
        &service.issuer()
    ]));
    assert!(!ask(&[
        "health",
        "--config",
        "/dev/null",
        "--base-url",
        &service.issuer()
    ]));
}

#[test]
fn a_service_that_does_not_answer_is_not_healthy() {
    let service = Service::new();
    let listen = format!("127.0.0.1:{}", service.port);
    let refused = service.run(&["health"]);
    assert_eq!((refused.status.code(), shown(&refused).as_str()), (Some(1), ""));
    assert!(
        said(&refused).contains(&format!("{listen} does not accept connections")),
        "{}",
        said(&refused)
    );
    let silent = TcpListener::bind(&listen).unwrap();
    for (tls, base_url) in [("off", "http://127.0.0.1"), ("self-signed", "https://127.0.0.1")] {
        let begun = Instant::now();
        let refused = service.run(&["health", "--json", "--tls-mode", tls, "--base-url", base_url]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            said(&refused).contains("did not answer within"),
            "{}",
            said(&refused)
        );
        let document: serde_json::Value = serde_json::from_slice(&refused.stdout).unwrap();
        assert_eq!(document["ready"], false, "{document}");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    drop(silent);
}

#[test]
fn a_service_that_is_not_ready_is_not_healthy_and_says_why() {
    let service = Service::new();
    let full = TcpListener::bind(("127.0.0.1", service.port)).unwrap();
    let answering = thread::spawn(move || {
        let (mut stream, _) = full.accept().unwrap();
        let mut request = [0; 1024];
        let length = stream.read(&mut request).unwrap();
        let reply = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 17\r\n\r\nthe disk is full\n";
        stream.write_all(reply.as_bytes()).unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let asked = service.run(&["health"]);
    assert_eq!(asked.status.code(), Some(1));
    assert!(
        said(&asked).ends_with("is not ready (503): the disk is full\n"),
        "{}",
        said(&asked)
    );
    let request = answering.join().unwrap();
    assert!(request.starts_with("GET /readyz HTTP/1.1\r\n"), "{request}");
}

#[test]
fn a_service_without_tls_is_told_from_one_with() {
    let service = Service::new();
    let running = service.serve();
    let settings = ["--tls-mode", "self-signed", "--base-url", "https://127.0.0.1"];
    let asked = running.run(&[&["health"], &settings[..]].concat());
    assert_eq!(asked.status.code(), Some(1));
    assert!(
        said(&asked).contains("does not answer with TLS"),
        "{}",
        said(&asked)
    );
}
