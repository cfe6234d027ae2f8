//! What each kind of request costs the service, over real connections.
//!
//! `tests/bench/run` builds the binary, gives it one core and this program another, and prints one table: how many
//! requests a second, how long they take, and how much processor time the service was charged for each by
//! the operating system, also as a multiple of the cost of a signature on the same core at the same time. A busy
//! machine disturbs the last number least. What the signatures cost alone is measured first.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a benchmark ends at the first surprise and prints what it found"
)]

mod beside_backup;
mod capacity;
mod load;
#[path = "../../faults/memory_group.rs"]
mod memory_group;
mod nodes;
#[path = "../../harness/port.rs"]
mod port;
#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../../harness/postgres.rs"]
mod postgres;
mod report;
#[expect(dead_code, reason = "the tests with faults use more of it")]
#[path = "../../faults/room.rs"]
mod room;
mod scripts;
mod seed;
mod server;
mod soak;
mod yardstick;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use idsvc::clock::Clock;
use idsvc::jose::alg::Algorithm;
use idsvc::jose::jwt::Encoder;
use idsvc::jose::keyring::SigningKey;
use idsvc::jose::rsa_keygen;
use idsvc::limit::password_attempt::PasswordAttempt;
use idsvc::password::{PasswordHash, PasswordParams, PasswordPool, PoolSize};
use idsvc::random::Random;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use zeroize::Zeroizing;

use self::load::{Beside, Connection, Measured, Script, Span, run};
use self::report::{Goal, Row, Run, verdict};
use self::scripts::{Code, Each, ProofSigner, Refresh, Same, SignIn};
use self::seed::{Seed, seed};
use self::server::{Server, processor_seconds};
use self::soak::Place;
use self::yardstick::Yardstick;

pub(crate) const CLIENT: &str = "bench";
pub(crate) const REDIRECT_URI: &str = "https://app.example/cb";
/// The API that a token is asked for.
pub(crate) const API: &str = "https://api.example/notes";
pub(crate) const PASSWORD: &str = "the password of the benchmark's user";
pub(crate) const GRANT_ANONYMOUS: &str = "urn:service:oauth2:grant-type:anonymous";

/// Whose tokens are exchanged.
pub(crate) const PROVIDER: &str = "https://partner.example";

/// So many sign-ins at once leave no place in the queue of passwords.
const MORE_THAN_THE_QUEUE: usize = 3 * PoolSize::WAITING / 2;
const USAGE: &str = "usage: tests/bench/run [--users N[,N]...] [--seconds N] [--connections N] [--only WORD] \
                     [--refreshes N] [--capacity] [--nodes N] [--soak MINUTES [--place machine|disk|memory]]; at least ten users for each connection";

struct Options {
    users: Vec<usize>,
    seconds: u64,
    connections: usize,
    /// Only the rows with this word in their name.
    only: String,
    /// Refreshes before memory is looked at.
    refreshes: usize,
    binary: PathBuf,
    core: Option<String>,
    chart: Option<PathBuf>,
    /// What things take, in the place of the table.
    capacity: bool,
    /// What a refresh takes at up to so many nodes on PostgreSQL, in the place of the table.
    nodes: Option<usize>,
    /// A soak of so many minutes, in the place of the table.
    soak: Option<u64>,
    place: Place,
}

