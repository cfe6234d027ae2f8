//! How long a refused sign-in takes tells nothing about the name.
//!
//! Known, unknown and disabled names are tried in turn, in an order drawn anew each round, so that whatever
//! else the machine does falls on all alike. What is compared is the chance that an attempt of one kind takes
//! longer than one of another (the U of Mann and Whitney, divided by the number of pairs): a half when nothing
//! can be told apart. Its standard error is 0.016 here; the bound is six times that.

use std::time::{Duration, Instant};

use idsvc::identity::password::{PasswordHash, PasswordParams, PasswordPool, PoolSize};
use idsvc::random::Random;
use zeroize::Zeroizing;

use crate::harness::server::Setup;
use crate::harness::{Browser, RelyingParty};

const ROUNDS: usize = 670;
const BOUND: f64 = 0.1;

/// The chance that one of `these` is greater than one of `those`; equal ones count half.
fn chance_of_more(these: &[Duration], those: &[Duration]) -> f64 {
    let mut sorted = those.to_vec();
    sorted.sort_unstable();
    let below: usize = these
        .iter()
        .map(|one| {
            let less = sorted.partition_point(|other| other < one);
            less + sorted.partition_point(|other| other <= one)
        })
        .sum();
    let count = |list: &[Duration]| f64::from(u32::try_from(list.len()).unwrap());
    f64::from(u32::try_from(below).unwrap()) / (2.0 * count(these) * count(those))
}

async fn time_of(browser: &Browser, acme: &RelyingParty, name: &str) -> Duration {
    let form = browser.authorize(&acme.request()).await.login_form();
    let form = form.with("username", name).with("password", "wrong");
    let start = Instant::now();
    let page = browser.submit(&form).await;
    let time = start.elapsed();
    assert_eq!(page.status, 200);
    time
}

#[tokio::test]
async fn known_unknown_and_disabled_names_take_the_same_time() {
    let mut setup = Setup {
        // Cheap beside what is in use, and dear beside everything else that a sign-in does.
        cost: PasswordParams::new(3072, 1, 1).unwrap(),
        ..Setup::default()
    };
    setup.limits.enabled = false;
    let server = setup.start().await;
    let acme = server.client("acme").await;
    let alice = server.user("alice").await;
    server.user_with("bob", |user| user.enabled = false).await;
    let quick = quick_hash();
    server
        .user_with("quick", |user| user.password = Some(quick))
        .await;
    let names = ["alice", "nobody", "bob", "quick"].map(|name| format!("{name}@example.com"));
    let (browser, random) = (alice.browser(), Random::system());
    let mut times = [const { Vec::new() }; 4];
    for round in 0..=ROUNDS {
        let [first, step] = random.bytes::<2>().map(usize::from);
        for turn in 0..4 {
            let kind = (first + turn * [1, 3][step % 2]) % 4;
            let time = time_of(&browser, &acme, &names[kind]).await;
            if round > 0 {
                times[kind].push(time);
            }
        }
    }
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let chance = chance_of_more(&times[one], &times[other]);
        let told_apart = (chance - 0.5).abs() >= BOUND;
        let (one, other) = (&names[one], &names[other]);
        assert!(
            !told_apart,
            "{one} takes longer than {other} in {chance:.3} of all pairs"
        );
    }
    let chance = chance_of_more(&times[1], &times[3]);
    assert!(
        chance > 0.5 + 2.0 * BOUND,
        "the comparison sees nothing: {chance:.3}"
    );
}

/// A hash that is checked sooner than the service makes them: what the test has to be able to see.
fn quick_hash() -> PasswordHash {
    let size = PoolSize {
        threads: 1,
        waiting: 1,
    };
    let pool = PasswordPool::start(PasswordParams::new(32, 1, 1).unwrap(), size).unwrap();
    pool.hash_blocking(Zeroizing::new("quick".to_owned()), [7; 16])
        .unwrap()
}
