//! The types of the stored records. Those that belong to no other module have a file each.

pub mod api_key_use;
pub mod client_secret_uses;
pub mod failed_passwords;
pub mod lease;
pub mod logout_notice;
pub mod node_digests;
pub mod outbox_entry;
pub mod refresh_key;
pub mod session_client;
pub mod signing_key;
pub mod user_activity;

pub use api_key_use::ApiKeyUse;
pub use client_secret_uses::ClientSecretUses;
pub use failed_passwords::FailedPasswords;
pub use lease::Lease;
pub use logout_notice::LogoutNotice;
pub use node_digests::NodeDigests;
pub use outbox_entry::OutboxEntry;
pub use refresh_key::RefreshKeyRecord;
pub use session_client::{LogoutStatus, SessionClient};
pub use signing_key::{KeyLifecycle, SigningKeyRecord};
pub use user_activity::UserActivity;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::federation::Provider;
use crate::identity::one_time_link::RequestedMail;
use crate::identity::{Consent, Factor, FirstFactor, OneTimeLink, Session, User};
use crate::oauth::code::AuthorizationCode;
use crate::oauth::device::DeviceAuthorization;
use crate::oauth::login::{LoginRecord, LoginTransaction, UpstreamSignIn};
use crate::oauth::named::NamedRecord;
use crate::oauth::pushed::PushedRequest;
use crate::oauth::refresh::RefreshFamily;
use crate::oauth::registration::StoredInitialAccessToken;
use crate::oauth::{Api, Client};
use crate::store::record::Record;

impl Record for AuthorizationCode {}
impl Record for Api {}
impl Record for Client {}
impl Record for Consent {}
impl Record for DeviceAuthorization {}
impl Record for Factor {}
impl Record for LoginRecord {}
impl<M: Serialize + DeserializeOwned> Record for NamedRecord<M> {}
impl Record for OneTimeLink {}
impl Record for Provider {}
impl Record for RefreshFamily {}
impl Record for Session {}
impl Record for StoredInitialAccessToken {}
impl Record for User {}

// These are not stored. Browsers keep them in the same form, sealed.
impl Record for FirstFactor {}
impl Record for LoginTransaction {}
impl Record for PushedRequest {}
impl Record for RequestedMail {}
impl Record for UpstreamSignIn {}
