//! The OAuth 2.0 Authorization Framework: the authorization endpoint.

use idsvc::oauth::authorize::UntrustedRedirect;
use idsvc::oauth::client::{AuthMethod, Client, GrantType, PkceRequirement};
use idsvc::oauth::parameters::ParameterError;
use idsvc::oauth::redirect_uri::Mismatch;
use idsvc::store::engine::Snapshot;
use idsvc::store::tables::{CLIENTS, CODES};
use uuid::Uuid;

use crate::harness::{ISSUER, Server, scene, write_form};

/// Section 3.1: the endpoint takes GET and may take POST.
#[tokio::test]
async fn a_posted_request_is_answered_like_one_in_the_address() {
    let (server, acme, alice) = scene().await;
    let posted = server
        .post("/oauth2/authorize")
        .fields(&acme.request().parameters)
        .await;
    let browser = alice.browser();
    let screen = browser.visit(posted.location()).await;
    assert_eq!(screen.page(), "/login");
    let callback = screen.through().await;
    assert_eq!(callback.uri, acme.redirect_uri());
    assert!(
        acme.redeem(&callback.code())
            .await
            .tokens()
            .access_token()
            .contains('.')
    );
}

/// Section 3.1: cookies are `SameSite=Lax`, so a form posted by a client's page brings none along. The service
/// still finds the session of the user.
#[tokio::test]
async fn a_posted_request_finds_the_session() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    acme.code(&browser).await;
    let posted = server
        .post("/oauth2/authorize")
        .fields(&acme.request().parameters)
        .await;
    browser.visit(posted.location()).await.callback().code();
    let state = "é".repeat(2048);
    let longest = acme.request().with("state", &state);
    let posted = server.post("/oauth2/authorize").fields(&longest.parameters).await;
    let callback = browser.visit(posted.location()).await.callback();
    assert_eq!(callback.get("state"), Some(state.as_str()));
}

/// Section 3.1: what is too long for an address, or no form at all, is refused on a page, and nothing is kept of it.
#[tokio::test]
async fn a_posted_request_that_fits_no_address_is_refused() {
    let (server, acme, _alice) = scene().await;
    let request = acme.request().with("extra", &"x".repeat(15_000));
    let posted = server.post("/oauth2/authorize").fields(&request.parameters).await;
    assert_eq!(posted.error_page_status(), 413);
    assert!(posted.cookies().is_empty());
    let raw = server
        .post("/oauth2/authorize")
        .body("application/x-www-form-urlencoded", "client_id=acme\r\nX: y")
        .await;
    assert_eq!(raw.error_page_status(), 400);
}

/// Section 4.1.1: a state that nobody needs to be so long, or that cannot be given back, is refused on a page.
#[tokio::test]
async fn a_state_without_measure_is_refused() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let told = format!("400 {}", UntrustedRedirect::State);
    for state in ["s".repeat(4_097), "a\nb".to_owned(), "\u{1}".to_owned()] {
        let page = browser.authorize(&acme.request().with("state", &state)).await;
        assert_eq!(page.error_page(), told);
    }
    let longest = "s".repeat(4_096);
    let callback = browser
        .authorize(&acme.request().with("state", &longest))
        .await
        .through()
        .await;
    assert_eq!(callback.get("state"), Some(longest.as_str()));
}

/// Section 3.1: unknown parameters are ignored, and their order means nothing.
#[tokio::test]
async fn unknown_parameters_are_ignored() {
    let (_server, acme, alice) = scene().await;
    let mut request = acme.request().and("extra", "foobar").and("näme", "\"\\");
    request.parameters.reverse();
    alice.browser().authorize(&request).await.through().await.code();
}

/// Section 3.1: a parameter without a value counts as omitted.
#[tokio::test]
async fn an_empty_parameter_is_an_omitted_one() {
    let (_server, acme, alice) = scene().await;
    let request = acme
        .request()
        .with("state", "")
        .with("nonce", "")
        .with("prompt", "");
    let callback = alice.browser().authorize(&request).await.through().await;
    assert_eq!(callback.names(), ["code", "iss"]);
    let tokens = acme.redeem(&callback.code()).await.tokens();
    assert!(tokens.id().claims.get("nonce").is_none());
}

