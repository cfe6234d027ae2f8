//! What the core flows cost, beside what their signatures cost in the same run.
//!
//! `cargo bench` prints criterion's timings, then one table of processor time and disk syncs for refreshes
//! with 1, 16 and 256 at once. Processor time is what the operating system charged the whole process for, so
//! a busy machine changes it less than the clock on the wall.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a benchmark ends at the first surprise and prints what it found"
)]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput};
use idsvc::clock::{Arrival, Clock, Timestamp};
use idsvc::config::Sources;
use idsvc::config::resolve::resolve_settings;
use idsvc::flow::token::authorization_code::redeem_code;
use idsvc::flow::token::issue::{ApprovedGrant, Granted, issue_tokens};
use idsvc::flow::token::refresh_token::rotate_refresh_token;
use idsvc::flow::{Core, authenticate_client::authenticate_client, rotate_keys};
use idsvc::identity::{AuthenticationMethod, Device, Session, User};
use idsvc::jose::alg::Algorithm;
use idsvc::oauth::Scope;
use idsvc::oauth::client::{AuthMethod, Client, GrantType};
use idsvc::oauth::client_auth::{AuthenticatedClient, BasicCredentials, Credentials};
use idsvc::oauth::code::{Authorization, AuthorizationCode, CodeExchange};
use idsvc::oauth::openid::claims::ClaimsRequest;
use idsvc::oauth::parameters::Parameters;
use idsvc::oauth::refresh::RefreshFamily;
use idsvc::oauth::refresh_keys::PresentedRefreshToken;
use idsvc::oauth::resource::{Resources, TokenTarget};
use idsvc::oauth::token::TokenResponse;
use idsvc::pages::Login;
use idsvc::password::{PasswordParams, PasswordPool, PoolSize};
use idsvc::random::Random;
use idsvc::seal::Sealer;
use idsvc::secret::{self, Digest, Secret};
use idsvc::store::tables::{CLIENTS, CODES, FAMILIES, SESSIONS, USERS};
use idsvc::store::{Options, Store};
use idsvc::themes::folder::ThemeFolder;
use idsvc::themes::theme_set::Themes;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

/// Rows that are in the store before anything is measured.
const FAMILIES_BEFORE: usize = 100_000;
const REDIRECT_URI: &str = "https://app.example/cb";
const CLIENT_SECRET: &str = "a secret of the benchmark's client";

struct Bench {
    core: Arc<Core>,
    client: AuthenticatedClient,
    user: User,
    session: Uuid,
    runtime: Runtime,
    _folder: TempDir,
    now: Timestamp,
}

impl Bench {
    fn start() -> Self {
        let random = Random::system();
        let folder = TempDir::new().unwrap();
        let store = Store::open(&folder.path().join("bench.redb"), Options::default()).unwrap();
        let now = Clock::System.now();
        let user = User::local(random.uuid_v4(), "alice@example.com", "default", now);
        let (client, alice) = (client(&random, now), user.clone());
        let session = random.uuid_v7(Clock::System.since_epoch());
        let signed_in = Session {
            digest: Digest::of(b"unused"),
            user: user.uuid,
            auth_time: Some(now),
            was_asked_anew: false,
            factor: AuthenticationMethod::Password,
            second_factor: None,
            created_at: now,
            last_used_at: now,
            device: Device::default(),
        };
        store
            .write_blocking("bench", move |tx| {
                CLIENTS.put(tx, "bench", &client)?;
                SESSIONS.put(tx, &session, &signed_in)?;
                USERS.put(tx, &alice.uuid, &alice)
            })
            .unwrap();
        let passwords = PasswordPool::start(
            PasswordParams::default(),
            PoolSize {
                threads: 1,
                waiting: 1,
            },
        )
        .unwrap();
        let sealer = Sealer::new(&[7; 32]);
        let policy = resolve_settings(&Sources::default())
            .unwrap()
            .policy("https://id.example.com");
        let core = Core::open(store, Clock::System, random, sealer, policy, passwords).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(rotate_keys::ensure_keys(&core)).unwrap();
        runtime.block_on(core.reload_catalog()).unwrap();
        let basic = BasicCredentials {
            user: "bench".to_owned(),
            password: zeroize::Zeroizing::new(CLIENT_SECRET.to_owned()),
        };
        let credentials = Credentials::parse(Some(&basic), &Parameters::default(), None).unwrap();
        let endpoints = ["https://id.example.com/oauth2/token".to_owned()];
        let client = runtime
            .block_on(authenticate_client(
                &core,
                &credentials,
                &endpoints,
                |_| Ok(()),
                now,
            ))
            .unwrap();
        let bench = Self {
            core: Arc::new(core),
            client,
            user,
            session,
            runtime,
            _folder: folder,
            now,
        };
        for _ in 0..FAMILIES_BEFORE / 10_000 {
            bench.families(10_000, "services:all");
        }
        bench
    }

