//! The operations of administration: one file each ([`operation`]), one transaction each, in one list ([`operations`]).
//!
//! The same operations serve the command line, over the control socket or on the store itself. A refusal lists
//! everything that is wrong at once, as data: the caller knows how to mend it.

pub mod api;
pub mod apply;
pub mod backup;
pub mod claim;
pub mod client;
pub mod database;
pub mod group;
mod groups;
pub mod import;
pub mod installation;
pub mod key;
mod last_use;
pub mod mail;
mod named;
pub mod operation;
pub mod operations;
pub mod provider;
pub mod scope;
pub mod session;
pub mod stream;
pub mod updated;
pub mod user;

use std::fmt;
use std::sync::Arc;

use rustix::process::geteuid;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

use crate::flow::rotate_keys;
use crate::flow::rotate_keys::RotateError;
use crate::flow::{Core, OpenError};
use crate::identity::LoginName;
use crate::identity::claim::parse_email;
use crate::jose::alg::Algorithm;
use crate::oauth::fields::{check_text, in_words, with_article};
use crate::oauth::{Fault, FaultCode, Policy};
use crate::password::NotComputed;
use crate::store::engine::{Snapshot, Tx};
use crate::store::{StoreError, TxError};
use crate::text;

/// Who carries out a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The user of this machine with this uid.
    Uid(u32),
}

impl Actor {
    /// The user that this process runs as.
    pub fn of_process() -> Self {
        Self::Uid(geteuid().as_raw())
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uid(uid) => write!(f, "uid {uid}"),
        }
    }
}

/// What all operations work on, and for whom.
#[derive(Clone, Copy)]
pub struct Admin<'a> {
    /// The service's core.
    pub core: &'a Core,
    /// Who carries out the operation.
    pub actor: Actor,
}

impl Admin<'_> {
    /// Runs a transaction. A refusal must not write anything.
    async fn write<T: Send + 'static>(
        self,
        name: &'static str,
        work: impl Fn(&mut dyn Tx) -> Result<T, AdminTxError> + Send + 'static,
    ) -> AdminResult<T> {
        Ok(self.core.store.write(name, work).await?)
    }

    /// Runs a transaction that changes the catalog, and reads the catalog again.
    async fn write_catalog<T: Send + 'static>(
        self,
        name: &'static str,
        work: impl Fn(&mut dyn Tx) -> Result<T, AdminTxError> + Send + 'static,
    ) -> AdminResult<T> {
        let written = self.core.store.write(name, work).await;
        self.core.reload_after(written).await
    }

    async fn read<T>(self, look: impl Fn(&dyn Snapshot) -> Result<T, AdminTxError>) -> AdminResult<T> {
        Ok(self.core.store.read(look).await?)
    }
}

/// Why a command was refused: everything that is wrong. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminRefusal(pub Vec<Fault>);

impl From<Fault> for AdminRefusal {
    fn from(fault: Fault) -> Self {
        Self(vec![fault])
    }
}

impl From<AdminRefusal> for AdminTxError {
    fn from(refusal: AdminRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Fault> for AdminTxError {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault.into())
    }
}

impl fmt::Display for AdminRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let details: Vec<_> = self.0.iter().map(|fault| fault.detail.as_str()).collect();
        f.write_str(&details.join("\n"))
    }
}

