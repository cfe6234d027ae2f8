use std::sync::{Mutex, mpsc};

use super::*;
use crate::admin::tests::core;

const USER: Uuid = Uuid::from_u128(7);
const HASH: &str =
    "$argon2id$v=19$m=8,t=1,p=1$dW5rbm93biBhY2NvdW50Lg$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// What somebody types.
#[derive(Clone, Copy, Debug)]
enum Typed {
    Right,
    Wrong,
    /// A name that nobody has, after this user was found last.
    UnknownName,
}

const REFUSED: [Typed; 3] = [Typed::Right, Typed::Wrong, Typed::UnknownName];

/// What an attempt is answered.
type Answer = Option<bool>;

/// The answer if it is there at once, without anything that is written.
fn answer_at_once(core: &Core, typed: Typed) -> Result<Answer, mpsc::TryRecvError> {
    let hash = PasswordHash::parse(HASH).unwrap();
    let failures = StoredFailures {
        store: core.store.clone(),
        queue: Arc::clone(&core.attempts),
        user: USER,
        checked: (!matches!(typed, Typed::UnknownName)).then(|| hash.clone()),
        now: core.clock.now(),
    };
    let (sender, answers) = mpsc::channel();
    let settled = move |is_accepted| {
        let _ = sender.send(is_accepted);
    };
    failures.settle(matches!(typed, Typed::Right), Box::new(settled));
    answers.try_recv()
}

async fn core_with(count: u32) -> Core {
    let core = core();
    let row = FailedPasswords {
        count,
        second_step: 0,
        last_failed_at: core.clock.now(),
    };
    let work = move |tx: &mut dyn Tx| FAILED_PASSWORDS.put(tx, &USER, &row);
    core.store.write("test", work).await.unwrap();
    core
}

/// Holds up everything that is written until the sender is dropped.
fn hold_writes(core: &Core) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    let work = move |_: &mut dyn Tx| -> Result<(), StoreError> {
        let _ = held.lock().unwrap().recv();
        Ok(())
    };
    core.store.enqueue("hold", work, drop).unwrap();
    release
}

#[tokio::test]
async fn at_the_limit_no_answer_waits_and_nothing_is_written() {
    let core = core_with(FailedPasswords::LIMIT).await;
    let before = core.store.stats().transactions;
    let release = hold_writes(&core);
    for typed in REFUSED {
        assert_eq!(answer_at_once(&core, typed), Ok(Some(false)), "{typed:?}");
        assert_eq!(core.attempts.unsettled(USER), 0, "{typed:?}");
    }
    drop(release);
    let after_it = core.store.write("after it", |_| Ok::<_, StoreError>(()));
    after_it.await.unwrap();
    assert_eq!(core.store.stats().transactions - before, 2);
}

#[tokio::test]
async fn the_right_password_after_the_hundredth_wrong_one_waits_and_writes_as_the_wrong_one_does() {
    let core = core_with(FailedPasswords::LIMIT - 1).await;
    let _release = hold_writes(&core);
    assert_eq!(answer_at_once(&core, Typed::Wrong), Ok(Some(true)));
    for (typed, unsettled) in REFUSED.into_iter().zip([2, 3, 3]) {
        assert_eq!(answer_at_once(&core, typed), Ok(Some(false)), "{typed:?}");
        assert_eq!(core.attempts.unsettled(USER), unsettled, "{typed:?}");
    }
}

#[tokio::test]
async fn the_right_password_in_the_hundredth_place_is_accepted_without_a_write() {
    let core = core_with(FailedPasswords::LIMIT - 2).await;
    let _release = hold_writes(&core);
    assert_eq!(answer_at_once(&core, Typed::Wrong), Ok(Some(true)));
    assert_eq!(answer_at_once(&core, Typed::Right), Ok(Some(true)));
    assert_eq!(core.attempts.unsettled(USER), 1);
}

#[tokio::test]
async fn a_store_that_is_closed_answers_each_password_alike() {
    let core = core_with(FailedPasswords::LIMIT).await;
    core.store.clone().close();
    for typed in REFUSED {
        assert_eq!(answer_at_once(&core, typed), Ok(None), "{typed:?}");
    }
}
