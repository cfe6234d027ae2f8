//! A client with a secret, and what it asks. Strangers are the quickest way to have the service write something and
//! promise something.

use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::process::{Reply, Running, Service};

pub(crate) const ANONYMOUS: &str = "urn:service:oauth2:grant-type:anonymous";

/// The flags of a client with a secret and the scope `notes.read`.
pub(crate) const ALL_GRANTS: &str = "--grant anonymous --grant refresh_token --grant client_credentials \
     --scope notes.read --allow-secret-credentials --max-scope notes.read";
/// The form by which this client asks for a token of its own. A node decides it without the store.
pub(crate) const OWN_TOKEN: [(&str, &str); 2] =
    [("grant_type", "client_credentials"), ("scope", "notes.read")];

#[derive(Clone)]
pub(crate) struct Kiosk {
    basic: String,
}

impl Kiosk {
    pub(crate) fn register(service: &Service) -> Self {
        Self::register_as(service, "kiosk", "--grant anonymous --grant refresh_token")
    }

    /// Registers a client of that name with these flags.
    pub(crate) fn register_as(service: &Service, name: &str, flags: &str) -> Self {
        let words = format!("client add {name} {flags} --json");
        let client = service.json(&words.split_whitespace().collect::<Vec<_>>());
        Self::of(name, client["client_secret"].as_str().unwrap())
    }

    /// The client of that name with a secret that it was given.
    pub(crate) fn of(name: &str, secret: &str) -> Self {
        Self {
            basic: format!("Basic {}", STANDARD.encode(format!("{name}:{secret}"))),
        }
    }

    /// Its credentials, as the header has them.
    pub(crate) fn authorization(&self) -> &str {
        &self.basic
    }

    /// Posts a form; nothing when no whole answer comes.
    pub(crate) fn ask(&self, service: &Service, path: &str, form: &[(&str, &str)]) -> Option<Reply> {
        service.post_form(path, &[("Authorization", &self.basic)], form)
    }

    /// The status of the answer to a token request.
    pub(crate) fn status(&self, service: &Service, form: &[(&str, &str)]) -> u16 {
        let answer = self.ask(service, "/oauth2/token", form);
        answer.unwrap().status
    }

    fn post(&self, running: &Running<'_>, path: &str, form: &[(&str, &str)]) -> Reply {
        let answer = self.ask(running, path, form);
        answer.unwrap_or_else(|| {
            panic!(
                "a running service must answer, even if its disk fails: {}",
                running.log()
            )
        })
    }

    /// A refresh token for a new user, or the answer that says no.
    pub(crate) fn enter(&self, running: &Running<'_>) -> Result<String, Reply> {
        granted(self.post(running, "/oauth2/token", &[("grant_type", ANONYMOUS)]))
    }

    pub(crate) fn refresh(&self, running: &Running<'_>, token: &str) -> Result<String, Reply> {
        let form = [("grant_type", "refresh_token"), ("refresh_token", token)];
        granted(self.post(running, "/oauth2/token", &form))
    }

    pub(crate) fn revoke(&self, running: &Running<'_>, token: &str) -> Reply {
        self.post(running, "/oauth2/revoke", &[("token", token)])
    }

    /// The introspection answer for a token.
    pub(crate) fn introspect(&self, running: &Running<'_>, token: &str) -> Reply {
        self.post(running, "/oauth2/introspect", &[("token", token)])
    }

    /// The whole answer to a new user.
    pub(crate) fn tokens(&self, running: &Running<'_>) -> Value {
        let reply = self.post(running, "/oauth2/token", &[("grant_type", ANONYMOUS)]);
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }
}

fn granted(reply: Reply) -> Result<String, Reply> {
    if reply.status == 200 {
        Ok(reply.json()["refresh_token"].as_str().unwrap().to_owned())
    } else {
        Err(reply)
    }
}

/// Fails unless the answer is 503 with `Retry-After`, as while the disk fails.
pub(crate) fn put_off(reply: &Reply) {
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.header("retry-after").is_some(), "{reply:?}");
}

/// Whether the service says of itself that it can do its work.
pub(crate) fn is_ready(running: &Running<'_>) -> bool {
    let reply = running.request("GET", "/readyz", &[], "").unwrap();
    assert!(matches!(reply.status, 200 | 503), "{reply:?}");
    reply.status == 200
}

/// Waits until the service says so.
pub(crate) fn until_ready(running: &Running<'_>) {
    let begun = Instant::now();
    while !is_ready(running) {
        assert!(
            begun.elapsed() < Duration::from_mins(1),
            "the disk is well and the service is not"
        );
        thread::sleep(Duration::from_millis(20));
    }
}
