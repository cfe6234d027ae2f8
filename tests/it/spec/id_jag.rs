//! Identity Assertion JWT Authorization Grant (ID-JAG): a provider vouches for a user to one client of this service.

use idsvc::admin::api::AddApi;
use idsvc::admin::provider::ProviderFields;
use idsvc::federation::id_token::TokenProblem;
use idsvc::flow::token::jwt_bearer::{NOT_ACCEPTED, REPLAYED};
use idsvc::identity::AuthenticationLevel;
use idsvc::jose::jwt;
use idsvc::jose::jwt::JwtError;
use idsvc::oauth::ApiFields;
use idsvc::oauth::api::Api;
use idsvc::oauth::client::Client;
use idsvc::oauth::scope::Scope;
use idsvc::random::Random;
use idsvc::store::tables::APIS;
use serde_json::{Value, json};
use uuid::Uuid;

use super::rfc7523_exchange::{APP, Scene, of_problem, scene_with};
use crate::harness::reply::line_of;
use crate::harness::{ISSUER, START};

const NOTES: &str = "https://api.example/notes";
const MAIL: &str = "https://api.example/mail";

/// A provider whose identity assertions are accepted, and whose ID tokens are not.
async fn scene() -> Scene {
    let scene = scene_with(|fields| {
        fields.exchange = Some(false);
        fields.id_jag = Some(true);
    })
    .await;
    for id in ["notes", "mail"] {
        let request = AddApi {
            id: id.to_owned(),
            identifier: format!("https://api.example/{id}"),
            fields: ApiFields {
                scope: Some(vec![format!("{id}.use")]),
                ..ApiFields::default()
            },
        };
        scene.server.admin().call(request).await.unwrap();
    }
    let names_both = |client: &mut Client| client.apis = ["notes", "mail"].map(str::to_owned).into();
    scene.server.change_client(&scene.acme, names_both).await;
    scene
}

impl Scene {
    /// An identity assertion for `acme` with some claims changed; null removes one.
    fn id_jag(&self, changes: &Value) -> String {
        self.typed("oauth-id-jag+jwt", changes)
    }

    fn typed(&self, typ: &str, changes: &Value) -> String {
        let mut claims = self.upstream.claims(ISSUER, "u-1");
        claims["client_id"] = json!("acme");
        claims["jti"] = json!(Random::system().uuid_v4());
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        jwt::sign(self.upstream.key(), typ, &claims).unwrap()
    }
}

/// Sections 4.4 and 4.4.2: an access token for what the assertion names, and no refresh token.
#[tokio::test]
async fn an_assertion_brings_an_access_token_for_what_it_names() {
    let scene = scene().await;
    let assertion = scene.id_jag(&json!({
        "resource": NOTES, "scope": "notes.use mail.use", "act": {"sub": "agent"}, "auth_time": START.seconds() - 9,
    }));
    let tokens = scene.exchange(&assertion).await.tokens();
    for absent in ["refresh_token", "id_token"] {
        assert_eq!(tokens.0.get(absent), None);
    }
    let claims = scene.acme.verify(tokens.access_token()).await.claims;
    assert_eq!(claims["aud"], NOTES);
    assert_eq!(claims["scope"], "notes.use authenticated");
    assert_eq!(
        claims["act"],
        json!({"iss": scene.upstream.issuer, "sub": "agent"})
    );
    assert_eq!(claims["auth_time"], START.seconds() - 9);
    assert_eq!(claims["amr"], json!([{"authority": "up"}]));
    let again = scene.exchange(&assertion).await;
    assert_eq!(again.refusal(), line_of(&REPLAYED));
}

/// The token request may narrow what the assertion names, and not widen it.
#[tokio::test]
async fn a_request_only_narrows_the_assertion() {
    let scene = scene().await;
    let bounds = json!({"resource": [NOTES, MAIL], "scope": "notes.use mail.use"});
    let narrow = scene
        .exchange(&scene.id_jag(&bounds))
        .with("resource", MAIL)
        .with("scope", "mail.use");
    let tokens = narrow.await.tokens();
    assert_eq!(tokens.access().claims["aud"], MAIL);
    assert_eq!(tokens.scope(), ["mail.use", "authenticated"]);
    let bounds = json!({"resource": NOTES, "scope": "notes.use"});
    for (parameter, value, error) in [
        ("resource", MAIL, "invalid_target"),
        ("scope", "mail.use", "invalid_scope"),
        ("scope", "openid", "invalid_scope"),
    ] {
        let wider = scene
            .exchange(&scene.id_jag(&bounds))
            .with(parameter, value)
            .await;
        assert_eq!(wider.error(), error, "{parameter}={value}");
    }
    let unknown = scene.id_jag(&json!({"resource": "https://unknown.example"}));
    assert_eq!(scene.exchange(&unknown).await.error(), "invalid_target");
    let more_than_the_client_may = scene.id_jag(&json!({"scope": "notes.use services:all"}));
    let tokens = scene.exchange(&more_than_the_client_may).await.tokens();
    assert_eq!(tokens.scope(), ["notes.use", "authenticated"]);
}

