//! JSON Web Token, and the best current practices of RFC 8725: what the service issues, and what it makes of the
//! tokens of others, at a client's assertion and at the exchange of a provider's ID token alike.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::admin::provider::ProviderFields;
use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwt::payload_claims;
use idsvc::jose::keyring::SigningKey;
use idsvc::oauth::client::{AuthMethod, GrantType};
use idsvc::random::Random;
use serde_json::{Map, Value, json};

use crate::harness::server::Setup;
use crate::harness::token::{sign_text, signed};
use crate::harness::{ISSUER, RelyingParty, Reply, START, Server, Tokens, Upstream, scene};

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The two ways in which tokens of other issuers are presented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TokenUse {
    ClientAssertion,
    Exchange,
}

impl TokenUse {
    const BOTH: [Self; 2] = [Self::ClientAssertion, Self::Exchange];
}

struct Fixture {
    server: Server,
    upstream: Upstream,
    acme: RelyingParty,
    key: SigningKey,
}

impl Fixture {
    async fn new() -> Self {
        let upstream = Upstream::start().await;
        let mut setup = Setup {
            outbound: upstream.terms(),
            ..Setup::default()
        };
        setup.limits.enabled = false;
        let server = setup.start().await;
        let fields = ProviderFields {
            issuer: Some(upstream.issuer.clone()),
            audiences: Some(vec![ISSUER.to_owned()]),
            algs: Some(vec![Algorithm::Rs256]),
            exchange: Some(true),
            create_users: Some(true),
            ..ProviderFields::default()
        };
        server.provider("up", fields).await;
        let acme = server
            .client_with("acme", |client| {
                client.grant_types.insert(GrantType::JwtBearer);
                client.providers.insert("up".to_owned());
            })
            .await;
        let key = SigningKey::generate_es256(&Random::system()).unwrap();
        server
            .client_with("robot", |client| {
                client.jwks = vec![key.public().to_jwk()];
                client.token_endpoint_auth_methods = [AuthMethod::PrivateKeyJwt].into();
                client.secrets.clear();
                client.grant_types = [GrantType::ClientCredentials].into();
            })
            .await;
        Self {
            server,
            upstream,
            acme,
            key,
        }
    }

    fn key(&self, token_use: TokenUse) -> &SigningKey {
        match token_use {
            TokenUse::ClientAssertion => &self.key,
            TokenUse::Exchange => self.upstream.key(),
        }
    }

    fn header(&self, token_use: TokenUse) -> Value {
        json!({"alg": self.key(token_use).alg().as_str(), "typ": "JWT"})
    }

    /// Claims that are accepted for this use. Each call returns new ones.
    fn claims(&self, token_use: TokenUse) -> Map<String, Value> {
        let now = self.server.clock.now().seconds();
        let who = match token_use {
            TokenUse::ClientAssertion => json!({"iss": "robot", "sub": "robot"}),
            TokenUse::Exchange => json!({"iss": self.upstream.issuer, "sub": "u-1"}),
        };
        let mut claims = who.as_object().unwrap().clone();
        claims.insert("aud".to_owned(), ISSUER.into());
        claims.insert("iat".to_owned(), now.into());
        claims.insert("exp".to_owned(), (now + 60).into());
        claims.insert("jti".to_owned(), Random::system().uuid_v4().to_string().into());
        claims
    }

    async fn present(&self, token_use: TokenUse, token: &str) -> Reply {
        match token_use {
            TokenUse::ClientAssertion => {
                self.server
                    .post("/oauth2/token")
                    .with("grant_type", "client_credentials")
                    .with("scope", "notes.read")
                    .with("client_assertion_type", ASSERTION_TYPE)
                    .with("client_assertion", token)
                    .await
            }
            TokenUse::Exchange => {
                self.acme
                    .post("/oauth2/token")
                    .with("grant_type", JWT_BEARER)
                    .with("assertion", token)
                    .await
            }
        }
    }

    /// A token that is right but for some claims; null removes one.
    fn claiming(&self, token_use: TokenUse, changes: &Value) -> String {
        let mut claims = self.claims(token_use);
        for (name, value) in changes.as_object().unwrap() {
            if value.is_null() {
                claims.remove(name);
            } else {
                claims.insert(name.clone(), value.clone());
            }
        }
        signed(self.key(token_use), &self.header(token_use), &claims.into())
    }

