//! How long a refused sign-in takes tells nothing about the name.
//!
//! Names that are known, unknown, disabled, without a password and at the limit of wrong ones are tried in turn, in an
//! order drawn anew each round, so that other work on the machine affects all kinds alike. The test compares the chance
//! that an attempt of one kind takes longer than one of another (the U of Mann and Whitney, divided by the number of
//! pairs): a half when nothing can be told apart. Its standard error is 0.016 here. The bound is less than four times that, so kinds
//! that differ are measured once more: a real difference appears again, chance does not.

use std::time::{Duration, Instant};

use idsvc::password::{PasswordHash, PasswordParams, PasswordPool, PoolSize};
use idsvc::random::Random;
use idsvc::store::records::FailedPasswords;
use idsvc::store::tables::{FAILED_PASSWORDS, USERS, USERS_BY_LOGIN_NAME};
use zeroize::Zeroizing;

use crate::harness::server::Setup;
use crate::harness::{Browser, RelyingParty, START, Server};

const ROUNDS: usize = 670;
const BOUND: f64 = 0.06;

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

/// Lets dave be at the limit of wrong passwords. All others are far from it: their failures are stored.
async fn set_counts(server: &Server) {
    let store = &server.app.core.store;
    store
        .write("counts", |tx| {
            let dave = USERS_BY_LOGIN_NAME.get(&*tx, "dave@example.com")?.unwrap();
            for (user, _) in USERS.scan(&*tx, .., usize::MAX)? {
                FAILED_PASSWORDS.remove(tx, &user)?;
            }
            let failed = FailedPasswords {
                count: FailedPasswords::LIMIT,
                second_step: 0,
                last_failed_at: START,
            };
            FAILED_PASSWORDS.put(tx, &dave, &failed)
        })
        .await
        .unwrap();
}

/// How long each of these names took, in an order drawn anew each round.
async fn times_of<const N: usize>(
    server: &Server,
    browser: &Browser,
    acme: &RelyingParty,
    names: &[String; N],
) -> [Vec<Duration>; N] {
    let random = Random::system();
    let mut times = [const { Vec::new() }; N];
    for round in 0..=ROUNDS {
        let mut order: [usize; N] = std::array::from_fn(|kind| kind);
        let draw: [u8; N] = random.bytes();
        order.sort_by_key(|kind| draw[*kind]);
        for kind in order {
            // Waits for the failure before, too, which is stored after its answer and would slow this one down.
            set_counts(server).await;
            let time = time_of(browser, acme, &names[kind]).await;
            if round > 0 {
                times[kind].push(time);
            }
        }
    }
    times
}

/// Which of the first names are told apart, in words.
fn told_apart<const N: usize>(names: &[String; N], times: &[Vec<Duration>; N], alike: usize) -> Vec<String> {
    let pairs = (0..alike).flat_map(|one| (one + 1..alike).map(move |other| (one, other)));
    pairs
        .map(|(one, other)| (one, other, chance_of_more(&times[one], &times[other])))
        .filter(|(_, _, chance)| (chance - 0.5).abs() >= BOUND)
        .map(|(one, other, chance)| {
            let (one, other) = (&names[one], &names[other]);
            format!("{one} takes longer than {other} in {chance:.3} of all pairs")
        })
        .collect()
}

#[tokio::test]
async fn known_unknown_disabled_passwordless_and_limited_names_take_the_same_time() {
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
    server.user_with("carol", |user| user.password = None).await;
    server.user("dave").await;
    let quick = quick_hash().await;
    server
        .user_with("quick", |user| user.password = Some(quick))
        .await;
    let names =
        ["alice", "nobody", "bob", "carol", "dave", "quick"].map(|name| format!("{name}@example.com"));
    let browser = alice.browser();
    let times = times_of(&server, &browser, &acme, &names).await;
    let chance = chance_of_more(&times[1], &times[5]);
    assert!(
        chance > 0.5 + 2.0 * BOUND,
        "the comparison sees nothing: {chance:.3}"
    );
    let first = told_apart(&names, &times, 5);
    if !first.is_empty() {
        let again = told_apart(&names, &times_of(&server, &browser, &acme, &names).await, 5);
        assert!(again.is_empty(), "{first:?}, and again {again:?}");
    }
}

/// A hash that is cheaper to check than the service's own. The test must be able to detect it.
async fn quick_hash() -> PasswordHash {
    let size = PoolSize {
        threads: 1,
        waiting: 1,
    };
    let pool = PasswordPool::start(PasswordParams::new(32, 1, 1).unwrap(), size).unwrap();
    pool.hash(Zeroizing::new("quick".to_owned()), [7; 16])
        .await
        .unwrap()
}
