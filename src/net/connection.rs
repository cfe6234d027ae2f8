//! One connection: the TLS handshake, the choice of the HTTP version, the requests, the end.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio_rustls::server::TlsStream;

use super::activity::{Activity, Overdue, Timeouts};
use super::alpn::{ACME_TLS_1, HTTP_2};
use super::answer::{self, ResponseBody};
use super::client_certificate::ClientCertificates;
use super::drain::Draining;
use super::monitored_stream::{MonitoredStream, Protocol};
use super::tls::Acceptor;
use super::{Fallback, Limits, Peer};

/// How long an idle connection may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the service reads a last request when it stops. An HTTP/1 peer that sends a request at this moment learns of
/// the end only by losing the request (RFC 9112 section 9.6).
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// The smallest HTTP/1 buffer that hyper accepts.
const SMALLEST_BUFFER: usize = 8192;

/// A request body has at most 64 KiB, so a stream needs no larger window (RFC 9113 section 6.9.2). Four streams fill the
/// connection's window.
const STREAM_WINDOW: u32 = 65_535;
const CONNECTION_WINDOW: u32 = 4 * STREAM_WINDOW;
const SEND_BUFFER: usize = 64 * 1024;

/// Streams that a peer may reset before hyper accepts them. More end the connection.
const MAX_RESET_STREAMS: usize = 20;
/// Streams that hyper may reset because of the peer's errors. More end the connection.
const MAX_LOCAL_RESETS: usize = 256;

/// The body of the answer to plain HTTP.
const PLAIN_HTTP: &str =
    "This port speaks HTTPS, and the request came without TLS. Use an address that begins with https://\n";

/// What a peer begins with at a port for TLS.
enum Opening {
    Tls(Box<TlsStream<MonitoredStream<TcpStream>>>),
    PlainHttp(TcpStream),
}

/// The TLS handshake, unless the first byte is that of a request without TLS: a method begins with a letter (RFC 9110
/// section 9), and a TLS record with a number below 32 (RFC 8446 section 5.1).
async fn open(stream: TcpStream, acceptor: &Acceptor, activity: &Activity) -> io::Result<Opening> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first[0].is_ascii_alphabetic() {
        return Ok(Opening::PlainHttp(stream));
    }
    let stream = MonitoredStream::new(stream, activity.clone(), Protocol::Tls);
    let stream = acceptor.accept(stream).await?;
    Ok(Opening::Tls(Box::new(stream)))
}

/// Serves one connection to its end. An error of the peer ends this connection only.
pub async fn serve(
    stream: TcpStream,
    tls: Option<Acceptor>,
    service: Guarded,
    activity: Activity,
    limits: &Limits,
    mut draining: Draining,
) {
    let peer = service.peer;
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(peer = %peer.addr, %error, "connection lost before its first byte");
        return;
    }
    let Some(acceptor) = tls else {
        return http_1(stream, service, activity, limits, draining).await;
    };
    let opening = tokio::time::timeout(limits.handshake_timeout, open(stream, &acceptor, &activity));
    let opening = tokio::select! {
        opening = opening => match opening {
            Ok(Ok(opening)) => opening,
            Ok(Err(error)) => {
                tracing::debug!(peer = %peer.addr, %error, "no TLS handshake");
                return;
            }
            Err(_) => {
                tracing::debug!(peer = %peer.addr, "no TLS handshake in time");
                return;
            }
        },
        () = draining.begun_since(LAST_REQUEST_TIMEOUT) => return,
    };
    let mut stream = match opening {
        Opening::Tls(stream) => stream,
        Opening::PlainHttp(stream) => {
            tracing::debug!(peer = %peer.addr, "plain HTTP instead of TLS");
            return http_1(stream, service.refusing_plain_http(), activity, limits, draining).await;
        }
    };
    activity.secured();
    let service = service.with_certificates(acceptor.certificates_of(stream.get_ref().1));
    match stream.get_ref().1.alpn_protocol() {
        Some(HTTP_2) => http_2(stream, service, activity, limits, draining).await,
        // The check ends with the handshake (RFC 8737 section 3).
        Some(ACME_TLS_1) => {
            tracing::debug!(peer = %peer.addr, "answered a certificate authority's check");
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, stream.shutdown()).await;
        }
        _ => http_1(stream, service, activity, limits, draining).await,
    }
}

