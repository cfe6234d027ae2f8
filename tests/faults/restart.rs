//! Stopping and starting again under load. Each accepted connection gets a whole answer. With sockets that outlive the
//! process, every connection is accepted.

mod http_2;

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::harness::process::{Reply, Running, Service, request, said};
use crate::harness::tls::{self, HTTP_1, Target};

const ANONYMOUS: &str = "urn:service:oauth2:grant-type:anonymous";
const TEST_TIMEOUT: Duration = Duration::from_mins(1);
/// For so long after it was told to stop the service still takes a request on any connection; and a moment less, in
/// which a request is on its way.
const LAST_REQUEST: Duration = Duration::from_millis(900);

/// Whether an application keeps its connection after an answer, and the pause before its next request.
const WAYS: [(bool, Duration); 6] = [
    (true, Duration::ZERO),
    (true, Duration::from_millis(30)),
    (true, Duration::from_millis(300)),
    (true, Duration::from_millis(300)),
    (false, Duration::ZERO),
    (false, Duration::from_millis(10)),
];

/// Applications that send requests without end, and the results of these requests.
struct Load {
    port: u16,
    /// Over TLS, and some of them in HTTP/2.
    tls: Option<Target>,
    authorization: String,
    /// When nobody had to be let in any more.
    told_to_stop: Mutex<Option<Instant>>,
    over: AtomicBool,
    answers: AtomicUsize,
    /// Those of the answers that came in HTTP/2.
    of_http_2: AtomicUsize,
    turned_away: AtomicUsize,
    lost: Mutex<Vec<String>>,
}

trait Stream: Read + Write + Send {}

impl<IO: Read + Write + Send> Stream for IO {}

/// A connection, and whether it was there before the service was told to stop.
struct Kept {
    stream: BufReader<Box<dyn Stream>>,
    was_let_in: bool,
}

/// Whether the peer has closed the connection without a word.
fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
    )
}

impl Load {
    fn on(service: &Service, tls: Option<Target>) -> Self {
        let grants = ["--grant", "anonymous", "--grant", "refresh_token", "--json"];
        let tv = service.json(&[&["client", "add", "tv"][..], &grants].concat());
        let pair = format!("tv:{}", tv["client_secret"].as_str().unwrap());
        Self {
            port: service.port,
            tls,
            authorization: format!("Basic {}", STANDARD.encode(pair)),
            told_to_stop: Mutex::default(),
            over: AtomicBool::new(false),
            answers: AtomicUsize::new(0),
            of_http_2: AtomicUsize::new(0),
            turned_away: AtomicUsize::new(0),
            lost: Mutex::default(),
        }
    }

    /// Runs all ways at once, and `action` beside them.
    fn beside(&self, action: impl FnOnce()) {
        thread::scope(|scope| {
            for (keeps, pause) in WAYS {
                scope.spawn(move || self.refresh(keeps, pause));
            }
            if let Some(target) = &self.tls {
                for (at_once, pause) in http_2::WAYS {
                    scope.spawn(move || http_2::ask(self, target, at_once, pause));
                }
            }
            action();
            self.over.store(true, Ordering::SeqCst);
        });
    }

    /// Refreshes again and again; a token that was lost on its way would end it.
    fn refresh(&self, keeps: bool, pause: Duration) {
        let mut form = format!("grant_type={ANONYMOUS}");
        let mut kept = None;
        while !self.over.load(Ordering::SeqCst) {
            let Some(mut connection) = kept.take().or_else(|| self.connect()) else {
                return;
            };
            let is_late = self.told_since().is_some_and(|time| time >= LAST_REQUEST);
            match self.ask(&mut connection.stream, &form) {
                Ok(reply) if reply.status == 200 => {
                    self.answers.fetch_add(1, Ordering::SeqCst);
                    let token = reply.json()["refresh_token"].as_str().unwrap().to_owned();
                    form = format!("grant_type=refresh_token&refresh_token={token}");
                    let may_stay = reply.header("connection") != Some("close");
                    kept = (keeps && may_stay).then_some(Kept {
                        was_let_in: true,
                        ..connection
                    });
                }
                // It waited in a queue that was closed: nobody has read its request.
                Err(_) if !connection.was_let_in => return self.turn_away(),
                // It came after the end. Half an answer, or none in time, is another thing.
                Err(error) if is_late && is_closed(&error) => return self.turn_away(),
                other => return self.lose(&format!("keeps={keeps} pause={pause:?}: {other:?}")),
            }
            thread::sleep(pause);
        }
    }

