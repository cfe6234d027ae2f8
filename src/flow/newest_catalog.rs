//! Answers each request with the newest catalog, if several nodes share the store.
//!
//! Another node may have changed a record after this one last read it. The first access of a request to the database shows
//! that, and a request that has used this record runs again. A request that names something unknown may need no access. So the database is
//! asked before the request is refused.

use std::time::{Duration, Instant};

use tokio::time::{sleep_until, timeout};

use super::Core;
use crate::limit::charges::Charges;
use crate::store::catalog_use::CatalogUse;
use crate::store::schema::stored;

/// How often a request may run again because the catalog has changed. The last run keeps the catalog that is in memory.
const MAX_RERUNS: usize = 3;
/// The shortest time between two checks for a newer catalog. Anyone can name what does not exist.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a request waits for such a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

impl Core {
    /// Runs a request with a catalog that was the newest when the request began. `request` may run again, but only
    /// before it has written anything to the store. It is charged once by every limit.
    ///
    /// A request that neither uses the database nor names anything unknown takes the catalog in memory.
    pub async fn with_newest_catalog<T, F>(&self, request: impl Fn() -> F) -> T
    where
        F: Future<Output = T>,
    {
        let reruns = if self.store.is_shared() { MAX_RERUNS } else { 0 };
        let charges = Charges::default();
        for _ in 0..reruns {
            let catalog_use = self.store.catalog_use();
            // A box, so that requests to a store of one process are no larger.
            let running = Box::pin(charges.run(request()));
            if let Some(answer) = catalog_use.run(running).await
                && !self.has_missed_a_change(&catalog_use).await
            {
                return answer;
            }
        }
        if reruns > 0 {
            return Box::pin(charges.run(request())).await;
        }
        request().await
    }

    /// Whether the request named something unknown, and the database has a newer catalog.
    async fn has_missed_a_change(&self, catalog_use: &CatalogUse) -> bool {
        if !catalog_use.has_missed() {
            return false;
        }
        let began = Instant::now();
        let mut last_catalog_check = self.last_catalog_check.lock().await;
        if last_catalog_check.is_none_or(|asked| asked < began) {
            if let Some(asked) = *last_catalog_check {
                sleep_until((asked + CHECK_INTERVAL).into()).await;
            }
            *last_catalog_check = Some(Instant::now());
            // Each answer of the database brings the newest catalog. Without an answer, the refusal stays.
            drop(timeout(CHECK_TIMEOUT, self.store.read(stored)).await);
        }
        drop(last_catalog_check);
        !catalog_use.is_newest(&self.store)
    }
}
