//! Resource Indicators for OAuth 2.0: tokens for the APIs that a client names.

use idsvc::admin::api::{AddApi, RemoveApi, UpdateApi};
use idsvc::jose::alg::Algorithm;
use idsvc::oauth::access_token::AccessTokenTyp;
use idsvc::oauth::client::{Client, ClientOrigin, ConsentRequirement, GrantType};
use idsvc::oauth::resource;
use idsvc::oauth::{ApiFields, Refusal};
use serde_json::{Value, json};

use crate::harness::reply::line_of;
use crate::harness::wire::Call;
use crate::harness::{AuthorizationRequest, ISSUER, Person, RelyingParty, Server, Tokens};

const NOTES: &str = "https://api.example/notes";
const MAIL: &str = "https://api.example/mail";

fn refusal(refused: &Refusal) -> String {
    line_of(refused)
}

async fn add_api(server: &Server, id: &str, change: impl FnOnce(&mut ApiFields)) {
    let mut fields = ApiFields {
        scope: Some(vec![format!("{id}.read"), format!("{id}.write")]),
        ..ApiFields::default()
    };
    change(&mut fields);
    let request = AddApi {
        id: id.to_owned(),
        identifier: format!("https://api.example/{id}"),
        fields,
    };
    server.admin().call(request).await.unwrap();
}

async fn change_api(server: &Server, id: &str, fields: ApiFields) {
    let id = id.to_owned();
    server.admin().call(UpdateApi { id, fields }).await.unwrap();
}

/// Two APIs, a client that may name both, and a user.
async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start().await;
    for id in ["notes", "mail"] {
        add_api(&server, id, |_| {}).await;
    }
    let acme = server.client_with("acme", names_both).await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

fn names_both(client: &mut Client) {
    client.apis = ["notes", "mail"].map(str::to_owned).into();
}

fn asking(acme: &RelyingParty, scope: &str) -> AuthorizationRequest {
    acme.request().with("scope", scope)
}

fn audience(tokens: &Tokens) -> Value {
    tokens.access().claims["aud"].clone()
}

/// Sections 2.1 and 2.2: the request names an API. The token is for this API and has only its scope. The issuer is in
/// the audience as well, because `openid` was granted and the token request named no API.
#[tokio::test]
async fn a_token_is_for_the_api_that_the_authorization_request_names() {
    let (_server, acme, alice) = scene().await;
    let request = asking(&acme, "openid notes.read mail.read").and("resource", NOTES);
    let tokens = acme.tokens_for(&alice.browser(), &request).await;
    assert_eq!(audience(&tokens), json!([NOTES, ISSUER]));
    assert_eq!(tokens.scope(), ["openid", "notes.read", "authenticated"]);
    assert!(acme.is_welcome(&tokens).await, "the issuer is in the audience");
    let plain = asking(&acme, "notes.read").and("resource", NOTES);
    let tokens = acme.tokens_for(&alice.browser(), &plain).await;
    assert_eq!(audience(&tokens), NOTES);
}

/// Section 2.2: a token request that names an API gets a token for exactly this API. A refresh without `resource` gets
/// a token for all granted APIs.
#[tokio::test]
async fn a_token_request_narrows_what_the_grant_is_for() {
    let (_server, acme, alice) = scene().await;
    let request = asking(&acme, "openid notes.read mail.read")
        .and("resource", NOTES)
        .and("resource", MAIL);
    let code = acme_code(&alice, &request).await;
    let narrow = acme.redeem(&code).with("resource", MAIL).await.tokens();
    assert_eq!(audience(&narrow), MAIL);
    assert_eq!(narrow.scope(), ["openid", "mail.read", "authenticated"]);
    assert!(!acme.is_welcome(&narrow).await, "UserInfo is not among the APIs");
    let whole = acme.refresh(narrow.refresh_token()).await.tokens();
    assert_eq!(audience(&whole), json!([MAIL, NOTES, ISSUER]));
    assert_eq!(
        whole.scope(),
        ["openid", "notes.read", "mail.read", "authenticated"]
    );
    let again = acme
        .refresh(whole.refresh_token())
        .with("resource", NOTES)
        .await
        .tokens();
    assert_eq!(audience(&again), NOTES);
}

async fn acme_code(alice: &Person, request: &AuthorizationRequest) -> String {
    alice.browser().authorize(request).await.through().await.code()
}

