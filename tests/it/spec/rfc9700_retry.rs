//! A refresh that is sent more than once: RFC 9700 section 4.14.2.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idsvc::clock::Clock;
use idsvc::flow::rotate_keys;
use idsvc::oauth::client::RefreshPolicy;
use idsvc::oauth::policy::KeyRotation;
use idsvc::oauth::refresh;
use idsvc::random::Random;
use idsvc::secret::{RefreshToken, Secret};
use idsvc::store::tables::{FAMILIES, REFRESH_KEYS};
use tokio::task::JoinSet;

use crate::harness::reply::line_of;
use crate::harness::{RelyingParty, Server, Tokens, scene};

const DAY: u64 = 24 * 60 * 60;
const REPLAYED: &str = "400 invalid_grant: refresh_token was used before; its family has been revoked";
const REVOKED: &str = "400 invalid_grant: refresh_token has been revoked";

async fn is_active(acme: &RelyingParty, token: &str) -> bool {
    acme.introspect(token).await.json()["active"] == true
}

/// The number at this place of what a token names.
fn number(token: &str, at: usize) -> u32 {
    let token = Secret::<RefreshToken>::parse(token).unwrap();
    u32::from_be_bytes(token.locator()[at..at + 4].try_into().unwrap())
}

fn key(token: &str) -> u32 {
    number(token, 16)
}

fn generation(token: &str) -> u32 {
    number(token, 20)
}

/// A lost answer may be asked for again for two minutes: it is the same refresh token, with another access token.
#[tokio::test]
async fn a_lost_answer_may_be_asked_for_again() {
    let (server, acme, alice) = scene().await;
    let first = acme.tokens(&alice.browser()).await;
    let lost = acme.refresh(first.refresh_token()).await.tokens();
    server.advance(120);
    let again = acme.refresh(first.refresh_token()).await.tokens();
    assert_eq!(lost.refresh_token(), again.refresh_token());
    assert_ne!(lost.0["jti"], again.0["jti"]);
    assert!(acme.is_welcome(&lost).await && acme.is_welcome(&again).await);
    assert!(is_active(&acme, first.refresh_token()).await);
    let next = acme.refresh(again.refresh_token()).await.tokens();
    assert!(acme.is_welcome(&next).await);
    assert!(!is_active(&acme, first.refresh_token()).await);
    assert_eq!(acme.refresh(first.refresh_token()).await.refusal(), REPLAYED);
    assert!(!acme.is_welcome(&next).await);
}

/// The retry window counts from the first use, not from the last retry.
#[tokio::test]
async fn a_retry_does_not_prolong_the_window() {
    let (server, acme, alice) = scene().await;
    let first = acme.tokens(&alice.browser()).await;
    acme.refresh(first.refresh_token()).await.tokens();
    server.advance(100);
    let again = acme.refresh(first.refresh_token()).await.tokens();
    server.advance(21);
    assert_eq!(acme.refresh(first.refresh_token()).await.refusal(), REPLAYED);
    assert_eq!(acme.refresh(again.refresh_token()).await.refusal(), REVOKED);
}

/// A proxy or a browser sends several refreshes at once, and goes on with any of the answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_refreshes_at_once_keep_the_session_for_twenty_rounds() {
    let (_server, acme, alice) = scene().await;
    let mut token = acme.tokens(&alice.browser()).await.refresh_token().to_owned();
    for round in 0..20 {
        let mut refreshes = JoinSet::new();
        for _ in 0..8 {
            refreshes.spawn(acme.refresh(&token).into_future());
        }
        let answers = refreshes.join_all().await;
        let answers: Vec<Tokens> = answers.iter().map(crate::harness::Reply::tokens).collect();
        let successors: BTreeSet<_> = answers.iter().map(Tokens::refresh_token).collect();
        assert_eq!(successors.len(), 1, "round {round}");
        let access: BTreeSet<_> = answers.iter().map(Tokens::access_token).collect();
        assert_eq!(access.len(), 8, "round {round}");
        let chosen = &answers[round % answers.len()];
        assert!(acme.is_welcome(chosen).await);
        token = chosen.refresh_token().to_owned();
        assert_eq!(generation(&token), u32::try_from(round).unwrap() + 1);
    }
}

