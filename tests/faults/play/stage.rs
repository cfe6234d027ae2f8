//! The cast, and how actors ask the service.

use std::fs;
use std::time::Instant;

use idsvc::clock::Clock;
use idsvc::jose::keyring::SigningKey;
use idsvc::oauth::client_auth::REPLAYED;
use idsvc::random::Random;
use serde_json::{Value, json};

use super::tally::Tally;
use crate::harness::process::{Reply, Service, said};
use crate::harness::token::signed;
use crate::kiosk::{ANONYMOUS, Kiosk};

pub(crate) const PASSWORD: &str = "correct horse battery staple";
const REDIRECT_URI: &str = "https://app.example/cb";
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Status and JSON of an answer.
pub(crate) type StatusAndBody = (u16, Value);

/// The registered clients.
pub(crate) struct Cast {
    client: Kiosk,
    robot: SigningKey,
}

impl Cast {
    /// Registers a client for users and anonymous users, a client with a key, and users with a password.
    pub(crate) fn register(service: &Service, people: &[String]) -> Self {
        let flags = "--redirect-uri https://app.example/cb --pkce optional --grant authorization_code --grant refresh_token \
                     --grant anonymous --scope services:all --default-scope services:all";
        let client = Kiosk::register_as(service, "load", flags);
        let robot = SigningKey::generate_es256(&Random::system()).unwrap();
        let keys = json!({"keys": [robot.public().to_jwk()]});
        fs::write(service.folder.path().join("robot.jwks"), keys.to_string()).unwrap();
        let words =
            "client add robot --jwks-file robot.jwks --grant client_credentials --scope notes.read --json";
        service.json(&words.split(' ').collect::<Vec<_>>());
        let password = service.folder.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        for name in people {
            let added = service
                .command(&["user", "add", name, "--password-stdin", "--json"])
                .stdin(fs::File::open(&password).unwrap())
                .output()
                .unwrap();
            assert!(added.status.success(), "{added:?}");
        }
        Self { client, robot }
    }
}

/// The nodes, or the one process, as an actor sees them. Requests return none if no whole answer came.
pub(crate) struct Stage<'a> {
    pub(crate) nodes: &'a [Service],
    pub(crate) cast: &'a Cast,
    pub(crate) random: Random,
    /// Whether the storage fails on purpose, so that 503 does not count as an answer.
    pub(crate) storage_fails: bool,
    /// Counts the actions. None during a check.
    pub(crate) actions: Option<&'a Tally>,
    /// Counts the results of a check. None under load.
    pub(crate) proofs: Option<&'a Tally>,
}

