//! OAuth 2.0 Token Exchange: a client gets a token for the user of another token.

use std::time::Duration;

use idsvc::admin::api::{AddApi, UpdateApi};
use idsvc::admin::user::{DisableUser, EnableUser};
use idsvc::flow::token::token_exchange::{ACTOR_REFUSED, SUBJECT_REFUSED};
use idsvc::identity::AuthenticationLevel;
use idsvc::oauth::ApiFields;
use idsvc::oauth::client::{Client, GrantType};
use idsvc::oauth::token_exchange::{ACCESS_TOKEN, MOST_ACTORS, TokenExchangePolicy};
use serde_json::{Value, json};

use crate::harness::dpop::KeyHolder;
use crate::harness::reply::line_of;
use crate::harness::wire::Call;
use crate::harness::{Audit, ISSUER, Person, RelyingParty, Server, Tokens};

pub(super) const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const NOTES: &str = "https://api.example/notes";
const MAIL: &str = "https://api.example/mail";

/// The APIs `notes` and `mail`, the application `web` that the user signs in to, and the service `gateway` that exchanges
/// the tokens it gets.
struct Scene {
    server: Server,
    alice: Person,
    web: RelyingParty,
    gateway: RelyingParty,
}

fn exchanges(client: &mut Client) {
    client.grant_types = [GrantType::TokenExchange, GrantType::ClientCredentials].into();
    client.redirect_uris.clear();
    client.apis = ["notes", "mail"].map(str::to_owned).into();
    client.max_scope = Some("notes.read".parse().unwrap());
}

impl Scene {
    async fn new() -> Self {
        let server = Server::start_with_limits(|limits| limits.enabled = false).await;
        for id in ["notes", "mail"] {
            let request = AddApi {
                id: id.to_owned(),
                identifier: format!("https://api.example/{id}"),
                fields: ApiFields {
                    scope: Some(vec![format!("{id}.read"), format!("{id}.write")]),
                    ..ApiFields::default()
                },
            };
            server.admin().call(request).await.unwrap();
        }
        let web = server
            .client_with("web", |client| {
                client.apis = ["notes", "mail"].map(str::to_owned).into();
            })
            .await;
        let gateway = server.client_with("gateway", exchanges).await;
        let alice = server.user("alice").await;
        Self {
            server,
            alice,
            web,
            gateway,
        }
    }

    /// The tokens of a user who signed in to `web`.
    async fn tokens(&self, scope: &str) -> Tokens {
        let request = self.web.request().with("scope", scope);
        self.web.tokens_for(&self.alice.browser(), &request).await
    }

    async fn notes_and_mail(&self) -> Tokens {
        self.tokens("openid email notes.read notes.write mail.read").await
    }

    fn exchange(&self, subject_token: &str) -> Call {
        exchange(&self.gateway, subject_token)
    }

    /// The access token that `gateway` gets for itself.
    async fn own_token(&self) -> Tokens {
        own_token(&self.gateway).await
    }

    async fn change_api(&self, id: &str, fields: ApiFields) {
        let id = id.to_owned();
        self.server.admin().call(UpdateApi { id, fields }).await.unwrap();
    }

    async fn is_active(&self, tokens: &Tokens) -> bool {
        self.gateway.introspect(tokens.access_token()).await.json()["active"] == true
    }
}

fn exchange(client: &RelyingParty, subject_token: &str) -> Call {
    client
        .post("/oauth2/token")
        .with("grant_type", GRANT)
        .with("subject_token", subject_token)
        .with("subject_token_type", ACCESS_TOKEN)
}

async fn own_token(client: &RelyingParty) -> Tokens {
    let request = client
        .post("/oauth2/token")
        .with("grant_type", "client_credentials");
    request.with("scope", "notes.read").await.tokens()
}

fn with_actor(call: Call, actor_token: &str) -> Call {
    call.with("actor_token", actor_token)
        .with("actor_token_type", ACCESS_TOKEN)
}

fn claims(tokens: &Tokens) -> Value {
    tokens.access().claims
}

