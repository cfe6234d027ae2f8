use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::config::Sources;
use crate::config::resolve::resolve_settings;
use crate::identity::AuthenticationMethod;
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::refresh_keys::RefreshKeys;
use crate::oauth::resource::Resources;

const START: Timestamp = Timestamp::from_seconds(1_000_000);
const WINDOW: Duration = Duration::from_mins(2);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);

fn keys(newest: u32) -> RefreshKeys {
    RefreshKeys::new((1..=newest).map(|number| (number, vec![7; 32].into())))
}

fn client(id: &str, policy: RefreshPolicy) -> Client {
    let mut client = Client::new(id, Uuid::nil(), Uuid::nil(), false, START);
    client.refresh_policy = policy;
    client
}

fn lifetimes() -> Lifetimes {
    resolve_settings(&Sources::default())
        .unwrap()
        .policy("")
        .lifetimes
}

fn start_at(now: Timestamp) -> (RefreshFamily, RefreshTokenId) {
    let authorization = Authorization {
        client_id: "web".to_owned(),
        client_incarnation: Uuid::nil(),
        user: Uuid::from_u128(1),
        session: Some(Uuid::from_u128(2)),
        auth_time: Some(now),
        factor: AuthenticationMethod::Password,
        second_factor: None,
        upstream_token: None,
        scope: "openid".parse().unwrap(),
        resources: Resources::new(),
        claims: ClaimsRequest::default(),
        bound_to: None,
        actor: None,
    };
    let first = keys(1).first_token(Uuid::from_u128(7), [3; 16]).unwrap();
    let web = client("web", RefreshPolicy::Rotate);
    let family = RefreshFamily::start(&first, authorization, &web, &lifetimes(), now);
    (family, first)
}

fn start() -> (RefreshFamily, RefreshTokenId) {
    start_at(START)
}

fn present_as(
    client: &Client,
    family: &RefreshFamily,
    token: &RefreshTokenId,
    key: u32,
    now: Timestamp,
) -> Refresh {
    let context = RefreshContext {
        client,
        lifetimes: &lifetimes(),
        retry_window: WINDOW,
        key,
        shown: None,
        arrival: at(now),
        decided_at: at(now).read_at,
    };
    family.clone().refresh(token, context)
}

fn at(now: Timestamp) -> Arrival {
    let read_at = Duration::from_secs(now.seconds());
    Arrival {
        read_at,
        earliest: read_at,
    }
}

fn is_overtaken(refresh: &Refresh) -> bool {
    matches!(refresh, Refresh::Refused(refusal) if refusal.code == ErrorCode::TemporarilyUnavailable)
}

/// A token in a request that may have waited for so many milliseconds.
fn present_after(waited: u64, family: &RefreshFamily, token: &RefreshTokenId, now: Timestamp) -> Refresh {
    let web = client("web", RefreshPolicy::Rotate);
    let arrival = Arrival {
        earliest: at(now).read_at.saturating_sub(Duration::from_millis(waited)),
        ..at(now)
    };
    let context = RefreshContext {
        client: &web,
        lifetimes: &lifetimes(),
        retry_window: WINDOW,
        key: 1,
        shown: None,
        arrival,
        decided_at: arrival.read_at,
    };
    family.clone().refresh(token, context)
}

fn present(family: &RefreshFamily, token: &RefreshTokenId, now: Timestamp) -> Refresh {
    present_as(&client("web", RefreshPolicy::Rotate), family, token, 1, now)
}

fn granted(refresh: Refresh, token: &RefreshTokenId) -> (RefreshFamily, RefreshTokenId) {
    match refresh {
        Refresh::Granted(family) => {
            let newest = family.newest_token(token);
            (*family, newest)
        }
        _ => panic!("not granted"),
    }
}

/// The token that a retry is answered with.
fn repeated(refresh: Refresh, token: &RefreshTokenId) -> RefreshTokenId {
    match refresh {
        Refresh::Repeated(family) => family.newest_token(token),
        _ => panic!("not repeated"),
    }
}

fn text(token: &RefreshTokenId) -> String {
    keys(9).derive(token).unwrap().reveal().to_owned()
}

#[test]
fn a_retry_within_the_window_gets_the_same_successor() {
    let (family, first) = start();
    let (family, second) = granted(present(&family, &first, START), &first);
    for later in [Duration::ZERO, WINDOW] {
        let again = repeated(present(&family, &first, START + later), &first);
        assert_eq!(text(&again), text(&second));
    }
    granted(present(&family, &second, START + WINDOW), &second);
}