impl Options {
    fn read() -> Option<Self> {
        let mut options = Self {
            users: vec![100_000],
            seconds: 5,
            connections: 64,
            only: String::new(),
            refreshes: 0,
            binary: PathBuf::new(),
            core: None,
            chart: None,
            capacity: false,
            nodes: None,
            soak: None,
            place: Place::Machine,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            if name == "--capacity" {
                (options.capacity, options.seconds) = (true, 2);
                continue;
            }
            let value = arguments.next()?;
            match name.as_str() {
                "--users" => {
                    options.users = value.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
                }
                "--seconds" => options.seconds = value.parse().ok()?,
                "--connections" => options.connections = value.parse().ok()?,
                "--only" => options.only = value,
                "--refreshes" => options.refreshes = value.parse().ok()?,
                "--binary" => options.binary = value.into(),
                "--core" => options.core = Some(value),
                "--nodes" => options.nodes = Some(value.parse().ok().filter(|nodes| *nodes > 0)?),
                "--soak" => options.soak = Some(value.parse().ok()?),
                "--place" => options.place = Place::named(&value)?,
                "--chart" => options.chart = Some(value.into()),
                _ => return None,
            }
        }
        options.users.sort_unstable();
        let fits = (1..=100).contains(&options.connections)
            && options.seconds > 0
            && options
                .users
                .iter()
                .all(|users| *users >= 10 * options.connections);
        (fits && options.binary.is_file()).then_some(options)
    }

    /// The number of the service's core.
    fn core(&self) -> Option<usize> {
        self.core.as_deref().map(|core| core.parse().unwrap())
    }
}

fn main() -> ExitCode {
    // `cargo test --benches` and `cargo bench` pass flags of their own: this one is run by its script.
    let Some(options) = Options::read() else {
        eprintln!("{USAGE}");
        return ExitCode::SUCCESS;
    };
    if let Some(minutes) = options.soak {
        return soak::report(&options, minutes, options.place);
    }
    if let Some(nodes) = options.nodes {
        nodes::report(&options, nodes);
        return ExitCode::SUCCESS;
    }
    let costs = Costs::measure();
    println!(
        "alone, in microseconds of processor time: ES256 signature {:.0}, RS256 signature {:.0}, password hash {:.0}\n",
        costs.es256, costs.rs256, costs.password
    );
    if options.capacity {
        capacity::measure(&options, &costs);
        return ExitCode::SUCCESS;
    }
    let mut runs = Vec::new();
    for users in &options.users {
        let run = Bench::start(&options, *users).rows(&costs);
        println!("{}", run.table());
        runs.push(run);
    }
    if runs.len() > 1 {
        println!("{}", report::growth(&runs));
    }
    if let (Some(chart), Some(last)) = (&options.chart, runs.last()) {
        fs::create_dir_all(chart.parent().unwrap_or(Path::new("."))).unwrap();
        fs::write(chart, last.chart()).unwrap();
        println!("chart: {}", chart.display());
    }
    ExitCode::SUCCESS
}

/// What cryptography costs by itself, in microseconds of processor time.
struct Costs {
    es256: f64,
    rs256: f64,
    password: f64,
}

impl Costs {
    fn measure() -> Self {
        let random = Random::system();
        let es256 = SigningKey::generate_es256(&random).unwrap();
        let rs256 = rsa_key();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (pool, hash) = pool(&runtime);
        Self {
            es256: cost_of(|| drop(es256.sign(b"the signing input of a token").unwrap())),
            rs256: cost_of(|| drop(rs256.sign(b"the signing input of a token").unwrap())),
            password: cost_of(|| {
                let wrong = Zeroizing::new("wrong".to_owned());
                runtime
                    .block_on(pool.verify(Some(hash.clone()), wrong, PasswordAttempt::trusted()))
                    .unwrap();
            }),
        }
    }
}

fn rsa_key() -> SigningKey {
    let pkcs8 = rsa_keygen::generate(&Random::system()).unwrap();
    SigningKey::from_pkcs8_der(Algorithm::Rs256, &pkcs8).unwrap()
}

fn pool(runtime: &Runtime) -> (PasswordPool, PasswordHash) {
    let size = PoolSize {
        threads: 1,
        waiting: 1,
    };
    let pool = PasswordPool::start(PasswordParams::default(), size).unwrap();
    let password = Zeroizing::new(PASSWORD.to_owned());
    let hash = runtime.block_on(pool.hash(password, [7; 16])).unwrap();
    (pool, hash)
}