    /// A new connection, unless the service has been told to stop.
    fn connect(&self) -> Option<Kept> {
        let connected = TcpStream::connect(("127.0.0.1", self.port));
        let was_let_in = self.told_since().is_none();
        let opened = connected.and_then(|stream| -> io::Result<Box<dyn Stream>> {
            stream.set_read_timeout(Some(TEST_TIMEOUT))?;
            Ok(match &self.tls {
                Some(target) => Box::new(target.secure(stream)?),
                None => Box::new(stream),
            })
        });
        match opened {
            Ok(stream) => {
                let stream = BufReader::new(stream);
                Some(Kept { stream, was_let_in })
            }
            Err(error) => {
                self.not_connected(&error);
                None
            }
        }
    }

    /// A connection broke before its first request. That is no error once the service has been told to stop.
    fn not_connected(&self, error: &io::Error) {
        if self.told_since().is_none() {
            self.lose(&format!("no connection: {error}"));
        }
        self.turn_away();
    }

    fn turn_away(&self) {
        self.turned_away.fetch_add(1, Ordering::SeqCst);
    }

    fn lose(&self, what: &str) {
        self.lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(what.to_owned());
    }

    fn told_since(&self) -> Option<Duration> {
        let told = *self.told_to_stop.lock().unwrap_or_else(PoisonError::into_inner);
        told.map(|moment| moment.elapsed())
    }

    fn ask(&self, connection: &mut BufReader<Box<dyn Stream>>, form: &str) -> io::Result<Reply> {
        let request = format!(
            "POST /oauth2/token HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            self.authorization,
            form.len(),
        );
        connection.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let is_begun = !head.is_empty();
            match connection.read_line(&mut head) {
                Ok(1..) => {}
                _ if is_begun => return Err(ErrorKind::InvalidData.into()),
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(error) => return Err(error),
            }
        }
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let mut reply = Reply {
            status: status.ok_or(ErrorKind::InvalidData)?,
            head,
            body: String::new(),
        };
        let length = reply.header("content-length").and_then(|text| text.parse().ok());
        let mut body = vec![0; length.ok_or(ErrorKind::InvalidData)?];
        connection
            .read_exact(&mut body)
            .map_err(|_| ErrorKind::InvalidData)?;
        reply.body = String::from_utf8(body).map_err(io::Error::other)?;
        Ok(reply)
    }

    /// Waits for that many answers more, some of them in HTTP/2 if there are any.
    fn wait_for(&self, answers: usize) {
        let counts = || [&self.answers, &self.of_http_2].map(|count| count.load(Ordering::SeqCst));
        let ([all, of_http_2], begun) = (counts(), Instant::now());
        let wanted = [
            all + answers,
            of_http_2 + self.tls.as_ref().map_or(0, |_| answers / 5),
        ];
        while counts()[0] < wanted[0] || counts()[1] < wanted[1] {
            assert!(begun.elapsed() < TEST_TIMEOUT, "{:?}", self.lost());
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn lost(&self) -> Vec<String> {
        self.lost.lock().unwrap().clone()
    }
}

fn socket_of(service: &Service) -> TcpListener {
    TcpListener::bind(("127.0.0.1", service.port)).unwrap()
}

/// Stops the service under load, three times.
fn nobody_is_cut_off<'a>(service: &Service, load: &Load, serve: impl Fn() -> Running<'a>) {
    for _ in 0..3 {
        let mut running = serve();
        *load.told_to_stop.lock().unwrap() = None;
        load.over.store(false, Ordering::SeqCst);
        load.turned_away.store(0, Ordering::SeqCst);
        let mut took = Duration::ZERO;
        load.beside(|| {
            load.wait_for(100);
            let begun = Instant::now();
            *load.told_to_stop.lock().unwrap() = Some(begun);
            running.terminate();
            took = begun.elapsed();
        });
        assert_eq!(load.lost(), Vec::<String>::new(), "{}", service.log());
        assert!(load.turned_away.load(Ordering::SeqCst) > 0, "everybody went on");
        assert!(took < Duration::from_secs(20), "stopping took {took:?}");
    }
}

