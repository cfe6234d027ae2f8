//! Profiles of clients: rules that a client must follow. A setting that breaks one is refused.
//!
//! A profile sets fields of the record. Rules that no field expresses, such as the longest life of a code, are applied by the
//! code that issues or checks it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::jose::alg::Algorithm;
use crate::oauth::authorize::ResponseTarget;
use crate::oauth::client::{AuthMethod, Client};
pub use crate::oauth::client_metadata::ClientProfile;
use crate::oauth::client_metadata::{
    AssertionAudience, ClientFields, ClientMetadata, GrantType, PkceRequirement, RefreshPolicy,
};
use crate::oauth::error::Refusal;

const AUTHENTICATION: &str = "FAPI 2.0 Security Profile section 5.3.2.1: clients authenticate with a key";
const AUDIENCE: &str = "FAPI 2.0 Security Profile section 5.3.2.1: assertions name the issuer alone";
const ROTATION: &str = "FAPI 2.0 Security Profile section 5.3.2.1: refresh tokens are not rotated";
const BOUND: &str =
    "FAPI 2.0 Security Profile section 5.3.2.1: access tokens are bound to a key of the client";
const PUSHED: &str =
    "FAPI 2.0 Security Profile section 5.3.2.2: authorization requests that were not pushed are refused";
const PKCE: &str =
    "FAPI 2.0 Security Profile section 5.3.2.2: a code challenge with every authorization request";
const SIGNED_REQUEST: &str =
    "FAPI 2.0 Message Signing section 5.3.1: requests that were not signed are refused";
const ALGORITHM: &str = "FAPI 2.0 Security Profile section 5.4: PS256, ES256 or EdDSA";

/// The algorithms of FAPI 2.0 Security Profile section 5.4.
const FAPI_ALGORITHMS: [Algorithm; 3] = [Algorithm::Ps256, Algorithm::Es256, Algorithm::EdDsa];

/// How long a pushed request of a client with a profile lasts at most (FAPI 2.0 Security Profile section 5.3.2.2).
pub const MAX_PUSHED_AGE: Duration = Duration::from_secs(599);

/// How long a code of a client with a profile lasts at most (FAPI 2.0 Security Profile section 5.3.2.1).
pub const MAX_CODE_AGE: Duration = Duration::from_mins(1);

/// The answer to a client that must ask for a signed response and did not.
pub const ANSWER_NOT_SIGNED: Refusal =
    Refusal::invalid_request("this client must ask for a signed response, as with response_mode=jwt");

impl ClientProfile {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fapi2 => "fapi2",
            Self::Fapi2MessageSigning => "fapi2-message-signing",
        }
    }

    /// Sets the fields that a change of a client leaves out as the profile demands. `before` is the record before.
    pub fn complete(self, change: &mut ClientFields, before: &ClientMetadata) {
        change.assertion_audience.get_or_insert(AssertionAudience::Strict);
        change.pkce.get_or_insert(PkceRequirement::Required);
        change.require_pushed_authorization_requests.get_or_insert(true);
        change.refresh_policy.get_or_insert(RefreshPolicy::Reuse);
        let binds_to_certificate = change
            .tls_client_certificate_bound_access_tokens
            .unwrap_or(before.tls_client_certificate_bound_access_tokens);
        change
            .dpop_bound_access_tokens
            .get_or_insert(!binds_to_certificate);
        if self == Self::Fapi2MessageSigning {
            change.require_signed_request_object.get_or_insert(true);
        }
    }

    /// The rules that a client with these settings breaks.
    pub fn broken_rules(self, metadata: &ClientMetadata, methods: &BTreeSet<AuthMethod>) -> Vec<BrokenRule> {
        let mut broken = broken_by_credentials(metadata, methods);
        let mut add = |is_broken: bool, rule, field, problem| {
            if is_broken {
                broken.push(BrokenRule { rule, field, problem });
            }
        };
        let signs_in = metadata.grant_types.contains(&GrantType::AuthorizationCode);
        let is_bound =
            metadata.dpop_bound_access_tokens || metadata.tls_client_certificate_bound_access_tokens;
        add(
            !is_bound,
            BOUND,
            "dpop_bound_access_tokens",
            "its access tokens work without a key: a stolen one can be used",
        );
        let request_objects = ("request_object_signing_alg", metadata.request_object_signing_alg);
        for (field, algorithm) in metadata.signing_algs().into_iter().chain([request_objects]) {
            let problem = "it names an algorithm that FAPI does not allow";
            let is_broken = algorithm.is_some_and(|algorithm| !FAPI_ALGORITHMS.contains(&algorithm));
            add(is_broken, ALGORITHM, field, problem);
        }
        add(
            signs_in && metadata.pkce == PkceRequirement::Optional,
            PKCE,
            "pkce",
            "PKCE is optional: a stolen code can be injected into another sign-in",
        );
        add(
            signs_in && !metadata.require_pushed_authorization_requests,
            PUSHED,
            "require_pushed_authorization_requests",
            "its sign-ins may begin with parameters that the browser carries",
        );
        let gets_id_tokens = metadata
            .grant_types
            .iter()
            .any(|grant| *grant != GrantType::ClientCredentials);
        add(
            gets_id_tokens && metadata.profile.is_none() && metadata.id_token_signed_response_alg.is_none(),
            ALGORITHM,
            "id_token_signed_response_alg",
            "its ID tokens are signed with RS256",
        );
        if self == Self::Fapi2MessageSigning {
            add(
                signs_in && !metadata.require_signed_request_object,
                SIGNED_REQUEST,
                "require_signed_request_object",
                "its authorization requests need no signature",
            );
        }
        broken
    }
}

