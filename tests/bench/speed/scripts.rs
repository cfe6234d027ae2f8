//! What the connections ask.

use std::collections::VecDeque;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use idsvc::clock::Clock;
use idsvc::jose::keyring::SigningKey;
use idsvc::random::Random;
use serde_json::json;

use crate::load::{Connection, Next, Reply, Script, form, request};
use crate::{API, CLIENT, GRANT_ANONYMOUS, PASSWORD, REDIRECT_URI};

/// The same request again and again.
pub(crate) struct Same(pub(crate) String);

impl Script for Same {
    fn next(&mut self) -> Option<String> {
        Some(self.0.clone())
    }

    fn take(&mut self, reply: &Reply) -> Next {
        if reply.status != 200 {
            reply.surprise();
        }
        Next::Done
    }
}

/// One request after the other, each of them once.
pub(crate) struct Each {
    pub(crate) requests: Vec<String>,
    /// The status of each answer.
    pub(crate) expected: u16,
}

impl Each {
    pub(crate) fn new(requests: impl Iterator<Item = String>) -> Self {
        Self {
            requests: requests.collect(),
            expected: 200,
        }
    }
}

impl Script for Each {
    fn next(&mut self) -> Option<String> {
        self.requests.pop()
    }

    fn take(&mut self, reply: &Reply) -> Next {
        if reply.status != self.expected {
            reply.surprise();
        }
        Next::Done
    }
}

/// The Basic header of a user name and password.
pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// A document.
pub(crate) fn get(target: &str) -> String {
    request("GET", target, &[], "")
}

/// A token for the client itself, by its secret.
pub(crate) fn client_credentials(secret: &str) -> String {
    let fields = [("grant_type", "client_credentials"), ("scope", "services:all")];
    form(
        "/oauth2/token",
        &[("Authorization", &basic(CLIENT, secret))],
        &fields,
    )
}

/// The same, for a token for an API (RFC 8707 section 2.2).
pub(crate) fn client_credentials_for(secret: &str, resource: &str) -> String {
    let fields = [
        ("grant_type", "client_credentials"),
        ("scope", "services:all"),
        ("resource", resource),
    ];
    form(
        "/oauth2/token",
        &[("Authorization", &basic(CLIENT, secret))],
        &fields,
    )
}

/// A token for the client itself, by an assertion.
pub(crate) fn client_assertion(assertion: &str) -> String {
    let fields = [
        ("grant_type", "client_credentials"),
        ("scope", "services:all"),
        (
            "client_assertion_type",
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        ),
        ("client_assertion", assertion),
    ];
    form("/oauth2/token", &[], &fields)
}

/// A token for one API, for a user's access token (RFC 8693).
pub(crate) fn access_token_exchange(secret: &str, token: &str) -> String {
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("subject_token", token),
        (
            "subject_token_type",
            "urn:ietf:params:oauth:token-type:access_token",
        ),
        ("resource", API),
    ];
    form(
        "/oauth2/token",
        &[("Authorization", &basic(CLIENT, secret))],
        &fields,
    )
}

/// The codes of a device (RFC 8628 section 3.1).
pub(crate) fn device_authorization(secret: &str) -> String {
    let fields = [("scope", "services:all")];
    form(
        "/oauth2/device_authorization",
        &[("Authorization", &basic(CLIENT, secret))],
        &fields,
    )
}

/// Tokens for the device that got these codes.
pub(crate) fn device_poll(secret: &str, codes: &Reply) -> String {
    let device_code = codes.quoted_after("\"device_code\":\"");
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("device_code", device_code.as_str()),
    ];
    form(
        "/oauth2/token",
        &[("Authorization", &basic(CLIENT, secret))],
        &fields,
    )
}

