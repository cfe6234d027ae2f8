//! Certificates by ACME (RFC 8555, RFC 8737, RFC 9773), had from an authority that checks what it should.

mod binary;
mod hostile;

use std::net::SocketAddr;
use std::path::Path;

use idsvc::clock::Clock;
use idsvc::net::acme::Plan;
use idsvc::net::acme::failure::Failure;
use idsvc::net::acme::folder::Folder as Certs;
use idsvc::net::acme::renewal::{Renewal, Round, RoundResult};
use idsvc::net::listener::Listener;
use idsvc::net::outbound::Client;
use idsvc::net::tls::Acceptor;
use idsvc::net::{Limits, Peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use crate::harness::authority::{Authority, Behaviour, check};
use tempfile::TempDir;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A service as far as certificates go: a listener, and what looks after them. It stops when it is dropped.
struct Site {
    address: SocketAddr,
    acceptor: Acceptor,
    renewal: Renewal,
    serving: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Site {
    /// Starts it on what lies in the folder.
    async fn start(authority: &Authority, plan: Plan, data_dir: &Path) -> Self {
        let certs = Certs::of(data_dir);
        let acceptor = Acceptor::acme(data_dir, &plan.domains, now()).unwrap();
        let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()], Limits::default())
            .await
            .unwrap();
        let address = listener.local_addrs()[0];
        for domain in &plan.domains {
            authority.resolve(domain, address);
        }
        let service = |_, _: Peer| async { http::Response::new(http_body_util::Full::default()) };
        let serving = tokio::spawn(listener.serve(Some(acceptor.clone()), service, std::future::pending()));
        let client = Client::new(&authority.terms()).unwrap();
        Self {
            address,
            renewal: Renewal::new(plan, certs, client, acceptor.clone()),
            acceptor,
            serving,
        }
    }

    async fn round(&self, now: u64) -> (Round, u64) {
        let RoundResult { round, next_at } = self.renewal.round(now, 0, false).await;
        (round, next_at)
    }

    /// One round that has to bring a certificate.
    async fn issue(&self, now: u64) -> u64 {
        match self.round(now).await {
            (Round::Issued { not_after }, _) => not_after,
            other => panic!("{other:?}"),
        }
    }

    /// One round that has to fail.
    async fn fail(&self, now: u64) -> (Failure, u64) {
        match self.round(now).await {
            (Round::Failed(failure), until) => (failure, until),
            other => panic!("{other:?}"),
        }
    }
}

fn now() -> u64 {
    Clock::System.now().seconds()
}

async fn scene(domains: &[&str]) -> (Authority, Site, TempDir) {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    let site = Site::start(&authority, authority.plan(domains), folder.path()).await;
    (authority, site, folder)
}

#[tokio::test]
async fn the_first_certificate_comes_and_before_it_only_the_authority_is_answered() {
    let (authority, site, folder) = scene(&["id.example", "www.id.example"]).await;
    assert!(!site.acceptor.has_certificate());
    assert!(check(site.address, "id.example", &[b"h2"]).await.is_err());
    assert!(check(site.address, "id.example", &[b"acme-tls/1"]).await.is_err());

    let not_after = site.issue(now()).await;
    assert_eq!(site.acceptor.not_after(), Some(not_after));
    for domain in ["id.example", "www.id.example"] {
        let stream = authority.visit(site.address, domain).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    }
    assert!(check(site.address, "id.example", &[b"acme-tls/1"]).await.is_err());
    let account = &authority.asked("/new-account")[0].payload;
    assert_eq!(account["contact"][0], "mailto:admin@id.example");

    let asked = authority.asked("/").len();
    let again = Site::start(&authority, site.renewal.plan().clone(), folder.path()).await;
    assert!(authority.visit(again.address, "id.example").await.is_ok());
    let (round, until) = again.round(now()).await;
    assert_eq!(round, Round::Rested);
    assert!(until > now() + HOUR);
    assert_eq!(authority.asked("/").len(), asked, "a restart asks for nothing");
}