#[test]
fn no_refresh_makes_the_row_longer() {
    for policy in [RefreshPolicy::Rotate, RefreshPolicy::Reuse] {
        let row = |family: &RefreshFamily| rmp_serde::to_vec_named(family).unwrap();
        let (mut family, mut token) = start();
        let length = row(&family).len();
        for _ in 0..3 {
            let refreshed = present_as(&client("web", policy), &family, &token, 1, START);
            (family, token) = granted(refreshed, &token);
            assert_eq!(row(&family).len(), length);
        }
    }
}

#[test]
fn a_request_that_came_before_the_successor_was_used_is_no_replay() {
    let (family, first) = start();
    let (family, second) = granted(present(&family, &first, START), &first);
    let (family, third) = granted(present(&family, &second, START + SECOND), &second);
    let now = START + SECOND * 3;
    for waited in [2001, 60_000] {
        let late = present_after(waited, &family, &first, now);
        assert!(is_overtaken(&late), "{waited}");
    }
    for waited in [0, 2000] {
        let replay = present_after(waited, &family, &first, now);
        assert!(matches!(replay, Refresh::Replayed(_)), "{waited}");
    }
    // The newest token and a retry count as ever.
    let (family, _) = granted(present_after(60_000, &family, &third, now), &third);
    repeated(present_after(60_000, &family, &third, now), &third);
    assert!(is_overtaken(&present_after(
        2001,
        &family,
        &second,
        now + SECOND * 2
    )));
}

/// The last use lies an hour ahead of the request.
#[test]
fn a_clock_that_was_set_back_hides_no_replay() {
    let (family, first) = start();
    let ahead = START + SECOND * 3600;
    let (family, second) = granted(present(&family, &first, ahead), &first);
    let (family, _) = granted(present(&family, &second, ahead), &second);
    let decided = |token: &RefreshTokenId, read_at: Timestamp, decided_at: Timestamp| {
        let web = client("web", RefreshPolicy::Rotate);
        let context = RefreshContext {
            client: &web,
            lifetimes: &lifetimes(),
            retry_window: WINDOW,
            key: 1,
            shown: None,
            arrival: at(read_at),
            decided_at: at(decided_at).read_at,
        };
        family.clone().refresh(token, context)
    };
    for waited in [0, 30, 3589] {
        let replay = decided(&first, START, START + SECOND * waited);
        assert!(matches!(replay, Refresh::Replayed(_)), "{waited}");
    }
    for read_at in [START, ahead - SECOND * 10, ahead - SECOND] {
        assert!(is_overtaken(&decided(&first, read_at, ahead)), "it has waited");
    }
    let other_clock = ahead - SECOND * 10;
    assert!(is_overtaken(&decided(&first, other_clock, other_clock)));
}

#[test]
fn a_row_of_an_earlier_release_knows_the_second_of_its_last_use() {
    let (family, first) = start();
    let (family, second) = granted(present(&family, &first, START), &first);
    let (mut family, _) = granted(present(&family, &second, START + SECOND), &second);
    family.last_use_ms = None;
    let row = rmp_serde::to_vec_named(&family).unwrap();
    let family: RefreshFamily = rmp_serde::from_slice(&row).unwrap();
    let now = START + SECOND * 2;
    assert!(is_overtaken(&present_after(1001, &family, &first, now)));
    assert!(matches!(
        present_after(1000, &family, &first, now),
        Refresh::Replayed(_)
    ));
}

#[test]
fn a_used_token_outside_the_window_ends_the_family() {
    let (family, first) = start();
    let (family, _) = granted(present(&family, &first, START), &first);
    let late = START + WINDOW + SECOND;
    let Refresh::Replayed(family) = present(&family, &first, late) else {
        panic!("not a replay");
    };
    assert!(!family.is_live(late));
}

#[test]
fn a_token_whose_successor_was_used_ends_the_family() {
    let (family, first) = start();
    let (family, second) = granted(present(&family, &first, START), &first);
    let (family, third) = granted(present(&family, &second, START), &second);
    assert!(matches!(present(&family, &first, START), Refresh::Replayed(_)));
    repeated(present(&family, &second, START), &second);
    granted(present(&family, &third, START), &third);
}

