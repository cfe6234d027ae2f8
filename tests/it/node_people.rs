//! Who was seen when, on several nodes with one PostgreSQL.

use crate::harness::metrics::Collector;
use crate::harness::nodes::{serve, set_up, until};
use crate::harness::postgres::Cluster;
use crate::harness::sweep_all;
use crate::nodes::two_nodes;
use crate::people::{add_with_password, days, import_old_users, matching, not_seen, seen, sign_in, words};

const DAY: u64 = 24 * 60 * 60;

#[tokio::test]
async fn what_a_user_did_at_one_node_is_known_at_the_other_and_outlives_sessions_and_grants() {
    let [one, other] = two_nodes().await;
    let (acme, alice) = (one.client("acme").await, one.user("alice").await);
    one.user("bob").await;
    let tokens = acme.tokens(&alice.browser()).await;
    assert_eq!(seen(&other, &alice).await, days("2027-01-15", "2027-01-15"));
    for node in [&one, &other] {
        node.advance(3 * DAY);
    }
    acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(seen(&other, &alice).await, days("2027-01-15", "2027-01-18"));
    for node in [&one, &other] {
        node.advance(200 * DAY);
    }
    assert!(sweep_all(&other).await > 0);
    assert_eq!(seen(&one, &alice).await, days("2027-01-15", "2027-01-18"));
    assert_eq!(matching(&one, not_seen(201)), ["bob"]);
    assert_eq!(matching(&other, not_seen(198)), ["alice", "bob"]);
}

#[test]
fn any_node_lists_and_removes_and_one_counts() {
    let url = Cluster::shared().database("people").url();
    let (nodes, collectors): (Vec<_>, Vec<_>) =
        set_up(&[&*url; 2], &[]).into_iter().map(Collector::of).unzip();
    nodes[0].json(&words(
        "client add web --redirect-uri https://app.example/cb --pkce optional --json",
    ));
    add_with_password(&nodes[0], "alice");
    import_old_users(&nodes[0], 230);
    let running = serve(&nodes);
    sign_in(&running[0], "alice");
    let sessions = running[1].json(&words("session list --json"));
    assert_eq!(sessions.as_array().unwrap().len(), 1);
    assert_eq!(sessions[0]["account_id"], "alice@example.com");
    let unseen = running[1].json(&words("user list --not-seen 365d --json"));
    assert_eq!(unseen.as_array().unwrap().len(), 230);
    let counts = || {
        let counts = collectors
            .iter()
            .map(|node| node.value("idsvc_users{state=\"enabled\"}"));
        counts.flatten().collect::<Vec<_>>()
    };
    until(|| counts() == [231]);
    let removed = running[1].json(&words("user remove --not-seen 365d --yes --json"));
    assert_eq!(
        removed,
        serde_json::json!({"removed_users": 230, "kept_users": 0})
    );
    let left = running[0].json(&words("user list --json"));
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
    assert!(!left[0]["last_sign_in"].is_null(), "{left}");
}
