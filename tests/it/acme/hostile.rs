//! An authority that is not what it should be costs an attempt and nothing else.

use std::time::Duration;

use super::*;

/// A site with a certificate that is due, and the moment.
async fn due() -> (Authority, Site, TempDir, u64) {
    let (authority, site, folder) = scene(&["id.example"]).await;
    let begin = now();
    site.issue(begin).await;
    (authority, site, folder, begin + 70 * DAY)
}

/// An order fails with this behaviour, the old certificate stays, and the next order succeeds.
async fn survives(behaviour: Behaviour) -> (Failure, u64) {
    let (authority, site, folder, due) = due().await;
    let kept = std::fs::read(folder.path().join("certs/acme.pem")).unwrap();
    authority.set_behaviour(behaviour);
    let (failure, until) = site.fail(due).await;
    assert!(until >= due + 2 * MINUTE, "{failure}");
    assert!(!failure.to_string().contains(char::is_control));
    assert_eq!(site.round(due + 1).await.0, Round::Waited(Some(failure.clone())));
    assert_eq!(std::fs::read(folder.path().join("certs/acme.pem")).unwrap(), kept);
    assert!(authority.visit(site.address, "id.example").await.is_ok());
    authority.set_behaviour(Behaviour::Fair);
    authority.set_validity(due, 90 * DAY);
    site.issue(until).await;
    (failure, until - due)
}

fn saying(status: u16, header: (&'static str, &'static str), body: impl Into<String>) -> Behaviour {
    Behaviour::Saying(status, header, body.into())
}

#[tokio::test]
async fn answers_without_sense_measure_or_end_are_given_up() {
    let plain = ("x-nothing", "");
    for (behaviour, part) in [
        (
            saying(200, plain, "<html>"),
            "is the address of an ACME directory",
        ),
        (saying(200, plain, "{}"), "is the address of an ACME directory"),
        (
            saying(
                200,
                plain,
                "{\"newNonce\":\"https://ca.example/new nonce\",\"newAccount\":\"x\",\"newOrder\":\"x\"}",
            ),
            "its newNonce is no address",
        ),
        (
            saying(500, plain, "\u{1b}[2J"),
            "is the address of an ACME directory",
        ),
        (saying(200, plain, "x".repeat(600 * 1024)), "longer than 512 KiB"),
        (saying(302, ("location", "https://127.0.0.1/"), ""), "redirect"),
        (
            saying(503, ("retry-after", "18446744073709551615"), "{}"),
            "directory",
        ),
    ] {
        let (failure, _) = survives(behaviour).await;
        assert!(failure.to_string().contains(part), "{failure}");
    }
}

#[tokio::test]
async fn an_authority_that_is_silent_is_given_up() {
    let (failure, _) = survives(Behaviour::Silent).await;
    assert!(
        failure.message.contains("did not answer within 10 seconds"),
        "{failure}"
    );
}

#[tokio::test]
async fn an_authority_that_wants_to_be_left_alone_is_but_for_no_more_than_a_day() {
    let (failure, wait) = survives(Behaviour::Refusing("rateLimited", "7200")).await;
    assert!(
        failure.remedy.contains("as long as the authority asks"),
        "{failure}"
    );
    // It counts from when it was said.
    assert!((2 * HOUR..2 * HOUR + MINUTE).contains(&wait), "{wait}");
    let (_, wait) = survives(Behaviour::Refusing("rateLimited", "18446744073709551615")).await;
    assert!((DAY..DAY + MINUTE).contains(&wait), "{wait}");
    let (_, wait) = survives(Behaviour::Refusing(
        "rateLimited",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ))
    .await;
    assert!((DAY..DAY + MINUTE).contains(&wait), "{wait}");
}

#[tokio::test]
async fn an_authority_that_has_forgotten_its_nonces_is_asked_again_and_not_for_ever() {
    let (authority, site, _folder, due) = due().await;
    authority.set_window(due + 60 * DAY, due + 61 * DAY);
    authority.set_validity(due, 90 * DAY);
    authority.set_behaviour(Behaviour::Forgetful("/", 5));
    site.issue(due).await;
    let orders = authority.asked("/new-order");
    let replacing = orders
        .iter()
        .filter(|order| order.payload["replaces"].is_string());
    assert_eq!((orders.len(), replacing.count()), (7, 6));
    let (failure, _) = survives(Behaviour::Forgetful("/", u32::MAX)).await;
    assert!(failure.message.contains("badNonce"), "{failure}");
}

/// An authority may have forgotten its nonces when the service checks whether it refuses the account.
#[tokio::test]
async fn a_deactivated_account_is_replaced_though_nonces_are_forgotten() {
    let (authority, site, _folder, due) = due().await;
    authority.deactivate_accounts();
    authority.set_validity(due, 90 * DAY);
    authority.set_behaviour(Behaviour::Forgetful("/account", 5));
    site.issue(due).await;
    assert_eq!(authority.asked("/new-account").len(), 2);
}

