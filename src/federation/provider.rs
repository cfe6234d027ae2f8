//! Registered providers and their settings.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::oauth::Logo;
use crate::oauth::fields::{Plain, fields, is_default};
use crate::oauth::scope::Scope;
use crate::route::Route;
use crate::text;

/// How the service authenticates at a provider's token endpoint (OpenID Connect Core 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamAuth {
    /// The secret in a Basic header.
    #[default]
    ClientSecretBasic,
    /// The secret in the body.
    ClientSecretPost,
    /// An assertion signed with a key of the service, which the provider fetches from the service's key set.
    PrivateKeyJwt,
}

impl UpstreamAuth {
    /// The method's registered name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientSecretBasic => "client_secret_basic",
            Self::ClientSecretPost => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
        }
    }

    pub const fn uses_secret(self) -> bool {
        match self {
            Self::ClientSecretBasic | Self::ClientSecretPost => true,
            Self::PrivateKeyJwt => false,
        }
    }
}

/// Which e-mail addresses of a provider count as those of its users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressPolicy {
    #[default]
    Never,
    /// Those that the provider has verified.
    Verified,
}

/// When a new account of a provider is linked to an existing user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkPolicy {
    #[default]
    Never,
    /// When the e-mail address is the same and verified on both sides.
    VerifiedEmail,
}

impl Plain for UpstreamAuth {}
impl Plain for AddressPolicy {}
impl Plain for LinkPolicy {}

fields! {
    /// The settings of a provider.
    ProviderSettings;

    /// A change of the settings of a provider. A field that is left out keeps its value.
    ///
    /// An empty text removes an optional value. A list replaces the stored list.
    ProviderFields;

    /// The issuer identifier (OpenID Connect Discovery 3), byte for byte as in its ID tokens.
    issuer: String;
    /// The name shown to users; the id if there is none.
    name: Option<String>;
    /// The image beside the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    logo: Option<Logo>;
    /// The `client_id` of this service at the provider; none if tokens are only exchanged.
    client_id: Option<String>;
    /// How the service authenticates at the provider.
    auth_method: UpstreamAuth;
    /// The team of the developer at Apple. If it is set, the stored secret is a private key of this team. The service
    /// signs a client secret with this key for each request, and asks for a posted answer, as Apple demands.
    #[serde(skip_serializing_if = "Option::is_none")]
    apple_team_id: Option<String>;
    /// The identifier of this private key at Apple.
    #[serde(skip_serializing_if = "Option::is_none")]
    apple_key_id: Option<String>;
    /// The scope requested at a sign-in.
    scope: Scope = Scope::of([Scope::OPENID, "profile", "email"]).unwrap_or_default();
    /// The accepted audiences of exchanged tokens; `client_id` if there are none.
    audiences: Vec<String>;
    /// The accepted signature algorithms of its ID tokens.
    algs: BTreeSet<Algorithm> = BTreeSet::from([Algorithm::Rs256]);
    /// Its public keys, each a JSON Web Key (RFC 7517 section 4), if the operator set them.
    keys: Vec<Value>;
    /// The address of its key set, if there are no `keys` and discovery is not used.
    jwks_uri: Option<String>;
    /// Whether its ID tokens can be exchanged for tokens of this service.
    exchange: bool;
    /// Whether clients may present its identity assertions for this service (ID-JAG).
    #[serde(skip_serializing_if = "is_default")]
    id_jag: bool;
    /// The greatest age of an exchanged token, in seconds.
    max_age: u64 = Provider::MAX_AGE;
    /// Whether an unknown account becomes a new user.
    create_users: bool;
    /// Which of its e-mail addresses count as those of its users. `link` = `verified-email` implies `verified`.
    addresses: AddressPolicy;
    /// When an unknown account is linked to an existing user.
    link: LinkPolicy;
    /// The claim of access tokens that contains the provider's access token; none to drop that token.
    embed_token: Option<String> = Some(Provider::EMBEDDED_TOKEN.to_owned());
    /// The e-mail domains of its users. With `login_hint`, users of these domains are redirected to the provider without
    /// a page. If there are any, addresses of other domains do not count as those of its users.
    domains: Vec<String>;
    /// The values of `amr` in its ID tokens that mean two factors. Without any, and without `mfa_acr`, a sign-in there is one
    /// factor.
    #[serde(skip_serializing_if = "is_default")]
    mfa_amr: Vec<String>;
    /// The values of `acr` in its ID tokens that mean two factors.
    #[serde(skip_serializing_if = "is_default")]
    mfa_acr: Vec<String>;
    /// Claims with another name at the provider: the name here, then the name there.
    claims: BTreeMap<String, String>;
    /// Whether the provider may be used.
    enabled: bool = true;
}

