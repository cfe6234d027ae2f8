//! The longest token that the service issues: its own endpoints must be able to read each token.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use super::error::printable;
use crate::jose::json;

/// The longest access token or ID token that is issued, in bytes.
///
/// Request line and header together may have 16 KiB. `UserInfo` gets the access token there, and the end session
/// endpoint an ID token. The rest is for cookies, a proof, and the other fields and parameters.
pub const LONGEST: usize = 14 * 1024;

/// A token that is too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The bytes of the token.
    pub length: usize,
    /// The name of its longest claim, printable.
    pub claim: String,
}

/// Checks the length of a token that was signed here.
pub fn check(token: &str) -> Result<(), TooLong> {
    if token.len() <= LONGEST {
        return Ok(());
    }
    Err(TooLong {
        length: token.len(),
        claim: printable(&longest_claim(token).unwrap_or_default(), 64),
    })
}

fn longest_claim(token: &str) -> Option<String> {
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims = json::object(&payload).ok()?;
    let longest = claims
        .into_iter()
        .max_by_key(|(_, value)| value.to_string().len())?;
    Some(longest.0)
}

/// The bytes that these groups and claims of a user take in a token, if they take half of [`LONGEST`] or more.
pub fn near_limit(groups: &impl Serialize, claims: &impl Serialize) -> Option<usize> {
    let length = |json: serde_json::Result<String>| json.map_or(0, |json| json.len());
    let json = length(serde_json::to_string(groups)) + length(serde_json::to_string(claims));
    let encoded = json.div_ceil(3) * 4;
    (encoded >= LONGEST / 2).then_some(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(payload: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(payload))
    }

    #[test]
    fn a_token_that_is_too_long_names_its_longest_claim() {
        assert_eq!(check(&token(r#"{"sub":"1"}"#)), Ok(()));
        assert_eq!(check(&"a".repeat(LONGEST)), Ok(()));
        let groups = vec!["a".repeat(30); 350];
        let long = token(&serde_json::json!({ "sub": "1", "groups": groups, "name": "x" }).to_string());
        let refused = check(&long).unwrap_err();
        assert_eq!((refused.length, refused.claim.as_str()), (long.len(), "groups"));
    }

    #[test]
    fn claims_are_near_the_limit_from_its_half() {
        let near = |count: usize| near_limit(&vec!["a".repeat(30); count], &());
        assert_eq!(near(160), None);
        assert!(near(170).is_some_and(|bytes| (LONGEST / 2..LONGEST).contains(&bytes)));
    }
}
