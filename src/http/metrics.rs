//! `GET /metrics`, on a listener of its own and without TLS. `/healthz` and `/readyz` answer here too, also while the
//! service itself cannot be reached.

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Method, Request, StatusCode};

use crate::app::App;
use crate::flow::deliver::{OutboxKey, Queued};
use crate::flow::{census, deliver, factors};
use crate::http::endpoint::health;
use crate::http::response::{self, HttpResponse, empty};
use crate::observe::metrics::MEDIA_TYPE;
use crate::observe::readings::Readings;
use crate::store::table::Table;
use crate::store::tables::{LOGOUT_NOTICES, OUTBOX};

/// Answers collectors of metrics and monitors of the process. `of_server` reads what only the server knows. This may read
/// the disk, so it belongs on a thread that may block.
pub fn expose<B>(app: &App, request: &Request<B>, of_server: impl FnOnce() -> Readings) -> HttpResponse {
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
    let readings = readings(app, &of_server()).with_process();
    let mut answer = response::no_store(response::text(StatusCode::OK, app.metrics.text(&readings)));
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    answer
}

/// The answer if the metrics could not be read.
pub fn unread() -> HttpResponse {
    empty(StatusCode::INTERNAL_SERVER_ERROR)
}

fn readings(app: &App, of_server: &Readings) -> Readings {
    let store = &app.core.store;
    let stats = store.stats();
    let passwords = app.core.passwords.load();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let disk = app.disk();
    let is_stalled = store.stalled().is_some();
    let mails = (!is_stalled).then(|| waiting(app, OUTBOX)).flatten();
    let logouts = (!is_stalled).then(|| waiting(app, LOGOUT_NOTICES)).flatten();
    let factors = (!is_stalled)
        .then(|| factors::counts(&app.core, app.core.clock.now()).ok())
        .flatten()
        .flatten();
    let census = census::last(&app.core);
    Readings {
        users: census.map(|census| census.users),
        sessions: census.map(|census| census.sessions),
        registrant_room_used: app.core.registrant_room_used().unwrap_or(0),
        totp_users: factors.map(|factors| factors.totp),
        passkey_users: factors.map(|factors| factors.passkey),
        store_commits: stats.commits,
        store_writes: stats.transactions,
        store_fetches: stats.fetches,
        store_failures: stats.failures,
        store_largest_batch: stats.largest_batch,
        store_queue: stats.queue_depth,
        store_is_writable: store.is_writable(),
        password_queue: count(passwords.waiting),
        password_running: count(passwords.running),
        is_ready: health::readiness(app).status() == StatusCode::OK,
        mail_queue: mails.map(|mails| mails.rows),
        oldest_mail: mails.map(|mails| mails.oldest),
        logout_queue: logouts.map(|logouts| logouts.rows),
        oldest_logout: logouts.map(|logouts| logouts.oldest),
        disk_free: disk.map(|disk| disk.free),
        disk_size: disk.map(|disk| disk.total),
        database_bytes: disk.map(|_| store.allocated_bytes()),
        database_live_bytes: store.file().map(|_| store.live_bytes()),
        database_unused_bytes: disk.map(|_| store.unused_bytes()),
        ..*of_server
    }
}

/// How many rows of a queue wait, and for how many seconds the oldest has waited.
#[derive(Clone, Copy)]
struct Waiting {
    rows: u64,
    oldest: u64,
}

fn waiting(app: &App, table: Table<OutboxKey, impl Queued>) -> Option<Waiting> {
    let (length, oldest) = deliver::queue(&app.core, table).ok()?;
    let age = oldest.map_or(0, |oldest| app.core.clock.now().since(oldest).as_secs());
    Some(Waiting {
        rows: length,
        oldest: age,
    })
}
