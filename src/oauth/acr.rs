//! The level of a sign-in that a client demands: `acr_values` (OpenID Connect Core 3.1.2.1, RFC 9470 section 4) and an
//! essential `acr` in `claims` (OpenID Connect Core 5.5.1.1).

use std::collections::BTreeSet;

use crate::identity::AuthenticationLevel;
use crate::oauth::error::{ErrorCode, Refusal};

const UNMET: Refusal = Refusal::new(
    ErrorCode::UnmetAuthenticationRequirements,
    "none of the requested acr values can be met",
);

/// The lowest level that meets the request. A value that no standard of this service defines is passed over in `acr_values`,
/// which is a preference. The service obeys those that it knows: a client that asks for a second factor gets no code without
/// one.
pub fn required_level(
    acr_values: Option<&str>,
    essential: Option<&BTreeSet<String>>,
) -> Result<Option<AuthenticationLevel>, Refusal> {
    let known = |value: &str| AuthenticationLevel::of_acr(value);
    let essential = match essential {
        Some(values) => {
            let levels = values.iter().filter_map(|value| known(value));
            Some(levels.min().ok_or(UNMET)?)
        }
        None => None,
    };
    let asked = acr_values.unwrap_or_default().split_ascii_whitespace();
    Ok(essential.max(asked.filter_map(known).min()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_known_value_counts_and_an_essential_one_must_be_known() {
        let two = Some(AuthenticationLevel::TwoFactors);
        let one = Some(AuthenticationLevel::OneFactor);
        for (acr_values, essential, level) in [
            (None, None, Ok(None)),
            (Some("urn:example:silver"), None, Ok(None)),
            (Some("2"), None, Ok(two)),
            (Some("2 1"), None, Ok(one)),
            (Some("phr 2"), None, Ok(two)),
            (
                Some("phr"),
                None,
                Ok(Some(AuthenticationLevel::PhishingResistant)),
            ),
            (None, Some("2"), Ok(two)),
            (Some("1"), Some("2"), Ok(two)),
            (Some("2"), Some("1"), Ok(two)),
            (None, Some("gold"), Err(UNMET)),
        ] {
            let essential: Option<BTreeSet<String>> = essential.map(|value: &str| [value.to_owned()].into());
            assert_eq!(required_level(acr_values, essential.as_ref()), level);
        }
    }
}
