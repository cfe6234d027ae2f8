//! From anonymous to known: `anonymous_refresh_token` in a pushed request. The sign-ins that create an account are in
//! `federation/anonymous.rs`.

use idsvc::flow::sweep::{Cursor, sweep};
use idsvc::identity::User;
use idsvc::oauth::client::{AuthMethod, Client, ConsentRequirement, GrantType};
use idsvc::store::tables::{USERS, USERS_BY_LOGIN_NAME};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::audit::Audit;
use crate::harness::dpop::KeyHolder;
use crate::harness::wire::Call;
use crate::harness::{AuthorizationRequest, Person, RelyingParty, Server, Tokens};

const GRANT: &str = "urn:service:oauth2:grant-type:anonymous";
pub(crate) const DAY: u64 = 24 * 60 * 60;
pub(crate) const USED: &str = "access_denied: the anonymous user was upgraded or has ended; \
    send the user again without anonymous_refresh_token";
pub(crate) const NOT_PUSHED: &str = "invalid_request: push anonymous_refresh_token to /oauth2/par: \
    a refresh token must not be in an address";

/// A client that gives devices anonymous users.
pub(crate) fn opted_in(client: &mut Client) {
    client.grant_types.insert(GrantType::Anonymous);
}

/// A device with a new anonymous user.
pub(crate) async fn device(party: &RelyingParty) -> Tokens {
    party
        .post("/oauth2/token")
        .with("grant_type", GRANT)
        .await
        .tokens()
}

/// Pushes a request with a refresh token.
pub(crate) fn push(party: &RelyingParty, request: &AuthorizationRequest, token: &str) -> Call {
    let parameters = request.clone().without("client_id").parameters;
    let call = party.post("/oauth2/par").fields(&parameters);
    call.with("anonymous_refresh_token", token)
}

/// The request that a browser brings after the usual one was pushed with this token.
pub(crate) async fn pushed(party: &RelyingParty, token: &str) -> AuthorizationRequest {
    brought(party, push(party, &party.request(), token)).await
}

async fn brought(party: &RelyingParty, push: Call) -> AuthorizationRequest {
    let reply = push.await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    AuthorizationRequest::default()
        .with("client_id", party.client_id())
        .with("request_uri", reply.json()["request_uri"].as_str().unwrap())
}

pub(crate) fn uuid_of(tokens: &Tokens) -> Uuid {
    tokens.0["uuid"].as_str().unwrap().parse().unwrap()
}

pub(crate) fn record_of(server: &Server, uuid: Uuid) -> Option<User> {
    let store = &server.app.core.store;
    store
        .read_blocking(|snapshot| USERS.get(snapshot, &uuid))
        .unwrap()
}

pub(crate) async fn sweep_all(server: &Server) {
    let mut cursor = Cursor::default();
    while sweep(&server.app.core, &mut cursor, server.clock.now())
        .await
        .unwrap()
        .more
    {}
}

fn anonymous_sub(tokens: &Tokens) -> Option<Value> {
    tokens.access().claims.get("anonymous_sub").cloned()
}

async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start().await;
    let acme = server.client_with("acme", opted_in).await;
    let alice = server.user("alice").await;
    (server, acme, alice)
}

async fn has_ended(party: &RelyingParty, device: &Tokens) -> bool {
    let reply = party.refresh(device.refresh_token()).await;
    match reply.status {
        200 => false,
        _ => reply.error() == "invalid_grant",
    }
}

