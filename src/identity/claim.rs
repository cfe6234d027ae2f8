//! Limits for the claims of a user.

use serde_json::Value;

/// How deep the value of a claim may be nested. JSON parsers limit the depth, and responses nest the value a little
/// deeper.
pub const MAX_DEPTH: usize = 64;

/// Whether JSON parsers can read the value in every response.
pub fn is_shallow_enough(value: &Value) -> bool {
    is_nested_within(value, MAX_DEPTH)
}

/// The longest e-mail address, in bytes: RFC 5321 section 4.5.3.1.3 with erratum 1690 of RFC 3696.
const MAX_EMAIL_BYTES: usize = 254;

/// Whether the text has one `@` between two parts. This finds typing errors; it does not verify the address.
pub fn looks_like_email(text: &str) -> bool {
    let is_plain = !text.chars().any(|c| c.is_whitespace() || c.is_control());
    let is_split = text.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !local.contains(':') && !domain.is_empty() && !domain.contains('@')
    });
    is_plain && is_split && text.len() <= MAX_EMAIL_BYTES
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
            "google:1@b",
            &format!("{}@b", "a".repeat(254)),
        ] {
            assert!(!looks_like_email(bad), "{bad}");
        }
    }
}
