//! The real executable, of whose limits nobody has said anything, holds back who asks from loopback.

use std::io::Write;
use std::process::Stdio;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::harness::process::{Reply, Running, Service};

const PASSWORD: &str = "correct horse battery staple";
const TARGET: &str = "/oauth2/authorize?response_type=code&client_id=web&redirect_uri=https://app.example/cb";
/// What a slow machine may be allowed more, while it is at it.
const MEANWHILE: usize = 3;

/// A service as it is after its installation, with one client and one user: also the client's secret.
fn scene() -> (Service, String) {
    let service = Service::new().without("IDSVC_LIMITS_EXEMPT");
    let add = "client add web --redirect-uri https://app.example/cb --grant authorization_code --grant anonymous \
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

/// Asks until it is too much. So many are answered with `status` before, and whoever is held back is told for how long.
fn held_back_after(limit: usize, status: u16, longest: u32, ask: impl Fn() -> Reply) {
    for answered in 0..=limit + MEANWHILE {
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

#[test]
fn whoever_makes_anonymous_users_is_held_back() {
    let (service, secret) = scene();
    let running = service.serve();
    let form = [("grant_type", "urn:service:oauth2:grant-type:anonymous")];
    held_back_after(60, 200, 60, || ask(&running, "/oauth2/token", &secret, &form));
}