/// A client that is changed to keep its token uses the successor without replacing it.
#[test]
fn a_successor_that_its_client_keeps_was_used_too() {
    let (family, first) = start();
    let (family, second) = granted(present(&family, &first, START), &first);
    let keeps = client("web", RefreshPolicy::Reuse);
    repeated(present_as(&keeps, &family, &first, 1, START), &first);
    let (family, kept) = granted(present_as(&keeps, &family, &second, 2, START), &second);
    assert_eq!(text(&kept), text(&second), "under its own key");
    let replayed = present_as(&keeps, &family, &first, 1, START);
    assert!(matches!(replayed, Refresh::Replayed(_)));
}

/// Requests that are sent at once are decided in any order, and each has the time of its arrival.
#[test]
fn a_retry_that_arrived_before_the_first_use_was_decided_is_one() {
    let now = EARLIEST + DAY;
    let (family, first) = start_at(now);
    let (family, second) = granted(present(&family, &first, now), &first);
    let again = repeated(present(&family, &first, now - SECOND), &first);
    assert_eq!(text(&again), text(&second));
}

#[test]
fn a_clock_that_was_set_back_does_not_prolong_the_window() {
    let now = EARLIEST + DAY;
    let (family, first) = start_at(now);
    let (family, second) = granted(present(&family, &first, now), &first);
    repeated(present(&family, &first, now - WINDOW), &first);
    let before = now - WINDOW - SECOND;
    assert!(matches!(present(&family, &first, before), Refresh::Replayed(_)));
    granted(present(&family, &second, before), &second);
    // A request that came before the window, and was read after it, has waited.
    let later = now + WINDOW + SECOND;
    let waited = (WINDOW + SECOND * 2).as_millis().try_into().unwrap();
    assert!(is_overtaken(&present_after(waited, &family, &first, later)));
}

/// A machine without a clock battery that lost its power in a refresh.
#[test]
fn a_clock_that_is_behind_for_certain_ends_no_family() {
    let (family, first) = start_at(EARLIEST);
    let (family, second) = granted(present(&family, &first, EARLIEST), &first);
    let again = repeated(present(&family, &first, Timestamp::from_seconds(0)), &first);
    assert_eq!(text(&again), text(&second));
}

#[test]
fn a_retry_gets_the_same_successor_though_keys_were_rotated() {
    let web = client("web", RefreshPolicy::Rotate);
    let (family, first) = start();
    let (family, second) = granted(present_as(&web, &family, &first, 2, START), &first);
    let again = repeated(present_as(&web, &family, &first, 3, START), &first);
    assert_eq!(text(&again), text(&second));
    let (family, third) = granted(present_as(&web, &family, &second, 3, START), &second);
    assert_eq!((second.key, third.key, family.key), (2, 3, 3));
}

/// None of these was issued: each needs a key or a lineage that leaked.
#[test]
fn a_token_of_another_lineage_key_or_generation_is_unknown() {
    let (family, first) = start();
    let (family, second) = granted(present(&family, &first, START), &first);
    let other = keys(1).first_token(Uuid::from_u128(7), [4; 16]).unwrap();
    for token in [
        other.clone(),
        other.with(1, 1),
        second.with(2, 1),
        second.with(1, 2),
    ] {
        assert!(!family.knows(&token));
        for late in [START, START + 2 * WINDOW] {
            assert!(matches!(present(&family, &token, late), Refresh::Refused(_)));
        }
    }
    granted(present(&family, &second, START), &second);
}

#[test]
fn another_client_can_neither_retry_nor_end_a_family() {
    let (family, first) = start();
    let other = client("other", RefreshPolicy::Rotate);
    let (family, second) = granted(present(&family, &first, START), &first);
    for token in [&first, &second] {
        for now in [START, START + 2 * WINDOW] {
            let refused = present_as(&other, &family, token, 1, now);
            assert!(matches!(refused, Refresh::Refused(_)));
        }
    }
}

#[test]
fn a_retry_after_the_end_of_the_family_is_refused() {
    let (family, first) = start();
    let (mut family, _) = granted(present(&family, &first, START), &first);
    family.revoke(START);
    assert!(matches!(present(&family, &first, START), Refresh::Refused(_)));
}

#[test]
fn a_token_issued_while_the_clock_was_ahead_lasts_as_long_as_others_from_its_next_use_on() {
    let (mut family, token) = start();
    let now = EARLIEST + DAY;
    family.created_at = now + DAY * 365 * 73;
    family.expires_at = family.created_at + DAY * 90;
    let (family, _) = granted(present(&family, &token, now), &token);
    assert_eq!(family.created_at, now);
    assert_eq!(family.expires_at, now + DAY * 90);
}

