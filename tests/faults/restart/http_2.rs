//! The part of the load that speaks HTTP/2, by hand: only so is it seen which requests the service took before it went
//! away (RFC 9113 section 6.8).

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{ANONYMOUS, Load, TEST_TIMEOUT};
use crate::harness::frames::{
    self, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, Method, PING, PREFACE, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame, header_block, literal,
};
use crate::harness::tls::{HTTP_2, Target};

/// How many requests an application has under way at once, and how long it waits after each answer.
pub(super) const WAYS: [(usize, Duration); 3] = [
    (1, Duration::ZERO),
    (1, Duration::from_millis(30)),
    (8, Duration::ZERO),
];

const ACK: u8 = 1;
const AUTHORIZATION: u8 = 23;
/// `:status: 200` in the static table (RFC 7541 appendix A).
const OK: u8 = 0x88;

/// One connection with its open requests.
struct Connection {
    stream: TlsStream<TcpStream>,
    /// The received parts of the answers, by stream.
    begun: BTreeMap<u32, Vec<u8>>,
    next: u32,
    /// Whether the service has said anything on it.
    is_greeted: bool,
    /// The last request that the service says it takes.
    last: Option<u32>,
}

/// Asks for anonymous users without end, on a new connection whenever the service wants no more on the old one.
pub(super) fn ask(load: &Load, target: &Target, at_once: usize, pause: Duration) {
    let target = target.speaking(HTTP_2);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        while !load.over.load(Ordering::SeqCst) {
            let mut connection = match Connection::open(&target).await {
                Ok(connection) => connection,
                Err(error) => return load.not_connected(&error),
            };
            if let Err(problem) = connection.carry(load, at_once, pause).await {
                if !connection.is_greeted {
                    return load.not_connected(&problem);
                }
                let under_way: Vec<_> = connection.begun.keys().collect();
                let last = connection.last;
                return load.lose(&format!(
                    "HTTP/2 at_once={at_once} pause={pause:?}: {problem}, {under_way:?} under way, last {last:?}"
                ));
            }
        }
    });
}

impl Connection {
    async fn open(target: &Target) -> io::Result<Self> {
        let mut stream = target.connect().await?;
        let greeting = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        stream.write_all(&greeting).await?;
        Ok(Self {
            stream,
            begun: BTreeMap::new(),
            next: 1,
            is_greeted: false,
            last: None,
        })
    }

    /// Sends requests until the load ends or the service accepts no more, then waits for those in progress.
    async fn carry(&mut self, load: &Load, at_once: usize, pause: Duration) -> io::Result<()> {
        loop {
            while self.last.is_none() && self.begun.len() < at_once && !load.over.load(Ordering::SeqCst) {
                self.begin(load).await;
            }
            if self.begun.is_empty() {
                return Ok(());
            }
            let frame = tokio::time::timeout(TEST_TIMEOUT, frames::read(&mut self.stream)).await??;
            if self.take(frame, load).await? {
                load.answers.fetch_add(1, Ordering::SeqCst);
                load.of_http_2.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn begin(&mut self, load: &Load) {
        let mut block = header_block(Method::Post, "/oauth2/token");
        literal(&mut block, AUTHORIZATION, &load.authorization);
        let form = format!("grant_type={ANONYMOUS}");
        let request = [
            frame(HEADERS, END_HEADERS, self.next, &block),
            frame(DATA, END_STREAM, self.next, form.as_bytes()),
        ];
        self.begun.insert(self.next, Vec::new());
        self.next += 2;
        self.send(&request.concat()).await;
    }

    /// The last frames of the service can still be read after sending has failed.
    async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Handles a frame. Returns whether it ends a whole answer.
    async fn take(&mut self, frame: Frame, load: &Load) -> io::Result<bool> {
        let problem = |text: String| Err(io::Error::other(text));
        let Frame {
            kind,
            flags,
            stream,
            payload,
        } = frame;
        self.is_greeted = true;
        match kind {
            HEADERS if payload.first() != Some(&OK) => {
                return problem(format!("answered with {payload:02x?}"));
            }
            RST_STREAM => return problem(format!("stream {stream} reset: {payload:?}")),
            DATA => {
                self.give_back(payload.len()).await;
                let Some(body) = self.begun.get_mut(&stream) else {
                    return problem(format!("stream {stream} was not asked for"));
                };
                body.extend_from_slice(&payload);
                if flags & END_STREAM != 0 {
                    let body = self.begun.remove(&stream).unwrap_or_default();
                    let answer: Value = serde_json::from_slice(&body)?;
                    assert!(answer["access_token"].is_string(), "{answer}");
                    return Ok(true);
                }
            }
            SETTINGS | PING if flags & ACK == 0 => {
                let echo: &[u8] = if kind == PING { &payload } else { &[] };
                self.send(&frames::frame(kind, ACK, 0, echo)).await;
            }
            GOAWAY => {
                let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
                if load.told_since().is_none() || number(4) != 0 {
                    return problem(format!("sent away: {payload:?}"));
                }
                let last = number(0);
                self.last = Some(last);
                // Nobody looked at these: an application sends them again.
                for _ in self.begun.split_off(&last.saturating_add(1)) {
                    load.turn_away();
                }
            }
            _ => {}
        }
        Ok(false)
    }

    /// Lets the service send as many bytes again on this connection (RFC 9113 section 6.9).
    async fn give_back(&mut self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap().to_be_bytes();
        if bytes != [0; 4] {
            self.send(&frame(WINDOW_UPDATE, 0, 0, &bytes)).await;
        }
    }
}