/// A refusal consumes neither a code nor a refresh token.
#[tokio::test]
async fn a_token_request_cannot_name_more_than_was_granted() {
    let (_server, acme, alice) = scene().await;
    let request = asking(&acme, "openid notes.read").and("resource", NOTES);
    let code = acme_code(&alice, &request).await;
    for wrong in [MAIL, ISSUER, "https://unknown.example"] {
        let refused = acme.redeem(&code).with("resource", wrong).await;
        assert_eq!(
            refused.refusal(),
            refusal(&resource::not_granted(wrong)),
            "{wrong}"
        );
    }
    let both = acme
        .redeem(&code)
        .and("resource", NOTES)
        .and("resource", MAIL)
        .await;
    assert_eq!(both.refusal(), refusal(&resource::not_granted(MAIL)));
    let tokens = acme.redeem(&code).await.tokens();
    let smuggled = acme.refresh(tokens.refresh_token()).with("resource", MAIL).await;
    assert_eq!(smuggled.refusal(), refusal(&resource::not_granted(MAIL)));
    let refreshed = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(audience(&refreshed), json!([NOTES, ISSUER]));
    assert_eq!(refreshed.scope(), ["openid", "notes.read", "authenticated"]);
}

/// Section 2: an API that is unknown, or that the client may not name, is `invalid_target`, at both endpoints.
#[tokio::test]
async fn a_client_names_only_its_apis_and_open_ones() {
    let (server, acme, alice) = scene().await;
    let other = server.client("other").await;
    for wrong in [
        NOTES,
        "https://unknown.example",
        "notes",
        "https://api.example/notes/",
        "https://api.example/notes#x",
        "not a uri",
    ] {
        let request = other.request().and("resource", wrong);
        let answer = alice.browser().authorize(&request).await.callback();
        assert_eq!(answer.error(), "invalid_target", "{wrong}");
    }
    let many = (0..=10).fold(acme.request(), |request, number| {
        request.and("resource", &format!("https://{number}.example"))
    });
    let answer = alice.browser().authorize(&many).await.callback();
    assert_eq!(answer.error(), "invalid_target");
    let open = ApiFields {
        open: Some(true),
        ..ApiFields::default()
    };
    change_api(&server, "mail", open).await;
    let request = asking(&other, "openid mail.read").and("resource", MAIL);
    let tokens = other.tokens_for(&alice.browser(), &request).await;
    assert_eq!(audience(&tokens), json!([MAIL, ISSUER]));
    assert_eq!(tokens.scope(), ["openid", "mail.read", "authenticated"]);
}

/// If an application does not send `resource`, the requested scope values determine the API.
#[tokio::test]
async fn without_a_name_the_scope_chooses_the_api() {
    let (_server, acme, alice) = scene().await;
    for (scope, expected) in [
        ("openid", json!(ISSUER)),
        ("profile", json!(ISSUER)),
        ("notes.read", json!(NOTES)),
        ("openid notes.read", json!([NOTES, ISSUER])),
        ("notes.read mail.write", json!([MAIL, NOTES])),
    ] {
        let tokens = acme.tokens_for(&alice.browser(), &asking(&acme, scope)).await;
        assert_eq!(audience(&tokens), expected, "{scope}");
        let narrowed = acme.refresh(tokens.refresh_token()).with("resource", NOTES).await;
        let is_among = expected.to_string().contains(NOTES);
        assert_eq!(narrowed.status == 200, is_among, "{scope}");
    }
}

/// URL libraries of clients add the slash of an empty path.
#[tokio::test]
async fn an_api_without_a_path_is_found_with_a_slash() {
    let server = Server::start().await;
    let request = AddApi {
        id: "mcp".to_owned(),
        identifier: "https://mcp.example".to_owned(),
        fields: ApiFields {
            open: Some(true),
            ..ApiFields::default()
        },
    };
    server.admin().call(request).await.unwrap();
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let request = asking(&acme, "profile").and("resource", "https://mcp.example/");
    let code = acme_code(&alice, &request).await;
    let exchange = acme.redeem(&code).with("resource", "https://mcp.example/");
    assert_eq!(audience(&exchange.await.tokens()), "https://mcp.example");
}