    /// A token with this header over claims that are right.
    fn headed(&self, token_use: TokenUse, header: &Value) -> String {
        signed(self.key(token_use), header, &self.claims(token_use).into())
    }

    async fn welcomes(&self, token_use: TokenUse, token: &str, why: &str) {
        let reply = self.present(token_use, token).await;
        assert_eq!(reply.status, 200, "{token_use:?}, {why}: {}", reply.text());
    }

    async fn refuses(&self, token_use: TokenUse, token: &str, why: &str) {
        let reply = self.present(token_use, token).await;
        let expected = match token_use {
            TokenUse::ClientAssertion => "invalid_client",
            TokenUse::Exchange => "invalid_grant",
        };
        assert_ne!(reply.status, 200, "{token_use:?} lets pass: {why}");
        assert_eq!(reply.error(), expected, "{token_use:?}, {why}");
    }
}

/// A token's parts as they are, the payload read so that no name may occur twice.
fn parts(token: &str) -> (Value, Map<String, Value>) {
    let parts: Vec<_> = token.split('.').collect();
    let [header, payload, signature] = parts.as_slice() else {
        panic!("not three parts: {token}")
    };
    for part in [header, payload, signature] {
        let bytes = URL_SAFE_NO_PAD.decode(part).unwrap();
        assert_eq!(
            URL_SAFE_NO_PAD.encode(&bytes),
            **part,
            "there is one way to write it"
        );
        assert!(!bytes.is_empty());
    }
    let header = payload_claims(&URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap();
    (
        header.into(),
        payload_claims(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap(),
    )
}

/// Tokens of every kind of grant.
async fn issued(fixture: &Fixture) -> Vec<(&'static str, String)> {
    let alice = fixture.server.user("alice").await;
    let by_code = fixture.acme.tokens(&alice.browser()).await;
    let exchanged = fixture
        .present(
            TokenUse::Exchange,
            &fixture.claiming(TokenUse::Exchange, &json!({})),
        )
        .await
        .tokens();
    let own = fixture
        .present(
            TokenUse::ClientAssertion,
            &fixture.claiming(TokenUse::ClientAssertion, &json!({})),
        )
        .await
        .tokens();
    let refreshed = fixture.acme.refresh(by_code.refresh_token()).await.tokens();
    let access = |tokens: &Tokens| ("access", tokens.access_token().to_owned());
    let id = |tokens: &Tokens| ("id", tokens.id_token().to_owned());
    vec![
        access(&by_code),
        access(&exchanged),
        access(&own),
        access(&refreshed),
        id(&by_code),
        id(&exchanged),
        id(&refreshed),
    ]
}

/// Sections 4.1 and 5, RFC 8725 sections 3.1, 3.2 and 3.11: the header says what it is and nothing that a reader
/// would have to guard against.
#[tokio::test]
async fn issued_tokens_have_a_plain_header() {
    let fixture = Fixture::new().await;
    for (kind, token) in issued(&fixture).await {
        let (header, _) = parts(&token);
        let members: Vec<_> = header.as_object().unwrap().keys().cloned().collect();
        assert_eq!(members, ["alg", "kid", "typ"], "{kind}");
        let (alg, typ) = match kind {
            "access" => ("ES256", "at+jwt"),
            _ => ("RS256", "JWT"),
        };
        assert_eq!((&header["alg"], &header["typ"]), (&json!(alg), &json!(typ)));
        fixture.acme.verify(&token).await;
    }
}

/// Sections 2, 4.1.1 to 4.1.7: registered claims in the form they have to have.
#[tokio::test]
async fn issued_tokens_have_claims_of_the_right_form() {
    let fixture = Fixture::new().await;
    fixture.server.advance(3);
    let now = START.seconds() + 3;
    let mut seen = BTreeSet::new();
    for (kind, token) in issued(&fixture).await {
        let (_, claims) = parts(&token);
        assert_eq!(claims["iss"], ISSUER);
        assert!(claims["sub"].as_str().is_some_and(|sub| sub.len() == 36));
        let audience = if kind == "access" { ISSUER } else { "acme" };
        assert_eq!(claims["aud"], audience, "one text, not a list of one");
        for date in ["iat", "exp", "auth_time"] {
            if let Some(value) = claims.get(date) {
                assert!(
                    value.as_u64().is_some_and(|seconds| seconds <= now + 86_400),
                    "{date} is whole seconds: {value}"
                );
            }
        }
        assert_eq!(claims["iat"], now);
        assert!(claims["exp"].as_u64() > claims["iat"].as_u64());
        assert!(claims.get("nbf").is_none());
        if kind == "access" {
            let jti = claims["jti"].as_str().unwrap().to_owned();
            assert!(seen.insert(jti), "jti is another each time");
        }
    }
}

/// RFC 8725 sections 2.8 and 3.12: a token of ours is good for what it is and for nothing else.
#[tokio::test]
async fn one_kind_of_token_does_not_pass_for_another() {
    let fixture = Fixture::new().await;
    let alice = fixture.server.user("alice").await;
    let tokens = fixture.acme.tokens(&alice.browser()).await;
    let (access, id) = (tokens.access_token(), tokens.id_token());
    let userinfo = fixture.acme.userinfo(id).await;
    assert!(
        userinfo.challenge().contains("invalid_token"),
        "an ID token is no access token"
    );
    let judged = fixture.acme.introspect(id).await.json();
    assert_eq!(judged, json!({"active": false}));
    for (what, token) in [("an access token", access), ("an ID token", id)] {
        for token_use in TokenUse::BOTH {
            fixture.refuses(token_use, token, what).await;
        }
    }
    for token_use in TokenUse::BOTH {
        let assertion = fixture.claiming(token_use, &json!({}));
        let userinfo = fixture.acme.userinfo(&assertion).await;
        assert!(
            userinfo.challenge().contains("invalid_token"),
            "{token_use:?} is no access token"
        );
    }
    let of_the_provider = fixture.claiming(TokenUse::Exchange, &json!({}));
    fixture
        .refuses(
            TokenUse::ClientAssertion,
            &of_the_provider,
            "the provider's token",
        )
        .await;
    let of_the_client = fixture.claiming(TokenUse::ClientAssertion, &json!({}));
    fixture
        .refuses(TokenUse::Exchange, &of_the_client, "the client's assertion")
        .await;
}

/// RFC 8725 section 3.11: `typ` tells kinds apart; media types know no case, and `application/` may be left out.
#[tokio::test]
async fn typ_is_that_of_the_kind_or_absent() {
    let fixture = Fixture::new().await;
    for token_use in TokenUse::BOTH {
        let alg = fixture.key(token_use).alg().as_str();
        for typ in ["JWT", "jwt", "application/jwt", "Application/JWT"] {
            let token = fixture.headed(token_use, &json!({"alg": alg, "typ": typ}));
            fixture.welcomes(token_use, &token, typ).await;
        }
        let bare = fixture.headed(token_use, &json!({"alg": alg}));
        fixture.welcomes(token_use, &bare, "no typ").await;
        for typ in [
            json!("at+jwt"),
            json!("dpop+jwt"),
            json!("secevent+jwt"),
            json!("logout+jwt"),
            json!("JOSE"),
            json!(""),
            json!(" JWT"),
            json!("application/x/jwt"),
            json!(["JWT"]),
            json!(7),
            Value::Null,
        ] {
            let token = fixture.headed(token_use, &json!({"alg": alg, "typ": typ}));
            fixture.refuses(token_use, &token, &format!("typ {typ}")).await;
        }
    }
    let own = json!({"alg": "ES256", "typ": "client-authentication+jwt"});
    let token = fixture.headed(TokenUse::ClientAssertion, &own);
    fixture
        .welcomes(TokenUse::ClientAssertion, &token, "its own typ")
        .await;
    let foreign = json!({"alg": "RS256", "typ": "client-authentication+jwt"});
    let token = fixture.headed(TokenUse::Exchange, &foreign);
    fixture
        .refuses(TokenUse::Exchange, &token, "the typ of the other token_use")
        .await;
}

/// RFC 7515 section 4.1.11: what must be understood and is not, ends it.
#[tokio::test]
async fn critical_extensions_are_not_passed_over() {
    let fixture = Fixture::new().await;
    for token_use in TokenUse::BOTH {
        let alg = fixture.key(token_use).alg().as_str();
        for header in [
            json!({"alg": alg, "crit": ["exp"], "exp": START.seconds() + 60}),
            json!({"alg": alg, "crit": ["unheard-of"], "unheard-of": true}),
            json!({"alg": alg, "crit": []}),
            json!({"alg": alg, "crit": ["alg"]}),
            json!({"alg": alg, "crit": null}),
            json!({"alg": alg, "crit": ["b64"], "b64": false}),
            json!({"alg": alg, "b64": true}),
        ] {
            let token = fixture.headed(token_use, &header);
            fixture.refuses(token_use, &token, &header.to_string()).await;
        }
        let uncritical = json!({"alg": alg, "unheard-of": {"a": [1, 2]}, "cty": "x"});
        let token = fixture.headed(token_use, &uncritical);
        fixture
            .welcomes(token_use, &token, "what is not critical is ignored")
            .await;
    }
}

/// RFC 8725 sections 3.1 and 3.10: neither algorithm nor key are the token's to choose.
#[tokio::test]
async fn the_header_chooses_neither_algorithm_nor_key() {
    let fixture = Fixture::new().await;
    let other = SigningKey::generate_es256(&Random::system()).unwrap();
    let stranger = Upstream::start_other().await;
    for token_use in TokenUse::BOTH {
        let own = fixture.key(token_use);
        let alg = own.alg().as_str();
        let forger = match token_use {
            TokenUse::ClientAssertion => &other,
            TokenUse::Exchange => stranger.key(),
        };
        let jwk = forger.public().to_jwk();
        let claims = Value::from(fixture.claims(token_use));
        for header in [
            json!({"alg": alg}),
            json!({"alg": alg, "kid": own.kid()}),
            json!({"alg": alg, "kid": forger.kid()}),
            json!({"alg": alg, "jwk": jwk}),
            json!({"alg": alg, "jwk": jwk, "kid": forger.kid()}),
            json!({"alg": alg, "jku": format!("{}/jwks", stranger.issuer), "kid": forger.kid()}),
            json!({"alg": alg, "x5u": format!("{}/cert", stranger.issuer)}),
            json!({"alg": alg, "x5c": ["MIIB"], "x5t": "x"}),
        ] {
            let forged = signed(forger, &header, &claims);
            fixture.refuses(token_use, &forged, &header.to_string()).await;
        }
        for alg in [
            "none", "None", "NONE", "", "HS256", "hs256", "RS1", "dir", "ES256K",
        ] {
            let text = sign_text(own, &json!({"alg": alg}).to_string(), claims.to_string());
            fixture.refuses(token_use, &text, alg).await;
            let bare = text.rsplit_once('.').unwrap().0;
            fixture.refuses(token_use, &format!("{bare}."), alg).await;
        }
        let hmac = |secret: &[u8]| {
            let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
            let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256"}"#);
            let input = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
            let tag = URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, input.as_bytes()));
            format!("{input}.{tag}")
        };
        let public = own.public().to_jwk();
        let mut secrets = vec![
            public.to_string().into_bytes(),
            own.kid().as_bytes().to_vec(),
            Vec::new(),
        ];
        for member in ["n", "x", "y"] {
            if let Some(text) = public[member].as_str() {
                secrets.push(text.as_bytes().to_vec());
                secrets.push(URL_SAFE_NO_PAD.decode(text).unwrap());
            }
        }
        for secret in secrets {
            fixture
                .refuses(token_use, &hmac(&secret), "HS256 with the public key")
                .await;
        }
        for kid in [
            "../../../../dev/null",
            "/proc/self/environ",
            "' OR 1=1 --",
            "x\u{0}y",
            "https://evil.example/key",
            "",
            &"k".repeat(4096),
            &own.kid().to_uppercase(),
            &format!("{} ", own.kid()),
        ] {
            let token = fixture.headed(token_use, &json!({"alg": alg, "kid": kid}));
            fixture.refuses(token_use, &token, &format!("kid {kid:?}")).await;
        }
        let token = fixture.headed(token_use, &json!({"alg": alg, "kid": own.kid(), "jwk": jwk}));
        fixture
            .welcomes(token_use, &token, "a key that is carried along is ignored")
            .await;
    }
    assert!(stranger.seen("/jwks").is_empty() && stranger.seen("/cert").is_empty());
}