/// An earlier release registered two identifiers that differ in case. Each still names its own API.
#[tokio::test]
async fn an_assertion_for_an_api_is_none_for_another_whose_identifier_differs_in_case() {
    const OTHER: &str = "https://API.example/notes";
    let scene = scene().await;
    let core = &scene.server.app.core;
    let added = core.store.write("test_api", |tx| {
        let notes = APIS.get(&*tx, &"notes".to_owned())?.unwrap();
        let mut other = Api {
            id: "other".to_owned(),
            uuid: Uuid::from_u128(1),
            identifier: OTHER.to_owned(),
            ..notes
        };
        other.metadata.scope = Scope::of(["other.use"]).unwrap();
        APIS.put(tx, &other.id, &other)
    });
    added.await.unwrap();
    core.reload_catalog().await.unwrap();
    let names_both = |client: &mut Client| client.apis = ["notes", "other"].map(str::to_owned).into();
    scene.server.change_client(&scene.acme, names_both).await;
    for (bound, asked, audience) in [
        (NOTES, NOTES, Some(NOTES)),
        (OTHER, OTHER, Some(OTHER)),
        (NOTES, "HTTPS://API.EXAMPLE:443/notes", Some(NOTES)),
        (NOTES, OTHER, None),
        (OTHER, NOTES, None),
        (OTHER, "https://api.example:443/notes", None),
    ] {
        let assertion = scene.id_jag(&json!({"resource": bound}));
        let answer = scene.exchange(&assertion).with("resource", asked).await;
        match audience {
            Some(audience) => assert_eq!(
                answer.tokens().access().claims["aud"],
                audience,
                "{bound} {asked}"
            ),
            None => assert_eq!(answer.error(), "invalid_target", "{bound} {asked}"),
        }
    }
}

/// Section 4.4.1: the assertion is for this service and for the client that presents it.
#[tokio::test]
async fn an_assertion_for_another_is_refused() {
    let scene = scene().await;
    let refusal = async |changes: Value| scene.exchange(&scene.id_jag(&changes)).await.refusal();
    for audience in [
        json!("https://other.example"),
        json!([ISSUER, "https://other.example"]),
        json!(APP),
    ] {
        assert_eq!(
            refusal(json!({"aud": audience})).await,
            of_problem(TokenProblem::Audience)
        );
    }
    for client_id in [json!("other"), json!(["acme"]), Value::Null] {
        let changes = json!({"client_id": client_id});
        assert_eq!(refusal(changes).await, of_problem(TokenProblem::Client));
    }
    assert_eq!(
        refusal(json!({"jti": null})).await,
        of_problem(TokenProblem::NoIdentifier)
    );
    for changes in [json!({"scope": 1}), json!({"resource": [1]}), json!({"act": []})] {
        assert_eq!(refusal(changes).await, of_problem(TokenProblem::Bounds));
    }
    for changes in [json!({"cnf": {"jkt": "x"}}), json!({"authorization_details": []})] {
        assert_eq!(refusal(changes).await, of_problem(TokenProblem::UnknownBound));
    }
    let old = json!({"iat": START.seconds() - 7200});
    assert_eq!(refusal(old).await, of_problem(TokenProblem::TooOld));
}

/// An ID token is no identity assertion, and the other way round. Each needs its own setting of the provider.
#[tokio::test]
async fn an_id_token_and_an_assertion_are_not_the_same() {
    let scene = scene().await;
    let id_token = scene.token(&json!({}));
    assert_eq!(scene.exchange(&id_token).await.refusal(), line_of(&NOT_ACCEPTED));
    let untyped = scene.typed("JWT", &json!({}));
    assert_eq!(scene.exchange(&untyped).await.refusal(), line_of(&NOT_ACCEPTED));
    let other = scene_with(|_| {}).await;
    let assertion = other.id_jag(&json!({"aud": APP}));
    assert_eq!(other.exchange(&assertion).await.refusal(), line_of(&NOT_ACCEPTED));
    let both = scene_with(|fields| fields.id_jag = Some(true)).await;
    let assertion = both.id_jag(&json!({}));
    both.exchange(&assertion).await.tokens();
    let as_id_token = both.typed("at+jwt", &json!({"aud": APP}));
    let refused = both.exchange(&as_id_token).await.refusal();
    assert_eq!(refused, of_problem(JwtError::Typ));
}

/// RFC 8414: discovery names the profile while a provider's assertions are accepted.
#[tokio::test]
async fn discovery_names_the_profile() {
    let profiles = async |scene: &Scene| {
        let document = scene
            .server
            .get("/.well-known/oauth-authorization-server")
            .await
            .json();
        document.get("authorization_grant_profiles_supported").cloned()
    };
    let expected = json!(["urn:ietf:params:oauth:grant-profile:id-jag"]);
    assert_eq!(profiles(&scene().await).await, Some(expected));
    assert_eq!(profiles(&scene_with(|_| {}).await).await, None);
}

/// `client --acr`.
#[tokio::test]
async fn an_identity_assertion_brings_no_token_below_the_level_that_the_client_demands() {
    let scene = scene().await;
    let demands_two = |client: &mut Client| client.acr = Some(AuthenticationLevel::TwoFactors);
    scene.server.change_client(&scene.acme, demands_two).await;
    let refused = scene.exchange(&scene.id_jag(&json!({}))).await;
    assert_eq!(refused.error(), "invalid_grant");
    let fields = ProviderFields {
        mfa_acr: Some(vec!["urn:two".to_owned()]),
        ..ProviderFields::default()
    };
    scene.server.change_provider("up", fields).await;
    let strong = scene.id_jag(&json!({"acr": "urn:two"}));
    scene.exchange(&strong).await.tokens();
}