fn cost_of(mut call: impl FnMut()) -> f64 {
    let own = || processor_seconds(&fs::read_to_string("/proc/self/stat").unwrap());
    let (start, before) = (Instant::now(), own());
    let mut calls = 0.0;
    while start.elapsed() < Duration::from_secs(1) {
        for _ in 0..10 {
            call();
        }
        calls += 10.0;
    }
    (own() - before) / calls * 1e6
}

/// How a client authenticates when it refreshes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RefreshKind {
    Secret,
    ApiKey,
    /// With a secret, and a proof of possession.
    Dpop,
}

/// A running service with so many users and families, and what is needed to ask it things.
struct Bench<'a> {
    options: &'a Options,
    users: usize,
    server: Server,
    runtime: Runtime,
    secret: String,
    api_key: String,
    robot: SigningKey,
    tokens: VecDeque<String>,
    sessions: Vec<String>,
    started: Duration,
}

impl<'a> Bench<'a> {
    fn start(options: &'a Options, users: usize) -> Self {
        let server = Server::new(&options.binary, options.core.clone());
        Self::prepare(options, server, users, |_| ())
    }

    /// A service of that kind. `before_start` is done to it before it starts with its users.
    fn prepare(
        options: &'a Options,
        mut server: Server,
        users: usize,
        before_start: impl FnOnce(&mut Server),
    ) -> Self {
        server.start();
        let robot = rsa_key();
        let client = register(&server, &robot);
        server.stop();
        eprintln!("writing {users} users");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (pool, password) = pool(&runtime);
        drop(pool);
        let Seed { tokens, sessions } = seed(&server.data_dir(), users, &password);
        before_start(&mut server);
        let started = server.start();
        Self {
            options,
            users,
            server,
            runtime,
            secret: text(&client["client_secret"]),
            api_key: text(&client["api_key"]),
            robot,
            tokens: tokens.into(),
            sessions,
            started,
        }
    }

    fn rows(mut self, costs: &Costs) -> Run {
        let idle = self.server.memory();
        let mut run = self.requests(costs);
        self.beside_sign_ins(&mut run, idle);
        self.after_refreshes(&mut run);
        self.beside_backup(&mut run);
        run
    }

    /// What each kind of request costs.
    fn requests(&mut self, costs: &Costs) -> Run {
        let mut run = Run {
            users: self.users,
            connections: self.options.connections,
            started: self.started,
            rows: Vec::new(),
            notes: Vec::new(),
        };
        let discovery = scripts::get("/.well-known/openid-configuration");
        self.row(&mut run, "discovery", Goal::Signed(11.0), |bench| {
            bench.same(&discovery)
        });
        self.row(&mut run, "jwks", Goal::Signed(11.0), |bench| {
            bench.same(&scripts::get("/oauth2/jwks"))
        });
        self.row(
            &mut run,
            "client_credentials, secret",
            Goal::Signed(42.0),
            |bench| bench.same(&scripts::client_credentials(&bench.secret)),
        );
        self.row(
            &mut run,
            "client_credentials with a resource",
            Goal::Signed(44.0),
            |bench| bench.same(&scripts::client_credentials_for(&bench.secret, API)),
        );
        self.row_of_single_use(
            &mut run,
            "client_credentials, private_key_jwt RS256",
            Goal::Signed(95.0),
            Self::assertions,
        );
        self.row(&mut run, "refresh", Goal::Signed(68.0), |bench| {
            bench.refreshes(RefreshKind::Secret, usize::MAX)
        });
        self.row(&mut run, "refresh with an API key", Goal::Signed(68.0), |bench| {
            bench.refreshes(RefreshKind::ApiKey, usize::MAX)
        });
        // One ES256 verification and 15 µs more.
        self.row(&mut run, "refresh, DPoP", Goal::Signed(136.0), |bench| {
            bench.refreshes(RefreshKind::Dpop, usize::MAX)
        });
        self.row(&mut run, "anonymous", Goal::Signed(68.0), |bench| {
            bench.same(&scripts::anonymous(&bench.secret, "services:all"))
        });
        self.row(
            &mut run,
            "anonymous with an RS256 ID token",
            Goal::Signed(668.0),
            |bench| bench.same(&scripts::anonymous(&bench.secret, "openid services:all")),
        );
        self.exchange_rows(&mut run);
        self.row_of_single_use(
            &mut run,
            "introspection",
            Goal::Signed(75.0),
            Self::introspections,
        );
        self.row(
            &mut run,
            "introspection of a token that was there before",
            Goal::Signed(75.0),
            |bench| {
                let token = bench.client_tokens(1);
                bench.same(&scripts::introspection(&bench.secret, &token[0]))
            },
        );
        self.row(
            &mut run,
            "authorize and code exchange",
            Goal::Signed(170.0),
            |bench| bench.codes(false),
        );
        self.row(
            &mut run,
            "the same, with a pushed request",
            Goal::Signed(255.0),
            |bench| bench.codes(true),
        );
        self.device_rows(&mut run);
        self.row(
            &mut run,
            "password sign-in, whole flow",
            Goal::Here(costs.password + 500.0),
            |bench| bench.sign_ins(8),
        );
        run
    }

