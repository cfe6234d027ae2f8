//! Defines the commands of the control socket and their replies.

use std::io;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::admin::AdminRefusal;
use crate::admin::api::{AddApi, Api, UpdateApi};
use crate::admin::apply::{Applied, Apply};
use crate::admin::backup::BackUp;
use crate::admin::client::api_key::{ApiKeyView, WhichApiKey};
use crate::admin::client::registration_token::{AddRegistrationToken, RegistrationTokenView};
use crate::admin::client::{AddClient, ClientView, RotateSecret, UpdateClient};
use crate::admin::compact::{Compacted, DatabaseSize};
use crate::admin::import::{ImportUsers, Imported};
use crate::admin::installation::{InstallationState, IssuerView};
use crate::admin::key::{ImportKey, KeyView, RotateKey};
use crate::admin::mail::TestedMail;
use crate::admin::named::{Group, GroupFields, NamedFields, RegisteredScope, ScopeFields};
use crate::admin::provider::examine::ProviderReport;
use crate::admin::provider::{AddProvider, ProviderView, UpdateProvider};
use crate::admin::session::{ListSessions, RevokeSessions, Revoked, SessionView};
use crate::admin::user::{
    AddUser, InviteUser, LinkView, ListUsers, LockedUser, ResetUser, SetPassword, Unlink, UpdateUser,
    UserFactors, UserView,
};
use crate::store::StoreError;
use crate::store::backup::BackupError;

/// A command of an administrator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// `scope add`.
    ScopeAdd(NamedFields<ScopeFields>),
    /// `scope list`.
    ScopeList,
    /// `scope show`.
    ScopeShow(String),
    /// `scope update`.
    ScopeUpdate(NamedFields<ScopeFields>),
    /// `scope remove`.
    ScopeRemove(String),
    /// `group add`.
    GroupAdd(NamedFields<GroupFields>),
    /// `group list`.
    GroupList,
    /// `group show`.
    GroupShow(String),
    /// `group update`.
    GroupUpdate(NamedFields<GroupFields>),
    /// `group remove`.
    GroupRemove(String),
    /// `client add`.
    ClientAdd(Box<AddClient>),
    /// `client list`. The clients follow the reply.
    ClientList,
    /// `client show`.
    ClientShow(String),
    /// `client update`.
    ClientUpdate(Box<UpdateClient>),
    /// `client remove`.
    ClientRemove(String),
    /// `client rotate-secret`.
    ClientRotateSecret(RotateSecret),
    /// `client enable`.
    ClientEnable(String),
    /// `client disable`.
    ClientDisable(String),
    /// `client api-key add`.
    ApiKeyAdd(String),
    /// `client api-key list`.
    ApiKeyList(String),
    /// `client api-key revoke`.
    ApiKeyRevoke(WhichApiKey),
    /// `client registration-token add`.
    RegistrationTokenAdd(AddRegistrationToken),
    /// `client registration-token list`.
    RegistrationTokenList,
    /// `client registration-token remove`.
    RegistrationTokenRemove(Uuid),
    /// `user add`.
    UserAdd(Box<AddUser>),
    /// `user list`. The users follow the reply.
    UserList(ListUsers),
    /// `user show`.
    UserShow(String),
    /// `user update`.
    UserUpdate(Box<UpdateUser>),
    /// `user remove`.
    UserRemove(String),
    /// `user set-password`.
    UserSetPassword(SetPassword),
    /// `user import`, for some lines of the file.
    UserImport(ImportUsers),
    /// `user enable`.
    UserEnable(String),
    /// `user disable`.
    UserDisable(String),
    /// `user unlink`.
    UserUnlink(Unlink),
    /// `user invite`.
    UserInvite(InviteUser),
    /// `user reset`.
    UserReset(ResetUser),
    /// `user factors`.
    UserFactors(String),
    /// `user reset --factors`.
    UserResetFactors(String),
    /// `user lock`.
    UserLock(String),
    /// `provider add`.
    ProviderAdd(Box<AddProvider>),
    /// `provider list`.
    ProviderList,
    /// `provider show`.
    ProviderShow(String),
    /// `provider update`.
    ProviderUpdate(Box<UpdateProvider>),
    /// `provider remove`.
    ProviderRemove(String),
    /// `provider test`.
    ProviderTest(String),
    /// `api add`.
    ApiAdd(Box<AddApi>),
    /// `api list`.
    ApiList,
    /// `api show`.
    ApiShow(String),
    /// `api update`.
    ApiUpdate(Box<UpdateApi>),
    /// `api remove`.
    ApiRemove(String),
    /// `key list`.
    KeyList,
    /// `key rotate`.
    KeyRotate(RotateKey),
    /// `key retire`.
    KeyRetire(String),
    /// `key import`.
    KeyImport(ImportKey),
    /// `session list`.
    SessionList(ListSessions),
    /// `session revoke`.
    SessionRevoke(RevokeSessions),
    /// `mail test`, to this address.
    MailTest(String),
    /// `mail list`. The mails follow the reply.
    MailList,
    /// Asks for the issuer and the state of the service, for `doctor`.
    InstallationState,
    /// Asks for the size of the database and of its rows, for `doctor`.
    #[serde(rename = "room")]
    DatabaseSize,
    /// `compact`.
    Compact,
    /// `config set-issuer`.
    SetIssuer(String),
    /// `apply`.
    Apply(Box<Apply>),
    /// `export`, with hashes or without. The records follow the reply.
    Export(bool),
    /// `backup`. The bytes of the backup follow the reply.
    BackUp(BackUp),
}

