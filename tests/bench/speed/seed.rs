//! What is in the store before anything is measured.

use std::path::Path;

use idsvc::clock::{Clock, Timestamp};
use idsvc::config::Sources;
use idsvc::config::resolve::resolve_settings;
use idsvc::data_dir::{DataDir, IfMissing};
use idsvc::flow::rotate_keys::refresh_keys::open_refresh_key;
use idsvc::identity::{AuthenticationMethod, LoginName, Session, User};
use idsvc::oauth::client::Client;
use idsvc::oauth::code::Authorization;
use idsvc::oauth::openid::claims::ClaimsRequest;
use idsvc::oauth::refresh::RefreshFamily;
use idsvc::oauth::refresh_keys::RefreshKeys;
use idsvc::oauth::resource::Resources;
use idsvc::password::PasswordHash;
use idsvc::random::Random;
use idsvc::secret::{Secret, SessionCookie};
use idsvc::store::engine::Tx;
use idsvc::store::tables::{
    CLIENTS, FAMILIES, FAMILIES_BY_OWNER, REFRESH_KEYS, SESSIONS, SESSIONS_BY_USER, USERS,
    USERS_BY_LOGIN_NAME,
};
use idsvc::store::{Store, StoreError};
use uuid::Uuid;

use crate::CLIENT;

/// So many rows are written at once.
const BATCH: usize = 10_000;
/// No more tokens than these are used, spread over all families.
const MOST_TOKENS: usize = 60_000;
/// The most people who sign in or have a session. They begin grants without end, and the service forgets their idlest, so
/// the tokens of the others are the ones that are refreshed.
const MOST_PEOPLE: usize = 4096;

/// What the load can use of it.
pub(crate) struct Seed {
    /// One refresh token each of many families.
    pub(crate) tokens: Vec<String>,
    /// Cookies of signed-in browsers.
    pub(crate) sessions: Vec<String>,
}

/// Writes so many users, each with a refresh family, straight into the database of a service that was started once.
pub(crate) fn seed(data_dir: &Path, users: usize, password: &PasswordHash) -> Seed {
    let (random, now) = (Random::system(), Clock::System.now());
    let (store, keys, client) = open(data_dir, &random);
    let mut seed = Seed {
        tokens: Vec::new(),
        sessions: Vec::new(),
    };
    let every = users.div_ceil(MOST_TOKENS).max(1);
    let people = people(users);
    for start in (0..users).step_by(BATCH) {
        let mut rows = Vec::new();
        for number in start..users.min(start + BATCH) {
            let row = Row::draw(number, password, (&keys, &client), &random, now);
            if number.is_multiple_of(every) && number >= people {
                seed.tokens.push(row.token.clone());
            }
            rows.push(row);
        }
        let mut sessions = Vec::new();
        for row in rows.iter().take(people - seed.sessions.len()) {
            let (id, session, cookie) = begin_session(row.user.uuid, &random, now);
            sessions.push((id, session));
            seed.sessions.push(cookie);
        }
        let put = move |tx: &mut dyn Tx| {
            for (id, session) in &sessions {
                SESSIONS_BY_USER.put(tx, &(session.user, *id), &())?;
                SESSIONS.put(tx, id, session)?;
            }
            rows.iter().try_for_each(|row| {
                row.put_user(tx, &row.user)?;
                row.put_family(tx, row.user.uuid)
            })
        };
        store.write_blocking("seed", put).unwrap();
    }
    store.close();
    // Neighbours in the store are not asked for one after the other.
    let mut order: Vec<([u8; 8], String)> = seed
        .tokens
        .drain(..)
        .map(|token| (random.bytes(), token))
        .collect();
    order.sort_unstable();
    seed.tokens = order.into_iter().map(|(_, token)| token).collect();
    seed
}

/// What is stored of people.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A user without a password.
    User,
    /// A user with a password.
    UserWithPassword,
    /// A grant: a refresh family, of a user who is somewhere in the store.
    Grant,
    /// A session, of a user who is somewhere in the store.
    Session,
    /// An anonymous user with its grant.
    AnonymousUser,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::User => "user without a password",
            Self::UserWithPassword => "user with a password",
            Self::Grant => "grant (refresh token)",
            Self::Session => "session",
            Self::AnonymousUser => "anonymous user with its grant",
        }
    }
}

