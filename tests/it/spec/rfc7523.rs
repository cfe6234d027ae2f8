//! RFC 7523 sections 2.2 and 3, and RFC 6749 section 4.4: clients that sign who they are, and act for themselves.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use idsvc::flow::sweep::{Cursor, sweep};
use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwk::PublicKey;
use idsvc::jose::jwt::TimeError;
use idsvc::jose::keyring::SigningKey;
use idsvc::jose::rsa_keygen;
use idsvc::oauth::client::{AssertionAudience, AuthMethod, Client, GrantType};
use idsvc::oauth::client_auth;
use idsvc::oauth::dpop::DpopNonce;
use idsvc::random::Random;
use idsvc::store::tables::USED_ASSERTIONS;
use serde_json::{Value, json};

use crate::harness::dpop::KeyHolder;
use crate::harness::reply::line_of;
use crate::harness::token::{sign_text, signed};
use crate::harness::wire::Call;
use crate::harness::{Audit, ISSUER, Jwt, RelyingParty, START, Server};

const TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

fn es256() -> SigningKey {
    SigningKey::generate_es256(&Random::system()).unwrap()
}

fn with_key(public: &PublicKey) -> impl FnOnce(&mut Client) {
    let jwk = public.to_jwk();
    move |client| {
        client.jwks = vec![jwk];
        client.token_endpoint_auth_methods = [AuthMethod::PrivateKeyJwt].into();
        client.secrets.clear();
        client.grant_types.insert(GrantType::ClientCredentials);
    }
}

/// A client that signs with a key of its own.
struct Robot {
    server: Server,
    party: RelyingParty,
    key: SigningKey,
}

impl Robot {
    async fn new() -> Self {
        Self::of(es256()).await
    }

    async fn of(key: SigningKey) -> Self {
        let server = Server::start_with_limits(|limits| limits.enabled = false).await;
        let party = server.client_with("robot", with_key(key.public())).await;
        Self { server, party, key }
    }

    fn header(&self) -> Value {
        json!({"alg": self.key.alg().as_str(), "typ": "JWT"})
    }

    fn claims(&self) -> Value {
        let now = self.server.clock.now().seconds();
        json!({
            "iss": "robot", "sub": "robot", "aud": ISSUER, "iat": now, "exp": now + 300,
            "jti": Random::system().uuid_v4(),
        })
    }

    fn assertion(&self) -> String {
        signed(&self.key, &self.header(), &self.claims())
    }

    /// An assertion in which some claims are others; null leaves a claim out.
    fn claiming(&self, changes: &Value) -> String {
        let mut claims = self.claims();
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        signed(&self.key, &self.header(), &claims)
    }

    /// A request that the assertion authenticates.
    fn post(&self, path: &str, assertion: &str) -> Call {
        self.server
            .post(path)
            .with("client_assertion_type", TYPE)
            .with("client_assertion", assertion)
    }

    fn ask(&self, assertion: &str) -> Call {
        self.post("/oauth2/token", assertion)
            .with("grant_type", "client_credentials")
            .with("scope", "notes.read")
    }
}

/// RFC 9449 section 8: the client may repeat its request with the same assertion.
#[tokio::test]
async fn a_missing_nonce_uses_up_no_assertion() {
    let server = Server::start_with(|policy| policy.dpop_nonce = DpopNonce::Required).await;
    let key = es256();
    let party = server.client_with("robot", with_key(key.public())).await;
    let robot = Robot { server, party, key };
    let (assertion, holder) = (robot.assertion(), KeyHolder::new());
    let proof = || holder.proof(&robot.server, "POST", "/oauth2/token");
    let asked = robot.ask(&assertion).header("dpop", &proof().sign()).await;
    assert_eq!(asked.error(), "use_dpop_nonce");
    let proof = proof().with("nonce", asked.header("dpop-nonce").unwrap());
    let tokens = robot.ask(&assertion).header("dpop", &proof.sign()).await.tokens();
    assert_eq!(tokens.0["token_type"], "DPoP");
}