/// Sections 4 and 7.2: texts that two readers could read differently, or that are no token at all.
#[tokio::test]
async fn what_is_not_written_as_it_must_be_is_refused() {
    let fixture = Fixture::new().await;
    for token_use in TokenUse::BOTH {
        let key = fixture.key(token_use);
        let header = fixture.header(token_use).to_string();
        let claims = Value::from(fixture.claims(token_use)).to_string();
        let with = |more: &str| format!("{},{more}}}", claims.strip_suffix('}').unwrap());
        let deep = |levels: usize| format!("\"x\":{}1{}", "[".repeat(levels), "]".repeat(levels));
        for (payload, why) in [
            (with("\"sub\":\"robot\""), "sub twice"),
            (with("\"exp\":9999999999"), "exp twice"),
            (with("\"x\":{\"a\":1,\"a\":2}"), "a name twice, further in"),
            (with(&deep(200)), "nesting without end"),
            (with(&deep(4000)), "nesting to break a stack"),
            (with("\"x\":1e999"), "a number that is none"),
            (with("\"x\":NaN"), "no JSON"),
            (format!("{claims} x"), "something behind it"),
            (format!("\u{feff}{claims}"), "a byte order mark"),
            (format!("[{claims}]"), "a list"),
            ("\"text\"".to_owned(), "a text"),
            ("null".to_owned(), "nothing"),
            (String::new(), "not even that"),
            ("{}".to_owned(), "no claims"),
        ] {
            let token = sign_text(key, &header, payload);
            fixture.refuses(token_use, &token, why).await;
        }
        let mut bytes = with("\"x\":\"?\"").into_bytes();
        let at = bytes.iter().rposition(|byte| *byte == b'?').unwrap();
        bytes[at] = 0xff;
        let token = sign_text(key, &header, bytes);
        fixture.refuses(token_use, &token, "invalid UTF-8").await;
        let alg = key.alg().as_str();
        for header in [
            format!("{{\"alg\":\"none\",\"alg\":\"{alg}\"}}"),
            format!("{{\"alg\":\"{alg}\",\"typ\":\"at+jwt\",\"typ\":\"JWT\"}}"),
            format!("[\"{alg}\"]"),
            "{}".to_owned(),
            "{\"alg\":null}".to_owned(),
            String::new(),
        ] {
            let token = sign_text(key, &header, &claims);
            fixture.refuses(token_use, &token, &header).await;
        }
        let long = fixture.claiming(token_use, &json!({"pad": "x".repeat(20 * 1024)}));
        fixture.refuses(token_use, &long, "20 KiB").await;
        let fits = fixture.claiming(token_use, &json!({"pad": "x".repeat(10 * 1024)}));
        fixture.welcomes(token_use, &fits, "10 KiB").await;
        let shallow = sign_text(key, &header, with(&deep(100)));
        fixture
            .welcomes(token_use, &shallow, "a hundred levels that nobody looks at")
            .await;
    }
}

