//! Claims about the user: OpenID Connect Core 5.1, 5.4 and 5.5.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::identity::{AuthenticationLevel, User};
use crate::oauth::client::Client;
use crate::oauth::group::Groups;
use crate::oauth::registered_scope::RegisteredScopes;
use crate::oauth::scope::Scope;

/// The claims that a standard scope value asks for (OpenID Connect Core 5.4; `groups` as in RFC 9068 section 2.2.3.1).
pub const BY_SCOPE: [(&str, &[&str]); 5] = [
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
    (Scope::GROUPS, &["groups"]),
];

/// The parts of the `claims` parameter that the service supports (OpenID Connect Core 5.5).
///
/// Other members are ignored, as section 5.5 requires.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimsRequest {
    /// Claims requested from the `UserInfo` endpoint.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub userinfo: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub id_token: BTreeSet<String>,
    /// The registered scope values that release requested claims, by claim. A claim without an entry belongs to a
    /// standard scope value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub registered: BTreeMap<String, String>,
    /// The `acr` values of which the ID token must have one, if the claim is essential (section 5.5.1.1).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub acr: BTreeSet<AuthenticationLevel>,
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

/// What the `claims` parameter says.
#[derive(Clone, Debug, Default)]
pub struct ClaimsParameter {
    /// The claims that it asks for.
    pub request: ClaimsRequest,
    /// What it requires of the sign-in.
    pub demands: ClaimsDemands,
}

impl ClaimsParameter {
    /// Reads the parameter. Claims that no scope value in `allowed` releases are left out.
    pub fn parse(text: &str, allowed: &Scope, scopes: &RegisteredScopes) -> Result<Self, MalformedClaims> {
        let Ok(Value::Object(places)) = serde_json::from_str(text) else {
            return Err(MalformedClaims);
        };
        let mut request = ClaimsRequest::default();
        let mut demands = ClaimsDemands::default();
        for (place, into) in [
            ("userinfo", &mut request.userinfo),
            ("id_token", &mut request.id_token),
        ] {
            let claims = match places.get(place) {
                None | Some(Value::Null) => continue,
                Some(Value::Object(claims)) => claims,
                Some(_) => return Err(MalformedClaims),
            };
            for name in claims.keys() {
                if !standard_scope_of(name).is_some_and(|value| allowed.contains(value)) {
                    let Some(value) = scopes.releasing(name).find(|value| allowed.contains(value)) else {
                        continue;
                    };
                    request.registered.insert(name.clone(), value.to_owned());
                }
                into.insert(name.clone());
            }
        }
        if let Some(claims) = places.get("id_token").and_then(Value::as_object) {
            let wanted = |name: &str| claims.get(name).and_then(Value::as_object);
            demands.subjects = wanted("sub").and_then(demanded);
            let acr = wanted("acr").filter(|member| member.get("essential") == Some(&Value::Bool(true)));
            demands.essential_acr = acr.and_then(demanded);
            let values = demands.essential_acr.iter().flatten();
            request.acr = values
                .filter_map(|value| AuthenticationLevel::of_acr(value))
                .collect();
        }
        Ok(Self { request, demands })
    }
}

impl ClaimsRequest {
    pub fn is_empty(&self) -> bool {
        self.userinfo.is_empty() && self.id_token.is_empty() && self.acr.is_empty()
    }

    /// `acr` in the ID token of a sign-in with this level: the highest essential value that the sign-in reaches, or its
    /// own level if no value is essential.
    pub fn acr(&self, level: Option<AuthenticationLevel>) -> Option<AuthenticationLevel> {
        let reached = self.acr.iter().rev().find(|value| Some(**value) <= level);
        reached.copied().or(level)
    }

    /// Leaves out every claim whose scope value is not in `allowed`.
    #[must_use]
    pub fn within(mut self, allowed: &Scope) -> Self {
        self.registered.retain(|_, value| allowed.contains(value));
        let of_registered = &self.registered;
        let keep = |name: &String| {
            of_registered.contains_key(name)
                || standard_scope_of(name).is_some_and(|value| allowed.contains(value))
        };
        self.userinfo.retain(keep);
        self.id_token.retain(keep);
        self
    }

    /// The scope values of the requested claims. The user is asked for consent to them too.
    pub fn implied_scope(&self) -> Scope {
        let value_of = |name: &'_ String| match self.registered.get(name) {
            Some(value) => Some(value.clone()),
            None => standard_scope_of(name).map(ToOwned::to_owned),
        };
        let values = self.userinfo.iter().chain(&self.id_token).filter_map(value_of);
        values.fold(Scope::empty(), |scope, value| scope.with(&value))
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

/// The standard scope value that a claim belongs to.
pub fn standard_scope_of(claim: &str) -> Option<&'static str> {
    BY_SCOPE
        .iter()
        .find(|(_, claims)| claims.contains(&claim))
        .map(|(scope, _)| *scope)
}

