//! OpenID Connect Core 1.0: the ID token, claims, and `UserInfo`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use serde_json::{Value, json};

use crate::harness::{ISSUER, START, Server, Tokens, scene};

fn names(claims: &Value) -> Vec<&str> {
    claims.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Section 2: each claim, RS256 unless the client wants otherwise, and no claim that was not asked for.
#[tokio::test]
async fn the_id_token_says_who_signed_in_when_and_for_whom() {
    let (server, acme, alice) = scene().await;
    let request = acme
        .request()
        .with("scope", "openid profile email phone address")
        .with("nonce", "n\"é-1");
    let browser = alice.browser();
    let code = browser.authorize(&request).await.through().await.code();
    server.advance(9);
    let tokens = acme.redeem(&code).await.tokens();
    let token = acme.verify(tokens.id_token()).await;
    assert_eq!(names(&token.header), ["alg", "kid", "typ"]);
    assert_eq!(
        (&token.header["alg"], &token.header["typ"]),
        (&json!("RS256"), &json!("JWT"))
    );
    let mut claims = token.claims.clone();
    let sid = claims.as_object_mut().unwrap().remove("sid").unwrap();
    assert!(sid.as_str().unwrap().parse::<uuid::Uuid>().is_ok());
    let hash = digest::digest(&digest::SHA256, tokens.access_token().as_bytes());
    assert_eq!(
        claims,
        json!({
            "iss": ISSUER,
            "sub": alice.sub(),
            "aud": "acme",
            "azp": "acme",
            "iat": START.seconds() + 9,
            "exp": START.seconds() + 9 + 3_600,
            "auth_time": START.seconds(),
            "nonce": "n\"é-1",
            "at_hash": URL_SAFE_NO_PAD.encode(&hash.as_ref()[..16]),
            "acr": "1",
            "amr": ["pwd"],
        })
    );
    assert_eq!(tokens.0["iat"], claims["iat"]);
}

/// Section 3.1.3.7: `nonce` comes back when it was sent, byte for byte, and not otherwise.
#[tokio::test]
async fn a_nonce_is_returned_when_it_was_sent() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let without = acme.tokens(&browser).await.id().claims;
    assert_eq!(without.get("nonce"), None);
    for nonce in ["n".repeat(1_024), "0".to_owned(), "a b+%20&=".to_owned()] {
        let tokens = acme
            .tokens_for(&browser, &acme.request().with("nonce", &nonce))
            .await;
        assert_eq!(tokens.id().claims["nonce"], nonce);
    }
}

/// Sections 5.3.1 and 5.3.2: by GET and by POST, JSON, with the subject of the ID token.
#[tokio::test]
async fn userinfo_is_for_the_subject_of_the_id_token() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let get = acme.userinfo(tokens.access_token()).await;
    assert_eq!((get.status, get.json()), (200, json!({"sub": alice.sub()})));
    assert!(get.is_not_stored());
    assert_eq!(get.json()["sub"], tokens.id().claims["sub"]);
    let posted = server
        .post("/oauth2/userinfo")
        .bearer(tokens.access_token())
        .await;
    assert_eq!(posted.json(), get.json());
}

/// Sections 5.1 and 5.4: what each scope value brings, and of which type.
#[tokio::test]
async fn each_scope_brings_its_claims() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let ask = async |scope: &str| {
        let tokens = acme
            .tokens_for(&browser, &acme.request().with("scope", scope))
            .await;
        let mut claims = acme.userinfo(tokens.access_token()).await.json();
        assert_eq!(
            claims.as_object_mut().unwrap().remove("sub").unwrap(),
            alice.sub()
        );
        claims
    };
    assert_eq!(
        ask("openid profile").await,
        json!({
            "name": "alice Example", "given_name": "alice", "family_name": "Example", "middle_name": "M",
            "nickname": "nick", "preferred_username": "alice", "profile": "https://people.example/profile",
            "picture": "https://people.example/picture.png", "website": "https://people.example/",
            "gender": "female", "birthdate": "1990-05-17", "zoneinfo": "Europe/Brussels", "locale": "en-BE",
            "updated_at": START.seconds(),
        })
    );
    let email = json!({"email": "alice@example.com", "email_verified": true});
    assert_eq!(ask("email openid").await, email);
    let phone = json!({"phone_number": "+32470123456", "phone_number_verified": false});
    assert_eq!(ask("openid phone").await, phone);
    let address = ask("openid address").await;
    assert_eq!(names(&address), ["address"]);
    assert_eq!(
        names(&address["address"]),
        [
            "country",
            "formatted",
            "locality",
            "postal_code",
            "region",
            "street_address"
        ]
    );
    assert_eq!(names(&ask("openid profile email phone address").await).len(), 19);
}