/// The account's first access token says which anonymous user was linked, and no later one does.
#[tokio::test]
async fn a_sign_in_to_an_existing_account_links_the_anonymous_user_and_ends_its_grants() {
    let (server, acme, alice) = scene().await;
    let device = device(&acme).await;
    let audit = Audit::listen();
    let request = pushed(&acme, device.refresh_token()).await;
    let callback = alice.browser().authorize(&request).await.through().await;
    assert!(
        has_ended(&acme, &device).await,
        "with the code, not with its exchange"
    );
    assert!(!acme.is_welcome(&device).await);
    let linked = audit.take(&["anonymous_user_linked", "anonymous_user_upgraded"]);
    assert_eq!(linked.len(), 1);
    assert_eq!(linked[0]["event"], "anonymous_user_linked");
    assert_eq!(
        (
            &linked[0]["user"],
            &linked[0]["anonymous"],
            &linked[0]["client_id"]
        ),
        (&json!(alice.sub()), &json!(uuid_of(&device)), &json!("acme"))
    );
    let tokens = acme.redeem(&callback.code()).await.tokens();
    assert_eq!(tokens.0["uuid"], alice.sub());
    assert_eq!(anonymous_sub(&tokens), Some(json!(uuid_of(&device))));
    assert!(tokens.0.get("anonymous_sub").is_none() && tokens.id().claims.get("anonymous_sub").is_none());
    let later = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(anonymous_sub(&later), None);
    assert_eq!(anonymous_sub(&acme.tokens(&alice.browser()).await), None);
    let left = record_of(&server, uuid_of(&device)).unwrap();
    assert!(
        left.is_anonymous(),
        "its record stays as long as that of another device"
    );
    server.advance(181 * DAY);
    sweep_all(&server).await;
    assert!(record_of(&server, uuid_of(&device)).is_none());
    assert!(record_of(&server, alice.user.uuid).is_some());
}

#[tokio::test]
async fn a_live_session_links_without_a_page() {
    let (_server, acme, alice) = scene().await;
    let (browser, device) = (alice.browser(), device(&acme).await);
    acme.tokens(&browser).await;
    let audit = Audit::listen();
    let silent = acme.request().with("prompt", "none");
    let request = brought(&acme, push(&acme, &silent, device.refresh_token())).await;
    let code = browser.authorize(&request).await.callback().code();
    assert_eq!(audit.take(&["anonymous_user_linked"]).len(), 1);
    let tokens = acme.redeem(&code).await.tokens();
    assert_eq!(tokens.0["uuid"], alice.sub());
    assert_eq!(anonymous_sub(&tokens), Some(json!(uuid_of(&device))));
    assert!(has_ended(&acme, &device).await);
    let again = browser.authorize(&request).await;
    assert_eq!(
        again.error_page_status(),
        400,
        "a pushed request is answered once"
    );
}

/// A push rotates nothing. Without a code, nothing has changed.
#[tokio::test]
async fn a_person_who_gives_up_or_declines_keeps_the_anonymous_user() {
    let (server, acme, alice) = scene().await;
    let (uuid, device) = {
        let device = device(&acme).await;
        (uuid_of(&device), device)
    };
    let request = pushed(&acme, device.refresh_token()).await;
    assert_eq!(alice.browser().authorize(&request).await.page(), "/login");
    let device = acme.refresh(device.refresh_token()).await.tokens();
    assert_eq!(
        (uuid_of(&device), device.0["user_type"].as_str()),
        (uuid, Some("anonymous"))
    );
    server
        .change_client(&acme, |client| client.consent = ConsentRequirement::Require)
        .await;
    let request = pushed(&acme, device.refresh_token()).await;
    let consent = alice.browser().authorize(&request).await.sign_in().await;
    assert_eq!(consent.page(), "/consent");
    assert_eq!(consent.decide("deny").await.callback().error(), "access_denied");
    let device = acme.refresh(device.refresh_token()).await.tokens();
    let request = pushed(&acme, device.refresh_token()).await;
    let code = alice.browser().authorize(&request).await.through().await.code();
    let tokens = acme.redeem(&code).await.tokens();
    assert_eq!(anonymous_sub(&tokens), Some(json!(uuid)));
}

/// The device may refresh while the person signs in.
#[tokio::test]
async fn a_refresh_during_the_sign_in_changes_nothing() {
    let (_server, acme, alice) = scene().await;
    let device = device(&acme).await;
    let request = pushed(&acme, device.refresh_token()).await;
    let form = alice.browser().authorize(&request).await;
    let later = acme.refresh(device.refresh_token()).await.tokens();
    let tokens = acme.redeem(&form.through().await.code()).await.tokens();
    assert_eq!(anonymous_sub(&tokens), Some(json!(uuid_of(&device))));
    assert!(has_ended(&acme, &later).await);
}

