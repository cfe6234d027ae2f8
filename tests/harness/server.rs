//! The service, listening on a port of its own, with a store in memory and a clock that stands still.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use idsvc::admin::provider::{AddProvider, ProviderFields, ProviderView, UpdateProvider};
use idsvc::admin::{Actor, Admin, SecretString};
use idsvc::app::App;
use idsvc::clock::{Clock, Timestamp};
use idsvc::config::Sources;
use idsvc::config::resolve::{resolve, resolve_settings};
use idsvc::flow::{Core, factors, rotate_keys};
use idsvc::identity::{Factor, LoginName, User};
use idsvc::jose::alg::Algorithm;
use idsvc::jose::keyring::SigningKey;
use idsvc::jose::rsa_keygen;
use idsvc::limit::LimitPolicy;
use idsvc::net::listener::Listener;
use idsvc::net::outbound::OutboundPolicy;
use idsvc::net::{Limits, Peer};
use idsvc::oauth::client::{
    AuthMethod, Client, ClientMetadata, ClientOrigin, GrantType, PkceRequirement, StoredSecret,
};
use idsvc::oauth::client_certificate::ClientAuthorities;
use idsvc::oauth::{Policy, Scope};
use idsvc::password::{PasswordParams, PasswordPool, PoolSize};
use idsvc::random::Random;
use idsvc::seal::Sealer;
use idsvc::secret::Digest;
use idsvc::server::dev;
use idsvc::store::tables::{CLIENTS, USERS, USERS_BY_LOGIN_NAME};
use idsvc::store::{Options, Store};
use ipnet::IpNet;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use zeroize::Zeroizing;

use super::browser::Browser;
use super::relying_party::RelyingParty;
use super::wire::{Call, Wire};

/// The secret of the service at every provider where it is registered.
pub(crate) const PROVIDER_SECRET: &str = "the secret at the provider: with/odd+characters";
/// The issuer. Tests connect to a local port and name this host.
pub(crate) const ISSUER: &str = "https://id.example.test";
/// Where the operator gives help.
pub(crate) const CONTACT: &str = "mailto:help@example.test";
/// The moment at which every test begins.
pub(crate) const START: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// Making an RSA key takes long enough to share it between all tests.
pub(super) static RSA_KEY: LazyLock<SigningKey> = LazyLock::new(|| {
    let pkcs8 = rsa_keygen::generate(&Random::system()).unwrap();
    SigningKey::from_pkcs8_der(Algorithm::Rs256, &pkcs8).unwrap()
});

/// The running service. It stops when it is dropped.
pub(crate) struct Server {
    pub(crate) app: Arc<App>,
    pub(crate) clock: Clock,
    wire: Wire,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.serving.abort();
    }
}

/// How the service is started.
pub(crate) struct Setup {
    pub(crate) policy: Policy,
    pub(crate) limits: LimitPolicy,
    pub(crate) trusted_proxies: Vec<IpNet>,
    /// The names that the service is reached by without a proxy.
    pub(crate) names: Vec<String>,
    /// The way to providers.
    pub(crate) outbound: OutboundPolicy,
    /// The authorities whose certificates authenticate clients.
    pub(crate) client_authorities: Option<ClientAuthorities>,
    /// The cost of a password hash.
    pub(crate) cost: PasswordParams,
    /// The store; a new one in memory if there is none.
    pub(crate) store: Option<Store>,
    /// Whether error pages show the sentences for developers, by which tests tell refusals apart.
    pub(crate) shows_error_details: bool,
    /// Whether it has the example client of `serve --dev`.
    pub(crate) is_development: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let config = resolve(&Sources::default().for_development()).unwrap();
        Self {
            policy: resolve_settings(&Sources::default()).unwrap().policy(ISSUER),
            limits: config.limits,
            trusted_proxies: Vec::new(),
            names: Vec::new(),
            outbound: OutboundPolicy::default(),
            client_authorities: None,
            cost: PasswordParams::new(64, 1, 1).unwrap(),
            store: None,
            shows_error_details: true,
            is_development: false,
        }
    }
}

/// A store in memory.
fn store_in_memory() -> Store {
    let options = Options {
        cache_bytes: 1 << 20,
        ..Options::default()
    };
    Store::in_memory(options).unwrap()
}

