//! The rules for new passwords.

use super::blocklist::Blocklist;
use super::guess::is_guessable;
use crate::text;

/// The rules for a new password: its length, and that it is not easy to guess. There is no rule about kinds of
/// characters, and the blocklist is compared with the whole password (NIST SP 800-63B-4 section 3.1.1.2). NIST requires
/// 15 characters if the password is the only factor. Here the operator sets the length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordPolicy {
    /// The least number of characters (Unicode scalar values).
    pub min_length: usize,
    /// The most bytes of UTF-8.
    pub max_bytes: usize,
    /// What the operator refuses besides.
    pub blocklist: Option<Blocklist>,
}

/// Why a new password is refused. The message is for the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordProblem {
    /// It has too few characters.
    #[error("choose a password of at least {min_length} characters")]
    TooShort {
        /// The least number of characters.
        min_length: usize,
    },
    /// It has too many bytes.
    #[error("choose a password of at most {max_bytes} bytes")]
    TooLong {
        /// The most bytes of UTF-8.
        max_bytes: usize,
    },
    /// It is easy to guess.
    #[error(
        "choose a password that is harder to guess: this one is common or in password.blocklist_file, repeated, a row of keys, or a name or address of the user or of the service"
    )]
    Guessable,
}

impl PasswordPolicy {
    /// The default of the settings.
    pub const DEFAULT: Self = Self {
        min_length: 8,
        max_bytes: 512,
        blocklist: None,
    };

    /// Checks a new password. `known` is what others know about the user and the service. At a sign-in only `max_bytes`
    /// is checked.
    pub fn check(&self, password: &str, known: &[&str]) -> Result<(), PasswordProblem> {
        let password = &*text::opaque_string(password);
        if password.len() > self.max_bytes {
            return Err(PasswordProblem::TooLong {
                max_bytes: self.max_bytes,
            });
        }
        if password.chars().count() < self.min_length.max(1) {
            return Err(PasswordProblem::TooShort {
                min_length: self.min_length.max(1),
            });
        }
        let is_blocked = self.blocklist.as_ref().is_some_and(|list| list.has(password));
        if is_blocked || is_guessable(password, known) {
            return Err(PasswordProblem::Guessable);
        }
        Ok(())
    }
}

impl Default for PasswordPolicy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_counts_characters_and_the_maximum_counts_bytes() {
        let policy = PasswordPolicy::default();
        assert_eq!(policy.check("ぱすわーどです1", &[]), Ok(()));
        assert_eq!(
            policy.check("ぱすわーどです", &[]),
            Err(PasswordProblem::TooShort { min_length: 8 })
        );
        assert_eq!(policy.check(&"correct horse 16".repeat(32), &[]), Ok(()));
        assert_eq!(
            policy.check(&"x".repeat(513), &[]),
            Err(PasswordProblem::TooLong { max_bytes: 512 })
        );
        assert_eq!(
            policy.check(&"é".repeat(257), &[]),
            Err(PasswordProblem::TooLong { max_bytes: 512 })
        );
    }

    #[test]
    fn an_empty_password_is_never_taken() {
        let policy = PasswordPolicy {
            min_length: 0,
            ..PasswordPolicy::DEFAULT
        };
        assert_eq!(
            policy.check("", &[]),
            Err(PasswordProblem::TooShort { min_length: 1 })
        );
    }

    #[test]
    fn what_the_operator_blocks_is_refused_as_what_is_easy_to_guess() {
        let policy = PasswordPolicy {
            blocklist: Some(Blocklist::of("the acme way of things")),
            ..PasswordPolicy::DEFAULT
        };
        let check = |password| policy.check(password, &[]);
        assert_eq!(check("The Acme Way of Things"), Err(PasswordProblem::Guessable));
        assert_eq!(check("the acme way of other things"), Ok(()));
        assert_eq!(
            PasswordPolicy::DEFAULT.check("the acme way of things", &[]),
            Ok(())
        );
    }

    #[test]
    fn a_problem_says_what_to_do() {
        let problem = PasswordPolicy::default().check("short", &[]).unwrap_err();
        assert!(problem.to_string().contains("at least 8"), "{problem}");
    }
}