/// Every grant takes `resource`, and a refresh keeps it. RFC 3986 section 6.2: case of scheme and host, the default
/// port and an empty path do not count, the path does. The token has the registered identifier.
#[tokio::test]
async fn an_api_is_found_by_any_spelling_of_its_scheme_and_host() {
    let server = Server::start().await;
    let robot = server
        .client_with("robot", |client| {
            client.grant_types.insert(GrantType::ClientCredentials);
            client.max_scope = Some("notes.read".parse().unwrap());
        })
        .await;
    let lower = "https://mcp.example.com/mcp";
    for (identifier, resource, is_same) in [
        (lower, "https://MCP.example.com/mcp", true),
        (lower, "HTTPS://mcp.example.com:443/mcp", true),
        ("https://mcp.example.com", "https://mcp.example.com/", true),
        ("https://MCP.Example.com:443", "https://mcp.example.com", true),
        (lower, "https://mcp.example.com/mcp/", false),
        (lower, "https://mcp.example.com/MCP", false),
        (lower, "https://mcp.example.com:8443/mcp", false),
    ] {
        let add = AddApi {
            id: "api".to_owned(),
            identifier: identifier.to_owned(),
            fields: ApiFields::default(),
        };
        server.admin().call(add).await.unwrap();
        let may_name = |client: &mut Client| client.apis = ["api".to_owned()].into();
        server.change_client(&robot, may_name).await;
        let ask = robot
            .post("/oauth2/token")
            .with("grant_type", "client_credentials")
            .with("scope", "notes.read")
            .with("resource", resource);
        let reply = ask.await;
        if is_same {
            assert_eq!(audience(&reply.tokens()), identifier, "{resource}");
            let add = AddApi {
                id: "twin".to_owned(),
                identifier: resource.to_owned(),
                fields: ApiFields::default(),
            };
            let twin = server.admin().call(add).await.unwrap_err().to_string();
            assert!(twin.contains("api api has this identifier already"), "{twin}");
        } else {
            assert_eq!(reply.error(), "invalid_target", "{resource}");
        }
        server.change_client(&robot, |client| client.apis.clear()).await;
        let remove = RemoveApi { id: "api".to_owned() };
        server.admin().call(remove).await.unwrap();
    }
}

/// The code's grant remembers the registered identifier, so the token request may name another spelling.
#[tokio::test]
async fn a_token_request_may_spell_the_api_otherwise_than_the_authorization_request() {
    let (_server, acme, alice) = scene().await;
    let request = asking(&acme, "notes.read")
        .and("resource", "https://API.example:443/notes")
        .and("resource", NOTES);
    let code = acme_code(&alice, &request).await;
    let redeem = acme
        .redeem(&code)
        .with("resource", "HTTPS://api.example/notes")
        .and("resource", "https://api.EXAMPLE/notes");
    let tokens = redeem.await.tokens();
    assert_eq!(audience(&tokens), NOTES);
    let refused = acme
        .refresh(tokens.refresh_token())
        .with("resource", "https://api.example/Notes");
    assert_eq!(refused.await.error(), "invalid_target");
}

#[tokio::test]
async fn grants_without_a_browser_take_a_name_too() {
    let (server, _, _) = scene().await;
    let device = server
        .client_with("device", |client| {
            names_both(client);
            client.grant_types.insert(GrantType::Anonymous);
            client.grant_types.insert(GrantType::ClientCredentials);
            client.max_scope = Some("notes.read mail.read".parse().unwrap());
        })
        .await;
    let ask = |grant: &str| device.post("/oauth2/token").with("grant_type", grant);
    let anonymous = "urn:service:oauth2:grant-type:anonymous";
    let tokens = ask(anonymous)
        .with("scope", "openid notes.read mail.read")
        .with("resource", NOTES)
        .await
        .tokens();
    assert_eq!(audience(&tokens), NOTES);
    assert_eq!(tokens.scope(), ["openid", "notes.read", "anonymous"]);
    let refreshed = device.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(audience(&refreshed), json!([NOTES, ISSUER]));
    let own = |resource: &'static str| {
        ask("client_credentials")
            .with("scope", "notes.read mail.read")
            .with("resource", resource)
    };
    let tokens = own(MAIL).await.tokens();
    assert_eq!(audience(&tokens), MAIL);
    assert_eq!(tokens.scope(), ["mail.read"]);
    add_api(&server, "open", |fields| fields.open = Some(true)).await;
    let open = |grant| {
        ask(grant)
            .with("scope", "open.read")
            .with("resource", "https://api.example/open")
    };
    let tokens = open(anonymous).await.tokens();
    assert_eq!(tokens.scope(), ["open.read", "anonymous"]);
    assert_eq!(open("client_credentials").await.error(), "invalid_scope");
    let named = own("https://api.example/open").await;
    assert_eq!(
        named.refusal(),
        refusal(&resource::unknown("https://api.example/open")),
        "open is for users"
    );
    for grant in [anonymous, "client_credentials"] {
        let refused = ask(grant).with("resource", "https://unknown.example").await;
        assert_eq!(refused.error(), "invalid_target", "{grant}");
    }
}