/// A store in memory, or in a database of its own if `IDSVC_TEST_STORE` is `postgres`.
#[cfg(feature = "postgres")]
fn empty_store() -> Store {
    match std::env::var("IDSVC_TEST_STORE").as_deref() {
        Ok("postgres") => super::shared_store::store(),
        _ => store_in_memory(),
    }
}

#[cfg(not(feature = "postgres"))]
fn empty_store() -> Store {
    store_in_memory()
}

impl Setup {
    pub(crate) async fn start(self) -> Server {
        let clock = Clock::manual(START);
        let store = self.store.unwrap_or_else(empty_store);
        let passwords = PasswordPool::start(
            self.cost,
            PoolSize {
                threads: 1,
                waiting: 64,
            },
        )
        .unwrap();
        let sealer = Sealer::new(&[7; 32]);
        let core = Core::open(
            store,
            clock.clone(),
            Random::system(),
            sealer,
            self.policy,
            passwords,
        )
        .and_then(|core| Ok(core.reaching(&self.outbound)?))
        .unwrap()
        .trusting(self.client_authorities);
        // In a box, so that the futures of tests stay small.
        let core = Box::new(core);
        rotate_keys::introduce(&core, &RSA_KEY, true).await.unwrap();
        rotate_keys::ensure_keys(&core).await.unwrap();
        let app = App::new(*core, self.trusted_proxies, self.limits, None).with_names(&self.names);
        let mut app = Box::new(app);
        app.shows_error_details = self.shows_error_details;
        if self.is_development {
            app.dev = Some(dev::prepare(&app.core).await.unwrap().site);
        }
        app.support_contact = Some(CONTACT.to_owned());
        let app = Arc::new(*app);

        let listener = Listener::bind(&["127.0.0.1:0".parse().unwrap()], Limits::default())
            .await
            .unwrap();
        let wire = Wire::new(listener.local_addrs()[0]);
        let fallback = Arc::clone(&app);
        let listener =
            listener.with_fallback(move |request| idsvc::http::error::fallback(&fallback, &request));
        let (stop, stopped) = oneshot::channel::<()>();
        let shared = Arc::clone(&app);
        let service = move |request, peer: Peer| idsvc::http::respond(Arc::clone(&shared), request, peer);
        let serving = tokio::spawn(listener.serve(None, service, async {
            drop(stopped.await);
        }));
        Server {
            app,
            clock,
            wire,
            stop: Some(stop),
            serving,
        }
    }
}

impl Server {
    /// The service as it is when the operator changed nothing.
    pub(crate) async fn start() -> Self {
        Setup::default().start().await
    }