/// The rules that concern how a client authenticates, and its refresh tokens.
fn broken_by_credentials(metadata: &ClientMetadata, methods: &BTreeSet<AuthMethod>) -> Vec<BrokenRule> {
    let mut broken = Vec::new();
    let mut add = |rule, field, problem| broken.push(BrokenRule { rule, field, problem });
    let uses_secret =
        methods.contains(&AuthMethod::ClientSecretBasic) || methods.contains(&AuthMethod::ClientSecretPost);
    let signs = methods.contains(&AuthMethod::PrivateKeyJwt);
    let has_key = signs || methods.iter().any(|method| method.uses_certificate());
    if methods.contains(&AuthMethod::None) {
        let problem = "it is public: any program that has its identifier can pass for it";
        add(AUTHENTICATION, "profile", problem);
        return broken;
    }
    if uses_secret && has_key {
        let problem = "it may authenticate with its secret as well as with its key";
        add(AUTHENTICATION, "no_secret", problem);
    } else if uses_secret {
        let problem = "it authenticates with a secret, not with a key";
        add(AUTHENTICATION, "keys", problem);
    }
    if signs && metadata.assertion_audience == AssertionAudience::Any {
        let problem = "its assertions may name the token endpoint: another server can ask for such an assertion and use it here";
        add(AUDIENCE, "assertion_audience", problem);
    }
    if metadata.grant_types.contains(&GrantType::RefreshToken)
        && metadata.refresh_policy == RefreshPolicy::Rotate
    {
        add(
            ROTATION,
            "refresh_policy",
            "each refresh replaces its refresh token",
        );
    }
    broken
}

/// A rule that a client breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokenRule {
    /// The rule, with the section of the standard.
    pub rule: &'static str,
    /// The field of the record that breaks it.
    pub field: &'static str,
    /// What is wrong with the client.
    pub problem: &'static str,
}

impl Client {
    /// Whether the client may be answered there: FAPI 2.0 Message Signing demands signed responses (section 5.4).
    pub fn accepts_answer(&self, target: &ResponseTarget) -> bool {
        self.profile != Some(ClientProfile::Fapi2MessageSigning) || target.signing.is_some()
    }

    /// The algorithm with which the service signs for the client in the place of this one.
    pub fn allowed_algorithm(&self, usual: Algorithm) -> Algorithm {
        if self.may_use_algorithm(usual) {
            usual
        } else {
            Algorithm::Es256
        }
    }

    /// Whether this algorithm may be used for the client and by it (FAPI 2.0 Security Profile section 5.4).
    pub fn may_use_algorithm(&self, algorithm: Algorithm) -> bool {
        self.profile.is_none() || FAPI_ALGORITHMS.contains(&algorithm)
    }
}
