//! Refresh tokens: RFC 6749 section 6 and the rotation of RFC 9700 section 4.14.2.

use std::time::Duration;

use idsvc::admin::user::{NewPassword, SetPassword, UpdateUser, UserFields};
use idsvc::oauth::Scope;
use idsvc::oauth::client::{ConsentRequirement, RefreshPolicy};
use idsvc::oauth::refresh;
use idsvc::store::tables::{CONSENTS, FAMILIES, FAMILIES_BY_OWNER};

use crate::harness::reply::line_of;
use crate::harness::{RelyingParty, START, Server, Tokens, scene};

const DAY: u64 = 24 * 60 * 60;
const REPLAYED: &str = "400 invalid_grant: refresh_token was used before; its family has been revoked";
const REVOKED: &str = "400 invalid_grant: refresh_token has been revoked";

async fn is_active(acme: &RelyingParty, token: &str) -> bool {
    acme.introspect(token).await.json()["active"] == true
}

/// OpenID Connect Core 12.2: a refresh may leave the ID token out.
#[tokio::test]
async fn a_client_can_do_without_the_id_token_of_a_refresh() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let acme = server
        .client_with("acme", |client| client.id_token_on_refresh = false)
        .await;
    let names = ["id_token", "idtoken"];
    let first = acme.tokens(&alice.browser()).await;
    assert!(names.iter().all(|name| first.0[name].is_string()), "{first:?}");
    let second = acme.refresh(first.refresh_token()).await.tokens();
    assert!(
        names.iter().all(|name| second.0.get(name).is_none()),
        "{second:?}"
    );
    assert!(acme.is_welcome(&second).await);
    server
        .change_client(&acme, |client| client.id_token_on_refresh = true)
        .await;
    let third = acme.refresh(second.refresh_token()).await.tokens();
    acme.verify(third.id_token()).await;
}

/// Section 6: new tokens for an old one; RFC 9700 section 4.14.2: the old one is replaced.
#[tokio::test]
async fn a_refresh_replaces_both_tokens() {
    let (server, acme, alice) = scene().await;
    let first = acme.tokens(&alice.browser()).await;
    server.advance(3_600);
    let second = acme.refresh(first.refresh_token()).await.tokens();
    assert_ne!(first.access_token(), second.access_token());
    assert_ne!(first.refresh_token(), second.refresh_token());
    assert_eq!(second.0["iat"], START.seconds() + 3_600);
    assert!(acme.is_welcome(&first).await && acme.is_welcome(&second).await);
    let names = |tokens: &Tokens| tokens.0.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&first), names(&second));
    for same in [
        "scope",
        "account_id",
        "uuid",
        "amr",
        "iss",
        "organization",
        "source",
        "token_type",
    ] {
        assert_eq!(first.0[same], second.0[same], "{same}");
    }
    assert_ne!(first.0["jti"], second.0["jti"]);
}

/// OpenID Connect Core 12.2: the sign-in stays the same one.
#[tokio::test]
async fn a_refreshed_id_token_tells_of_the_same_sign_in() {
    let (server, acme, alice) = scene().await;
    let first = acme
        .tokens_for(&alice.browser(), &acme.request().with("nonce", "n-1"))
        .await;
    server.advance(5_000);
    let second = acme.refresh(first.refresh_token()).await.tokens();
    let (before, after) = (first.id().claims, acme.verify(second.id_token()).await.claims);
    for same in ["iss", "sub", "aud", "azp", "auth_time", "sid", "amr", "acr"] {
        assert_eq!(before[same], after[same], "{same}");
    }
    assert_eq!(after["iat"], START.seconds() + 5_000);
    assert_eq!(after["exp"], START.seconds() + 5_000 + 3_600);
    assert_eq!(
        (before["nonce"].as_str(), after.get("nonce")),
        (Some("n-1"), None)
    );
    assert_eq!(second.access().claims["auth_time"], START.seconds());
}

