use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use super::*;

fn cheap() -> PasswordParams {
    PasswordParams::new(32, 1, 1).unwrap()
}

fn pool(threads: usize, waiting: usize) -> PasswordPool {
    PasswordPool::start(cheap(), PoolSize { threads, waiting }).unwrap()
}

/// Waits on this thread.
fn wait<T>(answer: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(answer)
}

fn typed(password: &str) -> Zeroizing<String> {
    Zeroizing::new(password.to_owned())
}

fn result(matches: bool, rehash_needed: bool) -> PasswordCheck {
    PasswordCheck {
        matches,
        rehash_needed,
    }
}

fn submit<T: Send + 'static>(
    pool: &PasswordPool,
    work: impl FnOnce(&mut Memory) -> T + Send + 'static,
) -> Receiver<T> {
    let answered = |memory: &mut Memory, answer: Sender<T>| drop(answer.send(work(memory)));
    pool.submit(&PasswordAttempt::trusted(), answered)
}

/// Holds one thread of the pool until the returned sender is dropped.
fn occupy(pool: &PasswordPool) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (started, running) = mpsc::channel();
    let work = move |_: &mut Memory| {
        started.send(()).unwrap();
        let _ = held.recv();
    };
    std::mem::forget(submit(pool, work));
    running.recv().unwrap();
    release
}

#[test]
fn a_hashed_password_verifies_and_another_does_not() {
    let pool = pool(2, 8);
    let hash = wait(pool.hash(typed("correct horse"), [1; SALT_LEN])).unwrap();
    let right = wait(pool.verify(
        Some(hash.clone()),
        typed("correct horse"),
        PasswordAttempt::trusted(),
    ))
    .unwrap();
    assert_eq!(right, result(true, false));
    let wrong = wait(pool.verify(Some(hash), typed("battery staple"), PasswordAttempt::trusted())).unwrap();
    assert_eq!(wrong, result(false, false));
}

#[test]
fn an_unknown_user_costs_a_hash_and_never_matches() {
    let pool = pool(1, 8);
    for password in ["", "unknown account.", "correct horse"] {
        assert!(
            !wait(pool.verify(None, typed(password), PasswordAttempt::trusted()))
                .unwrap()
                .matches
        );
    }
    let blocks = wait(submit(&pool, |memory| format!("{memory:?}"))).unwrap();
    assert_eq!(blocks, "Memory(32 KiB)");
}

#[cfg(target_os = "linux")]
#[test]
fn the_threads_that_hash_step_back_and_the_others_do_not() {
    let niceness = || {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let mut fields = stat.rsplit(") ").next().unwrap().split(' ');
        fields.nth(16).unwrap().parse::<i32>().unwrap()
    };
    let mine = niceness();
    let theirs = wait(submit(&pool(1, 8), move |_| niceness())).unwrap();
    assert_eq!((theirs, niceness()), ((mine + 5).min(19), mine));
}

#[test]
fn a_hash_of_another_cost_is_to_be_made_again_when_the_password_is_right() {
    let pool = pool(1, 8);
    let other = PasswordParams::new(64, 1, 1).unwrap();
    let old = hash(other, b"correct horse", [1; SALT_LEN], &mut Memory::default()).unwrap();
    let right = wait(pool.verify(
        Some(old.clone()),
        typed("correct horse"),
        PasswordAttempt::trusted(),
    ))
    .unwrap();
    assert_eq!(right, result(true, true));
    let wrong = wait(pool.verify(Some(old), typed("wrong"), PasswordAttempt::trusted())).unwrap();
    assert_eq!(wrong, result(false, false));
}

#[test]
fn a_malformed_hash_matches_nothing() {
    let pool = pool(1, 8);
    let broken: PasswordHash = serde_json::from_str("\"!\"").unwrap();
    assert!(
        !wait(pool.verify(Some(broken), typed("!"), PasswordAttempt::trusted()))
            .unwrap()
            .matches
    );
}

#[test]
fn a_full_queue_is_busy_until_a_place_is_free() {
    let pool = pool(1, 2);
    let release = occupy(&pool);
    let waiting = [submit(&pool, |_| 1), submit(&pool, |_| 2)];
    assert_eq!(
        wait(pool.verify(None, typed("x"), PasswordAttempt::trusted())),
        Err(NotComputed::Busy)
    );
    assert_eq!(wait(pool.hash(typed("x"), [0; SALT_LEN])), Err(NotComputed::Busy));
    drop(release);
    assert_eq!(waiting.map(wait), [Ok(1), Ok(2)]);
    let again = submit(&pool, |_| 3);
    assert_eq!(wait(again), Ok(3));
}

#[test]
fn a_dropped_future_gives_its_place_back_and_is_not_computed() {
    let pool = pool(1, 1);
    let release = occupy(&pool);
    let computed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&computed);
    let dropped = submit(&pool, move |_| count.fetch_add(1, Ordering::SeqCst));
    assert_eq!(wait(submit(&pool, |_| ())), Err(oneshot::Canceled));
    drop(dropped);
    let kept = submit(&pool, |_| "kept");
    drop(release);
    assert_eq!(wait(kept), Ok("kept"));
    assert_eq!(computed.load(Ordering::SeqCst), 0);
}

