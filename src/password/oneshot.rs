//! One value from one thread to one future, without a runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

enum State<T> {
    /// Nothing sent yet; whom to wake once the receiver has been polled.
    Waiting(Option<Waker>),
    Sent(T),
    /// The sender is gone, the receiver is gone, or the value has been taken.
    Closed,
}

struct Slot<T>(Mutex<State<T>>);

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves `next` behind if the receiver still waits. Its waker is called, and the former state dropped,
    /// outside the lock.
    fn settle(&self, next: State<T>) {
        let mut state = self.lock();
        if let State::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = next;
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Makes a pair: what is sent to the one arrives at the other.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Arc::new(Slot(Mutex::new(State::Waiting(None))));
    (Sender(Arc::clone(&slot)), Receiver(slot))
}

/// The end that gives the value. Dropped without one, it ends the wait of the other.
pub struct Sender<T>(Arc<Slot<T>>);

impl<T> Sender<T> {
    /// Gives the value; it is dropped if nobody waits any more.
    pub fn send(self, value: T) {
        self.0.settle(State::Sent(value));
    }

    /// Has the receiver been dropped?
    pub fn is_abandoned(&self) -> bool {
        matches!(*self.0.lock(), State::Closed)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.settle(State::Closed);
    }
}

/// The end that waits: a future of the value, or of `None` when the sender is gone without one.
pub struct Receiver<T>(Arc<Slot<T>>);

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.lock();
        if let State::Waiting(waker) = &mut *state {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, State::Closed) {
            State::Sent(value) => Poll::Ready(Some(value)),
            State::Waiting(_) | State::Closed => Poll::Ready(None),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let former = std::mem::replace(&mut *self.0.lock(), State::Closed);
        drop(former);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn poll<T>(receiver: &mut Receiver<T>, count: &Arc<Count>) -> Poll<Option<T>> {
        let waker = Waker::from(Arc::clone(count));
        Pin::new(receiver).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn a_value_sent_before_the_first_poll_is_there_at_once() {
        let (sender, mut receiver) = channel();
        sender.send(7);
        assert_eq!(poll(&mut receiver, &Arc::default()), Poll::Ready(Some(7)));
        assert_eq!(poll(&mut receiver, &Arc::default()), Poll::Ready(None));
    }

    #[test]
    fn only_the_last_waker_is_woken_and_only_once() {
        let (sender, mut receiver) = channel();
        let (first, second) = (Arc::<Count>::default(), Arc::<Count>::default());
        assert_eq!(poll(&mut receiver, &first), Poll::Pending);
        assert_eq!(poll(&mut receiver, &second), Poll::Pending);
        sender.send("value");
        assert_eq!(first.0.load(Ordering::SeqCst), 0);
        assert_eq!(second.0.load(Ordering::SeqCst), 1);
        assert_eq!(poll(&mut receiver, &second), Poll::Ready(Some("value")));
    }

    #[test]
    fn a_dropped_sender_ends_the_wait() {
        let (sender, mut receiver) = channel::<u8>();
        let count = Arc::<Count>::default();
        assert_eq!(poll(&mut receiver, &count), Poll::Pending);
        drop(sender);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(poll(&mut receiver, &count), Poll::Ready(None));
    }

    #[test]
    fn a_dropped_receiver_is_noticed_and_the_value_dropped() {
        let value = Arc::new(());
        let (sender, receiver) = channel();
        assert!(!sender.is_abandoned());
        drop(receiver);
        assert!(sender.is_abandoned());
        sender.send(Arc::clone(&value));
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
