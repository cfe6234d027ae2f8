//! What has expired goes; what lives stays.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use idsvc::clock::Timestamp;
use idsvc::flow::sweep::{Cursor, sweep};
use idsvc::identity::Device;
use idsvc::oauth::login::LoginRecord;
use idsvc::oauth::refresh::RefreshFamily;
use idsvc::store::engine::Tx;
use idsvc::store::tables::{
    CODES, FAMILIES, FAMILIES_BY_OWNER, LOGIN_RECORDS, REVOKED_TOKENS, SESSIONS, SESSIONS_BY_USER,
};
use uuid::Uuid;

use crate::harness::{START, Server, scene, sweep_all};

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;

/// Rows of every table in which rows expire.
fn rows(server: &Server) -> [u64; 7] {
    let store = &server.app.core.store;
    store
        .read_blocking(|snapshot| {
            Ok([
                LOGIN_RECORDS.count(snapshot)?,
                CODES.count(snapshot)?,
                FAMILIES.count(snapshot)?,
                FAMILIES_BY_OWNER.count(snapshot)?,
                SESSIONS.count(snapshot)?,
                SESSIONS_BY_USER.count(snapshot)?,
                REVOKED_TOKENS.count(snapshot)?,
            ])
        })
        .unwrap()
}
#[tokio::test]
async fn rows_go_when_they_have_expired_and_not_before() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let first = acme.tokens(&browser).await;
    acme.code(&browser).await;
    let second = acme.refresh(first.refresh_token()).await.tokens();
    acme.revoke(second.access_token()).await;
    // a sign-in that was answered, a redeemed code and a fresh one, a family under its user and its session
    assert_eq!(rows(&server), [1, 2, 1, 2, 1, 1, 1]);
    let transactions = || server.app.core.store.stats().transactions;
    let before = transactions();
    assert_eq!(sweep_all(&server).await, 0);
    assert_eq!(transactions(), before, "who only looks writes");

    server.advance(31 * MINUTE);
    sweep_all(&server).await;
    assert_eq!(rows(&server), [0, 1, 1, 2, 1, 1, 1]);

    // the session is over, and kept for the family that ends with it
    server.advance(2 * DAY);
    sweep_all(&server).await;
    assert_eq!(rows(&server), [0, 0, 1, 2, 1, 1, 0]);

    let third = acme.refresh(second.refresh_token()).await.tokens();
    server.advance(89 * DAY);
    sweep_all(&server).await;
    assert_eq!(rows(&server)[2..4], [1, 2]);
    acme.refresh(third.refresh_token()).await.tokens();
    server.advance(92 * DAY);
    sweep_all(&server).await;
    assert_eq!(rows(&server), [0; 7]);
}

#[tokio::test]
async fn a_replay_is_recognised_for_a_day() {
    let (server, acme, alice) = scene().await;
    let code = acme.code(&alice.browser()).await;
    let tokens = acme.redeem(&code).await.tokens();
    server.advance(DAY);
    sweep_all(&server).await;
    assert_eq!(acme.redeem(&code).await.error(), "invalid_grant");
    assert_eq!(
        acme.refresh(tokens.refresh_token()).await.error(),
        "invalid_grant"
    );
}

/// A client with a session at hand makes codes as fast as they can be redeemed.
#[tokio::test]
async fn used_codes_are_remembered_without_what_the_client_sent_and_while_there_is_something_to_revoke() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let nonce = "n".repeat(1000);
    let mut first = None;
    for _ in 0..60 {
        let request = acme.request().with("nonce", &nonce);
        let code = browser.authorize(&request).await;
        let code = match first {
            None => code.sign_in().await.callback().code(),
            Some(()) => code.callback().code(),
        };
        acme.redeem(&code).await.tokens();
        first = Some(());
    }
    let kept = |server: &Server| {
        let store = &server.app.core.store;
        store
            .read_blocking(|snapshot| CODES.scan(snapshot, .., 100))
            .unwrap()
    };
    assert_eq!(kept(&server).len(), 60);
    for (_, code) in kept(&server) {
        assert!(code.redeemed.is_some());
        assert_eq!((code.nonce, code.code_challenge), (None, None));
    }
    server.advance(2 * MINUTE);
    sweep_all(&server).await;
    assert_eq!(kept(&server).len(), 50, "those of the families that are left");
    server.advance(2 * DAY);
    sweep_all(&server).await;
    assert_eq!(kept(&server).len(), 0);
}

/// A family that nobody revoked ends, and the access tokens that it brought are good to their own end.
#[tokio::test]
async fn the_last_access_token_of_a_family_outlives_it() {
    let server = Server::start_with(|policy| {
        policy.lifetimes.access_token = Duration::from_hours(1);
        policy.lifetimes.refresh_absolute = Some(Duration::from_hours(2));
    })
    .await;
    let (acme, alice) = (server.client("acme").await, server.user("alice").await);
    let first = acme.tokens(&alice.browser()).await;
    server.advance(119 * MINUTE);
    let last = acme.refresh(first.refresh_token()).await.tokens();
    server.advance(59 * MINUTE);
    sweep_all(&server).await;
    assert!(acme.is_welcome(&last).await);
    server.advance(MINUTE + MINUTE);
    sweep_all(&server).await;
    assert_eq!(rows(&server)[2], 0);
}

