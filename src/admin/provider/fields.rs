//! What an operator says about a provider, and whether it can be.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::admin::claim::{RESERVED, check_claim_name};
use crate::admin::client::fields::{keys_of, scope_of, text_or_none, without_blank};
use crate::admin::{SecretString, Wording, check_secret, check_text};
use crate::federation::metadata::https;
use crate::federation::provider::{LinkPolicy, Logo, Provider, UpstreamAuth};
use crate::identity::User;
use crate::jose::alg::Algorithm;
use crate::jose::jwk::JwkSet;
use crate::oauth::access_token::AccessTokenClaims;
use crate::oauth::scope::Scope;
use crate::random::Random;
use crate::seal::Sealer;

const LONGEST_LIST: usize = 100;
const LONGEST_LOGO_BYTES: usize = 64 * 1024;

/// What an operator says about a provider; what is left out keeps its default or its value.
///
/// An empty text removes an optional value; a list replaces the one before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderFields {
    /// The issuer identifier.
    pub issuer: Option<String>,
    /// The name shown to people.
    pub name: Option<String>,
    /// A picture: its file, base64; empty to remove it.
    pub logo: Option<String>,
    /// The identifier of this service at the provider.
    pub client_id: Option<String>,
    /// The secret that belongs to it.
    pub client_secret: Option<SecretString>,
    /// How the service proves there who it is.
    pub auth_method: Option<UpstreamAuth>,
    /// The scope to ask for.
    pub scope: Option<Vec<String>>,
    /// Accepted audiences of tokens to be exchanged.
    pub audiences: Option<Vec<String>>,
    /// Accepted algorithms.
    pub algs: Option<Vec<Algorithm>>,
    /// The public keys as a JWK Set; empty to take those that the provider publishes.
    pub jwks: Option<String>,
    /// Where the keys are published; empty for where discovery says.
    pub jwks_uri: Option<String>,
    /// Whether tokens can be exchanged.
    pub exchange: Option<bool>,
    /// How old a token to be exchanged may be, in seconds.
    pub max_age: Option<u64>,
    /// Whether somebody unknown becomes a new user.
    pub create_users: Option<bool>,
    /// Whether somebody unknown becomes a user that exists.
    pub link: Option<LinkPolicy>,
    /// The claim for the provider's access token; empty for none.
    pub embed_token: Option<String>,
    /// E-mail domains.
    pub domains: Option<Vec<String>>,
    /// Claims whose name differs there: ours, theirs.
    pub claims: Option<Vec<(String, String)>>,
    /// Whether anybody may come in by it.
    pub enabled: Option<bool>,
}

