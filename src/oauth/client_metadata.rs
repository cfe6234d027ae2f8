//! What is registered of a client, with the metadata names of RFC 7591 section 2.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::jose::alg::Algorithm;
use crate::oauth::client::GrantType;
use crate::oauth::fields::{Plain, fields};
use crate::oauth::scope::Scope;

/// Whom the assertions of a client must be addressed to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssertionAudience {
    /// The issuer or the token endpoint (RFC 7523 section 3).
    #[default]
    Any,
    /// The issuer, and nobody else.
    Strict,
}

/// Whether a confidential client must use PKCE. A public one always must.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PkceRequirement {
    /// A code challenge may be left out.
    #[default]
    Optional,
    /// A request without a code challenge is refused.
    Required,
}

/// Whether the user is asked before a client gets tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsentRequirement {
    /// The operator vouches for the client.
    #[default]
    Skip,
    /// The user is asked for scopes not yet allowed.
    Require,
}

/// What a refresh does with the refresh token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefreshPolicy {
    /// Each use replaces it (RFC 9700 section 4.14.2).
    #[default]
    Rotate,
    /// It stays as it is, for clients that prove who they are (FAPI 2.0 Security Profile).
    Reuse,
}

impl Plain for Algorithm {}
impl Plain for GrantType {}
impl Plain for AssertionAudience {}
impl Plain for PkceRequirement {}
impl Plain for ConsentRequirement {}
impl Plain for RefreshPolicy {}

fields! {
    /// What is registered of a client.
    ClientMetadata;

    /// What an operator says about a client; what is left out keeps its default or its value.
    ///
    /// An empty text removes an optional value; a list replaces the one before.
    ClientFields;

    /// The name shown to people; the identifier when there is none.
    client_name as "name": Option<String>;
    /// Where people may be sent back to, compared by equality.
    redirect_uris: Vec<String>;
    /// Where people may be sent after signing out, compared by equality.
    post_logout_redirect_uris: Vec<String>;
    /// Origins beside those of the redirect URIs from which scripts may call.
    cors_origins: Vec<String>;
    /// The scope values the client may be granted.
    scope: Scope = Scope::of(Scope::STANDARD).unwrap_or_default();
    /// The scope when a request names none.
    default_scope: Scope = Scope::empty().with(Scope::OPENID);
    /// The grants the client may use.
    grant_types: BTreeSet<GrantType>;
    /// Whether PKCE is demanded of a confidential client.
    pkce: PkceRequirement;
    /// Whether people are asked for consent.
    consent: ConsentRequirement;
    /// The providers whose people may come in by this client, by id.
    providers: BTreeSet<String>;
    /// Whether its people may sign in with a stored password.
    password_sign_in: bool = true;
    /// The `aud` of its access tokens; the issuer when there is none.
    audience: Option<String>;
    /// The algorithm of its ID tokens; RS256 when there is none (OpenID Connect Registration 2).
    id_token_signed_response_alg: Option<Algorithm>;
    /// The algorithm of its access tokens; the service's when there is none.
    access_token_alg: Option<Algorithm>;
    /// What a refresh does with the refresh token.
    refresh_policy: RefreshPolicy;
    /// The theme of its pages; the service's when there is none.
    theme: Option<String>;
    /// What the consent page says of scope values, in the place of other words for them.
    scope_texts: BTreeMap<String, String>;
    /// The public keys that its assertions are checked with, each a JSON Web Key (RFC 7517 section 4).
    jwks as "keys": Vec<Value>;
    /// Where the client publishes these keys, instead of registering them.
    jwks_uri: Option<String>;
    /// Whom its assertions must be addressed to.
    assertion_audience: AssertionAudience;
    /// The most that it may be granted for itself when it authenticates with a secret; none when it may not.
    max_scope: Option<Scope>;
}