/// Who looks for it finds that an access token was revoked until the token has expired by itself.
#[tokio::test]
async fn a_revoked_access_token_stays_revoked_as_long_as_it_would_have_lived() {
    let (server, acme, alice) = scene().await;
    let browser = alice.browser();
    let (revoked, kept) = (acme.tokens(&browser).await, acme.tokens(&browser).await);
    acme.revoke(revoked.access_token()).await;
    server.advance(revoked.0["expires_in"].as_u64().unwrap() - 1);
    sweep_all(&server).await;
    assert!(!acme.is_welcome(&revoked).await);
    assert!(acme.is_welcome(&kept).await);
}

#[tokio::test]
async fn more_rows_than_a_page_holds_are_all_seen() {
    let (server, acme, alice) = scene().await;
    let kept = acme.tokens(&alice.browser()).await;
    let core = &server.app.core;
    let put = |tx: &mut dyn Tx| {
        (0..1_100).try_for_each(|number| {
            let id = Uuid::from_u128(START.first_id().as_u128() + number);
            LOGIN_RECORDS.put(tx, &id, &LoginRecord::default())
        })
    };
    core.store.write("fill", put).await.unwrap();
    assert_eq!(rows(&server)[0], 1_101);
    server.advance(31 * MINUTE);
    assert!(sweep_all(&server).await >= 1_101);
    assert_eq!(rows(&server)[0], 0);
    acme.refresh(kept.refresh_token()).await.tokens();
}

/// Refresh families that are older than anything that a client was given.
struct Families {
    live: RefreshFamily,
    ended: RefreshFamily,
    from: Timestamp,
}

impl Families {
    async fn like_those_of(server: &Server) -> Self {
        let (acme, alice) = (server.client("acme").await, server.user("alice").await);
        acme.tokens(&alice.browser()).await;
        let core = &server.app.core;
        let (_, live) = core
            .store
            .read_blocking(|snapshot| FAMILIES.scan(snapshot, .., 1))
            .unwrap()
            .remove(0);
        let now = core.clock.now();
        let mut ended = live.clone();
        ended.revoke(now - Duration::from_secs(2 * DAY));
        Self {
            live,
            ended,
            from: now - Duration::from_secs(30 * DAY),
        }
    }

    fn id(&self, number: u64) -> Uuid {
        (self.from + Duration::from_secs(number)).first_id()
    }

    async fn put(&self, server: &Server, numbers: Range<u64>, family: &RefreshFamily) {
        let ids: Vec<_> = numbers.map(|number| self.id(number)).collect();
        let family = family.clone();
        let put = move |tx: &mut dyn Tx| ids.iter().try_for_each(|id| FAMILIES.put(tx, id, &family));
        server.app.core.store.write("test", put).await.unwrap();
    }

    fn is_there(&self, server: &Server, number: u64) -> bool {
        let store = &server.app.core.store;
        store
            .read_blocking(|snapshot| FAMILIES.contains(snapshot, &self.id(number)))
            .unwrap()
    }
}

/// The session is kept for signing out, and its user was told that what it tells of the browser goes with it.
#[tokio::test]
async fn an_expired_session_that_a_grant_keeps_tells_nothing_of_its_browser() {
    let (server, acme, alice) = scene().await;
    acme.tokens(&alice.browser()).await;
    let core = &server.app.core;
    let kept = || {
        let rows = core
            .store
            .read_blocking(|snapshot| SESSIONS.scan(snapshot, .., 2));
        rows.unwrap().remove(0)
    };
    let told = || {
        let (_, session) = kept();
        session.device.address
    };
    let (id, mut session) = kept();
    let address = Some(IpAddr::from([192, 0, 2, 1]));
    session.device.address = address;
    let put = move |tx: &mut dyn Tx| SESSIONS.put(tx, &id, &session);
    core.store.write("test", put).await.unwrap();
    sweep_all(&server).await;
    assert_eq!(told(), address);

    server.advance(DAY);
    sweep_all(&server).await;
    assert_eq!(told(), None);
    assert_eq!(kept().1.device, Device::default());
    let transactions = || core.store.stats().transactions;
    let before = transactions();
    sweep_all(&server).await;
    assert_eq!(transactions(), before, "it is written again and again");
}

/// Otherwise what lives for months would hide all that expires behind it.
#[tokio::test]
async fn a_page_goes_on_where_the_one_before_ended() {
    let server = Server::start().await;
    let families = Families::like_those_of(&server).await;
    families.put(&server, 0..1_000, &families.live).await;
    families.put(&server, 1_000..1_001, &families.ended).await;
    assert_eq!(sweep_all(&server).await, 1);
    let left = [0, 999, 1_000].map(|number| families.is_there(&server, number));
    assert_eq!(left, [true, true, false]);
}

/// Otherwise a service that is always busy would never come back to what lives longest.
#[tokio::test]
async fn what_expires_behind_the_cursor_goes_though_more_comes_than_a_page_holds() {
    let server = Server::start().await;
    let families = Families::like_those_of(&server).await;
    families.put(&server, 0..1_000, &families.live).await;
    let core = &server.app.core;
    let mut cursor = Cursor::default();
    for page in 0..12 {
        if page == 3 {
            // The walk is past it.
            families.put(&server, 0..1, &families.ended).await;
        }
        sweep(core, &mut cursor, core.clock.now()).await.unwrap();
        let now = core.clock.now().since(families.from).as_secs();
        families.put(&server, now - 600..now, &families.live).await;
        // By the next page they are old enough to be looked at.
        server.advance(core.policy.lifetimes.access_token.as_secs() + 600);
    }
    let left = [0, 1, 999].map(|number| families.is_there(&server, number));
    assert_eq!(left, [false, true, true]);
}
