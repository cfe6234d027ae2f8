//! OAuth 2.0 Dynamic Client Registration.

use idsvc::admin::api::AddApi;
use idsvc::admin::client::{self, AddRegistrationToken};
use idsvc::oauth::ApiFields;
use idsvc::oauth::registration::RegistrationMode;
use idsvc::oauth::registration::RegistrationPolicy;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::registration::{REGISTER, Registrant, open};
use crate::harness::reply::text;
use crate::harness::{Audit, Server};

const CALLBACK: &str = "https://notes.example/cb";

fn web() -> Value {
    json!({
        "redirect_uris": [CALLBACK],
        "client_name": "Notes",
        "grant_types": ["authorization_code", "refresh_token"],
    })
}

fn public() -> Value {
    json!({
        "redirect_uris": ["http://127.0.0.1/cb"],
        "client_name": "Notes for the terminal",
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
    })
}

fn with(mut metadata: Value, name: &str, value: Value) -> Value {
    metadata[name] = value;
    metadata
}

/// Section 3.2.1: the answer has all registered metadata. The client then works like any other, but always needs
/// consent.
#[tokio::test]
async fn a_registered_client_signs_a_user_in_after_consent_and_refreshes() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let audit = Audit::listen();
    let reply = server.register(&web()).await;
    assert_eq!(reply.status, 201);
    assert!(reply.is_not_stored());
    let answer = reply.json();
    assert_eq!(answer["redirect_uris"], json!([CALLBACK]));
    assert_eq!(answer["client_name"], "Notes");
    assert_eq!(answer["grant_types"], web()["grant_types"]);
    assert_eq!(answer["client_secret_expires_at"], 0);
    assert_eq!(answer["client_id_issued_at"], server.clock.now().seconds());
    let events = audit.take(&["client_registered"]);
    assert_eq!(events[0]["client_id"], answer["client_id"]);
    assert_eq!(events[0]["name"], "Notes");

    let party = server.party(text(&answer["client_id"]), text(&answer["client_secret"]));
    let browser = alice.browser();
    let consent = browser.authorize(&party.request()).await.sign_in().await;
    assert!(consent.text().contains("Notes") && consent.text().contains("notes.example"));
    let code = consent.allow().await.callback().code();
    let tokens = party.redeem(&code).await.tokens();
    assert_eq!(tokens.id().claims["sub"], alice.sub());
    party.refresh(tokens.refresh_token()).await.tokens();
}

/// Section 2: what is left out has the standard's default, and the answer says so.
#[tokio::test]
async fn what_is_left_out_has_its_default() {
    let server = Server::open().await;
    let Registrant { answer, .. } = server.registrant(&json!({ "redirect_uris": [CALLBACK] })).await;
    assert_eq!(answer["token_endpoint_auth_method"], "client_secret_basic");
    assert_eq!(answer["grant_types"], json!(["authorization_code"]));
    assert_eq!(answer["response_types"], json!(["code"]));
    assert_eq!(answer["scope"], "openid");
    let members: Vec<_> = answer.as_object().unwrap().keys().collect();
    for absent in ["client_name", "jwks", "jwks_uri", "post_logout_redirect_uris"] {
        assert!(!members.iter().any(|name| *name == absent), "{absent}");
    }
}

/// Section 2: a public client has no secret, and uses PKCE.
#[tokio::test]
async fn a_public_client_gets_no_secret_and_must_use_pkce() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let client = server.registrant(&public()).await;
    assert!(client.answer.get("client_secret").is_none());
    assert!(client.answer.get("client_secret_expires_at").is_none());
    let request = client.party.request().with("nonce", "n");
    let bare = request
        .clone()
        .without("code_challenge")
        .without("code_challenge_method");
    let refused = alice.browser().authorize(&bare).await;
    assert_eq!(refused.error_page_status(), 400);
    let elsewhere = request.with("redirect_uri", "http://127.0.0.1:50123/cb");
    let code = alice.browser().authorize(&elsewhere).await.through().await.code();
    let redeemed = client
        .party
        .redeem(&code)
        .with("redirect_uri", "http://127.0.0.1:50123/cb");
    redeemed.await.tokens();
}

