//! OAuth 2.0 Token Exchange with ID tokens of a provider, as subject tokens and as actor tokens.

use idsvc::admin::provider::ProviderFields;
use idsvc::flow::token::jwt_bearer::{NOT_ACCEPTED, REPLAYED};
use idsvc::identity::AuthenticationLevel;
use idsvc::oauth::client::{Client, GrantType};
use idsvc::oauth::token_exchange::{ACCESS_TOKEN, MOST_ACTORS};
use serde_json::{Value, json};

use super::rfc7523_exchange::{Scene, scene_with};
use super::rfc8693::GRANT;
use crate::harness::reply::line_of;
use crate::harness::wire::Call;
use crate::harness::{START, Tokens};

const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

async fn scene() -> Scene {
    let scene = scene_with(|_| {}).await;
    let may_exchange = |client: &mut Client| {
        client.grant_types.insert(GrantType::TokenExchange);
    };
    scene.server.change_client(&scene.acme, may_exchange).await;
    scene
}

impl Scene {
    fn token_exchange(&self, subject_token: &str, subject_token_type: &str) -> Call {
        self.acme
            .post("/oauth2/token")
            .with("grant_type", GRANT)
            .with("subject_token", subject_token)
            .with("subject_token_type", subject_token_type)
    }
}

/// The line of a refusal that another grant words as `invalid_grant` (RFC 8693 section 2.2.2).
fn as_invalid_request(line: &str) -> String {
    line.replace("invalid_grant", "invalid_request")
}

fn claims(tokens: &Tokens) -> Value {
    tokens.access().claims
}

#[tokio::test]
async fn a_providers_id_token_brings_an_access_token_that_lasts_no_longer() {
    let scene = scene().await;
    for token_type in [ID_TOKEN, JWT] {
        let subject = scene.token(&json!({"exp": START.seconds() + 600}));
        let tokens = scene.token_exchange(&subject, token_type).await.tokens();
        assert_eq!(tokens.0["issued_token_type"], ACCESS_TOKEN);
        assert_eq!(tokens.0["expires_in"], 600);
        for absent in ["refresh_token", "id_token"] {
            assert_eq!(tokens.0.get(absent), None);
        }
        assert_eq!(claims(&tokens)["amr"], json!([{"authority": "up"}]));
        assert!(scene.acme.is_welcome(&tokens).await);
    }
    let subject = scene.token(&json!({}));
    let asking = scene
        .token_exchange(&subject, ID_TOKEN)
        .with("scope", "offline_access");
    let tokens = asking.await.tokens();
    scene.acme.refresh(tokens.refresh_token()).await.tokens();
}

/// Each exchange begins a grant. At the limit of grants, it ends an earlier exchange and no sign-in.
#[tokio::test]
async fn many_exchanges_end_no_sign_in() {
    let scene = scene().await;
    let signed_in = scene.exchange(&scene.token(&json!({}))).await.tokens();
    let mut exchanged = Vec::new();
    for _ in 0..51 {
        let subject = scene.token(&json!({}));
        exchanged.push(scene.token_exchange(&subject, ID_TOKEN).await.tokens());
    }
    let mut live = 0;
    for tokens in &exchanged {
        live += usize::from(scene.acme.is_welcome(tokens).await);
    }
    assert_eq!(live, 49, "the limit is 50, and the sign-in is one of them");
    scene.acme.refresh(signed_in.refresh_token()).await.tokens();
}

/// The rules for tokens of a provider are those of the grant `jwt-bearer`.
#[tokio::test]
async fn the_trust_in_a_provider_is_the_same_in_both_grants() {
    let scene = scene().await;
    let subject = scene.token(&json!({"jti": "once"}));
    let wrong_type = scene.token_exchange(&subject, ACCESS_TOKEN).await;
    assert_eq!(wrong_type.error(), "invalid_request");
    scene.token_exchange(&subject, ID_TOKEN).await.tokens();
    for grant in [scene.token_exchange(&subject, ID_TOKEN), scene.exchange(&subject)] {
        let repeated = as_invalid_request(&grant.await.refusal());
        assert_eq!(repeated, as_invalid_request(&line_of(&REPLAYED)));
    }
    for changes in [
        json!({"aud": "another"}),
        json!({"exp": START.seconds() - 60}),
        json!({"events": {}}),
        json!({"act": "x"}),
        json!({"act": {"iss": "no sub"}}),
    ] {
        let token = scene.token(&changes);
        let refused = scene.token_exchange(&token, ID_TOKEN).await;
        assert_eq!(refused.error(), "invalid_request", "{changes}");
        let refused = as_invalid_request(&refused.refusal());
        assert_eq!(
            as_invalid_request(&scene.exchange(&token).await.refusal()),
            refused
        );
    }
    let trusts_none = |client: &mut Client| client.providers.clear();
    scene.server.change_client(&scene.acme, trusts_none).await;
    let refused = scene.token_exchange(&scene.token(&json!({})), ID_TOKEN).await;
    assert_eq!(refused.refusal(), as_invalid_request(&line_of(&NOT_ACCEPTED)));
}