#[tokio::test]
async fn a_client_gets_a_token_for_itself() {
    let robot = Robot::new().await;
    let tokens = robot.ask(&robot.assertion()).await.tokens();
    let client = robot
        .server
        .app
        .core
        .catalog()
        .client("robot")
        .unwrap()
        .client_uuid;
    let mut answer = tokens.0.clone();
    let jti = answer["jti"].take();
    answer["access_token"].take();
    assert_eq!(
        answer,
        json!({
            "access_token": null, "jti": null, "token_type": "bearer", "expires_in": 86400,
            "scope": "notes.read", "account_id": "robot", "user_type": "client", "venueId": null,
            "organization": "default", "amr": [{"authority": "client"}], "iss": ISSUER,
            "phone_number": null, "source": "CLIENT", "iat": START.seconds(), "email": "",
            "email_verified": false, "uuid": client,
        })
    );
    let access = robot.party.verify(tokens.access_token()).await.claims;
    assert_eq!(
        (&access["sub"], &access["uuid"]),
        (&json!(client), &json!(client))
    );
    assert_eq!((&access["client_id"], &access["jti"]), (&json!("robot"), &jti));
    assert_eq!(access["exp"], START.seconds() + 86400);
    assert!(access.get("auth_time").is_none());
}

/// The UUID of the client would look like the UUID of an unknown user.
#[tokio::test]
async fn the_event_of_its_token_names_the_client_and_no_user() {
    let robot = Robot::new().await;
    let audit = Audit::listen();
    let tokens = robot.ask(&robot.assertion()).await.tokens();
    assert_eq!(
        audit.take(&["tokens_issued"]),
        [json!({
            "event": "tokens_issued",
            "client_id": "robot",
            "grant_type": "client_credentials",
            "audience": ISSUER,
            "jti": tokens.0["jti"],
        })]
    );
    let acme = robot.server.client("acme").await;
    let alice = robot.server.user("alice").await;
    acme.tokens(&alice.browser()).await;
    let [issued] = audit.take(&["tokens_issued"]).try_into().unwrap();
    assert_eq!(issued["user"], json!(alice.sub()));
}

#[tokio::test]
async fn its_token_is_judged_revoked_and_put_out_of_force() {
    let robot = Robot::new().await;
    let judge = async |token: &str| {
        robot
            .post("/oauth2/introspect", &robot.assertion())
            .with("token", token)
            .await
            .json()
    };
    let tokens = robot.ask(&robot.assertion()).await.tokens();
    let verdict = judge(tokens.access_token()).await;
    assert_eq!(
        (&verdict["active"], &verdict["username"]),
        (&json!(true), &json!("robot"))
    );
    assert_eq!(verdict["sub"], tokens.0["uuid"]);
    let userinfo = robot.party.userinfo(tokens.access_token()).await;
    assert_eq!(userinfo.status, 403);
    assert!(userinfo.challenge().contains("insufficient_scope"));
    let revoked = robot
        .post("/oauth2/revoke", &robot.assertion())
        .with("token", tokens.access_token())
        .await;
    assert_eq!(revoked.status, 200);
    assert_eq!(judge(tokens.access_token()).await, json!({"active": false}));

    let other = robot.ask(&robot.assertion()).await.tokens();
    let api = robot.server.client("api").await;
    assert_eq!(api.introspect(other.access_token()).await.json()["active"], true);
    robot
        .server
        .change_client(&robot.party, |client| client.enabled = false)
        .await;
    assert_eq!(
        api.introspect(other.access_token()).await.json(),
        json!({"active": false})
    );
    assert_eq!(robot.ask(&robot.assertion()).await.error(), "invalid_client");
    let reborn = Random::system().uuid_v4();
    robot
        .server
        .change_client(&robot.party, move |client| {
            client.enabled = true;
            client.client_uuid = reborn;
            client.own_grant = reborn;
            client.incarnation = reborn;
        })
        .await;
    assert_eq!(
        api.introspect(other.access_token()).await.json(),
        json!({"active": false}),
        "a later client of the same name inherits nothing"
    );
}

#[tokio::test]
async fn the_scope_is_the_clients_and_never_a_users() {
    let robot = Robot::new().await;
    let ask = |scope: &str| robot.ask(&robot.assertion()).with("scope", scope);
    let both = ask("notes.write notes.read").await.tokens();
    assert_eq!(both.0["scope"], "notes.write notes.read");
    let default = robot.ask(&robot.assertion()).without("scope").await.tokens();
    assert_eq!(default.0["scope"], "notes.read");
    for (scope, named) in [
        ("openid", "openid"),
        ("notes.read openid", "openid"),
        ("offline_access", "offline_access"),
        ("anonymous", "anonymous"),
        ("other authenticated", "authenticated"),
    ] {
        let refused = ask(scope).await;
        assert_eq!(refused.error(), "invalid_scope");
        assert!(refused.refusal().contains(&format!(" {named} ")), "{scope}");
    }
    assert_eq!(ask("other").await.error(), "invalid_scope");
    robot
        .server
        .change_client(&robot.party, |client| {
            client.default_scope = "openid".parse().unwrap();
        })
        .await;
    let none = robot.ask(&robot.assertion()).without("scope").await;
    assert_eq!(none.error(), "invalid_scope");
}

