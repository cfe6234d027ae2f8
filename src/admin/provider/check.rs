//! Checks the settings of a provider.

use crate::admin::claim::{RESERVED, check_claim_name};
use crate::admin::{SecretString, check_secret, check_text};
use crate::federation::metadata::https;
use crate::federation::provider::{Provider, ProviderFields, ProviderSettings, UpstreamAuth};
use crate::flow::Core;
use crate::identity::User;
use crate::jose::alg::Algorithm;
use crate::jose::keyring::SigningKey;
use crate::oauth::access_token::AccessTokenClaims;
use crate::oauth::scope::Scope;
use crate::oauth::{Fault, FaultCode};

const MAX_LIST_LEN: usize = 100;
/// Written instead of the name of a claim, for no claim.
pub(in crate::admin) const NO_CLAIM: &str = "off";

/// A secret that was sealed before the transaction, which draws no random bytes.
#[derive(Clone)]
pub(in crate::admin) struct PreparedSecret {
    clear: SecretString,
    /// `None` if it is empty, which removes the stored one.
    sealed: Option<String>,
}

impl PreparedSecret {
    /// Seals the secret for the provider of this id.
    pub(in crate::admin) fn new(id: &str, clear: SecretString, core: &Core) -> Self {
        let context = Provider::secret_context(id);
        let seal = || core.sealer.seal_text(&context, clear.reveal(), &core.random);
        let sealed = (!clear.reveal().is_empty()).then(seal);
        Self { clear, sealed }
    }
}

/// Applies a change to a provider. Keys and the address of published keys replace each other.
pub(in crate::admin) fn apply(
    fields: ProviderFields,
    secret: Option<&PreparedSecret>,
    provider: &mut Provider,
    faults: &mut Vec<Fault>,
) {
    // A list that is empty stands for the client id, which an added audience does not replace.
    let before = ProviderSettings {
        audiences: provider.accepted_audiences().to_vec(),
        ..provider.settings.clone()
    };
    let mut fields = fields.apply_edits(&before, faults);
    let was_apple = provider.apple_team_id.is_some();
    let names_method = fields.auth_method.is_some();
    let brings_keys = fields.keys.as_ref().is_some_and(|keys| !keys.is_empty());
    if fields.embed_token.as_deref() == Some(NO_CLAIM) {
        fields.embed_token = Some(String::new());
    }
    if let Some(mut claims) = fields.claims.take() {
        let is_removed = |ours: &str, theirs: &str| {
            theirs.is_empty() && (ours.is_empty() || provider.claims.contains_key(ours))
        };
        claims.retain(|ours, theirs| !is_removed(ours, theirs));
        provider.claims = claims;
    }
    fields.apply(&mut provider.settings, faults);
    provider.settings.scope = std::mem::take(&mut provider.settings.scope).with(Scope::OPENID);
    if brings_keys {
        provider.jwks_uri = None;
    } else if provider.jwks_uri.is_some() {
        provider.keys.clear();
    }
    let is_apple = provider.apple_team_id.is_some();
    if is_apple && !names_method {
        provider.auth_method = UpstreamAuth::ClientSecretPost;
    }
    // A stored secret is no private key, and a private key must not be sent as a secret.
    if was_apple != is_apple {
        provider.sealed_secret = None;
    }
    if let Some(secret) = secret {
        if !is_apple {
            check_secret(faults, "client_secret", &secret.clear);
        } else if let Err(problem) = SigningKey::from_pem(secret.clear.reveal(), Some(Algorithm::Es256))
            && secret.sealed.is_some()
        {
            let detail = format!("the secret for Apple is not its private key for ES256: {problem}");
            faults.push(FaultCode::Invalid.at(["client_secret"], detail));
        }
        provider.sealed_secret.clone_from(&secret.sealed);
    }
    if !provider.auth_method.uses_secret() {
        provider.sealed_secret = None;
    }
}

/// Whether a text can be the id of a provider or an API.
pub(in crate::admin) fn is_id(id: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !id.is_empty() && id.len() <= 64 && id.bytes().all(is_fit) && !id.starts_with('-')
}

/// Checks the id of a provider, which becomes a part of addresses, of `amr` and of account identifiers.
pub(in crate::admin) fn check_id(id: &str, faults: &mut Vec<Fault>) {
    if !is_id(id) {
        let detail =
            format!("provider id {id:?}: use 1 to 64 lower-case letters, digits and -, as in google");
        faults.push(FaultCode::Invalid.at(["id"], detail));
    }
    let words = ["credential", "anonymous", "client"];
    if words.contains(&id) || User::OWN_SOURCES.iter().any(|word| word.eq_ignore_ascii_case(id)) {
        let detail = format!("provider id {id:?} is reserved: choose another");
        faults.push(FaultCode::Invalid.at(["id"], detail));
    }
}

