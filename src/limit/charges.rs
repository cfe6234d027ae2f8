//! What one request has been charged. A request that runs again is not charged again.

use std::sync::{Arc, Mutex, PoisonError};

tokio::task_local! {
    static CURRENT: Charges;
}

/// The charges of a request, over all its runs.
#[derive(Clone, Debug, Default)]
pub struct Charges(Arc<Mutex<Lists>>);

#[derive(Debug, Default)]
struct Lists {
    paid: Vec<Charge>,
    /// Those of earlier runs that this run was not charged yet.
    in_advance: Vec<Charge>,
}

/// A charge of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    buckets: usize,
    tag: u64,
}

impl Charge {
    /// A charge of the bucket with this tag. The address in memory tells which buckets these are.
    pub(super) const fn new(buckets: usize, tag: u64) -> Self {
        Self { buckets, tag }
    }
}

impl Charges {
    /// Runs the request, for the first time or again.
    pub async fn run<T>(&self, request: impl Future<Output = T>) -> T {
        self.with_lists(|lists| lists.in_advance.clone_from(&lists.paid));
        CURRENT.scope(self.clone(), request).await
    }

    fn with_lists<T>(&self, work: impl FnOnce(&mut Lists) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether an earlier run of the current request was charged this.
pub(super) fn is_paid(charge: Charge) -> bool {
    let taken = CURRENT.try_with(|charges| {
        charges.with_lists(|lists| {
            let paid = lists.in_advance.iter().position(|other| *other == charge)?;
            Some(lists.in_advance.swap_remove(paid))
        })
    });
    taken.ok().flatten().is_some()
}

pub(super) fn note_paid(charge: Charge) {
    let _ = CURRENT.try_with(|charges| charges.with_lists(|lists| lists.paid.push(charge)));
}

pub(super) fn note_refund(charge: Charge) {
    let _ = CURRENT.try_with(|charges| {
        charges.with_lists(|lists| {
            if let Some(paid) = lists.paid.iter().position(|other| *other == charge) {
                lists.paid.swap_remove(paid);
            }
        });
    });
}