#[tokio::test]
async fn a_secret_brings_no_more_than_the_operator_allowed() {
    let server = Server::start().await;
    let cron = server
        .client_with("cron", |client| {
            client.grant_types.insert(GrantType::ClientCredentials);
        })
        .await;
    let ask = |scope: &str| {
        cron.post("/oauth2/token")
            .with("grant_type", "client_credentials")
            .with("scope", scope)
    };
    assert_eq!(ask("notes.read").await.error(), "unauthorized_client");
    server
        .change_client(&cron, |client| {
            client.max_scope = Some("notes.read".parse().unwrap());
        })
        .await;
    ask("notes.read").await.tokens();
    assert_eq!(ask("notes.write").await.error(), "invalid_scope");
    let other = server.client("other").await;
    let unasked = other
        .post("/oauth2/token")
        .with("grant_type", "client_credentials");
    assert_eq!(unasked.await.error(), "unauthorized_client");
    let public = server
        .client_with("public", |client| {
            client.grant_types.insert(GrantType::ClientCredentials);
            client.max_scope = Some("notes.read".parse().unwrap());
            client.token_endpoint_auth_methods = [AuthMethod::None].into();
            client.secrets.clear();
        })
        .await;
    let refused = public
        .post("/oauth2/token")
        .with("grant_type", "client_credentials");
    assert_eq!(refused.await.error(), "unauthorized_client");
}

#[tokio::test]
async fn every_algorithm_of_a_registered_key_works_and_no_other() {
    let random = Random::system();
    let rsa = rsa_keygen::generate(&random).unwrap();
    for key in [
        es256(),
        SigningKey::generate_ed25519(&random).unwrap(),
        SigningKey::from_pkcs8_der(Algorithm::Rs256, &rsa).unwrap(),
        SigningKey::from_pkcs8_der(Algorithm::Ps256, &rsa).unwrap(),
    ] {
        let robot = Robot::of(key).await;
        robot.ask(&robot.assertion()).await.tokens();
        let alg = robot.key.alg().as_str();
        for other in Algorithm::ALL.map(Algorithm::as_str) {
            if other != alg {
                let header = json!({"alg": other});
                let mislabelled = signed(&robot.key, &header, &robot.claims());
                assert_eq!(
                    robot.ask(&mislabelled).await.error(),
                    "invalid_client",
                    "{alg} as {other}"
                );
            }
        }
    }
    let ps256 = SigningKey::from_pkcs8_der(Algorithm::Ps256, &rsa).unwrap();
    let robot = Robot::of(SigningKey::from_pkcs8_der(Algorithm::Rs256, &rsa).unwrap()).await;
    let header = json!({"alg": "PS256"});
    let pinned = signed(&ps256, &header, &robot.claims());
    assert_eq!(
        robot.ask(&pinned).await.error(),
        "invalid_client",
        "the key is registered for RS256"
    );
}

