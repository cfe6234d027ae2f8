//! The OAuth 2.0 Authorization Framework: client authentication, and how the token endpoint says no.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use idsvc::oauth::Refusal;
use idsvc::oauth::client::{AuthMethod, GrantType, StoredSecret};
use idsvc::oauth::parameters::ParameterError;
use idsvc::secret::Digest;

use crate::harness::reply::line_of;
use crate::harness::{RelyingParty, START, Server, scene};

const CHALLENGE: &str = "Basic realm=\"idsvc\", charset=\"UTF-8\"";

/// Section 2.3.1: the secret in the body.
#[tokio::test]
async fn a_client_may_send_its_secret_in_the_body() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let post = server
        .client_with("post", |client| {
            client.token_endpoint_auth_methods = [AuthMethod::ClientSecretPost].into();
        })
        .await;
    let tokens = post.tokens(&alice.browser()).await;
    assert!(post.is_welcome(&tokens).await);
    post.refresh(tokens.refresh_token()).await.tokens();
}

/// Section 2.3.1: a client that is registered for several methods uses one or another.
#[tokio::test]
async fn a_client_registered_for_two_methods_may_use_either() {
    let (server, acme, alice) = scene().await;
    server
        .change_client(&acme, |client| {
            client
                .token_endpoint_auth_methods
                .insert(AuthMethod::ClientSecretPost);
        })
        .await;
    let tokens = acme.tokens(&alice.browser()).await;
    let post = acme
        .refresh(tokens.refresh_token())
        .without_header("authorization");
    let tokens = post
        .with("client_id", "acme")
        .with("client_secret", &acme.secret)
        .await
        .tokens();
    acme.refresh(tokens.refresh_token()).await.tokens();
}

/// Section 2.1: a client that cannot keep a secret names itself.
#[tokio::test]
async fn a_public_client_names_itself() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let app = server.public_client("app").await;
    let tokens = app.tokens(&alice.browser()).await;
    assert!(app.is_welcome(&tokens).await);
    assert_eq!(
        app.refresh(tokens.refresh_token())
            .without("client_id")
            .await
            .error(),
        "invalid_client"
    );
    app.refresh(tokens.refresh_token()).await.tokens();
    let with_secret = app
        .refresh(tokens.refresh_token())
        .with("client_secret", "guessed")
        .await;
    assert_eq!(with_secret.error(), "invalid_client");
}

/// Libraries for clients without a secret send an empty one, in the header too. To nobody else it is a secret.
#[tokio::test]
async fn an_empty_secret_is_none() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let (app, web) = (server.public_client("app").await, server.client("web").await);
    let tokens = app.tokens(&alice.browser()).await;
    let ask = |party: &RelyingParty, token: &str| {
        let call = party.refresh(token).without("client_id");
        call.without_header("authorization").basic(party.client_id(), "")
    };
    let tokens = ask(&app, tokens.refresh_token()).await.tokens();
    let twice = ask(&app, tokens.refresh_token()).with("client_secret", "guessed");
    assert_eq!(twice.await.error(), "invalid_request");
    let tokens = web.tokens(&alice.browser()).await;
    assert_eq!(ask(&web, tokens.refresh_token()).await.error(), "invalid_client");
}

/// Section 2.3.1: name and secret are form-encoded before they are put into the Basic scheme.
#[tokio::test]
async fn basic_credentials_are_form_decoded() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let secret = "p+a s:s%20w&o=r/d \"é\" of more than 32 bytes";
    let mut odd = server
        .client_with("odd:name +%", |client| {
            client.redirect_uris = vec!["https://odd.example/cb".to_owned()];
            client.secrets = vec![StoredSecret {
                digest: Digest::of(secret.as_bytes()),
                created_at: START,
                expires_at: None,
            }];
        })
        .await;
    odd.secret = secret.to_owned();
    odd.tokens(&alice.browser()).await;
}

/// Section 2.3.1: many clients do not encode the secret. The unencoded secret is accepted, and no other.
#[tokio::test]
async fn a_secret_that_was_not_encoded_is_taken_as_it_is() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let secret = "p+a%20s%%ff:w of more than 32 bytes, or so";
    let plain = server
        .client_with("plain", |client| {
            client.secrets[0].digest = Digest::of(secret.as_bytes());
        })
        .await;
    let code = plain.code(&alice.browser()).await;
    let redeem = |secret: &str| {
        let pair = STANDARD.encode(format!("plain:{secret}"));
        plain
            .redeem(&code)
            .without_header("authorization")
            .header("authorization", &format!("Basic {pair}"))
    };
    for wrong in ["p a s%%ff:w of more than 32 bytes, or so", "", "p+a%20s%%ff"] {
        assert_eq!(redeem(wrong).await.error(), "invalid_client", "{wrong}");
    }
    redeem(secret).await.tokens();
}

