//! Claims about the user: OpenID Connect Core 5.1, 5.4 and 5.5.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::identity::User;
use crate::oauth::scope::Scope;

/// The claims that a scope value asks for (OpenID Connect Core 5.4).
pub const BY_SCOPE: [(&str, &[&str]); 4] = [
    (
        "profile",
        &[
            "name",
            "family_name",
            "given_name",
            "middle_name",
            "nickname",
            "preferred_username",
            "profile",
            "picture",
            "website",
            "gender",
            "birthdate",
            "zoneinfo",
            "locale",
            "updated_at",
        ],
    ),
    ("email", &["email", "email_verified"]),
    ("address", &["address"]),
    ("phone", &["phone_number", "phone_number_verified"]),
];

/// The authentication context class of every sign-in, with a password or at a provider.
pub const ACR_SIGNED_IN: &str = "1";

/// The parts of the `claims` parameter that the service supports (OpenID Connect Core 5.5).
///
/// Other members are ignored, as section 5.5 requires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimsRequest {
    /// Claims requested from the `UserInfo` endpoint.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub userinfo: BTreeSet<String>,
    /// Claims requested in the ID token.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub id_token: BTreeSet<String>,
}

/// What the `claims` parameter requires of the sign-in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimsDemands {
    /// The subjects of which one must be signed in. `None` allows every user, an empty set allows no user.
    pub subjects: Option<BTreeSet<String>>,
    /// The `acr` values of which one must be met, if the claim is essential. `None` allows every value.
    pub essential_acr: Option<BTreeSet<String>>,
}

/// The `claims` parameter is not a JSON object of the right shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("claims is not a JSON object of the form that OpenID Connect Core 5.5 describes")]
pub struct MalformedClaims;

impl ClaimsRequest {
    /// Reads the parameter.
    pub fn parse(text: &str) -> Result<(Self, ClaimsDemands), MalformedClaims> {
        let Ok(Value::Object(places)) = serde_json::from_str(text) else {
            return Err(MalformedClaims);
        };
        let mut request = Self::default();
        let mut demands = ClaimsDemands::default();
        for (place, into) in [
            ("userinfo", &mut request.userinfo),
            ("id_token", &mut request.id_token),
        ] {
            match places.get(place) {
                None | Some(Value::Null) => {}
                Some(Value::Object(claims)) => {
                    into.extend(
                        claims
                            .keys()
                            .filter(|name| carrying_scope(name).is_some())
                            .cloned(),
                    );
                }
                Some(_) => return Err(MalformedClaims),
            }
        }
        if let Some(claims) = places.get("id_token").and_then(Value::as_object) {
            let wanted = |name: &str| claims.get(name).and_then(Value::as_object);
            demands.subjects = wanted("sub").and_then(demanded);
            let acr = wanted("acr").filter(|member| member.get("essential") == Some(&Value::Bool(true)));
            demands.essential_acr = acr.and_then(demanded);
        }
        Ok((request, demands))
    }

    /// Whether no claim was requested.
    pub fn is_empty(&self) -> bool {
        self.userinfo.is_empty() && self.id_token.is_empty()
    }

    /// Leaves out every claim whose scope value is not in `allowed`.
    #[must_use]
    pub fn within(mut self, allowed: &Scope) -> Self {
        let keep = |name: &String| carrying_scope(name).is_some_and(|scope| allowed.contains(scope));
        self.userinfo.retain(keep);
        self.id_token.retain(keep);
        self
    }

    /// The scope values of the requested claims. The user is asked for consent to them too.
    pub fn implied_scope(&self) -> Scope {
        let values = self
            .userinfo
            .iter()
            .chain(&self.id_token)
            .filter_map(|name| carrying_scope(name));
        values.fold(Scope::empty(), Scope::with)
    }
}

/// The values of which the claim must have one (OpenID Connect Core 5.5.1): `value`, one of `values`, or both if both
/// are sent. A value that is not a text matches nothing and is left out.
fn demanded(claim: &Map<String, Value>) -> Option<BTreeSet<String>> {
    let texts = |values: &[Value]| -> BTreeSet<String> {
        let texts = values.iter().filter_map(Value::as_str);
        texts.map(ToOwned::to_owned).collect()
    };
    let said = |name| claim.get(name).filter(|demand| !demand.is_null());
    let value = said("value").map(|value| texts(std::slice::from_ref(value)));
    let values = said("values").map(|values| texts(values.as_array().map_or(&[], Vec::as_slice)));
    match (value, values) {
        (Some(value), Some(values)) => Some(&value & &values),
        (value, values) => value.or(values),
    }
}

/// The scope value that a claim belongs to. A claim without one is not given to applications.
pub fn carrying_scope(claim: &str) -> Option<&'static str> {
    BY_SCOPE
        .iter()
        .find(|(_, claims)| claims.contains(&claim))
        .map(|(scope, _)| *scope)
}

/// One claim of the user, with the JSON type of OpenID Connect Core 5.1. `None` if it has no value.
fn claim(user: &User, name: &str) -> Option<Value> {
    match name {
        "email" => user.email.clone().map(Value::from),
        "email_verified" => user.email.is_some().then(|| Value::from(user.email_verified)),
        "phone_number" => user.phone_number.clone().map(Value::from),
        "phone_number_verified" => user
            .phone_number
            .is_some()
            .then(|| Value::from(user.phone_number_verified)),
        "updated_at" => Some(Value::from(user.updated_at.seconds())),
        _ => user.claims.get(name).filter(|value| !value.is_null()).cloned(),
    }
}