impl ProviderFields {
    /// Writes what was said into the record; the secret is sealed by `sealing`.
    pub(in crate::admin) fn apply(
        self,
        provider: &mut Provider,
        (sealer, random): (&Sealer, &Random),
        faults: &mut Vec<String>,
    ) {
        if let Some(issuer) = self.issuer {
            provider.issuer = issuer;
        }
        if let Some(name) = self.name {
            provider.name = text_or_none(faults, "name", name);
        }
        if let Some(logo) = self.logo {
            provider.logo = read_logo(faults, &logo);
        }
        if let Some(client_id) = self.client_id {
            provider.client_id = text_or_none(faults, "client id", client_id);
        }
        if let Some(secret) = self.client_secret {
            if secret.reveal().is_empty() {
                provider.sealed_secret = None;
            } else {
                check_secret(faults, "the client secret", &secret);
                let context = Provider::secret_context(&provider.id);
                provider.sealed_secret = Some(sealer.seal_text(&context, secret.reveal(), random));
            }
        }
        provider.auth_method = self.auth_method.unwrap_or(provider.auth_method);
        if !provider.auth_method.uses_secret() {
            provider.sealed_secret = None;
        }
        if let Some(values) = self.scope {
            provider.scope = scope_of(faults, "scope", &values).with(Scope::OPENID);
        }
        if let Some(audiences) = self.audiences {
            provider.audiences = without_blank(audiences);
        }
        if let Some(algs) = self.algs {
            provider.algs = algs.into_iter().collect();
        }
        match self.jwks.as_deref() {
            None => {}
            Some("") => provider.keys.clear(),
            Some(document) => match JwkSet::parse(document.as_bytes()) {
                Ok(set) if set.keys.is_empty() => {
                    faults.push("the key set has no key for RS256, PS256, ES256 or EdDSA".to_owned());
                }
                Ok(set) => {
                    provider.keys = keys_of(&set.keys);
                    provider.jwks_uri = None;
                }
                Err(problem) => faults.push(problem.to_string()),
            },
        }
        if let Some(uri) = self.jwks_uri {
            provider.jwks_uri = text_or_none(faults, "jwks uri", uri);
            if provider.jwks_uri.is_some() {
                provider.keys.clear();
            }
        }
        provider.exchange = self.exchange.unwrap_or(provider.exchange);
        provider.max_age = self.max_age.unwrap_or(provider.max_age);
        provider.create_users = self.create_users.unwrap_or(provider.create_users);
        provider.link = self.link.unwrap_or(provider.link);
        if let Some(claim) = self.embed_token {
            provider.embed_token = text_or_none(faults, "embedded token", claim);
        }
        if let Some(domains) = self.domains {
            provider.domains = without_blank(domains);
        }
        if let Some(claims) = self.claims {
            let is_said = |(ours, theirs): &(String, String)| !(ours.is_empty() && theirs.is_empty());
            provider.claims = claims.into_iter().filter(is_said).collect();
        }
        provider.enabled = self.enabled.unwrap_or(provider.enabled);
    }
}

fn read_logo(faults: &mut Vec<String>, file: &str) -> Option<Logo> {
    if file.is_empty() {
        return None;
    }
    let Ok(bytes) = STANDARD.decode(file) else {
        faults.push("the logo is not base64".to_owned());
        return None;
    };
    if bytes.len() > LONGEST_LOGO_BYTES {
        faults.push(format!("the logo is larger than {LONGEST_LOGO_BYTES} bytes"));
    }
    let media_type = match bytes.as_slice() {
        [0x89, b'P', b'N', b'G', ..] => "image/png",
        [0xff, 0xd8, 0xff, ..] => "image/jpeg",
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => "image/webp",
        [b'<', ..] if String::from_utf8_lossy(&bytes).contains("<svg") => "image/svg+xml",
        _ => {
            faults.push("the logo is neither PNG nor JPEG nor WebP nor SVG".to_owned());
            return None;
        }
    };
    Some(Logo {
        media_type: media_type.to_owned(),
        data: file.to_owned(),
    })
}

/// Whether an identifier can be part of an address, of `amr` and of an account's name.
pub(in crate::admin) fn check_id(id: &str, faults: &mut Vec<String>) {
    let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = !id.is_empty() && id.len() <= 64 && id.bytes().all(is_fit) && !id.starts_with('-');
    if !is_name {
        faults.push(format!(
            "provider id {id:?}: use 1 to 64 lower-case letters, digits and -, as in google"
        ));
    }
    let words = ["credential", "anonymous", "client"];
    if words.contains(&id) || User::OWN_SOURCES.iter().any(|word| word.eq_ignore_ascii_case(id)) {
        faults.push(format!(
            "provider id {id:?} has a meaning of its own in tokens: choose another"
        ));
    }
}