/// Section 2.3.1: while a secret is replaced, the old one works until it has run out.
#[tokio::test]
async fn a_replaced_secret_works_until_it_runs_out() {
    let (server, mut acme, alice) = scene().await;
    let old = acme.secret.clone();
    server
        .change_client(&acme, |client| {
            client.secrets[0].expires_at = Some(START + std::time::Duration::from_secs(100));
            client.secrets.push(StoredSecret {
                digest: Digest::of(b"the new secret"),
                created_at: START,
                expires_at: None,
            });
        })
        .await;
    let tokens = acme.tokens(&alice.browser()).await;
    server.advance(99);
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    server.advance(1);
    let refused = acme.refresh(tokens.refresh_token()).await;
    assert_eq!(refused.error(), "invalid_client");
    acme.secret = "the new secret".to_owned();
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(
        acme.refresh(tokens.refresh_token())
            .basic("acme", &old)
            .await
            .status,
        401
    );
}

/// Section 5.2: `invalid_client` is 401, with a challenge for the scheme when it was used.
#[tokio::test]
async fn a_client_that_proves_nothing_is_an_invalid_client() {
    let (_server, acme, alice) = scene().await;
    let code = acme.code(&alice.browser()).await;
    let failed = line_of(&Refusal::CLIENT_UNPROVEN);

    let none = acme.redeem(&code).without_header("authorization").await;
    assert_eq!(none.error(), "invalid_client");
    assert_eq!(none.header("www-authenticate"), None);
    let named = acme
        .redeem(&code)
        .without_header("authorization")
        .with("client_id", "acme")
        .await;
    assert_eq!(
        (named.refusal(), named.header("www-authenticate")),
        (failed.clone(), None)
    );
    let post = acme
        .redeem(&code)
        .without_header("authorization")
        .with("client_id", "acme");
    let wrong_post = post.clone().with("client_secret", "wrong").await;
    assert_eq!(
        (wrong_post.refusal(), wrong_post.header("www-authenticate")),
        (failed.clone(), None)
    );
    let wrong_method = post.with("client_secret", &acme.secret).await;
    assert_eq!(wrong_method.error(), "invalid_client");
    assert!(
        wrong_method
            .refusal()
            .contains(AuthMethod::ClientSecretPost.as_str())
    );

    for (user, password) in [
        ("acme", "wrong"),
        ("acme", ""),
        ("nobody", acme.secret.as_str()),
        ("", ""),
    ] {
        let basic = acme.redeem(&code).basic(user, password).await;
        assert_eq!(
            (basic.refusal(), basic.header("www-authenticate")),
            (failed.clone(), Some(CHALLENGE))
        );
    }
    let twice = acme.redeem(&code).header("authorization", "Basic eDp4").await;
    assert_eq!(twice.error(), "invalid_client");
    for header in ["Basic", "Basic !!!", "Basic YWNtZQ==", "Basic /w=="] {
        let broken = acme
            .redeem(&code)
            .without_header("authorization")
            .header("authorization", header)
            .await;
        assert_eq!(broken.error(), "invalid_client", "{header}");
        assert_eq!(broken.header("www-authenticate"), Some(CHALLENGE));
    }
    acme.redeem(&code).await.tokens();
}

/// Section 2.3.1: credentials never count in the address.
#[tokio::test]
async fn credentials_in_the_address_are_not_looked_at() {
    let server = Server::start().await;
    let post = server
        .client_with("post", |client| {
            client.token_endpoint_auth_methods = [AuthMethod::ClientSecretPost].into();
        })
        .await;
    let query = crate::harness::write_form(&[("client_id", "post"), ("client_secret", &post.secret)]);
    let reply = server
        .post(&format!("/oauth2/token?{query}"))
        .with("grant_type", "refresh_token")
        .await;
    assert_eq!(reply.error(), "invalid_client");
}