#[tokio::test]
async fn a_token_does_not_choose_how_it_is_checked() {
    let robot = Robot::new().await;
    let other = es256();
    let victim = robot.server.client_with("victim", with_key(other.public())).await;
    let public = robot.key.public().to_jwk();
    let point =
        [&public["x"], &public["y"]].map(|part| URL_SAFE_NO_PAD.decode(part.as_str().unwrap()).unwrap());
    let forged = |header: Value| Jwt {
        header,
        claims: robot.claims(),
    };
    let attacks = [
        forged(json!({"alg": "HS256"})).forge(Some(public.to_string().as_bytes())),
        forged(json!({"alg": "HS256"})).forge(Some(&[&[4], &point[0][..], &point[1][..]].concat())),
        forged(json!({"alg": "none"})).forge(None),
        forged(json!({"alg": "None"})).forge(None),
        forged(robot.header()).forge(None),
        signed(&other, &robot.header(), &robot.claims()),
        signed(
            &other,
            &json!({"alg": "ES256", "kid": other.kid()}),
            &robot.claims(),
        ),
        signed(
            &other,
            &json!({"alg": "ES256", "kid": robot.key.kid()}),
            &robot.claims(),
        ),
        signed(
            &robot.key,
            &json!({"alg": "ES256", "kid": other.kid()}),
            &robot.claims(),
        ),
        signed(
            &robot.key,
            &json!({"alg": "ES256", "kid": "../../dev/null"}),
            &robot.claims(),
        ),
        signed(
            &other,
            &json!({"alg": "ES256", "jwk": other.public().to_jwk()}),
            &robot.claims(),
        ),
        signed(
            &other,
            &json!({"alg": "ES256", "x5u": "https://evil.example/c", "jku": "https://evil.example/k"}),
            &robot.claims(),
        ),
        signed(
            &robot.key,
            &json!({"alg": "ES256", "crit": ["x"], "x": 1}),
            &robot.claims(),
        ),
        signed(
            &robot.key,
            &json!({"alg": "ES256", "typ": "at+jwt"}),
            &robot.claims(),
        ),
        signed(&robot.key, &json!({"alg": "ES256", "kid": 7}), &robot.claims()),
        sign_text(
            &robot.key,
            r#"{"alg":"none","alg":"ES256"}"#,
            robot.claims().to_string(),
        ),
    ];
    for attack in attacks {
        assert_eq!(robot.ask(&attack).await.error(), "invalid_client", "{attack}");
    }
    let as_victim = robot.claiming(&json!({"iss": "victim", "sub": "victim"}));
    assert_eq!(robot.ask(&as_victim).await.error(), "invalid_client");
    drop(victim);
    for harmless in [
        json!({"alg": "ES256", "kid": robot.key.kid(), "typ": "client-authentication+jwt"}),
        json!({"alg": "ES256", "jwk": other.public().to_jwk(), "x5u": "https://evil.example/c"}),
    ] {
        let assertion = signed(&robot.key, &harmless, &robot.claims());
        robot.ask(&assertion).await.tokens();
    }
}

#[tokio::test]
async fn claims_that_are_missing_or_wrong_are_refused() {
    let robot = Robot::new().await;
    let now = robot.server.clock.now().seconds();
    for wrong in [
        json!({"iss": null}),
        json!({"sub": null}),
        json!({"aud": null}),
        json!({"exp": null}),
        json!({"jti": null}),
        json!({"jti": ""}),
        json!({"jti": 7}),
        json!({"sub": "another"}),
        json!({"iss": ["robot"]}),
        json!({"aud": "https://id.example.test/"}),
        json!({"aud": "https://evil.example"}),
        json!({"aud": []}),
        json!({"aud": [ISSUER, "https://evil.example"]}),
        json!({"aud": [ISSUER, ISSUER]}),
        json!({"aud": [7]}),
        json!({"aud": format!("{ISSUER}/oauth2/introspect")}),
        json!({"exp": now - 30}),
        json!({"exp": now + 3631}),
        json!({"exp": "soon"}),
        json!({"exp": -1}),
        json!({"exp": 1e300}),
        json!({"iat": now + 31}),
        json!({"nbf": now + 31}),
    ] {
        let reply = robot.ask(&robot.claiming(&wrong)).await;
        assert_eq!(reply.error(), "invalid_client", "{wrong}");
    }
    let token_endpoint = format!("{ISSUER}/oauth2/token");
    for right in [
        json!({"exp": now - 29}),
        json!({"exp": now + 3600}),
        json!({"exp": 0.5 + f64::from(u32::try_from(now + 60).unwrap())}),
        json!({"iat": now + 30, "nbf": now + 30}),
        json!({"iat": null}),
        json!({"aud": token_endpoint}),
    ] {
        robot.ask(&robot.claiming(&right)).await.tokens();
    }
}

