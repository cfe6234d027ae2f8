//! Wrong passwords of one user at three nodes at once, from senders that are exempt from the limits.

use std::time::Duration;

use idsvc::flow::failed_passwords::counted;
use idsvc::limit::password_attempt::PasswordAttempt;
use idsvc::store::records::FailedPasswords;
use idsvc::store::tables::FAILED_PASSWORDS;
use idsvc::store::{Address, Options, Store};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::harness::fault_proxy::{Fault, FaultProxy};
use crate::harness::postgres::Cluster;
use crate::harness::server::Setup;
use crate::harness::{Person, RelyingParty, Screen, Server, until};

const NODES: usize = 3;

struct Scene {
    nodes: Vec<Server>,
    parties: Vec<RelyingParty>,
    alice: Person,
    proxy: FaultProxy,
}

impl Scene {
    async fn new() -> Self {
        let database = Cluster::shared().database("guesses");
        Store::migrate(&Address::parse(&database.url()).unwrap()).unwrap();
        let proxy = FaultProxy::start(Cluster::shared().port());
        let address = database.url_at(&proxy.address()) + "?sslmode=disable";
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            let address = Address::parse(&address).unwrap();
            let mut setup = Setup {
                store: Some(Store::connect(&address, Options::default()).unwrap()),
                ..Setup::default()
            };
            setup.limits.enabled = false;
            nodes.push(setup.start().await);
        }
        nodes[0].client("acme").await;
        let mut parties = Vec::new();
        for node in &nodes {
            until(async || node.app.core.catalog().client("acme").is_some()).await;
            parties.push(node.party("acme", "the secret of acme, of more than 32 bytes"));
        }
        Self {
            alice: nodes[0].user("alice").await,
            nodes,
            parties,
            proxy,
        }
    }

    /// A stranger types a password at a node.
    fn typed(&self, node: usize, password: &str) -> impl Future<Output = Screen> + Send + 'static {
        let (browser, request) = (self.nodes[node].browser(), self.parties[node].request());
        let password = password.to_owned();
        async move {
            browser
                .authorize(&request)
                .await
                .type_in("alice@example.com", &password)
                .await
        }
    }

    /// Wrong passwords at every node at once. All are answered as such.
    async fn guess(&self, at_each_node: usize) {
        let mut under_way = JoinSet::new();
        for number in 0..NODES * at_each_node {
            under_way.spawn(self.typed(number % NODES, &format!("wrong {number}")));
        }
        for page in under_way.join_all().await {
            assert_eq!(page.status, 200, "{}", page.text());
        }
    }

    fn count(&self) -> u32 {
        let (store, user) = (&self.nodes[0].app.core.store, self.alice.user.uuid);
        let row = store.read_blocking(|snapshot| FAILED_PASSWORDS.get(snapshot, &user));
        row.unwrap().map_or(0, |failed| failed.count)
    }

    async fn lets_in(&self, node: usize) -> bool {
        let page = self.typed(node, &self.alice.password).await;
        page.header("location").is_some()
    }
}

#[tokio::test]
async fn each_guess_is_counted_when_it_is_answered_and_none_gets_in_after_the_hundredth() {
    let scene = Scene::new().await;
    scene.guess(15).await;
    assert_eq!(scene.count(), 45);
    assert!(scene.lets_in(1).await, "the forty-sixth");
    assert_eq!(scene.count(), 0);
    scene.guess(40).await;
    assert_eq!(scene.count(), FailedPasswords::LIMIT);
    for node in 0..NODES {
        assert!(!scene.lets_in(node).await, "at node {node}");
    }
    assert_eq!(scene.count(), FailedPasswords::LIMIT);
}

#[tokio::test]
async fn a_slow_database_loses_no_guess() {
    let scene = Scene::new().await;
    scene.proxy.set(Fault::Delay(Duration::from_millis(30)));
    scene.guess(20).await;
    assert_eq!(scene.count(), 60);
    scene.guess(20).await;
    assert_eq!(scene.count(), FailedPasswords::LIMIT);
    assert!(!scene.lets_in(2).await);
}

/// The time of an answer must not tell that a refused password is right.
#[tokio::test]
async fn at_the_limit_the_right_password_waits_for_as_many_transactions_as_a_wrong_one() {
    let scene = Scene::new().await;
    scene.guess(40).await;
    assert_eq!(scene.count(), FailedPasswords::LIMIT);
    let (core, user) = (&scene.nodes[1].app.core, &scene.alice.user);
    let transactions = || core.store.stats().transactions;
    let now = core.clock.now();
    let stranger = |user, hash| {
        let mut attempt = counted(core, &PasswordAttempt::trusted(), user, hash, now);
        attempt.is_known = false;
        attempt
    };
    let at_alice = || stranger(Some(user), user.password.clone());
    for (typed, is_right, attempt) in [
        ("right", true, at_alice()),
        ("wrong", false, at_alice()),
        ("nobody's", false, stranger(None, None)),
    ] {
        let before = transactions();
        let (sender, answer) = oneshot::channel();
        let answered = move |is_accepted| {
            let _ = sender.send(is_accepted);
        };
        let settle = move || attempt.settle(is_right, answered);
        tokio::task::spawn_blocking(settle).await.unwrap();
        let is_accepted = answer.await.unwrap();
        until(async || transactions() > before).await;
        assert_eq!(
            (is_accepted, transactions() - before),
            (Some(false), 1),
            "{typed}"
        );
    }
}