    fn exchange_rows(&mut self, run: &mut Run) {
        self.row_of_single_use(
            run,
            "token exchange, RS256 assertion",
            Goal::Signed(120.0),
            Self::exchanges,
        );
        // One ES256 verification more than an exchange of a token that was there before.
        self.row_of_single_use(
            run,
            "token exchange, access token",
            Goal::Signed(110.0),
            Self::access_token_exchanges,
        );
        self.row(
            run,
            "token exchange, a token that was there before",
            Goal::Signed(42.0),
            |bench| {
                let token = bench.user_tokens(1);
                bench.same(&scripts::access_token_exchange(&bench.secret, &token[0]))
            },
        );
    }

    fn device_rows(&mut self, run: &mut Run) {
        self.row_of_single_use(
            run,
            "device code, pending",
            Goal::Signed(42.0),
            Self::pending_polls,
        );
        self.row_of_single_use(
            run,
            "device code, redeemed",
            Goal::Signed(68.0),
            Self::allowed_polls,
        );
    }

    /// Measures one row, if it is wanted. `scripts` makes the script of each connection.
    fn row(
        &mut self,
        run: &mut Run,
        name: &str,
        goal: Goal,
        scripts: impl FnOnce(&mut Self) -> Vec<Box<dyn Script>>,
    ) {
        if name.contains(&self.options.only) {
            let scripts = scripts(self);
            let measured = self.measure(scripts, Vec::new(), self.span());
            run.rows.push(Row::new(name, &measured, goal));
        }
    }

    /// Measures a row whose requests are good for once. They are made a share at a time while nothing is measured,
    /// until what was measured is long enough. `scripts` makes so many for each connection.
    fn row_of_single_use(
        &mut self,
        run: &mut Run,
        name: &str,
        goal: Goal,
        mut scripts: impl FnMut(&mut Self, usize) -> Vec<Box<dyn Script>>,
    ) {
        const WARM_UP: Duration = Duration::from_millis(250);
        /// What is shorter is no measurement: processor time is counted in hundredths of a second.
        const SHORTEST: Duration = Duration::from_millis(500);
        if !name.contains(&self.options.only) {
            return;
        }
        let mut left = Duration::from_secs(self.options.seconds);
        let (mut parts, mut each) = (Vec::new(), 250);
        while !left.is_zero() {
            let scripts = scripts(self, each);
            let span = Span {
                warm_up: WARM_UP,
                longest: left.max(SHORTEST),
                while_all_ask: true,
            };
            let part = self.measure(scripts, Vec::new(), span);
            if part.elapsed < SHORTEST {
                each *= 2;
                continue;
            }
            left = left.saturating_sub(part.elapsed);
            parts.push(part);
        }
        run.rows.push(Row::new(name, &Measured::join(parts), goal));
    }

    /// As long as a row is measured.
    fn span(&self) -> Span {
        Span {
            warm_up: Duration::from_secs(1),
            longest: Duration::from_secs(self.options.seconds),
            while_all_ask: false,
        }
    }