/// Section 2.3: one method in each request.
#[tokio::test]
async fn two_methods_of_authentication_are_an_invalid_request() {
    let (_server, acme, alice) = scene().await;
    let code = acme.code(&alice.browser()).await;
    let both = acme.redeem(&code).with("client_secret", &acme.secret);
    assert_eq!(both.clone().await.error(), "invalid_request");
    assert_eq!(both.with("client_id", "acme").await.error(), "invalid_request");
    assert_eq!(
        acme.redeem(&code).with("client_id", "other").await.error(),
        "invalid_request"
    );
    acme.redeem(&code).with("client_id", "acme").await.tokens();
}

/// Section 5.2: `unsupported_grant_type`, `invalid_request`, `unauthorized_client`.
#[tokio::test]
async fn a_grant_has_to_be_named_known_and_allowed() {
    let (server, acme, alice) = scene().await;
    let code = acme.code(&alice.browser()).await;
    assert_eq!(
        acme.redeem(&code).without("grant_type").await.error(),
        "invalid_request"
    );
    for unknown in ["password", "implicit", "AUTHORIZATION_CODE", "\"\\é"] {
        let refused = acme.redeem(&code).with("grant_type", unknown).await;
        assert_eq!(refused.error(), "unsupported_grant_type");
    }
    let tokens = acme.redeem(&code).await.tokens();
    server
        .change_client(&acme, |client| {
            client.grant_types = [GrantType::AuthorizationCode].into();
        })
        .await;
    assert_eq!(
        acme.refresh(tokens.refresh_token()).await.error(),
        "unauthorized_client"
    );
    server
        .change_client(&acme, |client| {
            client.grant_types = [GrantType::RefreshToken].into();
        })
        .await;
    assert_eq!(acme.redeem("x").await.error(), "unauthorized_client");
    acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(acme.refresh("").await.error(), "invalid_request");
}

/// Section 5.2: a client that fails with the `Authorization` header gets a challenge that names the scheme.
#[tokio::test]
async fn a_header_that_proves_nothing_is_answered_with_a_challenge() {
    let (server, _acme, _alice) = scene().await;
    let ask = |path: &'static str, headers: &[&str]| {
        let call = server.post(path).with("grant_type", "refresh_token");
        headers
            .iter()
            .fold(call, |call, header| call.header("authorization", header))
    };
    for headers in [
        &["Bearer x"][..],
        &["Basic YTpi", "Basic YTpi"],
        &["Basic !"],
        &["Basic caf\u{e9}"],
        &["Digest username=\"a\""],
    ] {
        for path in [
            "/oauth2/token",
            "/oauth2/introspect",
            "/oauth2/revoke",
            "/v4/tokens",
        ] {
            let reply = ask(path, headers).with("refresh_token", "x").await;
            assert_eq!(
                (reply.status, reply.header("www-authenticate")),
                (401, Some("Basic realm=\"idsvc\", charset=\"UTF-8\"")),
                "{headers:?} {path}"
            );
        }
        assert_eq!(ask("/oauth2/token", &[]).await.header("www-authenticate"), None);
    }
}

/// Section 3.2: no parameter more than once, unknown ones ignored.
#[tokio::test]
async fn a_parameter_sent_twice_is_refused() {
    let (_server, acme, alice) = scene().await;
    let code = acme.code(&alice.browser()).await;
    for name in ["code", "grant_type", "redirect_uri", "client_id", "scope"] {
        let twice = acme.redeem(&code).and(name, "a").and(name, "b").await;
        assert_eq!(
            twice.refusal(),
            line_of(&ParameterError::Duplicate(name.to_owned()).into())
        );
    }
    let odd = acme
        .redeem(&code)
        .and("q\"u\\o\u{e9}\r\n", "1")
        .and("q\"u\\o\u{e9}\r\n", "2")
        .await;
    assert_eq!(odd.error(), "invalid_request");
    acme.redeem(&code)
        .and("unknown", "x")
        .and("client_assertion", "")
        .await
        .tokens();
}