/// The browser shows the second answer to a form that was sent twice.
#[tokio::test]
async fn a_form_that_is_sent_twice_gets_two_codes_for_one_account_and_one_event() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let device = device(&acme).await;
    let request = pushed(&acme, device.refresh_token()).await;
    let form = alice.browser().authorize(&request).await;
    let audit = Audit::listen();
    let first = form.clone().sign_in().await.callback().code();
    let second = form.clone().sign_in().await.callback().code();
    assert_ne!(first, second);
    let tokens = acme.redeem(&second).await.tokens();
    assert_eq!(anonymous_sub(&tokens), Some(json!(uuid_of(&device))));
    assert_eq!(audit.take(&["anonymous_user_linked"]).len(), 1);
    let other = form.type_in(&bob.user.account_id, &bob.password).await.callback();
    assert_eq!(other.refusal(), USED, "another account in the same sign-in");
}

/// Two requests with one token: the second person is refused, and signs in again without it.
#[tokio::test]
async fn of_two_upgrades_one_is_refused() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let device = device(&acme).await;
    let first = pushed(&acme, device.refresh_token()).await;
    let second = pushed(&acme, device.refresh_token()).await;
    let third = pushed(&acme, device.refresh_token()).await;
    let (form, late) = (
        bob.browser().authorize(&second).await,
        alice.browser().authorize(&third).await,
    );
    let code = alice.browser().authorize(&first).await.through().await.code();
    assert_eq!(
        anonymous_sub(&acme.redeem(&code).await.tokens()),
        Some(json!(uuid_of(&device)))
    );
    let browser = form.browser().clone();
    let refused = form.sign_in().await.callback();
    assert_eq!(refused.refusal(), USED);
    assert_eq!(
        late.sign_in().await.callback().refusal(),
        USED,
        "the same account, too"
    );
    assert_eq!(
        browser.cookie("__Host-idsvc_session"),
        None,
        "nobody is signed in"
    );
    assert_eq!(acme.tokens(&browser).await.0["uuid"], bob.sub(), "the way back");
    let reopened = bob.browser().authorize(&second).await.callback();
    assert_eq!(reopened.refusal(), USED, "at once, before anything is typed");
    let reply = push(&acme, &acme.request(), device.refresh_token()).await;
    assert_eq!((reply.status, reply.error()), (400, "invalid_grant".to_owned()));
}

/// The writer decides.
#[tokio::test]
async fn of_two_upgrades_at_once_one_is_refused() {
    let (server, acme, alice) = scene().await;
    let bob = server.user("bob").await;
    let (one, other) = (alice.browser(), bob.browser());
    acme.tokens(&one).await;
    acme.tokens(&other).await;
    for _ in 0..10 {
        let device = device(&acme).await;
        let (first, second) = (
            pushed(&acme, device.refresh_token()).await,
            pushed(&acme, device.refresh_token()).await,
        );
        let answers = tokio::join!(one.authorize(&first), other.authorize(&second));
        let answers = [answers.0.callback(), answers.1.callback()];
        let refused: Vec<_> = answers
            .iter()
            .filter(|answer| answer.get("error").is_some())
            .collect();
        assert_eq!(refused.len(), 1, "one winner");
        assert_eq!(refused[0].refusal(), USED);
        let code = answers.iter().find_map(|answer| answer.get("code")).unwrap();
        let tokens = acme.redeem(code).await.tokens();
        assert_eq!(anonymous_sub(&tokens), Some(json!(uuid_of(&device))));
    }
}

async fn refusal(call: Call) -> (u16, String) {
    let reply = call.await;
    (reply.status, reply.error())
}

