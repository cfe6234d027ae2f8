//! All tables. Index 0 belongs to the schema (`store::schema`).
//!
//! Time-ordered identifiers as keys put new rows side by side at one edge of the tree. Expired rows are a range at the
//! other edge.

use uuid::Uuid;

use super::engine::TableId;
use crate::federation::Provider;
use crate::identity::one_time_link::LinkKey;
use crate::identity::{Consent, Factor, OneTimeLink, Session, User};
use crate::oauth::code::AuthorizationCode;
use crate::oauth::device::DeviceAuthorization;
use crate::oauth::login::LoginRecord;
use crate::oauth::refresh::RefreshFamily;
use crate::oauth::registration::StoredInitialAccessToken;
use crate::oauth::{Api, Client, Group, RegisteredScope};
use crate::store::records::{
    ApiKeyUse, ClientSecretUses, FailedPasswords, Lease, LogoutNotice, NodeDigests, OutboxEntry,
    RefreshKeyRecord, SessionClient, SigningKeyRecord, UserActivity,
};
use crate::store::schema::META;
use crate::store::table::Table;

/// What precedes the user's 16 bytes in a stored record with a member `user`. No text can have it: `C4 10` is not UTF-8.
const USER_MEMBER: &[u8] = b"\xA4user\xC4\x10";

/// Registered clients by `client_id`.
pub const CLIENTS: Table<String, Client> = Table::new(1, "clients").in_catalog();
pub const USERS: Table<Uuid, User> = Table::new(2, "users");
/// Users by login name (account identifier or e-mail, lower case).
pub const USERS_BY_LOGIN_NAME: Table<String, Uuid> =
    Table::new(3, "users_by_login_name").with_user_after(b"\xC4\x10");
/// Signing keys by `kid`.
pub const SIGNING_KEYS: Table<String, SigningKeyRecord> = Table::new(4, "signing_keys").in_catalog();
/// Sign-ins in which a user has authenticated, by the time-ordered id of the login transaction.
pub const LOGIN_RECORDS: Table<Uuid, LoginRecord> = Table::new(5, "login_records");
/// Authorization codes by time-ordered id. They stay after redemption, so that a replay is recognised.
pub const CODES: Table<Uuid, AuthorizationCode> = Table::new(6, "codes");
/// Refresh families by time-ordered id.
pub const FAMILIES: Table<Uuid, RefreshFamily> = Table::new(7, "families").with_user_after(USER_MEMBER);
/// The families of a user, and those that end with a session: (owner, (client, family)).
pub const FAMILIES_BY_OWNER: Table<(Uuid, (String, Uuid)), ()> =
    Table::new(8, "families_by_owner").grouped_by_first(16);
/// Browser sessions by time-ordered id.
pub const SESSIONS: Table<Uuid, Session> = Table::new(9, "sessions").with_user_after(USER_MEMBER);
pub const SESSIONS_BY_USER: Table<(Uuid, Uuid), ()> = Table::new(10, "sessions_by_user").grouped_by_first(16);
/// Remembered consents by (user, client).
pub const CONSENTS: Table<(Uuid, String), Consent> = Table::new(11, "consents").grouped_by_first(16);
/// Access tokens that were revoked before they expired: (hour of expiry since the epoch, `jti`).
pub const REVOKED_TOKENS: Table<(u32, Uuid), ()> = Table::new(12, "revoked_tokens");
/// The last use of each API key, by the key's id.
pub const API_KEY_USES: Table<Uuid, ApiKeyUse> = Table::new(13, "api_key_uses");
/// What may be used once and was used: assertions of clients, proofs of possession, ID tokens and answers of providers,
/// pushed requests. (Hour of expiry since the epoch, digest of the issuer or key and `jti`, or of `state`, or random
/// bytes.)
pub const USED_ASSERTIONS: Table<(u32, [u8; 32]), ()> = Table::new(14, "used_assertions");
/// Upstream providers by id.
pub const PROVIDERS: Table<String, Provider> = Table::new(15, "providers").in_catalog();
/// Users by upstream identity: (issuer, subject).
pub const USERS_BY_IDENTITY: Table<(String, String), Uuid> = Table::new(16, "users_by_identity");
/// The keys from which refresh tokens are derived, by number.
pub const REFRESH_KEYS: Table<u32, RefreshKeyRecord> = Table::new(17, "refresh_keys").in_catalog();
/// The wrong passwords of a user in a row, by the user's UUID.
pub const FAILED_PASSWORDS: Table<Uuid, FailedPasswords> = Table::new(18, "failed_passwords");

/// APIs by id.
pub const APIS: Table<String, Api> = Table::new(19, "apis").in_catalog();
pub const SCOPES: Table<String, RegisteredScope> = Table::new(20, "scopes").in_catalog();
pub const GROUPS: Table<String, Group> = Table::new(21, "groups").in_catalog();
/// Initial access tokens by id (RFC 7591 section 1.2).
pub const INITIAL_ACCESS_TOKENS: Table<Uuid, StoredInitialAccessToken> =
    Table::new(22, "initial_access_tokens");