/// RFC 9700 section 4.14.2: an old token after the window revokes the family, access tokens too.
#[tokio::test]
async fn a_replayed_token_revokes_its_family() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let first = acme.tokens(&browser).await;
    let bystander = acme.tokens(&browser).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    server.advance(121);
    assert_eq!(acme.refresh(first.refresh_token()).await.refusal(), REPLAYED);
    assert_eq!(acme.refresh(second.refresh_token()).await.refusal(), REVOKED);
    assert_eq!(acme.refresh(first.refresh_token()).await.refusal(), REVOKED);
    assert!(!acme.is_welcome(&first).await && !acme.is_welcome(&second).await);
    assert!(acme.is_welcome(&bystander).await);
    acme.refresh(bystander.refresh_token()).await.tokens();
}

/// RFC 9700 section 4.14.2: once its successor was used, a token is a replay at once, however old it is.
#[tokio::test]
async fn a_token_whose_successor_was_used_is_a_replay() {
    let (_server, acme, alice) = scene().await;
    let mut tokens = vec![acme.tokens(&alice.browser()).await];
    for generation in 0..5 {
        let next = acme.refresh(tokens[generation].refresh_token()).await.tokens();
        tokens.push(next);
    }
    assert_eq!(acme.refresh(tokens[0].refresh_token()).await.refusal(), REPLAYED);
    assert_eq!(acme.refresh(tokens[5].refresh_token()).await.refusal(), REVOKED);
}

/// Section 6: a token is bound to its client, and another can neither use nor spoil it.
#[tokio::test]
async fn another_clients_token_is_refused_and_stays_good() {
    let (server, acme, alice) = scene().await;
    let other = server.client("other").await;
    let app = server.public_client("app").await;
    let first = acme.tokens(&alice.browser()).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    server.advance(1_000);
    for token in [&first, &second] {
        for thief in [&other, &app] {
            assert_eq!(
                thief.refresh(token.refresh_token()).await.error(),
                "invalid_grant"
            );
        }
    }
    acme.refresh(second.refresh_token()).await.tokens();
}