/// RFC 7515 section 7.1 and appendix C: base64url without padding, in the one way to write it.
#[tokio::test]
async fn only_one_spelling_of_a_token_is_read() {
    let fixture = Fixture::new().await;
    for token_use in TokenUse::BOTH {
        let good = fixture.claiming(token_use, &json!({}));
        let parts: Vec<_> = good.split('.').collect();
        let [header, payload, signature] = parts.as_slice() else {
            unreachable!()
        };
        let mut misspelt = vec![
            format!("{good}="),
            format!("{good}=="),
            format!("{good}."),
            format!(".{good}"),
            format!("{good}.{signature}"),
            format!("{good}.{payload}.{signature}"),
            format!("{header}.{payload}"),
            format!("{header}..{signature}"),
            format!("{header}.{payload} .{signature}"),
            format!("{header}.{payload}\n.{signature}"),
            format!("{header}.{payload}.{signature}AA"),
            format!("{header}.{payload}.{}", &signature[..signature.len() - 2]),
            "..".to_owned(),
            ".".to_owned(),
            format!(" {good}"),
            format!("{good}\n"),
            format!("{good}\u{0}"),
        ];
        // the last letter of a signature whose bytes do not fill it has bits over, which must be zero
        let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let last = alphabet.find(signature.chars().last().unwrap()).unwrap();
        let (rest, other) = (&good[..good.len() - 1], &alphabet[last + 1..last + 2]);
        misspelt.push(format!("{rest}{other}"));
        for token in misspelt {
            fixture.refuses(token_use, &token, &token).await;
        }
        fixture.welcomes(token_use, &good, "the one spelling").await;
    }
}

