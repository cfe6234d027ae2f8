//! Which APIs a token is for: RFC 8707, RFC 9068 section 3.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::oauth::api::{Api, canonical_identifier};
use crate::oauth::client::Client;
use crate::oauth::error::{ErrorCode, Refusal, printable};
use crate::oauth::parameters::Parameters;
use crate::oauth::scope::Scope;

/// The most APIs that one request may name.
const MOST_RESOURCES: usize = 10;

/// The answer to a request for an API that is unknown, or that the client may not name (RFC 8707 section 2).
pub fn unknown(identifier: &str) -> Refusal {
    refused("the API is unknown, or this client may not name it", identifier)
}

/// The answer to a token request for an API that is not among those of the grant (RFC 8707 section 2.2).
pub fn not_granted(identifier: &str) -> Refusal {
    refused(
        "the API was not granted; name it in the authorization request",
        identifier,
    )
}

fn refused(rule: &str, identifier: &str) -> Refusal {
    let description = format!("{rule}: resource {}", printable(identifier, 200));
    Refusal {
        description: description.into(),
        ..Refusal::new(ErrorCode::InvalidTarget, "")
    }
}

/// The answer if the client can no longer use any API of the grant.
pub const NO_API_LEFT: Refusal = Refusal::new(
    ErrorCode::InvalidTarget,
    "the API of this grant was removed, or this client may no longer name it",
);

/// The values of `resource` in a request. Each is the identifier of an API, in any spelling.
pub type Resources = BTreeSet<String>;

/// Reads `resource`, which may be repeated (RFC 8707 section 2).
pub fn resources(parameters: &Parameters) -> Result<Resources, Refusal> {
    let named: Resources = parameters.resources().map(ToOwned::to_owned).collect();
    if named.len() > MOST_RESOURCES {
        return Err(Refusal::new(
            ErrorCode::InvalidTarget,
            "resource names more than ten APIs",
        ));
    }
    Ok(named)
}

/// The APIs and the scope of an access token.
#[derive(Clone, Debug, Default)]
pub struct TokenTarget {
    /// The APIs; empty for the default audience of the client.
    pub apis: Vec<Arc<Api>>,
    /// Whether the token request itself named the APIs. Then the issuer is not in the audience.
    pub is_exact: bool,
    /// The scope of the token: the granted values, without those of other APIs.
    pub scope: Scope,
}

/// The registered APIs.
#[derive(Debug, Default)]
pub struct Apis {
    all: BTreeMap<String, Arc<Api>>,
    by_identifier: HashMap<String, Arc<Api>>,
    by_scope: HashMap<String, Arc<Api>>,
}

impl Apis {
    pub fn new(all: impl IntoIterator<Item = Api>) -> Self {
        let mut apis = Self::default();
        for api in all.into_iter().map(Arc::new) {
            apis.by_identifier
                .insert(api.identifier.clone(), Arc::clone(&api));
            for value in api.metadata.scope.iter() {
                apis.by_scope.insert(value.to_owned(), Arc::clone(&api));
            }
            apis.all.insert(api.id.clone(), api);
        }
        // An earlier release could register two identifiers that differ only in case. Each still names its own API.
        for api in apis.all.values() {
            let canonical = apis.by_identifier.entry(canonical_identifier(&api.identifier));
            canonical.or_insert_with(|| Arc::clone(api));
        }
        apis
    }