/// Checks the record as a whole.
pub(in crate::admin) fn check(provider: &Provider, faults: &mut Vec<Fault>) {
    if provider.issuer.is_empty() {
        faults.push(FaultCode::Required.at(["issuer"], "the issuer is missing"));
    } else if https(&provider.issuer).is_none_or(|url| url.query().is_some()) {
        let detail = format!(
            "issuer {:?} is not an https address without query and fragment",
            provider.issuer
        );
        faults.push(FaultCode::Invalid.at(["issuer"], detail));
    }
    if let Some(uri) = &provider.jwks_uri
        && https(uri).is_none()
    {
        let detail = format!("jwks uri {uri:?} is not an https address");
        faults.push(FaultCode::Invalid.at(["jwks_uri"], detail));
    }
    if provider.algs.is_empty() {
        faults.push(FaultCode::Required.at(["algs"], "no algorithm is accepted"));
    }
    for (field, length) in [
        ("audiences", provider.audiences.len()),
        ("domains", provider.domains.len()),
        ("claims", provider.claims.len()),
        ("mfa_amr", provider.mfa_amr.len()),
        ("mfa_acr", provider.mfa_acr.len()),
    ] {
        if length > MAX_LIST_LEN {
            let detail = format!("there are more than {MAX_LIST_LEN} {field}");
            faults.push(FaultCode::TooMany.at([field], detail));
        }
    }
    for (field, values) in [
        ("audiences", &provider.audiences),
        ("mfa_amr", &provider.mfa_amr),
        ("mfa_acr", &provider.mfa_acr),
    ] {
        for value in values {
            check_text(faults, field, value);
        }
    }
    if !(1..=Provider::LONGEST_AGE).contains(&provider.max_age) {
        faults.push(FaultCode::Invalid.at(["max_age"], "max age is 1 second to 7 days"));
    }
    check_purpose(provider, faults);
    if let Some(claim) = &provider.embed_token {
        let name = claim.as_str();
        let is_ours = name == Provider::EMBEDDED_TOKEN;
        let is_taken = RESERVED.contains(&name) || AccessTokenClaims::has_member(name);
        if !is_ours && (is_taken || check_claim_name(name).is_err()) {
            let detail = format!("claim {claim} belongs to the service");
            faults.push(FaultCode::NotAllowed.at(["embed_token"], detail));
        }
    }
    for domain in &provider.domains {
        let is_plain = domain.contains('.')
            && !domain.starts_with('.')
            && domain
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
        if !is_plain {
            let detail = format!("domain {domain:?}: write it as in example.com");
            faults.push(FaultCode::Invalid.at(["domains"], detail));
        }
    }
    for (ours, theirs) in &provider.claims {
        if RESERVED.contains(&ours.as_str()) || check_claim_name(ours).is_err() || theirs.is_empty() {
            let detail = format!("claim {ours}={theirs}: the claim {ours} cannot be set");
            faults.push(FaultCode::Invalid.at(["claims"], detail));
        }
    }
}

/// Checks that the provider is for something, and has what that needs.
fn check_purpose(provider: &Provider, faults: &mut Vec<Fault>) {
    if provider.exchange && provider.accepted_audiences().is_empty() {
        let detail = "an exchange of tokens needs an audience";
        faults.push(FaultCode::Required.at(["audiences", "client_id"], detail));
    }
    if !provider.exchange && !provider.id_jag && !provider.signs_people_in() {
        let detail = "the provider is neither for sign-ins, which need a client id, nor for an exchange of tokens or \
                      identity assertions";
        faults.push(FaultCode::Required.at(["client_id", "exchange", "id_jag"], detail));
    }
    let has_secret = provider.sealed_secret.is_some();
    let needs_secret = provider.signs_people_in() && provider.auth_method.uses_secret() && !has_secret;
    if needs_secret && provider.apple_team_id.is_some() {
        let detail =
            "sign-ins at Apple need the private key of the team (the .p8 file), in place of a client secret";
        faults.push(FaultCode::Required.at(["apple_key_file"], detail));
    } else if needs_secret {
        let detail = "sign-ins need the secret that belongs to the client id, or the authentication method \
                      private_key_jwt";
        faults.push(FaultCode::Required.at(["client_secret", "auth_method"], detail));
    }
    if provider.apple_team_id.is_some() != provider.apple_key_id.is_some() {
        let detail = "a client secret for Apple names the team and the key: give both";
        faults.push(FaultCode::Required.at(["apple_team_id", "apple_key_id"], detail));
    }
    for (field, id) in [
        ("apple_team_id", &provider.apple_team_id),
        ("apple_key_id", &provider.apple_key_id),
    ] {
        if let Some(id) = id.as_deref().filter(|id| !is_apple_id(id)) {
            let detail =
                format!("{field} {id:?}: Apple shows it as ten capital letters and digits, as in A1B2C3D4E5");
            faults.push(FaultCode::Invalid.at([field], detail));
        }
    }
    if provider.apple_team_id.is_some() && provider.auth_method != UpstreamAuth::ClientSecretPost {
        let detail = "Apple takes the authentication method client_secret_post only";
        faults.push(FaultCode::NotAllowed.at(["auth_method", "apple_team_id"], detail));
    }
    if has_secret && provider.client_id.is_none() {
        let detail = "a client secret belongs to a client id";
        faults.push(FaultCode::Required.at(["client_id"], detail));
    }
}

/// Whether Apple gives ids of this form to teams and keys.
fn is_apple_id(id: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    id.len() == 10 && id.bytes().all(is_fit)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn a_providers_token_is_not_named_as_another_member_of_access_tokens() {
        let is_refused = |name: &str| {
            let mut provider = Provider::new("google".to_owned(), Uuid::nil(), Timestamp::from_seconds(1));
            provider.embed_token = Some(name.to_owned());
            let mut faults = Vec::new();
            check(&provider, &mut faults);
            faults.iter().any(|fault| fault.fields == ["embed_token"])
        };
        for name in ["iss", "venueId", "client_id", "grant_id", "nbf"] {
            assert!(is_refused(name), "{name}");
        }
        assert!(!is_refused(Provider::EMBEDDED_TOKEN) && !is_refused("google_token"));
    }
}