/// OAuth 2.1 section 7.5.1: the `nonce` of OpenID Connect protects a confidential client as well.
#[tokio::test]
async fn a_confidential_client_may_use_nonce_in_the_place_of_pkce() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let client = server.registrant(&web()).await;
    let bare = client
        .party
        .request()
        .without("code_challenge")
        .without("code_challenge_method");
    for (name, value) in [("state", "s"), ("scope", "email")] {
        let refused = alice.browser().authorize(&bare.clone().with(name, value)).await;
        assert_eq!(refused.error_page_status(), 400, "{name}");
    }
    let no_openid = bare.clone().with("nonce", "n").with("scope", "email");
    let refused = alice.browser().authorize(&no_openid).await;
    assert_eq!(refused.error_page_status(), 400);
    let code = alice
        .browser()
        .authorize(&bare.with("nonce", "n"))
        .await
        .through()
        .await
        .code();
    let redeemed = client.party.redeem(&code).without("code_verifier").await.tokens();
    assert_eq!(redeemed.id().claims["nonce"], "n");
}

/// Section 5: a redirect URI that a browser would run, or that anyone could take, is refused.
#[tokio::test]
async fn a_redirect_uri_that_cannot_be_used_is_invalid_redirect_uri() {
    let server = Server::open().await;
    for uris in [
        json!(["javascript:alert(1)"]),
        json!(["data:text/html,a"]),
        json!(["http://notes.example/cb"]),
        json!(["https://notes.example/cb#fragment"]),
        json!(["https://*.example/cb"]),
        json!(["https://user@notes.example/cb"]),
        json!(["com.example.app:/cb"]),
        json!(["/cb"]),
        json!([CALLBACK, "vbscript:a"]),
        json!([]),
        json!("https://notes.example/cb"),
        Value::Null,
    ] {
        let reply = server.register(&with(web(), "redirect_uris", uris.clone())).await;
        assert_eq!(
            (reply.status, reply.error()),
            (400, "invalid_redirect_uri".to_owned()),
            "{uris}"
        );
    }
    let native = with(public(), "redirect_uris", json!(["com.example.app:/cb"]));
    assert_eq!(server.register(&native).await.status, 201);
}

/// Section 3.2.2: metadata that the service cannot act on are refused. It ignores what it does not know.
#[tokio::test]
async fn unusable_metadata_are_refused_and_unknown_ones_ignored() {
    let server = Server::open().await;
    for (name, value) in [
        ("grant_types", json!(["client_credentials"])),
        ("response_types", json!(["token"])),
        ("token_endpoint_auth_method", json!("tls_client_auth")),
        ("token_endpoint_auth_method", json!("private_key_jwt")),
        ("jwks", json!({ "keys": [] })),
        ("jwks", json!({ "keys": [{ "kty": "oct", "k": "c2VjcmV0" }] })),
        ("jwks_uri", json!("http://notes.example/keys")),
        ("id_token_signed_response_alg", json!("HS256")),
        ("id_token_signed_response_alg", json!("PS256")),
        ("subject_type", json!("pairwise")),
        ("sector_identifier_uri", json!("https://notes.example/uris")),
        ("userinfo_signed_response_alg", json!("PS256")),
        ("client_name", json!("a\u{0}b")),
        ("client_name", json!("é".repeat(101))),
        ("post_logout_redirect_uris", json!(["javascript:alert(1)"])),
    ] {
        let metadata = match name {
            "jwks" => with(web(), "token_endpoint_auth_method", json!("private_key_jwt")),
            _ => web(),
        };
        let reply = server.register(&with(metadata, name, value.clone())).await;
        let refused = (reply.status, reply.error());
        assert_eq!(
            refused,
            (400, "invalid_client_metadata".to_owned()),
            "{name} {value}"
        );
    }
    let known = with(web(), "client_name#de", json!("Notizen"));
    let known = with(known, "software_version", json!("1.2"));
    let answer = server.registrant(&known).await.answer;
    assert!(answer.get("client_name#de").is_none() && answer.get("software_version").is_none());
    let form = server.post(REGISTER).with("redirect_uris", CALLBACK).await;
    assert_eq!(form.error(), "invalid_client_metadata");
    for body in ["", "[]", "{\"client_name\":\"a\",\"client_name\":\"b\"}"] {
        let reply = server.post(REGISTER).body("application/json", body).await;
        assert_eq!(reply.error(), "invalid_client_metadata", "{body}");
    }
}

