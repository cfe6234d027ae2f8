//! `GET /metrics`, on a listener of its own and without TLS. `/healthz` and `/readyz` answer here too, also while the
//! service itself cannot be reached.

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Method, Request, StatusCode};

use crate::app::App;
use crate::http::endpoint::health;
use crate::http::response::{self, HttpResponse, empty};
use crate::observe::metrics::{MEDIA_TYPE, Readings};

/// Answers collectors of metrics and monitors of the process. `certificate_not_after` is the last second of the
/// certificate in use.
pub fn expose<B>(app: &App, certificate_not_after: Option<u64>, request: &Request<B>) -> HttpResponse {
    let path = request.uri().path();
    if !["/metrics", "/healthz", "/readyz"].contains(&path) {
        return empty(StatusCode::NOT_FOUND);
    }
    if request.method() != Method::GET {
        return super::headers::method_not_allowed(&[Method::GET]);
    }
    match path {
        "/healthz" => return health::alive(),
        "/readyz" => return health::readiness(app),
        _ => {}
    }
    let readings = Readings {
        certificate_not_after: certificate_not_after.unwrap_or_default(),
        ..readings(app)
    };
    let mut answer = response::no_store(response::text(StatusCode::OK, app.metrics.text(&readings)));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    answer
}

fn readings(app: &App) -> Readings {
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
        ..Readings::default()
    }
}
