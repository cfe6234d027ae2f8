//! OpenID Connect Dynamic Client Registration 1.0 section 2: what a client says about itself, and what follows.

use idsvc::admin::client::AddClient;
use idsvc::oauth::ClientFields;
use idsvc::oauth::client::ConsentRequirement;
use idsvc::pages::text::EN;
use serde_json::{Value, json};

use crate::harness::registration::Registrant;
use crate::harness::reply::text;
use crate::harness::token::Jwt;
use crate::harness::{ISSUER, Server, scene};

/// What a hosted assistant registers, with more members.
fn assistant(more: &Value) -> Value {
    let mut metadata = json!({
        "client_name": "X",
        "redirect_uris": ["https://claude.ai/api/mcp/auth_callback"],
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
    });
    for (name, value) in more.as_object().unwrap() {
        metadata[name] = value.clone();
    }
    metadata
}

/// RFC 7591 section 3.2.1: the answer says what was registered.
#[tokio::test]
async fn lists_are_reduced_to_what_is_offered_and_the_answer_says_so() {
    let server = Server::open().await;
    let jwt_bearer = "urn:ietf:params:oauth:grant-type:jwt-bearer";
    for (asked, registered) in [
        (
            json!({ "grant_types": ["authorization_code", "refresh_token", jwt_bearer] }),
            json!({ "grant_types": ["authorization_code", "refresh_token"] }),
        ),
        (
            json!({ "grant_types": ["authorization_code", "implicit"] }),
            json!({ "grant_types": ["authorization_code"] }),
        ),
        (
            json!({ "response_types": ["code", "id_token"] }),
            json!({ "response_types": ["code"] }),
        ),
        (
            json!({ "response_types": ["code", "token", "none"] }),
            json!({ "response_types": ["code"] }),
        ),
        (
            json!({ "scope": "openid email mcp:tools" }),
            json!({ "scope": "openid email" }),
        ),
        (
            json!({ "default_max_age": 3600 }),
            json!({ "default_max_age": 3600 }),
        ),
        (
            json!({ "userinfo_signed_response_alg": "RS256" }),
            json!({ "userinfo_signed_response_alg": "RS256" }),
        ),
        (
            json!({
                "contacts": ["dev@example.com"], "software_id": "4NRB1-0XZABZI9E6-5SM3R", "software_version": "2.1",
                "tos_uri": "https://claude.ai/tos",
            }),
            json!({ "tos_uri": "https://claude.ai/tos" }),
        ),
    ] {
        let client = server.registrant(&assistant(&asked)).await;
        let read = client.manage(&server, "GET").await.json();
        for (name, value) in registered.as_object().unwrap() {
            assert_eq!(&client.answer[name], value, "{asked}");
            assert_eq!(&read[name], value, "{asked}");
        }
    }
}

/// RFC 7591 section 3.2.2: nothing usable is left, a single value is not offered, or a value has another type.
#[tokio::test]
async fn metadata_of_which_nothing_usable_is_left_are_refused() {
    let server = Server::open().await;
    for asked in [
        json!({ "grant_types": ["password"] }),
        json!({ "response_types": ["id_token"] }),
        json!({ "grant_types": "authorization_code" }),
        json!({ "response_types": "code" }),
        json!({ "scope": ["openid"] }),
        json!({ "userinfo_signed_response_alg": "none" }),
        json!({ "userinfo_signed_response_alg": "HS256" }),
        json!({ "userinfo_signed_response_alg": ["RS256"] }),
        json!({ "id_token_signed_response_alg": "none" }),
        json!({ "default_max_age": "3600" }),
        json!({ "default_max_age": -1 }),
    ] {
        let reply = server.register(&assistant(&asked)).await;
        assert_eq!(
            (reply.status, reply.error()),
            (400, "invalid_client_metadata".to_owned()),
            "{asked}"
        );
    }
}