/// Section 5.3.2: a claim without a value is left out, never null or empty.
#[tokio::test]
async fn claims_without_a_value_are_left_out() {
    let server = Server::start().await;
    let acme = server.client("acme").await;
    let bob = server
        .user_with("bob", |user| {
            user.email = None;
            user.phone_number = None;
            user.claims.clear();
            user.claims.insert("nickname".to_owned(), Value::Null);
        })
        .await;
    let request = acme.request().with("scope", "openid profile email phone address");
    let tokens = acme.tokens_for(&bob.browser(), &request).await;
    let claims = acme.userinfo(tokens.access_token()).await.json();
    assert_eq!(claims, json!({"sub": bob.sub(), "updated_at": START.seconds()}));
}

/// Section 5.3: the claims are those of the moment, and of the token that is shown.
#[tokio::test]
async fn userinfo_shows_the_user_as_the_record_is_now() {
    let (server, acme, alice) = scene().await;
    let tokens = acme
        .tokens_for(&alice.browser(), &acme.request().with("scope", "openid email"))
        .await;
    server
        .change_user(&alice, |user| user.email = Some("new@example.com".to_owned()))
        .await;
    assert_eq!(
        acme.userinfo(tokens.access_token()).await.json()["email"],
        "new@example.com"
    );
    let narrow = acme
        .refresh(tokens.refresh_token())
        .with("scope", "openid")
        .await
        .tokens();
    assert_eq!(names(&acme.userinfo(narrow.access_token()).await.json()), ["sub"]);
}

/// Section 5.5: claims asked for one by one come where they were asked for, also after a refresh.
#[tokio::test]
async fn single_claims_come_where_they_were_asked_for() {
    let (_server, acme, alice) = scene().await;
    let claims = r#"{"userinfo":{"name":{"essential":true},"unheard_of":null,"email":{"value":"x"}},
                     "id_token":{"email":null,"auth_time":{"essential":true},"given_name":{"odd":[1]}},
                     "elsewhere":{"name":null}}"#;
    let request = acme.request().with("claims", claims);
    let first = acme.tokens_for(&alice.browser(), &request).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    let own = [
        "acr",
        "amr",
        "at_hash",
        "aud",
        "auth_time",
        "azp",
        "email",
        "exp",
        "given_name",
        "iat",
        "iss",
        "sid",
        "sub",
    ];
    for tokens in [&first, &second] {
        assert_eq!(names(&tokens.id().claims), own);
        assert_eq!(tokens.id().claims["email"], "alice@example.com");
        let userinfo = acme.userinfo(tokens.access_token()).await.json();
        assert_eq!(names(&userinfo), ["email", "name", "sub"]);
        assert_eq!(userinfo["name"], "alice Example");
    }
}

/// Section 5.5: a client is told nothing that its registration does not allow.
#[tokio::test]
async fn single_claims_beyond_the_clients_scope_are_not_handed_out() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let acme = server
        .client_with("acme", |client| client.scope = "openid profile".parse().unwrap())
        .await;
    let claims = r#"{"userinfo":{"email":{"essential":true},"name":null},"id_token":{"address":null}}"#;
    let tokens = acme
        .tokens_for(&alice.browser(), &acme.request().with("claims", claims))
        .await;
    assert_eq!(
        names(&acme.userinfo(tokens.access_token()).await.json()),
        ["name", "sub"]
    );
    assert_eq!(tokens.id().claims.get("address"), None);
}

/// Section 5.5: what the operator takes from a client's registration is told to it no longer.
#[tokio::test]
async fn single_claims_end_with_the_clients_scope() {
    let (server, acme, alice) = scene().await;
    let claims = r#"{"userinfo":{"email":null,"name":null},"id_token":{"email":null,"name":null}}"#;
    let first = acme
        .tokens_for(&alice.browser(), &acme.request().with("claims", claims))
        .await;
    assert_eq!(first.id().claims["email"], "alice@example.com");
    server
        .change_client(&acme, |client| {
            client.scope = client.scope.filter(|value| value != "email");
        })
        .await;
    let left = acme.userinfo(first.access_token()).await.json();
    assert_eq!(names(&left), ["name", "sub"]);
    let second = acme.refresh(first.refresh_token()).await.tokens();
    assert_eq!(second.id().claims.get("email"), None);
    assert_eq!(second.id().claims["name"], "alice Example");
}

