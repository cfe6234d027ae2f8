//! What is in the store before anything is measured.

use std::path::Path;

use idsvc::clock::{Clock, Timestamp};
use idsvc::data_dir::DataDir;
use idsvc::flow::rotate_keys::refresh_keys::open_refresh_key;
use idsvc::identity::{AuthenticationMethod, LoginName, Session, User};
use idsvc::oauth::client::Client;
use idsvc::oauth::code::Authorization;
use idsvc::oauth::openid::claims::ClaimsRequest;
use idsvc::oauth::refresh::RefreshFamily;
use idsvc::oauth::refresh_keys::RefreshKeys;
use idsvc::password::PasswordHash;
use idsvc::random::Random;
use idsvc::secret::{Secret, SessionCookie};
use idsvc::store::tables::{
    FAMILIES, FAMILIES_BY_OWNER, REFRESH_KEYS, SESSIONS, SESSIONS_BY_USER, USERS, USERS_BY_LOGIN_NAME,
};
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
    let DataDir { store, sealer, .. } = DataDir::open(data_dir, false, &random).unwrap();
    let keys = store
        .read(|snapshot| REFRESH_KEYS.scan(snapshot, .., usize::MAX))
        .unwrap();
    let keys = keys
        .iter()
        .map(|(number, record)| (*number, open_refresh_key(&sealer, *number, record).unwrap()));
    let keys = RefreshKeys::new(keys);
    let mut seed = Seed {
        tokens: Vec::new(),
        sessions: Vec::new(),
    };
    let every = users.div_ceil(MOST_TOKENS).max(1);
    let people = people(users);
    for start in (0..users).step_by(BATCH) {
        let mut rows = Vec::new();
        for number in start..users.min(start + BATCH) {
            let row = Row::draw(number, password, &keys, &random, now);
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
        let put = move |tx: &mut dyn idsvc::store::engine::Tx| {
            for (id, session) in &sessions {
                SESSIONS_BY_USER.put(tx, &(session.user, *id), &())?;
                SESSIONS.put(tx, id, session)?;
            }
            rows.iter().try_for_each(|row| {
                for name in row.user.login_names() {
                    USERS_BY_LOGIN_NAME.put(tx, LoginName::as_str(&name), &row.user.uuid)?;
                }
                USERS.put(tx, &row.user.uuid, &row.user)?;
                let key = (row.user.uuid, (CLIENT.to_owned(), row.family_id));
                FAMILIES_BY_OWNER.put(tx, &key, &())?;
                FAMILIES.put(tx, &row.family_id, &row.family)
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
        keys: &RefreshKeys,
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
            user: uuid,
            session: None,
            auth_time: Some(now),
            factor: AuthenticationMethod::Password,
            upstream_token: None,
            scope: "services:all offline_access".parse().unwrap(),
            claims: ClaimsRequest::default(),
        };
        let first = keys.first_token(family_id, random.bytes()).unwrap();
        let family = RefreshFamily::start(
            &first,
            authorization,
            &Client::new(CLIENT, uuid, uuid, false, now),
            &idsvc::config::Settings::default().policy("").lifetimes,
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

fn begin_session(user: Uuid, random: &Random, now: Timestamp) -> (Uuid, Session, String) {
    let id = random.uuid_v7(Clock::System.since_epoch());
    let cookie = Secret::<SessionCookie>::generate(id.as_bytes(), random);
    let session = Session {
        digest: cookie.digest(),
        user,
        auth_time: Some(now),
        was_asked_anew: false,
        factor: AuthenticationMethod::Password,
        created_at: now,
        last_used_at: now,
        device: idsvc::identity::Device::default(),
    };
    (id, session, cookie.reveal().to_owned())
}