/// A retry leaves the family as the first use made it: it neither lasts longer nor counts as used later.
#[tokio::test]
async fn a_retry_changes_nothing() {
    let (server, acme, alice) = scene().await;
    let first = acme.tokens(&alice.browser()).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    let rows = || {
        let store = &server.app.core.store;
        let rows = store.read_blocking(|snapshot| FAMILIES.scan(snapshot, .., usize::MAX));
        format!("{:?}", rows.unwrap())
    };
    let before = rows();
    for _ in 0..5 {
        server.advance(20);
        acme.refresh(first.refresh_token()).await.tokens();
        assert_eq!(rows(), before);
    }
    server.advance(90 * DAY - 100);
    assert_eq!(
        acme.refresh(second.refresh_token()).await.error(),
        "invalid_grant"
    );
}

/// Section 6 of RFC 6749: a retry may ask for another part of the scope, and for no more than was granted.
#[tokio::test]
async fn a_retry_may_narrow_the_scope() {
    let (_server, acme, alice) = scene().await;
    let request = acme.request().with("scope", "openid email notes.read");
    let first = acme.tokens_for(&alice.browser(), &request).await;
    let whole = acme.refresh(first.refresh_token()).await.tokens();
    let narrow = acme
        .refresh(first.refresh_token())
        .with("scope", "notes.read")
        .await
        .tokens();
    assert_eq!(narrow.0["scope"], "notes.read authenticated");
    assert_eq!(narrow.refresh_token(), whole.refresh_token());
    let wider = acme
        .refresh(first.refresh_token())
        .with("scope", "openid notes.write")
        .await;
    assert_eq!(wider.error(), "invalid_scope");
    let next = acme.refresh(narrow.refresh_token()).await.tokens();
    assert_eq!(next.scope(), whole.scope());
}

/// A family that was revoked during the window stays revoked.
#[tokio::test]
async fn a_revoked_family_gets_no_retry() {
    let (_server, acme, alice) = scene().await;
    let first = acme.tokens(&alice.browser()).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    assert_eq!(acme.revoke(second.refresh_token()).await.status, 200);
    for token in [&first, &second] {
        assert_eq!(acme.refresh(token.refresh_token()).await.refusal(), REVOKED);
    }
}

/// Section 10.10 of RFC 6749: a token that was never issued is refused and ends nothing, even if it names a family.
#[tokio::test]
async fn a_forged_token_is_refused_and_ends_nothing() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let (first, other) = (acme.tokens(&browser).await, acme.tokens(&browser).await);
    let second = acme.refresh(first.refresh_token()).await.tokens();
    let parsed = |tokens: &Tokens| Secret::<RefreshToken>::parse(tokens.refresh_token()).unwrap();
    let tag = |tokens: &Tokens| -> [u8; 32] { parsed(tokens).secret_bytes().try_into().unwrap() };
    let mut next_generation = parsed(&second).locator().to_vec();
    next_generation[23] += 1;
    let mut next_key = parsed(&second).locator().to_vec();
    next_key[19] += 1;
    let forged = [
        Secret::<RefreshToken>::generate(parsed(&first).locator(), &Random::system()),
        Secret::generate(parsed(&second).locator(), &Random::system()),
        Secret::assemble(parsed(&second).locator(), &tag(&first)),
        Secret::assemble(parsed(&second).locator(), &tag(&other)),
        Secret::assemble(parsed(&other).locator(), &tag(&second)),
        Secret::assemble(&next_generation, &tag(&second)),
        Secret::assemble(&next_key, &tag(&second)),
    ];
    for now in 0..2 {
        for token in &forged {
            assert_eq!(
                acme.refresh(token.reveal()).await.refusal(),
                line_of(&refresh::UNKNOWN)
            );
            assert_eq!(acme.revoke(token.reveal()).await.status, 200);
            assert!(!is_active(&acme, token.reveal()).await);
        }
        server.advance(now * 1_000);
    }
    acme.refresh(second.refresh_token()).await.tokens();
    acme.refresh(other.refresh_token()).await.tokens();
}