    fn authorization(&self, scope: &str) -> Authorization {
        Authorization {
            client_id: "bench".to_owned(),
            client_incarnation: self.client.incarnation,
            user: self.user.uuid,
            session: Some(self.session),
            auth_time: Some(self.now),
            factor: AuthenticationMethod::Password,
            second_factor: None,
            upstream_token: None,
            scope: scope.parse().unwrap(),
            resources: Resources::new(),
            claims: ClaimsRequest::default(),
            bound_to: None,
            actor: None,
        }
    }

    /// Starts so many families and returns their tokens.
    fn families(&self, count: usize, scope: &str) -> Vec<String> {
        let (random, catalog) = (&self.core.random, self.core.catalog());
        let mut rows = Vec::new();
        let mut tokens = Vec::new();
        for _ in 0..count {
            let id = random.uuid_v7(Clock::System.since_epoch());
            let first = catalog.refresh_keys().first_token(id, random.bytes()).unwrap();
            let lifetimes = &self.core.policy.lifetimes;
            let authorization = self.authorization(scope);
            let family = RefreshFamily::start(&first, authorization, &self.client, lifetimes, self.now);
            let token = catalog.refresh_keys().derive(&first).unwrap();
            tokens.push(token.reveal().to_owned());
            rows.push((id, family));
        }
        let put = move |tx: &mut dyn idsvc::store::engine::Tx| {
            rows.iter()
                .try_for_each(|(id, family)| FAMILIES.put(tx, id, family))
        };
        self.core.store.write_blocking("bench", put).unwrap();
        tokens
    }

    /// Issues so many codes.
    fn codes(&self, count: usize, scope: &str) -> Vec<String> {
        let random = &self.core.random;
        let mut rows = Vec::new();
        let mut texts = Vec::new();
        let return_to = serde_json::json!({"uri": REDIRECT_URI, "explicit": true});
        for _ in 0..count {
            let id = random.uuid_v7(Clock::System.since_epoch());
            let code = Secret::<secret::AuthorizationCode>::generate(id.as_bytes(), random);
            texts.push(code.reveal().to_owned());
            let row = AuthorizationCode {
                digest: code.digest(),
                authorization: self.authorization(scope),
                return_to: serde_json::from_value(return_to.clone()).unwrap(),
                nonce: None,
                code_challenge: None,
                expires_at: self.now + Duration::from_hours(1),
                redeemed: None,
                anonymous: None,
            };
            rows.push((id, row));
        }
        let put = move |tx: &mut dyn idsvc::store::engine::Tx| {
            rows.iter().try_for_each(|(id, code)| CODES.put(tx, id, code))
        };
        self.core.store.write_blocking("bench", put).unwrap();
        texts
    }