/// Section 10.10: a token that was never issued is refused and revokes nothing.
#[tokio::test]
async fn an_invented_token_is_refused_and_revokes_nothing() {
    let (_server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let token = tokens.refresh_token();
    let mut changed = token.to_owned();
    changed.replace_range(60..61, if &token[60..61] == "A" { "B" } else { "A" });
    for invented in [
        "x",
        "idsvc_rt_",
        &token[..token.len() - 1],
        &changed,
        tokens.access_token(),
    ] {
        let refused = acme.refresh(invented).await;
        assert_eq!(refused.refusal(), line_of(&refresh::UNKNOWN));
    }
    acme.refresh(token).await.tokens();
}

/// Section 6: the scope may become less for one access token, and never more.
#[tokio::test]
async fn a_scope_narrows_and_never_widens() {
    let (_server, acme, alice) = scene().await;
    let request = acme.request().with("scope", "openid email notes.read");
    let tokens = acme.tokens_for(&alice.browser(), &request).await;
    let narrow = acme
        .refresh(tokens.refresh_token())
        .with("scope", "notes.read")
        .await
        .tokens();
    assert_eq!(narrow.0["scope"], "notes.read authenticated");
    assert_eq!(narrow.access().claims["scope"], "notes.read authenticated");
    assert_eq!(narrow.0.get("id_token"), None);
    let wider = acme
        .refresh(narrow.refresh_token())
        .with("scope", "openid notes.write")
        .await;
    assert_eq!(wider.error(), "invalid_scope");
    let malformed = acme.refresh(narrow.refresh_token()).with("scope", "a\"b").await;
    assert_eq!(malformed.error(), "invalid_scope");
    let whole = acme.refresh(narrow.refresh_token()).await.tokens();
    assert_eq!(whole.scope(), ["openid", "email", "notes.read", "authenticated"]);
    let same = acme
        .refresh(whole.refresh_token())
        .with("scope", "notes.read email openid")
        .await
        .tokens();
    assert_eq!(same.scope(), whole.scope());
}

/// Section 3.3: what the operator takes from a client, its refresh tokens no longer bring.
#[tokio::test]
async fn a_scope_taken_from_the_client_is_gone_at_the_next_refresh() {
    let (server, acme, alice) = scene().await;
    let request = acme.request().with("scope", "openid email notes.read");
    let tokens = acme.tokens_for(&alice.browser(), &request).await;
    server
        .change_client(&acme, |client| {
            client.scope = client.scope.filter(|value| value != "notes.read");
        })
        .await;
    let less = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(less.scope(), ["openid", "email", "authenticated"]);
}

/// OpenID Connect Core 11: where the operator takes `offline_access` from a client, its grants end with their sessions
/// from then on, those of before too.
#[tokio::test]
async fn a_grant_whose_offline_access_was_taken_ends_with_its_session() {
    let (server, acme, alice) = scene().await;
    let offline = acme.request().with("scope", "openid offline_access");
    let (here, gone) = (alice.browser(), alice.browser());
    let tokens = acme.tokens_for(&here, &offline).await;
    let theirs = acme.tokens_for(&gone, &offline).await;
    gone.visit("/oauth2/logout").await.decide("logout").await;
    let with = |allowed: bool| {
        server.change_client(&acme, move |client| {
            let scope = client.scope.filter(|value| value != Scope::OFFLINE_ACCESS);
            client.scope = if allowed {
                scope.with(Scope::OFFLINE_ACCESS)
            } else {
                scope
            };
        })
    };
    with(false).await;
    assert!(!is_active(&acme, theirs.refresh_token()).await);
    assert!(is_active(&acme, tokens.refresh_token()).await);
    assert_eq!(
        acme.refresh(theirs.refresh_token()).await.error(),
        "invalid_grant"
    );
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(tokens.scope(), ["openid", "authenticated"]);
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    with(true).await;
    here.visit("/oauth2/logout").await.decide("logout").await;
    assert_eq!(acme.refresh(tokens.refresh_token()).await.refusal(), REVOKED);
    acme.refresh(theirs.refresh_token()).await.tokens();
}

/// OpenID Connect Core 11: what the token says of `offline_access` holds again, for a grant that was refreshed in
/// between as for one that was not.
#[tokio::test]
async fn a_grant_whose_offline_access_is_given_back_outlives_its_session_again() {
    let (server, acme, alice) = scene().await;
    let offline = acme.request().with("scope", "openid offline_access");
    let browser = alice.browser();
    let mut tokens = acme.tokens_for(&browser, &offline).await;
    for scope in ["openid", "openid offline_access"] {
        let allowed: Scope = scope.parse().unwrap();
        server.change_client(&acme, |client| client.scope = allowed).await;
        tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    }
    assert!(tokens.scope().contains(&"offline_access"));
    browser.visit("/oauth2/logout").await.decide("logout").await;
    acme.refresh(tokens.refresh_token()).await.tokens();
}

/// Section 6: ninety days, counted from the newest token.
#[tokio::test]
async fn a_token_lasts_ninety_days_from_the_newest_one_on() {
    let (server, acme, alice) = scene().await;
    let mut tokens = acme.tokens(&alice.browser()).await;
    for _ in 0..3 {
        server.advance(90 * DAY - 1);
        tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    }
    assert_eq!(tokens.access().claims["auth_time"], START.seconds());
    server.advance(90 * DAY);
    assert_eq!(
        acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
}

/// Section 6: where the operator bounds the whole family, no refresh goes beyond.
#[tokio::test]
async fn a_family_ends_when_the_operator_says() {
    let server =
        Server::start_with(|policy| policy.lifetimes.refresh_absolute = Some(Duration::from_secs(10 * DAY)))
            .await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let tokens = acme.tokens(&alice.browser()).await;
    server.advance(10 * DAY - 1);
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    server.advance(1);
    assert_eq!(
        acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
}

/// Section 6: who was disabled gets nothing; who is enabled again has lost nothing.
#[tokio::test]
async fn a_disabled_user_or_client_is_refused() {
    let (server, acme, alice) = scene().await;
    for is_retry in [false, true] {
        let tokens = acme.tokens(&alice.browser()).await;
        if is_retry {
            acme.refresh(tokens.refresh_token()).await.tokens();
        }
        let refused = async || acme.refresh(tokens.refresh_token()).await.error();
        server.change_user(&alice, |user| user.enabled = false).await;
        assert_eq!(refused().await, "invalid_grant");
        assert!(!acme.is_welcome(&tokens).await);
        server.change_user(&alice, |user| user.enabled = true).await;
        server.change_client(&acme, |client| client.enabled = false).await;
        assert_eq!(refused().await, "invalid_client");
        assert!(!acme.is_welcome(&tokens).await);
        server.change_client(&acme, |client| client.enabled = true).await;
        assert!(acme.is_welcome(&tokens).await);
        acme.refresh(tokens.refresh_token()).await.tokens();
    }
}

/// Section 6: the answer shows the user as the record is now.
#[tokio::test]
async fn a_refresh_shows_what_has_changed() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    server
        .change_user(&alice, |user| user.venue_id = Some("venue-9".to_owned()))
        .await;
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(tokens.0["venueId"], "venue-9");
    assert_eq!(tokens.access().claims["venueId"], "venue-9");
}

/// What the operator changes is in the next token, in the answer beside it, and in what introspection says.
#[tokio::test]
async fn a_refresh_shows_all_that_the_operator_changed() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    let some = |text: &str| Some(text.to_owned());
    let request = UpdateUser {
        who: alice.user.uuid.to_string(),
        email: some("new@example.com"),
        account_id: some("new-name"),
        reset_failed_passwords: false,
        keep_factors: false,
        fields: UserFields {
            phone_number: some("+41791234567"),
            user_type: some("robot"),
            venue_id: some("venue-9"),
            organization: some("elsewhere"),
            ..UserFields::default()
        },
    };
    server.admin().call(request).await.unwrap();
    let verdict = acme.introspect(tokens.access_token()).await.json();
    assert_eq!(verdict["username"], "new-name");
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    for said in [&tokens.0, &tokens.access().claims] {
        let said = [
            "email",
            "account_id",
            "phone_number",
            "user_type",
            "venueId",
            "organization",
        ]
        .map(|name| said[name].as_str().unwrap());
        let changed = [
            "new@example.com",
            "new-name",
            "+41791234567",
            "robot",
            "venue-9",
            "elsewhere",
        ];
        assert_eq!(said, changed);
    }
    let verdict = acme.introspect(tokens.refresh_token()).await.json();
    assert_eq!(verdict["username"], "new-name");
}

/// Section 6: consent that was withdrawn is gone.
#[tokio::test]
async fn withdrawn_consent_ends_refreshing() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let acme = server
        .client_with("acme", |client| client.consent = ConsentRequirement::Require)
        .await;
    let tokens = acme.tokens(&alice.browser()).await;
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    let key = (alice.user.uuid, "acme".to_owned());
    server
        .app
        .core
        .store
        .write("test_withdrawal", move |tx| CONSENTS.remove(tx, &key))
        .await
        .unwrap();
    let refused = acme.refresh(tokens.refresh_token()).await;
    assert_eq!(refused.error(), "invalid_grant");
    assert!(!acme.is_welcome(&tokens).await);
    for token in [tokens.access_token(), tokens.refresh_token()] {
        assert!(!is_active(&acme, token).await);
    }
}