/// Section 2: a `NumericDate` may have parts of a second, and is a number.
#[tokio::test]
async fn dates_are_numbers_of_seconds() {
    let fixture = Fixture::new().await;
    let soon = START.seconds() + 60;
    for token_use in TokenUse::BOTH {
        for exp in [
            soon.to_string(),
            format!("{soon}.0"),
            format!("{soon}.75"),
            format!("{}.5e1", soon / 10),
            "1.80000006E9".to_owned(),
        ] {
            let mut claims = fixture.claims(token_use);
            claims.remove("exp");
            let claims = Value::from(claims).to_string();
            let payload = format!("{},\"exp\":{exp}}}", claims.strip_suffix('}').unwrap());
            let token = sign_text(
                fixture.key(token_use),
                &fixture.header(token_use).to_string(),
                payload,
            );
            fixture.welcomes(token_use, &token, &exp).await;
        }
        for name in ["exp", "iat", "nbf"] {
            for wrong in [
                json!(soon.to_string()),
                json!("soon"),
                json!([soon]),
                json!({}),
                json!(true),
                json!(-1),
                json!(-0.5),
                json!(1e300),
            ] {
                let token = fixture.claiming(token_use, &json!({ name: wrong }));
                fixture
                    .refuses(token_use, &token, &format!("{name} {wrong}"))
                    .await;
            }
        }
        // null is no date; `claiming` reads it as left out
        let mut claims = fixture.claims(token_use);
        claims.insert("nbf".to_owned(), Value::Null);
        let token = signed(fixture.key(token_use), &fixture.header(token_use), &claims.into());
        fixture.refuses(token_use, &token, "nbf null").await;
    }
}