/// A user, with the client, groups and scope values that determine the user's claims.
#[derive(Clone, Copy, Debug)]
pub struct UserClaims<'a> {
    pub user: &'a User,
    /// The client that gets the claims.
    pub client: &'a Client,
    /// The groups that exist.
    pub groups: &'a Groups,
    /// The scope values that the operator registered.
    pub scopes: &'a RegisteredScopes,
}

impl UserClaims<'_> {
    /// One claim, with the JSON type of OpenID Connect Core 5.1. `None` if it has no value.
    fn value(self, name: &str) -> Option<Value> {
        let user = self.user;
        match name {
            "email" => user.email.clone().map(Value::from),
            "email_verified" => user.email.is_some().then(|| Value::from(user.email_verified)),
            "phone_number" => user.phone_number.clone().map(Value::from),
            "phone_number_verified" => user
                .phone_number
                .is_some()
                .then(|| Value::from(user.phone_number_verified)),
            "updated_at" => Some(Value::from(user.updated_at.seconds())),
            // A user without groups has an empty list, so that applications can withdraw rights.
            Scope::GROUPS => Some(
                self.client
                    .claimed_groups(user, self.groups)
                    .into_iter()
                    .collect(),
            ),
            _ => user.claims.get(name).filter(|value| !value.is_null()).cloned(),
        }
    }

    /// The claims of a `UserInfo` response, by scope and by the `claims` parameter (OpenID Connect Core 5.3.2).
    pub fn userinfo(self, scope: &Scope, request: &ClaimsRequest) -> Map<String, Value> {
        let mut document = self.of_scope(scope);
        document.extend(self.requested(&request.userinfo, request));
        document.insert("sub".to_owned(), Value::from(self.user.uuid.to_string()));
        document
    }

    /// The claims of the scope. They are in the ID token of a grant without an authorization request, and of a client
    /// with `IdTokenContent::Userinfo` (OpenID Connect Core 5.4).
    pub fn of_scope(self, scope: &Scope) -> Map<String, Value> {
        let standard = BY_SCOPE.iter().filter(|(value, _)| scope.contains(value));
        let standard = standard.flat_map(|(_, claims)| claims.iter().copied());
        let registered = scope.iter().flat_map(|value| self.scopes.claims_of(value));
        self.collect(standard.chain(registered))
    }

    /// The claims that the `claims` parameter requests in the ID token (OpenID Connect Core 5.5.1).
    pub fn requested_in_id_token(self, request: &ClaimsRequest) -> Map<String, Value> {
        self.requested(&request.id_token, request)
    }

    /// The requested claims, without those that a registered scope value no longer releases.
    fn requested(self, names: &BTreeSet<String>, request: &ClaimsRequest) -> Map<String, Value> {
        let is_released = |name: &&str| {
            let value = request.registered.get(*name);
            value.is_none_or(|value| self.scopes.releases(value, name))
        };
        self.collect(names.iter().map(String::as_str).filter(is_released))
    }

    fn collect<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Map<String, Value> {
        let with_value = |name: &str| Some((name.to_owned(), self.value(name)?));
        names.into_iter().filter_map(with_value).collect()
    }
}

