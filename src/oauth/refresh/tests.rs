use proptest::prelude::*;

use super::*;
use crate::identity::AuthenticationMethod;
use crate::oauth::openid::claims::ClaimsRequest;
use crate::random::Random;

const START: Timestamp = Timestamp::from_seconds(1_000_000);
const WINDOW: Duration = Duration::from_mins(2);

fn entropy(random: &Random) -> FamilyEntropy {
    FamilyEntropy {
        token: random.bytes(),
        lineage: random.bytes(),
    }
}

fn start(random: &Random) -> (RefreshFamily, Secret<RefreshToken>) {
    let authorization = Authorization {
        client_id: "web".to_owned(),
        user: Uuid::from_u128(1),
        session: Some(Uuid::from_u128(2)),
        auth_time: Some(START),
        factor: AuthenticationMethod::Password,
        upstream_token: None,
        scope: "openid".parse().unwrap(),
        claims: ClaimsRequest::default(),
    };
    RefreshFamily::start(
        Uuid::from_u128(7),
        authorization,
        &crate::config::Settings::default().policy("").lifetimes,
        &entropy(random),
        START,
    )
}

fn present(family: &RefreshFamily, token: &str, client_id: &str, random: &Random, now: Timestamp) -> Refresh {
    let lifetimes = crate::config::Settings::default().policy("").lifetimes;
    let context = RefreshContext {
        client_id,
        policy: RefreshPolicy::Rotate,
        lifetimes: &lifetimes,
        retry_window: WINDOW,
    };
    let token = PresentedRefreshToken::parse(token).unwrap();
    family.clone().refresh(&token, context, &random.bytes(), now)
}

fn granted(refresh: Refresh) -> (RefreshFamily, String) {
    match refresh {
        Refresh::Granted(family, token) => (*family, token.reveal().to_owned()),
        _ => panic!("not granted"),
    }
}

#[test]
fn a_lost_answer_can_be_fetched_again_within_the_window() {
    let random = Random::seeded(1);
    let (family, first) = start(&random);
    let (family, lost) = granted(present(&family, first.reveal(), "web", &random, START));
    let (family, second) = granted(present(&family, first.reveal(), "web", &random, START + WINDOW));
    assert!(matches!(
        present(&family, &lost, "web", &random, START + WINDOW),
        Refresh::Refused(_)
    ));
    granted(present(&family, &second, "web", &random, START));
}

#[test]
fn no_refresh_makes_the_row_longer() {
    let random = Random::seeded(3);
    let row = |family: &RefreshFamily| rmp_serde::to_vec_named(family).unwrap();
    let (family, token) = start(&random);
    let length = row(&family).len();
    let (mut family, mut token) = (
        rmp_serde::from_slice::<RefreshFamily>(&row(&family)).unwrap(),
        token.reveal().to_owned(),
    );
    for _ in 0..3 {
        (family, token) = granted(present(&family, &token, "web", &random, START));
        assert_eq!(row(&family).len(), length);
    }
}

#[test]
fn a_sibling_that_turns_up_when_the_window_is_over_ends_the_family() {
    let random = Random::seeded(6);
    let (family, first) = start(&random);
    let (family, sibling) = granted(present(&family, first.reveal(), "web", &random, START));
    let (family, _) = granted(present(&family, first.reveal(), "web", &random, START));
    let late = START + WINDOW + Duration::from_secs(1);
    assert!(matches!(
        present(&family, &sibling, "web", &random, late),
        Refresh::Replayed(_)
    ));
}

#[test]
fn a_used_token_outside_the_window_ends_the_family() {
    let random = Random::seeded(2);
    let (family, first) = start(&random);
    let (family, _) = granted(present(&family, first.reveal(), "web", &random, START));
    let late = START + WINDOW + Duration::from_secs(1);
    let Refresh::Replayed(family) = present(&family, first.reveal(), "web", &random, late) else {
        panic!("not a replay");
    };
    assert!(!family.is_live(late));
}

#[test]
fn a_predecessor_whose_successor_was_used_ends_the_family() {
    let random = Random::seeded(3);
    let (family, first) = start(&random);
    let (family, second) = granted(present(&family, first.reveal(), "web", &random, START));
    let (family, _) = granted(present(&family, &second, "web", &random, START));
    assert!(matches!(
        present(&family, first.reveal(), "web", &random, START),
        Refresh::Replayed(_)
    ));
}

#[test]
fn an_invented_old_token_cannot_end_a_family() {
    let random = Random::seeded(4);
    let (family, first) = start(&random);
    let (family, _) = granted(present(&family, first.reveal(), "web", &random, START));
    let invented = token(Uuid::from_u128(7), 0, &[0; LINEAGE_LEN], &random.bytes());
    assert!(matches!(
        present(&family, invented.reveal(), "web", &random, START),
        Refresh::Refused(_)
    ));
}