#[test]
fn a_clock_that_is_behind_for_certain_shortens_nothing() {
    let (mut family, token) = start();
    family.created_at = EARLIEST;
    family.expires_at = EARLIEST + DAY * 90;
    let (created_at, expires_at) = (family.created_at, family.expires_at);
    let epoch = Timestamp::from_seconds(0);
    let (family, _) = granted(present(&family, &token, epoch), &token);
    assert_eq!((family.created_at, family.expires_at), (created_at, expires_at));
}

#[test]
fn ninety_days_count_from_the_newest_token_and_an_absolute_bound_caps_them() {
    let web = client("web", RefreshPolicy::Rotate);
    let app = Client::new("app", Uuid::nil(), Uuid::nil(), true, START);
    let of = |client, lifetimes: Lifetimes, days| expiry(client, &lifetimes, START, START + DAY * days);
    let bounded = Lifetimes {
        refresh_absolute: Some(DAY * 100),
        ..lifetimes()
    };
    assert_eq!(of(&web, bounded, 5), START + DAY * 95);
    assert_eq!(of(&web, bounded, 50), START + DAY * 100);
    assert_eq!(of(&web, lifetimes(), 300), START + DAY * 390);
    assert_eq!(
        of(&app, lifetimes(), 275),
        START + DAY * 365,
        "a year, if nothing is set"
    );
    assert_eq!(
        of(&app, lifetimes(), 300),
        START + DAY * 365,
        "a year, if nothing is set"
    );
}

proptest! {
    /// For every sequence of presented tokens, the family has one newest token, each generation has one text, only the
    /// first use of a token changes the family, and a revoked family stays revoked.
    #[test]
    fn each_token_has_one_successor(steps in proptest::collection::vec((0_usize..4, 0_u64..100, 1_u32..4), 1..40)) {
        let web = client("web", RefreshPolicy::Rotate);
        let (mut family, first) = start();
        let mut tokens = vec![first];
        let mut now = START;
        for (back, pause, key) in steps {
            now = now + Duration::from_secs(pause);
            let newest = tokens.len() - 1;
            let presented = newest.saturating_sub(back);
            let token = tokens[presented].clone();
            let was_revoked = family.revoked_at.is_some();
            let used_at = family.last_used_at;
            match present_as(&web, &family, &token, key, now) {
                Refresh::Granted(next) => {
                    prop_assert!(!was_revoked && presented == newest);
                    tokens.push(next.newest_token(&token));
                    family = *next;
                }
                Refresh::Repeated(same) => {
                    prop_assert!(!was_revoked && presented + 1 == newest && now <= used_at + WINDOW);
                    prop_assert_eq!(text(&same.newest_token(&token)), text(&tokens[newest]));
                }
                Refresh::Replayed(next) => {
                    prop_assert!(!was_revoked && presented < newest);
                    family = *next;
                }
                Refresh::Refused(_) => prop_assert!(was_revoked),
            }
            let texts: BTreeSet<_> = tokens.iter().map(text).collect();
            prop_assert_eq!(texts.len(), tokens.len());
            let accepted: Vec<_> = tokens.iter().filter(|token| family.accepts(token, WINDOW, now)).collect();
            let retryable = usize::from(now <= family.last_used_at + WINDOW && tokens.len() > 1);
            let expected = if family.revoked_at.is_some() { 0 } else { 1 + retryable };
            prop_assert_eq!(accepted.len(), expected);
        }
    }
}

#[test]
fn a_scope_narrows_and_never_widens() {
    let granted: Scope = "openid email authenticated".parse().unwrap();
    let narrowed = |asked: Option<&str>, allowed: &str| {
        let asked = asked.map(|asked| asked.parse().unwrap());
        narrowed_scope(&granted, asked.as_ref(), &allowed.parse().unwrap())
    };
    assert_eq!(
        narrowed(Some("email"), "openid email").unwrap().to_string(),
        "email authenticated"
    );
    assert_eq!(narrowed(None, "openid email profile").unwrap(), granted);
    let anonymous: Scope = "openid anonymous".parse().unwrap();
    let kept = narrowed_scope(&anonymous, Some(&"openid".parse().unwrap()), &Scope::empty());
    assert_eq!(kept.unwrap().to_string(), "anonymous");
    assert_eq!(
        narrowed(None, "openid").unwrap().to_string(),
        "openid authenticated"
    );
    let wider = narrowed(Some("email profile"), "openid email profile");
    assert_eq!(wider.unwrap_err().code, ErrorCode::InvalidScope);
}