/// Section 2.2.1: the new token is for the same user, and says what it is. There is neither a refresh token nor an ID
/// token.
#[tokio::test]
async fn an_exchanged_token_is_for_the_same_user_and_one_api() {
    let scene = Scene::new().await;
    let subject = scene.notes_and_mail().await;
    let audit = Audit::listen();
    let named_by = [("resource", NOTES), ("audience", NOTES), ("audience", "notes")];
    for (parameter, value) in named_by {
        let exchange = scene.exchange(subject.access_token()).with(parameter, value);
        let reply = exchange.await;
        assert!(reply.is_not_stored());
        let tokens = reply.tokens();
        assert_eq!(tokens.0["issued_token_type"], ACCESS_TOKEN);
        assert_eq!(tokens.0["token_type"], "bearer");
        for absent in ["refresh_token", "id_token", "idtoken"] {
            assert_eq!(tokens.0.get(absent), None);
        }
        let claims = scene.gateway.verify(tokens.access_token()).await.claims;
        assert_eq!(claims["sub"], scene.alice.sub());
        assert_eq!(claims["aud"], NOTES);
        assert_eq!(claims["client_id"], "gateway");
        assert_eq!(
            claims["scope"],
            "openid email notes.read notes.write authenticated"
        );
        assert_eq!(claims.get("act"), None, "there was no actor token");
        for same in ["auth_time", "acr", "amr", "email", "grant_id", "exp"] {
            assert_eq!(claims[same], subject.access().claims[same], "{same}");
        }
        assert!(scene.is_active(&tokens).await);
    }
    let issued = audit.take(&["tokens_issued"]).remove(0);
    for (member, value) in [
        ("client_id", "gateway"),
        ("exchanged_of", "web"),
        ("grant_type", "token-exchange"),
    ] {
        assert_eq!(issued[member], value);
    }
    let whole = scene.exchange(subject.access_token()).await.tokens();
    assert_eq!(claims(&whole)["aud"], claims(&subject)["aud"]);
    assert!(
        scene.web.is_welcome(&whole).await,
        "the issuer is in the audience"
    );
}

/// Scope, audience and lifetime are never more than those of the exchanged token.
#[tokio::test]
async fn an_exchange_only_narrows() {
    let scene = Scene::new().await;
    let subject = scene.notes_and_mail().await;
    let narrow = scene
        .exchange(subject.access_token())
        .with("resource", NOTES)
        .with("scope", "notes.read");
    let narrow = narrow.await.tokens();
    assert_eq!(narrow.scope(), ["notes.read", "authenticated"]);
    for (parameter, value, error) in [
        ("scope", "notes.write", "invalid_scope"),
        ("scope", "openid", "invalid_scope"),
        ("scope", "services:all", "invalid_scope"),
        ("scope", "authenticated notes.read mail.read", "invalid_scope"),
        ("resource", MAIL, "invalid_target"),
        ("audience", "mail", "invalid_target"),
        ("audience", "unknown", "invalid_target"),
        ("resource", ISSUER, "invalid_target"),
    ] {
        let wider = scene.exchange(narrow.access_token()).with(parameter, value).await;
        assert_eq!(wider.error(), error, "{parameter}={value}");
    }
    let again = scene.exchange(narrow.access_token()).await.tokens();
    assert_eq!(claims(&again)["aud"], NOTES);
    assert_eq!(again.scope(), ["notes.read", "authenticated"]);
    scene.server.clock.advance(Duration::from_hours(23));
    let late = scene.exchange(subject.access_token()).await.tokens();
    assert_eq!(late.0["expires_in"], 3600);
    assert_eq!(claims(&late)["exp"], claims(&subject)["exp"]);
}

