//! Who asks for what during a soak, how often, and what was answered.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio_rustls::TlsConnector;

use crate::load::{Connection, Next, Reply, Script};
use crate::scripts::{self, Code, Refresh, Same, SignIn};
use crate::{Bench, CLIENT, seed};

/// The longest time that an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);
/// The pause after a request that was put off or lost.
const PAUSE: Duration = Duration::from_millis(200);
/// How often one access token is asked about.
const ASKED: usize = 50;

/// What all visitors share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) over: AtomicBool,
    /// Whether requests may be put off and connections may break now.
    pub(super) is_disturbed: AtomicBool,
    pub(super) done: AtomicUsize,
    pub(super) put_off: AtomicUsize,
    pub(super) errors: Mutex<Vec<String>>,
    /// Since they were last taken, in microseconds.
    pub(super) latencies: Mutex<Vec<u32>>,
    /// Tokens that were answered, which nobody has used since.
    pub(super) kept: Mutex<Kept>,
}

/// Tokens that were answered.
#[derive(Default)]
pub(super) struct Kept {
    /// The newest of people: each has at most fifty grants at a client, so the oldest may have ended.
    people: VecDeque<String>,
    /// Those of the first anonymous users.
    anonymous: Vec<String>,
    /// The newest.
    pub(super) access: VecDeque<String>,
}

impl Kept {
    const MOST_NEWEST: usize = 5_000;
    const MOST_ANONYMOUS: usize = 50_000;

    fn take(&mut self, owner: Owner, reply: &Reply) {
        const REFRESH: &str = "\"refresh_token\":\"";
        const ACCESS: &str = "\"access_token\":\"";
        if owner == Owner::Person && reply.body.contains(REFRESH) {
            push(&mut self.people, reply.quoted_after(REFRESH));
        } else if owner == Owner::Anonymous && self.anonymous.len() < Self::MOST_ANONYMOUS {
            self.anonymous.push(reply.quoted_after(REFRESH));
        }
        if reply.body.contains(ACCESS) {
            push(&mut self.access, reply.quoted_after(ACCESS));
        }
    }

    /// All refresh tokens.
    pub(super) fn refresh(&self) -> impl Iterator<Item = &String> {
        self.people.iter().chain(&self.anonymous)
    }
}

fn push(tokens: &mut VecDeque<String>, token: String) {
    tokens.push_back(token);
    if tokens.len() > Kept::MOST_NEWEST {
        tokens.pop_front();
    }
}

/// To whom a token was given.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Person,
    Anonymous,
    Client,
}

impl Shared {
    fn is_disturbed(&self) -> bool {
        self.is_disturbed.load(Ordering::SeqCst)
    }

    /// Counts a request that was not carried out, as an error unless the service was disturbed meanwhile.
    fn lose(&self, was_disturbed: bool, about: &str) {
        self.put_off.fetch_add(1, Ordering::SeqCst);
        if !was_disturbed && !self.is_disturbed() {
            self.errors.lock().unwrap().push(about.to_owned());
        }
    }
}

/// A connection's script, how often it asks, and whether each request has a connection of its own.
pub(super) struct Visitor {
    script: Box<dyn Script>,
    pace: Duration,
    reconnects: bool,
}

/// Everybody: about half a core of them.
pub(super) fn visitors(bench: &mut Bench<'_>, shared: &Arc<Shared>) -> Vec<Visitor> {
    let mut all = Vec::new();
    let secret = bench.secret.clone();
    let mut add =
        |count: usize, millis: u64, reconnects: bool, script: &mut dyn FnMut(usize) -> Box<dyn Script>| {
            let visitor = |number| Visitor {
                script: script(number),
                pace: Duration::from_millis(millis),
                reconnects,
            };
            all.extend((0..count).map(visitor));
        };
    let keeping = |owner, script| {
        Box::new(Keeping {
            owner,
            script,
            shared: Arc::clone(shared),
        })
    };
    let people = seed::people(bench.users);
    add(8, 150, false, &mut |number| {
        keeping(
            Owner::Person,
            Box::new(People {
                number,
                count: people,
                sign_in: SignIn {
                    username: seed::name_of(number),
                    secret: secret.clone(),
                    cookie: String::new(),
                    next: None,
                },
            }) as Box<dyn Script>,
        )
    });
    let sessions = bench.sessions.clone();
    add(4, 50, false, &mut |number| {
        keeping(
            Owner::Person,
            Box::new(Code {
                cookies: sessions.iter().skip(number).step_by(4).cloned().collect(),
                secret: secret.clone(),
                pushes: false,
                next: None,
            }),
        )
    });
    let anonymous = scripts::anonymous(&secret, "services:all");
    add(4, 100, false, &mut |_| {
        keeping(Owner::Anonymous, Box::new(Same(anonymous.clone())))
    });
    let credentials = scripts::client_credentials(&secret);
    add(4, 20, false, &mut |_| {
        keeping(Owner::Client, Box::new(Same(credentials.clone())))
    });
    for is_user_info in [false, true] {
        add(4, 20, false, &mut |_| {
            Box::new(Asking {
                secret: secret.clone(),
                is_user_info,
                token: String::new(),
                left: 0,
            })
        });
    }
    let share = bench.tokens.len() / 16;
    add(16, 32, false, &mut |_| {
        Box::new(Refresh {
            target: "/oauth2/token",
            authorization: scripts::basic(CLIENT, &secret),
            signer: None,
            tokens: bench.tokens.drain(..share.min(1_000)).collect(),
            left: usize::MAX,
        })
    });
    add(4, 200, true, &mut |_| {
        Box::new(Same(scripts::get("/oauth2/jwks")))
    });
    all
}

