//! Limits for the claims of a user.

use serde_json::Value;

use crate::text;

/// How deep the value of a claim may be nested. JSON parsers limit the depth, and responses nest the value a little
/// deeper.
pub const MAX_DEPTH: usize = 64;

/// Whether JSON parsers can read the value in every response.
pub fn is_shallow_enough(value: &Value) -> bool {
    is_nested_within(value, MAX_DEPTH)
}

/// The longest e-mail address, in bytes: RFC 5321 section 4.5.3.1.3 with erratum 1690 of RFC 3696.
const MAX_EMAIL_BYTES: usize = 254;

/// Why a text is not taken as an e-mail address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEmail {
    /// It does not have one `@` between two parts, or it is too long.
    #[error("is no e-mail address")]
    NoAddress,
    /// It has a character that cannot be seen, or that looks like others.
    #[error("has a character that cannot be seen, or that looks like others: type the address again")]
    Ambiguous,
}

/// Reads an e-mail address in its one form. This finds typing errors; it does not verify the address.
pub fn parse_email(typed: &str) -> Result<String, InvalidEmail> {
    let email = text::map_width(typed);
    let is_plain = !email.chars().any(|c| c.is_whitespace() || c.is_control());
    let Some((local, domain)) = email
        .split_once('@')
        .filter(|_| is_plain && email.len() <= MAX_EMAIL_BYTES)
    else {
        return Err(InvalidEmail::NoAddress);
    };
    if local.is_empty() || local.contains(':') || domain.is_empty() || domain.contains('@') {
        return Err(InvalidEmail::NoAddress);
    }
    if text::is_ambiguous(typed) {
        return Err(InvalidEmail::Ambiguous);
    }
    let is_domain = domain.is_ascii() || text::a_labels(domain).is_some();
    if is_domain {
        Ok(email)
    } else {
        Err(InvalidEmail::NoAddress)
    }
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
        for good in ["a@b", "müller@example.com", "anna@bücher.example"] {
            assert_eq!(parse_email(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "a",
            "@b",
            "a@",
            "a@b@c",
            "a b@c",
            "google:1@b",
            &format!("{}@b", "a".repeat(254)),
            "google\u{ff1a}1@b",
            "a@b\u{ff20}c",
            "a@\u{301}b",
        ] {
            assert_eq!(parse_email(bad), Err(InvalidEmail::NoAddress), "{bad}");
        }
    }

    #[test]
    fn an_address_that_looks_like_another_is_refused_and_one_of_another_width_is_taken() {
        for typed in [
            "a\u{ad}nna@example.com",
            "anna\u{200b}@example.com",
            "anna@exa\u{200d}mple.com",
            "o\u{fb03}ce@b",
        ] {
            assert_eq!(parse_email(typed), Err(InvalidEmail::Ambiguous), "{typed:?}");
        }
        for (typed, email) in [
            ("\u{ff41}\u{ff4e}\u{ff4e}\u{ff41}@example.com", "anna@example.com"),
            ("Rene\u{301}e@example.com", "Ren\u{e9}e@example.com"),
            ("anna@xn--bcher-kva.example", "anna@xn--bcher-kva.example"),
        ] {
            assert_eq!(parse_email(typed).as_deref(), Ok(email));
        }
    }
}
