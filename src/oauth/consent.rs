//! Whether the consent of a user covers a requested scope.

use crate::identity::Consent;
use crate::oauth::openid::claims::ClaimsRequest;
use crate::oauth::resource::Resources;
use crate::oauth::scope::Scope;

/// What a user is asked to allow: the scope, the scope values of claims that are requested one by one, and the APIs
/// that the client names. An API is in the result with its identifier as a scope value.
pub fn requested_consent(scope: &Scope, claims: &ClaimsRequest, resources: &Resources) -> Scope {
    let scope = scope.clone().union(&claims.implied_scope());
    resources
        .iter()
        .fold(scope, |scope, identifier| scope.with(identifier))
}

/// The scope that the user has allowed; none without a consent.
pub fn allowed(given: Option<&Consent>) -> Option<Scope> {
    given.and_then(|consent| consent.scope.parse().ok())
}

/// Whether the user has allowed all of this scope. Without a consent even an empty scope is not allowed.
pub fn covers(given: Option<&Consent>, asked: &Scope) -> bool {
    allowed(given).is_some_and(|allowed| asked.is_within(&allowed))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::clock::Timestamp;

    #[test]
    fn a_consent_covers_its_scope_and_no_consent_covers_nothing() {
        let consent = |scope: &str| Consent {
            scope: scope.to_owned(),
            client_incarnation: Uuid::nil(),
            given_at: Timestamp::from_seconds(0),
        };
        let scope = |text: &str| text.parse::<Scope>().unwrap();
        let given = consent("openid email");
        assert!(covers(Some(&given), &scope("email")) && covers(Some(&given), &Scope::empty()));
        assert!(!covers(Some(&given), &scope("email phone")));
        assert!(!covers(None, &Scope::empty()) && !covers(Some(&consent("\u{e9}")), &Scope::empty()));
    }
}