/// Everything about the record as a whole that cannot be.
pub(in crate::admin) fn check(provider: &Provider, wording: Wording, faults: &mut Vec<String>) {
    if provider.issuer.is_empty() {
        faults.push(format!(
            "the issuer is missing: name it {}",
            wording.say("with --issuer", "in issuer")
        ));
    } else if https(&provider.issuer).is_none_or(|url| url.query().is_some()) {
        faults.push(format!(
            "issuer {:?} is not an https address without query and fragment",
            provider.issuer
        ));
    }
    if let Some(uri) = &provider.jwks_uri
        && https(uri).is_none()
    {
        faults.push(format!("jwks uri {uri:?} is not an https address"));
    }
    if provider.algs.is_empty() {
        faults.push(format!(
            "no algorithm is accepted: name one {}",
            wording.say("with --alg", "in algs")
        ));
    }
    let lists = [
        provider.audiences.len(),
        provider.domains.len(),
        provider.claims.len(),
    ];
    if lists.into_iter().any(|len| len > LONGEST_LIST) {
        faults.push(format!("more than {LONGEST_LIST} values in one list"));
    }
    for audience in &provider.audiences {
        check_text(faults, "audience", audience);
    }
    if provider.exchange && provider.accepted_audiences().is_empty() {
        faults.push(format!(
            "exchange needs an audience: name one {}",
            wording.say(
                "with --audience, or a --client-id",
                "in audiences, or a client_id"
            )
        ));
    }
    if !(1..=Provider::LONGEST_AGE).contains(&provider.max_age) {
        faults.push("max age is 1 second to 7 days".to_owned());
    }
    if !provider.exchange && !provider.signs_people_in() {
        faults.push(format!(
            "the provider is for nothing: name {}",
            wording.say(
                "a --client-id for sign-ins, or allow --exchange",
                "a client_id for sign-ins, or set exchange = true"
            )
        ));
    }
    let has_secret = provider.sealed_secret.is_some();
    if provider.signs_people_in() && provider.auth_method.uses_secret() && !has_secret {
        faults.push(format!(
            "sign-ins need the secret that belongs to the client id: {}",
            wording.say(
                "--client-secret-file, or --auth-method private_key_jwt",
                "client_secret_file or client_secret_env, or auth_method = \"private_key_jwt\""
            )
        ));
    }
    if has_secret && provider.client_id.is_none() {
        faults.push(format!(
            "a client secret belongs to a client id: name it {}",
            wording.say("with --client-id", "in client_id")
        ));
    }
    if let Some(claim) = &provider.embed_token {
        let name = claim.as_str();
        let is_ours = name == Provider::EMBEDDED_TOKEN;
        let is_taken = RESERVED.contains(&name) || AccessTokenClaims::MEMBERS.contains(&name);
        if !is_ours && (is_taken || check_claim_name(name).is_err()) {
            faults.push(format!(
                "claim {claim} belongs to the service: choose another name"
            ));
        }
    }
    for domain in &provider.domains {
        let is_plain = domain.contains('.')
            && !domain.starts_with('.')
            && domain
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
        if !is_plain {
            faults.push(format!("domain {domain:?}: write it as in example.com"));
        }
    }
    for (ours, theirs) in &provider.claims {
        if RESERVED.contains(&ours.as_str()) || check_claim_name(ours).is_err() || theirs.is_empty() {
            faults.push(format!("claim {ours}={theirs}: no such claim can be filled"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::provider::blank;
    use crate::clock::Timestamp;

    #[test]
    fn a_providers_token_is_not_named_as_another_member_of_access_tokens() {
        let is_refused = |name: &str| {
            let mut provider = blank("google".to_owned(), Timestamp::from_seconds(1));
            provider.embed_token = Some(name.to_owned());
            let mut faults = Vec::new();
            check(&provider, Wording::Flags, &mut faults);
            faults.contains(&format!(
                "claim {name} belongs to the service: choose another name"
            ))
        };
        for name in AccessTokenClaims::MEMBERS {
            assert!(is_refused(name), "{name}");
        }
        assert!(is_refused("nbf"));
        assert!(!is_refused(Provider::EMBEDDED_TOKEN) && !is_refused("google_token"));
    }
}