/// The clock is set back by an hour after the first use. By the new time the window has not begun.
#[tokio::test]
async fn a_clock_that_is_set_back_opens_no_window() {
    let (server, acme, alice) = scene().await;
    let first = acme.tokens(&alice.browser()).await;
    let Clock::Manual(hand) = &server.clock else {
        panic!("a test holds the clock");
    };
    let began = hand.load(Ordering::SeqCst);
    server.advance(3_600);
    let second = acme.refresh(first.refresh_token()).await.tokens();
    hand.store(began, Ordering::SeqCst);
    assert!(!is_active(&acme, first.refresh_token()).await);
    assert!(is_active(&acme, second.refresh_token()).await);
    assert_eq!(acme.refresh(first.refresh_token()).await.refusal(), REPLAYED);
}

/// A client that keeps its token has no retries to tell apart.
#[tokio::test]
async fn a_client_registered_for_reuse_gets_its_token_every_time() {
    let server = Server::start().await;
    let alice = server.user("alice").await;
    let acme = server
        .client_with("acme", |client| client.refresh_policy = RefreshPolicy::Reuse)
        .await;
    let first = acme.tokens(&alice.browser()).await;
    for pause in [0, 0, 121, 0] {
        server.advance(pause);
        let next = acme.refresh(first.refresh_token()).await.tokens();
        assert_eq!(next.refresh_token(), first.refresh_token());
    }
}

/// A retry after a rotation of keys gets what the first use got. Later tokens are derived from the new key. An old key
/// stays while a live token depends on it.
#[tokio::test]
async fn keys_rotate_during_the_window_and_stay_while_a_token_needs_them() {
    let server = Server::start_with(|policy| {
        policy.key_rotation = KeyRotation {
            every: Some(Duration::from_secs(10 * DAY)),
            announce: Duration::from_mins(5),
        };
        policy.lifetimes.refresh_token = Duration::from_secs(15 * DAY);
    })
    .await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let browser = alice.browser();
    let keeps = server
        .client_with("keeps", |client| client.refresh_policy = RefreshPolicy::Reuse)
        .await;
    let core = &server.app.core;
    let keys = || {
        let rows = core
            .store
            .read_blocking(|snapshot| REFRESH_KEYS.scan(snapshot, .., usize::MAX));
        rows.unwrap()
            .into_iter()
            .map(|(number, _)| number)
            .collect::<Vec<_>>()
    };
    let kept = keeps.tokens(&browser).await;
    let first = acme.tokens(&browser).await;
    server.advance(10 * DAY - 60);
    let second = acme.refresh(first.refresh_token()).await.tokens();
    server.advance(60);
    assert!(rotate_keys::keep(core).await.unwrap());
    assert_eq!(keys(), [1, 2]);
    let again = acme.refresh(first.refresh_token()).await.tokens();
    assert_eq!(again.refresh_token(), second.refresh_token());
    let third = acme.refresh(second.refresh_token()).await.tokens();
    assert_eq!((key(second.refresh_token()), key(third.refresh_token())), (1, 2));
    for expected in [[1, 2, 3], [1, 3, 4]] {
        keeps.refresh(kept.refresh_token()).await.tokens();
        server.advance(10 * DAY);
        assert!(rotate_keys::keep(core).await.unwrap());
        assert_eq!(keys(), expected);
    }
    let same = keeps.refresh(kept.refresh_token()).await.tokens();
    assert_eq!(same.refresh_token(), kept.refresh_token());
    assert_eq!(keeps.revoke(kept.refresh_token()).await.status, 200);
    server.advance(10 * DAY);
    assert!(rotate_keys::keep(core).await.unwrap());
    assert_eq!(keys(), [4, 5]);
    assert_eq!(
        keeps.refresh(kept.refresh_token()).await.refusal(),
        line_of(&refresh::UNKNOWN)
    );
}
