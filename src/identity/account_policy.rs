//! The operator's rules for accounts.

use std::time::Duration;

use crate::text;

/// Who may create an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SignUp {
    /// Only the operator.
    #[default]
    Off,
    /// A person whom the operator invites.
    Invitation,
    /// Everybody.
    Open,
}

/// What users may change themselves on the account page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfServicePolicy {
    /// The claims that users edit.
    pub claims: Vec<String>,
    /// Whether users change the e-mail address.
    pub email: bool,
    /// Whether users export their data.
    pub export: bool,
    /// Whether users delete the account.
    pub deletion: bool,
}

impl SelfServicePolicy {
    /// The claims that the operator can let users edit.
    pub const CLAIMS: [&'static str; 5] = ["name", "given_name", "family_name", "nickname", "phone_number"];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecondFactorRule {
    /// Nobody.
    #[default]
    Off,
    /// Users who sign in with a password or by a mail.
    PasswordUsers,
    /// Users of other providers as well.
    All,
}

/// The sections `accounts` and `mfa` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountPolicy {
    /// Who may create an account.
    pub sign_up: SignUp,
    /// Whether a person who signs up must prove the address by a mail.
    pub verify_email: bool,
    /// Whether users may sign in by a link or a code from a mail.
    pub email_sign_in: bool,
    /// What users may change themselves.
    pub self_service: SelfServicePolicy,
    pub second_factor: SecondFactorRule,
    /// How long a browser may go without the second step, if the user asks for it there.
    pub remember_device: Option<Duration>,
    /// The domains whose addresses may sign up, in A-labels; all if there are none.
    pub allowed_domains: Vec<String>,
}

impl AccountPolicy {
    /// Whether everybody may create an account.
    pub fn is_open(&self) -> bool {
        self.sign_up == SignUp::Open
    }

    /// Whether an account may be created with this address.
    pub fn allows_address(&self, email: &str) -> bool {
        self.allowed_domains.is_empty()
            || domain_of(email).is_some_and(|domain| self.allowed_domains.contains(&domain))
    }
}

/// The domain of an address, in A-labels.
fn domain_of(email: &str) -> Option<String> {
    let (_, domain) = email.rsplit_once('@')?;
    text::a_labels(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_allowed_by_its_whole_domain() {
        let mut policy = AccountPolicy::default();
        assert!(policy.allows_address("a@anywhere.example"));
        policy.allowed_domains = vec!["example.com".to_owned()];
        assert!(policy.allows_address("a@Example.COM"));
        policy.allowed_domains.push("xn--bcher-kva.example".to_owned());
        for address in [
            "a@b\u{fc}cher.example",
            "a@BU\u{308}CHER.example",
            "a@xn--bcher-kva.example",
        ] {
            assert!(policy.allows_address(address), "{address}");
        }
        for other in [
            "a@sub.example.com",
            "a@example.com.evil.example",
            "a@notexample.com",
            "example.com",
        ] {
            assert!(!policy.allows_address(other), "{other}");
        }
    }
}
