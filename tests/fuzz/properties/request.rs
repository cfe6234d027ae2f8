//! The contents of headers and bodies.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderValue};
use idsvc::http::cookie::Cookie;
use idsvc::http::request::{basic_credentials, bearer_token};
use idsvc::oauth::client::GrantType;
use idsvc::oauth::client_auth::{BasicCredentials, Credentials};
use idsvc::oauth::error::Refusal;
use idsvc::oauth::parameters::{ParameterError, Parameters};
use idsvc::oauth::token::{self, TokenRequest};
use serde_json::Value;

use super::reference::{is_description, lines};

fn headers(name: &http::HeaderName, lines: &[&[u8]]) -> Option<HeaderMap> {
    let values = lines
        .iter()
        .map(|line| Some((name.clone(), HeaderValue::from_bytes(line).ok()?)));
    values.collect()
}

/// A header is read as one scheme or the other, its credentials are those that a client would have written so,
/// and a second header spoils it.
pub(super) fn basic_header(data: &[u8]) -> bool {
    let Some(once) = headers(&AUTHORIZATION, &[data]) else {
        return false;
    };
    let basic = basic_credentials(&once);
    let bearer = bearer_token(&once);
    if let Ok(Some(found)) = &basic {
        let BasicCredentials { user, password } = &found.decoded;
        assert_eq!(bearer, Ok(None));
        assert!(data.get(..5).unwrap().eq_ignore_ascii_case(b"basic"));
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = STANDARD.encode(format!("{}:{}", encode(user), encode(password)));
        let written = headers(&AUTHORIZATION, &[format!("Basic {pair}").as_bytes()]).unwrap();
        let again = basic_credentials(&written).unwrap().unwrap();
        assert_eq!(again.decoded, found.decoded);
    }
    if let Ok(Some(token)) = &bearer {
        assert_eq!(basic, Ok(None));
        assert!(data.get(..6).unwrap().eq_ignore_ascii_case(b"bearer"));
        assert!(!token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(data.ends_with(token.as_bytes()) || data.ends_with(b" "));
    }
    let twice = headers(&AUTHORIZATION, &[data, data]).unwrap();
    assert!(basic_credentials(&twice).is_err() && bearer_token(&twice).is_err());
    matches!(basic, Ok(Some(_))) || matches!(bearer, Ok(Some(_)))
}

/// A cookie is the one value that was sent under its name; what is set can be read back and adds no attribute.
pub(super) fn cookie(data: &[u8]) -> bool {
    let sent: Vec<_> = lines(data).collect();
    let kinds = [Cookie::Session, Cookie::Browser, Cookie::Device, Cookie::Language];
    let mut is_read = false;
    if let Some(headers) = headers(&COOKIE, &sent) {
        for kind in kinds {
            let texts = sent
                .iter()
                .filter(|line| line.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~')));
            let mut values = Vec::new();
            for pair in texts.flat_map(|line| line.split(|byte| *byte == b';')) {
                let pair = std::str::from_utf8(pair).unwrap().trim();
                let Some(rest) = pair.strip_prefix(kind.name()) else {
                    continue;
                };
                values.extend(rest.strip_prefix('='));
            }
            values.dedup();
            let expected = if let [value] = values.as_slice() {
                Some(*value)
            } else {
                None
            };
            let found = kind.read(&headers, "");
            assert_eq!(found, expected.filter(|value| !value.is_empty()));
            is_read |= found.is_some();
        }
    }
    let Ok(value) = std::str::from_utf8(data) else {
        return is_read;
    };
    for kind in kinds {
        let Some(header) = kind.set("", value, None) else {
            continue;
        };
        let text = header.to_str().unwrap();
        let (pair, attributes) = text.split_once(';').unwrap();
        assert_eq!(pair, format!("{}={value}", kind.name()));
        assert_eq!(attributes, " Path=/; Secure; HttpOnly; SameSite=Lax");
        let back = headers(&COOKIE, &[pair.as_bytes()]).unwrap();
        assert_eq!(kind.read(&back, "").unwrap_or_default(), value);
    }
    is_read
}

/// A form is read as every other reader of forms reads it, or refused.
pub(super) fn form_body(data: &[u8]) -> bool {
    let pairs: Vec<(String, String)> = form_urlencoded::parse(data).into_owned().collect();
    match Parameters::parse(data) {
        Ok(parameters) => {
            check_parameters(&parameters, pairs);
            let written = form_urlencoded::Serializer::new(String::new())
                .extend_pairs(parameters.iter())
                .finish();
            let again = Parameters::parse(written.as_bytes()).unwrap();
            assert!(again.iter().eq(parameters.iter()));
            true
        }
        Err(ParameterError::TooMany) => {
            assert!(pairs.len() > 64);
            false
        }
        Err(ParameterError::NotUtf8) => {
            assert!(
                pairs
                    .iter()
                    .any(|(name, value)| [name, value].iter().any(|text| text.contains('\u{fffd}')))
            );
            false
        }
        Err(error) => panic!("{error} is about something else"),
    }
}

/// A JSON body is an object of strings as every other reader of JSON reads it, or refused.
pub(super) fn json_body(data: &[u8]) -> bool {
    let value = serde_json::from_slice::<Value>(data);
    match (Parameters::parse_json(data), value) {
        (Ok(parameters), Ok(Value::Object(members))) => {
            if parameters.first_repeated().is_none() && members.len() <= 64 {
                let texts = members
                    .iter()
                    .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
                let ours: BTreeMap<_, _> = parameters.iter().collect();
                let theirs: Vec<_> = texts.collect();
                // of a name that is repeated without a value the last value stands in theirs
                for (name, value) in &theirs {
                    assert!(value.is_empty() || ours.get(name.as_str()) == Some(&value.as_str()));
                }
            }
            let pairs = parameters
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
            let pairs = pairs.collect::<Vec<_>>();
            let members = pairs
                .iter()
                .map(|(name, value)| (name.clone(), Value::from(value.as_str())));
            let written = Value::Object(members.collect()).to_string();
            let again = Parameters::parse_json(written.as_bytes()).unwrap();
            let sorted = |parameters: &Parameters| {
                let pairs = parameters
                    .iter()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()));
                pairs.collect::<BTreeMap<_, _>>()
            };
            assert_eq!(sorted(&again), sorted(&parameters));
            read_token_request(&parameters);
            true
        }
        (Ok(_), _) => panic!("accepted what is no JSON object"),
        (Err(ParameterError::NotAnObject), Ok(Value::Object(_))) => panic!("refused a JSON object"),
        (Err(_), _) => false,
    }
}