async fn http_1<IO>(stream: IO, service: Guarded, activity: Activity, limits: &Limits, draining: Draining)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = service.peer;
    let header = usize::from(limits.max_header_bytes);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // A peer that has nothing more to send still waits for its answer (RFC 9112 section 9.6).
        .half_close(true)
        .header_read_timeout(limits.idle_timeout.max(limits.header_timeout))
        .max_header_size(header)
        .max_buf_size(header.saturating_mul(2).max(SMALLEST_BUFFER))
        .serve_connection(
            TokioIo::new(MonitoredStream::new(stream, activity.clone(), Protocol::Http1)),
            service.into_hyper(activity.clone(), limits.request_timeout, draining.clone()),
        );
    drive(
        connection,
        peer,
        &activity,
        limits,
        draining,
        LAST_REQUEST_TIMEOUT,
    )
    .await;
}

async fn http_2<IO>(stream: IO, service: Guarded, activity: Activity, limits: &Limits, draining: Draining)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer = service.peer;
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_header_list_size(u32::from(limits.max_header_bytes))
        .max_concurrent_streams(limits.max_concurrent_streams)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_LOCAL_RESETS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(limits.idle_timeout / 2)
        .keep_alive_timeout(limits.header_timeout)
        .serve_connection(
            TokioIo::new(MonitoredStream::new(stream, activity.clone(), Protocol::Http2)),
            service.into_hyper(activity.clone(), limits.request_timeout, draining.clone()),
        );
    // GOAWAY says which requests were accepted, so the service need not wait for a last one.
    drive(connection, peer, &activity, limits, draining, Duration::ZERO).await;
}

/// A connection that can finish its requests and then end.
trait Graceful: Future<Output = hyper::Result<()>> {
    /// Accepts no further request. On HTTP/2 it sends GOAWAY (RFC 9113 section 6.8).
    fn finish(self: Pin<&mut Self>);
}

impl<IO, S> Graceful for http1::Connection<IO, S>
where
    IO: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<IO, S> Graceful for http2::Connection<IO, S, TokioExecutor>
where
    IO: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
    S: Service<Request<Incoming>, Response = Response<ResponseBody>, Error = Infallible>,
    S::Future: Send + 'static,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

async fn drive<C: Graceful>(
    connection: C,
    peer: Peer,
    activity: &Activity,
    limits: &Limits,
    mut draining: Draining,
    last_request: Duration,
) {
    let timeouts = Timeouts {
        reading: limits.header_timeout,
        idle: limits.idle_timeout,
        sending: limits.idle_timeout,
    };
    let mut connection = pin!(connection);
    tokio::select! {
        end = connection.as_mut() => return ended(peer, end),
        overdue = activity.overdue(timeouts) => match overdue {
            Overdue::Idle => {}
            Overdue::Reading => {
                tracing::debug!(peer = %peer.addr, "no request in time");
                return;
            }
            Overdue::Sending => {
                tracing::debug!(peer = %peer.addr, "an answer is not taken");
                return;
            }
        },
        () = draining.begun() => if !last_request.is_zero() {
            activity.restart_timers();
            tokio::select! {
                biased;
                end = connection.as_mut() => return ended(peer, end),
                _ = activity.overdue(timeouts.at_most(last_request)) => {}
            }
        }
    }
    connection.as_mut().finish();
    activity.restart_timers();
    tokio::select! {
        end = connection.as_mut() => ended(peer, end),
        _ = activity.overdue(timeouts.at_most(CLOSE_TIMEOUT)) => {
            tracing::debug!(peer = %peer.addr, "connection cut, the peer does not end it");
        }
    }
}

fn ended(peer: Peer, end: hyper::Result<()>) {
    if let Err(error) = end {
        tracing::debug!(peer = %peer.addr, %error, "connection ended by a fault");
    }
}

pub type ResponseFuture = Pin<Box<dyn Future<Output = Response<Full<Bytes>>> + Send>>;

/// Answers requests. Every service is boxed to this one type, so that the executable contains one HTTP server instead of
/// one for each service.
pub type RequestHandler = Arc<dyn Fn(Request<Incoming>, Peer) -> ResponseFuture + Send + Sync>;

