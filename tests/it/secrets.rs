//! No secret is ever in the log: a whole run of the real executable, at its most talkative.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use idsvc::clock::Clock;
use idsvc::jose::jwt;
use idsvc::jose::keyring::SigningKey;
use idsvc::random::Random;
use serde_json::{Value, json};

use crate::harness::process::{Reply, Running, Service};
use crate::harness::{Upstream, write_form};

const REDIRECT_URI: &str = "https://app.example/cb";
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Everything that nobody may read in a log, each with what it is.
#[derive(Default)]
struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// Remembers a secret and hands it back.
    fn keep(&mut self, what: &str, secret: &str) -> String {
        assert!(secret.len() >= 8, "{what} is too short to be looked for");
        self.0.push((what.to_owned(), secret.to_owned()));
        secret.to_owned()
    }

    /// A token's claims and its signature are as good as the token.
    fn keep_jwt(&mut self, what: &str, token: &str) -> String {
        for (part, name) in token.split('.').skip(1).zip(["claims", "signature"]) {
            self.keep(&format!("{what}, its {name}"), part);
        }
        token.to_owned()
    }

    /// A secret in an answer of the command line.
    fn keep_member(&mut self, document: &Value, name: &str) -> String {
        let secret = document[name]
            .as_str()
            .unwrap_or_else(|| panic!("no {name}: {document}"));
        self.keep(name, secret)
    }

    /// The tokens of an answer.
    fn keep_tokens(&mut self, what: &str, reply: &Reply) -> Value {
        assert_eq!(reply.status, 200, "{what}: {reply:?}");
        let tokens = reply.json();
        self.keep_jwt(&format!("access token, {what}"), text(&tokens["access_token"]));
        if let Some(token) = tokens["id_token"].as_str() {
            self.keep_jwt(&format!("ID token, {what}"), token);
        }
        if let Some(token) = tokens["refresh_token"].as_str() {
            self.keep(&format!("refresh token, {what}"), token);
        }
        tokens
    }

    /// What of it is in the log, in any form in which it could have got there.
    fn leaks(&self, log: &str) -> Vec<String> {
        let mut leaks = Vec::new();
        for (what, secret) in &self.0 {
            for (form, text) in forms(secret) {
                if log.contains(&text) {
                    leaks.push(format!("{what} {form}"));
                }
            }
        }
        leaks
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// A secret as it is, in a form, in JSON, as bytes, and inside of anything that was base64-encoded as a whole.
fn forms(secret: &str) -> Vec<(&'static str, String)> {
    let url_encoded: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let in_json = Value::from(secret).to_string();
    let hex = secret.bytes().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    let mut forms = vec![
        ("as it is", secret.to_owned()),
        ("form-encoded", url_encoded),
        ("in JSON", in_json.trim_matches('"').to_owned()),
        ("as a list of bytes", format!("{:?}", secret.as_bytes())),
        ("in hexadecimal", hex),
    ];
    for before in 0..3 {
        // of the characters that its neighbours have a share in nothing is known
        let padded = [&vec![0; before], secret.as_bytes()].concat();
        let first = (before * 8).div_ceil(6);
        let whole = padded.len() * 8 / 6;
        for (form, encoded) in [
            ("in base64", STANDARD_NO_PAD.encode(&padded)),
            ("in base64url", URL_SAFE_NO_PAD.encode(&padded)),
        ] {
            forms.push((form, encoded[first..whole].to_owned()));
        }
    }
    forms
}

/// The search finds what it looks for, or its silence would mean nothing.
#[test]
fn every_form_of_a_secret_would_be_found() {
    let mut secrets = Secrets::default();
    let secret = secrets.keep("the secret", "k~9/+\"\u{e9}ssecretsecret");
    let as_json = json!({ "value": secret }).to_string();
    let form = write_form(&[("a", &secret)]);
    let texts = [
        format!("token={secret}"),
        format!("{:?}", secret.as_bytes()),
        form,
        as_json,
    ];
    for log in texts {
        assert!(!secrets.leaks(&log).is_empty(), "{log}");
    }
    for neighbours in ["", "x", "xy", "xyz", "client:"] {
        let joined = format!("{neighbours}{secret}{neighbours}");
        for log in [STANDARD.encode(&joined), URL_SAFE_NO_PAD.encode(&joined)] {
            assert!(!secrets.leaks(&log).is_empty(), "{joined} in {log}");
        }
    }
    assert_eq!(
        secrets.leaks("the secret is not here: k~9 ssecret"),
        Vec::<String>::new()
    );
}

/// The operator's part, while the service runs.
struct Registered {
    web: String,
    api_key: String,
    robot: SigningKey,
    password: String,
}

fn register(service: &Service, upstream: &Upstream, secrets: &mut Secrets) -> Registered {
    let file = |name: &str, text: &str| {
        let path = service.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let upstream_secret = secrets.keep("provider's secret", "s3cret of the provider, long enough");
    let secret_file = file("upstream", &upstream_secret);
    let mut provider = vec!["provider", "add", "up", "--issuer", &upstream.issuer];
    provider.extend(["--client-id", "idsvc", "--client-secret-file", &secret_file]);
    provider.extend(["--exchange", "--create-users", "--json"]);
    service.json(&provider);
    let another = secrets.keep("provider's next secret", "another s3cret of the provider");
    let secret_file = file("upstream", &another);
    let update = ["provider", "update", "up", "--client-secret-file", &secret_file];
    service.json(&[&update[..], &["--json"]].concat());

    let mut web = vec![
        "client",
        "add",
        "web",
        "--redirect-uri",
        REDIRECT_URI,
        "--pkce",
        "optional",
        "--api-key",
    ];
    for grant in ["authorization_code", "refresh_token", "anonymous", "jwt-bearer"] {
        web.extend(["--grant", grant]);
    }
    web.extend(["--provider", "up", "--json"]);
    let added = service.json(&web);
    secrets.keep_member(&added, "client_secret");
    secrets.keep_member(&added, "api_key");
    let rotated = service.json(&["client", "rotate-secret", "web", "--json"]);
    let api_key = service.json(&["client", "api-key", "add", "web", "--json"]);
    let own = secrets.keep(
        "operator's own secret",
        "a secret that the operator has made up 1",
    );
    let own_file = file("own", &own);
    let own = [
        "client",
        "add",
        "own",
        "--redirect-uri",
        REDIRECT_URI,
        "--pkce",
        "optional",
        "--secret-file",
        &own_file,
    ];
    service.json(&[&own[..], &["--json"]].concat());

    let robot = SigningKey::generate_es256(&Random::system()).unwrap();
    let keys = json!({"keys": [robot.public().to_jwk()]}).to_string();
    let jwks_file = file("jwks.json", &keys);
    let robot_flags = [
        "client",
        "add",
        "robot",
        "--grant",
        "client_credentials",
        "--scope",
        "jobs",
    ];
    service.json(&[&robot_flags[..], &["--jwks-file", &jwks_file, "--json"]].concat());

    let alice = service.json(&[
        "user",
        "add",
        "alice@example.com",
        "--generate-password",
        "--json",
    ]);
    secrets.keep_member(&alice, "password");
    let set = [
        "user",
        "set-password",
        "alice@example.com",
        "--generate-password",
        "--json",
    ];
    Registered {
        web: secrets.keep_member(&rotated, "client_secret"),
        api_key: secrets.keep_member(&api_key, "api_key"),
        robot,
        password: secrets.keep_member(&service.json(&set), "password"),
    }
}

fn refuse(reply: &Reply) {
    assert!((400..500).contains(&reply.status), "{reply:?}");
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// What an application does, well and badly.
struct Application<'a> {
    running: &'a Running<'a>,
    registered: Registered,
    secrets: Secrets,
}

impl Application<'_> {
    fn token(&self, form: &[(&str, &str)]) -> Reply {
        let basic = basic("web", &self.registered.web);
        self.running
            .post_form("/oauth2/token", &[("Authorization", &basic)], form)
            .unwrap()
    }

    fn refresh(&self, token: &str) -> Reply {
        self.token(&[("grant_type", "refresh_token"), ("refresh_token", token)])
    }

    /// Enters a wrong password, then the right one. Returns the code.
    fn sign_in(&mut self) -> String {
        let query = write_form(&[
            ("response_type", "code"),
            ("client_id", "web"),
            ("redirect_uri", REDIRECT_URI),
            ("scope", "openid email"),
            ("state", "state-that-is-the-clients-own"),
            ("nonce", "nonce-that-is-the-clients-own"),
        ]);
        let target = format!("/oauth2/authorize?{query}");
        let wrong = self
            .secrets
            .keep("wrong password", "hunter2hunter2 of another user");
        let as_name = self
            .secrets
            .keep("password typed as a name", "pa55word-in-the-wrong-field");
        let (page, _) = self.running.type_in(&target, "alice@example.com", &wrong);
        assert_ne!(page.status, 303);
        let (page, _) = self.running.type_in(&target, &as_name, "x");
        assert_ne!(page.status, 303);
        let password = self.registered.password.clone();
        let (answer, cookie) = self.running.type_in(&target, "alice@example.com", &password);
        assert_eq!(answer.status, 303, "{answer:?}");
        self.secrets.keep("cookie of the sign-in", value_of(&cookie));
        for set in answer.headers("set-cookie") {
            let value = value_of(set.split(';').next().unwrap());
            if value.len() >= 8 {
                self.secrets.keep("cookie", value);
            }
        }
        let location = url::Url::parse(answer.header("location").unwrap()).unwrap();
        let code = location.query_pairs().find(|(name, _)| name == "code").unwrap();
        self.secrets.keep("code", &code.1)
    }

    /// Pushes the refresh token of an anonymous user, and then puts it into an address.
    fn push_anonymous(&self, token: &str) {
        let request = [
            ("response_type", "code"),
            ("client_id", "web"),
            ("redirect_uri", REDIRECT_URI),
            ("anonymous_refresh_token", token),
        ];
        let basic = [("Authorization", &*basic("web", &self.registered.web))];
        let pushed = self.running.post_form("/oauth2/par", &basic, &request).unwrap();
        assert_eq!(pushed.status, 201, "{pushed:?}");
        let target = format!("/oauth2/authorize?{}", write_form(&request));
        let refused = self.running.request("GET", &target, &[], "").unwrap();
        let location = refused.header("location").unwrap();
        assert!(location.contains("invalid_request") && !location.contains(token));
        let posted = self
            .running
            .post_form("/oauth2/authorize", &[], &request)
            .unwrap();
        assert!(!posted.header("location").unwrap().contains(token));
    }

    fn redeem_and_refresh(&mut self, code: &str) -> Value {
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", REDIRECT_URI),
        ];
        let wrong = self
            .secrets
            .keep("wrong client secret", "not-the-secret-of-the-client");
        let wrong = basic("web", &wrong);
        let refused = self
            .running
            .post_form("/oauth2/token", &[("Authorization", &wrong)], &form);
        refuse(&refused.unwrap());
        let both = [
            &form[..],
            &[("client_id", "web"), ("client_secret", &self.registered.web)],
        ]
        .concat();
        refuse(&self.token(&both));
        let tokens = self.secrets.keep_tokens("code", &self.token(&form));
        let second = self.refresh(text(&tokens["refresh_token"]));
        let second = self.secrets.keep_tokens("refresh", &second);
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", text(&second["refresh_token"])),
        ];
        let key = self.registered.api_key.clone();
        let by_key = |key: &str| {
            let authorization = format!("Basic {}", STANDARD.encode(key));
            self.running
                .post_form("/v4/tokens", &[("Authorization", &authorization)], &form)
                .unwrap()
        };
        let last = if key.ends_with('A') { 'B' } else { 'A' };
        let wrong_key = format!("{}{last}", &key[..key.len() - 1]);
        refuse(&by_key(&wrong_key));
        let third = by_key(&key);
        self.secrets.keep("wrong API key", &wrong_key);
        self.secrets.keep_tokens("refresh by API key", &third)
    }

    fn act_for_itself(&mut self) {
        let now = Clock::System.now().seconds();
        let claims = json!({
            "iss": "robot", "sub": "robot", "aud": self.running.issuer(), "exp": now + 60,
            "jti": Random::system().uuid_v4(),
        });
        let ask = |assertion: &str| {
            let form = [
                ("grant_type", "client_credentials"),
                ("client_assertion_type", ASSERTION_TYPE),
                ("client_assertion", assertion),
                ("scope", "jobs"),
            ];
            self.running.post_form("/oauth2/token", &[], &form).unwrap()
        };
        let stranger = SigningKey::generate_es256(&Random::system()).unwrap();
        let forged = jwt::sign(&stranger, "JWT", &claims).unwrap();
        refuse(&ask(&forged));
        let assertion = jwt::sign(&self.registered.robot, "JWT", &claims).unwrap();
        let granted = ask(&assertion);
        refuse(&ask(&assertion));
        self.secrets.keep_jwt("forged client assertion", &forged);
        self.secrets.keep_jwt("client assertion", &assertion);
        self.secrets.keep_tokens("client_credentials", &granted);
    }

    fn exchange(&mut self, upstream: &Upstream) {
        let now = Clock::System.now().seconds();
        let mut claims = upstream.claims("idsvc", "u-1");
        claims["iat"] = json!(now);
        claims["exp"] = json!(now + 60);
        claims["jti"] = json!("the-one-and-only");
        let ask = |assertion: &str| self.token(&[("grant_type", JWT_BEARER), ("assertion", assertion)]);
        let expired =
            upstream.sign(&json!({"iss": upstream.issuer, "sub": "u-1", "aud": "idsvc", "exp": 1, "iat": 1}));
        refuse(&ask(&expired));
        let nonsense = format!("{}.nonsense", expired.rsplit_once('.').unwrap().0);
        refuse(&ask(&nonsense));
        let token = upstream.sign(&claims);
        let granted = ask(&STANDARD.encode(&token));
        refuse(&ask(&token));
        self.secrets.keep_jwt("expired token of the provider", &expired);
        self.secrets.keep_jwt("token of the provider", &token);
        self.secrets.keep_tokens("jwt-bearer", &granted);
    }

    /// Sends tokens and secrets in places where they do not belong but where clients put them by mistake.
    fn misplace(&mut self, tokens: &Value) {
        let token = text(&tokens["access_token"]).to_owned();
        let id_token = text(&tokens["id_token"]).to_owned();
        let secret = self.registered.web.clone();
        let get = |target: &str, headers: &[(&str, &str)]| {
            self.running.request("GET", target, headers, "").unwrap().status
        };
        assert_eq!(
            get(
                "/oauth2/userinfo",
                &[("Authorization", &format!("Bearer {token}"))]
            ),
            200
        );
        get(&format!("/oauth2/userinfo?access_token={token}"), &[]);
        get(&format!("/{token}"), &[]);
        get(&format!("/oauth2/logout?id_token_hint={id_token}"), &[]);
        get(
            &format!("/oauth2/authorize?client_id={secret}&client_secret={secret}"),
            &[],
        );
        get("/oauth2/userinfo", &[("Authorization", &secret)]);
        get(
            "/oauth2/userinfo",
            &[("Authorization", &format!("Bearer {secret} {token}"))],
        );
        get("/login", &[("Cookie", &format!("__Host-idsvc_session={secret}"))]);
        get("/healthz", &[("X-Request-Id", &secret), ("Referer", &token)]);
        for form in [
            [("grant_type", secret.as_str()), ("client_id", "web")],
            [
                ("grant_type", "refresh_token"),
                (secret.as_str(), secret.as_str()),
            ],
            [("client_id", secret.as_str()), ("client_secret", secret.as_str())],
        ] {
            refuse(&self.running.post_form("/oauth2/token", &[], &form).unwrap());
        }
        let not_a_form = [("Content-Type", secret.as_str())];
        self.running
            .request("POST", "/oauth2/token", &not_a_form, &secret)
            .unwrap();
        let broken = [("Content-Type", "application/json")];
        self.running
            .request(
                "POST",
                "/v4/tokens",
                &broken,
                &format!("{{\"refresh_token\":\"{secret}"),
            )
            .unwrap();
        for path in ["/oauth2/introspect", "/oauth2/revoke"] {
            let basic = basic("web", &self.registered.web);
            let answered = self
                .running
                .post_form(path, &[("Authorization", &basic)], &[("token", &token)]);
            assert_eq!(answered.unwrap().status, 200);
        }
    }
}