    /// The service with other settings.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Policy)) -> Self {
        let mut setup = Setup::default();
        change(&mut setup.policy);
        setup.start().await
    }

    /// The service with other settings and another way to providers.
    pub(crate) async fn start_reaching(terms: &OutboundPolicy, change: impl FnOnce(&mut Policy)) -> Self {
        let mut setup = Setup {
            outbound: terms.clone(),
            ..Setup::default()
        };
        change(&mut setup.policy);
        setup.start().await
    }

    /// The service with other limits, behind a proxy on this machine that forwards the client's address.
    pub(crate) async fn start_with_limits(change: impl FnOnce(&mut LimitPolicy)) -> Self {
        let mut setup = Setup {
            trusted_proxies: vec!["127.0.0.0/8".parse().unwrap()],
            ..Setup::default()
        };
        change(&mut setup.limits);
        setup.start().await
    }

    /// Lets time pass.
    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// A connection on which nothing has been sent.
    pub(crate) async fn connect(&self) -> TcpStream {
        self.wire.connect().await
    }

    /// A request by nobody in particular.
    pub(crate) fn get(&self, path: &str) -> Call {
        Call::get(&self.wire, path)
    }

    /// A form posted by nobody in particular.
    pub(crate) fn post(&self, path: &str) -> Call {
        Call::post(&self.wire, path)
    }

    /// A request of any method.
    pub(crate) fn call(&self, method: &str, path: &str) -> Call {
        Call::new(&self.wire, method, path)
    }

    /// A browser of nobody in particular.
    pub(crate) fn browser(&self) -> Browser {
        Browser::new(&self.wire, "", "")
    }

    /// Registers a confidential client that authenticates with `client_secret_basic`.
    pub(crate) async fn client(&self, client_id: &str) -> RelyingParty {
        self.client_with(client_id, |_| {}).await
    }

    /// Registers a client that cannot keep a secret.
    pub(crate) async fn public_client(&self, client_id: &str) -> RelyingParty {
        self.client_with(client_id, |client| {
            client.token_endpoint_auth_methods = [AuthMethod::None].into();
            client.secrets.clear();
        })
        .await
    }

    /// Registers a client that differs from the usual one.
    pub(crate) async fn client_with(
        &self,
        client_id: &str,
        change: impl FnOnce(&mut Client),
    ) -> RelyingParty {
        let secret = format!("the secret of {client_id}, of more than 32 bytes");
        let mut client = self.usual_client(client_id, &secret);
        change(&mut client);
        self.put_client(client.clone()).await;
        RelyingParty::new(&self.wire, client, secret)
    }

    /// The client with this identifier, which registered itself.
    pub(crate) fn party(&self, client_id: &str, secret: &str) -> RelyingParty {
        let client = Client::clone(&self.app.core.catalog().client(client_id).unwrap());
        RelyingParty::new(&self.wire, client, secret.to_owned())
    }

    /// A public client that is not registered.
    pub(crate) fn unregistered(&self, client_id: &str, redirect_uri: &str) -> RelyingParty {
        let mut client = self.usual_client(client_id, "");
        client.token_endpoint_auth_methods = [AuthMethod::None].into();
        client.redirect_uris = vec![redirect_uri.to_owned()];
        RelyingParty::new(&self.wire, client, String::new())
    }

    fn usual_client(&self, client_id: &str, secret: &str) -> Client {
        let now = self.clock.now();
        let scope = Scope::of(Scope::STANDARD)
            .unwrap()
            .with("notes.read")
            .with("notes.write");
        Client {
            client_id: client_id.to_owned(),
            client_uuid: self.app.core.random.uuid_v4(),
            own_grant: self.app.core.random.uuid_v4(),
            incarnation: self.app.core.random.uuid_v4(),
            token_endpoint_auth_methods: [AuthMethod::ClientSecretBasic].into(),
            secrets: vec![StoredSecret {
                digest: Digest::of(secret.as_bytes()),
                created_at: now,
                expires_at: None,
            }],
            api_keys: Vec::new(),
            metadata: ClientMetadata {
                redirect_uris: vec![format!("https://{client_id}.example/cb")],
                post_logout_redirect_uris: vec![format!("https://{client_id}.example/bye")],
                scope,
                default_scope: "openid notes.read".parse().unwrap(),
                grant_types: [GrantType::AuthorizationCode, GrantType::RefreshToken].into(),
                pkce: PkceRequirement::Optional,
                ..ClientMetadata::default()
            },
            origin: ClientOrigin::Operator,
            registration: None,
            held_by: None,
            redirects_changed_at: None,
            enabled: true,
            created_at: now,
            updated_at: now,
        }
    }

    /// Changes a client's record, as an administrator would.
    pub(crate) async fn change_client(&self, party: &RelyingParty, change: impl FnOnce(&mut Client)) {
        let id = party.client_id();
        let stored = self
            .app
            .core
            .store
            .read_blocking(|snapshot| CLIENTS.get(snapshot, id));
        let mut client = stored.unwrap().unwrap();
        change(&mut client);
        self.put_client(client).await;
    }

    async fn put_client(&self, client: Client) {
        let core = &self.app.core;
        core.store
            .write("test_client", move |tx| {
                CLIENTS.put(tx, &client.client_id, &client)
            })
            .await
            .unwrap();
        core.reload_catalog().await.unwrap();
    }

    /// Registers a provider as an administrator would.
    pub(crate) async fn provider(&self, id: &str, fields: ProviderFields) -> ProviderView {
        let id = id.to_owned();
        let client_secret = fields
            .client_id
            .as_ref()
            .map(|_| SecretString::new(PROVIDER_SECRET));
        let request = AddProvider {
            id,
            client_secret,
            fields,
        };
        self.admin().call(request).await.unwrap()
    }

    /// Changes a provider as an administrator would.
    pub(crate) async fn change_provider(&self, id: &str, fields: ProviderFields) -> ProviderView {
        let id = id.to_owned();
        let client_secret = fields
            .client_id
            .as_ref()
            .map(|_| SecretString::new(PROVIDER_SECRET));
        let request = UpdateProvider {
            id,
            client_secret,
            fields,
        };
        self.admin().call(request).await.unwrap().view
    }

    /// An administrator at work.
    pub(crate) fn admin(&self) -> Admin<'_> {
        Admin {
            core: &self.app.core,
            actor: Actor::of_process(),
        }
    }

    /// Adds a user with a password and every claim of `profile`, `address` and `phone`.
    pub(crate) async fn user(&self, name: &str) -> Person {
        self.user_with(name, |_| {}).await
    }

    /// Adds a user with other properties than the usual one.
    pub(crate) async fn user_with(&self, name: &str, change: impl FnOnce(&mut User)) -> Person {
        let core = &self.app.core;
        let password = format!("the password of {name}");
        let mut user = User::local(
            core.random.uuid_v4(),
            &format!("{name}@example.com"),
            &core.policy.organization,
            self.clock.now(),
        );
        let typed = Zeroizing::new(password.clone());
        user.password = Some(core.passwords.hash(typed, core.random.bytes()).await.unwrap());
        user.email_verified = true;
        user.phone_number = Some("+32470123456".to_owned());
        user.claims = claims_of(name);
        change(&mut user);
        let row = user.clone();
        core.store
            .write("test_user", move |tx| {
                for name in row.login_names() {
                    USERS_BY_LOGIN_NAME.put(tx, LoginName::as_str(&name), &row.uuid)?;
                }
                USERS.put(tx, &row.uuid, &row)
            })
            .await
            .unwrap();
        Person {
            user,
            password,
            wire: self.wire.clone(),
        }
    }

    /// Changes a user's record, as an administrator would.
    pub(crate) fn factors_of(&self, person: &Person) -> Vec<(uuid::Uuid, Factor)> {
        let uuid = person.user.uuid;
        let read = |snapshot: &dyn idsvc::store::engine::Snapshot| factors::of_user(snapshot, uuid);
        self.app.core.store.read_blocking(read).unwrap()
    }

    pub(crate) async fn change_user(&self, person: &Person, change: impl FnOnce(&mut User)) {
        let core = &self.app.core;
        let uuid = person.user.uuid;
        let mut user = core
            .store
            .read_blocking(|snapshot| USERS.get(snapshot, &uuid))
            .unwrap()
            .unwrap();
        change(&mut user);
        core.store
            .write("test_user", move |tx| USERS.put(tx, &uuid, &user))
            .await
            .unwrap();
    }
}