/// Writes so many rows of that kind into the database of a service that is stopped.
pub(crate) fn fill(data_dir: &Path, kind: Kind, count: usize, password: &PasswordHash) {
    let (random, now) = (Random::system(), Clock::System.now());
    let (store, keys, client) = open(data_dir, &random);
    for start in (0..count).step_by(BATCH) {
        let rows = (start..count.min(start + BATCH)).map(|number| {
            // Those of another kind are other users.
            let number = number + count * usize::from(matches!(kind, Kind::User));
            let mut row = Row::draw(number, password, (&keys, &client), &random, now);
            row.user.uuid = match kind {
                Kind::User | Kind::UserWithPassword | Kind::AnonymousUser => row.user.uuid,
                Kind::Grant | Kind::Session => random.uuid_v4(),
            };
            let (id, session, _) = begin_session(row.user.uuid, &random, now);
            (row, id, session)
        });
        let rows: Vec<_> = rows.collect();
        let put = move |tx: &mut dyn Tx| {
            rows.iter().try_for_each(|(row, id, session)| match kind {
                Kind::User => {
                    let mut user = row.user.clone();
                    user.password = None;
                    row.put_user(tx, &user)
                }
                Kind::UserWithPassword => row.put_user(tx, &row.user),
                Kind::Grant => row.put_family(tx, row.user.uuid),
                Kind::Session => {
                    SESSIONS_BY_USER.put(tx, &(session.user, *id), &())?;
                    SESSIONS.put(tx, id, session)
                }
                Kind::AnonymousUser => {
                    row.put_user(tx, &User::anonymous(row.user.uuid, "default", now))?;
                    row.put_family(tx, row.user.uuid)
                }
            })
        };
        store.write_blocking("fill", put).unwrap();
    }
    store.close();
}

/// The database of a service that was started once, the keys of its refresh tokens, and the client of the load.
fn open(data_dir: &Path, random: &Random) -> (Store, RefreshKeys, Client) {
    let DataDir { store, sealer, .. } = DataDir::open(data_dir, IfMissing::Refuse, random).unwrap();
    let keys = store
        .read_blocking(|snapshot| REFRESH_KEYS.scan(snapshot, .., usize::MAX))
        .unwrap();
    let keys = keys
        .iter()
        .map(|(number, record)| (*number, open_refresh_key(&sealer, *number, record).unwrap()));
    let keys = RefreshKeys::new(keys);
    let client = store
        .read_blocking(|snapshot| CLIENTS.get(snapshot, CLIENT))
        .unwrap();
    let client = client.unwrap_or_else(|| {
        Client::new(
            CLIENT,
            random.uuid_v4(),
            random.uuid_v4(),
            false,
            Clock::System.now(),
        )
    });
    (store, keys, client)
}

/// How many of so many users, the first ones, are people who sign in while the load runs.
pub(crate) fn people(users: usize) -> usize {
    MOST_PEOPLE.min(users / 2)
}

/// The name of one of the users.
pub(crate) fn name_of(number: usize) -> String {
    format!("user{number}@example.com")
}

struct Row {
    user: User,
    family_id: Uuid,
    family: RefreshFamily,
    token: String,
}

impl Row {
    fn draw(
        number: usize,
        password: &PasswordHash,
        (keys, client): (&RefreshKeys, &Client),
        random: &Random,
        now: Timestamp,
    ) -> Self {
        let made_at = Clock::System.since_epoch();
        let uuid = random.uuid_v7(made_at);
        let mut user = User::local(uuid, &name_of(number), "default", now);
        user.password = Some(password.clone());
        user.email_verified = true;
        user.claims
            .insert("name".to_owned(), format!("User {number}").into());
        let family_id = random.uuid_v7(made_at);
        let authorization = Authorization {
            client_id: CLIENT.to_owned(),
            client_incarnation: client.incarnation,
            user: uuid,
            session: None,
            auth_time: Some(now),
            factor: AuthenticationMethod::Password,
            second_factor: None,
            upstream_token: None,
            scope: "services:all offline_access".parse().unwrap(),
            resources: Resources::new(),
            claims: ClaimsRequest::default(),
            bound_to: None,
            actor: None,
        };
        let first = keys.first_token(family_id, random.bytes()).unwrap();
        let family = RefreshFamily::start(
            &first,
            authorization,
            client,
            &resolve_settings(&Sources::default())
                .unwrap()
                .policy("")
                .lifetimes,
            now,
        );
        Self {
            user,
            family_id,
            family,
            token: keys.derive(&first).unwrap().reveal().to_owned(),
        }
    }
}

impl Row {
    fn put_user(&self, tx: &mut dyn Tx, user: &User) -> Result<(), StoreError> {
        for name in user.login_names() {
            USERS_BY_LOGIN_NAME.put(tx, LoginName::as_str(&name), &user.uuid)?;
        }
        USERS.put(tx, &self.user.uuid, user)
    }

    fn put_family(&self, tx: &mut dyn Tx, owner: Uuid) -> Result<(), StoreError> {
        let key = (owner, (CLIENT.to_owned(), self.family_id));
        FAMILIES_BY_OWNER.put(tx, &key, &())?;
        FAMILIES.put(tx, &self.family_id, &self.family)
    }
}

fn begin_session(user: Uuid, random: &Random, now: Timestamp) -> (Uuid, Session, String) {
    let id = random.uuid_v7(Clock::System.since_epoch());
    let cookie = Secret::<SessionCookie>::generate(id.as_bytes(), random);
    let session = Session {
        digest: cookie.digest(),
        user,
        auth_time: Some(now),
        was_asked_anew: false,
        factor: AuthenticationMethod::Password,
        second_factor: None,
        created_at: now,
        last_used_at: now,
        device: idsvc::identity::Device::default(),
    };
    (id, session, cookie.reveal().to_owned())
}