#[test]
fn an_abandoned_job_is_skipped_when_its_turn_comes() {
    let pool = pool(1, 4);
    let release = occupy(&pool);
    let computed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&computed);
    drop(submit(&pool, move |_| count.fetch_add(1, Ordering::SeqCst)));
    let last = submit(&pool, |_| ());
    drop(release);
    assert_eq!(wait(last), Ok(()));
    assert_eq!(computed.load(Ordering::SeqCst), 0);
}

#[test]
fn verification_is_a_future_of_any_runtime() {
    let pool = pool(1, 4);
    let release = occupy(&pool);
    let mut future = pin!(pool.verify(None, typed("x"), PasswordAttempt::trusted()));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(future.as_mut().poll(&mut context), Poll::Pending);
    drop(release);
    wait(submit(&pool, |_| ())).unwrap();
    assert!(matches!(
        future.poll(&mut context),
        Poll::Ready(Ok(PasswordCheck { matches: false, .. }))
    ));
}

#[test]
fn a_panic_is_one_refusal_and_the_thread_lives_on() {
    let pool = pool(1, 4);
    let failed = submit(&pool, |_| -> u8 { panic!("a fault in one job") });
    assert_eq!(wait(failed), Err(oneshot::Canceled));
    assert!(
        !wait(pool.verify(None, typed("x"), PasswordAttempt::trusted()))
            .unwrap()
            .matches
    );
    assert_eq!(pool.load().waiting, 0);
}

#[test]
fn a_hash_without_memory_is_told_apart_from_a_full_queue_and_counted() {
    let params = PasswordParams::new(128, 1, 1).unwrap();
    let size = PoolSize {
        threads: 1,
        waiting: 8,
    };
    let pool = PasswordPool::start_within(64, params, size).unwrap();
    let attempt = PasswordAttempt::trusted;
    let refused = Err(NotComputed::OutOfMemory(OutOfMemory));
    assert_eq!(wait(pool.verify(None, typed("x"), attempt())), refused);
    assert_eq!(
        wait(pool.hash(typed("x"), [0; SALT_LEN])).err(),
        Some(NotComputed::OutOfMemory(OutOfMemory))
    );
    assert_eq!(pool.shortages(), 2);
    let hash = hash(cheap(), b"x", [0; SALT_LEN], &mut Memory::default()).unwrap();
    let known = wait(pool.verify(Some(hash), typed("x"), attempt()));
    assert_eq!(known, Ok(result(true, true)), "a cheaper one is checked");
}

#[test]
fn a_thread_without_work_gives_its_memory_back() {
    let size = PoolSize {
        threads: 1,
        waiting: 8,
    };
    let pool = PasswordPool::launch(64, cheap(), size, Duration::from_millis(1)).unwrap();
    let begun = std::time::Instant::now();
    loop {
        wait(pool.verify(None, typed("x"), PasswordAttempt::trusted())).unwrap();
        thread::sleep(Duration::from_millis(5));
        let memory = wait(submit(&pool, |memory| format!("{memory:?}"))).unwrap();
        if memory == "Memory(0 KiB)" {
            break;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "{memory}");
    }
}

#[test]
fn closing_answers_waiting_jobs_and_joins_the_threads() {
    let pool = pool(2, 4);
    let releases = [occupy(&pool), occupy(&pool)];
    let waiting = submit(&pool, |_| ());
    let shared = Arc::downgrade(&pool.shared);
    let closing = thread::spawn(move || drop(pool));
    assert_eq!(wait(waiting), Err(oneshot::Canceled));
    drop(releases);
    closing.join().unwrap();
    assert!(shared.upgrade().is_none());
}

/// Umlauts as one code point and as two each, which some keyboards make.
const COMPOSED: &str = "Gr\u{fc}n-K\u{e4}se-\u{d6}l-42!";
const DECOMPOSED: &str = "Gru\u{308}n-Ka\u{308}se-O\u{308}l-42!";

#[test]
fn a_password_matches_in_both_forms_of_its_letters() {
    let pool = pool(1, 8);
    let check = |hash: &PasswordHash, password| {
        let hash = Some(hash.clone());
        wait(pool.verify(hash, typed(password), PasswordAttempt::trusted())).unwrap()
    };
    for chosen in [COMPOSED, DECOMPOSED] {
        let hash = wait(pool.hash(typed(chosen), [1; SALT_LEN])).unwrap();
        for password in [COMPOSED, DECOMPOSED] {
            assert_eq!(check(&hash, password), result(true, false));
        }
        for other in ["Grun-Kase-Ol-42!", "gr\u{fc}n-k\u{e4}se-\u{f6}l-42!"] {
            assert_eq!(check(&hash, other), result(false, false));
        }
    }
}

#[test]
fn a_hash_of_the_bytes_as_typed_matches_these_bytes_and_is_made_anew() {
    let pool = pool(1, 8);
    let as_typed = |memory: &mut Memory| hash(cheap(), DECOMPOSED.as_bytes(), [1; SALT_LEN], memory);
    let earlier = wait(submit(&pool, as_typed)).unwrap().unwrap();
    let check = |password| {
        let hash = Some(earlier.clone());
        wait(pool.verify(hash, typed(password), PasswordAttempt::trusted())).unwrap()
    };
    assert_eq!(check(DECOMPOSED), result(true, true));
    assert_eq!(check(COMPOSED), result(false, false));
}