/// Section 5.4: the same holds for the claims that a scope value requests.
#[tokio::test]
async fn the_claims_of_a_scope_end_with_the_clients_scope() {
    let (server, acme, alice) = scene().await;
    let request = acme.request().with("scope", "openid email");
    let tokens = acme.tokens_for(&alice.browser(), &request).await;
    let told = acme.userinfo(tokens.access_token()).await.json();
    assert_eq!(names(&told), ["email", "email_verified", "sub"]);
    server
        .change_client(&acme, |client| {
            client.scope = client.scope.filter(|value| value != "email");
        })
        .await;
    let left = acme.userinfo(tokens.access_token()).await.json();
    assert_eq!(names(&left), ["sub"]);
}

/// Section 5.5: a refresh for less leaves out single claims beyond what it asks for, wherever they would come.
#[tokio::test]
async fn single_claims_are_narrowed_with_the_token() {
    let (_server, acme, alice) = scene().await;
    let claims = r#"{"userinfo":{"email":null,"name":null},"id_token":{"email":null,"name":null}}"#;
    let request = acme
        .request()
        .with("scope", "openid email")
        .with("claims", claims);
    let first = acme.tokens_for(&alice.browser(), &request).await;
    assert_eq!(first.id().claims["email"], "alice@example.com");
    let narrow = acme
        .refresh(first.refresh_token())
        .with("scope", "openid")
        .await
        .tokens();
    for name in ["email", "name"] {
        assert_eq!(narrow.id().claims.get(name), None, "{name}");
    }
    assert_eq!(names(&acme.userinfo(narrow.access_token()).await.json()), ["sub"]);
    let whole = acme.refresh(narrow.refresh_token()).await.tokens();
    assert_eq!(whole.id().claims["email"], "alice@example.com");
}

/// Section 5.5: a claim cannot take the place of one that the service vouches for.
#[tokio::test]
async fn a_users_own_claims_never_replace_the_tokens() {
    let server = Server::start().await;
    let acme = server.client("acme").await;
    let eve = server
        .user_with("eve", |user| {
            for name in [
                "sub",
                "iss",
                "aud",
                "exp",
                "nonce",
                "email",
                "email_verified",
                "acr",
            ] {
                user.claims.insert(name.to_owned(), json!("forged"));
            }
        })
        .await;
    let claims =
        r#"{"id_token":{"sub":null,"iss":null,"exp":null,"email":null,"email_verified":null,"acr":null}}"#;
    let request = acme
        .request()
        .with("scope", "openid email")
        .with("claims", claims);
    let tokens: Tokens = acme.tokens_for(&eve.browser(), &request).await;
    let userinfo = acme.userinfo(tokens.access_token()).await.json();
    assert_eq!(
        (&userinfo["sub"], &userinfo["email_verified"]),
        (&json!(eve.sub()), &json!(true))
    );
    assert!(!tokens.id().claims.to_string().contains("forged"));
    assert!(!userinfo.to_string().contains("forged"));
}

/// The Fetch standard: a public client's script may read its user's claims.
#[tokio::test]
async fn a_public_clients_script_may_read_claims() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let app = server.public_client("app").await;
    let tokens = app.tokens(&alice.browser()).await;
    let reply = app
        .userinfo(tokens.access_token())
        .header("origin", "https://app.example")
        .await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (200, Some("https://app.example"))
    );
    let refused = app.userinfo("x").header("origin", "https://app.example").await;
    assert_eq!(
        refused.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    assert!(
        refused
            .header("access-control-expose-headers")
            .unwrap()
            .contains("www-authenticate")
    );
    let preflight = server
        .call("OPTIONS", "/oauth2/userinfo")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .header(
            "access-control-request-headers",
            "authorization,cookie,traceparent",
        )
        .await;
    let allowed = |name| preflight.header(&format!("access-control-{name}"));
    assert_eq!(
        allowed("allow-headers"),
        Some("authorization, content-type, dpop, traceparent")
    );
    assert_eq!(allowed("max-age"), Some("7200"));
    assert_eq!(allowed("allow-credentials"), None);
}