    fn measure(&self, scripts: Vec<Box<dyn Script>>, others: Vec<Box<dyn Script>>, span: Span) -> Measured {
        let core = self.options.core();
        let cpu = || self.server.cpu();
        let servers = [self.server.address];
        let running = run(
            &servers,
            core.is_some(),
            scripts,
            others,
            span,
            cpu,
            Yardstick { core },
        );
        self.runtime.block_on(running)
    }

    fn each(&mut self, mut script: impl FnMut(&mut Self, usize) -> Box<dyn Script>) -> Vec<Box<dyn Script>> {
        (0..self.options.connections)
            .map(|number| script(self, number))
            .collect()
    }

    fn same(&mut self, request: &str) -> Vec<Box<dyn Script>> {
        self.each(|_, _| Box::new(Same(request.to_owned())))
    }

    /// Assertions are signed beforehand: that is the client's work.
    fn assertions(&mut self, each: usize) -> Vec<Box<dyn Script>> {
        let (encoder, random, issuer) = (
            Encoder::new(&self.robot, "JWT"),
            Random::system(),
            self.server.issuer(),
        );
        let now = Clock::System.now().seconds();
        self.each(|_, _| {
            let requests = (0..each).map(|_| {
                let assertion = encoder.encode(&json!({
                    "iss": "robot",
                    "sub": "robot",
                    "aud": issuer,
                    "exp": now + 600,
                    "iat": now,
                    "jti": random.uuid_v4(),
                }));
                scripts::client_assertion(&assertion.unwrap())
            });
            Box::new(Each::new(requests))
        })
    }

    /// ID tokens of a provider, each with a `jti` of its own: what was used is written down, and a family begins. Nobody
    /// comes to the most grants that one user may have.
    fn exchanges(&mut self, each: usize) -> Vec<Box<dyn Script>> {
        let (encoder, random) = (Encoder::new(&self.robot, "JWT"), Random::system());
        let now = Clock::System.now().seconds();
        self.each(|bench, _| {
            let people = random.uuid_v4();
            let requests = (0..each).map(|turn| {
                let assertion = encoder.encode(&json!({
                    "iss": PROVIDER,
                    "sub": format!("person-{people}-{}", turn / 40),
                    "aud": "app",
                    "exp": now + 600,
                    "iat": now,
                    "jti": random.uuid_v4(),
                }));
                scripts::token_exchange(&bench.secret, &assertion.unwrap())
            });
            Box::new(Each::new(requests))
        })
    }

    /// Access tokens of users, each of them once.
    fn access_token_exchanges(&mut self, each: usize) -> Vec<Box<dyn Script>> {
        self.each(|bench, _| {
            let tokens = bench.user_tokens(each).into_iter();
            let requests = tokens.map(|token| scripts::access_token_exchange(&bench.secret, &token));
            Box::new(Each::new(requests))
        })
    }

    /// Access tokens, each of them once: what is remembered of a token is of no use.
    fn introspections(&mut self, each: usize) -> Vec<Box<dyn Script>> {
        self.each(|bench, _| {
            let tokens = bench.client_tokens(each).into_iter();
            let requests = tokens.map(|token| scripts::introspection(&bench.secret, &token));
            Box::new(Each::new(requests))
        })
    }

    /// First polls of devices that nobody has allowed.
    fn pending_polls(&mut self, each: usize) -> Vec<Box<dyn Script>> {
        self.each(|bench, _| {
            let request = scripts::device_authorization(&bench.secret);
            let asking = load::repeat(bench.server.address, &request, each);
            let codes = bench.runtime.block_on(asking);
            let requests = codes
                .iter()
                .map(|codes| scripts::device_poll(&bench.secret, codes));
            Box::new(Each {
                expected: 400,
                ..Each::new(requests)
            })
        })
    }

