//! Request parameters: names and values, from a query, a form or a JSON object.
//!
//! A repeated name is a fault (RFC 6749 section 3.1). The authorization endpoint can report it only after it knows the
//! client. Repeated names are therefore recorded, and [`Parameters::each_once`] refuses them. Only `resource` (RFC 8707
//! section 2) and `audience` (RFC 8693 section 2.1) may be repeated.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::percent_decode;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::error::{ErrorCode, Refusal};

/// More parameters than any request has.
const MAX_PARAMETERS: usize = 64;
/// The longest name that an error description contains.
const MAX_SHOWN_NAME: usize = 40;
/// The parameter that may be repeated: the APIs for which the client wants tokens (RFC 8707 section 2).
const RESOURCE: &str = "resource";
/// The same for a token exchange, where an API may also be named by its id (RFC 8693 section 2.1).
const AUDIENCE: &str = "audience";

/// Why a query, form or object is refused. All of them are `invalid_request`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// More than 64.
    #[error("too many parameters")]
    TooMany,
    /// A decoded name or value is not UTF-8 (RFC 6749 appendix B).
    #[error("a parameter is not valid UTF-8")]
    NotUtf8,
    /// A name occurs twice (RFC 6749 section 3.1).
    #[error("{} was sent more than once", shown(.0))]
    Duplicate(String),
    /// The body is not a JSON object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// A member's value is a number, an array, an object, a boolean or null.
    #[error("{} is not a JSON string", shown(.0))]
    NotAString(String),
}

impl From<ParameterError> for Refusal {
    fn from(error: ParameterError) -> Self {
        Self::naming(ErrorCode::InvalidRequest, &error.to_string())
    }
}

/// The name as an error description may contain it (RFC 6749 section 5.2): one word. A sentence could mislead the user,
/// because an attacker may have made the link.
fn shown(name: &str) -> &str {
    let is_word = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
    if is_word && (1..=MAX_SHOWN_NAME).contains(&name.len()) {
        name
    } else {
        "a parameter"
    }
}

/// The parameters of one request in their order. Values are wiped when they are dropped, and never printed.
#[derive(Clone, Default)]
pub struct Parameters {
    pairs: Vec<(String, Zeroizing<String>)>,
    repeated: Vec<String>,
    /// The values of `resource` and `audience` after the first ones.
    further: Vec<(&'static str, Zeroizing<String>)>,
}

impl Parameters {
    /// Reads `application/x-www-form-urlencoded` (RFC 6749 appendix B): a query without its `?`, or a body.
    ///
    /// A parameter without a value counts as omitted (RFC 6749 section 3.1). A `%` that does not begin an escape is
    /// kept, as browsers do.
    pub fn parse(form: &[u8]) -> Result<Self, ParameterError> {
        let mut parameters = Self::default();
        let pieces = form.split(|byte| *byte == b'&').filter(|piece| !piece.is_empty());
        for (index, piece) in pieces.enumerate() {
            if index >= MAX_PARAMETERS {
                return Err(ParameterError::TooMany);
            }
            let mut halves = piece.splitn(2, |byte| *byte == b'=');
            let name = form_decode(halves.next().unwrap_or_default()).ok_or(ParameterError::NotUtf8)?;
            let value = form_decode(halves.next().unwrap_or_default()).ok_or(ParameterError::NotUtf8)?;
            parameters.add(&name, value);
        }
        Ok(parameters)
    }

    /// Reads a JSON object whose values are strings. An empty string counts as omitted.
    pub fn parse_json(json: &[u8]) -> Result<Self, ParameterError> {
        let Members(members) = serde_json::from_slice(json).map_err(|_| ParameterError::NotAnObject)?;
        if members.len() > MAX_PARAMETERS {
            return Err(ParameterError::TooMany);
        }
        let mut parameters = Self::default();
        for (name, value) in members {
            let Value::String(value) = value else {
                return Err(ParameterError::NotAString(name));
            };
            parameters.add(&name, Zeroizing::new(value));
        }
        Ok(parameters)
    }