/// Section 3.1: no parameter may be sent more than once.
#[tokio::test]
async fn a_parameter_sent_twice_is_told_to_the_client() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    for name in [
        "response_type",
        "scope",
        "nonce",
        "code_challenge",
        "prompt",
        "extra",
    ] {
        let request = acme.request().and(name, "one").and(name, "two");
        let callback = browser.authorize(&request).await.callback();
        assert_eq!(
            callback.refusal(),
            format!("invalid_request: {}", ParameterError::Duplicate(name.to_owned()))
        );
        assert_eq!(callback.get("state"), Some("state of acme"));
        let posted = server.post("/oauth2/authorize").fields(&request.parameters).await;
        assert_eq!(browser.visit(posted.location()).await.callback(), callback);
    }
    let sentence = "Your account is locked. Call 0800 1234";
    let request = acme.request().and(sentence, "one").and(sentence, "two");
    assert_eq!(
        browser.authorize(&request).await.callback().refusal(),
        "invalid_request: a parameter was sent more than once",
        "the author of the link cannot put text on the service's page"
    );
}

/// Sections 3.1 and 4.1.2.1: when it is not clear who asks, or where the answer goes, nobody is redirected.
#[tokio::test]
async fn an_ambiguous_address_is_shown_to_the_user_only() {
    let (_server, acme, alice) = scene().await;
    for name in ["client_id", "redirect_uri", "state", "response_mode"] {
        let request = acme
            .request()
            .and(name, "https://evil.example/cb")
            .and(name, "query");
        let page = alice.browser().authorize(&request).await;
        assert_eq!(
            page.error_page(),
            format!("400 {}", UntrustedRedirect::Ambiguous),
            "{name}"
        );
    }
}

/// Sections 3.1.2.4 and 4.1.2.1.
#[tokio::test]
async fn a_client_that_is_not_known_is_not_redirected_to() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let missing = browser.authorize(&acme.request().without("client_id")).await;
    assert_eq!(
        missing.error_page(),
        format!("400 {}", UntrustedRedirect::MissingClient)
    );
    let unknown = browser
        .authorize(&acme.request().with("client_id", "acm\"><script>"))
        .await;
    assert_eq!(
        unknown.error_page(),
        format!("400 {}", UntrustedRedirect::UnknownClient)
    );
    server.change_client(&acme, |client| client.enabled = false).await;
    let disabled = browser.authorize(&acme.request()).await;
    assert_eq!(disabled.error_page(), unknown.error_page());
    let unreadable = browser.visit("/oauth2/authorize?client_id=%ff").await;
    assert_eq!(
        unreadable.error_page(),
        format!("400 {}", ParameterError::NotUtf8)
    );
}

/// Sections 3.1.2.3 and 3.1.2.4, RFC 9700 section 2.1: only an equal string matches.
#[tokio::test]
async fn a_client_that_is_another_by_the_time_it_is_answered_gets_no_code() {
    let changes: [fn(Client) -> Option<Client>; 5] = [
        |_| None,
        |client| {
            Some(Client {
                client_uuid: Uuid::from_u128(1),
                ..client
            })
        },
        |client| {
            Some(Client {
                enabled: false,
                ..client
            })
        },
        |mut client| {
            client.redirect_uris = vec!["https://acme.example/new".to_owned()];
            Some(client)
        },
        |mut client| {
            client.pkce = PkceRequirement::Required;
            Some(client)
        },
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let (server, acme, alice) = scene().await;
        let browser = alice.browser();
        acme.tokens(&browser).await;
        let store = &server.app.core.store;
        if store.is_shared() {
            // The service itself notices such a change, and goes by the new record.
            return;
        }
        let kept = |snapshot: &dyn Snapshot| CODES.count(snapshot);
        let before = store.read_blocking(kept).unwrap();
        // As it is for a request that waits to be written behind the change.
        let written = store.write("change", move |tx| {
            let changed = CLIENTS.get(&*tx, "acme")?.and_then(change);
            match changed {
                Some(client) => CLIENTS.put(tx, "acme", &client),
                None => CLIENTS.remove(tx, "acme").map(drop),
            }
        });
        written.await.unwrap();
        for browser in [browser, alice.browser()] {
            let screen = browser.authorize(&acme.request()).await;
            assert_eq!(screen.status, 400, "{at}: {}", screen.text());
        }
        assert_eq!(store.read_blocking(kept).unwrap(), before, "{at}");
    }
}