fn claims_of(name: &str) -> std::collections::BTreeMap<String, serde_json::Value> {
    let claims = serde_json::json!({
        "name": format!("{name} Example"),
        "given_name": name,
        "family_name": "Example",
        "middle_name": "M",
        "nickname": "nick",
        "preferred_username": name,
        "profile": "https://people.example/profile",
        "picture": "https://people.example/picture.png",
        "website": "https://people.example/",
        "gender": "female",
        "birthdate": "1990-05-17",
        "zoneinfo": "Europe/Brussels",
        "locale": "en-BE",
        "address": {
            "formatted": "Korenlei 1, 9000 Ghent, Belgium",
            "street_address": "Korenlei 1",
            "locality": "Ghent",
            "region": "East Flanders",
            "postal_code": "9000",
            "country": "BE",
        },
    });
    serde_json::from_value(claims).unwrap()
}

/// A person with an account.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) user: User,
    pub(crate) password: String,
    wire: Wire,
}

impl Person {
    /// A new browser of this person, without cookies.
    pub(crate) fn browser(&self) -> Browser {
        Browser::new(&self.wire, &self.user.account_id, &self.password)
    }

    /// The user's identifier as tokens carry it.
    pub(crate) fn sub(&self) -> String {
        self.user.uuid.to_string()
    }
}