/// Section 3.2 and appendix B: the body is a form.
#[tokio::test]
async fn a_body_of_another_type_is_refused() {
    let (server, acme, alice) = scene().await;
    let code = acme.code(&alice.browser()).await;
    let form =
        format!("grant_type=authorization_code&code={code}&redirect_uri=https%3A%2F%2Facme.example%2Fcb");
    for content_type in ["text/plain", "multipart/form-data; boundary=x", ""] {
        let reply = acme.post("/oauth2/token").body(content_type, form.clone()).await;
        assert_eq!(reply.error(), "invalid_request", "{content_type}");
    }
    let json = serde_json::json!({"grant_type": "authorization_code", "code": code}).to_string();
    let reply = acme.post("/oauth2/token").body("application/json", json).await;
    assert_eq!(reply.error(), "invalid_request");
    let bare = server.call("POST", "/oauth2/token");
    assert_eq!(bare.body("text/html", "").await.error(), "invalid_request");
    let unreadable = acme
        .post("/oauth2/token")
        .body("application/x-www-form-urlencoded", "a=%ff")
        .await;
    assert_eq!(unreadable.refusal(), line_of(&ParameterError::NotUtf8.into()));
    let charset = "application/x-www-form-urlencoded; charset=UTF-8";
    acme.post("/oauth2/token").body(charset, form).await.tokens();
}

/// A body has a bound; what is within it is read.
#[tokio::test]
async fn a_body_over_64_kib_is_not_read() {
    let (_server, acme, _alice) = scene().await;
    let post = |length: usize| {
        let body = format!(
            "grant_type=x&pad={}",
            "x".repeat(length - "grant_type=x&pad=".len())
        );
        acme.post("/oauth2/token")
            .body("application/x-www-form-urlencoded", body)
    };
    assert_eq!(post(64 * 1024).await.error(), "unsupported_grant_type");
    assert_eq!(post(64 * 1024 + 1).await.status, 413);
    let many: Vec<_> = (0..100)
        .map(|number| (format!("p{number}"), "x".to_owned()))
        .collect();
    let reply = acme.post("/oauth2/token").fields(&many).await;
    assert_eq!(reply.refusal(), line_of(&ParameterError::TooMany.into()));
}

/// Section 5.2 and the Fetch standard: scripts of a public client's origin may read answers, others not.
#[tokio::test]
async fn only_the_origins_of_clients_may_read_the_answer() {
    let server = Server::start().await;
    server.public_client("app").await;
    let gone = server.public_client("gone").await;
    server.change_client(&gone, |client| client.enabled = false).await;
    server.client("acme").await;
    server
        .client_with("web", |client| {
            client.cors_origins = vec!["https://spa.example".to_owned()];
        })
        .await;
    let hybrid = server.public_client("hybrid").await;
    server
        .change_client(&hybrid, |client| {
            client.redirect_uris = vec![
                "capacitor://localhost/cb".to_owned(),
                "com.example.app:/cb".to_owned(),
            ];
        })
        .await;
    for (origin, allowed) in [
        ("https://app.example", true),
        ("https://spa.example", true),
        ("capacitor://localhost", true),
        ("capacitor://other", false),
        ("com.example.app://", false),
        ("https://acme.example", false),
        ("https://gone.example", false),
        ("https://evil.example", false),
        ("null", false),
    ] {
        let reply = server.post("/oauth2/token").header("origin", origin).await;
        assert_eq!(
            reply.header("access-control-allow-origin"),
            allowed.then_some(origin)
        );
        assert_eq!(reply.header("vary"), Some("Origin"));
        assert_eq!(reply.header("access-control-allow-credentials"), None);
        let preflight = server
            .call("OPTIONS", "/oauth2/token")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .await;
        assert_eq!(preflight.status, if allowed { 204 } else { 403 });
        assert_eq!(
            preflight.header("access-control-allow-origin"),
            allowed.then_some(origin)
        );
    }
}

/// What people look at, and what servers ask one another, is for no script of another site: not even of a client.
#[tokio::test]
async fn no_script_of_another_site_reads_a_page_or_asks_about_tokens() {
    let server = Server::start().await;
    server.public_client("app").await;
    for path in [
        "/oauth2/authorize",
        "/oauth2/introspect",
        "/oauth2/logout",
        "/login",
        "/consent",
        "/account",
        "/federation/up/start",
    ] {
        for (method, asked) in [("GET", None), ("POST", None), ("OPTIONS", Some("POST"))] {
            let call = server.call(method, path).header("origin", "https://app.example");
            let call = match asked {
                Some(asked) => call.header("access-control-request-method", asked),
                None => call,
            };
            let reply = call.await;
            assert_eq!(
                reply.header("access-control-allow-origin"),
                None,
                "{method} {path}"
            );
            assert!(asked.is_none() || reply.status == 405, "{method} {path}");
        }
    }
}
