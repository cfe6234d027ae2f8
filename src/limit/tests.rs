//! The limits as a whole.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::buckets::tests::{bytes, most_bytes};
use super::charges::Charges;
use super::concurrency::tests::holders;
use super::*;
use crate::config::Sources;
use crate::config::resolve::resolve;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

fn limiter(change: impl FnOnce(&mut LimitPolicy)) -> Limiter {
    let mut policy = resolve(&Sources::default().for_development()).unwrap().limits;
    change(&mut policy);
    Limiter::new(policy, &Random::seeded(1))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// How many of `count` wrong passwords are checked.
fn failures(
    limiter: &Limiter,
    count: usize,
    name: impl Fn(usize) -> String,
    from: impl Fn(usize) -> IpAddr,
) -> usize {
    (0..count)
        .filter_map(|at| limiter.try_password(&name(at), None, from(at), NOW).ok())
        .map(|attempt| attempt.count_failure())
        .count()
}

#[test]
fn one_name_is_guarded_against_all_addresses_together() {
    let limiter = limiter(|_| {});
    let spread = |at: usize| ip(&format!("198.51.{}.{}", at / 256, at % 256));
    assert_eq!(failures(&limiter, 1_000, |_| "alice".to_owned(), spread), 10);
    assert_eq!(failures(&limiter, 1_000, |_| "nobody".to_owned(), spread), 10);
    assert!(limiter.try_password("bob", None, spread(1), NOW).is_ok());
}

#[tokio::test]
async fn a_request_that_runs_again_is_charged_once() {
    let (limiter, charges, from) = (limiter(|_| {}), Charges::default(), ip("203.0.113.7"));
    for _ in 0..50 {
        let run = async { limiter.register_client(from, NOW).map(drop) };
        charges.run(run).await.unwrap();
    }
    let more = (0..100).filter(|_| limiter.register_client(from, NOW).is_ok());
    let others = Limiter::new(limiter.policy.clone(), &Random::seeded(1));
    let without = (0..100).filter(|_| others.register_client(from, NOW).is_ok());
    assert_eq!(more.count() + 1, without.count());
}

#[test]
fn whoever_is_refused_all_the_time_does_not_fill_the_log() {
    let limiter = limiter(|_| {});
    let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
    let logged = (0..1_000)
        .filter(|_| limiter.note_refusal(one, NOW) == Some(0))
        .count();
    assert_eq!(logged, 100);
    assert_eq!(limiter.note_refusal(other, NOW), Some(900));
    assert_eq!(limiter.note_refusal(other, NOW), Some(0));
    assert_eq!(limiter.note_refusal(one, NOW + Duration::from_secs(1)), Some(0));
}

#[test]
fn refusals_that_all_senders_get_are_logged_once_a_minute() {
    let limiter = limiter(|_| {});
    assert_eq!(limiter.note_outage("store_unavailable", NOW), Some(0));
    let soon = NOW + Duration::from_secs(59);
    for _ in 0..44_663 {
        assert_eq!(limiter.note_outage("store_unavailable", soon), None);
    }
    assert_eq!(limiter.note_outage("no_room", NOW), Some(0), "another reason");
    assert_eq!(
        limiter.note_outage("store_unavailable", NOW + Duration::from_mins(1)),
        Some(44_663)
    );
    assert_eq!(
        limiter.note_outage("store_unavailable", NOW - Duration::from_hours(24)),
        Some(0),
        "the clock was set back"
    );
}

#[test]
fn one_address_is_held_back_whatever_names_it_tries() {
    let limiter = limiter(|_| {});
    let names = |at: usize| format!("user {at}");
    assert_eq!(failures(&limiter, 1_000, names, |_| ip("192.0.2.1")), 30);
    assert_eq!(
        failures(&limiter, 1_000, names, |at| ip(&format!("2001:db8:1:2::{at:x}"))),
        30
    );
    let whole_site = |at: usize| ip(&format!("2001:db8:7:{at:x}::1"));
    assert_eq!(failures(&limiter, 1_000, names, whole_site), 240);
}

#[test]
fn an_attempt_that_is_refused_for_its_name_is_no_failure_of_its_address() {
    let limiter = limiter(|_| {});
    let elsewhere = ip("198.51.100.7");
    assert_eq!(
        failures(&limiter, 10, |_| "alice".to_owned(), |_| ip("192.0.2.1")),
        10
    );
    assert_eq!(failures(&limiter, 200, |_| "alice".to_owned(), |_| elsewhere), 0);
    assert_eq!(
        failures(&limiter, 100, |at| format!("user {at}"), |_| elsewhere),
        30
    );
}

#[test]
fn signing_in_to_ones_own_account_in_between_buys_no_guesses() {
    let limiter = limiter(|_| {});
    let mut checked = 0;
    for _ in 0..100 {
        let _right = limiter.try_password("mallory", None, ip("192.0.2.1"), NOW);
        checked += failures(&limiter, 1, |_| "alice".to_owned(), |_| ip("192.0.2.1"));
    }
    assert_eq!(checked, 10);
}

#[test]
fn right_passwords_are_no_failures_however_many_are_checked_at_once() {
    let limiter = limiter(|_| {});
    let attempts = || (0..64).map(|_| limiter.try_password("alice", None, ip("192.0.2.1"), NOW));
    assert!(attempts().all(|attempt| attempt.is_ok()));
    assert_eq!(
        failures(&limiter, 64, |_| "alice".to_owned(), |_| ip("192.0.2.1")),
        10
    );
}

/// Others may fail between the arrival of an attempt and its turn.
#[test]
fn an_attempt_that_waits_sees_what_fails_before_it() {
    let limiter = limiter(|_| {});
    let waiting = limiter.try_password("alice", None, ip("192.0.2.1"), NOW).unwrap();
    assert_eq!(waiting.may_check(), Ok(()));
    assert_eq!(
        failures(&limiter, 64, |_| "alice".to_owned(), |_| ip("192.0.2.2")),
        10
    );
    assert_eq!(waiting.may_check().unwrap_err().seconds(), 300);
}

#[test]
fn passwords_that_are_typed_are_limited_right_or_wrong() {
    let limiter = limiter(|_| {});
    let (here, elsewhere) = (ip("192.0.2.1"), ip("198.51.100.7"));
    let typed = |known: Option<&[u8]>, from| {
        (0..400)
            .filter(|_| limiter.try_password("alice", known, from, NOW).is_ok())
            .count()
    };
    assert_eq!(typed(None, here), 300);
    assert_eq!(typed(None, elsewhere), 300);
    assert_eq!(typed(Some(b"one"), here), 300);
    assert_eq!(typed(Some(b"two"), here), 0, "a user is counted once");
}

#[test]
fn a_network_that_tries_or_fails_much_has_a_higher_rank() {
    let limiter = limiter(|_| {});
    let rank = |from: &str| limiter.try_password("alice", None, ip(from), NOW).unwrap().rank;
    let (first, second) = (rank("192.0.2.1"), rank("192.0.2.1"));
    assert_eq!((first, rank("192.0.2.2")), (0, 0));
    assert!(second > first);
    failures(&limiter, 1, |_| "bob".to_owned(), |_| ip("192.0.2.2"));
    assert!(rank("192.0.2.2") > rank("192.0.2.1"));
    let many_sites = |at: usize| ip(&format!("2001:db8:{at:x}::1"));
    failures(&limiter, 1_000, |at| format!("user {at}"), many_sites);
    assert!(rank("2001:db8:ffff::1") > rank("2001:db9::1"));
}

/// One attacker can have a whole /32.
#[test]
fn guesses_of_a_whole_ipv6_provider_are_bounded() {
    let limiter = limiter(|_| {});
    let site = |at: usize| ip(&format!("2001:db8:{at:x}::1"));
    assert_eq!(
        failures(&limiter, 20_000, |at| format!("user {at}"), site),
        30 * 500
    );
    assert!(
        limiter
            .try_password("alice", None, ip("2001:db9::1"), NOW)
            .is_ok()
    );
}

#[test]
fn a_browser_that_is_known_passes_and_is_counted_by_itself() {
    let limiter = limiter(|_| {});
    let from = ip("192.0.2.1");
    assert_eq!(failures(&limiter, 100, |at| format!("user {at}"), |_| from), 30);
    assert_eq!(
        failures(&limiter, 100, |_| "alice".to_owned(), |_| ip("192.0.2.2")),
        10
    );
    let with = |browser: &[u8]| {
        let attempt = limiter.try_password("alice", Some(browser), from, NOW);
        attempt.map(|attempt| attempt.count_failure())
    };
    assert_eq!((0..100).filter(|_| with(b"one").is_ok()).count(), 10);
    assert_eq!(with(b"two"), Ok(()));
}

#[test]
fn an_exempt_network_and_a_service_without_limits_are_not_limited() {
    let exempt = limiter(|policy| policy.exempt = vec!["192.0.2.0/24".parse().unwrap()]);
    let off = limiter(|policy| policy.enabled = false);
    for limiter in [exempt, off] {
        let from = ip("192.0.2.1");
        assert_eq!(failures(&limiter, 500, |_| "alice".to_owned(), |_| from), 500);
        for browser in [None, Some(&b"browser"[..])] {
            let attempt = limiter.try_password("alice", browser, from, NOW).unwrap();
            assert_eq!(attempt.is_known, browser.is_some());
        }
        for _ in 0..500 {
            limiter.authentication_failed(b"web", from, NOW);
            assert_eq!(limiter.receive_provider_answer(from, NOW), Ok(()));
            assert!(limiter.create_anonymous_user("web", from, NOW).is_ok());
        }
        assert_eq!(limiter.may_authenticate(b"web", from, NOW), Ok(()));
        assert!(limiter.permit_for_body(BODIES_KIB * 4, from).is_some());
    }
}

#[test]
fn whoever_is_unknown_is_exempt_with_nobody() {
    let limiter = limiter(|policy| policy.exempt = vec!["0.0.0.0/0".parse().unwrap()]);
    let names = |at: usize| format!("user {at}");
    assert_eq!(failures(&limiter, 100, names, |_| ip("192.0.2.1")), 100);
    assert_eq!(failures(&limiter, 100, names, |_| ip("0.0.0.0")), 30);
    assert!(limiter.permit_for_body(BODIES_KIB + 1, ip("192.0.2.1")).is_some());
    assert!(limiter.permit_for_body(BODIES_KIB + 1, ip("0.0.0.0")).is_none());
}

#[test]
fn a_client_that_fails_at_one_address_is_heard_at_another() {
    let limiter = limiter(|_| {});
    for _ in 0..20 {
        assert_eq!(limiter.may_authenticate(b"web", ip("192.0.2.1"), NOW), Ok(()));
        limiter.authentication_failed(b"web", ip("192.0.2.1"), NOW);
    }
    let retry_after = limiter
        .may_authenticate(b"web", ip("192.0.2.1"), NOW)
        .unwrap_err();
    assert_eq!(retry_after.seconds(), 10);
    assert_eq!(limiter.may_authenticate(b"web", ip("192.0.2.2"), NOW), Ok(()));
    assert_eq!(limiter.may_authenticate(b"app", ip("192.0.2.1"), NOW), Ok(()));
    for at in 0..200_u32 {
        limiter.authentication_failed(&at.to_be_bytes(), ip("192.0.2.1"), NOW);
    }
    assert!(limiter.may_authenticate(b"app", ip("192.0.2.1"), NOW).is_err());
}

#[test]
fn of_several_full_buckets_the_longest_wait_is_the_answer() {
    let from = ip("192.0.2.1");
    let limiter = limiter(|_| {});
    for at in 0..200_u32 {
        limiter.authentication_failed(&at.to_be_bytes(), from, NOW);
    }
    let wait_of = |name: &[u8]| limiter.may_authenticate(name, from, NOW).unwrap_err().seconds();
    assert_eq!(wait_of(b"web"), 1, "the address");
    for _ in 0..20 {
        limiter.authentication_failed(b"web", from, NOW);
    }
    assert_eq!(wait_of(b"web"), 10, "the client");
    let crowd = |at: usize| format!("user {at}");
    assert_eq!(failures(&limiter, 30, crowd, |_| from), 30);
    assert_eq!(
        failures(&limiter, 10, |_| "alice".to_owned(), |_| ip("192.0.2.2")),
        10
    );
    let password = |name: &str| limiter.try_password(name, None, from, NOW).unwrap_err().seconds();
    assert_eq!((password("bob"), password("alice")), (20, 300));
    // What was refused is not charged.
    let later = NOW + Duration::from_mins(5);
    let attempt = limiter.try_password("alice", None, from, later).unwrap();
    attempt.count_failure();
    assert_eq!(attempt.may_check().unwrap_err().seconds(), 300);
}

#[test]
fn anonymous_users_are_limited_for_the_address_and_for_the_client() {
    let limiter = limiter(|policy| {
        policy.anonymous_per_address = 3;
        policy.anonymous_per_client = 5;
    });
    let made = |client: &str, from: &str| {
        (0..10)
            .filter(|_| limiter.create_anonymous_user(client, ip(from), NOW).is_ok())
            .count()
    };
    assert_eq!(made("tv", "192.0.2.1"), 3);
    assert_eq!(made("tv", "192.0.2.2"), 2);
    assert_eq!(
        made("kiosk", "192.0.2.2"),
        1,
        "what the client was refused is not the address's"
    );
    assert_eq!(made("kiosk", "192.0.2.1"), 0);
}

#[test]
fn one_address_cannot_hold_everything() {
    let limiter = limiter(|_| {});
    let room: Vec<_> = (0..1_000)
        .filter_map(|_| limiter.permit_for_body(64, ip("192.0.2.1")))
        .collect();
    assert_eq!(room.len(), 128);
    assert!(limiter.permit_for_body(64, ip("192.0.2.2")).is_some());
    let requests: Vec<_> = (0..1_000)
        .filter_map(|_| limiter.permit_for_request(ip("192.0.2.1")))
        .collect();
    assert_eq!(requests.len(), 400);
    assert!(limiter.permit_for_request(ip("192.0.2.2")).is_some());
}

/// RFC 5233: the mailbox is the same. A telephone number begins with `+`, and so may a local part.
#[test]
fn what_follows_a_plus_in_an_address_is_not_counted_apart_and_telephone_numbers_are() {
    let limiter = limiter(|_| {});
    let same = [
        "bob@example.com",
        "bob+1@example.com",
        "bob+1+2@example.com",
        "bob+@example.com",
    ];
    let other = [
        "+bob@example.com",
        "bob@example.org",
        "+15550001",
        "+15550002",
        "bob+1",
        "bob",
    ];
    let ask = |recipient: &str, number: u32| limiter.request_mail(recipient, lone_address(number), NOW);
    for (number, recipient) in (0..).zip(same) {
        assert!(ask(recipient, number).is_ok(), "{recipient}");
    }
    for recipient in same {
        assert!(ask(recipient, 100).is_err(), "{recipient}");
    }
    for (number, recipient) in (200..).zip(other) {
        assert!(ask(recipient, number).is_ok(), "{recipient}");
    }
}

#[test]
fn wrong_codes_are_limited_by_recipient_and_right_ones_are_taken_back() {
    let limiter = limiter(|_| {});
    let guess = |recipient: &str, number: u32| limiter.guess_code(recipient, lone_address(number), NOW);
    for number in 0..100 {
        guess("bob@example.com", number).unwrap().refund(NOW);
    }
    for number in 0..20 {
        assert!(guess("bob@example.com", number).is_ok(), "{number}");
    }
    assert!(guess("bob+1@example.com", 20).is_err());
    assert!(guess("carol@example.com", 20).is_ok());
}

/// For known and unknown addresses alike. Other mails, and codes of devices, have room of their own.
#[test]
fn mails_for_new_accounts_are_limited_for_all_people_together() {
    let limiter = limiter(|_| {});
    let ask = |number: u32, now| limiter.request_account(&number.to_string(), lone_address(number), now);
    for number in 0..1_000 {
        assert!(ask(number, NOW).is_ok(), "{number}");
    }
    assert!(ask(1_000, NOW).is_err());
    assert!(limiter.request_mail("bob", lone_address(1_000), NOW).is_ok());
    assert!(limiter.type_user_code(None, lone_address(1_000), NOW).is_ok());
    assert!(ask(1_001, NOW + Duration::from_secs(1)).is_ok());
}

/// An address that shares no network with another: even numbers are IPv4, odd ones are alone in an IPv6 /48.
fn lone_address(number: u32) -> IpAddr {
    if number.is_multiple_of(2) {
        Ipv4Addr::from_bits(0x0100_0000 + number).into()
    } else {
        Ipv6Addr::from_bits((0x2001 << 112) | (u128::from(number) << 80) | 1).into()
    }
}

/// Otherwise anybody could shut the users of an honest application out by naming made-up documents at its host.
#[test]
fn a_host_that_others_use_up_stays_open_for_each_network() {
    let limiter = limiter(|_| {});
    let fetch = |from: u32| limiter.fetch_for_registrant("apps.example", lone_address(from), NOW);
    for from in 0..40 {
        for _ in 0..10 {
            let _ = fetch(from);
        }
    }
    assert!(fetch(0).is_err());
    for honest in 100..110 {
        assert!((0..3).all(|_| fetch(honest).is_ok()));
        assert!(fetch(honest).is_err());
    }
}

/// An attacker with three addresses and three names for each slot of a table fills the tables. Besides them, only
/// the permits take memory.
#[test]
fn more_addresses_than_there_are_places_fill_the_tables_and_leave_nothing_besides() {
    const ADDRESSES: u32 = 200_000;
    const AT_ONCE: usize = 100;
    let limiter = limiter(|_| {});
    let mut held = VecDeque::new();
    for number in 0..ADDRESSES {
        let (from, name) = (lone_address(number), number.to_be_bytes());
        let client = number.to_string();
        if let Ok(attempt) = limiter.try_password(&client, None, from, NOW) {
            attempt.count_failure();
        }
        let _ = limiter.receive_provider_answer(from, NOW);
        let _ = limiter.fetch_for_registrant(&client, from, NOW);
        let _ = limiter.create_anonymous_user(&client, from, NOW);
        limiter.authentication_failed(&name, from, NOW);
        let _ = limiter.may_authenticate(&name, from, NOW);
        limiter.note_refusal(from, NOW);
        let _ = limiter.register_client(from, NOW);
        let _ = limiter.request_mail(&client, from, NOW);
        let _ = limiter.type_code(from, NOW);
        let _ = limiter.guess_code(&client, from, NOW);
        let _ = limiter.authorize_device(from, NOW);
        let _ = limiter.type_user_code(Some(client.as_bytes()), from, NOW);
        held.push_back([
            limiter.permit_for_body(64, from),
            limiter.permit_for_request(from),
        ]);
        if held.len() > AT_ONCE {
            held.pop_front();
        }
    }
    let Limiter {
        policy: _,
        digest_key: _,
        accounts,
        sign_ins,
        typed_passwords,
        provider_answers,
        registrant_fetches,
        registrant_hosts,
        registrant_host_shares,
        mail_recipients,
        mail_senders,
        typed_codes,
        wrong_codes,
        device_codes,
        wrong_user_codes,
        // It has two buckets.
        all_people: _,
        clients,
        client_auth_by_ip,
        registrations,
        refusal_logs,
        unlogged_refusals: _,
        // It has a bucket for each reason.
        outage_log: _,
        unlogged_outages: _,
        anonymous_addresses,
        anonymous_clients,
        bodies,
        requests,
    } = &limiter;
    let tables = [
        accounts,
        sign_ins,
        typed_passwords,
        provider_answers,
        registrant_fetches,
        registrant_hosts,
        registrant_host_shares,
        mail_recipients,
        mail_senders,
        typed_codes,
        wrong_codes,
        device_codes,
        wrong_user_codes,
        clients,
        client_auth_by_ip,
        registrations,
        refusal_logs,
        anonymous_addresses,
        anonymous_clients,
    ];
    assert_eq!(tables.map(bytes), [most_bytes(); 19]);
    for limit in [bodies, requests] {
        // Half of the addresses also hold in the name of their IPv6 /48.
        assert_eq!(holders(limit), AT_ONCE + AT_ONCE / 2);
    }
    drop(held);
    assert_eq!([bodies, requests].map(|limit| holders(limit)), [0; 2]);
}