    /// Reads the claims of a request object (RFC 9101 section 4). The value of a claim that is not a string is its JSON
    /// text. `resource` may be a list.
    pub fn of_claims(claims: &Map<String, Value>) -> Result<Self, ParameterError> {
        if claims.len() > MAX_PARAMETERS {
            return Err(ParameterError::TooMany);
        }
        let mut parameters = Self::default();
        for (name, value) in claims {
            let values = match value {
                Value::Array(values) if name == RESOURCE => values.as_slice(),
                value => std::slice::from_ref(value),
            };
            for value in values {
                let text = match value {
                    Value::Null => continue,
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                parameters.add(name, Zeroizing::new(text));
            }
        }
        Ok(parameters)
    }

    fn add(&mut self, name: &str, value: Zeroizing<String>) {
        if value.is_empty() {
            return;
        }
        if self.get(name).is_none() {
            self.pairs.push((name.to_owned(), value));
        } else if let Some(name) = [RESOURCE, AUDIENCE].into_iter().find(|known| *known == name) {
            self.further.push((name, value));
        } else if !self.is_repeated(name) {
            self.repeated.push(name.to_owned());
        }
    }

    /// Refuses repeated names.
    pub fn each_once(&self) -> Result<(), ParameterError> {
        match self.first_repeated() {
            None => Ok(()),
            Some(name) => Err(ParameterError::Duplicate(name.to_owned())),
        }
    }

    /// Whether a name is repeated, although it may not be.
    pub fn is_repeated(&self, name: &str) -> bool {
        self.repeated.iter().any(|repeated| repeated == name)
    }

    /// The first name that is repeated, although it may not be.
    pub fn first_repeated(&self) -> Option<&str> {
        self.repeated.first().map(String::as_str)
    }

    /// The value of a parameter, never empty. If the parameter is repeated, its first value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    /// All values of `resource` (RFC 8707 section 2).
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.values(RESOURCE)
    }

    /// All values of `audience` (RFC 8693 section 2.1).
    pub fn audiences(&self) -> impl Iterator<Item = &str> {
        self.values(AUDIENCE)
    }

    fn values(&self, name: &'static str) -> impl Iterator<Item = &str> {
        let further = self.further.iter().filter(move |(found, _)| *found == name);
        self.get(name)
            .into_iter()
            .chain(further.map(|(_, value)| value.as_str()))
    }

    /// All names and values in order, each name once.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.pairs.iter().map(|(name, _)| name))
            .finish()
    }
}

/// Decodes `+` and `%` escapes. `None` if the result is not UTF-8.
pub fn form_decode(encoded: &[u8]) -> Option<Zeroizing<String>> {
    let spaced: Cow<'_, [u8]> = if encoded.contains(&b'+') {
        encoded
            .iter()
            .map(|byte| if *byte == b'+' { b' ' } else { *byte })
            .collect()
    } else {
        Cow::Borrowed(encoded)
    };
    let decoded = percent_decode(&spaced).decode_utf8().ok()?;
    Some(Zeroizing::new(decoded.into_owned()))
}

