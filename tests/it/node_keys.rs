//! A signing key is replaced while two nodes issue tokens.

use std::cell::Cell;

use idsvc::flow::Core;
use idsvc::flow::rotate_keys::{Introduction, keep, rotate};
use idsvc::jose::alg::Algorithm;
use idsvc::oauth::client::GrantType;

use crate::harness::{RelyingParty, Server, until};
use crate::nodes::two_nodes;

async fn robot(server: &Server) -> RelyingParty {
    let robot = server.client_with("robot", |client| {
        client.grant_types.insert(GrantType::ClientCredentials);
        client.max_scope = Some("notes.read".parse().unwrap());
        client.default_scope = "notes.read".parse().unwrap();
    });
    robot.await
}

/// Has each node issue tokens until `work` is done, and verifies each token with the keys that the other publishes.
async fn verify_during<T>(robots: &[RelyingParty; 2], work: impl Future<Output = T>) -> T {
    let is_done = Cell::new(false);
    let verify = async {
        loop {
            let is_last = is_done.get();
            for (robot, other) in [(&robots[0], &robots[1]), (&robots[1], &robots[0])] {
                let request = robot
                    .post("/oauth2/token")
                    .with("grant_type", "client_credentials");
                other.verify(request.await.tokens().access_token()).await;
            }
            if is_last {
                return;
            }
        }
    };
    let work = async {
        let outcome = work.await;
        is_done.set(true);
        outcome
    };
    tokio::join!(work, verify).0
}

fn publishes(core: &Core, kid: &str) -> bool {
    let catalog = core.catalog();
    catalog.keyring().keys().iter().any(|(key, _)| key.kid() == kid)
}

fn signer(core: &Core) -> String {
    let catalog = core.catalog();
    catalog
        .keyring()
        .signer(Algorithm::Es256)
        .unwrap()
        .kid()
        .to_owned()
}

#[tokio::test]
async fn tokens_of_each_node_verify_at_the_other_from_the_announcement_of_a_key_to_the_end_of_the_old_one() {
    let nodes = two_nodes().await;
    let [one, other] = [&nodes[0].app.core, &nodes[1].app.core];
    let robot = robot(&nodes[0]).await;
    until(async || other.catalog().client("robot").is_some()).await;
    let robots = [robot.clone(), nodes[1].party("robot", &robot.secret)];
    let old = signer(one);
    let introduced = verify_during(&robots, rotate(one, Algorithm::Es256, false)).await;
    let Introduction::Placed { kid, .. } = introduced.unwrap() else {
        panic!("another key is announced")
    };
    until(async || publishes(other, &kid)).await;
    assert_eq!([signer(one), signer(other)], [old.clone(), old.clone()]);

    let let_pass = |time| [one, other].map(|node| node.clock.advance(time));
    let_pass(one.policy.key_rotation.announce);
    verify_during(&robots, keep(other)).await.unwrap();
    assert_eq!(signer(other), kid);
    until(async || signer(one) == kid).await;

    let_pass(one.policy.key_retention());
    verify_during(&robots, keep(one)).await.unwrap();
    assert!(!publishes(one, &old));
    until(async || !publishes(other, &old)).await;
}