/// A token for no API keeps its audience, and no API can be named. `--audience` of the client that exchanges it does not
/// count.
#[tokio::test]
async fn a_token_for_no_api_brings_none() {
    let scene = Scene::new().await;
    scene
        .server
        .change_client(&scene.gateway, |client| {
            client.audience = Some("https://elsewhere.example".to_owned());
        })
        .await;
    let subject = scene.tokens("openid email").await;
    let tokens = scene.exchange(subject.access_token()).await.tokens();
    assert_eq!(claims(&tokens)["aud"], ISSUER);
    for (parameter, value) in [("resource", NOTES), ("audience", "notes")] {
        let refused = scene
            .exchange(subject.access_token())
            .with(parameter, value)
            .await;
        assert_eq!(refused.error(), "invalid_target");
    }
}

/// The client that exchanges may have less than the client that signed the user in.
#[tokio::test]
async fn a_client_gets_only_what_it_may_have_itself() {
    let scene = Scene::new().await;
    let subject = scene.notes_and_mail().await;
    scene
        .server
        .change_client(&scene.gateway, |client| {
            client.apis = ["mail".to_owned()].into();
            client.scope = "openid mail.read".parse().unwrap();
        })
        .await;
    let tokens = scene.exchange(subject.access_token()).await.tokens();
    assert_eq!(claims(&tokens)["aud"], json!([MAIL, ISSUER]));
    assert_eq!(tokens.scope(), ["openid", "mail.read", "authenticated"]);
    for (parameter, value, error) in [
        ("resource", NOTES, "invalid_target"),
        ("scope", "email", "invalid_scope"),
    ] {
        let refused = scene
            .exchange(subject.access_token())
            .with(parameter, value)
            .await;
        assert_eq!(refused.error(), error);
    }
}

/// Section 4.1: each service on the way adds itself to `act`, up to a limit.
#[tokio::test]
async fn act_names_the_services_on_the_way() {
    let scene = Scene::new().await;
    let mail_gateway = scene.server.client_with("mail-gateway", exchanges).await;
    let subject = scene.notes_and_mail().await;
    let own = scene.own_token().await;
    let audit = Audit::listen();
    let first = with_actor(scene.exchange(subject.access_token()), own.access_token());
    let first = first.await.tokens();
    let gateway = json!({"iss": ISSUER, "sub": claims(&own)["sub"], "client_id": "gateway"});
    assert_eq!(claims(&first)["act"], gateway);
    assert_eq!(audit.take(&["tokens_issued"])[0]["actor"], claims(&own)["sub"]);
    let told = scene.gateway.introspect(first.access_token()).await.json();
    assert_eq!(told["act"], gateway);
    let next = own_token(&mail_gateway).await;
    let second = with_actor(exchange(&mail_gateway, first.access_token()), next.access_token());
    let second = second.await.tokens();
    let mut expected = json!({"iss": ISSUER, "sub": claims(&next)["sub"], "client_id": "mail-gateway"});
    expected["act"] = gateway.clone();
    assert_eq!(claims(&second)["act"], expected);
    let plain = exchange(&mail_gateway, second.access_token()).await.tokens();
    assert_eq!(
        claims(&plain)["act"],
        expected,
        "without an actor token the actors stay"
    );
    let mut tokens = plain;
    for _ in 2..MOST_ACTORS {
        let call = with_actor(scene.exchange(tokens.access_token()), own.access_token());
        tokens = call.await.tokens();
    }
    let over = with_actor(scene.exchange(tokens.access_token()), own.access_token()).await;
    assert_eq!(over.error(), "invalid_request");
    scene.exchange(tokens.access_token()).await.tokens();
}

/// A person can act for another one: a member of the staff for a customer.
#[tokio::test]
async fn a_user_can_be_the_actor() {
    let scene = Scene::new().await;
    let desk = scene
        .server
        .client_with("desk", |client| {
            client.grant_types.insert(GrantType::TokenExchange);
            client.apis.insert("notes".to_owned());
        })
        .await;
    let bob = scene.server.user("bob").await;
    let (customer, staff) = (scene.notes_and_mail().await, desk.tokens(&bob.browser()).await);
    let call = with_actor(exchange(&desk, customer.access_token()), staff.access_token());
    let tokens = call.await.tokens();
    assert_eq!(claims(&tokens)["sub"], scene.alice.sub());
    assert_eq!(claims(&tokens)["act"], json!({"iss": ISSUER, "sub": bob.sub()}));
    desk.revoke(staff.refresh_token()).await;
    let call = with_actor(exchange(&desk, customer.access_token()), staff.access_token());
    assert_eq!(call.await.refusal(), line_of(&ACTOR_REFUSED));
}