/// The claims that discovery lists.
pub fn supported(scopes: &RegisteredScopes) -> Vec<&str> {
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
    let standard = BY_SCOPE.iter().flat_map(|(_, claims)| claims.iter().copied());
    let more = scopes.claims().into_iter();
    about_the_token
        .into_iter()
        .chain(standard)
        .chain(more.filter(|claim| standard_scope_of(claim).is_none()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::clock::Timestamp;
    use crate::oauth::RegisteredScope;

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

    /// The operator's scope `staff` releases the badge and the name.
    fn staff() -> RegisteredScopes {
        let mut scope = RegisteredScope::new("staff", Uuid::from_u128(2), Timestamp::from_seconds(5));
        scope.metadata.claims = set(&["badge", "name"]);
        RegisteredScopes::new([scope])
    }

    fn read(text: &str, allowed: &str) -> Result<(ClaimsRequest, ClaimsDemands), MalformedClaims> {
        let read = ClaimsParameter::parse(text, &allowed.parse().unwrap(), &staff())?;
        Ok((read.request, read.demands))
    }

    fn of<'a>(user: &'a User, groups: &'a Groups, scopes: &'a RegisteredScopes) -> UserClaims<'a> {
        static WEB: LazyLock<Client> =
            LazyLock::new(|| Client::new("web", Uuid::nil(), Uuid::nil(), false, Timestamp::from_seconds(5)));
        UserClaims {
            user,
            client: &WEB,
            groups,
            scopes,
        }
    }

    #[test]
    fn scope_and_request_add_up() {
        let (request, _) = read(r#"{"userinfo":{"name":{"essential":true}}}"#, "profile").unwrap();
        let (user, groups, scopes) = (alice(), Groups::default(), staff());
        let document = of(&user, &groups, &scopes).userinfo(&"openid email".parse().unwrap(), &request);
        assert_eq!(
            Value::from(document),
            json!({"sub": "00000000-0000-0000-0000-000000000001", "email": "alice@example.com",
                   "email_verified": false, "name": "Alice"})
        );
        let document = of(&user, &groups, &scopes).of_scope(&"staff".parse().unwrap());
        assert_eq!(Value::from(document), json!({"badge": 7, "name": "Alice"}));
    }

    #[test]
    fn claims_outside_of_the_clients_scope_are_not_handed_out() {
        let text = r#"{"userinfo":{"name":null,"address":null,"badge":null}}"#;
        for (allowed, left, implied) in [
            ("openid profile", &["name"][..], "profile"),
            ("openid staff", &["badge", "name"], "staff"),
            ("openid profile staff", &["badge", "name"], "staff profile"),
            ("openid", &[], ""),
        ] {
            let (request, _) = read(text, allowed).unwrap();
            assert_eq!(request.userinfo, set(left), "{allowed}");
            assert_eq!(request.implied_scope(), implied.parse().unwrap(), "{allowed}");
            assert!(request.within(&"openid".parse().unwrap()).is_empty());
        }
    }

    /// A grant remembers the claims that were requested. The operator may change the scope value afterwards.
    #[test]
    fn a_requested_claim_that_its_scope_no_longer_releases_is_not_handed_out() {
        let (request, _) = read(r#"{"id_token":{"badge":null}}"#, "staff").unwrap();
        let (user, groups) = (alice(), Groups::default());
        let claims = |scopes: &RegisteredScopes| of(&user, &groups, scopes).requested_in_id_token(&request);
        assert_eq!(Value::from(claims(&staff())), json!({"badge": 7}));
        assert!(claims(&RegisteredScopes::default()).is_empty());
    }

    #[test]
    fn the_claim_groups_is_made_of_the_groups_and_of_nothing_else() {
        let mut user = alice();
        user.claims.insert("groups".to_owned(), json!(["admins"]));
        user.groups = [Uuid::from_u128(7), Uuid::from_u128(8)].into();
        let groups = Groups::new([("staff".to_owned(), Uuid::from_u128(7))]);
        let scopes = RegisteredScopes::default();
        let document = |user: &User| of(user, &groups, &scopes).of_scope(&"openid groups".parse().unwrap());
        assert_eq!(Value::from(document(&user)), json!({"groups": ["staff"]}));
        user.groups.clear();
        assert_eq!(Value::from(document(&user)), json!({"groups": []}));
    }

    #[test]
    fn what_is_not_understood_is_ignored_and_what_is_no_object_refused() {
        let (request, demands) = read(
            r#"{"elsewhere":{"x":1},"userinfo":{"unheard_of":null}}"#,
            "openid",
        )
        .unwrap();
        assert_eq!(
            (request, demands),
            (ClaimsRequest::default(), ClaimsDemands::default())
        );
        for text in ["", "[]", "\"x\"", r#"{"userinfo":[]}"#, "{"] {
            assert_eq!(read(text, ""), Err(MalformedClaims), "{text}");
        }
    }

    #[test]
    fn a_demanded_subject_and_acr_are_read() {
        let (_, demands) = read(
            r#"{"id_token":{"sub":{"value":"u"},"acr":{"essential":true,"values":["a","b"]}}}"#,
            "",
        )
        .unwrap();
        assert_eq!(demands.subjects, Some(set(&["u"])));
        assert_eq!(demands.essential_acr, Some(set(&["a", "b"])));
    }

    #[test]
    fn an_essential_acr_gets_the_highest_requested_value_that_the_sign_in_reaches() {
        use AuthenticationLevel::{OneFactor, PhishingResistant, TwoFactors};

        for (acr, level, expected) in [
            (r#"{"essential":true,"values":["1"]}"#, TwoFactors, OneFactor),
            (r#"{"essential":true,"values":["1"]}"#, OneFactor, OneFactor),
            (r#"{"essential":true,"values":["1","2"]}"#, TwoFactors, TwoFactors),
            (
                r#"{"essential":true,"values":["2","gold"]}"#,
                PhishingResistant,
                TwoFactors,
            ),
            (
                r#"{"essential":true,"values":["2","1"]}"#,
                PhishingResistant,
                TwoFactors,
            ),
            (
                r#"{"essential":true,"value":"phr"}"#,
                PhishingResistant,
                PhishingResistant,
            ),
            (r#"{"essential":true}"#, TwoFactors, TwoFactors),
            (r#"{"values":["1"]}"#, TwoFactors, TwoFactors),
            ("null", TwoFactors, TwoFactors),
        ] {
            let (request, _) = read(&format!(r#"{{"id_token":{{"acr":{acr}}}}}"#), "").unwrap();
            assert_eq!(request.acr(Some(level)), Some(expected), "{acr}");
            assert_eq!(request.acr(None), None, "{acr}");
            let json = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<ClaimsRequest>(&json).unwrap(), request);
            assert_eq!(request.clone().within(&Scope::empty()), request);
        }
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
            let (_, demands) = read(&text, "").unwrap();
            assert_eq!(demands.subjects, subjects, "{sub}");
            assert_eq!(demands.essential_acr, None, "{sub}");
        }
        let (_, demands) = read(r#"{"id_token":{"acr":{"essential":true,"value":1}}}"#, "").unwrap();
        assert_eq!(demands.essential_acr, Some(set(&[])));
    }
}
