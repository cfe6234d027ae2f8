//! Every way to tokens against every fault: RFC 6749 section 5.2, as one table.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idsvc::admin::provider::ProviderFields;
use idsvc::admin::user::set_enabled;
use idsvc::identity::AuthenticationMethod;
use idsvc::jose::jwt;
use idsvc::jose::keyring::SigningKey;
use idsvc::oauth::client::{AuthMethod, Client, GrantType, StoredApiKey};
use idsvc::oauth::token_exchange::ACCESS_TOKEN;
use idsvc::random::Random;
use idsvc::secret::{ApiKey, Secret};
use idsvc::store::StoreError;
use idsvc::store::tables::CODES;
use serde_json::json;

use crate::harness::wire::Call;
use crate::harness::{ISSUER, Person, RelyingParty, Reply, START, Server, Upstream};

/// What comes of each fault. `C` stands for `WWW-Authenticate: Basic realm="idsvc", charset="UTF-8"`, which is
/// there when the `Authorization` header was tried and failed, and never else. Every answer is JSON that nobody may store.
///
/// Where a cell makes no sense for a grant it says why:
/// (1) the grant takes no scope, and what it does not know it ignores (RFC 6749 section 3.2);
/// (2) the token is the client's own, and no user or provider has part in it;
/// (3) the user is made by the request;
/// (4) everything is optional but `grant_type`;
/// (5) an API key is the one method of this endpoint, and what the body says of others is not looked at.
const TABLE: &str = r"
                       | code                        | refresh                     | refresh at /v4/tokens       | client_credentials, signed  | client_credentials, secret  | jwt-bearer                  | token-exchange              | anonymous
no fault               | 200                         | 200                         | 200                         | 200                         | 200                         | 200                         | 200                         | 200
unknown client         | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client          | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client C
wrong secret           | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client          | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client C
no authentication      | 401 invalid_client          | 401 invalid_client          | 401 invalid_client          | 401 invalid_client          | 401 invalid_client          | 401 invalid_client          | 401 invalid_client          | 401 invalid_client
wrong method           | 401 invalid_client          | 401 invalid_client          | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client          | 401 invalid_client          | 401 invalid_client          | 401 invalid_client
two methods            | 400 invalid_request         | 400 invalid_request         | 200 (5)                     | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request
disabled client        | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client          | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client C        | 401 invalid_client C
disabled user          | 400 invalid_grant           | 400 invalid_grant           | 400 invalid_grant           | (2)                         | (2)                         | 400 invalid_grant           | 400 invalid_request         | (3)
disabled provider      | 400 invalid_grant           | 400 invalid_grant           | 400 invalid_grant           | (2)                         | (2)                         | 400 invalid_grant           | 400 invalid_request         | (3)
grant not allowed      | 400 unauthorized_client     | 400 unauthorized_client     | 400 unauthorized_client     | 400 unauthorized_client     | 400 unauthorized_client     | 400 unauthorized_client     | 400 unauthorized_client     | 400 unauthorized_client
scope not allowed      | 200 (1)                     | 400 invalid_scope           | 400 invalid_scope           | 400 invalid_scope           | 400 invalid_scope           | 400 invalid_scope           | 400 invalid_scope           | 400 invalid_scope
scope malformed        | 200 (1)                     | 400 invalid_scope           | 400 invalid_scope           | 400 invalid_scope           | 400 invalid_scope           | 400 invalid_scope           | 400 invalid_scope           | 400 invalid_scope
grant_type missing     | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request
grant_type unknown     | 400 unsupported_grant_type  | 400 unsupported_grant_type  | 400 unsupported_grant_type  | 400 unsupported_grant_type  | 400 unsupported_grant_type  | 400 unsupported_grant_type  | 400 unsupported_grant_type  | 400 unsupported_grant_type
parameter missing      | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | (4)                         | (4)                         | 400 invalid_request         | 400 invalid_request         | (4)
parameter nonsense     | 400 invalid_grant           | 400 invalid_grant           | 400 invalid_grant           | (4)                         | (4)                         | 400 invalid_grant           | 400 invalid_request         | (4)
parameter twice        | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request
sent as JSON           | 400 invalid_request         | 400 invalid_request         | 200                         | 400 invalid_request         | 400 invalid_request         | 200                         | 400 invalid_request         | 200
wrong content type     | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request         | 400 invalid_request
oversized body         | 413 invalid_request         | 413 invalid_request         | 413 invalid_request         | 413 invalid_request         | 413 invalid_request         | 413 invalid_request         | 413 invalid_request         | 413 invalid_request
";

const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// A way to tokens: a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Code,
    Refresh,
    RefreshByKey,
    Signed,
    Secret,
    JwtBearer,
    TokenExchange,
    Anonymous,
}

