//! Stopping and starting again under load: whoever was let in gets a whole answer, and with sockets that outlive the
//! process everybody is let in.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::harness::process::{Reply, Service, request, said};

const ANONYMOUS: &str = "urn:service:oauth2:grant-type:anonymous";
const PATIENCE: Duration = Duration::from_mins(1);

/// What an application does with its connection after an answer, and how long it waits until its next request.
const WAYS: [(bool, Duration); 6] = [
    (true, Duration::ZERO),
    (true, Duration::from_millis(30)),
    (true, Duration::from_millis(300)),
    (true, Duration::from_millis(300)),
    (false, Duration::ZERO),
    (false, Duration::from_millis(10)),
];

/// Applications that refresh their tokens without end, and what became of their requests.
struct Load {
    port: u16,
    authorization: String,
    /// Nobody has to be let in any more.
    told_to_stop: AtomicBool,
    over: AtomicBool,
    answers: AtomicUsize,
    turned_away: AtomicUsize,
    lost: Mutex<Vec<String>>,
}

/// A connection, and whether it was there before the service was told to stop.
struct Kept {
    stream: BufReader<TcpStream>,
    was_let_in: bool,
}

impl Load {
    fn on(service: &Service) -> Self {
        let grants = ["--grant", "anonymous", "--grant", "refresh_token", "--json"];
        let tv = service.json(&[&["client", "add", "tv"][..], &grants].concat());
        let pair = format!("tv:{}", tv["client_secret"].as_str().unwrap());
        Self {
            port: service.port,
            authorization: format!("Basic {}", STANDARD.encode(pair)),
            told_to_stop: AtomicBool::new(false),
            over: AtomicBool::new(false),
            answers: AtomicUsize::new(0),
            turned_away: AtomicUsize::new(0),
            lost: Mutex::default(),
        }
    }

    /// Runs every way at once, and `meanwhile` beside them.
    fn beside(&self, meanwhile: impl FnOnce()) {
        thread::scope(|scope| {
            for (keeps, pause) in WAYS {
                scope.spawn(move || self.refresh(keeps, pause));
            }
            meanwhile();
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
                Err(_) if !connection.was_let_in => {
                    self.turned_away.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                other => {
                    let kind = format!("keeps={keeps} pause={pause:?}");
                    self.lost.lock().unwrap().push(format!("{kind}: {other:?}"));
                    return;
                }
            }
            thread::sleep(pause);
        }
    }

    /// A new connection, unless the service has been told to stop.
    fn connect(&self) -> Option<Kept> {
        let connected = TcpStream::connect(("127.0.0.1", self.port));
        let was_let_in = !self.told_to_stop.load(Ordering::SeqCst);
        match connected {
            Ok(stream) => {
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let stream = BufReader::new(stream);
                Some(Kept { stream, was_let_in })
            }
            Err(error) => {
                if was_let_in {
                    self.lost.lock().unwrap().push(format!("no connection: {error}"));
                }
                self.turned_away.fetch_add(1, Ordering::SeqCst);
                None
            }
        }
    }

    fn ask(&self, connection: &mut BufReader<TcpStream>, form: &str) -> io::Result<Reply> {
        let request = format!(
            "POST /oauth2/token HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            self.authorization,
            form.len(),
        );
        connection.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if connection.read_line(&mut head)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
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
        connection.read_exact(&mut body)?;
        reply.body = String::from_utf8(body).map_err(io::Error::other)?;
        Ok(reply)
    }

    /// Waits for that many answers more.
    fn wait_for(&self, answers: usize) {
        let (before, begun) = (self.answers.load(Ordering::SeqCst), Instant::now());
        while self.answers.load(Ordering::SeqCst) < before + answers {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.lost.lock().unwrap());
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

#[test]
fn who_was_let_in_gets_a_whole_answer_when_the_service_stops() {
    let service = Service::new();
    let load = Load::on(&service);
    for _ in 0..3 {
        let mut running = service.serve();
        load.told_to_stop.store(false, Ordering::SeqCst);
        load.over.store(false, Ordering::SeqCst);
        load.turned_away.store(0, Ordering::SeqCst);
        let mut took = Duration::ZERO;
        load.beside(|| {
            load.wait_for(100);
            load.told_to_stop.store(true, Ordering::SeqCst);
            let begun = Instant::now();
            running.terminate();
            took = begun.elapsed();
        });
        assert_eq!(load.lost(), Vec::<String>::new(), "{}", service.log());
        assert!(load.turned_away.load(Ordering::SeqCst) > 0, "everybody went on");
        assert!(took < Duration::from_secs(20), "stopping took {took:?}");
    }
}

#[test]
fn two_restarts_on_a_socket_that_outlives_them_fail_no_request() {
    let service = Service::new();
    let load = Load::on(&service);
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
    let service = Service::new()
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
        assert!(service.log().contains(said), "{said}: {}", service.log());
    }
}

#[test]
fn a_socket_that_may_not_be_served_is_refused() {
    let service = Service::new();
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