/// A signed-in browser allows a device: code, page, decision. Returns the poll that redeems the code.
pub(crate) async fn allow_device(connection: &mut Connection, secret: &str, session: &str) -> String {
    let codes = answer(connection, 200, &device_authorization(secret)).await;
    let session = format!("__Host-idsvc_session={session}");
    let page = answer(
        connection,
        200,
        &request("GET", "/device", &[("Cookie", &session)], ""),
    )
    .await;
    let browser = page.header("set-cookie").unwrap_or_else(|| page.surprise());
    let cookies = format!("{session}; {}", browser.split(';').next().unwrap_or_default());
    let cookies = [("Cookie", cookies.as_str())];
    let (csrf, user_code) = (hidden(&page, "csrf"), codes.quoted_after("\"user_code\":\""));
    let fields = [("csrf", csrf.as_str()), ("user_code", &user_code)];
    let typed = answer(connection, 303, &form("/device", &cookies, &fields)).await;
    let target = typed.header("location").unwrap_or_else(|| typed.surprise());
    let page = answer(connection, 200, &request("GET", target, &cookies, "")).await;
    let (transaction, csrf) = (hidden(&page, "transaction"), hidden(&page, "csrf"));
    let fields = [
        ("transaction", transaction.as_str()),
        ("csrf", &csrf),
        ("decision", "allow"),
    ];
    answer(connection, 200, &form("/device", &cookies, &fields)).await;
    device_poll(secret, &codes)
}

/// The answer to a request that is not measured.
async fn answer(connection: &mut Connection, status: u16, request: &str) -> Reply {
    let reply = connection.ask(request).await.unwrap();
    if reply.status != status {
        reply.surprise();
    }
    reply
}

/// Tokens for a provider's ID token.
pub(crate) fn token_exchange(secret: &str, assertion: &str) -> String {
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
        ("scope", "services:all"),
        ("assertion", assertion),
    ];
    form(
        "/oauth2/token",
        &[("Authorization", &basic(CLIENT, secret))],
        &fields,
    )
}

/// A user without a name.
pub(crate) fn anonymous(secret: &str, scope: &str) -> String {
    let fields = [("grant_type", GRANT_ANONYMOUS), ("scope", scope)];
    form(
        "/oauth2/token",
        &[("Authorization", &basic(CLIENT, secret))],
        &fields,
    )
}

/// What an access token is worth.
pub(crate) fn introspection(secret: &str, token: &str) -> String {
    let fields = [("token", token)];
    form(
        "/oauth2/introspect",
        &[("Authorization", &basic(CLIENT, secret))],
        &fields,
    )
}

/// What a token says of its user.
pub(crate) fn user_info(token: &str) -> String {
    let bearer = format!("Bearer {token}");
    request("GET", "/oauth2/userinfo", &[("Authorization", &bearer)], "")
}

/// A key of a client, and the proofs that it signs for one address (RFC 9449).
pub(crate) struct ProofSigner {
    key: SigningKey,
    header: String,
    url: String,
    random: Random,
}

impl ProofSigner {
    pub(crate) fn new(url: String) -> Self {
        let random = Random::system();
        let key = SigningKey::generate_es256(&random).unwrap();
        let header = json!({ "typ": "dpop+jwt", "alg": "ES256", "jwk": key.public().to_jwk() });
        Self {
            header: URL_SAFE_NO_PAD.encode(header.to_string()),
            key,
            url,
            random,
        }
    }

    fn proof(&self) -> String {
        let claims = json!({
            "jti": self.random.uuid_v4(),
            "htm": "POST",
            "htu": self.url,
            "iat": Clock::System.now().seconds(),
        });
        let input = format!("{}.{}", self.header, URL_SAFE_NO_PAD.encode(claims.to_string()));
        let signature = self.key.sign(input.as_bytes()).unwrap();
        format!("{input}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Refreshes one family after the other, and each again with what it was given.
pub(crate) struct Refresh {
    pub(crate) target: &'static str,
    pub(crate) authorization: String,
    pub(crate) signer: Option<ProofSigner>,
    pub(crate) tokens: VecDeque<String>,
    /// How many are still to be asked for.
    pub(crate) left: usize,
}

impl Script for Refresh {
    fn next(&mut self) -> Option<String> {
        self.left = self.left.checked_sub(1)?;
        let token = self.tokens.front()?;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token.as_str())];
        let proof = self.signer.as_ref().map(ProofSigner::proof);
        let mut headers = vec![("Authorization", self.authorization.as_str())];
        headers.extend(proof.as_deref().map(|proof| ("DPoP", proof)));
        Some(form(self.target, &headers, &fields))
    }

    fn take(&mut self, reply: &Reply) -> Next {
        if reply.status != 200 {
            reply.surprise();
        }
        self.tokens.pop_front();
        self.tokens.push_back(reply.quoted_after("\"refresh_token\":\""));
        Next::Done
    }

    fn left_over(self: Box<Self>) -> VecDeque<String> {
        self.tokens
    }
}

const ASKED: [(&str, &str); 5] = [
    ("response_type", "code"),
    ("client_id", CLIENT),
    ("redirect_uri", REDIRECT_URI),
    ("scope", "services:all"),
    ("state", "0123456789abcdef"),
];

fn authorize(fields: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    format!("/oauth2/authorize?{query}")
}

fn exchange(secret: &str, reply: &Reply) -> String {
    let location = reply.header("location").unwrap_or_else(|| reply.surprise());
    let code = location
        .split(['?', '&'])
        .find_map(|pair| pair.strip_prefix("code="));
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code.unwrap_or_else(|| reply.surprise())),
        ("redirect_uri", REDIRECT_URI),
    ];
    form(
        "/oauth2/token",
        &[("Authorization", &basic(CLIENT, secret))],
        &fields,
    )
}