impl Stage<'_> {
    pub(crate) fn below(&self, bound: usize) -> usize {
        usize::try_from(u64::from_be_bytes(self.random.bytes()) % bound as u64).unwrap()
    }

    /// A node for the next request.
    pub(crate) fn node(&self) -> &Service {
        &self.nodes[self.below(self.nodes.len())]
    }

    pub(crate) fn is_heads(&self) -> bool {
        self.below(2) == 0
    }

    /// Counts an action that was answered.
    pub(crate) fn did(&self, action: &str) {
        if let Some(tally) = self.actions {
            tally.count(action);
        }
    }

    /// Counts a result that matches its earlier answer.
    pub(crate) fn found(&self, proof: &str) {
        if let Some(tally) = self.proofs {
            tally.count(proof);
        }
    }

    fn is_put_off(&self, reply: &Reply) -> bool {
        self.storage_fails && reply.status == 503 && reply.header("retry-after").is_some()
    }

    /// The status and body of an answer.
    pub(crate) fn read(&self, reply: Option<Reply>) -> Option<StatusAndBody> {
        let reply = reply.filter(|reply| !self.is_put_off(reply))?;
        let body = if reply.body.is_empty() {
            Value::Null
        } else {
            reply.json()
        };
        Some((reply.status, body))
    }

    fn post(&self, path: &str, form: &[(&str, &str)]) -> Option<StatusAndBody> {
        self.read(self.cast.client.ask(self.node(), path, form))
    }

    pub(crate) fn refresh(&self, token: &str) -> Option<StatusAndBody> {
        self.post(
            "/oauth2/token",
            &[("grant_type", "refresh_token"), ("refresh_token", token)],
        )
    }

    pub(crate) fn redeem(&self, code: &str) -> Option<StatusAndBody> {
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", REDIRECT_URI),
        ];
        self.post("/oauth2/token", &form)
    }

    pub(crate) fn anonymous(&self) -> Option<StatusAndBody> {
        self.post("/oauth2/token", &[("grant_type", ANONYMOUS)])
    }

    pub(crate) fn revoke(&self, token: &str) -> Option<()> {
        let (status, body) = self.post("/oauth2/revoke", &[("token", token)])?;
        assert_eq!(status, 200, "{body}");
        Some(())
    }

    /// Whether introspection calls the token active.
    pub(crate) fn is_active(&self, token: &str) -> Option<bool> {
        let (status, body) = self.post("/oauth2/introspect", &[("token", token)])?;
        assert_eq!(status, 200, "{body}");
        Some(body["active"].as_bool().unwrap())
    }

    fn authorization_request() -> String {
        format!(
            "/oauth2/authorize?response_type=code&client_id=load&redirect_uri={REDIRECT_URI}&scope=services:all"
        )
    }

    /// The result of an authorization request with the session of this cookie: a code, or the sign-in page.
    pub(crate) fn authorize(&self, session: &str) -> Option<Result<String, String>> {
        let target = Self::authorization_request();
        let reply = self.node().request("GET", &target, &[("Cookie", session)], "")?;
        if self.is_put_off(&reply) {
            return None;
        }
        assert_eq!(reply.status, 303, "{reply:?}");
        let location = reply.header("location").unwrap().to_owned();
        let code = location
            .split(['?', '&'])
            .find_map(|pair| pair.strip_prefix("code="));
        Some(code.map(str::to_owned).ok_or(location))
    }

    /// Pushes an authorization request (RFC 9126) and returns its `request_uri`.
    pub(crate) fn push(&self) -> Option<String> {
        let form = [
            ("response_type", "code"),
            ("redirect_uri", REDIRECT_URI),
            ("scope", "services:all"),
        ];
        let (status, body) = self.post("/oauth2/par", &form)?;
        assert_eq!(status, 201, "{body}");
        Some(text(&body["request_uri"]))
    }

    /// Whether a pushed request gets a code for the session of this cookie.
    pub(crate) fn gets_code(&self, session: &str, request_uri: &str) -> Option<bool> {
        let target = format!("/oauth2/authorize?client_id=load&request_uri={request_uri}");
        let reply = self.node().request("GET", &target, &[("Cookie", session)], "")?;
        let location = reply.header("location").unwrap_or_default();
        (!self.is_put_off(&reply)).then(|| location.contains("code="))
    }

    /// Signs in as a browser would and returns the session's cookie.
    pub(crate) fn sign_in(&self, name: &str) -> Option<String> {
        let target = Self::authorization_request();
        let (reply, _) = self.node().try_type_in(&target, name, PASSWORD)?;
        if self.is_put_off(&reply) {
            return None;
        }
        assert_eq!(reply.status, 303, "{reply:?}");
        let session = reply
            .headers("set-cookie")
            .find(|cookie| cookie.contains("session"));
        Some(session.unwrap().split(';').next().unwrap().to_owned())
    }

    /// A fresh assertion of the client that signs.
    pub(crate) fn assertion(&self) -> String {
        let now = Clock::System.now().seconds();
        let header = json!({"alg": "ES256", "typ": "JWT"});
        let claims = json!({
            "iss": "robot", "sub": "robot", "aud": self.nodes[0].issuer(), "iat": now, "exp": now + 290,
            "jti": self.random.uuid_v4(),
        });
        signed(&self.cast.robot, &header, &claims)
    }

    /// A token of the signing client for itself.
    pub(crate) fn present(&self, assertion: &str) -> Option<StatusAndBody> {
        let form = [
            ("grant_type", "client_credentials"),
            ("scope", "notes.read"),
            ("client_assertion_type", ASSERTION),
            ("client_assertion", assertion),
        ];
        self.read(self.node().post_form("/oauth2/token", &[], &form))
    }

    /// Whether an assertion gets a token. It is refused as used otherwise.
    pub(crate) fn is_unused(&self, assertion: &str) -> Option<bool> {
        let (status, body) = self.present(assertion)?;
        if status != 200 {
            assert_eq!(
                (status, body["error_description"].as_str()),
                (401, Some(&*REPLAYED.description))
            );
        }
        Some(status == 200)
    }

    /// The names of the published keys.
    pub(crate) fn key_names(&self) -> Option<Vec<String>> {
        let (_, body) = self.read(self.node().request("GET", "/oauth2/jwks", &[], ""))?;
        let keys = body["keys"].as_array().unwrap().iter();
        Some(keys.map(|key| text(&key["kid"])).collect())
    }

    /// The output of a command that ran beside the service, or why it failed.
    pub(crate) fn run(&self, words: &str) -> Result<Value, String> {
        let output = self.node().run(&words.split(' ').collect::<Vec<_>>());
        if output.status.success() {
            return Ok(serde_json::from_slice(&output.stdout).unwrap());
        }
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{words}: {said}");
        assert!(!said.contains("is damaged"), "{words}: {said}");
        Err(said)
    }

    /// The same; nothing when it may not have happened.
    pub(crate) fn command(&self, words: &str) -> Option<Value> {
        self.run(words).ok()
    }
}

pub(crate) fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}

/// The body of an answer that has to be a success.
pub(crate) fn granted((status, body): StatusAndBody, what: &str) -> Value {
    assert_eq!(status, 200, "{what} does not work: {body}");
    body
}

/// Fails unless the answer is the refusal of a grant.
pub(crate) fn refused((status, body): &StatusAndBody, what: &str) {
    assert_eq!(
        (*status, body["error"].as_str()),
        (400, Some("invalid_grant")),
        "{what} came back to life"
    );
}

/// Whether that much time has passed since.
pub(crate) fn is_older(than: u64, since: Instant) -> bool {
    since.elapsed().as_secs() > than
}
