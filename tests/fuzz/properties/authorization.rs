//! The contents of an authorization request.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use http::HeaderValue;
use idsvc::clock::Timestamp;
use idsvc::oauth::authorize::{AuthorizationRequest, AuthorizationResponse, ResponseTarget, response_target};
use idsvc::oauth::client::{AuthMethod, Client, ClientMetadata, ClientOrigin, ConsentRequirement, GrantType};
use idsvc::oauth::error::{ErrorCode, Refusal};
use idsvc::oauth::openid::claims::{ClaimsParameter, ClaimsRequest, supported};
use idsvc::oauth::parameters::Parameters;
use idsvc::oauth::redirect_uri::{check_registrable, with_query};
use idsvc::oauth::registered_scope::RegisteredScopes;
use idsvc::oauth::registration::{RequestedChange, RequestedMetadata, document, refusal_of};
use idsvc::oauth::resource::Apis;
use idsvc::oauth::{Api, ApiMetadata, RegisteredScope, Scope};
use serde_json::Value;
use url::Url;
use uuid::Uuid;

use super::reference::{is_description, lines};

const ISSUER: &str = "https://id.example";

fn client(method: AuthMethod, redirect_uris: &[&str]) -> Client {
    Client {
        client_id: "app".to_owned(),
        client_uuid: Uuid::nil(),
        own_grant: Uuid::nil(),
        incarnation: Uuid::nil(),
        token_endpoint_auth_methods: [method].into(),
        secrets: Vec::new(),
        api_keys: Vec::new(),
        metadata: ClientMetadata {
            redirect_uris: redirect_uris.iter().map(|uri| (*uri).to_owned()).collect(),
            scope: Scope::of(["openid", "profile", "notes.read"]).unwrap(),
            default_scope: Scope::of(["openid"]).unwrap(),
            grant_types: [GrantType::AuthorizationCode].into(),
            consent: ConsentRequirement::Require,
            ..ClientMetadata::default()
        },
        origin: ClientOrigin::Operator,
        registration: None,
        held_by: None,
        redirects_changed_at: None,
        enabled: true,
        created_at: Timestamp::from_seconds(0),
        updated_at: Timestamp::from_seconds(0),
    }
}

static CLIENTS: LazyLock<[Client; 2]> = LazyLock::new(|| {
    [
        client(
            AuthMethod::None,
            &[
                "http://127.0.0.1/cb",
                "http://[::1]:80/cb?a=1",
                "com.example.app:/cb",
            ],
        ),
        client(
            AuthMethod::ClientSecretBasic,
            &["https://app.example/cb?tenant=1"],
        ),
    ]
});

static APIS: LazyLock<Apis> = LazyLock::new(|| {
    let api = |id: &str, open| Api {
        id: id.to_owned(),
        uuid: Uuid::nil(),
        identifier: format!("https://api.example/{id}"),
        metadata: ApiMetadata {
            open,
            scope: format!("{id}.read").parse().unwrap(),
            ..ApiMetadata::default()
        },
        created_at: Timestamp::from_seconds(0),
        updated_at: Timestamp::from_seconds(0),
    };
    Apis::new([api("open", true), api("closed", false)])
});

/// An answer leads to a registered address, carries `state` as it was sent and adds nothing of the sender's
/// choice; a request that is accepted asks for no more than the client may have.
pub(super) fn authorize_query(data: &[u8]) -> bool {
    let Ok(parameters) = Parameters::parse(data) else {
        return false;
    };
    let mut is_accepted = false;
    for client in CLIENTS.iter() {
        let Ok(reply) = response_target(&parameters, client) else {
            continue;
        };
        check_address(client, parameters.get("redirect_uri"), reply.return_to.uri());
        assert_eq!(reply.state.as_deref(), parameters.get("state"));
        check_answer(&reply, &reply.code("idsvc_ac_code", ISSUER));
        match AuthorizationRequest::parse(&parameters, client, &APIS, &SCOPES, reply.clone(), &|_| None) {
            Ok(request) => {
                is_accepted = true;
                assert_eq!(parameters.get("response_type"), Some("code"));
                assert_eq!(parameters.first_repeated(), None);
                assert!(request.scope.is_within(&client.scope));
                assert!(
                    request
                        .resources
                        .iter()
                        .all(|named| named == "https://api.example/open")
                );
                assert!(request.scope_for_consent().is_within(&client.scope));
                assert!(request.code_challenge.is_some() || !client.is_public());
                let asked = parameters.get("scope").map(|text| text.parse::<Scope>().unwrap());
                // One that names nothing counts as omitted.
                let named = asked.filter(|asked| !asked.is_empty());
                assert!(named.is_none_or(|named| request.scope.is_within(&named)));
                let kept = serde_json::to_vec(&request).unwrap();
                assert_eq!(
                    serde_json::from_slice::<AuthorizationRequest>(&kept).unwrap(),
                    request
                );
            }
            Err(refusal) => {
                assert!(is_description(&refusal.description), "{refusal:?}");
                check_answer(&reply, &reply.refusal(&refusal, ISSUER));
            }
        }
    }
    is_accepted
}