#[tokio::test]
async fn what_is_not_a_live_token_of_an_anonymous_user_of_this_client_is_refused_when_it_is_pushed() {
    let (server, acme, alice) = scene().await;
    let other = server.client_with("other", opted_in).await;
    let known = acme.tokens(&alice.browser()).await;
    let (revoked, disabled, foreign) = (device(&acme).await, device(&acme).await, device(&other).await);
    acme.revoke(revoked.refresh_token()).await;
    change_record(&server, &disabled, |user| user.enabled = false).await;
    let named = device(&acme).await;
    change_record(&server, &named, |user| {
        user.email = Some("person@example.com".to_owned());
    })
    .await;
    let genuine = device(&acme).await;
    let forged = format!(
        "{}AAAA",
        &genuine.refresh_token()[..genuine.refresh_token().len() - 4]
    );
    for (token, what) in [
        ("garbage", "no token"),
        (&forged, "a forged token"),
        (known.access_token(), "an access token"),
        (known.refresh_token(), "of a known user"),
        (
            named.refresh_token(),
            "of a user whom the operator gave an address",
        ),
        (revoked.refresh_token(), "of a revoked family"),
        (disabled.refresh_token(), "of a disabled user"),
        (foreign.refresh_token(), "of another client"),
    ] {
        let push = push(&acme, &acme.request(), token);
        assert_eq!(refusal(push).await, (400, "invalid_grant".to_owned()), "{what}");
    }
    acme.refresh(known.refresh_token()).await.tokens();
    other.refresh(foreign.refresh_token()).await.tokens();
    let twice = push(&acme, &acme.request(), genuine.refresh_token());
    let twice = twice.and("anonymous_refresh_token", genuine.refresh_token());
    assert_eq!(refusal(twice).await, (400, "invalid_request".to_owned()));
    acme.refresh(genuine.refresh_token()).await.tokens();
    server.advance(91 * DAY);
    let expired = push(&acme, &acme.request(), genuine.refresh_token());
    assert_eq!(refusal(expired).await, (400, "invalid_grant".to_owned()));
}

async fn change_record(server: &Server, tokens: &Tokens, change: impl FnOnce(&mut User)) {
    let mut user = record_of(server, uuid_of(tokens)).unwrap();
    change(&mut user);
    let store = &server.app.core.store;
    store
        .write("test_user", move |tx| USERS.put(tx, &user.uuid, &user))
        .await
        .unwrap();
}

/// As at the token endpoint: the predecessor is good while its successor is unused, and then it is a replay.
#[tokio::test]
async fn a_replaced_token_that_is_pushed_ends_the_family() {
    let (server, acme, alice) = scene().await;
    let first = device(&acme).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    let audit = Audit::listen();
    let request = pushed(&acme, first.refresh_token()).await;
    assert_eq!(alice.browser().authorize(&request).await.page(), "/login");
    server.advance(121);
    let replayed = push(&acme, &acme.request(), first.refresh_token()).await;
    assert_eq!(
        replayed.refusal(),
        "400 invalid_grant: refresh_token was used before; its family has been revoked"
    );
    assert_eq!(audit.take(&["refresh_token_replayed"]).len(), 1);
    assert!(has_ended(&acme, &second).await);
}

/// The person is not asked for a password in vain.
#[tokio::test]
async fn a_grant_that_ended_since_the_push_refuses_the_sign_in() {
    let (server, acme, alice) = scene().await;
    for ends in ["family", "user"] {
        let device = device(&acme).await;
        let request = pushed(&acme, device.refresh_token()).await;
        let form = alice.browser().authorize(&request).await;
        if ends == "family" {
            acme.revoke(device.refresh_token()).await;
        } else {
            change_record(&server, &device, |user| user.enabled = false).await;
        }
        let refused = alice.browser().authorize(&request).await.callback();
        assert_eq!(refused.refusal(), USED, "{ends}");
        assert_eq!(refused.get("state"), Some("state of acme"));
        assert_eq!(form.sign_in().await.callback().refusal(), USED, "{ends}");
    }
}

/// A device whose client became public, and which has refreshed with a proof since.
async fn bound_device(server: &Server, acme: &RelyingParty, key: &KeyHolder) -> (RelyingParty, Tokens) {
    let device = device(acme).await;
    server
        .change_client(acme, |client| {
            client.token_endpoint_auth_methods = [AuthMethod::None].into();
            client.secrets.clear();
        })
        .await;
    let public = server.party("acme", "");
    let proof = key.for_token(server);
    let bound = public
        .refresh(device.refresh_token())
        .header("dpop", &proof)
        .await;
    (public, bound.tokens())
}