/// A grant for offline use outlives its session, but not an operator who sets the password.
#[tokio::test]
async fn an_operator_who_sets_a_password_ends_sessions_and_offline_grants() {
    let (server, acme, alice) = scene().await;
    let offline = acme.request().with("scope", "openid offline_access");
    let tokens = acme.tokens_for(&alice.browser(), &offline).await;
    for keep_sessions in [true, false] {
        let request = SetPassword {
            who: alice.sub(),
            password: NewPassword::Generated,
            keep_sessions,
        };
        server.admin().call(request).await.unwrap();
        assert_eq!(acme.is_welcome(&tokens).await, keep_sessions);
    }
    assert_eq!(acme.refresh(tokens.refresh_token()).await.refusal(), REVOKED);
}

/// OpenID Connect Core 11: without `offline_access` a refresh token ends with the session, with it it does not.
#[tokio::test]
async fn signing_out_ends_what_is_not_for_offline_use() {
    let (_server, acme, alice) = scene().await;
    let browser = alice.browser();
    let online = acme.tokens(&browser).await;
    let offline = acme
        .tokens_for(&browser, &acme.request().with("scope", "openid offline_access"))
        .await;
    let elsewhere = acme.tokens(&alice.browser()).await;
    browser.visit("/oauth2/logout").await.decide("logout").await;
    assert_eq!(acme.refresh(online.refresh_token()).await.refusal(), REVOKED);
    assert!(!acme.is_welcome(&online).await);
    assert!(acme.is_welcome(&offline).await && acme.is_welcome(&elsewhere).await);
    acme.refresh(offline.refresh_token()).await.tokens();
    acme.refresh(elsewhere.refresh_token()).await.tokens();
}