#[tokio::test]
async fn what_has_been_issued_is_not_ordered_again_when_nonces_are_forgotten() {
    let (authority, site, _folder, due) = due().await;
    authority.set_validity(due, 90 * DAY);
    authority.set_behaviour(Behaviour::Forgetful("/certificate", 5));
    site.issue(due).await;
    assert_eq!(authority.asked("/new-order").len(), 2);
    authority.set_behaviour(Behaviour::Forgetful("/certificate", u32::MAX));
    let (failure, _) = site.fail(due + 70 * DAY).await;
    assert!(failure.message.contains("badNonce"), "{failure}");
    assert_eq!(authority.asked("/new-order").len(), 3);
}

#[tokio::test]
async fn a_certificate_that_is_not_what_was_ordered_is_not_put_in_place() {
    for (behaviour, part) in [
        (Behaviour::Misnaming, "is not for id.example"),
        (Behaviour::Miskeying, "does not belong to the certificate"),
        (Behaviour::Instead("<html>"), "no certificate in"),
        (
            Behaviour::Instead("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            "cannot use",
        ),
    ] {
        let (failure, _) = survives(behaviour).await;
        assert!(failure.message.contains(part), "{failure}");
    }
}

/// Otherwise a hostile server that is configured as the authority could get a certificate for any name that resolves
/// to this service.
#[tokio::test]
async fn no_domain_is_proven_that_was_not_ordered() {
    let (failure, _) = survives(Behaviour::AskingAbout("other.example")).await;
    assert!(failure.message.contains("was not ordered"), "{failure}");
}

#[tokio::test]
async fn a_certificate_that_clients_refuse_does_not_take_the_place_of_one_that_they_accept() {
    let (authority, site, folder, due) = due().await;
    let kept = std::fs::read(folder.path().join("certs/acme.pem")).unwrap();
    let mut at = due;
    for (from, lasts, behaviour, part) in [
        (due - 2 * DAY, DAY, Behaviour::Fair, "is not valid now"),
        (due + 20 * DAY, 90 * DAY, Behaviour::Fair, "is not valid now"),
        (
            due,
            90 * DAY,
            Behaviour::Trailing(10),
            "more others than clients take",
        ),
    ] {
        authority.set_validity(from, lasts);
        authority.set_behaviour(behaviour);
        let (failure, until) = site.fail(at).await;
        assert!(failure.message.contains(part), "{failure}");
        assert!(failure.remedy.contains("ask the authority"), "{failure}");
        assert!(until >= at + 2 * MINUTE);
        assert_eq!(std::fs::read(folder.path().join("certs/acme.pem")).unwrap(), kept);
        assert!(authority.visit(site.address, "id.example").await.is_ok());
        at = until;
    }
    authority.set_behaviour(Behaviour::Trailing(9));
    assert_eq!(site.issue(at).await, due + 90 * DAY);
}

/// An order that fails or is interrupted is not gone on with: what it waited for is asked of the next one.
#[tokio::test]
async fn an_authority_that_wants_hours_to_issue_is_left_alone_for_so_long() {
    let (authority, site, _folder, due) = due().await;
    authority.set_behaviour(Behaviour::Processing("7200"));
    let (failure, until) = site.fail(due).await;
    assert!(failure.message.contains("in time"), "{failure}");
    assert!((due + 2 * HOUR - MINUTE..due + 2 * HOUR + MINUTE).contains(&until));
    authority.set_behaviour(Behaviour::Fair);
    authority.set_validity(due, 90 * DAY);
    assert_eq!(site.issue(until).await, due + 90 * DAY);
    assert_eq!(authority.asked("/new-order").len(), 3);
}

#[tokio::test]
async fn an_attempt_that_a_killed_process_left_counts_as_one_that_failed() {
    let (authority, site, folder, due) = due().await;
    authority.set_behaviour(Behaviour::Processing(""));
    let working = site.renewal.clone();
    let round = tokio::spawn(async move { working.round(due, 0, false).await });
    while authority.asked("/finalize").len() < 2 {
        assert!(!round.is_finished());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    round.abort();
    authority.set_behaviour(Behaviour::Fair);
    authority.set_validity(due, 90 * DAY);
    let again = Site::start(&authority, site.renewal.plan().clone(), folder.path()).await;
    let waited = again.round(due + 1).await;
    assert_eq!(waited, (Round::Waited(None), due + 2 * MINUTE));
    again.issue(due + 2 * MINUTE).await;
}

#[tokio::test]
async fn a_certificate_that_may_be_issued_is_asked_for_again_while_the_authority_is_away() {
    for said in ["{\"message\":\"upstream unavailable\"}", "<html>"] {
        let (authority, site, _folder, due) = due().await;
        authority.set_validity(due, 90 * DAY);
        authority.set_behaviour(Behaviour::Away("/certificate", 1, said));
        site.issue(due).await;
        assert_eq!(authority.asked("/new-order").len(), 2, "{said}");
    }
}

/// Goes through a day, and counts the certificates.
async fn orders_within_a_day(authority: &Authority, site: &Site, begin: u64) -> usize {
    let (mut at, mut orders) = (begin, 0);
    while at < begin + DAY {
        let (round, until) = site.round(at).await;
        orders += usize::from(matches!(round, Round::Issued { .. }));
        at = until.max(at + 1);
    }
    assert_eq!(authority.asked("/new-order").len(), orders);
    orders
}

#[tokio::test]
async fn certificates_that_are_dead_on_arrival_do_not_make_for_a_flood_of_orders() {
    let (authority, site, _folder) = scene(&["id.example"]).await;
    let begin = now();
    authority.set_validity(begin - 2 * DAY, DAY);
    let orders = orders_within_a_day(&authority, &site, begin).await;
    assert!(orders < 15, "{orders}");
}

#[tokio::test]
async fn an_authority_that_wants_each_certificate_replaced_at_once_issues_two_a_day() {
    let (authority, site, _folder) = scene(&["id.example"]).await;
    let begin = now();
    authority.set_window(begin - 2 * DAY, begin - DAY);
    let orders = orders_within_a_day(&authority, &site, begin).await;
    assert_eq!(orders, 2);
}

#[tokio::test]
async fn an_authority_that_refuses_every_account_is_not_flooded_with_new_ones() {
    let (authority, site, _folder, due) = due().await;
    authority.set_behaviour(Behaviour::Refusing("accountDoesNotExist", "0"));
    let (failure, _) = site.fail(due).await;
    assert!(failure.remedy.contains("another account"), "{failure}");
    assert_eq!(authority.asked("/new-account").len(), 2, "the first and one more");
    let (mut at, mut attempts) = (due, 1);
    while at < due + DAY {
        let (round, until) = site.round(at).await;
        attempts += usize::from(matches!(round, Round::Failed(_)));
        at = until.max(at + 1);
    }
    assert!((5..15).contains(&attempts), "{attempts}");
    assert_eq!(authority.asked("/new-account").len(), 1 + attempts);
}

#[tokio::test]
async fn an_order_that_is_refused_costs_no_account_and_is_told_as_it_was_said() {
    let (authority, site, _folder, due) = due().await;
    authority.set_behaviour(Behaviour::Refusing("unauthorized", "0"));
    let mut at = due;
    for _ in 0..3 {
        let (failure, until) = site.fail(at).await;
        assert_eq!(failure.message, "said unauthorized (unauthorized)");
        assert!(failure.remedy.contains("ask the authority why"), "{failure}");
        at = until;
    }
    assert_eq!(
        authority.asked("/new-account").len(),
        1,
        "the account is in order"
    );
}

#[tokio::test]
async fn an_authority_that_will_not_have_a_certificate_replaced_issues_one_to_the_same_account() {
    let (authority, site, _folder, due) = due().await;
    authority.set_window(due + 60 * DAY, due + 61 * DAY);
    authority.set_validity(due, 90 * DAY);
    authority.set_behaviour(Behaviour::RefusingReplacement("unauthorized"));
    site.issue(due).await;
    let orders = authority.asked("/new-order");
    let replacing = |at: usize| orders[at].payload["replaces"].is_string();
    assert_eq!((orders.len(), replacing(1), replacing(2)), (3, true, false));
    assert_eq!(authority.asked("/new-account").len(), 1);
}

#[tokio::test]
async fn a_round_that_ends_in_a_panic_is_told_as_a_failure_and_leaves_the_authority_alone() {
    let (authority, site, folder) = scene(&["id.example"]).await;
    let begin = now();
    let RoundResult {
        round,
        next_at: until,
    } = site.renewal.broke(begin, "a panic on purpose");
    let Round::Failed(failure) = round else {
        panic!("{round:?}");
    };
    assert!(failure.message.contains("a panic on purpose"), "{failure}");
    assert_eq!(until, begin + HOUR);
    let kept = Certs::of(folder.path()).state().unwrap().schedule;
    assert_eq!((kept.failures, kept.failed_at), (1, begin));
    assert_eq!((kept.failure.as_ref(), kept.not_before), (Some(&failure), until));
    let again = Site::start(&authority, site.renewal.plan().clone(), folder.path()).await;
    for site in [&site, &again] {
        let waited = site.round(until - 1).await;
        assert_eq!(waited, (Round::Waited(Some(failure.clone())), until));
    }
    assert!(authority.asked("/").is_empty());
    again.issue(until).await;
}