/// Section 2: a client registers keys, and the answer has them as they are stored.
#[tokio::test]
async fn a_client_may_register_its_keys_or_their_address() {
    let server = Server::open().await;
    let key = json!({
        "kty": "EC", "crv": "P-256", "kid": "k1", "alg": "ES256", "use": "sig",
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
        "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    });
    let signing = with(web(), "token_endpoint_auth_method", json!("private_key_jwt"));
    let by_value = with(signing.clone(), "jwks", json!({ "keys": [key] }));
    let answer = server.registrant(&by_value).await.answer;
    assert_eq!(answer["jwks"]["keys"][0]["kid"], "k1");
    assert!(answer.get("client_secret").is_none());
    let address = "https://notes.example/keys";
    let by_reference = with(signing, "jwks_uri", json!(address));
    assert_eq!(server.registrant(&by_reference).await.answer["jwks_uri"], address);
    let both = with(by_value, "jwks_uri", json!(address));
    assert_eq!(server.register(&both).await.error(), "invalid_client_metadata");
}

/// Section 2: the registered scope is the default scope of requests. It may have standard values and values of open
/// APIs.
#[tokio::test]
async fn the_scope_of_open_apis_may_be_registered_and_no_other() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    for (id, is_open) in [("notes", true), ("payments", false)] {
        let fields = ApiFields {
            open: Some(is_open),
            scope: Some(vec![format!("{id}.read")]),
            ..ApiFields::default()
        };
        let identifier = format!("https://api.example/{id}");
        let request = AddApi {
            id: id.to_owned(),
            identifier,
            fields,
        };
        server.admin().call(request).await.unwrap();
    }
    let asking = with(
        web(),
        "scope",
        json!("openid email notes.read payments.read admin"),
    );
    let client = server.registrant(&asking).await;
    assert_eq!(client.answer["scope"], "openid email notes.read");
    let request = client.party.request().without("scope").with("nonce", "n");
    let code = alice.browser().authorize(&request).await.through().await.code();
    let tokens = client.party.redeem(&code).await.tokens();
    assert_eq!(tokens.0["scope"], "openid email notes.read authenticated");
}

/// Section 3: the endpoint exists only if the operator turns it on, and discovery names it only then.
#[tokio::test]
async fn nobody_registers_unless_the_operator_allows_it() {
    let discovered = async |server: &Server| {
        let reply = server.get("/.well-known/openid-configuration").await;
        reply.json().get("registration_endpoint").cloned()
    };
    let closed = Server::start().await;
    assert_eq!(closed.register(&web()).await.status, 404);
    let path = format!("{REGISTER}/0193b2a4-7a10-7cc0-8000-000000000001");
    assert_eq!(closed.get(&path).bearer("any").await.status, 404);
    assert_eq!(discovered(&closed).await, None);
    let server = Server::open().await;
    let address = format!("{}{REGISTER}", crate::harness::ISSUER);
    assert_eq!(discovered(&server).await, Some(json!(address)));
    let preflight = server
        .call("OPTIONS", REGISTER)
        .header("origin", "https://any.example")
        .header("access-control-request-method", "POST")
        .await;
    assert_eq!(preflight.header("access-control-allow-origin"), Some("*"));
}

/// A service that requires an initial access token.
async fn by_token() -> Server {
    Server::start_with(|policy| {
        policy.registration = RegistrationPolicy {
            mode: RegistrationMode::Token,
            ..open(100)
        };
    })
    .await
}

async fn token(server: &Server, uses: Option<u64>, expires_in: Option<u64>) -> (Uuid, String) {
    let request = AddRegistrationToken { expires_in, uses };
    let view = server.admin().call(request).await.unwrap();
    let token = view.initial_access_token.unwrap();
    (view.id, token.reveal().to_owned())
}

/// Section 3: without a token, or with one that is spent, expired, removed or malformed, nobody registers.
#[tokio::test]
async fn an_initial_access_token_registers_as_many_clients_as_it_is_for() {
    let server = by_token().await;
    let bare = server.register(&web()).await;
    assert_eq!((bare.status, bare.text()), (401, ""));
    assert_eq!(bare.challenge(), "401 Bearer realm=\"idsvc\"");
    let (_, two) = token(&server, Some(2), None).await;
    // A refused registration uses up nothing.
    for _ in 0..3 {
        let refused = server
            .register(&with(web(), "grant_types", json!(["implicit"])))
            .bearer(&two)
            .await;
        assert_eq!(refused.error(), "invalid_client_metadata");
    }
    for _ in 0..2 {
        assert_eq!(server.register(&web()).bearer(&two).await.status, 201);
    }
    let (_, brief) = token(&server, None, Some(60)).await;
    assert_eq!(server.register(&web()).bearer(&brief).await.status, 201);
    server.advance(60);
    let (id, removed) = token(&server, None, None).await;
    server
        .admin()
        .call(client::RemoveRegistrationToken { id })
        .await
        .unwrap();
    let all = server.admin().call(client::ListRegistrationTokens).await.unwrap();
    assert!(all.len() == 2 && all.iter().any(|token| token.uses_left == Some(0)));
    for worthless in [&two, &brief, &removed, "idsvc_iat_", "anything"] {
        let reply = server.register(&web()).bearer(worthless).await;
        assert_eq!((reply.status, reply.error()), (401, "invalid_token".to_owned()));
        // The token is checked before the metadata.
        assert_eq!(
            server.register(&json!({})).bearer(worthless).await.error(),
            "invalid_token"
        );
    }
}

/// The consent page says what the client gets, and so do the tokens.
#[tokio::test]
async fn tokens_hold_no_address_that_nobody_allowed() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let client = server.registrant(&web()).await;
    for (scope, email, account_id) in [
        ("openid", "", alice.sub()),
        (
            "openid email",
            "alice@example.com",
            "alice@example.com".to_owned(),
        ),
    ] {
        let request = client.party.request().with("scope", scope);
        let tokens = client.party.tokens_for(&alice.browser(), &request).await;
        for said in [&tokens.0, &tokens.access().claims] {
            assert_eq!(said["email"], email, "{scope}");
            assert_eq!(said["account_id"], json!(account_id), "{scope}");
            assert_eq!(said["phone_number"], Value::Null, "{scope}");
        }
    }
}

