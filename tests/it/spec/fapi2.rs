//! FAPI 2.0 Security Profile: a client with the profile `fapi2`.

use idsvc::admin::client::{self, AddClient, RotateSecret, UpdateClient};
use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwk::PublicKey;
use idsvc::jose::keyring::SigningKey;
use idsvc::jose::rsa_keygen;
use idsvc::oauth::ClientFields;
use idsvc::oauth::assertion::ASSERTION_TYPE;
use idsvc::oauth::client::{
    AssertionAudience, AuthMethod, Client, ClientOrigin, ConsentRequirement, GrantType, PkceRequirement,
    RefreshPolicy,
};
use idsvc::oauth::policy::Policy;
use idsvc::oauth::profile::ClientProfile;
use idsvc::random::Random;
use serde_json::{Value, json};

use crate::harness::dpop::KeyHolder;
use crate::harness::relying_party::AuthorizationRequest;
use crate::harness::token::signed;
use crate::harness::wire::Call;
use crate::harness::{ISSUER, Jwt, RelyingParty, Server};

type Change = fn(&mut ClientFields);

/// A client with the profile, which signs with a key of its own.
struct Bank {
    server: Server,
    party: RelyingParty,
    key: SigningKey,
}

fn profiled(key: &PublicKey) -> ClientFields {
    ClientFields {
        redirect_uris: Some(vec!["https://bank.example/cb".to_owned()]),
        jwks: Some(vec![key.to_jwk()]),
        profile: Some(ClientProfile::Fapi2.into()),
        ..ClientFields::default()
    }
}

fn adding(client_id: &str, fields: ClientFields) -> AddClient {
    AddClient {
        client_id: client_id.to_owned(),
        public: false,
        secret: None,
        api_key: false,
        fields,
    }
}

impl Bank {
    async fn start() -> Self {
        Self::with(SigningKey::generate_es256(&Random::system()).unwrap()).await
    }

    async fn with(key: SigningKey) -> Self {
        Self::at(Server::start().await, key).await
    }

    /// The usual client at a server with another policy.
    async fn under(change: impl FnOnce(&mut Policy)) -> Self {
        let key = SigningKey::generate_es256(&Random::system()).unwrap();
        Self::at(Server::start_with(change).await, key).await
    }

    async fn at(server: Server, key: SigningKey) -> Self {
        server
            .admin()
            .call(adding("bank", profiled(key.public())))
            .await
            .unwrap();
        let party = server.party("bank", "");
        Self { server, party, key }
    }

    /// A request that an assertion with this audience authenticates.
    fn post_for(&self, path: &str, audience: impl Into<Value>) -> Call {
        let now = self.server.clock.now().seconds();
        let header = json!({ "alg": self.key.alg().as_str(), "typ": "JWT" });
        let claims = json!({
            "iss": "bank", "sub": "bank", "aud": audience.into(), "exp": now + 60, "jti": Random::system().uuid_v4(),
        });
        self.server
            .post(path)
            .with("client_assertion_type", ASSERTION_TYPE)
            .with("client_assertion", &signed(&self.key, &header, &claims))
    }

    fn post(&self, path: &str) -> Call {
        self.post_for(path, ISSUER)
    }

    fn push(&self, request: &AuthorizationRequest) -> Call {
        let parameters = request.clone().without("client_id").parameters;
        self.post("/oauth2/par").fields(&parameters)
    }

    /// Pushes the parameters as a signed request object.
    fn push_signed(&self, request: &AuthorizationRequest) -> Call {
        let now = self.server.clock.now().seconds();
        let header = json!({ "alg": self.key.alg().as_str(), "typ": "oauth-authz-req+jwt" });
        let mut claims = json!({ "iss": "bank", "aud": ISSUER, "nbf": now, "exp": now + 60 });
        for (name, value) in &request.parameters {
            claims[name] = json!(value);
        }
        let object = signed(&self.key, &header, &claims);
        self.post("/oauth2/par").with("request", &object)
    }

    /// The request that a browser brings after this one was pushed.
    async fn pushed(&self, push: Call) -> AuthorizationRequest {
        let reply = push.await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        AuthorizationRequest::default()
            .with("client_id", "bank")
            .with("request_uri", reply.json()["request_uri"].as_str().unwrap())
    }

    /// The code of a sign-in that began with a pushed request.
    async fn code(&self) -> String {
        let request = self.pushed(self.push(&self.party.request())).await;
        let alice = self.server.user("alice").await;
        let answer = alice.browser().authorize(&request).await;
        answer.through().await.code()
    }

    fn redeem(&self, code: &str) -> Call {
        let call = self
            .post("/oauth2/token")
            .with("grant_type", "authorization_code");
        call.with("code", code)
            .with("redirect_uri", self.party.redirect_uri())
            .with("code_verifier", crate::harness::relying_party::VERIFIER)
    }