#[tokio::test]
async fn an_address_that_pages_link_to_uses_https_or_is_on_this_machine() {
    let server = Server::open().await;
    for name in ["policy_uri", "tos_uri", "initiate_login_uri"] {
        for good in [
            "https://claude.ai/legal?lang=en",
            "http://127.0.0.1:8080/legal",
            "http://localhost/legal",
        ] {
            let client = server.registrant(&assistant(&json!({ name: good }))).await;
            assert_eq!(client.answer[name], good);
            assert_eq!(client.manage(&server, "GET").await.json()[name], good);
            let changed = client.change(&server, assistant(&json!({}))).await.json();
            assert_eq!(changed.get(name), None, "a change replaces all metadata");
        }
        for bad in [
            "http://claude.ai/legal",
            "javascript:alert(1)",
            "https:/claude.ai/legal",
            "https://user@claude.ai/legal",
            "/legal",
            "https://claude.ai/le gal",
        ] {
            let reply = server.register(&assistant(&json!({ name: bad }))).await;
            assert_eq!(reply.error(), "invalid_client_metadata", "{name} {bad}");
        }
    }
    let policy = json!({ "policy_uri": "https://claude.ai/legal#privacy" });
    server.registrant(&assistant(&policy)).await;
    for bad in ["https://claude.ai/login#a", "https://claude.ai/login?iss=a"] {
        let reply = server
            .register(&assistant(&json!({ "initiate_login_uri": bad })))
            .await;
        assert_eq!(reply.error(), "invalid_client_metadata", "{bad}");
    }
}

/// A client could register the logo of another company.
#[tokio::test]
async fn the_consent_page_links_the_policy_and_the_terms_and_shows_no_logo() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let metadata = assistant(&json!({
        "policy_uri": "https://claude.ai/privacy?a=1&b=2",
        "tos_uri": "https://legal.claude.ai/terms",
        "logo_uri": "https://claude.ai/logo.png",
    }));
    let client = server.registrant(&metadata).await;
    assert_eq!(client.answer.get("logo_uri"), None);
    let consent = alice
        .browser()
        .authorize(&client.party.request())
        .await
        .sign_in()
        .await;
    assert_eq!(consent.page(), "/consent");
    for (href, sentence, host) in [
        (
            "https://claude.ai/privacy?a=1&amp;b=2",
            EN.consent_policy,
            "claude.ai",
        ),
        (
            "https://legal.claude.ai/terms",
            EN.consent_terms,
            "legal.claude.ai",
        ),
    ] {
        let words = sentence.replace("{}", &format!("<bdi class=\"name\">{host}</bdi>"));
        let link = format!("<a href=\"{href}\" target=\"_blank\" rel=\"noopener noreferrer\">{words}</a>");
        assert!(consent.text().contains(&link), "{}", consent.text());
    }
    assert!(!consent.text().contains("logo.png"));
}

/// OpenID Connect Core section 4: the account page opens an application that the user has, with `iss`.
#[tokio::test]
async fn the_account_page_opens_an_application_where_its_sign_in_begins() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let metadata = assistant(&json!({ "initiate_login_uri": "https://claude.ai/login?from=op" }));
    let client = server.registrant(&metadata).await;
    let quiet = server
        .registrant(&assistant(&json!({ "client_name": "Quiet" })))
        .await;
    let browser = alice.browser();
    for party in [&client.party, &quiet.party] {
        let code = browser.authorize(&party.request()).await.through().await.code();
        party.redeem(&code).await.tokens();
    }
    let page = browser.visit("/account/applications").await;
    let iss = url::form_urlencoded::byte_serialize(ISSUER.as_bytes()).collect::<String>();
    let href = format!("href=\"https://claude.ai/login?from=op&amp;iss={iss}\"");
    assert!(page.text().contains(&href), "{}", page.text());
    let open = EN
        .account_open
        .replace("{}", "<bdi class=\"name\">claude.ai</bdi>");
    assert_eq!(page.text().matches(&open).count(), 1);
}

/// Section 2, `default_max_age`; `max_age` of the request overrides it.
#[tokio::test]
async fn a_sign_in_that_is_older_than_default_max_age_is_not_enough() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let client = server
        .registrant(&assistant(&json!({ "default_max_age": 3600 })))
        .await;
    let browser = alice.browser();
    browser
        .authorize(&client.party.request())
        .await
        .through()
        .await
        .code();
    server.advance(3600);
    let silent = client.party.request().with("prompt", "none");
    browser.authorize(&silent).await.callback().code();
    server.advance(1);
    assert_eq!(
        browser.authorize(&silent).await.callback().error(),
        "login_required"
    );
    let lenient = silent.clone().with("max_age", "7200");
    browser.authorize(&lenient).await.callback().code();
    let code = browser
        .authorize(&client.party.request())
        .await
        .through()
        .await
        .code();
    let tokens = client.party.redeem(&code).await.tokens();
    assert_eq!(tokens.id().claims["auth_time"], server.clock.now().seconds());
    let always = server
        .registrant(&assistant(&json!({ "default_max_age": 0 })))
        .await;
    let page = browser.authorize(&always.party.request()).await;
    assert_eq!(page.page(), "/login");
    page.through().await.code();
}