#[tokio::test]
async fn a_client_that_registered_itself_is_told_of_its_own_tokens_only() {
    let server = Server::open().await;
    let (alice, acme) = (server.user("alice").await, server.client("acme").await);
    let client = server.registrant(&web()).await;
    let foreign = acme.tokens(&alice.browser()).await;
    let own = client.party.tokens(&alice.browser()).await;
    for (tokens, is_told) in [(&foreign, false), (&own, true)] {
        let told = client.party.introspect(tokens.access_token()).await.json();
        assert_eq!(told["active"], is_told);
    }
    // Without the scope value email, no answer has the e-mail address.
    for token in [own.access_token(), own.refresh_token()] {
        let told = client.party.introspect(token).await.json();
        assert_eq!(told["username"], json!(alice.sub()));
    }
    let asking = client.party.request().with("scope", "openid email");
    let allowed = client.party.tokens_for(&alice.browser(), &asking).await;
    let told = client.party.introspect(allowed.access_token()).await.json();
    assert_eq!(told["username"], allowed.0["account_id"]);
    assert_ne!(told["username"], json!(alice.sub()));
}

/// Otherwise a page of the service could have a button that leads to the site of a stranger.
#[tokio::test]
async fn no_page_leads_to_the_website_of_a_client_that_registered_itself() {
    let server = Server::open().await;
    let stranger = server
        .registrant(&with(web(), "client_name", json!("Your Bank")))
        .await;
    let wrong = stranger
        .party
        .request()
        .with("redirect_uri", "https://notes.example/wrong");
    let page = server.browser().authorize(&wrong).await;
    assert_eq!(page.error_page_status(), 400);
    assert!(!page.text().contains("notes.example"), "{}", page.text());
    let acme = server.client("acme").await;
    let wrong = acme.request().with("redirect_uri", "https://acme.example/wrong");
    let page = server.browser().authorize(&wrong).await;
    assert!(page.text().contains("https://acme.example"), "{}", page.text());
}