impl Command {
    /// Whether the command changes nothing. No data directory is created for it.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::ScopeList
            | Self::ScopeShow(_)
            | Self::GroupList
            | Self::GroupShow(_)
            | Self::ClientList
            | Self::ClientShow(_)
            | Self::ApiKeyList(_)
            | Self::RegistrationTokenList
            | Self::UserList(_)
            | Self::UserShow(_)
            | Self::UserFactors(_)
            | Self::ProviderList
            | Self::ProviderShow(_)
            | Self::ProviderTest(_)
            | Self::ApiList
            | Self::ApiShow(_)
            | Self::KeyList
            | Self::SessionList(_)
            | Self::MailList
            | Self::InstallationState
            | Self::DatabaseSize
            | Self::Export(_)
            | Self::BackUp(_) => true,
            Self::Apply(request) => request.dry_run,
            Self::UserImport(request) => !request.write,
            _ => false,
        }
    }

    /// Whether the command may create the data directory, before the first start of the service. For any other command
    /// a directory without data is a mistake in its name.
    pub fn may_create_data_dir(&self) -> bool {
        match self {
            Self::RegistrationTokenAdd(_)
            | Self::ClientAdd(_)
            | Self::UserAdd(_)
            | Self::ProviderAdd(_)
            | Self::ApiAdd(_)
            | Self::ScopeAdd(_)
            | Self::GroupAdd(_)
            | Self::KeyImport(_) => true,
            Self::Apply(_) | Self::UserImport(_) => !self.is_read_only(),
            _ => false,
        }
    }
}

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// One scope value.
    Scope(Box<RegisteredScope>),
    /// All scope values.
    Scopes(Vec<RegisteredScope>),
    /// The removed scope value.
    ScopeRemoved(String),
    /// One group.
    Group(Box<Group>),
    /// All groups.
    Groups(Vec<Group>),
    /// The name of the removed group.
    GroupRemoved(String),
    /// One client.
    Client(Box<ClientView>),
    /// The identifier of the removed client.
    ClientRemoved(String),
    /// One API key.
    ApiKey(ApiKeyView),
    /// The API keys of a client.
    ApiKeys(Vec<ApiKeyView>),
    /// The revoked API key.
    ApiKeyRevoked(WhichApiKey),
    /// One initial access token.
    RegistrationToken(RegistrationTokenView),
    /// All initial access tokens.
    RegistrationTokens(Vec<RegistrationTokenView>),
    /// The id of the removed initial access token.
    RegistrationTokenRemoved(Uuid),
    /// A link for a person.
    UserLink(LinkView),
    /// The factors of a user.
    UserFactors(UserFactors),
    /// A user who was locked out.
    UserLocked(LockedUser),
    /// One user.
    User(Box<UserView>),
    /// The uuid and account identifier of the removed user.
    UserRemoved(Uuid, String),
    /// One provider.
    Provider(Box<ProviderView>),
    /// All providers.
    Providers(Vec<ProviderView>),
    /// The result of the checks of a provider.
    ProviderReport(ProviderReport),
    /// The id of the removed provider.
    ProviderRemoved(String),
    /// One API.
    Api(Box<Api>),
    /// All APIs.
    Apis(Vec<Api>),
    /// The id of the removed API.
    ApiRemoved(String),
    /// The result of some lines of an import.
    Imported(Imported),
    /// One signing key.
    Key(KeyView),
    /// All signing keys.
    Keys(Vec<KeyView>),
    /// The sessions of a user.
    Sessions(Vec<SessionView>),
    /// The number of sessions that were ended.
    Revoked(Revoked),
    /// The result of a test mail.
    MailTested(TestedMail),
    /// The previous and the new issuer.
    Issuer(IssuerView),
    /// The issuer and the state of the service.
    InstallationState(InstallationState),
    /// The size of the database and of its unused part.
    #[serde(rename = "room")]
    DatabaseSize(DatabaseSize),
    /// The size of the database before and after a compaction.
    Compacted(Compacted),
    /// The changes that were made, or that a dry run would make.
    Applied(Applied),
    /// Bytes follow until the connection ends.
    Bytes,
    /// The command was refused.
    Refused(AdminRefusal),
    /// The command could not be carried out.
    Failed(String),
}

/// A line after [`Reply::Bytes`], for a reply of many records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyLine<T> {
    /// A record.
    Record(T),
    /// The last line. A reply without it is incomplete.
    End,
}

/// Why the bytes after a reply were not all written.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The backup failed.
    #[error("the backup was not finished: {0}")]
    Backup(BackupError),
    /// The store cannot be read.
    #[error("the list was not finished: {0}")]
    Store(#[from] StoreError),
    /// The reader has closed the connection, or is too slow.
    #[error("the reply was not read to its end: {0}")]
    Unwritable(io::Error),
}

impl From<BackupError> for StreamError {
    fn from(error: BackupError) -> Self {
        match error {
            BackupError::Unwritable(error) => Self::Unwritable(error),
            error => Self::Backup(error),
        }
    }
}
