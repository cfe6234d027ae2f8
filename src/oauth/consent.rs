//! Whether what a user has said yes to covers what a client asks for.

use crate::identity::Consent;
use crate::oauth::scope::Scope;

/// What the user has allowed so far; nothing for one who was never asked.
pub fn allowed(given: Option<&Consent>) -> Option<Scope> {
    given.and_then(|consent| consent.scope.parse().ok())
}

/// Whether the user has allowed all of this. One who was never asked has not, be it nothing that is asked for.
pub fn covers(given: Option<&Consent>, asked: &Scope) -> bool {
    allowed(given).is_some_and(|allowed| asked.is_within(&allowed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn a_yes_covers_what_it_was_said_to_and_a_silence_nothing() {
        let consent = |scope: &str| Consent {
            scope: scope.to_owned(),
            given_at: Timestamp::from_seconds(0),
        };
        let scope = |text: &str| text.parse::<Scope>().unwrap();
        let given = consent("openid email");
        assert!(covers(Some(&given), &scope("email")) && covers(Some(&given), &Scope::empty()));
        assert!(!covers(Some(&given), &scope("email phone")));
        assert!(!covers(None, &Scope::empty()) && !covers(Some(&consent("\u{e9}")), &Scope::empty()));
    }
}