/// Section 3: of two simultaneous registrations with a token for one client, only one succeeds.
#[tokio::test]
async fn the_last_use_of_a_token_has_one_winner() {
    let server = by_token().await;
    for _ in 0..5 {
        let (_, once) = token(&server, Some(1), None).await;
        let attempt = || async { server.register(&web()).bearer(&once).await.status };
        let mut statuses: [u16; 3] = tokio::join!(attempt(), attempt(), attempt()).into();
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 401, 401]);
    }
}

/// RFC 8628: a client for devices needs no redirect URI.
#[tokio::test]
async fn a_client_for_devices_registers_without_a_redirect_uri() {
    let server = Server::open().await;
    let device = "urn:ietf:params:oauth:grant-type:device_code";
    let metadata = json!({
        "client_name": "Television",
        "token_endpoint_auth_method": "none",
        "grant_types": [device, "refresh_token"],
        "response_types": [],
    });
    let Registrant { answer, .. } = server.registrant(&metadata).await;
    let grants = answer["grant_types"].as_array().unwrap();
    assert!(grants.contains(&json!(device)) && grants.contains(&json!("refresh_token")));
    assert_eq!(answer["response_types"], json!([]));
    let party = server.party(text(&answer["client_id"]), "");
    assert_eq!(party.post("/oauth2/device_authorization").await.status, 200);
    for grants in [json!(["refresh_token"]), json!([]), json!(["device_code"])] {
        let refused = server
            .register(&with(metadata.clone(), "grant_types", grants))
            .await;
        assert_eq!(refused.error(), "invalid_client_metadata");
    }
}

/// RFC 9700 section 4.11.2: otherwise anybody could register an address, and have the service send browsers there.
#[tokio::test]
async fn before_a_person_is_there_a_client_that_registered_itself_gets_no_error_by_redirect() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let acme = server.client("acme").await;
    let party = server.registrant(&web()).await.party;
    let silent = party.request().with("prompt", "none");
    let faulty = party.request().with("code_challenge_method", "plain");
    let posted = silent.clone().with("response_mode", "form_post");
    let signed_in = alice.browser();
    acme.code(&signed_in).await;
    for browser in [server.browser(), signed_in] {
        for request in [&silent, &faulty, &posted] {
            let page = browser.authorize(request).await;
            assert!(
                page.error_page().contains("it registered itself"),
                "{}",
                page.error_page()
            );
            assert_eq!(page.error_page_status(), 400);
            assert!(page.forms().is_empty());
        }
    }
    let of_the_operator = server.browser();
    let answer = of_the_operator
        .authorize(&acme.request().with("prompt", "none"))
        .await;
    assert_eq!(answer.callback().error(), "login_required");
}

#[tokio::test]
async fn a_person_who_has_allowed_a_client_that_registered_itself_is_sent_back_with_errors() {
    let server = Server::open().await;
    let alice = server.user("alice").await;
    let party = server.registrant(&web()).await.party;
    let browser = alice.browser();
    let consent = browser.authorize(&party.request()).await.sign_in().await;
    assert_eq!(consent.decide("deny").await.callback().error(), "access_denied");
    let silent = party.request().with("prompt", "none");
    let faulty = party.request().with("code_challenge_method", "plain");
    assert_eq!(browser.authorize(&faulty).await.error_page_status(), 400);
    browser
        .authorize(&party.request())
        .await
        .allow()
        .await
        .callback()
        .code();
    browser.authorize(&silent).await.callback().code();
    let stale = silent.clone().with("max_age", "0");
    assert_eq!(
        browser.authorize(&stale).await.callback().error(),
        "login_required"
    );
    assert_eq!(
        browser.authorize(&faulty).await.callback().error(),
        "invalid_request"
    );
    assert_eq!(server.browser().authorize(&silent).await.error_page_status(), 400);
}