fn value_of(cookie: &str) -> &str {
    cookie.split_once('=').unwrap().1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_of_a_whole_run_is_in_the_log() {
    let upstream = Upstream::start().await;
    let service = Service::empty()
        .reaching(&upstream)
        .with("IDSVC_LOG_LEVEL", "trace");
    let service = service.with("IDSVC_LOG_FORMAT", "json");
    let mut secrets = Secrets::default();
    let mut running = service.serve();
    let registered = register(&service, &upstream, &mut secrets);
    let mut application = Application {
        running: &running,
        registered,
        secrets,
    };
    let code = application.sign_in();
    let tokens = application.redeem_and_refresh(&code);
    let anonymous = application.token(&[("grant_type", "urn:service:oauth2:grant-type:anonymous")]);
    let anonymous = application.secrets.keep_tokens("anonymous", &anonymous);
    application.push_anonymous(text(&anonymous["refresh_token"]));
    application.act_for_itself();
    application.exchange(&upstream);
    application.misplace(&tokens);
    let again = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", REDIRECT_URI),
    ];
    refuse(&application.token(&again));
    let secrets = application.secrets;
    running.terminate();

    let log = service.log();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}")))
        .collect();
    for grant_type in [
        "authorization_code",
        "refresh_token",
        "anonymous",
        "client_credentials",
        "jwt-bearer",
    ] {
        let is_noted = |line: &Value| {
            line["fields"]["event"] == "tokens_issued"
                && text(&line["fields"]["grant_type"]).contains(grant_type)
        };
        assert!(lines.iter().any(is_noted), "{grant_type} is not in the log");
    }
    let answered = lines
        .iter()
        .filter(|line| line["fields"]["message"] == "answered")
        .count();
    assert!(answered > 30, "only {answered} requests are in the log");
    let master_key = std::fs::read_to_string(service.data().join("master.key")).unwrap();
    let mut secrets = secrets;
    secrets.keep("master key", master_key.trim());
    assert!(secrets.0.len() > 40, "{} secrets", secrets.0.len());
    assert_eq!(secrets.leaks(&log), Vec::<String>::new(), "{log}");
}