/// An actor token shows who the client is, or who uses it. So it must have been issued to this client.
#[tokio::test]
async fn a_stolen_actor_token_names_nobody() {
    let scene = Scene::new().await;
    let subject = scene.notes_and_mail().await;
    let other = scene.server.client_with("other", exchanges).await;
    let foreign = own_token(&other).await;
    for actor_token in [
        foreign.access_token(),
        subject.access_token(),
        subject.id_token(),
        "x",
    ] {
        let call = with_actor(scene.exchange(subject.access_token()), actor_token);
        assert_eq!(call.await.refusal(), line_of(&ACTOR_REFUSED));
    }
}

/// The operator says per client and per API whether an actor token is needed.
#[tokio::test]
async fn policies_of_clients_and_apis_demand_an_actor_or_refuse() {
    let scene = Scene::new().await;
    let (subject, own) = (scene.notes_and_mail().await, scene.own_token().await);
    let results = async || {
        let mut results = Vec::new();
        for resource in [NOTES, MAIL] {
            let plain = scene.exchange(subject.access_token()).with("resource", resource);
            results.push(plain.clone().await.status);
            results.push(with_actor(plain, own.access_token()).await.status);
        }
        results
    };
    let policy = |policy| ApiFields {
        token_exchange: Some(policy),
        ..ApiFields::default()
    };
    assert_eq!(results().await, [200, 200, 200, 200]);
    scene
        .change_api("notes", policy(TokenExchangePolicy::Delegation))
        .await;
    assert_eq!(results().await, [400, 200, 200, 200]);
    scene.change_api("notes", policy(TokenExchangePolicy::Off)).await;
    assert_eq!(results().await, [400, 400, 200, 200]);
    let delegates = |client: &mut Client| client.token_exchange = TokenExchangePolicy::Delegation;
    scene.server.change_client(&scene.gateway, delegates).await;
    assert_eq!(results().await, [400, 400, 400, 200]);
    let refused = scene.exchange(subject.access_token()).await;
    assert_eq!(refused.error(), "invalid_request");
}

#[tokio::test]
async fn only_a_registered_client_that_authenticates_may_exchange() {
    let scene = Scene::new().await;
    let subject = scene.notes_and_mail().await;
    let refused = exchange(&scene.web, subject.access_token()).await;
    assert_eq!(refused.error(), "unauthorized_client");
    let app = scene.server.public_client("app").await;
    let may_exchange = |client: &mut Client| {
        client.grant_types.insert(GrantType::TokenExchange);
    };
    scene.server.change_client(&app, may_exchange).await;
    let refused = exchange(&app, subject.access_token()).await;
    assert_eq!(refused.error(), "unauthorized_client");
}

/// Section 2.2.2: a subject token that is not valid is `invalid_request`.
#[tokio::test]
async fn a_subject_token_must_be_live_and_of_a_user() {
    let scene = Scene::new().await;
    let refused = async |subject_token: &str| {
        let reply = scene.exchange(subject_token).await;
        assert_eq!(reply.refusal(), line_of(&SUBJECT_REFUSED));
    };
    let own = scene.own_token().await;
    let subject = scene.notes_and_mail().await;
    for token in [
        "x",
        own.access_token(),
        subject.refresh_token(),
        subject.id_token(),
    ] {
        refused(token).await;
    }
    assert_eq!(scene.web.revoke(subject.access_token()).await.status, 200);
    refused(subject.access_token()).await;
    let subject = scene.notes_and_mail().await;
    assert_eq!(scene.web.revoke(subject.refresh_token()).await.status, 200);
    refused(subject.access_token()).await;
    let subject = scene.notes_and_mail().await;
    scene
        .server
        .admin()
        .call(DisableUser {
            who: scene.alice.sub(),
        })
        .await
        .unwrap();
    refused(subject.access_token()).await;
    scene
        .server
        .admin()
        .call(EnableUser {
            who: scene.alice.sub(),
        })
        .await
        .unwrap();
    let subject = scene.notes_and_mail().await;
    scene.server.clock.advance(Duration::from_hours(25));
    refused(subject.access_token()).await;
}