/// A service whose panics and endless requests affect one request only.
///
/// hyper itself answers a header that it cannot read (400) or that is too long (414, 431). These responses have no body,
/// and hyper offers no hook to add a header.
pub struct Guarded {
    service: RequestHandler,
    peer: Peer,
    fallback: Fallback,
    certificates: Option<ClientCertificates>,
}

impl Guarded {
    /// Guards `service` for one peer.
    pub fn new(service: RequestHandler, peer: Peer, fallback: Fallback) -> Self {
        Self {
            service,
            peer,
            fallback,
            certificates: None,
        }
    }

    /// Gives these certificates of the client to each request.
    fn with_certificates(self, certificates: Option<ClientCertificates>) -> Self {
        Self { certificates, ..self }
    }

    /// Answers requests that came without TLS to a port for TLS.
    fn refusing_plain_http(self) -> Self {
        let refuse = |_: Request<Incoming>, _: Peer| -> ResponseFuture {
            let mut response = Response::new(Full::from(PLAIN_HTTP));
            *response.status_mut() = StatusCode::BAD_REQUEST;
            let headers = response.headers_mut();
            headers.insert(
                CONTENT_TYPE,
                HeaderValue::from_static("text/plain; charset=utf-8"),
            );
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            Box::pin(ready(response))
        };
        Self {
            service: Arc::new(refuse),
            ..self
        }
    }

    fn into_hyper(
        self,
        activity: Activity,
        timeout: Duration,
        draining: Draining,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<ResponseBody>,
        Error = Infallible,
        Future = impl Future<Output = Result<Response<ResponseBody>, Infallible>> + Send + 'static,
    > {
        let Self {
            service,
            peer,
            fallback,
            certificates,
        } = self;
        service_fn(move |mut request: Request<Incoming>| {
            if let Some(certificates) = &certificates {
                request.extensions_mut().insert(certificates.clone());
            }
            let serving = activity.serving();
            let (activity, fallback, draining) = (activity.clone(), fallback.clone(), draining.clone());
            let (version, uri) = (request.version(), request.uri().clone());
            let is_head = request.method() == Method::HEAD;
            let has_body = !request.body().is_end_stream();
            // Called before the first poll: the service counts the request, which is in memory already.
            let answer = DetachOnDrop::start(|| service(request, peer));
            async move {
                let _serving = serving;
                let failed = |status| fallback.answer(status, peer, uri);
                let (mut response, is_body_left) = match tokio::time::timeout(timeout, answer).await {
                    Ok(Ok(response)) => (response, false),
                    Ok(Err(Panicked)) => {
                        tracing::error!(peer = %peer.addr, "a request ended in a panic");
                        (failed(StatusCode::INTERNAL_SERVER_ERROR), has_body)
                    }
                    Err(_) => {
                        tracing::error!(peer = %peer.addr, seconds = timeout.as_secs(), "a request took too long");
                        (failed(StatusCode::SERVICE_UNAVAILABLE), has_body)
                    }
                };
                if (is_body_left || draining.has_begun()) && version < Version::HTTP_2 {
                    let headers = response.headers_mut();
                    headers.insert(CONNECTION, HeaderValue::from_static("close"));
                }
                // HTTP/1 sends one response at a time, and copies it into its buffer at once.
                let sending = || (version >= Version::HTTP_2).then(|| activity.sending());
                Ok(answer::prepare(response, is_head, sending))
            }
        })
    }
}

struct Panicked;

/// A response future that runs to its end even if the peer hangs up or the request times out.
///
/// Its work, such as a write that waits for the disk, continues in any case. The permit that bounds the requests of the
/// peer must therefore be held until the work is done.
struct DetachOnDrop(Option<ResponseFuture>);

impl DetachOnDrop {
    fn start(begin: impl FnOnce() -> ResponseFuture) -> Self {
        Self(catch_unwind(AssertUnwindSafe(begin)).ok())
    }
}

impl Future for DetachOnDrop {
    type Output = Result<Response<Full<Bytes>>, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = self.0.as_mut() else {
            return Poll::Ready(Err(Panicked));
        };
        // After a panic the future is dropped with its state, so no code sees a half-changed state.
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        if !matches!(polled, Ok(Poll::Pending)) {
            self.0 = None;
        }
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    }
}

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}