/// Messages that wait to be sent, by the time of the next attempt in seconds since the epoch and their time-ordered id.
pub const OUTBOX: Table<(u32, Uuid), OutboxEntry> = Table::new(23, "outbox");
/// Links that work once, by the hour of expiry since the epoch and their time-ordered id.
pub const ONE_TIME_LINKS: Table<(u32, Uuid), OneTimeLink> = Table::new(24, "one_time_links");
/// The factors of a user: (user, time-ordered id of the factor).
pub const FACTORS: Table<(Uuid, Uuid), Factor> = Table::new(25, "factors").grouped_by_first(16);
pub const CODES_BY_USER: Table<(Uuid, Uuid), ()> = Table::new(26, "codes_by_user").grouped_by_first(16);
/// The nodes that do work for all nodes, by the name of the work.
pub const LEASES: Table<String, Lease> = Table::new(27, "leases");

/// Device authorizations by time-ordered id. They stay after redemption, so that a replay is recognised.
pub const DEVICE_AUTHORIZATIONS: Table<Uuid, DeviceAuthorization> = Table::new(28, "device_authorizations");
/// Device authorizations that wait for a decision, by what is stored of the user code.
pub const DEVICE_AUTHORIZATIONS_BY_USER_CODE: Table<String, Uuid> =
    Table::new(29, "device_authorizations_by_user_code");
/// Device authorizations that a user has allowed, until they are redeemed: (user, device authorization).
pub const DEVICE_AUTHORIZATIONS_BY_USER: Table<(Uuid, Uuid), ()> =
    Table::new(30, "device_authorizations_by_user").grouped_by_first(16);
/// The clients of a session that are told of its end: (user, (session, client)).
pub const SESSION_CLIENTS: Table<(Uuid, (Uuid, String)), SessionClient> =
    Table::new(31, "session_clients").grouped_by_first(16);
/// Logout notices that wait to be sent, by the time of the next attempt in seconds since the epoch and their
/// time-ordered id.
pub const LOGOUT_NOTICES: Table<(u32, Uuid), LogoutNotice> = Table::new(32, "logout_notices");
/// The users who have a passkey with a credential id: (half of the SHA-256 of the credential id, user).
pub const USERS_BY_PASSKEY: Table<(Uuid, Uuid), ()> = Table::new(33, "users_by_passkey").grouped_by_first(16);
/// The settings and themes of the nodes, by the name of the node.
pub const NODE_DIGESTS: Table<String, NodeDigests> = Table::new(34, "node_digests");
/// When users were last seen, by UUID, as far as neither a session nor a refresh family says so.
pub const USER_ACTIVITY: Table<Uuid, UserActivity> = Table::new(35, "user_activity");
/// The last uses of the secrets of each client, by `client_id`.
pub const CLIENT_SECRET_USES: Table<String, ClientSecretUses> = Table::new(36, "client_secret_uses");
/// The open invitations by address: (half of the SHA-256 of the one form of the address, the link).
pub const INVITATIONS: Table<(Uuid, LinkKey), ()> = Table::new(37, "invitations").grouped_by_first(16);

/// The tables of a backup: all but those of the sign-ins, the device authorizations, the outbox, the links and the nodes.
/// A browser whose sign-in is unknown begins it again, as a device does. A message that a backup had would be sent twice,
/// and a used link would work again. A logout notice may be sent twice. A backup of an older release has rows of sign-ins,
/// too.
pub fn backed_up() -> impl Iterator<Item = TableId> {
    let left_out = [
        LOGIN_RECORDS.id(),
        DEVICE_AUTHORIZATIONS.id(),
        DEVICE_AUTHORIZATIONS_BY_USER_CODE.id(),
        DEVICE_AUTHORIZATIONS_BY_USER.id(),
        OUTBOX.id(),
        ONE_TIME_LINKS.id(),
        LEASES.id(),
        NODE_DIGESTS.id(),
        INVITATIONS.id(),
    ];
    all().filter(move |table| !left_out.contains(table))
}

/// Every table, with the schema's own. A test keeps the list complete.
pub fn all() -> impl Iterator<Item = TableId> {
    [
        META.id(),
        CLIENTS.id(),
        USERS.id(),
        USERS_BY_LOGIN_NAME.id(),
        SIGNING_KEYS.id(),
        LOGIN_RECORDS.id(),
        CODES.id(),
        FAMILIES.id(),
        FAMILIES_BY_OWNER.id(),
        SESSIONS.id(),
        SESSIONS_BY_USER.id(),
        CONSENTS.id(),
        REVOKED_TOKENS.id(),
        API_KEY_USES.id(),
        USED_ASSERTIONS.id(),
        PROVIDERS.id(),
        USERS_BY_IDENTITY.id(),
        REFRESH_KEYS.id(),
        FAILED_PASSWORDS.id(),
        APIS.id(),
        SCOPES.id(),
        GROUPS.id(),
        INITIAL_ACCESS_TOKENS.id(),
        OUTBOX.id(),
        ONE_TIME_LINKS.id(),
        FACTORS.id(),
        CODES_BY_USER.id(),
        LEASES.id(),
        DEVICE_AUTHORIZATIONS.id(),
        DEVICE_AUTHORIZATIONS_BY_USER_CODE.id(),
        DEVICE_AUTHORIZATIONS_BY_USER.id(),
        SESSION_CLIENTS.id(),
        LOGOUT_NOTICES.id(),
        USERS_BY_PASSKEY.id(),
        NODE_DIGESTS.id(),
        USER_ACTIVITY.id(),
        CLIENT_SECRET_USES.id(),
        INVITATIONS.id(),
    ]
    .into_iter()
}
