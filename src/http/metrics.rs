//! `GET /metrics`, on a listener of its own.

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Method, Request, StatusCode};

use crate::app::App;
use crate::http::response::{self, Answer, empty};
use crate::metrics::{MEDIA_TYPE, Readings};

/// Answers whoever collects metrics; there is nothing else at this address.
pub fn expose<B>(app: &App, request: &Request<B>) -> Answer {
    if request.uri().path() != "/metrics" {
        return empty(StatusCode::NOT_FOUND);
    }
    if request.method() != Method::GET {
        return super::headers::method_not_allowed(&[Method::GET]);
    }
    let mut answer = response::no_store(response::text(StatusCode::OK, app.metrics.text(&read(app))));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    answer
}

fn read(app: &App) -> Readings {
    let store = app.core.store.stats();
    let (waiting, running) = app.core.passwords.load();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    Readings {
        store_commits: store.commits,
        store_writes: store.transactions,
        store_failures: store.failures,
        store_largest_batch: store.largest_batch,
        store_queue: store.queue_depth,
        store_is_writable: app.core.store.is_writable(),
        password_queue: count(waiting),
        password_running: count(running),
    }
}
