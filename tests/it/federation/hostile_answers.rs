//! A provider that answers with anything at all: nobody is signed in, nothing panics, and the next honest answer counts.

use serde_json::{Value, json};

use super::{AT_PROVIDER, Scene, scene};
use crate::harness::{Say, Screen, Upstream};

const DISCOVERY: &str = "/.well-known/openid-configuration";
/// The cookie of a session.
const SESSION: &str = "__Host-idsvc_session";

/// An answer with this status line, these headers and this body.
fn raw(status: &str, headers: &str, body: &[u8]) -> Say {
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    Say::Raw([head.as_bytes(), body].concat())
}

fn ok(body: &[u8]) -> Say {
    raw("200 OK", "content-type: application/json\r\n", body)
}

/// A member with this value in a document that is right otherwise.
fn with(document: &Value, name: &str, value: Value) -> Say {
    let mut document = document.clone();
    document[name] = value;
    Say::Json(document)
}

/// What is no answer at any endpoint.
fn bad_answers() -> Vec<(&'static str, Say)> {
    let nested = [b"{\"a\":".repeat(100_000), b"1".to_vec(), b"}".repeat(100_000)].concat();
    let gzip = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
    let json = "content-type: application/json\r\n";
    vec![
        ("bytes without end", Say::Forever),
        ("nesting", ok(&nested)),
        (
            "arrays",
            ok(&[b"[".repeat(200_000), b"]".repeat(200_000)].concat()),
        ),
        (
            "many numbers",
            ok(&[b"[".to_vec(), b"1,".repeat(200_000), b"1]".to_vec()].concat()),
        ),
        (
            "a huge number",
            ok(&[b"{\"expires_in\":1".to_vec(), b"0".repeat(400_000), b"}".to_vec()].concat()),
        ),
        ("what is not UTF-8", ok(b"{\"id_token\":\"\xff\xfe\"}")),
        ("a half of a surrogate pair", ok(br#"{"id_token":"\ud800"}"#)),
        ("nothing", ok(b"")),
        ("null", ok(b"null")),
        ("a text", ok(b"\"text\"")),
        (
            "a page",
            raw(
                "200 OK",
                "content-type: text/html\r\n",
                b"<script>alert(1)</script>",
            ),
        ),
        (
            "compressed bytes",
            raw("200 OK", gzip, &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b]),
        ),
        (
            "a redirect inwards",
            raw("302 Found", "location: http://169.254.169.254/latest\r\n", b""),
        ),
        (
            "a redirect without end",
            raw("307 Temporary Redirect", "location: /token\r\n", b""),
        ),
        ("no content", raw("204 No Content", json, b"")),
        (
            "a part",
            raw("206 Partial Content", "content-range: bytes 0-1/9\r\n", b"{}"),
        ),
        (
            "an error page",
            raw(
                "500 Oops",
                "content-type: text/html\r\n",
                b"<img src=x onerror=alert(1)>",
            ),
        ),
        (
            "an error with markup",
            raw(
                "400 Bad",
                json,
                b"{\"error\":\"<script>alert(1)</script>\\r\\n\\u001b[31m\",\"error_description\":\"x\"}",
            ),
        ),
        (
            "an error of another type",
            raw("401 No", json, br#"{"error":{"a":[1]}}"#),
        ),
        (
            "a status that is none",
            Say::Raw(b"HTTP/1.1 999999 X\r\n\r\n".to_vec()),
        ),
        ("no HTTP", Say::Raw(b"220 mail.example ESMTP\r\n".to_vec())),
        (
            "headers without end",
            Say::Raw([b"HTTP/1.1 200 OK\r\n".to_vec(), b"x: y\r\n".repeat(20_000)].concat()),
        ),
        (
            "two lengths",
            Say::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 9\r\n\r\n{}".to_vec()),
        ),
        (
            "a length below zero",
            Say::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}".to_vec()),
        ),
        (
            "a chunk without end",
            Say::Raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n{}".to_vec()),
        ),
        (
            "a switch of protocols",
            Say::Raw(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n".to_vec()),
        ),
        (
            "a header with a line in it",
            Say::Raw(b"HTTP/1.1 200 OK\r\nx: a\rb\ncontent-length: 2\r\n\r\n{}".to_vec()),
        ),
    ]
}

/// A document that leads elsewhere, or says what it must not.
fn bad_documents(upstream: &Upstream) -> Vec<(&'static str, Say)> {
    let at = |path: &str| format!("{}{path}", upstream.issuer);
    let right = json!({
        "issuer": upstream.issuer,
        "authorization_endpoint": at("/authorize"),
        "token_endpoint": at("/token"),
        "jwks_uri": at("/jwks"),
    });
    vec![
        (
            "another issuer",
            with(&right, "issuer", json!("https://other.example")),
        ),
        ("an issuer with a slash", with(&right, "issuer", json!(at("/")))),
        ("two issuers", with(&right, "issuer", json!([upstream.issuer]))),
        (
            "a script",
            with(&right, "authorization_endpoint", json!("javascript:alert(1)//")),
        ),
        (
            "plain HTTP",
            with(
                &right,
                "authorization_endpoint",
                json!("http://up.example/authorize"),
            ),
        ),
        (
            "a token endpoint inside",
            with(&right, "token_endpoint", json!("https://169.254.169.254/token")),
        ),
        (
            "a token endpoint in a file",
            with(&right, "token_endpoint", json!("file:///etc/passwd")),
        ),
        (
            "a token endpoint with a password",
            with(&right, "token_endpoint", json!("https://a:b@up.example/token")),
        ),
        (
            "keys inside",
            with(&right, "jwks_uri", json!("https://10.0.0.1/jwks")),
        ),
        ("keys of a number", with(&right, "jwks_uri", json!(7))),
    ]
}

/// Goes as far as the provider lets a person go. Nobody is signed in, and the page has nothing of what was said.
async fn nobody_comes_in(scene: &Scene, what: &str) {
    let browser = scene.visitor();
    let mut screen = browser.authorize(&scene.acme.request()).await;
    if screen
        .header("location")
        .is_some_and(|to| to.starts_with(&scene.upstream.issuer))
    {
        let question = super::Question::of(&screen, &scene.upstream);
        screen = browser.visit(&question.answer("code=c")).await;
    }
    is_harmless(&screen, what);
    assert!(browser.cookie(SESSION).is_none(), "{what}: somebody is signed in");
}

fn is_harmless(screen: &Screen, what: &str) {
    assert!(screen.status < 500, "{what}: {}", screen.status);
    let leads_on = screen.header("location").is_some_and(|to| to.contains("code="));
    assert!(!leads_on, "{what}");
    for part in ["alert(1)", "169.254", "\u{1b}", "passwd"] {
        assert!(!screen.text().contains(part), "{what}: {}", screen.text());
    }
}

#[tokio::test]
async fn no_answer_of_a_provider_signs_anybody_in_or_breaks_the_service() {
    for endpoint in [DISCOVERY, "/jwks", "/token", "/userinfo"] {
        let scene = scene().await;
        let honest = scene.upstream.honest_answer(endpoint);
        let mut bad = bad_answers();
        if endpoint == DISCOVERY {
            bad.extend(bad_documents(&scene.upstream));
        }
        for (number, (what, answer)) in bad.into_iter().enumerate() {
            let what = format!("{endpoint}: {what}");
            // What is known of the provider is fetched anew.
            scene.server.advance(2 * 24 * 60 * 60);
            let said_by_userinfo = endpoint == "/userinfo";
            if said_by_userinfo {
                // It may be left out, so a person comes in without its claims.
                scene.upstream.say(endpoint, answer);
                let browser = scene.visitor();
                let screen = browser.authorize(&scene.acme.request()).await;
                let question = super::Question::of(&screen, &scene.upstream);
                scene.vouch_now(&question, &format!("u-{number}"));
                let screen = browser.visit(&question.answer("code=c")).await;
                assert!(screen.status < 500, "{what}: {}", screen.status);
                continue;
            }
            if endpoint == "/jwks" {
                let browser = scene.visitor();
                let screen = browser.authorize(&scene.acme.request()).await;
                let question = super::Question::of(&screen, &scene.upstream);
                scene.vouch_now(&question, "u-1");
                scene.upstream.say(endpoint, answer);
                let screen = browser.visit(&question.answer("code=c")).await;
                is_harmless(&screen, &what);
                assert!(browser.cookie(SESSION).is_none(), "{what}");
            } else {
                scene.upstream.say(endpoint, answer);
                nobody_comes_in(&scene, &what).await;
            }
        }
        if let Some(honest) = honest {
            scene.upstream.say(endpoint, honest);
        }
        scene.server.advance(2 * 24 * 60 * 60);
        let browser = scene.visitor();
        let screen = browser.authorize(&scene.acme.request()).await;
        let question = super::Question::of(&screen, &scene.upstream);
        scene.vouch_now(&question, "u-honest");
        browser.visit(&question.answer("code=c")).await.callback().code();
    }
}

/// Thousands of keys, keys that change at each fetch, and ID tokens that are as large as may be.
#[tokio::test]
async fn many_keys_and_large_tokens_cost_little_and_the_right_key_is_found() {
    let scene = scene().await;
    let browser = scene.visitor();
    scene.sign_in(&browser, "u-0", &json!({})).await.code();
    let own = scene.upstream.key().public().to_jwk();
    let filler = |number: usize| json!({ "kty": "oct", "kid": format!("k{number}"), "k": "AAAA" });
    let mut keys: Vec<Value> = (0..5000).map(filler).collect();
    keys.push(own);
    scene.upstream.say("/jwks", Say::Json(json!({ "keys": keys })));
    scene.server.advance(2 * 60 * 60);
    let large = [
        ("a long array", json!({ "groups": vec!["x"; 2000] })),
        (
            "a deep object",
            serde_json::from_str(&format!("{{\"a\":{}1{}}}", "[".repeat(100), "]".repeat(100))).unwrap(),
        ),
        (
            "many members",
            Value::Object(
                (0..500)
                    .map(|number| (format!("m{number}"), json!(number)))
                    .collect(),
            ),
        ),
        (
            "many audiences",
            json!({ "aud": ([vec!["x"; 500], vec![AT_PROVIDER]].concat()), "azp": AT_PROVIDER }),
        ),
        ("a name without end", json!({ "name": "n".repeat(10_000) })),
    ];
    for (number, (what, claims)) in large.into_iter().enumerate() {
        let browser = scene.visitor();
        let screen = browser.authorize(&scene.acme.request()).await;
        let question = super::Question::of(&screen, &scene.upstream);
        let mut claims = claims;
        claims["iat"] = json!(scene.server.clock.now().seconds());
        claims["exp"] = json!(scene.server.clock.now().seconds() + 600);
        scene.vouch(&question, &format!("u-large-{number}"), &claims);
        let screen = browser.visit(&question.answer("code=c")).await;
        assert!(screen.status < 500, "{what}: {}", screen.status);
    }
    let fetched = scene.upstream.seen("/jwks").len();
    // A token of a key that nobody knows has the keys fetched once a minute, however often it comes.
    for _ in 0..5 {
        let browser = scene.visitor();
        let screen = browser.authorize(&scene.acme.request()).await;
        let question = super::Question::of(&screen, &scene.upstream);
        let mut claims = scene.upstream.claims(AT_PROVIDER, "u-1");
        claims["nonce"] = question.get("nonce").unwrap().into();
        let foreign = idsvc::jose::jwt::sign(scene.upstream.next_key(), "JWT", &claims).unwrap();
        scene.issue(&foreign);
        let screen = browser.visit(&question.answer("code=c")).await;
        is_harmless(&screen, "a foreign key");
    }
    assert!(scene.upstream.seen("/jwks").len() <= fetched + 1);
}

impl Scene {
    /// Vouches for a subject at the time of the service.
    fn vouch_now(&self, question: &super::Question, subject: &str) {
        let now = self.server.clock.now().seconds();
        self.vouch(question, subject, &json!({ "iat": now, "exp": now + 600 }));
    }
}
