//! Keeps the count of users and sessions fresh.

use std::sync::Arc;
use std::time::Duration;

use crate::app::App;
use crate::background;
use crate::flow::{census, lease};

/// Work under a lease asks for it every minute.
const INTERVAL: Duration = Duration::from_mins(1);

/// Counts on a thread of the lowest priority, so that sign-ins come first.
pub(super) async fn run(app: Arc<App>) {
    loop {
        if !lease::acquire_or_log(&app.core, lease::FACTOR_COUNTS).await {
            census::forget(&app.core);
        } else if census::is_due(&app.core) {
            take(Arc::clone(&app)).await;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn take(app: Arc<App>) {
    match background::run(move || census::take(&app.core)).await {
        Ok(Ok(())) => {}
        // The store logs its own outage.
        Ok(Err(error)) if error.is_outage() => {}
        Ok(Err(error)) => tracing::error!(%error, "users and sessions were not counted"),
        Err(error) => tracing::error!(%error, "users and sessions were not counted"),
    }
}