/// RFC 7519 section 4.1.3: a list is the general form of `aud`. OpenID Connect Core section 9 and RFC 9126 section 2
/// accept the token endpoint at other endpoints.
#[tokio::test]
async fn an_assertion_names_one_audience_as_a_string_or_as_a_list() {
    let robot = Robot::new().await;
    let change = async |change: fn(&mut Client)| robot.server.change_client(&robot.party, change).await;
    change(|client| {
        client.grant_types.insert(GrantType::DeviceCode);
    })
    .await;
    let token = "/oauth2/token";
    let ask = async |path: &str, aud: &Value| {
        let call = robot.post(path, &robot.claiming(&json!({ "aud": aud })));
        let call = match path {
            "/oauth2/token" => call
                .with("grant_type", "client_credentials")
                .with("scope", "notes.read"),
            "/oauth2/par" => call.fields(&robot.party.request().without("client_id").parameters),
            "/oauth2/device_authorization" => call,
            _ => call.with("token", "unknown"),
        };
        call.await
    };
    let url = |path: &str| format!("{ISSUER}{path}");
    let problem =
        "401 invalid_client: aud of client_assertion must be the issuer or the URL of this endpoint";
    let others = ["/oauth2/introspect", "/oauth2/revoke", "/oauth2/par"];
    for path in others.into_iter().chain([token, "/oauth2/device_authorization"]) {
        for aud in [
            json!(ISSUER),
            json!([ISSUER]),
            json!(url(path)),
            json!([url(path)]),
        ] {
            let reply = ask(path, &aud).await;
            assert!(
                [200, 201].contains(&reply.status),
                "{path} {aud}: {}",
                reply.text()
            );
        }
        let several = ask(path, &json!([ISSUER, url(path)])).await;
        assert_eq!(
            several.refusal(),
            "401 invalid_client: aud of client_assertion must have exactly one value"
        );
        for foreign in [json!("https://other.example"), json!([url("/oauth2/userinfo")])] {
            assert_eq!(ask(path, &foreign).await.refusal(), problem, "{path} {foreign}");
        }
    }
    for path in others {
        for aud in [json!(url(token)), json!([url(token)])] {
            let reply = ask(path, &aud).await;
            assert!(
                [200, 201].contains(&reply.status),
                "{path} {aud}: {}",
                reply.text()
            );
        }
        assert_eq!(ask(token, &json!(url(path))).await.refusal(), problem);
    }
    let at_device = ask("/oauth2/device_authorization", &json!(url(token))).await;
    assert_eq!(at_device.refusal(), problem);

    change(|client| client.assertion_audience = AssertionAudience::Strict).await;
    assert_eq!(ask(token, &json!([ISSUER])).await.status, 200);
    for path in [token, "/oauth2/introspect"] {
        assert_eq!(
            ask(path, &json!(url(token))).await.refusal(),
            "401 invalid_client: aud of client_assertion must be the issuer"
        );
    }
    change(|client| client.assertion_audience = AssertionAudience::Any).await;
    let tokens = robot.ask(&robot.assertion()).await.tokens();
    let introspect = async || {
        let asked = robot.post("/oauth2/introspect", &robot.assertion());
        asked.with("token", tokens.access_token()).await
    };
    assert_eq!(introspect().await.json()["active"], true);
    change(|client| client.grant_types.clear()).await;
    assert_eq!(introspect().await.json()["active"], false);
}

#[tokio::test]
async fn what_is_not_written_as_it_must_be_is_refused() {
    let robot = Robot::new().await;
    let good = robot.assertion();
    let claims = robot.claims();
    let twice = format!(
        "{},\"sub\":\"robot\"}}",
        claims.to_string().strip_suffix('}').unwrap()
    );
    let long = robot.claiming(&json!({"pad": "x".repeat(20 * 1024)}));
    let last = good.chars().last().unwrap();
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits_over = alphabet
        .chars()
        .nth(alphabet.find(last).unwrap() + 1)
        .unwrap_or('B');
    let body = &good[..good.len() - 1];
    for malformed in [
        sign_text(&robot.key, &robot.header().to_string(), &twice),
        long,
        format!("{good}="),
        format!("{good}=="),
        format!("{body}{bits_over}"),
        format!("{good}.x"),
        format!(" {good}"),
        good.replace('.', ""),
        "x".to_owned(),
        "..".to_owned(),
    ] {
        let reply = robot.ask(&malformed).await;
        assert_eq!(reply.error(), "invalid_client", "{malformed}");
    }
    robot.ask(&good).await.tokens();
}

#[tokio::test]
async fn one_method_at_a_time_and_one_that_is_registered() {
    let robot = Robot::new().await;
    let ask = || robot.ask(&robot.assertion());
    ask().with("client_id", "robot").await.tokens();
    assert_eq!(ask().with("client_id", "other").await.error(), "invalid_client");
    assert_eq!(ask().basic("robot", "x").await.error(), "invalid_request");
    assert_eq!(
        ask()
            .with("client_id", "robot")
            .with("client_secret", "x")
            .await
            .error(),
        "invalid_request"
    );
    assert_eq!(
        ask().without("client_assertion_type").await.error(),
        "invalid_request"
    );
    assert_eq!(ask().without("client_assertion").await.error(), "invalid_request");
    let saml = "urn:ietf:params:oauth:client-assertion-type:saml2-bearer";
    assert_eq!(
        ask().with("client_assertion_type", saml).await.error(),
        "invalid_request"
    );
    let acme = robot.server.client("acme").await;
    let key = robot.key.public().to_jwk();
    robot
        .server
        .change_client(&acme, |client| client.jwks = vec![key])
        .await;
    let unregistered = robot.claiming(&json!({"iss": "acme", "sub": "acme"}));
    let refused = robot.ask(&unregistered).await;
    assert_eq!(refused.error(), "invalid_client");
    assert!(refused.refusal().contains(AuthMethod::PrivateKeyJwt.as_str()));
    let nameless = robot.server.post("/oauth2/token").with("client_id", "robot");
    assert_eq!(
        nameless.with("grant_type", "client_credentials").await.error(),
        "invalid_client"
    );
}