/// Where the service is.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) tls: TlsConnector,
}

impl Target {
    /// Asks on the connection that is open, or on a new one.
    pub(super) async fn ask(
        &self,
        connection: &mut Option<Connection>,
        number: usize,
        request: &str,
    ) -> io::Result<Reply> {
        let asked = async {
            let open = match connection.take() {
                Some(open) => open,
                None => Connection::open(self.address, Some(&self.tls), number).await?,
            };
            connection.insert(open).ask(request).await
        };
        let reply = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
        reply.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Asks until the soak is over: the refresh tokens that are left.
pub(super) async fn visit(
    target: Target,
    number: usize,
    visitor: Visitor,
    shared: Arc<Shared>,
) -> VecDeque<String> {
    let Visitor {
        mut script,
        pace,
        reconnects,
    } = visitor;
    let mut connection = None;
    let mut due = Instant::now() + pace * u32::try_from(number % 16).unwrap() / 16;
    while !shared.over.load(Ordering::SeqCst) {
        tokio::time::sleep_until(due.into()).await;
        let Some(request) = script.next() else { break };
        let was_disturbed = shared.is_disturbed();
        let lost = match target.ask(&mut connection, number, &request).await {
            Ok(reply) if reply.status == 503 => Some(reply.head),
            Ok(reply) => {
                script.take(&reply);
                None
            }
            Err(error) => {
                connection = None;
                Some(error.to_string())
            }
        };
        if let Some(about) = lost {
            script.lose();
            let asked = request.lines().next().unwrap_or_default();
            shared.lose(was_disturbed, &format!("{asked}: {about}"));
            due = Instant::now() + PAUSE;
            continue;
        }
        shared.done.fetch_add(1, Ordering::SeqCst);
        if was_disturbed {
            // Nothing is made up for.
            due = due.max(Instant::now());
        } else {
            let micros = u32::try_from(due.elapsed().as_micros()).unwrap_or(u32::MAX);
            shared.latencies.lock().unwrap().push(micros);
        }
        due += pace;
        if reconnects {
            connection = None;
        }
    }
    script.left_over()
}

/// Keeps the tokens of the answers.
struct Keeping {
    owner: Owner,
    script: Box<dyn Script>,
    shared: Arc<Shared>,
}

impl Script for Keeping {
    fn next(&mut self) -> Option<String> {
        self.script.next()
    }

    fn take(&mut self, reply: &Reply) -> Next {
        self.shared.kept.lock().unwrap().take(self.owner, reply);
        self.script.take(reply)
    }

    fn lose(&mut self) {
        self.script.lose();
    }
}

/// One person after the other signs in.
struct People {
    number: usize,
    count: usize,
    sign_in: SignIn,
}

impl Script for People {
    fn next(&mut self) -> Option<String> {
        self.sign_in.next()
    }

    fn take(&mut self, reply: &Reply) -> Next {
        let next = self.sign_in.take(reply);
        if matches!(next, Next::Done) {
            self.number = (self.number + 8) % self.count;
            self.sign_in.username = seed::name_of(self.number);
        }
        next
    }

    fn lose(&mut self) {
        self.sign_in.lose();
    }
}

/// Gets an access token and asks about it for some time.
struct Asking {
    secret: String,
    is_user_info: bool,
    token: String,
    left: usize,
}

impl Script for Asking {
    fn next(&mut self) -> Option<String> {
        Some(if self.left == 0 {
            scripts::anonymous(&self.secret, "openid services:all")
        } else if self.is_user_info {
            scripts::user_info(&self.token)
        } else {
            scripts::introspection(&self.secret, &self.token)
        })
    }

    fn take(&mut self, reply: &Reply) -> Next {
        if reply.status != 200 {
            reply.surprise();
        }
        if self.left == 0 {
            (self.left, self.token) = (ASKED, reply.quoted_after("\"access_token\":\""));
        } else if reply.body.contains("\"active\":true") != self.is_user_info {
            self.left -= 1;
        } else {
            reply.surprise();
        }
        Next::Done
    }
}
