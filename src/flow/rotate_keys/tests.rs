use super::*;
use crate::admin::tests::{core, core_on};
use crate::clock::EARLIEST;
use crate::jose::keyring::KeyState;

const DAY: Duration = Duration::from_hours(24);

fn signer(core: &Core) -> String {
    core.catalog()
        .keyring()
        .signer(Algorithm::EdDsa)
        .unwrap()
        .kid()
        .to_owned()
}

fn placed(introduction: Introduction) -> String {
    match introduction {
        Introduction::Placed { kid, .. } => kid,
        other => panic!("not placed: {other:?}"),
    }
}

#[tokio::test]
async fn the_first_start_makes_the_keys_and_the_second_none() {
    let core = core();
    assert_eq!(
        ensure_keys(&core).await.unwrap(),
        [Algorithm::Es256, Algorithm::Rs256]
    );
    assert_eq!(
        core.catalog().keyring().published_algorithms(),
        [Algorithm::Rs256, Algorithm::Es256]
    );
    assert!(ensure_keys(&core).await.unwrap().is_empty());
}

#[tokio::test]
async fn processes_that_start_at_once_end_with_one_active_key_of_each_algorithm() {
    let first = core();
    let second = core_on(first.store.clone());
    let (made, also) = tokio::join!(ensure_keys(&first), ensure_keys(&second));
    let mut made = [made.unwrap(), also.unwrap()].concat();
    made.sort_by_key(|alg| alg.as_str());
    assert_eq!(made, [Algorithm::Es256, Algorithm::Rs256]);
    let keys = first
        .store
        .read_blocking(|snapshot| SIGNING_KEYS.scan(snapshot, .., usize::MAX));
    assert_eq!(keys.unwrap().len(), 2);
    for alg in [Algorithm::Es256, Algorithm::Rs256] {
        let kid = |core: &Core| core.catalog().keyring().signer(alg).unwrap().kid().to_owned();
        assert_eq!(kid(&first), kid(&second));
    }
}

#[tokio::test]
async fn a_new_key_is_announced_then_signs_then_the_old_one_goes() {
    let core = core();
    let first = placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap());
    assert_eq!(signer(&core), first);
    let second = placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap());
    assert_eq!(signer(&core), first);
    assert!(core.catalog().keyring().verifier(&second).is_some());
    assert!(!keep(&core).await.unwrap());
    core.clock.advance(14 * DAY);
    assert!(keep(&core).await.unwrap());
    assert_eq!(signer(&core), second);
    assert!(core.catalog().keyring().verifier(&first).is_some());
    core.clock.advance(Duration::from_secs(7 * 24 * 60 * 60 - 1));
    assert!(!keep(&core).await.unwrap());
    core.clock.advance(Duration::from_secs(1));
    assert!(keep(&core).await.unwrap());
    assert!(core.catalog().keyring().verifier(&first).is_none());
}

#[tokio::test]
async fn a_year_of_days_has_a_new_key_every_ninety_days_and_each_is_announced_for_fourteen() {
    let core = core();
    let mut signers = vec![placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap())];
    let mut seen_for = 0_u32;
    for day in 1..=365_u32 {
        core.clock.advance(DAY);
        keep(&core).await.unwrap();
        let announced = core
            .catalog()
            .keyring()
            .keys()
            .iter()
            .any(|(_, state)| *state == KeyState::Announced);
        let now_signs = signer(&core);
        if signers.last() != Some(&now_signs) {
            assert_eq!((day % 90, seen_for), (0, 14), "day {day}");
            signers.push(now_signs);
        }
        seen_for = if announced { seen_for + 1 } else { 0 };
        assert!(core.catalog().keyring().keys().len() <= 2, "day {day}");
    }
    assert_eq!(signers.len(), 5);
}

#[tokio::test]
async fn a_process_that_is_late_announces_no_second_successor() {
    let first = core();
    let old = placed(rotate(&first, Algorithm::EdDsa, false).await.unwrap());
    let second = core_on(first.store.clone());
    for core in [&first, &second] {
        core.clock.advance(76 * DAY);
    }
    assert!(announce_successor(&first, Algorithm::EdDsa).await.unwrap());
    assert!(!announce_successor(&second, Algorithm::EdDsa).await.unwrap());
    for core in [&first, &second] {
        core.clock.advance(14 * DAY);
    }
    // The second process still means the key that the first one has replaced.
    assert!(keep(&first).await.unwrap());
    assert!(!announce_successor(&second, Algorithm::EdDsa).await.unwrap());
    assert!(!keep(&second).await.unwrap());
    assert_ne!(signer(&first), old);
    assert_eq!(second.catalog().keyring().keys().len(), 2);
}