/// The new token belongs to the grant of the exchanged one.
#[tokio::test]
async fn an_exchanged_token_ends_with_the_grant_and_with_its_client() {
    let scene = Scene::new().await;
    let exchanged = async || {
        let subject = scene.notes_and_mail().await;
        let tokens = scene.exchange(subject.access_token()).await.tokens();
        assert!(scene.is_active(&tokens).await);
        (subject, tokens)
    };
    let (subject, tokens) = exchanged().await;
    scene.web.revoke(subject.refresh_token()).await;
    assert!(!scene.is_active(&tokens).await);
    assert!(!scene.web.is_welcome(&tokens).await);
    let (_, tokens) = exchanged().await;
    assert_eq!(scene.gateway.revoke(tokens.access_token()).await.status, 200);
    assert!(!scene.is_active(&tokens).await);
    let (_, tokens) = exchanged().await;
    let may_exchange = |client: &mut Client| {
        client.grant_types.remove(&GrantType::TokenExchange);
    };
    scene.server.change_client(&scene.gateway, may_exchange).await;
    assert!(!scene.is_active(&tokens).await);
}

/// A later client of the same identifier does not inherit tokens.
#[tokio::test]
async fn a_later_client_does_not_inherit_exchanged_tokens() {
    let scene = Scene::new().await;
    let subject = scene.notes_and_mail().await;
    let tokens = scene.exchange(subject.access_token()).await.tokens();
    scene.server.clock.advance(Duration::from_secs(1));
    let later = scene.server.client_with("gateway", exchanges).await;
    assert_eq!(
        later.introspect(tokens.access_token()).await.json()["active"],
        false
    );
    let tokens = exchange(&later, subject.access_token()).await.tokens();
    assert_eq!(
        later.introspect(tokens.access_token()).await.json()["active"],
        true
    );
}

/// RFC 9449: a token that is bound to a key is exchanged with a proof by this key, or by the API that it is for.
#[tokio::test]
async fn a_bound_token_needs_its_key_or_its_api() {
    let scene = Scene::new().await;
    let (key, other) = (KeyHolder::new(), KeyHolder::new());
    let code = scene.alice.browser();
    let request = scene.web.request().with("scope", "openid notes.read");
    let code = code.authorize(&request).await.through().await.code();
    let redeem = scene.web.redeem(&code);
    let subject = redeem
        .header("dpop", &key.for_token(&scene.server))
        .await
        .tokens();
    let exchange = || scene.exchange(subject.access_token());
    assert_eq!(exchange().await.refusal(), line_of(&SUBJECT_REFUSED));
    let wrong = exchange().header("dpop", &other.for_token(&scene.server)).await;
    assert_eq!(wrong.refusal(), line_of(&SUBJECT_REFUSED));
    let proof = key.for_token(&scene.server);
    let bound = exchange().header("dpop", &proof).await.tokens();
    assert_eq!(bound.0["token_type"], "DPoP");
    assert_eq!(claims(&bound)["cnf"], json!({"jkt": key.thumbprint()}));
    let repeated = exchange().header("dpop", &proof).await;
    assert_eq!(repeated.error(), "invalid_dpop_proof");
    let fields = ApiFields {
        introspection_clients: Some(vec!["gateway".to_owned()]),
        ..ApiFields::default()
    };
    scene.change_api("notes", fields).await;
    let unbound = exchange().await;
    assert_eq!(unbound.refusal(), line_of(&SUBJECT_REFUSED));
    let proof = other.for_token(&scene.server);
    let tokens = exchange().header("dpop", &proof).await.tokens();
    assert_eq!(claims(&tokens)["cnf"], json!({"jkt": other.thumbprint()}));
}

