//! The list of all operations. The control protocol, its dispatch and [`OPERATIONS`] follow from it.
//!
//! A new operation touches three files: its own (with a `mod` line in its noun), this list, and its flags in `src/cli`.

use std::io::Write;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::operation::{Effect, Operation};
use super::stream::{StreamError, StreamOperation, to_line};
use super::{Admin, AdminResult};

/// An operation in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationInfo {
    /// The command, as in `user lock`.
    pub name: &'static str,
    /// What it does to what is stored.
    pub effect: Effect,
    /// What it does, in a sentence.
    pub about: &'static str,
}

macro_rules! operations {
    (
        calls: {
            $($(#[doc = $call_doc:literal])* $call_noun:ident::$call:ident;)*
        }
        streams: {
            $($(#[doc = $stream_doc:literal])* $stream_noun:ident::$stream:ident;)*
        }
    ) => {
        /// An operation with its input.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Call {
            $($(#[doc = $call_doc])* $call(Box<super::$call_noun::$call>),)*
        }

        $(impl From<super::$call_noun::$call> for Call {
            fn from(operation: super::$call_noun::$call) -> Self {
                Self::$call(Box::new(operation))
            }
        })*

        impl Call {
            /// Carries out the operation. Returns its output as a line of JSON.
            pub async fn run(self, admin: Admin<'_>) -> AdminResult<Zeroizing<Vec<u8>>> {
                match self {
                    $(Self::$call(operation) => Ok(to_line(&admin.call(*operation).await?)?),)*
                }
            }
        }

        /// An operation that answers with a stream, with its input.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum StreamCall {
            $($(#[doc = $stream_doc])* $stream(super::$stream_noun::$stream),)*
        }

        $(impl From<super::$stream_noun::$stream> for StreamCall {
            fn from(operation: super::$stream_noun::$stream) -> Self {
                Self::$stream(operation)
            }
        })*

        impl StreamCall {
            /// Writes what the operation answers. Blocks.
            pub fn write(self, admin: Admin<'_>, sink: &mut dyn Write) -> Result<(), StreamError> {
                match self {
                    $(Self::$stream(operation) => admin.stream(operation, sink),)*
                }
            }

            /// Whether a service ends it if it takes too long.
            pub fn has_deadline(&self) -> bool {
                match self {
                    $(Self::$stream(_) => super::$stream_noun::$stream::HAS_DEADLINE,)*
                }
            }
        }

        pub const OPERATIONS: &[OperationInfo] = &[
            $(OperationInfo {
                name: super::$call_noun::$call::NAME,
                effect: super::$call_noun::$call::EFFECT,
                about: concat!($($call_doc),*).trim_ascii(),
            },)*
            $(OperationInfo {
                name: super::$stream_noun::$stream::NAME,
                effect: Effect::Read,
                about: concat!($($stream_doc),*).trim_ascii(),
            },)*
        ];
    };
}

operations! {
    calls: {
        /// Registers a scope value that releases claims of users.
        scope::AddScope;
        /// All registered scope values, by name.
        scope::ListScopes;
        /// One scope value.
        scope::ShowScope;
        /// Changes a scope value.
        scope::UpdateScope;
        /// Removes a scope value.
        scope::RemoveScope;

        /// Adds a group of users.
        group::AddGroup;
        /// All groups, by name.
        group::ListGroups;
        /// One group.
        group::ShowGroup;
        /// Changes a group.
        group::UpdateGroup;
        /// Removes a group.
        group::RemoveGroup;

        /// Registers a client.
        client::AddClient;
        /// One client.
        client::ShowClient;
        /// Changes a client.
        client::UpdateClient;
        /// Removes a client with all that was granted to it.
        client::RemoveClient;
        /// Gives a client a new secret.
        client::RotateSecret;
        /// The valid secrets of a client, newest first, with their last uses.
        client::ListSecrets;
        /// Revokes one secret of a client.
        client::RevokeSecret;
        /// Enables a client.
        client::EnableClient;
        /// Disables a client.
        client::DisableClient;
        /// Adds an API key to a client.
        client::AddApiKey;
        /// The API keys of a client, oldest first.
        client::ListApiKeys;
        /// Revokes an API key.
        client::RevokeApiKey;
        /// Makes an initial access token, with which clients register themselves.
        client::AddRegistrationToken;
        /// All initial access tokens, oldest first.
        client::ListRegistrationTokens;
        /// Removes an initial access token.
        client::RemoveRegistrationToken;

        /// Adds a user.
        user::AddUser;
        /// One user.
        user::ShowUser;
        /// Changes a user.
        user::UpdateUser;
        /// Removes a user with everything that belongs to them.
        user::RemoveUser;
        /// Removes some of the users that a filter has, a hundred at a time.
        user::RemoveUsers;
        /// Sets or removes the password of a user.
        user::SetPassword;
        /// Enables a user.
        user::EnableUser;
        /// Disables a user.
        user::DisableUser;
        /// Disables a user, and ends all sessions and refresh tokens.
        user::LockUser;
        /// Removes the links between a user and a provider.
        user::UnlinkUser;
        /// Invites a person to create an account.
        user::InviteUser;
        /// Revokes the open invitation of an address.
        user::RevokeInvitations;
        /// Makes a link with which a user chooses a new password.
        user::ResetUser;
        /// The factors of a user.
        user::ListFactors;
        /// The clients that a user may use.
        user::ShowAccess;
        /// Removes all factors of a user.
        user::ResetFactors;
        /// Imports users from another system.
        import::ImportUsers;

        /// Registers an upstream provider.
        provider::AddProvider;
        /// All providers, by id.
        provider::ListProviders;
        /// One provider.
        provider::ShowProvider;
        /// Changes a provider.
        provider::UpdateProvider;
        /// Removes a provider, and ends the sessions and refresh tokens that began there.
        provider::RemoveProvider;
        /// Tests a provider as a sign-in would use it.
        provider::TestProvider;

        /// Registers an API.
        api::AddApi;
        /// All APIs, by id.
        api::ListApis;
        /// One API.
        api::ShowApi;
        /// Changes an API.
        api::UpdateApi;
        /// Removes an API.
        api::RemoveApi;

        /// All signing keys, by algorithm and state.
        key::ListKeys;
        /// Makes a new key and introduces it.
        key::RotateKey;
        /// Takes a key out of service.
        key::RetireKey;
        /// Introduces a key that was made elsewhere.
        key::ImportKey;

        /// The sessions of a user.
        session::ListSessions;
        /// Ends a session, or all sessions of a user.
        session::RevokeSessions;

        /// Sends a mail that tests the settings.
        mail::TestMail;

        /// The issuer and the state of the service.
        installation::ReadInstallation;
        /// Replaces the issuer.
        installation::SetIssuer;

        /// The size of the database and of its rows.
        database::MeasureDatabase;
        /// Returns unused space to the file system.
        database::Compact;

        /// Makes the changes that a declared state needs.
        apply::Apply;
    }
    streams: {
        /// All clients, by identifier.
        client::ListClients;
        /// The users who may use a client or have used it, in the order in which they were added.
        client::ListAccess;
        /// Users that a filter has, in the order in which they were added.
        user::ListUsers;
        /// The open invitations, the oldest first.
        user::ListInvitations;
        /// All live sessions, in the order in which they began.
        session::ListAllSessions;
        /// The mails that wait.
        mail::ListMails;
        /// The stored records as entries of a file.
        apply::Export;
        /// A copy of all rows from one snapshot.
        backup::BackUp;
    }
}