/// OpenID Connect Core section 5.3.2.
#[tokio::test]
async fn userinfo_is_signed_for_a_client_that_is_registered_so() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let browser = alice.browser();
    for alg in [json!("RS256"), json!("ES256"), Value::Null] {
        let metadata = assistant(&json!({ "userinfo_signed_response_alg": alg }));
        let Registrant { party, .. } = server.registrant(&metadata).await;
        let request = party.request().with("scope", "openid email");
        let code = browser.authorize(&request).await.through().await.code();
        let tokens = party.redeem(&code).await.tokens();
        let reply = party.userinfo(tokens.access_token()).await;
        assert_eq!(reply.status, 200);
        assert!(reply.is_not_stored());
        if alg.is_null() {
            assert_eq!(reply.json()["sub"], alice.sub());
            continue;
        }
        assert_eq!(reply.header("content-type"), Some("application/jwt"));
        let jwt: Jwt = party.verify(reply.text()).await;
        assert_eq!(jwt.header["alg"], alg);
        assert_eq!(
            jwt.claims,
            json!({
                "iss": ISSUER, "aud": party.client_id(), "sub": alice.sub(),
                "email": jwt.claims["email"], "email_verified": jwt.claims["email_verified"],
            })
        );
        assert!(text(&jwt.claims["email"]).contains('@'));
        let hint = party
            .request()
            .with("prompt", "none")
            .with("id_token_hint", reply.text());
        let refused = browser.authorize(&hint).await.callback();
        assert_eq!(refused.error(), "login_required", "it is no ID token");
        assert_eq!(party.userinfo("wrong").await.status, 401);
    }
    let document = server.get("/.well-known/openid-configuration").await.json();
    assert_eq!(
        document["userinfo_signing_alg_values_supported"],
        document["id_token_signing_alg_values_supported"]
    );
}

/// OpenID Connect Core section 5.4. The operator's clients have the claims in the ID token too.
#[tokio::test]
async fn the_id_token_of_a_client_that_registered_itself_has_requested_claims_only() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let registrant = server.registrant(&assistant(&json!({}))).await;
    let add = AddClient {
        client_id: "acme".to_owned(),
        public: true,
        secret: None,
        api_key: false,
        fields: ClientFields {
            redirect_uris: Some(vec!["https://acme.example/cb".to_owned()]),
            ..ClientFields::default()
        },
    };
    server.admin().call(add).await.unwrap();
    for (party, is_there) in [(registrant.party, false), (server.party("acme", ""), true)] {
        let request = party.request().with("scope", "openid email");
        let code = alice.browser().authorize(&request).await.through().await.code();
        let tokens = party.redeem(&code).await.tokens();
        let id = party.verify(tokens.id_token()).await.claims;
        assert_eq!(id.get("email").is_some(), is_there);
        let userinfo = party.userinfo(tokens.access_token()).await.json();
        assert!(userinfo.get("email").is_some());
    }
}

/// The operator's clients have the same members.
#[tokio::test]
async fn a_client_of_the_operator_links_its_pages_and_has_a_greatest_age() {
    let (server, acme, alice) = scene().await;
    server
        .change_client(&acme, |client| {
            client.consent = ConsentRequirement::Require;
            client.policy_uri = Some("https://acme.example/privacy".to_owned());
            client.default_max_age = Some(60);
        })
        .await;
    let browser = alice.browser();
    let consent = browser.authorize(&acme.request()).await.sign_in().await;
    assert!(consent.text().contains("href=\"https://acme.example/privacy\""));
    consent.allow().await.callback().code();
    server.advance(61);
    assert_eq!(browser.authorize(&acme.request()).await.page(), "/login");
}