impl std::error::Error for AdminRefusal {}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(transparent)]
    Refused(#[from] AdminRefusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many passwords are being hashed.
    #[error(transparent)]
    Busy(#[from] NotComputed),
    /// A key was not made or introduced.
    #[error(transparent)]
    Key(#[from] RotateError),
    /// The change is stored, but could not be read again.
    #[error(transparent)]
    Reload(#[from] OpenError),
    /// The output cannot be encoded.
    #[error("the output cannot be encoded: {0}")]
    Unencodable(#[from] serde_json::Error),
}

impl From<Fault> for AdminError {
    fn from(fault: Fault) -> Self {
        Self::Refused(fault.into())
    }
}

impl From<AdminTxError> for AdminError {
    fn from(error: AdminTxError) -> Self {
        match error {
            AdminTxError::Refused(refusal) => refusal.into(),
            AdminTxError::Failed(error) => error.into(),
        }
    }
}

/// The result of an operation.
pub type AdminResult<T> = Result<T, AdminError>;

/// Why a transaction does not return what it was asked for.
type AdminTxError = TxError<AdminRefusal>;

/// Refuses the command if there are faults.
fn all_or_none(faults: Vec<Fault>) -> Result<(), AdminRefusal> {
    if faults.is_empty() {
        Ok(())
    } else {
        Err(AdminRefusal(faults))
    }
}

/// Names the record that faults are about.
fn about(kind: &str, id: &str, faults: Vec<Fault>) -> impl Iterator<Item = Fault> {
    faults.into_iter().map(move |fault| fault.about(kind, id))
}

/// The fault of a name that no record of this kind has.
fn not_found(kind: &str, id: &str) -> Fault {
    FaultCode::NotFound.of(kind, id, format!("there is no {} {id}", in_words(kind)))
}

/// The fault of a name that a record of this kind has already.
fn already_exists(kind: &str, id: &str) -> Fault {
    let detail = format!("there is {} {id} already", with_article(kind));
    FaultCode::AlreadyExists.of(kind, id, detail)
}

/// The settings that records are checked against.
#[derive(Clone)]
struct RecordChecks {
    policy: Arc<Policy>,
    indispensable: Vec<Algorithm>,
}

impl RecordChecks {
    fn new(core: &Core) -> Self {
        Self {
            policy: Arc::clone(&core.policy),
            indispensable: rotate_keys::indispensable(core),
        }
    }

    /// The algorithms that have a key, and those that get a key at the first start.
    fn usable_algorithms(&self, snapshot: &dyn Snapshot) -> Result<Vec<Algorithm>, StoreError> {
        let mut usable = self.indispensable.clone();
        for alg in Algorithm::SIGNING {
            if rotate_keys::signing(snapshot, alg)?.is_some() {
                usable.push(alg);
            }
        }
        Ok(usable)
    }
}

/// A secret from or for the operator. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretString(Zeroizing<String>);

impl SecretString {
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// A copy that is wiped after use.
    pub fn to_zeroizing(&self) -> Zeroizing<String> {
        self.0.clone()
    }
}

impl fmt::Debug for SecretString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Serialize for SecretString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SecretString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// Refuses a secret with control characters. A line break at the end is probably no part of it.
fn check_secret(faults: &mut Vec<Fault>, field: &str, secret: &SecretString) {
    if secret.reveal().chars().any(char::is_control) {
        let detail = format!(
            "the {} has a line break or another control character in it",
            in_words(field)
        );
        faults.push(FaultCode::Invalid.at([field], detail));
    }
}

/// An e-mail address in its one form. A user may keep an address that is refused as a new one.
fn checked_email(faults: &mut Vec<Fault>, before: Option<&str>, typed: &str) -> String {
    match parse_email(typed) {
        Ok(email) => email,
        Err(problem) => {
            if before != Some(typed) {
                let detail = format!("{:?} {problem}", text::nfc(typed));
                faults.push(FaultCode::Invalid.at(["email"], detail));
            }
            typed.to_owned()
        }
    }
}

/// Checks an account identifier, which is a login name as well. `provider:subject` is for users of providers.
fn check_account_id(faults: &mut Vec<Fault>, id: &str) {
    const FIELD: &str = "account_id";
    check_text(faults, FIELD, id);
    if text::map_width(id)
        .split('@')
        .next()
        .is_some_and(|name| name.contains(':'))
    {
        let detail = "account id has a colon, which is for users of providers";
        faults.push(FaultCode::Invalid.at([FIELD], detail));
    }
    if !LoginName::new(id).is_storable() {
        let detail = format!("account id is longer than {} bytes", LoginName::LONGEST);
        faults.push(FaultCode::TooLong.at([FIELD], detail));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    mod kept;

    use super::*;
    use crate::clock::{Clock, Timestamp};
    use crate::config::Sources;
    use crate::config::resolve::resolve_settings;
    use crate::password::{PasswordParams, PasswordPool, PoolSize};
    use crate::random::Random;
    use crate::seal::Sealer;
    use crate::store::{Options, Store};

    /// An empty service in memory, with a manual clock and cheap password hashes.
    pub(crate) fn core() -> Core {
        core_on(Store::in_memory(Options::default()).unwrap())
    }

    pub(crate) fn core_on(store: Store) -> Core {
        let params = PasswordParams::new(8, 1, 1).unwrap();
        Core::open(
            store,
            Clock::manual(Timestamp::from_seconds(1_000_000)),
            Random::system(),
            Sealer::new(&[7; 32]),
            resolve_settings(&Sources::default())
                .unwrap()
                .policy("https://id.example.com"),
            PasswordPool::start(
                params,
                PoolSize {
                    threads: 1,
                    waiting: 4,
                },
            )
            .unwrap(),
        )
        .unwrap()
    }

    pub(crate) fn admin(core: &Core) -> Admin<'_> {
        Admin {
            core,
            actor: Actor::Uid(1000),
        }
    }

    /// The faults of a refused command.
    pub(crate) fn refusal<T: fmt::Debug>(result: AdminResult<T>) -> Vec<Fault> {
        match result {
            Err(AdminError::Refused(AdminRefusal(faults))) => faults,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Asserts on the code and the fields of each fault.
    pub(crate) fn assert_faults(faults: &[Fault], expected: &[(FaultCode, &[&str])]) {
        let found: Vec<_> = faults
            .iter()
            .map(|fault| {
                (
                    fault.code,
                    fault.fields.iter().map(String::as_str).collect::<Vec<_>>(),
                )
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(code, fields)| (*code, fields.to_vec()))
            .collect();
        assert_eq!(found, expected, "{faults:?}");
    }

    #[test]
    fn a_disclosed_secret_crosses_json_and_no_log() {
        let secret = SecretString::new("s3cret");
        let json = serde_json::to_string(&secret).unwrap();
        assert_eq!(serde_json::from_str::<SecretString>(&json).unwrap(), secret);
        assert_eq!(format!("{secret:?}"), "[redacted]");
    }
}