    fn refresh(&self, token: &str) -> Call {
        let call = self.post("/oauth2/token").with("grant_type", "refresh_token");
        call.with("refresh_token", token)
    }
}

#[tokio::test]
async fn the_profile_sets_what_it_demands_and_a_sign_in_goes_through() {
    let (bank, key) = (Bank::start().await, KeyHolder::new());
    let client = bank.server.app.core.catalog().client("bank").unwrap().clone();
    assert!(client.secrets.is_empty());
    let code = bank.code().await;
    let proof = || key.for_token(&bank.server);
    let tokens = bank.redeem(&code).header("dpop", &proof()).await.tokens();
    assert_eq!(tokens.0["token_type"], "DPoP");
    assert_eq!(tokens.access().header["alg"], "ES256");
    assert_eq!(tokens.id().header["alg"], "ES256");
    let unproven = bank.refresh(tokens.refresh_token()).await;
    assert_eq!(unproven.error(), "invalid_dpop_proof");
    let other = KeyHolder::new().for_token(&bank.server);
    let next = bank
        .refresh(tokens.refresh_token())
        .header("dpop", &other)
        .await
        .tokens();
    assert_eq!(next.refresh_token(), tokens.refresh_token());
}

#[tokio::test]
async fn a_flag_that_breaks_the_profile_is_refused_when_the_client_is_added_and_changed() {
    let bank = Bank::start().await;
    let breaks: [(&str, Change); 7] = [
        ("assertion_audience", |fields| {
            fields.assertion_audience = Some(AssertionAudience::Any);
        }),
        ("pkce", |fields| {
            fields.pkce = Some(PkceRequirement::Optional);
        }),
        ("require_pushed_authorization_requests", |fields| {
            fields.require_pushed_authorization_requests = Some(false);
        }),
        ("dpop_bound_access_tokens", |fields| {
            fields.dpop_bound_access_tokens = Some(false);
        }),
        ("refresh_policy", |fields| {
            fields.refresh_policy = Some(RefreshPolicy::Rotate);
        }),
        ("id_token_signed_response_alg", |fields| {
            fields.id_token_signed_response_alg = Some(Algorithm::Rs256.into());
        }),
        ("access_token_alg", |fields| {
            fields.access_token_alg = Some(Algorithm::Rs256.into());
        }),
    ];
    for (field, change) in breaks {
        let mut fields = profiled(bank.key.public());
        change(&mut fields);
        let refused = bank
            .server
            .admin()
            .call(adding("other", fields))
            .await
            .unwrap_err();
        assert!(
            refused.to_string().contains("profile fapi2"),
            "{field}: {refused}"
        );
        let mut fields = ClientFields::default();
        change(&mut fields);
        let request = UpdateClient {
            client_id: "bank".to_owned(),
            no_secret: false,
            fields,
        };
        let refused = bank.server.admin().call(request).await.unwrap_err();
        assert!(
            refused.to_string().contains("profile fapi2"),
            "{field}: {refused}"
        );
    }
}

#[tokio::test]
async fn a_client_with_the_profile_has_a_key_and_nothing_else_to_authenticate_with() {
    let bank = Bank::start().await;
    let admin = bank.server.admin();
    let without_key = ClientFields {
        jwks: None,
        ..profiled(bank.key.public())
    };
    for (is_public, has_secret, has_api_key, fields) in [
        (false, false, false, without_key.clone()),
        (true, false, false, without_key),
        (false, true, false, profiled(bank.key.public())),
        (false, false, true, profiled(bank.key.public())),
    ] {
        let secret = has_secret.then(|| idsvc::admin::SecretString::new("x".repeat(40)));
        let request = AddClient {
            public: is_public,
            secret,
            api_key: has_api_key,
            ..adding("other", fields)
        };
        admin.call(request).await.unwrap_err();
    }
    let secret = RotateSecret {
        client_id: "bank".to_owned(),
        secret: None,
        keep_old_seconds: None,
    };
    let refused = admin.call(secret).await.unwrap_err().to_string();
    assert!(refused.contains("cannot have a secret"), "{refused}");
    let refused = admin
        .call(client::AddApiKey {
            client_id: "bank".to_owned(),
        })
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("cannot have an API key"), "{refused}");
}

/// Section 5.3.2.1: the audience of an assertion is the issuer, as a string.
#[tokio::test]
async fn an_assertion_for_an_endpoint_or_with_a_list_is_refused() {
    let bank = Bank::start().await;
    let request = bank.party.request().without("client_id");
    for audience in [
        json!(format!("{ISSUER}/oauth2/par")),
        json!(format!("{ISSUER}/oauth2/token")),
        json!([ISSUER]),
    ] {
        let reply = bank.post_for("/oauth2/par", audience);
        assert_eq!(reply.fields(&request.parameters).await.error(), "invalid_client");
    }
}