fn check_parameters(parameters: &Parameters, pairs: Vec<(String, String)>) {
    let mut expected: Vec<(String, String)> = Vec::new();
    let mut repeated = Vec::new();
    for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
        if expected.iter().any(|(known, _)| *known == name) {
            // RFC 8707 section 2
            if name != "resource" {
                repeated.push(name);
            }
        } else {
            expected.push((name, value));
        }
    }
    assert!(
        parameters.iter().eq(expected
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())))
    );
    for (name, value) in &expected {
        assert_eq!(parameters.get(name), Some(value.as_str()));
        assert_eq!(parameters.is_repeated(name), repeated.contains(name));
    }
    assert_eq!(parameters.first_repeated(), repeated.first().map(String::as_str));
    assert_eq!(parameters.each_once().is_ok(), repeated.is_empty());
    read_token_request(parameters);
}

fn check_refusal(refusal: &Refusal) {
    assert!(is_description(&refusal.description), "{refusal:?}");
}

/// Reads the parameters as a token request of every grant, and as credentials.
fn read_token_request(parameters: &Parameters) {
    if let Err(error) = parameters.each_once() {
        assert!(is_description(&error.to_string()), "{error}");
    }
    let asked = token::grant_type(parameters, "idsvc");
    match &asked {
        Ok(grant) => assert_eq!(parameters.get("grant_type"), Some(&*grant.value("idsvc"))),
        Err(refusal) => check_refusal(refusal),
    }
    for grant in GrantType::ALL {
        let needed = match grant {
            GrantType::AuthorizationCode => "code",
            GrantType::RefreshToken => "refresh_token",
            GrantType::JwtBearer => "assertion",
            GrantType::TokenExchange => "subject_token",
            GrantType::DeviceCode => "device_code",
            GrantType::ClientCredentials | GrantType::Anonymous => "grant_type",
        };
        match TokenRequest::parse(grant, parameters) {
            Ok(_) => assert!(needed == "grant_type" || parameters.get(needed).is_some()),
            Err(refusal) => check_refusal(&refusal),
        }
    }
    match Credentials::parse(None, parameters, None) {
        Ok(credentials) => {
            let named = parameters.get("client_id");
            assert!(named.is_none_or(|named| named == credentials.client_id));
            assert!(named.is_some() || credentials.assertion().is_some());
            assert!(credentials.assertion().is_none() || parameters.get("client_secret").is_none());
        }
        Err(refusal) => check_refusal(&refusal),
    }
}