#[tokio::test]
async fn an_assertion_counts_once_until_it_has_expired() {
    let robot = Robot::new().await;
    let assertion = robot.assertion();
    robot.ask(&assertion).await.tokens();
    assert_eq!(
        robot.ask(&assertion).await.refusal(),
        line_of(&client_auth::REPLAYED)
    );
    let elsewhere = robot.post("/oauth2/revoke", &assertion).with("token", "x").await;
    assert_eq!(elsewhere.refusal(), line_of(&client_auth::REPLAYED));
    let jti = json!({"jti": "one", "exp": robot.server.clock.now().seconds() + 60});
    robot.ask(&robot.claiming(&jti)).await.tokens();
    let later = json!({"jti": "one", "exp": robot.server.clock.now().seconds() + 3600});
    assert_eq!(
        robot.ask(&robot.claiming(&later)).await.refusal(),
        line_of(&client_auth::REPLAYED),
        "another exp does not make it another one"
    );
    let other = es256();
    robot.server.client_with("other", with_key(other.public())).await;
    let same_jti = json!({
        "iss": "other", "sub": "other", "aud": ISSUER, "jti": "one", "exp": START.seconds() + 60,
    });
    let of_another = signed(&other, &robot.header(), &same_jti);
    robot.ask(&of_another).await.tokens();

    let core = &robot.server.app.core;
    let kept = || {
        let rows = core
            .store
            .read_blocking(|snapshot| USED_ASSERTIONS.scan(snapshot, .., 10));
        rows.unwrap().len()
    };
    assert_eq!(kept(), 3);
    sweep(core, &mut Cursor::default(), robot.server.clock.now())
        .await
        .unwrap();
    assert_eq!(kept(), 3);
    robot.server.advance(2 * 3600);
    sweep(core, &mut Cursor::default(), robot.server.clock.now())
        .await
        .unwrap();
    assert_eq!(kept(), 0);
    assert_eq!(
        robot.ask(&assertion).await.refusal(),
        format!("401 invalid_client: client_assertion: {}", TimeError::Expired)
    );
}

/// One that is good for as long as may be stops being so in the next hour but one, when this hour is nearly over.
#[tokio::test]
async fn an_assertion_made_at_the_end_of_an_hour_counts_once() {
    let robot = Robot::new().await;
    robot.server.advance(3_569);
    let longest = json!({"exp": robot.server.clock.now().seconds() + 3_630});
    let assertion = robot.claiming(&longest);
    robot.ask(&assertion).await.tokens();
    assert_eq!(
        robot.ask(&assertion).await.refusal(),
        line_of(&client_auth::REPLAYED)
    );
}

/// It is good for half a minute more than it says, and not once more in the hour that this reaches into.
#[tokio::test]
async fn an_assertion_that_expires_at_the_end_of_an_hour_counts_once() {
    let robot = Robot::new().await;
    let assertion = robot.claiming(&json!({"exp": START.seconds() + 3_590}));
    robot.ask(&assertion).await.tokens();
    robot.server.advance(3_605);
    assert_eq!(
        robot.ask(&assertion).await.refusal(),
        line_of(&client_auth::REPLAYED)
    );
}

#[tokio::test]
async fn of_many_at_once_exactly_one_counts() {
    let robot = Robot::new().await;
    let assertion = robot.assertion();
    let asked: Vec<_> = (0..16)
        .map(|_| tokio::spawn(robot.ask(&assertion).into_future()))
        .collect();
    let mut granted = 0;
    for reply in asked {
        let reply = reply.await.unwrap();
        if reply.status == 200 {
            granted += 1;
        } else {
            assert_eq!(reply.refusal(), line_of(&client_auth::REPLAYED));
        }
    }
    assert_eq!(granted, 1);
}
