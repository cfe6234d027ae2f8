//! Connections that ask one request after another, and what came of it.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsConnector;

use crate::yardstick::Yardstick;

/// What of the time is measured.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    /// Before anything is counted.
    pub(crate) warm_up: Duration,
    /// At most so long; less where there is nothing left to ask.
    pub(crate) longest: Duration,
    /// It ends with the first connection that has nothing left to ask: with fewer of them it is another load.
    pub(crate) while_all_ask: bool,
}

/// An answer.
pub(crate) struct Reply {
    /// The first line of the request.
    asked: String,
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    pub(crate) fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        self.head.lines().skip(1).filter_map(move |line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The text between `before` and the next quotation mark.
    pub(crate) fn quoted_after(&self, before: &str) -> String {
        let rest = self.body.split_once(before);
        let value = rest.and_then(|(_, rest)| rest.split('"').next());
        value.unwrap_or_else(|| self.surprise()).to_owned()
    }

    /// Ends the benchmark: nothing that is measured may fail.
    pub(crate) fn surprise(&self) -> ! {
        panic!("{} was answered with {}\n{}", self.asked, self.head, self.body)
    }
}

/// A request as it goes over the wire.
pub(crate) fn request(method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    for (name, value) in headers {
        write!(text, "{name}: {value}\r\n").unwrap();
    }
    if method == "POST" {
        write!(text, "Content-Length: {}\r\n", body.len()).unwrap();
    }
    text.push_str("\r\n");
    text.push_str(body);
    text
}

/// A posted form.
pub(crate) fn form(target: &str, headers: &[(&str, &str)], fields: &[(&str, &str)]) -> String {
    let body = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    let mut headers = headers.to_vec();
    headers.push(("Content-Type", "application/x-www-form-urlencoded"));
    request("POST", target, &headers, &body)
}

/// What follows from an answer.
pub(crate) enum Next {
    /// What is measured is done; the next one begins.
    Done,
    /// There is more to ask before it is done.
    More,
    /// The service was busy: ask the same again, later.
    Later,
}

/// What one connection asks.
pub(crate) trait Script: Send {
    /// The next request; nothing when all has been asked.
    fn next(&mut self) -> Option<String>;
    /// Reads the answer.
    fn take(&mut self, reply: &Reply) -> Next;
    /// The last request got no answer, or was put off: it may have been carried out or not.
    fn lose(&mut self) {}
    /// The refresh tokens that are good in the end.
    fn left_over(self: Box<Self>) -> VecDeque<String> {
        VecDeque::new()
    }
    /// The time from one request to the next. Without one, each follows the answer to the one before.
    fn pace(&self) -> Option<Duration> {
        None
    }
}

/// What was measured.
pub(crate) struct Measured {
    pub(crate) done: usize,
    pub(crate) elapsed: Duration,
    /// Seconds of the server's processor time.
    pub(crate) cpu: f64,
    /// The cost of one ES256 signature during the run, in microseconds of processor time.
    pub(crate) signature: f64,
    /// What ran beside it.
    pub(crate) beside: Beside,
    latencies: Vec<Duration>,
}

/// What the load beside a measurement came to, while it was measured.
#[derive(Clone, Copy, Default)]
pub(crate) struct Beside {
    /// What was done.
    pub(crate) done: usize,
    /// How often the service was busy.
    pub(crate) put_off: usize,
}

impl std::iter::Sum for Beside {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |sum, part| Self {
            done: sum.done + part.done,
            put_off: sum.put_off + part.put_off,
        })
    }
}

/// What one connection came to, while it was measured.
#[derive(Default)]
struct Driven {
    latencies: Vec<Duration>,
    put_off: usize,
}

impl Measured {
    /// Several measurements as one.
    pub(crate) fn join(parts: Vec<Self>) -> Self {
        let elapsed: Duration = parts.iter().map(|part| part.elapsed).sum();
        let signatures = parts
            .iter()
            .map(|part| part.signature * part.elapsed.as_secs_f64());
        let signature = signatures.sum::<f64>() / elapsed.as_secs_f64();
        let cpu = parts.iter().map(|part| part.cpu).sum();
        let beside = parts.iter().map(|part| part.beside).sum();
        let mut latencies: Vec<Duration> = parts.into_iter().flat_map(|part| part.latencies).collect();
        latencies.sort_unstable();
        Self {
            done: latencies.len(),
            elapsed,
            cpu,
            signature,
            beside,
            latencies,
        }
    }

    pub(crate) fn per_second(&self) -> f64 {
        count(self.done) / self.elapsed.as_secs_f64()
    }

    /// Microseconds of the server's processor time for one.
    pub(crate) fn cpu_each(&self) -> f64 {
        self.each(self.cpu) * 1e6
    }

    /// The part of a total that one has.
    pub(crate) fn each(&self, total: f64) -> f64 {
        total / count(self.done)
    }

    /// The time within which that many of a hundred were done, in milliseconds.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let at = (self.latencies.len() * percent / 100).min(self.latencies.len().saturating_sub(1));
        self.latencies
            .get(at)
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap())
}

/// Asks the same so many times, on a connection of its own.
pub(crate) async fn repeat(server: SocketAddr, request: &str, times: usize) -> Vec<Reply> {
    let mut connection = Connection::open(server, None, 1_000).await.unwrap();
    let mut replies = Vec::new();
    for _ in 0..times {
        replies.push(connection.ask(request).await.unwrap());
    }
    replies
}