impl Way {
    const ALL: [(Self, &str); 8] = [
        (Self::Code, "code"),
        (Self::Refresh, "refresh"),
        (Self::RefreshByKey, "refresh at /v4/tokens"),
        (Self::Signed, "client_credentials, signed"),
        (Self::Secret, "client_credentials, secret"),
        (Self::JwtBearer, "jwt-bearer"),
        (Self::TokenExchange, "token-exchange"),
        (Self::Anonymous, "anonymous"),
    ];

    fn grant(self) -> GrantType {
        match self {
            Self::Code => GrantType::AuthorizationCode,
            Self::Refresh | Self::RefreshByKey => GrantType::RefreshToken,
            Self::Signed | Self::Secret => GrantType::ClientCredentials,
            Self::JwtBearer => GrantType::JwtBearer,
            Self::TokenExchange => GrantType::TokenExchange,
            Self::Anonymous => GrantType::Anonymous,
        }
    }

    /// The parameter that the grant cannot do without.
    fn own_parameter(self) -> Option<&'static str> {
        match self {
            Self::Code => Some("code"),
            Self::Refresh | Self::RefreshByKey => Some("refresh_token"),
            Self::JwtBearer => Some("assertion"),
            Self::TokenExchange => Some("subject_token"),
            Self::Signed | Self::Secret | Self::Anonymous => None,
        }
    }
}

/// Everybody whom any of the grants needs.
struct World {
    server: Server,
    upstream: Upstream,
    acme: RelyingParty,
    robot: RelyingParty,
    key: SigningKey,
    api_key: String,
    alice: Person,
}

impl World {
    async fn new() -> Self {
        let upstream = Upstream::start().await;
        let server = Server::start_reaching(&upstream.terms(), |_| {}).await;
        let fields = ProviderFields {
            issuer: Some(upstream.issuer.clone()),
            audiences: Some(vec!["app".to_owned()]),
            exchange: Some(true),
            create_users: Some(true),
            ..ProviderFields::default()
        };
        server.provider("up", fields).await;
        let id = Random::system().uuid_v4();
        let api_key = Secret::<ApiKey>::generate(id.as_bytes(), &Random::system());
        let acme = server
            .client_with("acme", |client| {
                client.grant_types = Way::ALL.iter().map(|(way, _)| way.grant()).collect();
                client.providers.insert("up".to_owned());
                client.max_scope = Some("notes.read".parse().unwrap());
                client.api_keys.push(StoredApiKey {
                    id,
                    digest: api_key.digest(),
                    created_at: START,
                });
            })
            .await;
        let key = SigningKey::generate_es256(&Random::system()).unwrap();
        let robot = server
            .client_with("robot", |client| {
                client.jwks = vec![key.public().to_jwk()];
                client.token_endpoint_auth_methods = [AuthMethod::PrivateKeyJwt].into();
                client.secrets.clear();
                client.grant_types = [GrantType::ClientCredentials].into();
            })
            .await;
        let alice = server.user("alice").await;
        Self {
            api_key: api_key.reveal().to_owned(),
            server,
            upstream,
            acme,
            robot,
            key,
            alice,
        }
    }

    /// The client that goes this way.
    fn client(&self, way: Way) -> &RelyingParty {
        match way {
            Way::Signed => &self.robot,
            _ => &self.acme,
        }
    }

    /// The provider's word for the user of the exchange, and of what is refreshed.
    fn upstream_token(&self) -> String {
        self.upstream.sign(&self.upstream.claims("app", "u-1"))
    }

    /// A request that is granted.
    async fn request(&self, way: Way) -> Call {
        let token = |grant_type: &str| self.acme.post("/oauth2/token").with("grant_type", grant_type);
        let exchange = || token(JWT_BEARER).with("assertion", &self.upstream_token());
        match way {
            Way::Code => self.acme.redeem(&self.acme.code(&self.alice.browser()).await),
            Way::Refresh => self.acme.refresh(exchange().await.tokens().refresh_token()),
            Way::RefreshByKey => {
                let refresh_token = exchange().await.tokens().refresh_token().to_owned();
                self.server
                    .post("/v4/tokens")
                    .header("authorization", &basic(&self.api_key))
                    .with("grant_type", "refresh_token")
                    .with("refresh_token", &refresh_token)
            }
            Way::Signed => self
                .server
                .post("/oauth2/token")
                .with("grant_type", "client_credentials")
                .with("client_assertion_type", ASSERTION_TYPE)
                .with("client_assertion", &client_assertion("robot", &self.key)),
            Way::Secret => token("client_credentials"),
            Way::JwtBearer => exchange(),
            Way::TokenExchange => token("urn:ietf:params:oauth:grant-type:token-exchange")
                .with("subject_token", exchange().await.tokens().access_token())
                .with("subject_token_type", ACCESS_TOKEN),
            Way::Anonymous => token("urn:service:oauth2:grant-type:anonymous"),
        }
    }

