//! The passwords that the operator refuses, beside the common ones.

use std::sync::Arc;

use ring::digest;

use crate::text;

/// The passwords of a file, as 64 bits of their SHA-256 digests, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocklist(Arc<[u64]>);

impl Blocklist {
    /// The passwords of a text, one a line. Upper case and lower case are alike. Blanks around a password, empty lines and a
    /// byte order mark are left out.
    pub fn of(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let mut digests: Vec<u64> = lines.map(digest_of).collect();
        digests.sort_unstable();
        digests.dedup();
        Self(digests.into())
    }

    /// How many passwords it has.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn has(&self, password: &str) -> bool {
        self.0.binary_search(&digest_of(password)).is_ok()
    }
}

fn digest_of(password: &str) -> u64 {
    let form = text::opaque_string(password).to_lowercase();
    let digest = digest::digest(&digest::SHA256, form.as_bytes());
    let start = digest.as_ref().first_chunk().copied();
    u64::from_be_bytes(start.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_password_in_any_case_and_form() {
        let list = Blocklist::of(
            "\u{feff}Acme Widgets 2031 \r\n\n  \nstra\u{df}e am caf\u{e9}\nacme widgets 2031\n",
        );
        assert_eq!(list.count(), 2);
        for password in [
            "acme widgets 2031",
            "ACME Widgets 2031",
            "STRA\u{df}E am cafe\u{301}",
        ] {
            assert!(list.has(password), "{password}");
        }
        for password in ["acme widgets", "acme widgets 2031 and more", ""] {
            assert!(!list.has(password), "{password}");
        }
    }
}