#[tokio::test]
async fn only_a_peer_that_offers_the_challenge_alone_is_taken_for_the_authority() {
    let (authority, site, _folder) = scene(&["id.example"]).await;
    site.issue(now()).await;
    let both = check(site.address, "id.example", &[b"acme-tls/1", b"h2"])
        .await
        .unwrap();
    assert_eq!(both.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let neither = check(site.address, "id.example", &[]).await.unwrap();
    assert_eq!(neither.get_ref().1.alpn_protocol(), None);
    assert_eq!(authority.asked("/new-order").len(), 1);
}

#[tokio::test]
async fn a_challenge_is_answered_for_its_domain_alone_with_nothing_behind_it_and_not_for_longer() {
    let (_authority, site, _folder) = scene(&["id.example"]).await;
    let challenges = site.acceptor.challenges().unwrap();
    let answering = challenges.answer("ID.example", &[7; 32]).unwrap();
    let only: &[&[u8]] = &[b"acme-tls/1"];
    let mut stream = check(site.address, "id.example", only).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(only[0]));
    drop(
        stream
            .write_all(b"GET / HTTP/1.1\r\nhost: id.example\r\n\r\n")
            .await,
    );
    let mut rest = Vec::new();
    drop(stream.read_to_end(&mut rest).await);
    assert!(rest.is_empty());
    assert!(check(site.address, "other.example", only).await.is_err());
    assert!(
        check(site.address, "127.0.0.1", only).await.is_err(),
        "a name has to be given"
    );
    assert!(check(site.address, "id.example", &[b"h2"]).await.is_err());
    drop(answering);
    assert!(check(site.address, "id.example", only).await.is_err());
}

#[tokio::test]
async fn a_certificate_is_renewed_in_time_under_running_connections() {
    let (authority, site, _folder) = scene(&["id.example"]).await;
    let (begin, first) = (now(), site.issue(now()).await);
    let mut early = begin;
    while early < begin + 59 * DAY {
        let (round, until) = site.round(early).await;
        assert_eq!(round, Round::Rested);
        assert!(until > early);
        early = until;
    }
    assert_eq!(authority.asked("/new-order").len(), 1);
    let open = authority.visit(site.address, "id.example").await.unwrap();
    authority.set_validity(begin + 60 * DAY, 90 * DAY);
    let second = site.issue(begin + 63 * DAY).await;
    assert!(second > first);
    assert_eq!(site.acceptor.not_after(), Some(second));
    assert_eq!(authority.asked("/new-account").len(), 1);
    assert!(open.get_ref().0.peer_addr().is_ok());
    assert_eq!(site.round(begin + 63 * DAY + 1).await.0, Round::Rested);
}

#[tokio::test]
async fn the_authoritys_word_about_the_renewal_counts() {
    let (authority, site, folder) = scene(&["id.example"]).await;
    let begin = now();
    authority.set_window(begin + 10 * DAY, begin + 11 * DAY);
    site.issue(begin).await;
    assert_eq!(authority.asked("/renewal-info").len(), 1);
    assert_eq!(site.round(begin + HOUR).await.0, Round::Rested);
    assert_eq!(authority.asked("/renewal-info").len(), 1);
    // Revoked for a fault of the authority: the window moves to the past.
    authority.set_window(begin - DAY, begin - HOUR);
    let again = Site::start(&authority, site.renewal.plan().clone(), folder.path()).await;
    assert_eq!(again.round(begin + 7 * HOUR).await.0, Round::Rested);
    again.issue(begin + 7 * HOUR).await;
    let orders = authority.asked("/new-order");
    assert!(orders[0].payload["replaces"].is_null());
    let named = authority.asked("/renewal-info")[0].path.clone();
    assert_eq!(orders[1].payload["replaces"], named.rsplit('/').next().unwrap());
}

#[tokio::test]
async fn what_fails_waits_longer_each_time_across_restarts_and_the_old_certificate_stays() {
    let (authority, site, folder) = scene(&["id.example"]).await;
    let begin = now();
    let first = site.issue(begin).await;
    let due = begin + 70 * DAY;
    authority.resolve("id.example", "127.0.0.1:1".parse().unwrap());
    let (failure, until) = site.fail(due).await;
    assert_eq!(failure.message, "id.example: said connection (connection)");
    assert!(failure.remedy.contains("port 443 of id.example"), "{failure}");
    assert!(until >= due + 2 * MINUTE && until < due + 3 * MINUTE);
    assert!(authority.visit(site.address, "id.example").await.is_ok());

    let orders = authority.asked("/new-order").len();
    let again = Site::start(&authority, site.renewal.plan().clone(), folder.path()).await;
    assert_eq!(again.acceptor.not_after(), Some(first));
    authority.resolve("id.example", "127.0.0.1:1".parse().unwrap());
    let waited = Round::Waited(Some(failure.clone()));
    assert_eq!(again.round(until - 1).await, (waited, until));
    assert_eq!(authority.asked("/new-order").len(), orders);
    let (_, later) = again.fail(until).await;
    assert!(later >= until + 4 * MINUTE);
    let kept = Certs::of(folder.path()).state().unwrap().schedule;
    assert_eq!((kept.failures, kept.failure), (2, Some(failure)));

    authority.resolve("id.example", again.address);
    authority.set_validity(due, 90 * DAY);
    let RoundResult { round, .. } = again.renewal.round(until + 1, 0, true).await;
    assert!(matches!(round, Round::Issued { .. }), "{round:?}");
    let kept = Certs::of(folder.path()).state().unwrap().schedule;
    assert_eq!((kept.failures, kept.failure), (0, None));
}