#[tokio::test]
async fn a_redirect_uri_that_is_not_registered_is_not_redirected_to() {
    let (_server, acme, alice) = scene().await;
    for uri in [
        "https://acme.example/cb/",
        "https://acme.example/cb/extra",
        "https://acme.example/cb?x=1",
        "https://acme.example/cb#x",
        "https://acme.example/CB",
        "https://ACME.example/cb",
        "https://acme.example:443/cb",
        "https://acme.example/x/../cb",
        "https://acme.example/%63b",
        "https://user@acme.example/cb",
        "https://acme.example.evil.example/cb",
        "http://acme.example/cb",
        "//acme.example/cb",
        "javascript:alert(1)",
        "cb",
    ] {
        let page = alice
            .browser()
            .authorize(&acme.request().with("redirect_uri", uri))
            .await;
        assert_eq!(
            page.error_page(),
            format!("400 {}", Mismatch::Unregistered),
            "{uri}"
        );
        assert!(page.cookies().is_empty());
    }
}

/// Section 3.1.2.3: which of several is meant has to be said; which of one, has not.
#[tokio::test]
async fn the_redirect_uri_may_be_left_out_where_one_is_registered() {
    let (server, acme, alice) = scene().await;
    let callback = alice
        .browser()
        .authorize(&acme.request().without("redirect_uri"))
        .await
        .through()
        .await;
    assert_eq!(callback.uri, acme.redirect_uri());
    let several = server
        .client_with("several", |client| {
            client
                .redirect_uris
                .push("https://several.example/other".to_owned());
        })
        .await;
    let page = alice
        .browser()
        .authorize(&several.request().without("redirect_uri"))
        .await;
    assert_eq!(page.error_page(), format!("400 {}", Mismatch::Missing));
    let other = several
        .request()
        .with("redirect_uri", "https://several.example/other");
    let callback = alice.browser().authorize(&other).await.through().await;
    assert_eq!(callback.uri, "https://several.example/other");
}

/// Section 3.1.2: a query that belongs to the redirect URI stays.
#[tokio::test]
async fn a_registered_query_is_kept_and_the_answer_added() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let tenant = server
        .client_with("tenant", |client| {
            client.redirect_uris = vec!["https://t.example/cb?a=1&b=%20".to_owned()];
        })
        .await;
    let screen = alice.browser().authorize(&tenant.request()).await.sign_in().await;
    assert!(
        screen
            .location()
            .starts_with("https://t.example/cb?a=1&b=%20&code=idsvc_ac_"),
        "{}",
        screen.location()
    );
    assert_eq!(screen.callback().names(), ["a", "b", "code", "state", "iss"]);
    for changed in [
        "https://t.example/cb",
        "https://t.example/cb?a=1",
        "https://t.example/cb?b=%20&a=1",
    ] {
        let page = alice
            .browser()
            .authorize(&tenant.request().with("redirect_uri", changed))
            .await;
        assert_eq!(page.error_page(), format!("400 {}", Mismatch::Unregistered));
    }
}