    /// All APIs by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Api>> {
        self.all.values()
    }

    /// Whether there is an API with this id.
    pub fn contains(&self, id: &str) -> bool {
        self.all.contains_key(id)
    }

    /// The API that a value of `resource` or `aud` names.
    pub fn named(&self, identifier: &str) -> Option<&Arc<Api>> {
        let as_registered = self.by_identifier.get(identifier);
        as_registered.or_else(|| self.by_identifier.get(&canonical_identifier(identifier)))
    }

    /// The registered identifier of the API that a value of `resource` names. Without such an API, the value in its
    /// canonical form.
    pub fn identifier_of(&self, value: &str) -> String {
        let api = self.named(value);
        api.map_or_else(|| canonical_identifier(value), |api| api.identifier.clone())
    }

    /// The API that a scope value belongs to.
    pub fn of_scope(&self, value: &str) -> Option<&Arc<Api>> {
        self.by_scope.get(value)
    }

    /// Adds the scope values of the APIs that the client may name to the scope of the client.
    #[must_use]
    pub fn expand_scope(&self, mut client: Client) -> Client {
        client.scope = self.scope_with(&client, |api| may_name(&client, api));
        client
    }

    /// The scope that a client may get for itself, without a user: its own scope, and that of the APIs in its record.
    /// An open API is open only to clients that act for a user.
    pub fn scope_without_user(&self, client: &Client) -> Scope {
        self.scope_with(client, |api| client.apis.contains(&api.id))
    }

    fn scope_with(&self, client: &Client, includes: impl Fn(&Api) -> bool) -> Scope {
        let included = self.iter().filter(|api| includes(api));
        included.fold(client.scope.clone(), |scope, api| {
            scope.union(&api.metadata.scope)
        })
    }

    /// What a token that a client gets for itself is for. It may name the APIs in its record.
    pub fn target_without_user(
        &self,
        client: &Client,
        scope: &Scope,
        named: &Resources,
    ) -> Result<TokenTarget, Refusal> {
        let granted = self.resolve(named, client)?;
        let target = self.target(client, &granted, scope, named)?;
        let is_own = |api: &Arc<Api>| client.apis.contains(&api.id);
        match target.apis.iter().find(|api| !is_own(api)) {
            Some(api) if target.is_exact => Err(unknown(&api.identifier)),
            _ => Ok(target),
        }
    }

    /// The identifiers of the APIs that a client asks for at the start of a grant.
    pub fn resolve(&self, named: &Resources, client: &Client) -> Result<Resources, Refusal> {
        let allowed = named.iter().map(|identifier| {
            let api = self.named(identifier).filter(|api| may_name(client, api));
            api.map(|api| api.identifier.clone())
                .ok_or_else(|| unknown(identifier))
        });
        allowed.collect()
    }

    /// The scope without the values of APIs outside of `granted`. If `granted` is empty, the whole scope.
    pub fn scope_within(&self, scope: &Scope, granted: &Resources) -> Scope {
        let is_granted = |value: &str| {
            let api = self.of_scope(value);
            api.is_none_or(|api| granted.contains(&api.identifier))
        };
        scope.filter(|value| granted.is_empty() || is_granted(value))
    }

    /// The APIs and the scope of a token. `granted` are the APIs of the grant; if there are none, the scope determines
    /// the APIs. `named` are the APIs of the token request, which may narrow the grant (RFC 8707 section 2.2).
    pub fn target(
        &self,
        client: &Client,
        granted: &Resources,
        scope: &Scope,
        named: &Resources,
    ) -> Result<TokenTarget, Refusal> {
        let is_left = |identifier: &String| {
            let api = self.named(identifier);
            api.is_some_and(|api| may_name(client, api))
        };
        if !granted.is_empty() && !granted.iter().any(is_left) {
            return Err(NO_API_LEFT);
        }
        let is_granted = |api: &&Arc<Api>| {
            if granted.is_empty() {
                api.metadata.scope.iter().any(|value| scope.contains(value))
            } else {
                granted.contains(&api.identifier) && may_name(client, api)
            }
        };
        let mut apis: Vec<Arc<Api>> = Vec::new();
        if named.is_empty() {
            apis.extend(self.iter().filter(is_granted).cloned());
        }
        for identifier in named {
            let api = self.named(identifier).filter(is_granted);
            let api = api.ok_or_else(|| not_granted(identifier))?;
            if !apis.iter().any(|other| other.id == api.id) {
                apis.push(Arc::clone(api));
            }
        }
        let is_for = |value: &str| {
            let api = self.of_scope(value);
            api.is_none_or(|api| apis.iter().any(|other| other.id == api.id))
        };
        Ok(TokenTarget {
            scope: scope.filter(is_for),
            is_exact: !named.is_empty(),
            apis,
        })
    }
}

/// Whether the client may name the API in `resource`.
fn may_name(client: &Client, api: &Api) -> bool {
    api.metadata.open || client.apis.contains(&api.id)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::clock::Timestamp;
    use crate::oauth::ApiMetadata;

    const NOW: Timestamp = Timestamp::from_seconds(0);

    fn api(id: &str, open: bool) -> Api {
        Api {
            id: id.to_owned(),
            uuid: Uuid::nil(),
            identifier: format!("https://api.example/{id}"),
            metadata: ApiMetadata {
                open,
                scope: format!("{id}.read").parse().unwrap(),
                ..ApiMetadata::default()
            },
            created_at: NOW,
            updated_at: NOW,
        }
    }

    #[test]
    fn an_open_api_gives_its_scope_to_clients_of_users_only() {
        let apis = Apis::new([api("mine", false), api("open", true), api("other", false)]);
        let mut client = Client::new("web", Uuid::nil(), Uuid::nil(), false, NOW);
        client.scope = "openid".parse().unwrap();
        client.apis = ["mine".to_owned()].into();
        let expanded = apis.expand_scope(client.clone());
        assert_eq!(expanded.scope.to_string(), "openid mine.read open.read");
        assert_eq!(apis.scope_without_user(&client).to_string(), "openid mine.read");
    }

    #[test]
    fn identifiers_that_differ_in_case_name_their_own_apis() {
        let at = |id: &str, identifier: &str| Api {
            identifier: identifier.to_owned(),
            ..api(id, true)
        };
        let apis = Apis::new([
            at("upper", "https://API.example"),
            at("lower", "https://api.example/"),
        ]);
        let named = |identifier: &str| apis.named(identifier).map(|api| api.id.as_str());
        assert_eq!(named("https://API.example"), Some("upper"));
        assert_eq!(named("https://api.example/"), Some("lower"));
        assert_eq!(named("https://api.EXAMPLE"), Some("lower"));
        assert_eq!(named("https://api.example/a"), None);
    }
}