#[tokio::test]
async fn other_domains_or_another_authority_lead_to_another_order_at_once() {
    let (authority, site, folder) = scene(&["id.example"]).await;
    site.issue(now()).await;
    let wider = authority.plan(&["id.example", "login.example"]);
    let more = Site::start(&authority, wider, folder.path()).await;
    assert!(
        authority.visit(more.address, "id.example").await.is_ok(),
        "the name that had a certificate keeps it until the new one is here"
    );
    more.issue(now()).await;
    assert!(authority.visit(more.address, "login.example").await.is_ok());

    let fewer = Site::start(&authority, authority.plan(&["login.example"]), folder.path()).await;
    assert!(
        fewer.acceptor.has_certificate(),
        "one that has too many is, until there is another"
    );
    fewer.issue(now()).await;
    assert!(authority.visit(fewer.address, "id.example").await.is_err());

    let other = Authority::start().await;
    let moved = Site::start(&other, other.plan(&["login.example"]), folder.path()).await;
    assert!(authority.visit(moved.address, "login.example").await.is_ok());
    moved.issue(now()).await;
    assert!(other.visit(moved.address, "login.example").await.is_ok());
    assert_eq!(other.asked("/new-account").len(), 1);
}

#[tokio::test]
async fn an_account_that_was_lost_on_either_side_is_opened_anew() {
    let (authority, site, folder) = scene(&["id.example"]).await;
    let begin = now();
    site.issue(begin).await;
    authority.forget_accounts();
    authority.set_validity(begin + 65 * DAY, 90 * DAY);
    site.issue(begin + 65 * DAY).await;
    assert_eq!(authority.asked("/new-account").len(), 2);
    std::fs::remove_file(folder.path().join("certs/acme.json")).unwrap();
    authority.set_validity(begin + 130 * DAY, 90 * DAY);
    site.issue(begin + 130 * DAY).await;
    assert_eq!(authority.asked("/new-account").len(), 3);
}

#[tokio::test]
async fn an_account_that_was_deactivated_is_replaced_by_one_with_another_key() {
    let (authority, site, _folder) = scene(&["id.example"]).await;
    let begin = now();
    site.issue(begin).await;
    authority.deactivate_accounts();
    authority.set_validity(begin + 65 * DAY, 90 * DAY);
    site.issue(begin + 65 * DAY).await;
    assert_eq!(authority.asked("/new-account").len(), 2);
    authority.set_validity(begin + 130 * DAY, 90 * DAY);
    site.issue(begin + 130 * DAY).await;
    assert_eq!(
        authority.asked("/new-account").len(),
        2,
        "the new account is kept"
    );
}

#[tokio::test]
async fn a_new_contact_for_an_account_that_is_gone_opens_another() {
    for lose in [Authority::forget_accounts, Authority::deactivate_accounts] {
        let (authority, site, folder) = scene(&["id.example"]).await;
        site.issue(now()).await;
        lose(&authority);
        let plan = Plan {
            contact: Some("mailto:other@id.example".to_owned()),
            ..authority.plan(&["id.example"])
        };
        let site = Site::start(&authority, plan, folder.path()).await;
        let due = now() + 65 * DAY;
        authority.set_validity(due, 90 * DAY);
        site.issue(due).await;
        let opened = authority.asked("/new-account");
        assert_eq!(opened.len(), 2);
        assert_eq!(opened[1].payload["contact"][0], "mailto:other@id.example");
        authority.set_validity(due + 65 * DAY, 90 * DAY);
        site.issue(due + 65 * DAY).await;
        assert_eq!(
            authority.asked("/account/").len(),
            1,
            "the contact is known by now"
        );
    }
}

#[tokio::test]
async fn a_new_contact_is_told_to_the_authority_with_the_next_order() {
    let (authority, site, folder) = scene(&["id.example"]).await;
    site.issue(now()).await;
    let plan = Plan {
        contact: Some("mailto:other@id.example".to_owned()),
        ..authority.plan(&["id.example"])
    };
    let site = Site::start(&authority, plan, folder.path()).await;
    site.issue(now() + 65 * DAY).await;
    let told = authority.asked("/account/");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].payload["contact"][0], "mailto:other@id.example");
    assert_eq!(authority.asked("/new-account").len(), 1);
}