/// RFC 8252 sections 7.1 and 7.3: applications on a device.
#[tokio::test]
async fn a_native_application_is_redirected_to_its_scheme_or_any_loopback_port() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let native = |client: &mut idsvc::oauth::client::Client| {
        client.token_endpoint_auth_methods = [AuthMethod::None].into();
        let uris = [
            "com.example.app:/cb",
            "http://127.0.0.1/cb",
            "http://localhost/name",
        ];
        client.redirect_uris = uris.map(str::to_owned).to_vec();
    };
    let app = server.client_with("app", native).await;
    for uri in [
        "com.example.app:/cb",
        "http://127.0.0.1/cb",
        "http://127.0.0.1:49152/cb",
        "http://localhost:58135/name",
    ] {
        let request = app.request().with("redirect_uri", uri);
        let callback = alice.browser().authorize(&request).await.through().await;
        assert_eq!(callback.uri, uri);
        let tokens = app
            .redeem(&callback.code())
            .with("redirect_uri", uri)
            .await
            .tokens();
        assert!(app.is_welcome(&tokens).await);
    }
    for uri in [
        "http://127.0.0.1:49152/other",
        "http://localhost:49152/cb",
        "http://127.0.0.1:49152/name",
        "http://127.0.0.1:49152@evil.example/cb",
    ] {
        let page = alice
            .browser()
            .authorize(&app.request().with("redirect_uri", uri))
            .await;
        assert_eq!(
            page.error_page(),
            format!("400 {}", Mismatch::Unregistered),
            "{uri}"
        );
    }
    let web = server
        .client_with("web", |client| {
            client.redirect_uris = vec!["http://127.0.0.1/cb".to_owned()];
        })
        .await;
    let page = alice
        .browser()
        .authorize(&web.request().with("redirect_uri", "http://127.0.0.1:1/cb"))
        .await;
    assert_eq!(page.error_page(), format!("400 {}", Mismatch::Unregistered));
}

/// Section 4.1.2: `state` comes back as it was sent, byte for byte, and only when it was sent.
#[tokio::test]
async fn state_is_returned_byte_for_byte() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let longest = "aZ0-._~".repeat(19);
    for state in [longest.as_str(), "a b+c&d=e%20f#g?h", "\"<é漢>\\", "%00", " "] {
        let callback = browser
            .authorize(&acme.request().with("state", state))
            .await
            .through()
            .await;
        assert_eq!(callback.get("state"), Some(state));
        assert_eq!(callback.names(), ["code", "state", "iss"]);
        let refused = browser
            .authorize(&acme.request().with("state", state).with("prompt", "none login"))
            .await
            .callback();
        assert_eq!(refused.get("state"), Some(state));
    }
    let request = acme.request().without("state");
    assert_eq!(
        browser.authorize(&request).await.callback().names(),
        ["code", "iss"]
    );
    let refused = browser
        .authorize(&request.with("response_type", "token"))
        .await
        .callback();
    assert_eq!(refused.names(), ["error", "error_description", "iss"]);
}

/// Section 10.10: a code cannot be guessed, and no two are alike.
#[tokio::test]
async fn codes_are_long_and_never_the_same() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let (one, other) = (acme.code(&browser).await, acme.code(&browser).await);
    for code in [&one, &other] {
        assert!(code.starts_with("idsvc_ac_") && code.len() > 9 + 43, "{code}");
    }
    assert_ne!(one, other);
    assert_ne!(one[40..], other[40..]);
}

/// Section 4.1.2.1: what is wrong with a request is told to the client, with its `state`.
#[tokio::test]
async fn a_refusal_goes_back_to_the_client() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let request = acme.request();
    let refused = [
        (request.clone().without("response_type"), "invalid_request"),
        (
            request.clone().with("response_type", "token"),
            "unsupported_response_type",
        ),
        (
            request.clone().with("response_type", "code id_token"),
            "unsupported_response_type",
        ),
        (
            request.clone().with("response_mode", "fragment"),
            "invalid_request",
        ),
        (request.clone().with("scope", "openid a\"b"), "invalid_scope"),
        (request.clone().with("max_age", "-1"), "invalid_request"),
        (request.clone().with("claims", "[]"), "invalid_request"),
        (
            request.clone().with("nonce", &"n".repeat(1025)),
            "invalid_request",
        ),
    ];
    for (request, error) in refused {
        let callback = browser.authorize(&request).await.callback();
        assert_eq!(callback.error(), error);
        assert_eq!(callback.uri, acme.redirect_uri());
        assert_eq!(callback.get("state"), Some("state of acme"));
        assert_eq!(callback.get("iss"), Some(ISSUER));
    }
    let machine = server
        .client_with("machine", |client| {
            client.grant_types = [GrantType::RefreshToken].into();
        })
        .await;
    let callback = browser.authorize(&machine.request()).await.callback();
    assert_eq!(callback.error(), "unauthorized_client");
}

