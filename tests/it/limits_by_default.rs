//! The real executable, of whose limits nobody has said anything, holds back who asks from loopback.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::net::TcpSocket;

use crate::harness::process::{Reply, Running, Service};

const PASSWORD: &str = "correct horse battery staple";
const TARGET: &str = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";
/// How many more requests a slow machine may be allowed while the test runs.
const TOLERANCE: usize = 3;

/// A service as it is after its installation, with one client and one user: also the client's secret.
fn scene() -> (Service, String) {
    let service = Service::new().without("IDSVC_LIMITS_EXEMPT");
    let add = "client add web --redirect-uri https://app.example/cb --pkce optional --grant authorization_code --grant anonymous \
               --json";
    let web = service.json(&add.split_whitespace().collect::<Vec<_>>());
    let mut child = service
        .command(&["user", "add", "alice@example.com", "--password-stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(PASSWORD.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
    let secret = web["client_secret"].as_str().unwrap().to_owned();
    (service, secret)
}

fn ask(running: &Running<'_>, path: &str, secret: &str, form: &[(&str, &str)]) -> Reply {
    let basic = format!("Basic {}", STANDARD.encode(format!("web:{secret}")));
    let answer = running.post_form(path, &[("Authorization", &basic)], form);
    answer.unwrap()
}

/// Sends requests until one is limited. The `limit` requests before get `status`, and the limited one gets `Retry-After`.
fn held_back_after(limit: usize, status: u16, longest: u32, ask: impl Fn() -> Reply) {
    for answered in 0..=limit + TOLERANCE {
        let reply = ask();
        if reply.status == 429 {
            assert!(answered >= limit, "held back after {answered} of {limit}");
            let wait: u32 = reply.header("retry-after").unwrap().parse().unwrap();
            assert!((1..=longest).contains(&wait), "{wait}");
            return;
        }
        assert_eq!(reply.status, status, "{reply:?}");
    }
    panic!("more than {limit} are answered");
}

#[test]
fn whoever_fails_to_sign_in_is_held_back_with_the_right_password_too() {
    let (service, _) = scene();
    let running = service.serve();
    let try_with = |password: &str| running.type_in(TARGET, "alice@example.com", password).0;
    assert_eq!(try_with(PASSWORD).status, 303);
    held_back_after(10, 200, 300, || try_with("wrong"));
    assert_eq!(try_with(PASSWORD).status, 429);
}

#[test]
fn whoever_fails_to_be_a_client_is_held_back_with_the_right_secret_too() {
    let (service, secret) = scene();
    let running = service.serve();
    let try_with = |secret: &str| ask(&running, "/oauth2/introspect", secret, &[("token", "none")]);
    assert_eq!(try_with(&secret).status, 200);
    held_back_after(20, 401, 10, || try_with("wrong"));
    let held_back = try_with(&secret);
    assert_eq!(
        (held_back.status, &held_back.json()["error"]),
        (429, &"temporarily_unavailable".into())
    );
}

/// A connection from this address of the machine.
fn connect_from(place: [u8; 4], port: u16) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((place, 0).into()).unwrap();
        let stream = socket.connect(([127, 0, 0, 1], port).into()).await;
        stream.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    stream
}

/// Whether there is an answer on it; else it has been closed.
fn is_answered(mut stream: &TcpStream) -> bool {
    let sent = stream.write_all(b"HEAD /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    let mut answer = Vec::new();
    while sent.is_ok() && !answer.ends_with(b"\r\n\r\n") {
        let mut buffer = [0; 1024];
        match stream.read(&mut buffer) {
            Ok(0) => return false,
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("neither an answer nor an end"),
            Err(_) => return false,
        }
    }
    answer.starts_with(b"HTTP/1.1 200 OK")
}

#[test]
fn whoever_opens_connections_gets_256_of_them_and_others_get_theirs() {
    const MOST: usize = 256;
    let (service, _) = scene();
    let running = service.serve();
    let from = |place: u8| connect_from([127, 0, 0, place], service.port);
    // Of the connections on which it was asked whether it answers one may not be over yet.
    let mut tries = (0..2 * MOST).map(|_| from(1));
    let held: Vec<_> = tries.by_ref().filter(is_answered).take(MOST).collect();
    assert_eq!(held.len(), MOST, "{}", running.log());
    assert!(!is_answered(&from(1)), "the 257th");
    assert!(is_answered(&from(2)));
    assert!(is_answered(&held[0]), "what is open goes on");
}

#[test]
fn whoever_makes_anonymous_users_is_held_back() {
    let (service, secret) = scene();
    let running = service.serve();
    let form = [("grant_type", "urn:service:oauth2:grant-type:anonymous")];
    held_back_after(60, 200, 60, || ask(&running, "/oauth2/token", &secret, &form));
}