/// Two requests at once: the token is used once. It does not matter how far ahead `exp` is.
#[tokio::test]
async fn a_token_with_an_identifier_is_exchanged_once() {
    let scene = scene().await;
    for (jti, hours) in [("1", 1), ("2", 3), ("3", 300)] {
        let subject = scene.token(&json!({"jti": jti, "exp": START.seconds() + hours * 3600}));
        let exchange = || scene.token_exchange(&subject, ID_TOKEN);
        let (one, other) = tokio::join!(exchange(), exchange());
        let third = exchange().await;
        let issued = [one, other, third]
            .iter()
            .filter(|reply| reply.status == 200)
            .count();
        assert_eq!(issued, 1, "{hours}");
    }
}

/// An actor of a provider is known by `iss` and `sub`. It needs no account here, and its token is used once.
#[tokio::test]
async fn an_account_at_a_provider_can_be_the_actor() {
    let scene = scene().await;
    let subject = scene.exchange(&scene.token(&json!({}))).await.tokens();
    let actor = |jti: &str| scene.token(&json!({"sub": "workload", "jti": jti}));
    let exchange = |actor: &str| {
        let exchange = scene.token_exchange(subject.access_token(), ACCESS_TOKEN);
        exchange
            .with("actor_token", actor)
            .with("actor_token_type", ID_TOKEN)
    };
    let first = actor("1");
    let tokens = exchange(&first).await.tokens();
    let expected = json!({"iss": scene.upstream.issuer, "sub": "workload"});
    assert_eq!(claims(&tokens)["act"], expected);
    let replayed = as_invalid_request(&line_of(&REPLAYED));
    assert_eq!(exchange(&first).await.refusal(), replayed);
    let both = |subject: &str, actor: &str| {
        let exchange = scene.token_exchange(subject, ID_TOKEN);
        exchange
            .with("actor_token", actor)
            .with("actor_token_type", ID_TOKEN)
    };
    let subject = scene.token(&json!({}));
    assert_eq!(both(&subject, &first).await.refusal(), replayed);
    let tokens = both(&subject, &actor("2")).await.tokens();
    assert_eq!(claims(&tokens)["act"], expected);
}

/// Section 4.1: the actors in a provider's token stay, as far as they are few.
#[tokio::test]
async fn the_actors_in_a_providers_token_stay() {
    let scene = scene().await;
    let subject = scene.token(&json!({"act": {"sub": "service"}}));
    let tokens = scene.token_exchange(&subject, ID_TOKEN).await.tokens();
    let service = json!({"iss": scene.upstream.issuer, "sub": "service"});
    assert_eq!(claims(&tokens)["act"], service);
    let chain = |length: usize| {
        (1..length).fold(
            json!({"sub": "0"}),
            |act, number| json!({"sub": number.to_string(), "act": act}),
        )
    };
    for (length, is_accepted) in [(MOST_ACTORS, true), (MOST_ACTORS + 1, false), (100, false)] {
        let subject = scene.token(&json!({"act": chain(length)}));
        let reply = scene.token_exchange(&subject, ID_TOKEN).await;
        assert_eq!(reply.status == 200, is_accepted, "{length}");
    }
}

/// `client --acr`: the provider says how many factors the user had.
#[tokio::test]
async fn an_exchanged_id_token_brings_what_the_provider_says_of_the_factors() {
    let scene = scene().await;
    let demands_two = |client: &mut Client| client.acr = Some(AuthenticationLevel::TwoFactors);
    scene.server.change_client(&scene.acme, demands_two).await;
    let subject = scene.token(&json!({"amr": ["mfa"]}));
    let untrusted = scene.token_exchange(&subject, ID_TOKEN).await;
    assert_eq!(untrusted.error(), "invalid_request");
    let fields = ProviderFields {
        mfa_amr: Some(vec!["mfa".to_owned()]),
        ..ProviderFields::default()
    };
    scene.server.change_provider("up", fields).await;
    let tokens = scene.token_exchange(&subject, ID_TOKEN).await.tokens();
    assert_eq!(claims(&tokens)["acr"], "2");
}