/// Section 3.3: the service may grant less than was asked for, and says what it granted.
#[tokio::test]
async fn scope_values_a_client_may_not_have_are_left_out() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let ask = async |scope: &str| {
        let tokens = acme
            .tokens_for(&browser, &acme.request().with("scope", scope))
            .await;
        tokens.0["scope"].clone()
    };
    assert_eq!(
        ask("notes.write openid services:all").await,
        "notes.write openid authenticated"
    );
    assert_eq!(
        ask("  openid openid  notes.read ").await,
        "openid notes.read authenticated"
    );
    assert_eq!(ask("services:all").await, "authenticated");
    assert_eq!(
        ask("anonymous authenticated openid").await,
        "openid authenticated"
    );
    let tokens = acme.tokens_for(&browser, &acme.request().without("scope")).await;
    assert_eq!(tokens.scope(), ["openid", "notes.read", "authenticated"]);
    server
        .change_client(&acme, |client| client.scope = "openid".parse().unwrap())
        .await;
    assert_eq!(ask("openid notes.read").await, "openid authenticated");
}

/// Some libraries accept only the scope that they asked for. The grant is the same with and without the marker.
#[tokio::test]
async fn a_client_can_do_without_the_marker_of_its_tokens() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let acme = server
        .client_with("acme", |client| client.scope_marker = false)
        .await;
    let claims = r#"{"userinfo":{"name":null},"id_token":{"name":null}}"#;
    let request = acme
        .request()
        .with("scope", "openid email")
        .with("claims", claims);
    let first = acme.tokens_for(&alice.browser(), &request).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    for tokens in [&first, &second] {
        assert_eq!(tokens.scope(), ["openid", "email"]);
        assert_eq!(tokens.access().claims["scope"], "openid email");
        assert_eq!(tokens.id().claims["name"], "alice Example", "no claim is lost");
        let userinfo = acme.userinfo(tokens.access_token()).await.json();
        assert_eq!(userinfo["name"], "alice Example");
    }
    for token in [second.access_token(), second.refresh_token()] {
        assert_eq!(acme.introspect(token).await.json()["scope"], "openid email");
    }
    let narrow = acme.refresh(second.refresh_token()).with("scope", "openid");
    let narrow = narrow.await.tokens();
    assert_eq!(narrow.scope(), ["openid"]);
    server
        .change_client(&acme, |client| client.scope_marker = true)
        .await;
    let marked = acme.refresh(narrow.refresh_token()).await.tokens();
    assert_eq!(marked.scope(), ["openid", "email", "authenticated"]);
}

/// RFC 9110 section 15.5.6, and what lies beside the paths of the service.
#[tokio::test]
async fn other_methods_and_paths_are_nobodys() {
    let (server, acme, _alice) = scene().await;
    for (method, path, allowed) in [
        ("DELETE", "/oauth2/authorize", "GET, POST"),
        ("GET", "/oauth2/token", "POST"),
        ("PUT", "/oauth2/token", "POST"),
        ("GET", "/oauth2/introspect", "POST"),
        ("GET", "/oauth2/revoke", "POST"),
        ("OPTIONS", "/oauth2/token", "POST"),
        ("HEAD", "/oauth2/authorize", "GET, POST"),
        ("HEAD", "/login", "GET, POST"),
        ("HEAD", "/consent", "GET, POST"),
        ("POST", "/oauth2/jwks", "GET, HEAD"),
        ("POST", "/.well-known/openid-configuration", "GET, HEAD"),
    ] {
        let reply = server.call(method, path).await;
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, Some(allowed)),
            "{method} {path}"
        );
    }
    let query = write_form(&acme.request().parameters);
    for path in [
        "/oauth2/authorize/",
        "/oauth2//authorize",
        "/OAuth2/authorize",
        "/authorize",
    ] {
        assert_eq!(server.get(&format!("{path}?{query}")).await.status, 404, "{path}");
    }
}