/// Settings of an API take precedence over settings of the client, and those over settings of the service.
#[tokio::test]
async fn apis_and_clients_have_lifetimes_algorithms_and_types_of_their_own() {
    let (server, _, alice) = scene().await;
    let acme = server
        .client_with("shop", |client| {
            names_both(client);
            let metadata = json!({"access_token_lifetime": 600, "refresh_token_lifetime": 3600,
                "access_token_typ": "JWT", "apis": ["notes", "mail"]});
            let changed: idsvc::oauth::ClientMetadata = serde_json::from_value(metadata).unwrap();
            client.access_token_lifetime = changed.access_token_lifetime;
            client.refresh_token_lifetime = changed.refresh_token_lifetime;
            client.access_token_typ = changed.access_token_typ;
        })
        .await;
    let strict = ApiFields {
        access_token_lifetime: Some(300),
        access_token_alg: Some(Algorithm::Rs256.into()),
        access_token_typ: Some(AccessTokenTyp::AtJwt.into()),
        ..ApiFields::default()
    };
    change_api(&server, "notes", strict).await;
    for (scope, seconds, alg, typ) in [
        ("openid", 600, "ES256", "JWT"),
        ("mail.read", 600, "ES256", "JWT"),
        ("notes.read", 300, "RS256", "at+jwt"),
        ("notes.read mail.read", 300, "RS256", "at+jwt"),
    ] {
        let tokens = acme.tokens_for(&alice.browser(), &asking(&acme, scope)).await;
        let token = acme.verify(tokens.access_token()).await;
        assert_eq!(tokens.0["expires_in"], seconds, "{scope}");
        let lasts = |name: &str| token.claims[name].as_u64().unwrap();
        assert_eq!(lasts("exp") - lasts("iat"), seconds, "{scope}");
        assert_eq!(token.header["alg"], alg, "{scope}");
        assert_eq!(token.header["typ"], typ, "{scope}");
    }
    let tokens = acme.tokens(&alice.browser()).await;
    server.advance(3601);
    let late = acme.refresh(tokens.refresh_token()).await;
    assert_eq!(late.error(), "invalid_grant");
}

/// RFC 7662 section 4: a client may introspect its own tokens, and tokens for an API that names it.
#[tokio::test]
async fn introspection_answers_a_client_about_its_own_apis_only() {
    let (server, acme, alice) = scene().await;
    let notes_server = server.client("notes-server").await;
    let stranger = server.client("stranger").await;
    let named = ApiFields {
        introspection_clients: Some(vec!["notes-server".to_owned()]),
        ..ApiFields::default()
    };
    change_api(&server, "notes", named).await;
    let browser = alice.browser();
    let for_notes = acme
        .tokens_for(&browser, &asking(&acme, "openid notes.read"))
        .await;
    let for_mail = acme.tokens_for(&browser, &asking(&acme, "mail.read")).await;
    let for_nothing = acme.tokens_for(&browser, &asking(&acme, "openid")).await;
    for (party, about_notes, about_mail) in [
        (&acme, true, true),
        (&notes_server, true, false),
        (&stranger, false, false),
    ] {
        let active = async |tokens: &Tokens| {
            let reply = party.introspect(tokens.access_token()).await.json();
            reply["active"].as_bool().unwrap()
        };
        assert_eq!(active(&for_notes).await, about_notes, "{}", party.client_id());
        assert_eq!(active(&for_mail).await, about_mail, "{}", party.client_id());
        assert!(active(&for_nothing).await, "{}", party.client_id());
    }
    let reply = notes_server.introspect(for_notes.access_token()).await.json();
    assert_eq!(reply["aud"], json!([NOTES, ISSUER]));
}

/// A grant is refused if its API was removed, or if the client may no longer name the API.
#[tokio::test]
async fn a_grant_for_an_api_that_is_gone_is_refused_and_stays() {
    let (server, acme, alice) = scene().await;
    let request = asking(&acme, "openid notes.read").and("resource", NOTES);
    let tokens = acme.tokens_for(&alice.browser(), &request).await;
    server.change_client(&acme, |client| client.apis.clear()).await;
    let refused = acme.refresh(tokens.refresh_token()).await;
    assert_eq!(refused.refusal(), refusal(&resource::NO_API_LEFT));
    server.change_client(&acme, names_both).await;
    let refreshed = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(audience(&refreshed), json!([NOTES, ISSUER]));
}

