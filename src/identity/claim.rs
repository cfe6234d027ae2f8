//! What a claim of a user may be.

use serde_json::Value;

/// How deep the value of a claim may be nested. An answer nests it a little deeper than it was when it came in, and no
/// reader of JSON follows for ever.
pub const DEEPEST: usize = 64;

/// Whether whoever reads JSON can follow the value, wherever it stands.
pub fn is_followable(value: &Value) -> bool {
    is_nested_within(value, DEEPEST)
}

/// RFC 5321 section 4.5.3.1.3, as corrected by erratum 1690 of RFC 3696: what an e-mail address has at most, in bytes.
const LONGEST_EMAIL: usize = 254;

/// A look at an address that finds typing errors, not one that proves anything: one `@` between two parts.
pub fn looks_like_email(text: &str) -> bool {
    let is_plain = !text.chars().any(|c| c.is_whitespace() || c.is_control());
    let is_split = text
        .split_once('@')
        .is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty() && !domain.contains('@'));
    is_plain && is_split && text.len() <= LONGEST_EMAIL
}

fn is_nested_within(value: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else {
        return !(value.is_array() || value.is_object());
    };
    match value {
        Value::Array(values) => values.iter().all(|value| is_nested_within(value, depth)),
        Value::Object(members) => members.values().all(|value| is_nested_within(value, depth)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_at_sign_between_two_parts() {
        assert!(looks_like_email("a@b") && looks_like_email("müller@example.com"));
        for bad in [
            "",
            "a",
            "@b",
            "a@",
            "a@b@c",
            "a b@c",
            &format!("{}@b", "a".repeat(254)),
        ] {
            assert!(!looks_like_email(bad), "{bad}");
        }
    }
}