    /// The granted request with a fault in it, or in the world; where that makes no sense, the note that says why.
    async fn faulty(&self, way: Way, fault: &str) -> Result<Call, &'static str> {
        let good = self.request(way).await;
        Ok(match fault {
            "no fault" => good,
            "unknown client" | "wrong secret" | "no authentication" | "wrong method" | "two methods" => {
                self.proving(way, fault, good)
            }
            "disabled client" | "disabled user" | "disabled provider" | "grant not allowed" => {
                self.worsen(way, fault).await?;
                good
            }
            "scope not allowed" => good.with("scope", "services:all"),
            "scope malformed" => good.with("scope", "notes.read \"x\""),
            "grant_type missing" => good.without("grant_type"),
            "grant_type unknown" => good.with("grant_type", "password"),
            "parameter missing" => good.without(way.own_parameter().ok_or("(4)")?),
            "parameter nonsense" => good.with(way.own_parameter().ok_or("(4)")?, "nonsense"),
            "parameter twice" => match way.own_parameter() {
                Some(name) => good.and(name, "another"),
                None => good.with("scope", "notes.read").and("scope", "notes.read"),
            },
            "sent as JSON" => {
                let body = good.as_json();
                good.body("application/json", body)
            }
            "wrong content type" => good.body("text/plain", "grant_type=refresh_token"),
            "oversized body" => good.with("pad", &"x".repeat(64 * 1024)),
            _ => panic!("nobody knows how to commit {fault:?}"),
        })
    }

    /// The request with a faulty proof of who the client is.
    fn proving(&self, way: Way, fault: &str, good: Call) -> Call {
        let bare = |call: Call| {
            call.without_header("authorization")
                .without("client_assertion_type")
                .without("client_assertion")
        };
        let with_header = |header: String| bare(good.clone()).header("authorization", &header);
        let with_secret = |call: Call| {
            call.with("client_id", "acme")
                .with("client_secret", &self.acme.secret)
        };
        match (fault, way) {
            ("unknown client", Way::RefreshByKey) => {
                let stranger = Secret::<ApiKey>::generate(&[1; 16], &Random::system());
                with_header(basic(stranger.reveal()))
            }
            ("unknown client", Way::Signed) => {
                good.with("client_assertion", &client_assertion("nobody", &self.key))
            }
            ("unknown client", _) => good.basic("nobody", &self.acme.secret),
            ("wrong secret", Way::RefreshByKey) => with_header(basic(&format!("robot:{}", self.api_key))),
            ("wrong secret", Way::Signed) => {
                let other = SigningKey::generate_es256(&Random::system()).unwrap();
                good.with("client_assertion", &client_assertion("robot", &other))
            }
            ("wrong secret", _) => good.basic("acme", "not the secret"),
            ("no authentication", _) => bare(good),
            ("wrong method", Way::RefreshByKey) => with_header(format!("Bearer {}", self.api_key)),
            ("wrong method", Way::Signed) => bare(good).basic("robot", "a secret"),
            ("wrong method", _) => with_secret(bare(good)),
            ("two methods", Way::Signed) => good.basic("robot", "a secret"),
            ("two methods", _) => with_secret(good),
            _ => panic!("nobody knows how to commit {fault:?}"),
        }
    }

    /// Takes from the world what the request needs.
    async fn worsen(&self, way: Way, fault: &str) -> Result<(), &'static str> {
        match (fault, way) {
            ("disabled client", _) => {
                let disable = |client: &mut Client| client.enabled = false;
                self.server.change_client(self.client(way), disable).await;
            }
            ("grant not allowed", _) => {
                let forget = |client: &mut Client| {
                    client.grant_types.remove(&way.grant());
                };
                self.server.change_client(self.client(way), forget).await;
            }
            (_, Way::Signed | Way::Secret) => return Err("(2)"),
            (_, Way::Anonymous) => return Err("(3)"),
            ("disabled user", Way::Code) => self.disable_user(self.alice.sub()).await,
            ("disabled user", _) => {
                let known = self.request(Way::JwtBearer).await.await.tokens();
                self.disable_user(known.0["uuid"].as_str().unwrap().to_owned())
                    .await;
            }
            _ => {
                if way == Way::Code {
                    self.say_that_the_code_came_by_the_provider().await;
                }
                let fields = ProviderFields {
                    enabled: Some(false),
                    ..ProviderFields::default()
                };
                self.server.change_provider("up", fields).await;
            }
        }
        Ok(())
    }

    async fn disable_user(&self, who: String) {
        set_enabled(self.server.admin(), who, false).await.unwrap();
    }

    /// Signing in by a provider is tried elsewhere; here it is enough that the code says so.
    async fn say_that_the_code_came_by_the_provider(&self) {
        let core = &self.server.app.core;
        let incarnation = core.catalog().provider("up").unwrap().incarnation;
        let write = core.store.write("test_code", move |tx| -> Result<_, StoreError> {
            for (id, mut code) in CODES.scan(&*tx, .., 10)? {
                code.authorization.factor = AuthenticationMethod::Federated {
                    provider: "up".to_owned(),
                    incarnation,
                };
                CODES.put(tx, &id, &code)?;
            }
            Ok(())
        });
        write.await.unwrap();
    }
}