/// A client with accepted metadata may only sign users in. A refusal has a description.
pub(super) fn registration(data: &[u8]) -> bool {
    let refused = |refusal: Refusal| {
        assert!(is_description(&refusal.description), "{refusal:?}");
        let codes = [ErrorCode::InvalidRedirectUri, ErrorCode::InvalidClientMetadata];
        assert!(codes.contains(&refusal.code));
        false
    };
    let requested = match RequestedMetadata::parse(data) {
        Ok(requested) => requested,
        Err(refusal) => return refused(refusal),
    };
    let mut registered = client(requested.auth_method(), &[]);
    registered.origin = ClientOrigin::DynamicRegistration;
    let (allowed, mut faults) = (registered.scope.clone(), Vec::new());
    requested
        .fields(&allowed)
        .apply(&mut registered.metadata, &mut faults);
    if let Some(refusal) = refusal_of(&faults) {
        return refused(refusal);
    }
    assert!(registered.default_scope.is_within(&allowed) && registered.scope == allowed);
    let for_people = [GrantType::AuthorizationCode, GrantType::DeviceCode];
    let is_allowed = |grant: &GrantType| for_people.contains(grant) || *grant == GrantType::RefreshToken;
    assert!(registered.grant_types.iter().all(is_allowed));
    assert!(for_people.into_iter().any(|grant| registered.may_use(grant)) && registered.requires_consent());
    let mut again = Value::Object(document(&registered));
    let members = again.as_object_mut().unwrap();
    members.remove("client_id_issued_at");
    let body = again.to_string();
    let change = RequestedChange::parse(body.as_bytes(), "app").unwrap().metadata;
    let mut changed = registered.clone();
    change.fields(&allowed).apply(&mut changed.metadata, &mut faults);
    assert_eq!(changed.metadata, registered.metadata);
    true
}

fn check_answer(reply: &ResponseTarget, answer: &AuthorizationResponse) {
    let location = answer.location();
    assert!(
        HeaderValue::from_str(&location).is_ok() && !location.contains('#'),
        "{location}"
    );
    let rest = location.strip_prefix(reply.return_to.uri()).unwrap();
    let query = rest.trim_start_matches(['?', '&']);
    let read: Vec<_> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let meant = answer
        .parameters
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    assert_eq!(read, meant.collect::<Vec<_>>());
    assert_eq!(read.last().unwrap().1, ISSUER);
    let state = read
        .iter()
        .find(|(name, _)| name == "state")
        .map(|(_, value)| value);
    assert_eq!(state, reply.state.as_ref());
}

/// Where a request leads, judged by the parser that browsers follow.
fn check_address(client: &Client, requested: Option<&str>, uri: &str) {
    let is_registered = |uri: &str| client.redirect_uris.iter().any(|registered| registered == uri);
    let Some(requested) = requested else {
        assert!(client.redirect_uris.len() == 1 && is_registered(uri));
        return;
    };
    assert_eq!(requested, uri);
    if is_registered(uri) {
        return;
    }
    assert!(client.is_public());
    let there = Url::parse(uri).unwrap();
    assert!(matches!(there.host_str(), Some("127.0.0.1" | "[::1]")), "{uri}");
    assert!(there.scheme() == "http" && there.username().is_empty() && there.password().is_none());
    let is_alike = |registered: &String| {
        Url::parse(registered).is_ok_and(|known| {
            let parts = |url: &Url| {
                (
                    url.host_str().map(str::to_owned),
                    url.path().to_owned(),
                    url.query().map(str::to_owned),
                )
            };
            parts(&known) == parts(&there)
        })
    };
    assert!(client.redirect_uris.iter().any(is_alike), "{uri}");
}