/// Sections 4.1.4 to 4.1.6: a leeway of half a minute, to the second.
#[tokio::test]
async fn times_hold_to_the_second() {
    let fixture = Fixture::new().await;
    let now = START.seconds();
    for token_use in TokenUse::BOTH {
        for (changes, is_good) in [
            (json!({"exp": now + 1}), true),
            (json!({"exp": now}), true),
            (json!({"exp": now - 29}), true),
            (json!({"exp": now - 30}), false),
            (json!({"exp": 0}), false),
            (json!({"nbf": now}), true),
            (json!({"nbf": now + 30}), true),
            (json!({"nbf": now + 31}), false),
            (json!({"iat": now + 30}), true),
            (json!({"iat": now + 31}), false),
            (json!({"exp": null}), false),
            (json!({"exp": u64::MAX}), false),
            (json!({"nbf": u64::MAX}), false),
            (json!({"iat": u64::MAX}), false),
        ] {
            // how far ahead exp may lie is the client's assertion's own rule; a provider's token ages by its iat
            if token_use == TokenUse::Exchange && changes == json!({"exp": u64::MAX}) {
                continue;
            }
            let token = fixture.claiming(token_use, &changes);
            if is_good {
                fixture.welcomes(token_use, &token, &changes.to_string()).await;
            } else {
                fixture.refuses(token_use, &token, &changes.to_string()).await;
            }
        }
    }
    let eternal = json!({"iat": now - 3601 - 30, "exp": now + 100 * 365 * 86_400});
    let token = fixture.claiming(TokenUse::Exchange, &eternal);
    fixture
        .refuses(TokenUse::Exchange, &token, "too old, even with a later exp")
        .await;
    let far = fixture.claiming(TokenUse::ClientAssertion, &json!({"exp": now + 3631}));
    fixture
        .refuses(TokenUse::ClientAssertion, &far, "good for more than an hour")
        .await;
}

/// Section 4.1.3, RFC 8725 section 3.9: `aud` is a text or a list of texts, compared letter by letter.
#[tokio::test]
async fn the_audience_is_a_text_or_a_list() {
    let fixture = Fixture::new().await;
    for token_use in TokenUse::BOTH {
        let token = fixture.claiming(token_use, &json!({ "aud": ISSUER }));
        fixture.welcomes(token_use, &token, "one audience").await;
        let list = fixture.claiming(token_use, &json!({ "aud": [ISSUER] }));
        fixture.welcomes(token_use, &list, "a list of one").await;
        for aud in [
            json!([]),
            json!(""),
            json!([""]),
            json!(7),
            json!([7]),
            json!([ISSUER, 7]),
            json!({"aud": ISSUER}),
            json!([[ISSUER]]),
            json!(format!("{ISSUER}/")),
            json!(ISSUER.to_uppercase()),
            json!(format!(" {ISSUER}")),
            json!(&ISSUER[..ISSUER.len() - 1]),
            json!("https://other.example"),
            json!([ISSUER, "https://other.example"]),
        ] {
            let token = fixture.claiming(token_use, &json!({ "aud": aud }));
            fixture.refuses(token_use, &token, &format!("aud {aud}")).await;
        }
        let token = fixture.claiming(token_use, &json!({"aud": null}));
        fixture.refuses(token_use, &token, "no aud").await;
    }
}