/// Section 5.4. One RSA key can sign with RS256 and with PS256.
#[tokio::test]
async fn assertions_and_proofs_signed_with_rs256_are_refused() {
    let rsa = rsa_keygen::generate(&Random::system()).unwrap();
    let rs256 = || SigningKey::from_pkcs8_der(Algorithm::Rs256, &rsa).unwrap();
    let bank = Bank::with(rs256()).await;
    assert_eq!(bank.push(&bank.party.request()).await.error(), "invalid_client");
    let bank = Bank::start().await;
    let code = bank.code().await;
    let holder = KeyHolder::of(rs256());
    let refused = bank
        .redeem(&code)
        .header("dpop", &holder.for_token(&bank.server))
        .await;
    assert_eq!(
        refused.refusal(),
        "400 invalid_dpop_proof: DPoP proof: alg must be PS256, ES256 or EdDSA for this client"
    );
    let proof = holder.proof(&bank.server, "POST", "/oauth2/par").sign();
    let pushed = bank.push(&bank.party.request()).header("dpop", &proof).await;
    assert_eq!(pushed.error(), "invalid_dpop_proof");
}

/// Section 5.3.2.2.
#[tokio::test]
async fn a_pushed_request_names_its_redirect_uri_and_another_one_is_refused() {
    let bank = Bank::start().await;
    let unnamed = bank.push(&bank.party.request().without("redirect_uri")).await;
    assert!(unnamed.refusal().contains("redirect_uri is missing"));
    let alice = bank.server.user("alice").await;
    let plain = alice.browser().authorize(&bank.party.request()).await;
    assert_eq!(plain.through().await.get("error"), Some("invalid_request"));
}

/// Section 5.3.2.1: a code lasts at most 60 seconds, even if the codes of other clients last longer.
#[tokio::test]
async fn a_code_is_refused_after_a_minute() {
    let bank = Bank::under(|policy| policy.lifetimes.code = std::time::Duration::from_mins(5)).await;
    let holder = KeyHolder::new();
    let code = bank.code().await;
    bank.server.advance(62);
    let late = bank
        .redeem(&code)
        .header("dpop", &holder.for_token(&bank.server))
        .await;
    assert_eq!(late.error(), "invalid_grant");
}

#[tokio::test]
async fn a_client_that_acts_for_itself_needs_no_redirect_uri() {
    let (bank, key) = (Bank::start().await, KeyHolder::new());
    let fields = ClientFields {
        grant_types: Some(vec![GrantType::ClientCredentials]),
        redirect_uris: Some(Vec::new()),
        scope: Some(vec!["notes.read".to_owned()]),
        default_scope: Some(vec!["notes.read".to_owned()]),
        ..profiled(bank.key.public())
    };
    let request = UpdateClient {
        client_id: "bank".to_owned(),
        no_secret: false,
        fields,
    };
    bank.server.admin().call(request).await.unwrap();
    let ask = || {
        bank.post("/oauth2/token")
            .with("grant_type", "client_credentials")
    };
    assert_eq!(ask().await.error(), "invalid_dpop_proof");
    let tokens = ask().header("dpop", &key.for_token(&bank.server)).await.tokens();
    assert_eq!(tokens.0["token_type"], "DPoP");
}

/// FAPI 2.0 Message Signing sections 5.3 and 5.4.
#[tokio::test]
async fn with_message_signing_requests_and_answers_are_signed() {
    let bank = Bank::start().await;
    let request = UpdateClient {
        client_id: "bank".to_owned(),
        no_secret: false,
        fields: ClientFields {
            profile: Some(ClientProfile::Fapi2MessageSigning.into()),
            ..ClientFields::default()
        },
    };
    bank.server.admin().call(request.clone()).await.unwrap();
    let unsigned = bank.push(&bank.party.request()).await;
    assert_eq!(unsigned.error(), "invalid_request");
    let plain = bank.push_signed(&bank.party.request()).await;
    assert!(plain.refusal().contains("response_mode=jwt"), "{}", plain.text());
    let asked = bank.party.request().with("response_mode", "jwt");
    let brought = bank.pushed(bank.push_signed(&asked)).await;
    let alice = bank.server.user("alice").await;
    let answer = alice.browser().authorize(&brought).await.through().await;
    assert_eq!(answer.names(), ["response"]);
    let signed = bank.party.verify(answer.get("response").unwrap()).await;
    assert_eq!(signed.header["alg"], "ES256");
    assert!(signed.claims["code"].is_string());
    for change in [
        ClientFields {
            require_signed_request_object: Some(false),
            ..ClientFields::default()
        },
        ClientFields {
            authorization_signed_response_alg: Some(Algorithm::Rs256.into()),
            ..ClientFields::default()
        },
        ClientFields {
            introspection_signed_response_alg: Some(Algorithm::Rs256.into()),
            ..ClientFields::default()
        },
    ] {
        let request = UpdateClient {
            fields: change,
            ..request.clone()
        };
        let refused = bank.server.admin().call(request).await.unwrap_err();
        assert!(refused.to_string().contains("fapi2-message-signing"), "{refused}");
    }
}