/// A registered address is safe to send a browser to, and only it, or the same on another loopback port,
/// matches. The input is what is registered and, on the next line, what a request names.
pub(super) fn redirect_uri(data: &[u8]) -> bool {
    let mut texts = lines(data).map(std::str::from_utf8);
    let (Some(Ok(registered)), requested) = (texts.next(), texts.next()) else {
        return false;
    };
    let mut is_accepted = false;
    for method in [AuthMethod::None, AuthMethod::ClientSecretPost] {
        let is_public = method == AuthMethod::None;
        if check_registrable(registered, is_public).is_err() {
            continue;
        }
        is_accepted = true;
        let url = Url::parse(registered).unwrap();
        assert!(url.fragment().is_none() && url.username().is_empty() && url.password().is_none());
        assert!(!["javascript", "data", "file", "blob", "about", "vbscript"].contains(&url.scheme()));
        assert!(
            is_public || matches!(url.scheme(), "http" | "https"),
            "{registered}"
        );
        assert!(
            url.scheme() != "http"
                || url.host().is_some_and(|host| match host {
                    url::Host::Domain(name) => name == "localhost",
                    url::Host::Ipv4(address) => address.is_loopback(),
                    url::Host::Ipv6(address) => address.is_loopback(),
                })
        );
        assert!(HeaderValue::from_str(registered).is_ok());
        let elsewhere = Url::parse("https://id.example/oauth2/authorize").unwrap();
        assert_eq!(
            elsewhere.join(registered).unwrap(),
            url,
            "a browser takes it for another address"
        );
        let client = client(method, &[registered]);
        assert_eq!(client.match_redirect_uri(None).unwrap().uri(), registered);
        assert!(client.match_redirect_uri(Some(registered)).is_ok());
        if let Some(Ok(requested)) = requested {
            if let Ok(found) = client.match_redirect_uri(Some(requested)) {
                check_address(&client, Some(requested), found.uri());
            }
            check_query(registered, requested);
        }
    }
    is_accepted
}

fn check_query(uri: &str, value: &str) {
    let location = with_query(uri, &[("state", value)]);
    assert!(HeaderValue::from_str(&location).is_ok());
    let (before, after) = (Url::parse(uri).unwrap(), Url::parse(&location).unwrap());
    assert_eq!(
        before.origin().ascii_serialization(),
        after.origin().ascii_serialization()
    );
    assert_eq!(before.path(), after.path());
    let last = after.query_pairs().last().unwrap();
    assert_eq!((&*last.0, &*last.1), ("state", value));
    let kept = before
        .query_pairs()
        .filter(|pair| after.query_pairs().any(|other| other == *pair));
    assert_eq!(kept.count(), before.query_pairs().count());
}

/// A scope is a set that keeps its order. After any operation it can be written and parsed again. The input is
/// one scope a line.
pub(super) fn scope(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let mut whole = Scope::empty();
    let mut values = BTreeSet::new();
    let mut is_accepted = true;
    for line in text.split('\n') {
        let is_allowed = line
            .bytes()
            .all(|byte| matches!(byte, b' ' | 0x21 | 0x23..=0x5B | 0x5D..=0x7E));
        let named: Vec<_> = line.split(' ').filter(|value| !value.is_empty()).collect();
        let Ok(scope) = line.parse::<Scope>() else {
            assert!(!is_allowed || named.len() > 100);
            is_accepted = false;
            continue;
        };
        assert!(is_allowed);
        let distinct: BTreeSet<_> = named.iter().copied().collect();
        assert_eq!(scope.iter().collect::<BTreeSet<_>>(), distinct);
        assert_eq!(scope.iter().count(), distinct.len());
        assert_eq!(scope.is_empty(), distinct.is_empty());
        check_written(&scope);
        values.extend(distinct);
        whole = whole.union(&scope);
        assert!(scope.is_within(&whole));
        assert_eq!(
            whole.is_within(&scope),
            values.iter().all(|value| scope.contains(value))
        );
        let marked = scope.clone().with(Scope::AUTHENTICATED);
        assert!(marked.contains(Scope::AUTHENTICATED) && scope.is_within(&marked));
        check_written(&marked);
        let unmarked = marked.filter(|value| !Scope::is_marker(value));
        assert!(unmarked.is_within(&marked) && !unmarked.contains(Scope::AUTHENTICATED));
    }
    assert_eq!(whole.iter().collect::<BTreeSet<_>>(), values);
    check_written(&whole);
    is_accepted
}