/// A registered provider. It dereferences to its settings: `provider.issuer` is `provider.settings.issuer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// The identifier that the operator chose. It is `source` and `amr` of its users, and a part of addresses.
    pub id: String,
    /// A random id of this record. Sign-ins store it, so a later provider of the same id does not inherit them. A new
    /// issuer gets a new one. Records of older releases have nil, and so do their sign-ins.
    #[serde(default, skip_serializing_if = "Uuid::is_nil")]
    pub incarnation: Uuid,
    /// The client secret, sealed with [`Provider::secret_context`], base64url.
    pub sealed_secret: Option<String>,
    pub settings: ProviderSettings,
    /// When the record was made.
    pub created_at: Timestamp,
    /// When the record last changed.
    pub updated_at: Timestamp,
}

impl Deref for Provider {
    type Target = ProviderSettings;

    fn deref(&self) -> &ProviderSettings {
        &self.settings
    }
}

impl DerefMut for Provider {
    fn deref_mut(&mut self) -> &mut ProviderSettings {
        &mut self.settings
    }
}

impl Provider {
    /// The default of `embed_token`.
    pub const EMBEDDED_TOKEN: &'static str = "upstream_access_token";
    /// The default of `max_age`: 1 h, the lifetime of most ID tokens.
    pub const MAX_AGE: u64 = 3600;
    /// The limit of `max_age`: a week. An older ID token does not show that its holder is still the user.
    pub const LONGEST_AGE: u64 = 7 * 24 * 3600;

    /// A provider with default settings.
    pub fn new(id: String, incarnation: Uuid, now: Timestamp) -> Self {
        Self {
            id,
            incarnation,
            sealed_secret: None,
            settings: ProviderSettings::default(),
            created_at: now,
            updated_at: now,
        }
    }

    /// The name shown to users.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// The redirect URI that must be registered at the provider.
    pub fn redirect_uri(&self, issuer: &str) -> String {
        Route::FederationCallback(self.id.clone()).url(issuer)
    }

    /// The context that the secret of a provider is sealed with.
    pub fn secret_context(id: &str) -> String {
        format!("providers/{id}/client_secret")
    }

    /// The accepted audiences of exchanged tokens.
    pub fn accepted_audiences(&self) -> &[String] {
        if self.audiences.is_empty() {
            self.client_id.as_slice()
        } else {
            &self.audiences
        }
    }

    /// Whether users can sign in at the provider.
    pub fn signs_people_in(&self) -> bool {
        self.client_id.is_some()
    }

    /// Whether the provider posts its answer to the redirect URI (`response_mode=form_post`).
    pub fn posts_answer(&self) -> bool {
        self.apple_team_id.is_some()
    }

    /// The greatest age of an exchanged token.
    pub fn longest_age(&self) -> Duration {
        Duration::from_secs(self.max_age)
    }

    /// The policy for addresses in force.
    pub fn address_policy(&self) -> AddressPolicy {
        match self.link {
            LinkPolicy::VerifiedEmail => AddressPolicy::Verified,
            LinkPolicy::Never => self.addresses,
        }
    }

    /// Whether an address that the provider has verified counts as that of its user.
    pub fn vouches_for(&self, verified_email: &str) -> bool {
        match self.address_policy() {
            AddressPolicy::Never => false,
            AddressPolicy::Verified => self.domains.is_empty() || self.serves_domain_of(verified_email),
        }
    }

    /// Whether the claims of its ID token say that the user authenticated with two factors, in a value that the operator
    /// trusts for it. `amr` is an array and `acr` a text (OpenID Connect Core 2).
    pub fn has_two_factors(&self, claims: &Map<String, Value>) -> bool {
        let is_trusted = |trusted: &[String], value: &Value| {
            let value = value.as_str();
            value.is_some_and(|value| trusted.iter().any(|trusted| trusted == value))
        };
        let mut amr = claims.get("amr").and_then(Value::as_array).into_iter().flatten();
        let acr = claims.get("acr");
        amr.any(|value| is_trusted(&self.mfa_amr, value))
            || acr.is_some_and(|value| is_trusted(&self.mfa_acr, value))
    }

    /// Whether the domain of this address is one of the provider's. Case does not matter.
    pub fn serves_domain_of(&self, email: &str) -> bool {
        let domain = email
            .rsplit_once('@')
            .and_then(|(_, domain)| text::a_labels(domain));
        domain.is_some_and(|domain| {
            let mut mine = self.domains.iter();
            mine.any(|mine| text::a_labels(mine).is_some_and(|mine| mine == domain))
        })
    }
}
