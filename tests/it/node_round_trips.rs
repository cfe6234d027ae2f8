//! How often each kind of request waits for the database of several nodes.

use crate::anonymous_upgrade::{device, opted_in};
use crate::harness::Server;
use crate::nodes::two_nodes;

/// What a request has waited for.
#[derive(Debug, PartialEq, Eq)]
struct Waits {
    fetches: u64,
    commits: u64,
}

/// `fetches` for rows, and then one commit.
const fn with_commit(fetches: u64) -> Waits {
    Waits { fetches, commits: 1 }
}

const fn without_commit(fetches: u64) -> Waits {
    Waits { fetches, commits: 0 }
}

async fn waits_of<T>(server: &Server, request: impl IntoFuture<Output = T>) -> (T, Waits) {
    let before = server.app.core.store.stats();
    let answer = request.await;
    let after = server.app.core.store.stats();
    let waits = Waits {
        fetches: after.fetches - before.fetches,
        commits: after.transactions - before.transactions,
    };
    (answer, waits)
}

/// The user of a refresh is asked for with the family, and a user of a browser with the session. A password waits for
/// the sign-in and the user, then for the number of wrong ones before it, then for what a session needs.
#[tokio::test]
async fn each_kind_of_request_waits_for_the_database_so_often() {
    let [server, _other] = two_nodes().await;
    let web = server.client("web").await;
    let alice = server.user("alice").await;
    let browser = alice.browser();
    let page = browser.authorize(&web.request()).await.follow().await;
    let (signed_in, password) = waits_of(&server, page.sign_in()).await;
    signed_in.callback().code();
    let (screen, authorize) = waits_of(&server, browser.authorize(&web.request())).await;
    let code = screen.through().await.code();
    let (tokens, exchange) = waits_of(&server, async { web.redeem(&code).await.tokens() }).await;
    let (tokens, refresh) = waits_of(&server, async {
        web.refresh(tokens.refresh_token()).await.tokens()
    })
    .await;
    let (active, introspection) = waits_of(&server, web.introspect(tokens.access_token())).await;
    assert_eq!(active.json()["active"], true);
    let (claims, userinfo) = waits_of(&server, web.userinfo(tokens.access_token())).await;
    assert_eq!(claims.status, 200);
    let kiosk = server.client_with("kiosk", opted_in).await;
    let (_, anonymous) = waits_of(&server, device(&kiosk)).await;
    let waits = [
        password,
        authorize,
        exchange,
        refresh,
        introspection,
        userinfo,
        anonymous,
    ];
    assert_eq!(
        waits,
        [
            with_commit(3),
            with_commit(1),
            with_commit(2),
            with_commit(1),
            without_commit(1),
            without_commit(1),
            with_commit(0),
        ]
    );
}