    /// Polls of devices that have been allowed, by users in turn.
    fn allowed_polls(&mut self, each: usize) -> Vec<Box<dyn Script>> {
        let people = self.sessions.len();
        self.each(|bench, number| {
            let requests = bench.runtime.block_on(async {
                let mut connection = Connection::open(bench.server.address, None, 1_000).await.unwrap();
                let mut requests = Vec::new();
                for turn in 0..each {
                    let session = &bench.sessions[(number * each + turn) % people];
                    requests.push(scripts::allow_device(&mut connection, &bench.secret, session).await);
                }
                requests
            });
            Box::new(Each::new(requests.into_iter()))
        })
    }

    /// Every connection has families of its own, and asks so often at most; all rows together use each family once.
    fn refreshes(&mut self, kind: RefreshKind, each: usize) -> Vec<Box<dyn Script>> {
        let families = (self.tokens.len() / 4 / self.options.connections).max(1);
        self.refreshes_of(families, kind, each)
    }

    /// The same with so many families for each connection.
    fn refreshes_of(&mut self, families: usize, kind: RefreshKind, each: usize) -> Vec<Box<dyn Script>> {
        self.each(|bench, _| {
            let (target, authorization) = match kind {
                RefreshKind::ApiKey => ("/v4/tokens", scripts::basic(&bench.api_key, "")),
                RefreshKind::Secret | RefreshKind::Dpop => {
                    ("/oauth2/token", scripts::basic(CLIENT, &bench.secret))
                }
            };
            let url = format!("{}{target}", bench.server.issuer());
            let tokens = bench.tokens.drain(..families.min(bench.tokens.len())).collect();
            Box::new(Refresh {
                target,
                authorization,
                signer: (kind == RefreshKind::Dpop).then(|| ProofSigner::new(url)),
                tokens,
                left: each,
            })
        })
    }

    fn codes(&mut self, pushes: bool) -> Vec<Box<dyn Script>> {
        let step = self.options.connections;
        self.each(|bench, number| {
            Box::new(Code {
                cookies: bench
                    .sessions
                    .iter()
                    .skip(number)
                    .step_by(step)
                    .cloned()
                    .collect(),
                secret: bench.secret.clone(),
                pushes,
                next: None,
            })
        })
    }

    /// Each as another user: of one name no more than a few are looked at at once.
    fn sign_ins(&self, connections: usize) -> Vec<Box<dyn Script>> {
        let script = |number| -> Box<dyn Script> {
            Box::new(SignIn {
                username: seed::name_of(number % seed::people(self.users)),
                secret: self.secret.clone(),
                cookie: String::new(),
                next: None,
            })
        };
        (0..connections).map(script).collect()
    }

    /// Access tokens of the client itself.
    fn client_tokens(&self, count: usize) -> Vec<String> {
        self.access_tokens(&scripts::client_credentials(&self.secret), count)
    }

    /// Access tokens of so many users, for an API and for UserInfo.
    fn user_tokens(&self, count: usize) -> Vec<String> {
        let request = scripts::anonymous(&self.secret, "services:all notes.read");
        self.access_tokens(&request, count)
    }

    fn access_tokens(&self, request: &str, count: usize) -> Vec<String> {
        let asking = load::repeat(self.server.address, request, count);
        let replies = self.runtime.block_on(asking);
        replies
            .iter()
            .map(|reply| reply.quoted_after("\"access_token\":\""))
            .collect()
    }