#[tokio::test]
async fn a_token_that_is_bound_to_a_key_is_pushed_with_this_key() {
    let (server, acme, alice) = scene().await;
    let (key, other) = (KeyHolder::new(), KeyHolder::new());
    let (public, bound) = bound_device(&server, &acme, &key).await;
    let push = || push(&public, &public.request(), bound.refresh_token());
    let proof = |key: &KeyHolder| key.proof(&server, "POST", "/oauth2/par").sign();
    let invalid = (400, "invalid_grant".to_owned());
    assert_eq!(refusal(push()).await, invalid, "without a proof");
    assert_eq!(
        refusal(push().header("dpop", &proof(&other))).await,
        invalid,
        "another key"
    );
    let request = brought(&public, push().header("dpop", &proof(&key))).await;
    let code = alice.browser().authorize(&request).await.through().await.code();
    let exchange = public.redeem(&code).header("dpop", &key.for_token(&server));
    let tokens = exchange.await.tokens();
    assert_eq!(anonymous_sub(&tokens), Some(json!(uuid_of(&bound))));
    assert_eq!(tokens.access().claims["cnf"], json!({ "jkt": key.thumbprint() }));
}

/// A client that cannot authenticate names itself.
#[tokio::test]
async fn a_public_client_pushes_the_token_as_well() {
    let (server, acme, alice) = scene().await;
    let device = device(&acme).await;
    server
        .change_client(&acme, |client| {
            client.token_endpoint_auth_methods = [AuthMethod::None].into();
            client.secrets.clear();
        })
        .await;
    let public = server.party("acme", "");
    let request = pushed(&public, device.refresh_token()).await;
    let code = alice.browser().authorize(&request).await.through().await.code();
    let tokens = public.redeem(&code).await.tokens();
    assert_eq!(anonymous_sub(&tokens), Some(json!(uuid_of(&device))));
    let nameless = server
        .post("/oauth2/par")
        .fields(&acme.request().without("client_id").parameters);
    let nameless = nameless.with("anonymous_refresh_token", device.refresh_token());
    assert_eq!(nameless.await.status, 401);
}

/// A refresh token in an address would be in histories and logs.
#[tokio::test]
async fn a_token_that_was_not_pushed_is_refused_and_not_repeated() {
    let (server, acme, alice) = scene().await;
    let device = device(&acme).await;
    let token = device.refresh_token();
    let browser = alice.browser();
    acme.tokens(&browser).await;
    let named = acme.request().with("anonymous_refresh_token", token);
    let beside = pushed(&acme, token).await.with("anonymous_refresh_token", token);
    for request in [&named, &beside] {
        let screen = browser.authorize(request).await;
        assert_eq!(screen.callback().refusal(), NOT_PUSHED);
        assert_eq!(screen.callback().get("state"), Some("state of acme"));
        assert!(!screen.location().contains(token));
    }
    let posted = server.post("/oauth2/authorize").fields(&named.parameters).await;
    assert_eq!(posted.callback().refusal(), NOT_PUSHED);
    assert!(!posted.location().contains(token));
    for untrusted in [
        named.clone().with("redirect_uri", "https://evil.example/cb"),
        named.clone().with("client_id", "unknown"),
    ] {
        let page = browser.authorize(&untrusted).await;
        assert_eq!(page.error_page_status(), 400);
        assert!(!page.text().contains(token));
    }
    let beside_object = push(&acme, &acme.request().with("request", "e30.e30."), token).await;
    assert_eq!(
        beside_object.refusal(),
        "400 invalid_request: put anonymous_refresh_token into the request object"
    );
    acme.refresh(token).await.tokens();
}

#[tokio::test]
async fn a_pushed_request_says_nothing_of_the_token_to_the_browser() {
    let (_server, acme, alice) = scene().await;
    let device = device(&acme).await;
    let secret = device.refresh_token().split_at(20).1;
    let reply = push(&acme, &acme.request(), device.refresh_token()).await;
    assert!(!reply.text().contains(secret));
    let request = pushed(&acme, device.refresh_token()).await;
    let screen = alice.browser().authorize(&request).await;
    assert!(!screen.text().contains(secret) && !screen.path.contains(secret));
    assert!(!screen.text().contains(&uuid_of(&device).to_string()));
}

/// Whether a login name belongs to a user.
pub(crate) fn owner_of(server: &Server, name: &str) -> Option<Uuid> {
    let store = &server.app.core.store;
    store
        .read_blocking(|snapshot| USERS_BY_LOGIN_NAME.get(snapshot, name))
        .unwrap()
}
