//! How often each kind of request waits for the database of several nodes.

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
    let waits = [password, authorize, exchange, refresh, introspection, userinfo];
    assert_eq!(
        waits,
        [
            with_commit(7),
            with_commit(4),
            with_commit(3),
            with_commit(2),
            without_commit(1),
            without_commit(1),
        ]
    );
}