    /// Lets `writers` tasks refresh `rounds` times each, every task its own family.
    fn refresh(&self, writers: usize, rounds: usize) -> Duration {
        let tokens = self.families(writers, "services:all");
        let start = Instant::now();
        self.runtime.block_on(async {
            let tasks: Vec<_> = tokens
                .into_iter()
                .map(|mut token| {
                    let (core, client) = (Arc::clone(&self.core), self.client.clone());
                    tokio::spawn(async move {
                        for _ in 0..rounds {
                            token = refresh_once(&core, &client, &token, core.clock.arrival())
                                .await
                                .refresh_token
                                .unwrap();
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        start.elapsed()
    }

    fn approved(&self, scope: &str) -> ApprovedGrant {
        let target = TokenTarget {
            scope: scope.parse().unwrap(),
            ..TokenTarget::default()
        };
        let granted = Granted {
            user: self.user.clone(),
            authorization: self.authorization(scope),
            target,
        };
        ApprovedGrant::new(GrantType::RefreshToken, self.session, granted, None)
    }
}

async fn refresh_once(
    core: &Core,
    client: &AuthenticatedClient,
    token: &str,
    arrival: Arrival,
) -> TokenResponse {
    let presented = PresentedRefreshToken::parse(token).unwrap();
    rotate_refresh_token(core, client, presented, None, Resources::new(), None, arrival)
        .await
        .unwrap()
}

fn client(random: &Random, now: Timestamp) -> Client {
    serde_json::from_value(serde_json::json!({
        "client_id": "bench",
        "client_uuid": random.uuid_v4(),
        "token_endpoint_auth_methods": [AuthMethod::ClientSecretBasic],
        "secrets": [{
            "digest": Digest::<secret::ClientSecret>::of(CLIENT_SECRET.as_bytes()),
            "created_at": now,
            "expires_at": null,
        }],
        "metadata": {
            "redirect_uris": [REDIRECT_URI],
            "scope": Scope::of(["openid", "services:all"]).unwrap(),
            "default_scope": "services:all",
            "grant_types": GrantType::ALL,
        },
        "enabled": true,
        "created_at": now,
        "updated_at": now,
    }))
    .unwrap()
}

/// Seconds of processor time that this process has been charged for, user and system.
fn processor_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS_PER_SECOND
}

fn signatures(criterion: &mut Criterion, bench: &Bench) {
    let catalog = bench.core.catalog();
    for alg in [Algorithm::Es256, Algorithm::Rs256] {
        let key = catalog.keyring().signer(alg).unwrap().clone();
        criterion.bench_function(&format!("ring signature {}", alg.as_str()), |b| {
            b.iter(|| key.sign(b"the signing input of a token").unwrap());
        });
    }
}

fn minting(criterion: &mut Criterion, bench: &Bench) {
    for (name, scope) in [
        ("mint access token", "services:all"),
        ("mint access and id token", "openid"),
    ] {
        criterion.bench_function(name, |b| {
            b.iter_batched(
                || bench.approved(scope),
                |approved| issue_tokens(&bench.core, &bench.client, approved, bench.now).unwrap(),
                BatchSize::SmallInput,
            );
        });
    }
}

/// The sign-in page by the built-in layout, by the built-in theme with a layout of its own, and by a theme that lays
/// out every field by hand. Each goal is 100 microseconds.
fn pages(criterion: &mut Criterion) {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/themes"));
    let themes = Themes::open("", "default", Some(ThemeFolder::new(folder, folder)));
    let page = Login::sample();
    for name in ["default", "split", "foreign"] {
        let theme = themes.theme(Some(name));
        assert_eq!(theme.name(), name);
        let locale = theme.locale(Some("de"), None);
        criterion.bench_function(&format!("login page of theme {name}"), |b| {
            b.iter(|| {
                let drawn = theme.draw(&page, locale);
                assert!(drawn.fault.is_none());
                drawn.html
            });
        });
    }
}

fn redemption(criterion: &mut Criterion, bench: &Bench) {
    let mut group = criterion.benchmark_group("redeem code");
    group.throughput(Throughput::Elements(64));
    group.sample_size(20);
    group.bench_function("64 at once", |b| {
        b.iter_batched(
            || bench.codes(64, "services:all"),
            |codes| {
                bench.runtime.block_on(async {
                    let tasks: Vec<_> = codes
                        .into_iter()
                        .map(|code| {
                            let (core, client) = (Arc::clone(&bench.core), bench.client.clone());
                            tokio::spawn(async move {
                                let arrival = core.clock.arrival();
                                let exchange = CodeExchange::parse(&code, Some(REDIRECT_URI), None).unwrap();
                                redeem_code(&core, &client, exchange, Resources::new(), None, arrival)
                                    .await
                                    .unwrap()
                            })
                        })
                        .collect();
                    for task in tasks {
                        task.await.unwrap();
                    }
                });
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn refreshing(criterion: &mut Criterion, bench: &Bench) {
    let mut group = criterion.benchmark_group("refresh");
    group.sample_size(10);
    for writers in [1_usize, 16, 256] {
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("{writers} at once"), |b| {
            b.iter_custom(|iterations| {
                let rounds = usize::try_from(iterations).unwrap().div_ceil(writers);
                let done = u32::try_from(rounds * writers).unwrap();
                bench.refresh(writers, rounds) / done * u32::try_from(iterations).unwrap()
            });
        });
    }
    group.finish();
}

/// Processor time of one call, from as many as fill two seconds.
fn cost_of(mut call: impl FnMut()) -> f64 {
    let (start, before) = (Instant::now(), processor_seconds());
    let mut calls = 0.0;
    while start.elapsed() < Duration::from_secs(2) {
        for _ in 0..100 {
            call();
        }
        calls += 100.0;
    }
    (processor_seconds() - before) / calls * 1e6
}

fn table(bench: &Bench) {
    let key = bench
        .core
        .catalog()
        .keyring()
        .signer(Algorithm::Es256)
        .unwrap()
        .clone();
    let signature = cost_of(|| drop(key.sign(b"the signing input of a token").unwrap()));
    println!("\nES256 signature alone: {signature:.1} us of processor time\n");
    println!(
        "refreshes at once | refreshes/s | us of processor time each | ratio to the signature | per disk sync"
    );
    for (writers, rounds) in [(1_usize, 1_000_usize), (16, 400), (256, 200)] {
        let (before, stats) = (processor_seconds(), bench.core.store.stats());
        let elapsed = bench.refresh(writers, rounds).as_secs_f64();
        let spent = processor_seconds() - before;
        let after = bench.core.store.stats();
        let done = f64::from(u32::try_from(writers * rounds).unwrap());
        let commits = f64::from(u32::try_from(after.commits - stats.commits).unwrap());
        let each = spent / done * 1e6;
        println!(
            "{writers:>17} | {:>11.0} | {each:>25.1} | {:>22.2} | {:>13.1}",
            done / elapsed,
            each / signature,
            done / commits
        );
    }
}

fn main() {
    let bench = Bench::start();
    let mut criterion = Criterion::default().configure_from_args();
    signatures(&mut criterion, &bench);
    minting(&mut criterion, &bench);
    pages(&mut criterion);
    redemption(&mut criterion, &bench);
    refreshing(&mut criterion, &bench);
    criterion.final_summary();
    if !std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        table(&bench);
    }
}