/// A session that runs out by itself is no sign-out: the grant stands.
#[tokio::test]
async fn a_session_that_runs_out_takes_no_tokens_along() {
    let (server, acme, alice) = scene().await;
    let tokens = acme.tokens(&alice.browser()).await;
    server.advance(13 * 60 * 60);
    acme.refresh(tokens.refresh_token()).await.tokens();
}

/// RFC 9700 section 4.14.2: a client whose tokens are bound to a key of its own may keep its refresh token.
#[tokio::test]
async fn a_client_registered_for_reuse_keeps_its_token() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let acme = server
        .client_with("acme", |client| client.refresh_policy = RefreshPolicy::Reuse)
        .await;
    let first = acme.tokens(&alice.browser()).await;
    for _ in 0..3 {
        server.advance(89 * DAY);
        let next = acme.refresh(first.refresh_token()).await.tokens();
        assert_eq!(next.refresh_token(), first.refresh_token());
    }
    server.advance(90 * DAY);
    assert_eq!(acme.refresh(first.refresh_token()).await.error(), "invalid_grant");
}

/// A client that signs its user in over and over keeps fifty grants of that user. The one in use stays, of this
/// client and of another; the one left unused the longest goes, and its access token with it.
#[tokio::test]
async fn a_client_has_at_most_fifty_grants_of_one_user() {
    let (server, acme, alice) = scene().await;
    let other = server.client("other").await;
    let browser = alice.browser();
    let elsewhere = other.tokens(&browser).await;
    let used = acme.tokens(&browser).await;
    let idle = acme.tokens(&browser).await;
    for _ in 0..47 {
        server.advance(1);
        acme.tokens(&browser).await;
    }
    let used = acme.refresh(used.refresh_token()).await.tokens();
    server.advance(1);
    acme.tokens(&browser).await;
    assert!(acme.is_welcome(&idle).await, "fifty are allowed");
    acme.tokens(&browser).await;
    assert!(!acme.is_welcome(&idle).await);
    assert_eq!(
        acme.refresh(idle.refresh_token()).await.refusal(),
        line_of(&refresh::UNKNOWN)
    );
    assert!(acme.is_welcome(&used).await && other.is_welcome(&elsewhere).await);
    acme.refresh(used.refresh_token()).await.tokens();
    let (families, owned) = server
        .app
        .core
        .store
        .read_blocking(|snapshot| Ok((FAMILIES.count(snapshot)?, FAMILIES_BY_OWNER.count(snapshot)?)))
        .unwrap();
    assert_eq!(
        (families, owned),
        (51, 102),
        "and each is found by its user and session"
    );
}

/// A bound on the whole life of a grant makes all of one client end about the same time; the one in use stays all the
/// same, whether its client replaces tokens or keeps them.
#[tokio::test]
async fn of_fifty_grants_the_one_in_use_stays_though_all_end_by_the_same_bound() {
    let server = Server::start_with(|policy| {
        policy.lifetimes.refresh_absolute = Some(Duration::from_secs(10 * DAY));
    })
    .await;
    let alice = server.user("alice").await;
    for (name, refresh_policy) in [("acme", RefreshPolicy::Rotate), ("bank", RefreshPolicy::Reuse)] {
        let client = server
            .client_with(name, |client| client.refresh_policy = refresh_policy)
            .await;
        let browser = alice.browser();
        let used = client.tokens(&browser).await;
        let mut idle = Vec::new();
        for _ in 0..49 {
            server.advance(1);
            idle.push(client.tokens(&browser).await);
        }
        let used = client.refresh(used.refresh_token()).await.tokens();
        server.advance(1);
        client.tokens(&browser).await;
        assert!(client.is_welcome(&used).await, "{name}");
        assert!(!client.is_welcome(&idle[0]).await, "{name}");
        assert!(client.is_welcome(&idle[1]).await, "{name}");
    }
}