/// All tokens of a family contain its lineage, so the holder of an old token knows it.
#[test]
fn a_token_with_the_lineage_and_an_invented_secret_is_refused() {
    let random = Random::seeded(7);
    let (family, first) = start(&random);
    let (family, _) = granted(present(&family, first.reveal(), "web", &random, START));
    let lineage = PresentedRefreshToken::parse(first.reveal()).unwrap().lineage;
    let presented = |generation| {
        let invented = token(
            Uuid::from_u128(7),
            generation,
            lineage.as_slice(),
            &random.bytes(),
        );
        present(&family, invented.reveal(), "web", &random, START)
    };
    assert!(matches!(presented(0), Refresh::Replayed(_)), "the one before");
    assert!(matches!(presented(1), Refresh::Replayed(_)), "the newest");
    assert!(matches!(presented(2), Refresh::Refused(_)), "there is none yet");
}

#[test]
fn another_client_cannot_end_a_family_with_an_old_token() {
    let random = Random::seeded(5);
    let (family, first) = start(&random);
    let (family, second) = granted(present(&family, first.reveal(), "web", &random, START));
    let (family, _) = granted(present(&family, &second, "web", &random, START));
    assert!(matches!(
        present(&family, first.reveal(), "other", &random, START),
        Refresh::Refused(_)
    ));
}

#[test]
fn a_token_issued_while_the_clock_was_ahead_lasts_as_long_as_others_from_its_next_use_on() {
    let random = Random::seeded(7);
    let (mut family, token) = start(&random);
    let now = EARLIEST + Duration::from_hours(24);
    family.created_at = now + Duration::from_hours(24 * 365 * 73);
    family.expires_at = family.created_at + Duration::from_hours(24 * 90);
    let (family, _) = granted(present(&family, token.reveal(), "web", &random, now));
    assert_eq!(family.created_at, now);
    assert_eq!(family.expires_at, now + Duration::from_hours(24 * 90));
}

#[test]
fn a_clock_that_is_behind_for_certain_shortens_nothing() {
    let random = Random::seeded(8);
    let (mut family, token) = start(&random);
    family.created_at = EARLIEST;
    family.expires_at = EARLIEST + Duration::from_hours(24 * 90);
    let (created_at, expires_at) = (family.created_at, family.expires_at);
    let epoch = Timestamp::from_seconds(0);
    let (family, _) = granted(present(&family, token.reveal(), "web", &random, epoch));
    assert_eq!((family.created_at, family.expires_at), (created_at, expires_at));
}

#[test]
fn ninety_days_count_from_the_newest_token_and_an_absolute_bound_caps_them() {
    let lifetimes = Lifetimes {
        refresh_absolute: Some(Duration::from_hours(24 * 100)),
        ..crate::config::Settings::default().policy("").lifetimes
    };
    let days = |n: u64| Duration::from_hours(24 * n);
    assert_eq!(expiry(&lifetimes, START, START + days(5)), START + days(95));
    assert_eq!(expiry(&lifetimes, START, START + days(50)), START + days(100));
}

proptest! {
    /// For every sequence of presented tokens, at most one unused token is valid, and a revoked family stays revoked.
    #[test]
    fn at_most_one_unused_token_is_good(steps in proptest::collection::vec((0_usize..12, 0_u64..100), 1..40)) {
        let random = Random::seeded(9);
        let (mut family, first) = start(&random);
        let mut tokens = vec![first.reveal().to_owned()];
        let mut used = std::collections::HashSet::new();
        let mut now = START;
        for (pick, pause) in steps {
            now = now + Duration::from_secs(pause);
            let text = tokens[pick % tokens.len()].clone();
            let was_revoked = family.revoked_at.is_some();
            match present(&family, &text, "web", &random, now) {
                Refresh::Granted(next, token) => {
                    prop_assert!(!was_revoked);
                    family = *next;
                    used.insert(text);
                    tokens.push(token.reveal().to_owned());
                }
                Refresh::Replayed(next) => family = *next,
                Refresh::Refused(refusal) => {
                    prop_assert!(was_revoked || refusal.description.contains("repeated request"));
                }
            }
            let good: Vec<_> = tokens
                .iter()
                .filter(|token| !used.contains(*token))
                .filter(|token| family.accepts(&PresentedRefreshToken::parse(token).unwrap(), WINDOW, now))
                .collect();
            prop_assert!(good.len() <= 1);
            prop_assert_eq!(good.is_empty(), family.revoked_at.is_some());
        }
    }
}