/// Sections 4.1.1, 4.1.2 and RFC 8725 section 3.8: who speaks of whom is compared letter by letter.
#[tokio::test]
async fn the_issuer_is_compared_letter_by_letter() {
    let fixture = Fixture::new().await;
    let issuer = fixture.upstream.issuer.clone();
    for iss in [
        json!(format!("{issuer}/")),
        json!(issuer.to_uppercase()),
        json!(format!("{issuer}#")),
        json!([issuer]),
        json!(""),
        json!(7),
    ] {
        let token = fixture.claiming(TokenUse::Exchange, &json!({ "iss": iss }));
        fixture
            .refuses(TokenUse::Exchange, &token, &format!("iss {iss}"))
            .await;
    }
    for name in ["iss", "sub"] {
        for value in [
            json!("Robot"),
            json!("robot "),
            json!(""),
            json!(["robot"]),
            json!("acme"),
        ] {
            let token = fixture.claiming(TokenUse::ClientAssertion, &json!({ name: value }));
            fixture
                .refuses(TokenUse::ClientAssertion, &token, &format!("{name} {value}"))
                .await;
        }
    }
}

/// Section 4: claims that are not understood are ignored.
#[tokio::test]
async fn unknown_claims_are_ignored() {
    let fixture = Fixture::new().await;
    for token_use in TokenUse::BOTH {
        let more = json!({
            "urn:example:claim": {"deep": [1, {"er": null}]}, "scope": "services:all", "client_id": "other",
            "cnf": {"jkt": "x"}, "amr": ["mfa"], "uuid": "x", "admin": true,
        });
        let token = fixture.claiming(token_use, &more);
        let tokens = fixture.present(token_use, &token).await.tokens();
        let access = fixture.acme.verify(tokens.access_token()).await.claims;
        for claim in ["urn:example:claim", "cnf", "admin"] {
            assert!(access.get(claim).is_none(), "{token_use:?}: {claim} came through");
        }
        assert_ne!(access["uuid"], "x");
        assert!(!access["scope"].as_str().unwrap().contains("services:all"));
    }
}

/// Section 4.1.7: a token that says it is the only one of its name is taken once, in any spelling of its time.
#[tokio::test]
async fn a_jti_is_taken_once() {
    let fixture = Fixture::new().await;
    for token_use in TokenUse::BOTH {
        let token = fixture.claiming(token_use, &json!({}));
        fixture.welcomes(token_use, &token, "the first time").await;
        fixture.refuses(token_use, &token, "the second time").await;
        fixture.server.advance(1);
        fixture.refuses(token_use, &token, "later").await;
    }
}

/// Sections 4.1 and 5.2 of RFC 7516: what is encrypted is not for this service.
#[tokio::test]
async fn encrypted_tokens_are_refused() {
    let fixture = Fixture::new().await;
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RSA-OAEP","enc":"A256GCM"}"#);
    for token_use in TokenUse::BOTH {
        let token = format!("{header}.AAAA.AAAA.AAAA.AAAA");
        fixture.refuses(token_use, &token, "five parts").await;
    }
}

/// Section 7.2, step 10, for the service's own tokens: a changed one is refused.
#[tokio::test]
async fn our_own_tokens_are_read_as_strictly() {
    let (_server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let good = tokens.access_token();
    assert!(acme.is_welcome(&tokens).await);
    let parts: Vec<_> = good.split('.').collect();
    let unsigned = format!("{}.{}.", parts[0], parts[1]);
    let none = format!("{}.{}.", URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#), parts[1]);
    for token in [unsigned, none, format!("{good}.{}", parts[2]), format!("{good}A")] {
        let reply = acme.userinfo(&token).await;
        assert!(reply.challenge().contains("invalid_token"), "{token}");
        assert_eq!(acme.introspect(&token).await.json(), json!({"active": false}));
    }
}