fn check_written(scope: &Scope) {
    let written = serde_json::to_value(scope).unwrap();
    assert_eq!(written, Value::from(scope.to_string()));
    assert_eq!(serde_json::from_value::<Scope>(written).unwrap(), *scope);
}

/// The scope value `staff` releases the claims `badge` and `name`.
static SCOPES: LazyLock<RegisteredScopes> = LazyLock::new(|| {
    let mut staff = RegisteredScope::new("staff", Uuid::nil(), Timestamp::from_seconds(0));
    staff.metadata.claims = ["badge".to_owned(), "name".to_owned()].into();
    RegisteredScopes::new([staff])
});

fn allowed() -> Scope {
    Scope::of(Scope::STANDARD).unwrap().with("groups").with("staff")
}

/// The `claims` parameter asks for known claims that it names, and for nothing else.
pub(super) fn claims(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let value = serde_json::from_str::<Value>(text).ok();
    let Ok(ClaimsParameter { request, demands }) = ClaimsParameter::parse(text, &allowed(), &SCOPES) else {
        let is_sound = |place: &str| {
            let found = value.as_ref().and_then(|value| value.get(place));
            found.is_none_or(|found| found.is_object() || found.is_null())
        };
        let is_object = value.as_ref().is_some_and(Value::is_object);
        assert!(!is_object || !is_sound("userinfo") || !is_sound("id_token"));
        return false;
    };
    let value = value.unwrap();
    let known = supported(&SCOPES);
    for (place, names) in [("userinfo", &request.userinfo), ("id_token", &request.id_token)] {
        for name in names {
            assert!(
                value[place].get(name).is_some() && known.contains(&name.as_str()),
                "{name}"
            );
        }
    }
    let essential = |name: &str| value["id_token"][name].get("essential") == Some(&Value::Bool(true));
    check_demand(&value["id_token"]["sub"], demands.subjects.as_ref());
    if essential("acr") {
        check_demand(&value["id_token"]["acr"], demands.essential_acr.as_ref());
    } else {
        assert_eq!(demands.essential_acr, None);
    }
    let written = serde_json::to_vec(&request).unwrap();
    assert_eq!(
        serde_json::from_slice::<ClaimsRequest>(&written).unwrap(),
        request
    );
    let implied = request.implied_scope();
    assert_eq!(request.clone().within(&implied), request);
    let unscoped = request.clone().within(&Scope::empty());
    assert!(unscoped.userinfo.is_empty() && unscoped.id_token.is_empty());
    assert_eq!(unscoped.acr, request.acr, "acr belongs to no scope value");
    assert_eq!(request.is_empty(), implied.is_empty() && request.acr.is_empty());
    true
}

/// What a claim was demanded to be is what is demanded: nothing is passed over, and nothing comes in.
fn check_demand(claim: &Value, demanded: Option<&BTreeSet<String>>) {
    let said = |name: &str| claim.get(name).filter(|demand| !demand.is_null());
    let (value, values) = (said("value"), said("values"));
    assert_eq!(demanded.is_some(), value.is_some() || values.is_some());
    for text in demanded.into_iter().flatten() {
        let text = Value::from(text.as_str());
        assert!(value.is_none_or(|value| *value == text));
        assert!(values.is_none_or(|values| values.as_array().unwrap().contains(&text)));
    }
    if let (Some(Value::String(only)), None) = (value, values) {
        assert!(demanded.unwrap().contains(only));
    }
}