/// A signed-in browser fetches a code, and the client redeems it.
pub(crate) struct Code {
    /// Sessions, one after the other and then from the beginning.
    pub(crate) cookies: VecDeque<String>,
    pub(crate) secret: String,
    /// Whether the client pushes the request first (RFC 9126).
    pub(crate) pushes: bool,
    pub(crate) next: Option<String>,
}

impl Code {
    fn browse(&mut self, fields: &[(&str, &str)]) -> String {
        self.cookies.rotate_left(1);
        let cookie = format!("__Host-idsvc_session={}", self.cookies[0]);
        request("GET", &authorize(fields), &[("Cookie", &cookie)], "")
    }
}

impl Script for Code {
    fn next(&mut self) -> Option<String> {
        Some(match self.next.take() {
            Some(next) => next,
            None if self.pushes => {
                let authorization = basic(CLIENT, &self.secret);
                form("/oauth2/par", &[("Authorization", &authorization)], &ASKED)
            }
            None => self.browse(&ASKED),
        })
    }

    fn take(&mut self, reply: &Reply) -> Next {
        match reply.status {
            201 => {
                let request_uri = reply.quoted_after("\"request_uri\":\"");
                let fields = [("client_id", CLIENT), ("request_uri", &request_uri)];
                self.next = Some(self.browse(&fields));
                Next::More
            }
            303 => {
                self.next = Some(exchange(&self.secret, reply));
                Next::More
            }
            200 => Next::Done,
            _ => reply.surprise(),
        }
    }

    fn lose(&mut self) {
        self.next = None;
    }
}

/// A browser without cookies signs in: request, page, form, exchange.
pub(crate) struct SignIn {
    pub(crate) username: String,
    pub(crate) secret: String,
    pub(crate) cookie: String,
    pub(crate) next: Option<String>,
}

impl Script for SignIn {
    fn next(&mut self) -> Option<String> {
        Some(self.next.take().unwrap_or_else(|| get(&authorize(&ASKED))))
    }

    fn take(&mut self, reply: &Reply) -> Next {
        let cookies = [("Cookie", self.cookie.as_str())];
        match (reply.status, reply.header("location")) {
            (303, Some(page)) if page.starts_with("/login") => {
                let cookie = reply
                    .headers("set-cookie")
                    .next()
                    .unwrap_or_else(|| reply.surprise());
                self.cookie = cookie
                    .split(';')
                    .next()
                    .map(ToOwned::to_owned)
                    .unwrap_or_default();
                self.next = Some(request("GET", page, &[("Cookie", &self.cookie)], ""));
                Next::More
            }
            (303, Some(_)) => {
                self.next = Some(exchange(&self.secret, reply));
                Next::More
            }
            (200, None) if reply.body.starts_with('{') => Next::Done,
            (200, None) => {
                let (transaction, csrf) = (hidden(reply, "transaction"), hidden(reply, "csrf"));
                let fields = [
                    ("transaction", transaction.as_str()),
                    ("csrf", &csrf),
                    ("username", self.username.as_str()),
                    ("password", PASSWORD),
                ];
                self.next = Some(form("/login", &cookies, &fields));
                Next::More
            }
            (503, None) => Next::Later,
            _ => reply.surprise(),
        }
    }

    fn lose(&mut self) {
        self.next = None;
    }
}

fn hidden(page: &Reply, name: &str) -> String {
    page.quoted_after(&format!("name=\"{name}\" value=\""))
}
