//! A provider as the operator has registered it: whom it speaks for, and what is believed of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Timestamp;
use crate::jose::alg::Algorithm;
use crate::oauth::fields::{Field, Form, Plain, fields};
use crate::oauth::scope::Scope;
use crate::route::Route;

/// How the service proves to a provider's token endpoint who it is (OpenID Connect Core 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamAuth {
    /// The secret in a Basic header.
    #[default]
    ClientSecretBasic,
    /// The secret in the body.
    ClientSecretPost,
    /// An assertion signed with the service's own key, which the provider reads from the service's key set.
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

    /// Whether it takes a secret.
    pub const fn uses_secret(self) -> bool {
        match self {
            Self::ClientSecretBasic | Self::ClientSecretPost => true,
            Self::PrivateKeyJwt => false,
        }
    }
}

/// When somebody new from a provider becomes a user that exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkPolicy {
    /// Never.
    #[default]
    Never,
    /// When the e-mail address is the same and verified on both sides.
    VerifiedEmail,
}

/// A picture for the button that leads to the provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logo {
    /// The media type.
    pub media_type: String,
    /// The file, base64.
    pub data: String,
}

/// Stored by its file in base64, from which the media type follows.
impl Field for Option<Logo> {
    type Change = String;
    const FORM: Form = Form::Text;

    fn change(&mut self, to: String, _: &str, faults: &mut Vec<String>) {
        *self = match Logo::read(to) {
            Ok(logo) => logo,
            Err(fault) => {
                faults.push(fault);
                None
            }
        };
    }
}

impl Logo {
    const MOST_BYTES: usize = 64 * 1024;

    /// The picture of a file in base64; none when it is empty.
    fn read(data: String) -> Result<Option<Self>, String> {
        if data.is_empty() {
            return Ok(None);
        }
        let bytes = STANDARD
            .decode(&data)
            .map_err(|_| "the logo is not base64".to_owned())?;
        if bytes.len() > Self::MOST_BYTES {
            return Err(format!("the logo is larger than {} bytes", Self::MOST_BYTES));
        }
        let media_type = match bytes.as_slice() {
            [0x89, b'P', b'N', b'G', ..] => "image/png",
            [0xff, 0xd8, 0xff, ..] => "image/jpeg",
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
            [b'<', ..] if String::from_utf8_lossy(&bytes).contains("<svg") => "image/svg+xml",
            _ => return Err("the logo is neither PNG nor JPEG nor WebP nor SVG".to_owned()),
        };
        let media_type = media_type.to_owned();
        Ok(Some(Self { media_type, data }))
    }
}

impl Plain for UpstreamAuth {}
impl Plain for LinkPolicy {}

fields! {
    /// What is registered of a provider.
    ProviderSettings;

    /// What an operator says about a provider; what is left out keeps its default or its value.
    ///
    /// An empty text removes an optional value; a list replaces the one before.
    ProviderFields;

    /// Its issuer identifier (OpenID Connect Discovery 3), byte for byte as in its tokens.
    issuer: String;
    /// The name shown to people; the identifier when there is none.
    name: Option<String>;
    /// The picture beside the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    logo: Option<Logo>;
    /// The identifier under which this service is registered there; none where only tokens are exchanged.
    client_id: Option<String>;
    /// How the service proves there who it is.
    auth_method: UpstreamAuth;
    /// The scope asked for when somebody signs in.
    scope: Scope = Scope::of([Scope::OPENID, "profile", "email"]).unwrap_or_default();
    /// The audiences of which a token to be exchanged must have one; `client_id` when there are none.
    audiences: Vec<String>;
    /// The algorithms its ID tokens may be signed with.
    algs: BTreeSet<Algorithm> = BTreeSet::from([Algorithm::Rs256]);
    /// Its public keys, each a JSON Web Key (RFC 7517 section 4), where the operator gave them.
    keys: Vec<Value>;
    /// Where its keys are published, where neither they nor discovery say.
    jwks_uri: Option<String>;
    /// Whether its ID tokens can be exchanged for tokens of this service.
    exchange: bool;
    /// How old a token to be exchanged may be, in seconds.
    max_age: u64 = Provider::MAX_AGE;
    /// Whether somebody unknown becomes a new user.
    create_users: bool;
    /// Whether somebody unknown becomes a user that exists.
    link: LinkPolicy;
    /// The claim of access tokens in which the provider's access token stands; none to keep nothing of it.
    embed_token: Option<String> = Some(Provider::EMBEDDED_TOKEN.to_owned());
    /// The e-mail domains whose people are sent straight there when a client names one of them.
    domains: Vec<String>;
    /// Claims whose name differs there: ours, then the provider's.
    claims: BTreeMap<String, String>;
    /// Whether anybody may come in by it.
    enabled: bool = true;
}

/// A registered provider. What is registered of it can be read as if it were its own: `provider.issuer` is
/// `provider.settings.issuer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// The name under which the operator knows it: `source` and `amr` of its users, and part of addresses.
    pub id: String,
    /// The secret that belongs to its `client_id`, sealed with [`Provider::secret_context`], base64url.
    pub sealed_secret: Option<String>,
    /// What is registered of it.
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
    /// The claim in which a provider's access token stands unless the operator says otherwise.
    pub const EMBEDDED_TOKEN: &'static str = "upstream_access_token";
    /// How old a token to be exchanged may be unless the operator says otherwise: 1 h, what most ID tokens last.
    pub const MAX_AGE: u64 = 3600;
    /// How old a token to be exchanged may be, whatever the operator says: a week. ID tokens that are older prove nothing
    /// of the person who holds them.
    pub const LONGEST_AGE: u64 = 7 * 24 * 3600;

    /// A provider of which nothing is registered yet.
    pub fn new(id: String, now: Timestamp) -> Self {
        Self {
            id,
            sealed_secret: None,
            settings: ProviderSettings::default(),
            created_at: now,
            updated_at: now,
        }
    }

    /// The name shown to people.
    pub fn display_name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.id)
    }

    /// Where the provider sends people back to: what has to be registered there.
    pub fn redirect_uri(&self, issuer: &str) -> String {
        Route::FederationCallback(self.id.clone()).url(issuer)
    }

    /// What the secret of a provider is sealed for.
    pub fn secret_context(id: &str) -> String {
        format!("providers/{id}/client_secret")
    }

    /// The audiences of which a token to be exchanged must have one.
    pub fn accepted_audiences(&self) -> &[String] {
        if self.audiences.is_empty() {
            self.client_id.as_slice()
        } else {
            &self.audiences
        }
    }

    /// Whether people can be sent there to sign in.
    pub fn signs_people_in(&self) -> bool {
        self.client_id.is_some()
    }

    /// How old a token to be exchanged may be.
    pub fn longest_age(&self) -> Duration {
        Duration::from_secs(self.max_age)
    }

    /// Whether people with this address are sent straight there. Domains do not depend on case.
    pub fn serves_domain_of(&self, email: &str) -> bool {
        let domain = email.rsplit_once('@').map(|(_, domain)| domain);
        domain.is_some_and(|domain| self.domains.iter().any(|mine| mine.eq_ignore_ascii_case(domain)))
    }
}