#[test]
fn who_was_let_in_gets_a_whole_answer_when_the_service_stops() {
    let service = Service::empty();
    let load = Load::on(&service, None);
    nobody_is_cut_off(&service, &load, || service.serve());
}

/// Over TLS, in HTTP/1 and HTTP/2.
#[test]
fn who_was_let_in_over_tls_gets_a_whole_answer_when_the_service_stops() {
    let service = tls::service(1000);
    let certificate = tls::issue(&service);
    let target = Target::new(service.port, &[certificate], HTTP_1);
    let load = Load::on(&service, Some(target.clone()));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    nobody_is_cut_off(&service, &load, || {
        runtime.block_on(tls::serve(&service, &target))
    });
}

#[test]
fn two_restarts_on_a_socket_that_outlives_them_fail_no_request() {
    let service = Service::empty();
    let load = Load::on(&service, None);
    let socket = socket_of(&service);
    let mut running = service.serve_inheriting(&[("idsvc.socket", &socket)]);
    load.beside(|| {
        for _ in 0..2 {
            load.wait_for(100);
            running.terminate();
            running = service.serve_inheriting(&[("idsvc.socket", &socket)]);
        }
        load.wait_for(100);
    });
    assert_eq!(load.lost(), Vec::<String>::new(), "{}", service.log());
    assert_eq!(load.turned_away.load(Ordering::SeqCst), 0);
}

#[test]
fn a_socket_named_metrics_is_for_the_metrics_and_the_settings_bind_nothing() {
    let service = Service::empty()
        .with("IDSVC_METRICS_LISTEN", "127.0.0.1:1")
        .with("IDSVC_LISTEN", "127.0.0.1:2");
    let (public, metrics) = (socket_of(&service), TcpListener::bind("127.0.0.1:0").unwrap());
    let sockets = [("idsvc.socket", &public), ("metrics", &metrics)];
    let running = service.serve_inheriting(&sockets);
    let port = metrics.local_addr().unwrap().port();
    let scraped = request(port, "GET", "/metrics", &[], "").unwrap();
    assert_eq!(scraped.status, 200);
    assert_eq!(running.request("GET", "/metrics", &[], "").unwrap().status, 404);
    for said in [
        "sockets from the service manager, listen binds nothing",
        "sockets from the service manager, metrics.listen binds nothing",
        "127.0.0.1:1",
        "127.0.0.1:2",
    ] {
        service.logged(said);
    }
}

#[test]
fn a_socket_that_may_not_be_served_is_refused() {
    let service = Service::empty();
    let open = TcpListener::bind("0.0.0.0:0").unwrap();
    let refused = service.command_inheriting(&[("public", &open)]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("the service manager handed over 0.0.0.0:"),
        "plain HTTP to everybody: {}",
        said(&refused)
    );
    let socket = socket_of(&service);
    let busy = TcpStream::connect(("127.0.0.1", service.port)).unwrap();
    let mut command = service.command_inheriting(&[("public", &socket)]);
    let refused = command.stdin(std::os::fd::OwnedFd::from(busy)).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("descriptor 3, handed over by $LISTEN_FDS with the name \"public\""),
        "{}",
        said(&refused)
    );
}