#[tokio::test]
async fn tokens_may_be_bound_to_a_certificate_instead_of_a_key() {
    let server = Server::start().await;
    let key = SigningKey::generate_es256(&Random::system()).unwrap();
    let fields = ClientFields {
        tls_client_certificate_bound_access_tokens: Some(true),
        ..profiled(key.public())
    };
    let view = server.admin().call(adding("bank", fields)).await.unwrap();
    assert!(!view.metadata.dpop_bound_access_tokens);
    let again = UpdateClient {
        client_id: "bank".to_owned(),
        no_secret: false,
        fields: ClientFields {
            profile: Some(ClientProfile::Fapi2.into()),
            ..ClientFields::default()
        },
    };
    let view = server.admin().call(again).await.unwrap();
    assert!(!view.metadata.dpop_bound_access_tokens);
}

/// Section 5.4: the service signs with ES256 where a setting or an API would make it sign with RS256.
#[tokio::test]
async fn nothing_is_signed_with_rs256_for_a_client_with_the_profile() {
    let bank = Bank::under(|policy| policy.access_token_alg = Algorithm::Rs256).await;
    let holder = KeyHolder::new();
    let code = bank.code().await;
    let proof = holder.for_token(&bank.server);
    let tokens = bank.redeem(&code).header("dpop", &proof).await.tokens();
    assert_eq!(tokens.access().header["alg"], "ES256");
    assert_eq!(tokens.id().header["alg"], "ES256");
    let asked = bank.party.request().with("response_mode", "jwt");
    let request = bank.pushed(bank.push(&asked)).await;
    let bob = bank.server.user("bob").await;
    let answer = bob.browser().authorize(&request).await.through().await;
    let answer = bank.party.verify(answer.get("response").unwrap()).await;
    assert_eq!(answer.header["alg"], "ES256");
    let call = bank
        .post("/oauth2/introspect")
        .with("token", tokens.access_token());
    let introspected = call.header("accept", "application/token-introspection+jwt").await;
    assert_eq!(Jwt::read(introspected.text()).header["alg"], "ES256");
}

/// A client that registered itself may have one method with a secret, and could use `nonce` instead of PKCE.
#[tokio::test]
async fn a_client_that_registered_itself_gets_the_profile_only_with_a_key_and_then_needs_pkce() {
    let bank = Bank::start().await;
    let itself = |client: &mut Client| {
        client.origin = ClientOrigin::DynamicRegistration;
        client.consent = ConsentRequirement::Require;
        client.pkce = PkceRequirement::Required;
    };
    bank.server
        .client_with("posts", |client| {
            itself(client);
            client.token_endpoint_auth_methods = [AuthMethod::ClientSecretPost].into();
        })
        .await;
    let request = UpdateClient {
        client_id: "posts".to_owned(),
        no_secret: false,
        fields: ClientFields {
            profile: Some(ClientProfile::Fapi2.into()),
            ..ClientFields::default()
        },
    };
    let refused = bank.server.admin().call(request).await.unwrap_err();
    assert!(refused.to_string().contains("with a secret"), "{refused}");
    bank.server.change_client(&bank.party, itself).await;
    let request = bank.party.request().with("nonce", "n-1");
    let unprotected = bank.push(&request.without("code_challenge").without("code_challenge_method"));
    assert!(unprotected.await.refusal().contains("code_challenge"));
}

/// Section 5.3.2.2: a `request_uri` lasts less than 600 seconds.
#[tokio::test]
async fn a_pushed_request_lasts_less_than_ten_minutes() {
    let hour = std::time::Duration::from_hours(1);
    let bank = Bank::under(|policy| policy.lifetimes.pushed_request = hour).await;
    let reply = bank.push(&bank.party.request()).await.json();
    assert_eq!(reply["expires_in"], 599);
    let brought = AuthorizationRequest::default()
        .with("client_id", "bank")
        .with("request_uri", reply["request_uri"].as_str().unwrap());
    bank.server.advance(600);
    let page = bank.server.browser().authorize(&brought).await.error_page();
    assert!(page.contains("expired"), "{page}");
}