/// Section 3: the user sees which API a client asks for, even if the client asks for no scope value of the API. A
/// consent to one API does not cover another API.
#[tokio::test]
async fn consent_is_asked_for_each_api() {
    let (server, _, alice) = scene().await;
    for (id, name) in [("notes", "Notebook"), ("mail", "Letters")] {
        let fields = ApiFields {
            name: Some(name.to_owned()),
            open: Some(true),
            ..ApiFields::default()
        };
        change_api(&server, id, fields).await;
    }
    let stranger = server
        .client_with("stranger", |client| {
            client.origin = ClientOrigin::DynamicRegistration;
            client.consent = ConsentRequirement::Require;
        })
        .await;
    let browser = alice.browser();
    for (resource, name, is_asked) in [
        (NOTES, "Notebook", true),
        (NOTES, "Notebook", false),
        (MAIL, "Letters", true),
    ] {
        let request = asking(&stranger, "profile").and("resource", resource);
        let mut screen = browser.authorize(&request).await;
        if screen.text().contains("type=\"password\"") {
            screen = screen.sign_in().await;
        }
        let asks = screen.status == 200;
        assert_eq!(asks, is_asked, "{resource}");
        if asks {
            assert!(screen.text().contains(name), "{}", screen.text());
            screen = screen.allow().await;
        }
        let code = screen.callback().code();
        assert_eq!(audience(&stranger.redeem(&code).await.tokens()), resource);
    }
}

/// The page has one line for the use of an API, or else lines of its scope values.
#[tokio::test]
async fn the_use_of_an_api_is_not_said_beside_its_scope_values() {
    let (server, _, alice) = scene().await;
    let stranger = server
        .client_with("stranger", |client| {
            client.consent = ConsentRequirement::Require;
            client.apis = ["notes".to_owned(), "mail".to_owned()].into();
        })
        .await;
    for (scope, resource, lines) in [
        ("openid", NOTES, [true, false, false]),
        ("openid notes.read", NOTES, [false, false, true]),
        ("openid notes.read", MAIL, [false, true, false]),
    ] {
        let request = asking(&stranger, scope).and("resource", resource);
        let mut page = alice.browser().authorize(&request).await;
        if page.text().contains("type=\"password\"") {
            page = page.sign_in().await;
        }
        let text = page.text();
        let shown = [
            format!("Use {NOTES}"),
            format!("Use {MAIL}"),
            "notes.read".to_owned(),
        ];
        assert_eq!(
            shown.map(|line| text.contains(&format!(">{line}<"))),
            lines,
            "{scope} {resource}: {text}"
        );
    }
}

/// A request without `scope` of a client that registered itself asks for all scope values of the API that it names.
#[tokio::test]
async fn a_client_that_registered_itself_reaches_open_apis_only() {
    let (server, _, alice) = scene().await;
    let open = ApiFields {
        open: Some(true),
        ..ApiFields::default()
    };
    change_api(&server, "notes", open).await;
    let stranger = server
        .client_with("stranger", |client| {
            client.origin = ClientOrigin::DynamicRegistration;
            client.scope = "openid".parse().unwrap();
            client.default_scope = "openid".parse().unwrap();
        })
        .await;
    let request = stranger.request().without("scope").and("resource", NOTES);
    let tokens = stranger.tokens_for(&alice.browser(), &request).await;
    assert_eq!(
        tokens.scope(),
        ["openid", "notes.read", "notes.write", "authenticated"]
    );
    let refused = stranger.request().and("resource", MAIL);
    let page = alice.browser().authorize(&refused).await.error_page();
    assert!(page.contains("invalid_target: the API is unknown"), "{page}");
    let beyond = asking(&stranger, "openid mail.read notes.read");
    let tokens = stranger.tokens_for(&alice.browser(), &beyond).await;
    assert_eq!(tokens.scope(), ["openid", "notes.read", "authenticated"]);
}

/// `/v4/tokens`, where clients authenticate with an API key, takes `resource` too.
#[tokio::test]
async fn a_refresh_by_api_key_takes_a_name() {
    let (server, acme, alice) = scene().await;
    let key = server
        .admin()
        .call(idsvc::admin::client::AddApiKey {
            client_id: "acme".to_owned(),
        })
        .await
        .unwrap();
    let key = key.api_key.unwrap();
    let tokens = acme
        .tokens_for(&alice.browser(), &asking(&acme, "openid notes.read mail.read"))
        .await;
    let refreshed: Call = server
        .post("/v4/tokens")
        .basic("", key.reveal())
        .with("grant_type", "refresh_token")
        .with("refresh_token", tokens.refresh_token())
        .with("resource", NOTES);
    assert_eq!(audience(&refreshed.await.tokens()), NOTES);
}
