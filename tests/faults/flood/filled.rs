//! A service with little memory in which strangers have filled all that strangers can fill.

use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::target::memory;
use crate::harness::html::{Form, forms};
use crate::harness::process::{Reply, Running, Service};
use crate::harness::report::{amount, report};
use crate::harness::{Say, Upstream, write_form};
use crate::memory_group::MemoryGroup;

const CALLBACK: &str = "https://app.example/cb";
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Somebody without an account, at an address of their own.
struct Stranger<'a> {
    running: &'a Running<'a>,
    website: &'a Upstream,
    number: usize,
    cookies: Vec<String>,
}

/// The metadata of a public client that is as large as may be, with as many addresses as there may be.
fn with_addresses() -> Value {
    const MORE: usize = 95;
    let mut metadata = json!({
        "redirect_uris": [CALLBACK],
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"],
    });
    let free = (8 << 10) - metadata.to_string().len();
    let filler = "a".repeat(free / MORE - 20);
    let more = (0..MORE).map(|number| json!(format!("https://a{number:02}.b/{filler}")));
    metadata["redirect_uris"].as_array_mut().unwrap().extend(more);
    metadata
}

/// The metadata of a client that is as large as may be, with a key that has many small objects in it. These take the most
/// memory once they are read.
fn with_key(changes: &Value, most_bytes: usize) -> Value {
    let mut metadata =
        json!({ "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "private_key_jwt" });
    for (name, value) in changes.as_object().unwrap() {
        metadata[name] = value.clone();
    }
    metadata["jwks"] = json!({ "keys": [key(0, 0)] });
    let object = json!({ "": 0 });
    let free = most_bytes - metadata.to_string().len();
    metadata["jwks"]["keys"][0]["x"] = vec![object; free / 7 - 2].into();
    metadata
}

fn key(number: usize, index: usize) -> Value {
    let mut modulus: Vec<u8> = (0..512_usize)
        .map(|at| (at * 167 + number * 31 + index).to_le_bytes()[0])
        .collect();
    modulus[0] |= 0x80;
    modulus[511] |= 1;
    let n = URL_SAFE_NO_PAD.encode(modulus);
    json!({ "kty": "RSA", "alg": "RS256", "kid": index.to_string(), "e": "AQAB", "n": n })
}

/// As many keys as there may be, and texts that nobody needs.
fn key_set(number: usize) -> Value {
    let key = |index: usize| {
        let mut key = key(number, index);
        key["x5c"] = vec!["a"; 700].into();
        key
    };
    json!({ "keys": [key(0), key(1), key(2), key(3)] })
}

fn request_of(client_id: &str) -> [(&str, &str); 5] {
    [
        ("client_id", client_id),
        ("response_type", "code"),
        ("redirect_uri", CALLBACK),
        ("code_challenge", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"),
        ("code_challenge_method", "S256"),
    ]
}

/// The address of an authorization request.
fn authorization(client_id: &str) -> String {
    format!("/oauth2/authorize?{}", write_form(&request_of(client_id)))
}

fn segment(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

impl<'a> Stranger<'a> {
    fn new(running: &'a Running<'a>, website: &'a Upstream, number: usize) -> Self {
        Self {
            running,
            website,
            number,
            cookies: Vec::new(),
        }
    }

    fn send(&mut self, method: &str, target: &str, kind: &str, body: &str) -> Reply {
        let from = format!("2a{:02x}:{:x}::1", self.number % 200, self.number);
        let cookies = self.cookies.join("; ");
        let headers = [
            ("X-Forwarded-For", from.as_str()),
            ("X-Forwarded-Proto", "http"),
            ("Cookie", &cookies),
            ("Content-Type", kind),
        ];
        let reply = self.running.request(method, target, &headers, body);
        let reply = reply.unwrap_or_else(|| panic!("no answer to {target}: {}", self.running.log()));
        assert!(reply.status < 500 || reply.status == 503, "{target}: {reply:?}");
        let set = reply.headers("set-cookie");
        self.cookies
            .extend(set.map(|cookie| cookie.split(';').next().unwrap().to_owned()));
        reply
    }

    /// The page at an address, after its redirects.
    fn visit(&mut self, target: &str) -> Reply {
        let mut reply = self.send("GET", target, "", "");
        while let Some(next) = reply.header("location").filter(|next| next.starts_with('/')) {
            let next = next.to_owned();
            reply = self.send("GET", &next, "", "");
        }
        reply
    }

    fn post(&mut self, target: &str, fields: &[(&str, &str)]) -> Reply {
        let body = write_form(fields);
        self.send("POST", target, "application/x-www-form-urlencoded", &body)
    }

    /// Fills in the page's form that has this field, and sends it.
    fn fill_in(&mut self, page: &Reply, values: &[(&str, &str)]) -> Option<Reply> {
        let has_field = |form: &Form| form.value(values[0].0).is_some();
        let mut form = forms(&page.body, "").into_iter().find(has_field)?;
        for (name, value) in values {
            form = form.with(name, value);
        }
        let fields: Vec<_> = form
            .fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let reply = self.post(&form.action, &fields);
        let next = reply.header("location").map(str::to_owned);
        Some(next.map_or(reply, |next| self.visit(&next)))
    }

    fn register(&mut self, metadata: &Value) -> String {
        let metadata = metadata.to_string();
        let reply = self.send("POST", "/oauth2/register", "application/json", &metadata);
        assert_eq!(reply.status, 201, "{reply:?}");
        reply.json()["client_id"].as_str().unwrap().to_owned()
    }

    /// Begins all that a client can begin.
    fn use_client(&mut self, client_id: &str) {
        let pushed = self.post("/oauth2/par", &request_of(client_id));
        assert_eq!(pushed.status, 201, "{pushed:?}");
        let device = self.post("/oauth2/device_authorization", &[("client_id", client_id)]);
        assert_eq!(device.status, 200, "{device:?}");
        let page = self.visit(&authorization(client_id));
        assert!(page.body.contains("name=\"password\""), "{page:?}");
    }

    /// Has a client's keys fetched.
    fn assert_as(&mut self, client_id: &str) {
        let header = json!({ "alg": "RS256", "kid": "0" });
        let claims = json!({
            "iss": client_id, "sub": client_id, "aud": self.running.issuer(), "exp": 4_000_000_000_u64,
            "jti": self.number.to_string(),
        });
        let assertion = format!("{}.{}.{}", segment(&header), segment(&claims), "A".repeat(683));
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", "x"),
            ("client_assertion_type", ASSERTION),
            ("client_assertion", &assertion),
        ];
        let refused = self.post("/oauth2/token", &form);
        assert_eq!(refused.status, 401, "{refused:?}");
    }

    /// Does once what a stranger can do.
    fn act(&mut self) {
        let number = self.number;
        let name = format!("nobody-{number}@example-{number}.com");
        let client_id = self.register(&with_addresses());
        self.use_client(&client_id);
        let client_id = self.register(&with_key(&json!({}), 8 << 10));
        self.visit(&authorization(&client_id));
        let keys = format!("/keys/{number}");
        self.website.say(&keys, Say::Json(key_set(number)));
        let jwks_uri = format!("{}{keys}", self.website.issuer);
        let publishing = self.register(&json!({
            "redirect_uris": [CALLBACK], "token_endpoint_auth_method": "private_key_jwt", "jwks_uri": jwks_uri,
        }));
        self.assert_as(&publishing);
        let path = format!("/document/{number}");
        let address = format!("{}{path}", self.website.issuer);
        let document = with_key(&json!({ "client_id": address }), 16 << 10);
        self.website.say(&path, Say::Json(document));
        // Where others have taken the document's place, it is fetched again and again, and that is limited.
        let documented = self.visit(&authorization(&address));
        assert!([200, 429].contains(&documented.status), "{documented:?}");
        let page = self.visit("/account");
        for link in ["/recover?", "/sign-up?"] {
            let from = page.body.find(link).unwrap_or_else(|| panic!("{link}: {page:?}"));
            let link = page.body[from..].split('"').next().unwrap().replace("&amp;", "&");
            let form = self.visit(&link);
            let sent = self.fill_in(&form, &[("address", &name)]).unwrap();
            let wrong = self.fill_in(&sent, &[("code", "123456")]);
            assert!(wrong.is_some(), "{sent:?}");
        }
        let device = self.visit("/device");
        let typed = self.fill_in(&device, &[("user_code", "BCDF-GHJK")]);
        assert!(typed.is_some(), "{device:?}");
        let wrong = [
            ("client_id", name.as_str()),
            ("client_secret", "x"),
            ("grant_type", "client_credentials"),
        ];
        assert_eq!(self.post("/oauth2/token", &wrong).status, 401);
    }

    /// Types a wrong password: whether it was checked. Who comes while others wait may be asked to come again.
    fn sign_in(&mut self) -> bool {
        let name = format!("nobody-{}@example.com", self.number);
        let page = self.visit("/account");
        let typed = self.fill_in(&page, &[("username", &name), ("password", "a wrong password")]);
        typed.is_some_and(|typed| typed.status == 200)
    }
}

/// All at once: what is registered, fetched, begun and counted, connections with headers and bodies that have no end,
/// documents that do not come, and a password each second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_64_mib_the_service_lives_with_all_that_strangers_can_fill() {
    let name = "all that strangers can fill with 64 MiB of memory";
    let group = match MemoryGroup::new(64 << 20) {
        Ok(group) => group,
        Err(reason) => return report(name, &format!("NOT RUN: {reason}")),
    };
    let website = Upstream::start().await;
    let service = Service::new()
        .with("IDSVC_CLIENTS_REGISTRATION", "open")
        .with("IDSVC_CLIENTS_METADATA_DOCUMENTS", "true")
        .with("IDSVC_ACCOUNTS_SIGN_UP", "open")
        // No server is there, so the mails wait.
        .with("IDSVC_MAIL_URL", "smtp://127.0.0.1:1")
        .with("IDSVC_MAIL_FROM", "idsvc@example.com")
        .with("IDSVC_TRUSTED_PROXIES", "127.0.0.0/8")
        .with("IDSVC_LIMITS_EXEMPT", "")
        .reaching(&website)
        .by(&group.wrapper());
    let filled = tokio::task::spawn_blocking(move || {
        let mut running = service.serve();
        let figures = fill(&running, &website);
        report(name, &figures);
        assert_eq!(running.ended(), None, "{}", service.log());
        assert_eq!(group.kills(), 0);
    });
    filled.await.unwrap();
}

/// Fills everything, and says what it took.
fn fill(running: &Running<'_>, website: &Upstream) -> String {
    const THREADS: usize = 3;
    let (strangers, sign_ins) = (amount(90, 900), amount(3, 60));
    let used = || memory(running, "RssAnon");
    let empty = used();
    thread::scope(|scope| {
        for first in 0..THREADS {
            scope.spawn(move || {
                for number in (first..strangers).step_by(THREADS) {
                    Stranger::new(running, website, number).act();
                }
            });
        }
    });
    for number in 0..amount(20, 200) {
        assert!(Stranger::new(running, website, number).sign_in(), "{number}");
    }
    let filled = used();
    let held = hold(running, website);
    let (mut most, mut checked) = (filled.max(used()), 0);
    for number in 0..sign_ins {
        checked += usize::from(Stranger::new(running, website, 10_000 + number).sign_in());
        most = most.max(used());
        thread::sleep(Duration::from_secs(1));
    }
    drop(held);
    assert!(checked > 0, "no password is checked");
    assert!(Stranger::new(running, website, 20_000).sign_in());
    format!(
        "{strangers} strangers, {checked} of {sign_ins} passwords checked: {} MiB without them, {} MiB filled, at most {} MiB in use",
        empty >> 10,
        filled >> 10,
        most >> 10
    )
}

/// Connections with a header that has no end, with a body that has none, and with a document that does not come.
fn hold(running: &Running<'_>, website: &Upstream) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for number in 0..400 {
        let from = format!("X-Forwarded-For: 2a{number:02x}:1::1\r\n");
        let request = match number % 20 {
            1..10 => format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\n{from}X: {}",
                "a".repeat(15_000)
            ),
            10..20 => format!(
                "POST /oauth2/token HTTP/1.1\r\nHost: localhost\r\n{from}Content-Type: \
                 application/x-www-form-urlencoded\r\nContent-Length: 65000\r\n\r\n{}",
                "a".repeat(60_000)
            ),
            _ => {
                let path = format!("/slow/{number}");
                website.say(&path, Say::Nothing);
                let target = authorization(&format!("{}{path}", website.issuer));
                format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{from}\r\n")
            }
        };
        let mut stream = TcpStream::connect(("127.0.0.1", running.port)).unwrap();
        // What has no room is closed.
        let _ = stream.write_all(request.as_bytes());
        held.push(stream);
    }
    held
}