/// The claims of a `UserInfo` response, by scope and by the `claims` parameter (OpenID Connect Core 5.3.2).
pub fn userinfo(user: &User, scope: &Scope, request: &ClaimsRequest) -> Map<String, Value> {
    let mut names: BTreeSet<&str> = named_by(scope).collect();
    names.extend(request.userinfo.iter().map(String::as_str));
    let mut document = collect(user, names);
    document.insert("sub".to_owned(), Value::from(user.uuid.to_string()));
    document
}

fn named_by(scope: &Scope) -> impl Iterator<Item = &'static str> {
    let granted = BY_SCOPE.iter().filter(|(value, _)| scope.contains(value));
    granted.flat_map(|(_, claims)| claims.iter().copied())
}

/// The claims of the scope. They are in the ID token of a grant without an authorization request (OpenID Connect Core
/// 5.4).
pub fn id_token_by_scope(user: &User, scope: &Scope) -> Map<String, Value> {
    collect(user, named_by(scope))
}

/// The claims that the `claims` parameter requests in the ID token (OpenID Connect Core 5.5.1).
pub fn id_token(user: &User, request: &ClaimsRequest) -> Map<String, Value> {
    collect(user, request.id_token.iter().map(String::as_str))
}

fn collect<'a>(user: &User, names: impl IntoIterator<Item = &'a str>) -> Map<String, Value> {
    let mut claims = Map::new();
    for name in names {
        if let Some(value) = claim(user, name) {
            claims.insert(name.to_owned(), value);
        }
    }
    claims
}

/// The claims that discovery lists.
pub fn supported() -> Vec<&'static str> {
    let about_the_token = [
        "sub",
        "iss",
        "aud",
        "exp",
        "iat",
        "auth_time",
        "nonce",
        "acr",
        "amr",
        "azp",
        "sid",
    ];
    about_the_token
        .into_iter()
        .chain(BY_SCOPE.iter().flat_map(|(_, claims)| claims.iter().copied()))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::clock::Timestamp;

    fn alice() -> User {
        let mut user = User::local(
            Uuid::from_u128(1),
            "alice@example.com",
            "default",
            Timestamp::from_seconds(5),
        );
        user.claims.insert("name".to_owned(), json!("Alice"));
        user.claims
            .insert("address".to_owned(), json!({"locality": "Ghent"}));
        user.claims.insert("badge".to_owned(), json!(7));
        user
    }

    #[test]
    fn scope_and_request_add_up() {
        let (request, _) = ClaimsRequest::parse(r#"{"userinfo":{"name":{"essential":true}}}"#).unwrap();
        let document = userinfo(&alice(), &"openid email".parse().unwrap(), &request);
        assert_eq!(
            Value::from(document),
            json!({"sub": "00000000-0000-0000-0000-000000000001", "email": "alice@example.com",
                   "email_verified": false, "name": "Alice"})
        );
    }

    #[test]
    fn claims_outside_of_the_clients_scope_are_not_handed_out() {
        let (request, _) =
            ClaimsRequest::parse(r#"{"userinfo":{"name":null,"address":null,"badge":null}}"#).unwrap();
        let request = request.within(&"openid profile".parse().unwrap());
        assert_eq!(request.userinfo, BTreeSet::from(["name".to_owned()]));
        assert_eq!(request.implied_scope(), "profile".parse().unwrap());
    }

    #[test]
    fn what_is_not_understood_is_ignored_and_what_is_no_object_refused() {
        let (request, demands) =
            ClaimsRequest::parse(r#"{"elsewhere":{"x":1},"userinfo":{"unheard_of":null}}"#).unwrap();
        assert_eq!(
            (request, demands),
            (ClaimsRequest::default(), ClaimsDemands::default())
        );
        for text in ["", "[]", "\"x\"", r#"{"userinfo":[]}"#, "{"] {
            assert_eq!(ClaimsRequest::parse(text), Err(MalformedClaims), "{text}");
        }
    }

    #[test]
    fn a_demanded_subject_and_acr_are_read() {
        let (_, demands) = ClaimsRequest::parse(
            r#"{"id_token":{"sub":{"value":"u"},"acr":{"essential":true,"values":["a","b"]}}}"#,
        )
        .unwrap();
        assert_eq!(demands.subjects, Some(set(&["u"])));
        assert_eq!(demands.essential_acr, Some(set(&["a", "b"])));
    }

    fn set(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_required_value_is_never_ignored() {
        for (sub, subjects) in [
            (r#"{"value":"a"}"#, Some(set(&["a"]))),
            (r#"{"values":["a","b"]}"#, Some(set(&["a", "b"]))),
            (r#"{"value":"a","values":["a","b"]}"#, Some(set(&["a"]))),
            (r#"{"value":"a","values":["b"]}"#, Some(set(&[]))),
            (r#"{"values":["a",1,null]}"#, Some(set(&["a"]))),
            (r#"{"value":1}"#, Some(set(&[]))),
            (r#"{"value":["a"]}"#, Some(set(&[]))),
            (r#"{"values":"a"}"#, Some(set(&[]))),
            (r#"{"values":[]}"#, Some(set(&[]))),
            (r#"{"essential":true,"value":null}"#, None),
            ("null", None),
        ] {
            let text = format!(r#"{{"id_token":{{"sub":{sub},"acr":{sub}}}}}"#);
            let (_, demands) = ClaimsRequest::parse(&text).unwrap();
            assert_eq!(demands.subjects, subjects, "{sub}");
            assert_eq!(demands.essential_acr, None, "{sub}");
        }
        let (_, demands) =
            ClaimsRequest::parse(r#"{"id_token":{"acr":{"essential":true,"value":1}}}"#).unwrap();
        assert_eq!(demands.essential_acr, Some(set(&[])));
    }
}