/// An assertion by which a client proves who it is.
fn client_assertion(client_id: &str, key: &SigningKey) -> String {
    let claims = json!({
        "iss": client_id, "sub": client_id, "aud": ISSUER, "exp": START.seconds() + 60,
        "jti": Random::system().uuid_v4(),
    });
    jwt::sign(key, "JWT", &claims).unwrap()
}

fn basic(text: &str) -> String {
    format!("Basic {}", STANDARD.encode(text))
}

/// An answer in the words of the table; what holds for all of them is checked on the way.
fn judge(reply: &Reply) -> String {
    assert!(reply.is_not_stored(), "{reply:?}");
    assert_eq!(
        reply.header("retry-after"),
        None,
        "nothing here passes by waiting"
    );
    let challenge = reply.header("www-authenticate");
    let body = reply.json();
    if reply.status == 200 {
        assert_eq!(challenge, None);
        reply.tokens();
        return "200".to_owned();
    }
    let members: Vec<_> = body.as_object().unwrap().keys().collect();
    assert_eq!(members, ["error", "error_description"]);
    let mut line = format!("{} {}", reply.status, body["error"].as_str().unwrap());
    if let Some(challenge) = challenge {
        assert_eq!(challenge, "Basic realm=\"idsvc\", charset=\"UTF-8\"");
        line.push_str(" C");
    }
    line
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fault_has_its_answer_at_every_grant() {
    let mut found = String::from("\n");
    let heads: Vec<_> = Way::ALL.iter().map(|(_, name)| (*name).to_owned()).collect();
    write_row(&mut found, "", &heads);
    for row in TABLE.lines().skip(2) {
        let (fault, expected) = row.split_once('|').unwrap();
        let mut cells = Vec::new();
        for ((way, _), expected) in Way::ALL.into_iter().zip(expected.split('|')) {
            let world = World::new().await;
            cells.push(match world.faulty(way, fault.trim()).await {
                Ok(call) => {
                    let judged = judge(&call.await);
                    // a note beside an answer explains it
                    match expected.trim().strip_prefix(&judged) {
                        Some(note) if note.starts_with(" (") => format!("{judged}{note}"),
                        _ => judged,
                    }
                }
                Err(note) => note.to_owned(),
            });
        }
        write_row(&mut found, fault.trim(), &cells);
    }
    assert!(found == TABLE, "expected:{TABLE}\nfound:{found}");
}

fn write_row(table: &mut String, head: &str, cells: &[String]) {
    let mut line = format!("{head:<23}");
    for cell in cells {
        write!(line, "| {cell:<28}").unwrap();
    }
    table.push_str(line.trim_end());
    table.push('\n');
}

/// What passes by waiting says so: 503 and when to come back.
#[tokio::test]
async fn a_provider_that_is_down_asks_to_come_back() {
    let world = World::new().await;
    let gone = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n";
    world
        .upstream
        .say("/jwks", crate::harness::Say::Raw(gone.to_vec()));
    let reply = world.request(Way::JwtBearer).await.await;
    assert_eq!(reply.error(), "temporarily_unavailable");
    assert_eq!(reply.header("retry-after"), Some("2"));
    assert_eq!(reply.header("www-authenticate"), None);
}

/// A refused request consumes nothing: the same one without the fault is granted afterwards.
#[tokio::test]
async fn what_was_refused_is_still_good() {
    for (way, _) in Way::ALL {
        let world = World::new().await;
        let good = world.request(way).await;
        let refused = [
            good.clone().with("scope", "services:all"),
            good.clone().with("grant_type", "password"),
            good.clone().body("text/plain", "x"),
        ];
        // an assertion of a client counts once for any scope, and a code takes no scope
        let skip = match way {
            Way::Signed => 2,
            Way::Code => 1,
            _ => 0,
        };
        for call in refused.into_iter().skip(skip) {
            assert_eq!(call.await.status, 400, "{way:?}");
        }
        assert_eq!(good.await.status, 200, "{way:?}");
    }
}