    /// Refreshes while more passwords wait than the queue takes.
    fn beside_sign_ins(&mut self, run: &mut Run, idle: f64) {
        /// So much longer may one refresh in a hundred take, at most.
        const TIMES: f64 = 3.0;
        /// What the one password takes that is hashed at a time, and what everything else may, in MiB.
        const HASHED: f64 = 19.0;
        const ELSE: f64 = 20.0;
        let name = "refresh while the password queue is full";
        if !name.contains(&self.options.only) {
            return;
        }
        let scripts = self.refreshes(RefreshKind::Secret, usize::MAX);
        let quiet = self.measure(scripts, Vec::new(), self.span());
        let memory = self.server.memory();
        let scripts = self.refreshes(RefreshKind::Secret, usize::MAX);
        let others = self.sign_ins(MORE_THAN_THE_QUEUE);
        let busy = self.measure(scripts, others, self.span());
        let (before, after) = (quiet.percentile(99), busy.percentile(99));
        let Beside { done, put_off } = busy.beside;
        // A queue that was full now and then only would have shown nothing.
        let was_full = done > 0 && Duration::from_secs(put_off as u64) >= busy.elapsed;
        run.notes.push(format!(
            "p99 of refresh: {before:.1} ms, and {after:.1} ms while the password queue is full, \
             {:.1} times (goal {TIMES}), beside {done} sign-ins and {put_off} that found the queue full (goal one a \
             second): {}",
            after / before,
            verdict(was_full && after < before * TIMES)
        ));
        run.notes.push(format!(
            "memory: {idle:.1} MiB after the start (goal 15), {memory:.1} after all this (goal 100): {}",
            verdict(idle < 15.0 && memory < 100.0)
        ));
        self.server.stop();
        let most = self.most_in_a_burst().1;
        run.notes.push(format!(
            "memory in a burst of sign-ins after a crash, while its last writes are put into the database: \
             {most:.1} MiB at most (goal 100): {}",
            verdict(most < 100.0)
        ));
        self.server.close();
        // However many cores there are.
        self.server.set("IDSVC_PASSWORD_WORKERS", "1");
        let (idle, most) = self.most_in_a_burst();
        let goal = idle + HASHED + ELSE;
        run.notes.push(format!(
            "memory in a burst of sign-ins after another start: {most:.1} MiB at most (goal {goal:.1}): {}",
            verdict(most < goal)
        ));
    }

    /// Starts the service: its memory then, and the most in a burst of sign-ins.
    fn most_in_a_burst(&mut self) -> (f64, f64) {
        self.server.start();
        let idle = self.server.memory();
        let burst = self.sign_ins(MORE_THAN_THE_QUEUE);
        self.measure(burst, Vec::new(), self.span());
        (idle, self.server.most_memory())
    }

    /// Memory after many refreshes, however long they take.
    fn after_refreshes(&mut self, run: &mut Run) {
        const LONGEST: Duration = Duration::from_hours(1);
        if self.options.refreshes == 0 {
            return;
        }
        let each = self.options.refreshes.div_ceil(self.options.connections);
        let scripts = self.refreshes(RefreshKind::Secret, each);
        let span = Span {
            longest: LONGEST,
            ..self.span()
        };
        let done = self.measure(scripts, Vec::new(), span).done;
        let memory = self.server.memory();
        run.notes
            .push(format!("memory after {done} refreshes more: {memory:.1} MiB"));
    }
}

/// Adds the clients that the load speaks for.
fn register(server: &Server, robot: &SigningKey) -> Value {
    let keys = json!({"keys": [robot.public().to_jwk()]});
    fs::write(server.file("robot.json"), keys.to_string()).unwrap();
    let add = "client add robot --grant client_credentials --scope services:all --jwks-file robot.json";
    server.json(&add.split(' ').collect::<Vec<_>>());
    let add = format!(
        "provider add partner --issuer {PROVIDER} --exchange --audience app --create-users --jwks-file robot.json"
    );
    server.json(&add.split(' ').collect::<Vec<_>>());
    let add = format!("api add notes --identifier {API} --scope notes.read");
    server.json(&add.split(' ').collect::<Vec<_>>());
    let add = format!(
        "client add {CLIENT} --redirect-uri {REDIRECT_URI} --pkce optional --grant authorization_code --grant refresh_token \
         --grant anonymous --grant jwt-bearer --grant token-exchange --grant device_code --provider partner --grant client_credentials --allow-secret-credentials --max-scope services:all \
         --scope openid --scope services:all --scope offline_access --api notes --api-key"
    );
    server.json(&add.split(' ').collect::<Vec<_>>())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