/// A refresh token comes only if it is asked for, the client may use it, and the user's own grant has
/// `offline_access`.
#[tokio::test]
async fn a_refresh_token_is_asked_for_and_allowed() {
    const REFRESH_TOKEN: &str = "urn:ietf:params:oauth:token-type:refresh_token";
    let scene = Scene::new().await;
    let online = scene.tokens("openid notes.read").await;
    let offline = scene.tokens("openid notes.read mail.read offline_access").await;
    let asking = |subject: &Tokens| {
        let exchange = scene.exchange(subject.access_token());
        exchange.with("requested_token_type", REFRESH_TOKEN)
    };
    assert_eq!(asking(&offline).await.error(), "invalid_request");
    let may_refresh = |client: &mut Client| {
        client.grant_types.insert(GrantType::RefreshToken);
    };
    scene.server.change_client(&scene.gateway, may_refresh).await;
    assert_eq!(asking(&online).await.error(), "invalid_scope");
    let plain = scene.exchange(offline.access_token()).await.tokens();
    assert_eq!(plain.0.get("refresh_token"), None);
    assert!(!plain.scope().contains(&"offline_access"));
    let own = scene.own_token().await;
    for call in [
        asking(&offline),
        scene
            .exchange(offline.access_token())
            .with("scope", "offline_access notes.read"),
    ] {
        let call = call.with("resource", NOTES);
        let first = with_actor(call, own.access_token()).await.tokens();
        assert_eq!(first.0["issued_token_type"], ACCESS_TOKEN);
        let second = scene.gateway.refresh(first.refresh_token()).await.tokens();
        assert_eq!(claims(&second)["act"], claims(&first)["act"]);
        assert_eq!(claims(&second)["aud"], NOTES);
        assert_eq!(claims(&second)["sub"], scene.alice.sub());
        let told = scene.gateway.introspect(second.refresh_token()).await.json();
        assert_eq!(told["act"]["client_id"], "gateway");
        let wider = scene
            .gateway
            .refresh(second.refresh_token())
            .with("resource", MAIL);
        assert_eq!(wider.await.error(), "invalid_target");
        scene
            .server
            .admin()
            .call(DisableUser {
                who: scene.alice.sub(),
            })
            .await
            .unwrap();
        assert_eq!(
            scene.gateway.refresh(second.refresh_token()).await.error(),
            "invalid_grant"
        );
        scene
            .server
            .admin()
            .call(EnableUser {
                who: scene.alice.sub(),
            })
            .await
            .unwrap();
    }
}

/// The rules of the client for sign-ins hold for exchanges: the level, and the claims that were requested of it.
#[tokio::test]
async fn an_exchange_goes_around_no_rule_of_the_client() {
    let scene = Scene::new().await;
    let request = scene
        .web
        .request()
        .with("claims", r#"{"userinfo":{"email":null}}"#);
    let subject = scene.web.tokens_for(&scene.alice.browser(), &request).await;
    let tokens = scene.exchange(subject.access_token()).await.tokens();
    let of_web = scene.web.userinfo(subject.access_token()).await.json();
    assert_eq!(of_web["email"], "alice@example.com");
    let of_gateway = scene.gateway.userinfo(tokens.access_token()).await.json();
    assert_eq!(of_gateway.get("email"), None);
    let demands_two = |client: &mut Client| client.acr = Some(AuthenticationLevel::TwoFactors);
    scene.server.change_client(&scene.gateway, demands_two).await;
    let refused = scene.exchange(subject.access_token()).await;
    assert_eq!(refused.error(), "invalid_request");
}

/// RFC 8414: discovery names the grant.
#[tokio::test]
async fn discovery_names_the_grant() {
    let server = Server::start().await;
    let document = server.get("/.well-known/openid-configuration").await.json();
    let grants = document["grant_types_supported"].as_array().unwrap();
    assert!(grants.contains(&json!(GRANT)));
}
