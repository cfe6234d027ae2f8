//! An authority that takes its time is given it, and is not asked for the same certificate twice.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use super::*;

/// A site with a certificate that is due, the moment, and where an open order is kept.
async fn due() -> (Authority, Site, TempDir, u64, PathBuf) {
    let (authority, site, folder) = scene(&["id.example"]).await;
    let begin = now();
    site.issue(begin).await;
    authority.set_validity(begin + 70 * DAY, 90 * DAY);
    let kept = folder.path().join("certs/acme-order.json");
    assert!(!kept.exists());
    (authority, site, folder, begin + 70 * DAY, kept)
}

#[tokio::test]
async fn an_order_that_takes_its_time_is_gone_on_with_when_the_authority_wants_it() {
    let (authority, site, folder, due, kept) = due().await;
    authority.set_mood(Mood::Processing("600"));
    let (failure, until) = site.fail(due).await;
    assert!(failure.message.contains("in time"), "{failure}");
    assert!((due + 600..due + 660).contains(&until), "{}", until - due);
    let mode = std::fs::metadata(&kept).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let waited = Round::Waited(Some(failure));
    assert_eq!(site.round(until - 1).await, (waited, until));

    let again = Site::start(&authority, site.renewal.plan().clone(), folder.path()).await;
    let (_, later) = again.fail(until).await;
    assert!((until + 600..until + 660).contains(&later), "{}", later - until);
    authority.set_mood(Mood::Fair);
    assert_eq!(again.issue(later).await, due + 90 * DAY);
    assert_eq!(again.acceptor.not_after(), Some(due + 90 * DAY));
    for (path, times) in [("/new-order", 2), ("/finalize", 2), ("/certificate", 2)] {
        assert_eq!(authority.asked(path).len(), times, "{path}");
    }
    assert!(!kept.exists());
}

/// An attempt at a renewal, at the moment at which the authority works on the certificate.
async fn processing(authority: &Authority, site: &Site, due: u64) -> JoinHandle<(Round, u64)> {
    authority.set_mood(Mood::Processing(""));
    let working = site.renewal.clone();
    let round = tokio::spawn(async move { working.round(due, 0, false).await });
    while authority.asked("/finalize").len() < 2 {
        assert!(!round.is_finished());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    round
}

#[tokio::test]
async fn an_order_that_a_killed_process_left_is_gone_on_with_until_its_certificate_is_in_place() {
    let (authority, site, folder, due, kept) = due().await;
    let round = processing(&authority, &site, due).await;
    round.abort();
    let left = std::fs::read(&kept).unwrap();
    authority.set_mood(Mood::Fair);
    let again = Site::start(&authority, site.renewal.plan().clone(), folder.path()).await;
    let (Round::Waited(None), until) = again.round(due + 1).await else {
        panic!("the attempt counts as one that failed");
    };
    again.issue(until).await;
    assert_eq!(authority.asked("/new-order").len(), 2);

    // Killed after the certificate was put in place, and before the order was forgotten.
    std::fs::write(&kept, left).unwrap();
    authority.set_window(due - DAY, due - HOUR);
    assert_eq!(again.round(until + 7 * HOUR).await.0, Round::Rested);
    again.issue(until + 7 * HOUR).await;
    assert_eq!(
        authority.asked("/new-order").len(),
        3,
        "the same certificate again is none"
    );
    assert!(!kept.exists());
}

#[tokio::test]
async fn an_order_that_nothing_comes_of_any_more_is_forgotten() {
    let (authority, site, folder, due, kept) = due().await;
    authority.set_mood(Mood::Processing("600"));
    let (_, until) = site.fail(due).await;
    authority.forget_orders();
    let (_, until) = site.fail(until).await;
    assert_eq!(
        authority.asked("/new-order").len(),
        3,
        "the authority has lost it"
    );
    let (_, until) = site.fail(until + 3 * DAY).await;
    assert_eq!(authority.asked("/new-order").len(), 4, "it was too long ago");
    authority.set_mood(Mood::Fair);
    let wider = authority.plan(&["id.example", "login.example"]);
    let more = Site::start(&authority, wider, folder.path()).await;
    more.issue(until).await;
    assert_eq!(authority.asked("/new-order").len(), 5, "it was for other names");
    assert!(!kept.exists());
}

#[tokio::test]
async fn an_authority_that_is_away_for_a_while_does_not_make_its_order_forgotten() {
    for said in ["{\"message\":\"upstream unavailable\"}", "<html>"] {
        let (authority, site, folder, due, kept) = due().await;
        // Where the certificate is fetched, and where the order is looked at when it is gone on with.
        authority.set_mood(Mood::Away("/certificate", 1, said));
        let (_, until) = site.fail(due).await;
        assert!(kept.exists(), "{said}");
        authority.set_mood(Mood::Away("/order", 1, said));
        let again = Site::start(&authority, site.renewal.plan().clone(), folder.path()).await;
        let (_, until) = again.fail(until).await;
        assert!(kept.exists(), "{said}");
        again.issue(until).await;
        assert_eq!(authority.asked("/new-order").len(), 2, "{said}");
        assert!(!kept.exists());
    }
}

#[tokio::test]
async fn an_authority_that_is_away_while_it_is_asked_how_an_order_stands_is_asked_again_later() {
    let (authority, site, _folder, due, kept) = due().await;
    let round = processing(&authority, &site, due).await;
    let asked = authority.asked("/order/").len();
    while authority.asked("/order/").len() == asked {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    authority.set_mood(Mood::Away("/order", 1, "{}"));
    let (Round::Failed(_), until) = round.await.unwrap() else {
        panic!("it was not asked");
    };
    assert!(kept.exists());
    site.issue(until).await;
    assert_eq!(authority.asked("/new-order").len(), 2);
}