/// Runs `scripts`, one on each connection, and measures them. The servers have the connections in turn. `others` run beside them and are not measured.
///
/// With `sleepless` the load never lets its own processor go idle: waking an idle processor costs the sender several
/// microseconds, which would be counted as the service's.
pub(crate) async fn run(
    servers: &[SocketAddr],
    sleepless: bool,
    scripts: Vec<Box<dyn Script>>,
    others: Vec<Box<dyn Script>>,
    span: Span,
    cpu: impl Fn() -> f64,
    yardstick: Yardstick,
) -> Measured {
    let (counting, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (mut asking, mut connections) = (scripts.len(), JoinSet::new());
    let numbered = scripts.into_iter().enumerate();
    let numbered_others = (128..).zip(others);
    for (is_measured, (number, script)) in numbered
        .map(|one| (true, one))
        .chain(numbered_others.map(|one| (false, one)))
    {
        let server = servers[number % servers.len()];
        let driven = drive(server, number, script, Arc::clone(&counting), Arc::clone(&over));
        connections.spawn(async move { (is_measured, driven.await) });
    }
    let awake = sleepless.then(|| {
        tokio::spawn(async {
            loop {
                tokio::task::yield_now().await;
            }
        })
    });
    tokio::time::sleep(span.warm_up).await;
    let (start, before) = (Instant::now(), cpu());
    counting.store(true, Ordering::SeqCst);
    let signing = yardstick.start();
    let mut latencies: Vec<Duration> = Vec::new();
    let mut beside = Beside::default();
    let mut take = |(is_measured, driven): (bool, Driven)| {
        if is_measured {
            latencies.extend(driven.latencies);
        } else {
            beside.done += driven.latencies.len();
            beside.put_off += driven.put_off;
        }
        is_measured
    };
    let end = tokio::time::sleep(span.longest);
    tokio::pin!(end);
    while asking > 0 {
        tokio::select! {
            () = &mut end => break,
            Some(done) = connections.join_next() => if take(unharmed(done)) {
                asking -= 1;
                if span.while_all_ask {
                    break;
                }
            },
        }
    }
    counting.store(false, Ordering::SeqCst);
    let (elapsed, cpu) = (start.elapsed(), cpu() - before);
    let signature = signing.end();
    over.store(true, Ordering::SeqCst);
    if let Some(awake) = awake {
        awake.abort();
    }
    while let Some(done) = connections.join_next().await {
        take(unharmed(done));
    }
    latencies.sort_unstable();
    Measured {
        done: latencies.len(),
        elapsed,
        cpu,
        signature,
        beside,
        latencies,
    }
}

/// What a connection came to. One that met an answer that was not expected ends the benchmark.
fn unharmed<T>(done: Result<T, JoinError>) -> T {
    done.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

/// A connection that is kept, with or without TLS.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connection {
    /// Each connection comes from an address of its own, as the limits of the service count addresses.
    pub(crate) async fn open(
        server: SocketAddr,
        tls: Option<&TlsConnector>,
        number: usize,
    ) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        let [high, low] = u16::try_from(number + 1).unwrap().to_be_bytes();
        let from = Ipv4Addr::new(127, 0, 1 + high, low);
        socket.bind((from, 0).into())?;
        let stream = socket.connect(server).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match tls {
            Some(tls) => Box::new(tls.connect(server.ip().into(), stream).await?),
            None => Box::new(stream),
        };
        let buffer = Vec::new();
        Ok(Self { stream, buffer })
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn ask(&mut self, request: &str) -> io::Result<Reply> {
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await?;
        let buffer = &mut self.buffer;
        buffer.clear();
        let (mut head_len, mut whole) = (0, usize::MAX);
        while buffer.len() < whole {
            buffer.reserve(16 * 1024);
            if self.stream.read_buf(buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if head_len == 0
                && let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n")
            {
                head_len = end + 4;
                whole = head_len + content_length(&buffer[..end]);
            }
        }
        let head = String::from_utf8_lossy(&buffer[..head_len]).into_owned();
        Ok(Reply {
            asked: request.lines().next().unwrap_or_default().to_owned(),
            status: head[9..12].parse().unwrap(),
            head,
            body: String::from_utf8_lossy(&buffer[head_len..]).into_owned(),
        })
    }
}

async fn drive(
    server: SocketAddr,
    number: usize,
    mut script: Box<dyn Script>,
    counting: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
) -> Driven {
    let mut connection = Connection::open(server, None, number).await.unwrap();
    let mut driven = Driven::default();
    let mut start = Instant::now();
    let mut due = start + script.pace().unwrap_or_default() * u32::try_from(number % 64).unwrap() / 64;
    while !over.load(Ordering::SeqCst) {
        if let Some(pace) = script.pace() {
            // A request that is late is measured from when it was due.
            tokio::time::sleep_until(due.into()).await;
            (start, due) = (due, due + pace);
        }
        let Some(request) = script.next() else { break };
        loop {
            let reply = connection.ask(&request).await.unwrap();
            match script.take(&reply) {
                Next::Later if !over.load(Ordering::SeqCst) => {
                    driven.put_off += usize::from(counting.load(Ordering::SeqCst));
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Next::Done => {
                    if counting.load(Ordering::SeqCst) {
                        driven.latencies.push(start.elapsed());
                    }
                    start = Instant::now();
                    break;
                }
                Next::More | Next::Later => break,
            }
        }
    }
    driven
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    line.map_or(0, |length| length.trim().parse().unwrap())
}