#[tokio::test]
async fn a_service_that_was_off_for_a_year_announces_before_it_rotates() {
    let core = core();
    let first = placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap());
    core.clock.advance(365 * DAY);
    assert!(keep(&core).await.unwrap());
    assert!(!keep(&core).await.unwrap());
    assert_eq!(signer(&core), first);
    core.clock.advance(14 * DAY);
    keep(&core).await.unwrap();
    assert_ne!(signer(&core), first);
}

#[tokio::test]
async fn a_key_announced_while_the_clock_was_wrong_waits_no_longer_than_others() {
    let core = core();
    rotate(&core, Algorithm::EdDsa, false).await.unwrap();
    let kid = placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap());
    let wrong = core.clock.now() + 1000 * DAY;
    core.store
        .write("test", {
            let kid = kid.clone();
            move |tx| {
                let mut record = SIGNING_KEYS.get(&*tx, &kid)?.unwrap();
                record.standing = KeyLifecycle::Announced { active_from: wrong };
                SIGNING_KEYS.put(tx, &kid, &record)
            }
        })
        .await
        .unwrap();
    assert!(keep(&core).await.unwrap());
    core.clock.advance(14 * DAY);
    keep(&core).await.unwrap();
    assert_eq!(signer(&core), kid);
}

#[tokio::test]
async fn a_key_that_began_while_the_clock_was_ahead_rotates_as_others_do() {
    let core = core();
    core.clock.advance(Duration::from_secs(EARLIEST.seconds()));
    let first = placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap());
    let ahead = core.clock.now() + 3000 * DAY;
    core.store
        .write("test", {
            let kid = first.clone();
            move |tx| {
                let mut record = SIGNING_KEYS.get(&*tx, &kid)?.unwrap();
                record.standing = KeyLifecycle::Active { since: ahead };
                SIGNING_KEYS.put(tx, &kid, &record)
            }
        })
        .await
        .unwrap();
    assert!(keep(&core).await.unwrap());
    for _ in 0..90 {
        core.clock.advance(DAY);
        keep(&core).await.unwrap();
    }
    assert_ne!(signer(&core), first);
}

#[tokio::test]
async fn a_key_stays_as_long_as_what_it_signed_whatever_the_settings_are_by_then() {
    for is_told_at_a_start in [false, true] {
        let mut core = core();
        let sign_for = |core: &mut Core, days: u32| {
            std::sync::Arc::make_mut(&mut core.policy).lifetimes.access_token = days * DAY;
        };
        if !is_told_at_a_start {
            sign_for(&mut core, 30);
        }
        let first = placed(rotate(&core, Algorithm::EdDsa, true).await.unwrap());
        if is_told_at_a_start {
            sign_for(&mut core, 30);
            ensure_keys(&core).await.unwrap();
        }
        sign_for(&mut core, 1);
        ensure_keys(&core).await.unwrap();
        let second = placed(rotate(&core, Algorithm::EdDsa, true).await.unwrap());
        for (days, kid, is_there) in [(29, &first, true), (1, &first, false), (0, &second, true)] {
            core.clock.advance(days * DAY);
            keep(&core).await.unwrap();
            let found = core.catalog().keyring().verifier(kid).is_some();
            assert_eq!(found, is_there, "{days} {is_told_at_a_start}");
        }
    }
}

#[tokio::test]
async fn nothing_rotates_by_itself_when_the_operator_says_so() {
    let mut core = core();
    std::sync::Arc::make_mut(&mut core.policy).key_rotation.every = None;
    let first = placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap());
    core.clock.advance(1000 * DAY);
    assert!(!keep(&core).await.unwrap());
    assert_eq!(signer(&core), first);
}

#[tokio::test]
async fn an_announced_key_is_not_overtaken_but_can_be_hurried() {
    let core = core();
    rotate(&core, Algorithm::EdDsa, false).await.unwrap();
    let second = placed(rotate(&core, Algorithm::EdDsa, false).await.unwrap());
    assert_eq!(
        rotate(&core, Algorithm::EdDsa, false).await.unwrap(),
        Introduction::AnotherIsAnnounced { kid: second.clone() }
    );
    assert_eq!(
        placed(rotate(&core, Algorithm::EdDsa, true).await.unwrap()),
        second
    );
    assert_eq!(signer(&core), second);
}

#[tokio::test]
async fn a_key_opens_under_its_own_name_and_master_key_only() {
    let core = core();
    let kid = placed(rotate(&core, Algorithm::EdDsa, true).await.unwrap());
    let record = core
        .store
        .read_blocking(|snapshot| SIGNING_KEYS.get(snapshot, &kid))
        .unwrap()
        .unwrap();
    assert_eq!(open_signing_key(&core.sealer, &kid, &record).unwrap().kid(), kid);
    assert!(open_signing_key(&core.sealer, "other", &record).is_err());
    assert!(open_signing_key(&Sealer::new(&[8; 32]), &kid, &record).is_err());
}