/// The members of a JSON object, repeated names included.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(parameters: &Parameters) -> Vec<(&str, &str)> {
        parameters.iter().collect()
    }

    #[test]
    fn escapes_are_resolved_and_order_is_kept() {
        let parameters = Parameters::parse(b"scope=openid+email&state=a%26b%3Dc%2B%C3%A9&x=1=2").unwrap();
        assert_eq!(
            pairs(&parameters),
            [("scope", "openid email"), ("state", "a&b=c+\u{e9}"), ("x", "1=2")]
        );
        assert_eq!(parameters.get("scope"), Some("openid email"));
        assert_eq!(parameters.get("Scope"), None);
    }

    #[test]
    fn a_parameter_sent_twice_is_remembered_and_refused_even_under_an_escaped_name() {
        for parameters in [
            Parameters::parse(b"a=0&code=1&code=1&code=3").unwrap(),
            Parameters::parse(b"code=1&c%6fde=2").unwrap(),
            Parameters::parse_json(br#"{"code":"1","c\u006fde":"2"}"#).unwrap(),
        ] {
            assert!(parameters.is_repeated("code"));
            assert!(!parameters.is_repeated("a"));
            assert_eq!(parameters.first_repeated(), Some("code"));
            assert_eq!(parameters.get("code"), Some("1"));
            let refused = parameters.each_once().unwrap_err();
            assert_eq!(refused, ParameterError::Duplicate("code".to_owned()));
        }
        assert!(Parameters::parse(b"code=1&state=1").unwrap().each_once().is_ok());
    }

    #[test]
    fn a_resource_may_come_more_than_once_and_what_is_like_it_may_not() {
        let resources = b"resource=https://a&code=1&resource=https://b&resource=https://a";
        let parameters = Parameters::parse(resources).unwrap();
        assert_eq!(parameters.each_once(), Ok(()));
        assert_eq!(pairs(&parameters), [("resource", "https://a"), ("code", "1")]);
        for other in [&b"Resource=1&Resource=2"[..], b"resources=1&resources=2"] {
            assert!(Parameters::parse(other).unwrap().each_once().is_err());
        }
    }

    #[test]
    fn a_parameter_without_a_value_counts_as_omitted() {
        let parameters = Parameters::parse(b"&&a=&b&=&c=1&a=2&").unwrap();
        assert_eq!(pairs(&parameters), [("c", "1"), ("a", "2")]);
        assert_eq!(parameters.first_repeated(), None);
        assert_eq!(
            pairs(&Parameters::parse_json(br#"{"a":"","b":"1"}"#).unwrap()),
            [("b", "1")]
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        for form in [&b"a=%ff"[..], b"a=\xff", b"%c3=1", b"a=%c3%28"] {
            assert_eq!(Parameters::parse(form).unwrap_err(), ParameterError::NotUtf8);
        }
    }

    #[test]
    fn the_sixty_fifth_parameter_is_refused() {
        let form = |count: usize| {
            (0..count)
                .map(|n| format!("p{n}=1"))
                .collect::<Vec<_>>()
                .join("&")
        };
        assert_eq!(pairs(&Parameters::parse(form(64).as_bytes()).unwrap()).len(), 64);
        assert_eq!(
            Parameters::parse(form(65).as_bytes()).unwrap_err(),
            ParameterError::TooMany
        );
        assert_eq!(
            Parameters::parse("a=&".repeat(65).as_bytes()).unwrap_err(),
            ParameterError::TooMany
        );
    }

    #[test]
    fn json_has_to_be_an_object_of_strings() {
        for json in [
            "",
            "[]",
            "\"a\"",
            "{",
            "{\"a\":\"b\"} x",
            "null",
            "{\"a\":\"\\ud800\"}",
        ] {
            assert_eq!(
                Parameters::parse_json(json.as_bytes()).unwrap_err(),
                ParameterError::NotAnObject,
                "{json}"
            );
        }
        for json in ["{\"a\":1}", "{\"a\":null}", "{\"a\":[\"b\"]}", "{\"a\":{}}"] {
            assert_eq!(
                Parameters::parse_json(json.as_bytes()).unwrap_err(),
                ParameterError::NotAString("a".to_owned())
            );
        }
        let deep = "{\"a\":".repeat(10_000);
        assert_eq!(
            Parameters::parse_json(deep.as_bytes()).unwrap_err(),
            ParameterError::NotAnObject
        );
    }

    #[test]
    fn values_are_not_printed_and_odd_names_are_not_repeated() {
        let parameters = Parameters::parse(b"password=hunter2").unwrap();
        assert_eq!(format!("{parameters:?}"), r#"{"password"}"#);
        let duplicate = |name: &str| ParameterError::Duplicate(name.to_owned()).to_string();
        assert_eq!(duplicate("scope"), "scope was sent more than once");
        for odd in ["a\"\\\n", "Your account is locked", "caf\u{e9}", &"a".repeat(41)] {
            assert_eq!(duplicate(odd), "a parameter was sent more than once", "{odd}");
        }
    }

    proptest! {
        #[test]
        fn what_a_browser_encodes_is_read_back(value in "\\PC{1,40}", name in "\\PC{1,10}") {
            let form = form_urlencoded::Serializer::new(String::new()).append_pair(&name, &value).finish();
            let parameters = Parameters::parse(form.as_bytes()).unwrap();
            prop_assert_eq!(parameters.get(&name), Some(value.as_str()));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Parameters::parse(&bytes);
            let _ = Parameters::parse_json(&bytes);
        }
    }
}