#[tokio::test]
async fn whatever_was_written_last_before_a_crash_the_next_start_goes_on() {
    let (authority, site, folder) = scene(&["id.example"]).await;
    let begin = now();
    site.issue(begin).await;
    let certs = folder.path().join("certs");
    let whole = ["acme.pem", "acme.json"].map(|name| {
        let file = certs.join(name);
        let bytes = std::fs::read(&file).unwrap();
        (file, bytes)
    });
    // Every state that a crash leaves: some files written, the others not, or with their old content.
    for kept in 0..4_u32 {
        for (number, (file, bytes)) in whole.iter().enumerate() {
            drop(std::fs::remove_file(file));
            if kept & (1 << number) != 0 {
                std::fs::write(file, bytes).unwrap();
            }
        }
        let orders = authority.asked("/new-order").len();
        let site = Site::start(&authority, authority.plan(&["id.example"]), folder.path()).await;
        let (round, _) = site.round(begin + 11 * MINUTE).await;
        let has_certificate = kept & 1 != 0;
        assert_eq!(
            matches!(round, Round::Issued { .. }),
            !has_certificate,
            "{kept} {round:?}"
        );
        assert_eq!(
            authority.asked("/new-order").len() - orders,
            usize::from(!has_certificate)
        );
        assert!(
            authority.visit(site.address, "id.example").await.is_ok(),
            "{kept}"
        );
    }
}

#[tokio::test]
async fn no_certificate_is_ordered_that_could_not_be_kept() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    // What is in the way of the proof stands for a disk without room for it.
    std::fs::create_dir_all(folder.path().join("certs/acme-room/full")).unwrap();
    let site = Site::start(&authority, authority.plan(&["id.example"]), folder.path()).await;
    let (failure, until) = site.fail(now()).await;
    assert!(failure.to_string().contains("acme-room"), "{failure}");
    assert!(until > now());
    assert!(authority.asked("/new-order").is_empty());
    std::fs::remove_dir_all(folder.path().join("certs/acme-room")).unwrap();
    site.issue(until).await;
    assert!(!folder.path().join("certs/acme-room").exists());
}

#[tokio::test]
async fn what_cannot_be_remembered_is_not_begun() {
    let (authority, folder) = (Authority::start().await, TempDir::new().unwrap());
    std::fs::write(folder.path().join("certs"), "no folder").unwrap();
    let site = Site::start(&authority, authority.plan(&["id.example"]), folder.path()).await;
    let (failure, until) = site.fail(now()).await;
    assert!(
        failure.remedy.contains("the folder certs") || failure.remedy.contains("its folder certs"),
        "{failure}"
    );
    assert!(until > now());
    assert!(authority.asked("/").is_empty());
}

/// Replaces a file by a folder, so that even root can neither read nor write it.
fn block(file: &Path) {
    drop(std::fs::remove_file(file));
    std::fs::create_dir(file).unwrap();
    std::fs::write(file.join("x"), "").unwrap();
}

#[tokio::test]
async fn what_cannot_be_remembered_is_left_alone_for_ten_minutes_unless_in_haste() {
    let (authority, site, folder) = scene(&["id.example"]).await;
    let begin = now();
    let certs = folder.path().join("certs");
    std::fs::create_dir(&certs).unwrap();
    // What would be put in the place of the file lies beside it first, where this is in the way.
    block(&certs.join("acme.new"));
    let (failure, until) = site.fail(begin).await;
    assert_eq!(until, begin + 10 * MINUTE);
    assert!(authority.asked("/").is_empty());
    for minutes in 1..10 {
        let waited = site.round(begin + minutes * MINUTE).await;
        assert_eq!(waited, (Round::Waited(Some(failure.clone())), until));
    }
    let hasty = site.renewal.round(begin + MINUTE, 0, true).await.round;
    assert_eq!(hasty, Round::Failed(failure.clone()));
    assert_eq!(site.fail(until + MINUTE).await.0, failure);
    // A clock that was set back does not make the pause longer.
    assert_eq!(site.fail(begin - DAY).await.0, failure);
    std::fs::remove_dir_all(certs.join("acme.new")).unwrap();
    site.issue(begin).await;
}

#[tokio::test]
async fn the_authority_is_not_asked_when_to_renew_while_its_answer_cannot_be_kept() {
    let (authority, site, folder) = scene(&["id.example"]).await;
    let begin = now();
    authority.set_window(begin + 50 * DAY, begin + 51 * DAY);
    site.issue(begin).await;
    let asked = authority.asked("/").len();
    block(&folder.path().join("certs/acme.new"));
    let mut at = begin + DAY;
    let mut failures = 0;
    while at < begin + DAY + HOUR {
        failures += usize::from(matches!(site.round(at).await.0, Round::Failed(_)));
        at += MINUTE;
    }
    assert_eq!(failures, 6);
    assert_eq!(authority.asked("/").len(), asked);
    assert!(authority.visit(site.address, "id.example").await.is_ok());
}
