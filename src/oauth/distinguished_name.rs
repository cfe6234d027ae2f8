//! Distinguished names: as RFC 4514 writes them, and as certificates have them.

use std::collections::BTreeSet;
use std::str::FromStr;

use x509_parser::asn1_rs::{Any, Class, FromDer, Tag};
use x509_parser::x509::X509Name;

/// A name, as sets of attributes in the order of the certificate. Equal names are equal by `distinguishedNameMatch` (RFC
/// 4517 section 4.2.15), with ASCII letters of both cases being equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinguishedName(Vec<BTreeSet<Attribute>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attribute {
    /// The object identifier in dotted decimal.
    oid: String,
    value: AttributeValue,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AttributeValue {
    /// A text of any of the string types, without insignificant spaces.
    Text(String),
    /// Another type: the class and number of its tag, and its content.
    Other(u8, u32, Vec<u8>),
}

/// Why a text is no distinguished name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text does not have the form of RFC 4514.
    #[error("it is no distinguished name, as in CN=client,O=Example,C=BE (RFC 4514)")]
    Malformed,
    /// The attribute type has no name here.
    #[error("the attribute type {0} is unknown: write its object identifier, as in 2.5.4.97=value")]
    UnknownType(String),
}

/// Attribute types by their names: those of RFC 4514 section 3, and those that certificates of companies have.
const TYPES: [(&str, &str); 20] = [
    ("cn", "2.5.4.3"),
    ("l", "2.5.4.7"),
    ("st", "2.5.4.8"),
    ("o", "2.5.4.10"),
    ("ou", "2.5.4.11"),
    ("c", "2.5.4.6"),
    ("street", "2.5.4.9"),
    ("dc", "0.9.2342.19200300.100.1.25"),
    ("uid", "0.9.2342.19200300.100.1.1"),
    ("sn", "2.5.4.4"),
    ("gn", "2.5.4.42"),
    ("givenname", "2.5.4.42"),
    ("title", "2.5.4.12"),
    ("serialnumber", "2.5.4.5"),
    ("postalcode", "2.5.4.17"),
    ("businesscategory", "2.5.4.15"),
    ("organizationidentifier", "2.5.4.97"),
    ("jurisdictionc", "1.3.6.1.4.1.311.60.2.1.3"),
    ("emailaddress", "1.2.840.113549.1.9.1"),
    ("e", "1.2.840.113549.1.9.1"),
];

impl DistinguishedName {
    /// The name in a certificate.
    pub(super) fn of(name: &X509Name<'_>) -> Self {
        let attributes = name.iter().map(|set| {
            let attributes = set.iter().map(|attribute| Attribute {
                oid: attribute.attr_type().to_id_string(),
                value: AttributeValue::of(attribute.attr_value()),
            });
            attributes.collect()
        });
        Self(attributes.collect())
    }
}

impl FromStr for DistinguishedName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (mut sets, mut set) = (Vec::new(), BTreeSet::new());
        let mut rest = text;
        loop {
            let ReadPart { part, end } = read_attribute(rest)?;
            if !set.insert(part) {
                return Err(NameError::Malformed);
            }
            let Some(end) = end else {
                sets.push(set);
                break;
            };
            if end.separator == ',' {
                sets.push(std::mem::take(&mut set));
            }
            rest = end.after;
        }
        // The text begins with the last set (RFC 4514 section 2.1).
        sets.reverse();
        Ok(Self(sets))
    }
}

/// The first part of a text.
struct ReadPart<'a, T> {
    part: T,
    /// `None` if the text ends with the part.
    end: Option<End<'a>>,
}

/// The separator behind a part, and the text after it.
struct End<'a> {
    separator: char,
    after: &'a str,
}

fn read_attribute(text: &str) -> Result<ReadPart<'_, Attribute>, NameError> {
    let (name, value) = text.split_once('=').ok_or(NameError::Malformed)?;
    let oid = type_named(name.trim())?;
    let value = value.trim_start_matches(' ');
    let (value, end) = if let Some(digits) = value.strip_prefix('#') {
        let ReadPart { part, end } = until_separator(digits);
        (AttributeValue::of_hex(part.trim_end_matches(' '))?, end)
    } else {
        let ReadPart { part, end } = read_text(value)?;
        (AttributeValue::Text(normal(&part)), end)
    };
    let part = Attribute { oid, value };
    Ok(ReadPart { part, end })
}

fn type_named(name: &str) -> Result<String, NameError> {
    if let Some((_, oid)) = TYPES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Ok((*oid).to_owned());
    }
    let is_number = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    if name.contains('.') && name.split('.').all(is_number) {
        return Ok(name.to_owned());
    }
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if name.is_empty() || name.len() > 40 || !name.bytes().all(is_word) {
        return Err(NameError::Malformed);
    }
    Err(NameError::UnknownType(name.to_owned()))
}

fn until_separator(text: &str) -> ReadPart<'_, &str> {
    let Some((part, after)) = text.split_once([',', '+']) else {
        return ReadPart {
            part: text,
            end: None,
        };
    };
    let separator = text.get(part.len()..).and_then(|rest| rest.chars().next());
    ReadPart {
        part,
        end: separator.map(|separator| End { separator, after }),
    }
}

/// Reads a value with its escapes (RFC 4514 section 2.4).
fn read_text(text: &str) -> Result<ReadPart<'_, String>, NameError> {
    let mut value = Vec::new();
    let mut rest = text.chars();
    let mut end = None;
    while let Some(c) = rest.next() {
        match c {
            ',' | '+' => {
                end = Some(End {
                    separator: c,
                    after: rest.as_str(),
                });
                break;
            }
            '"' | ';' | '<' | '>' | '\0' => return Err(NameError::Malformed),
            '\\' => {
                let escaped = rest.next().ok_or(NameError::Malformed)?;
                if " \"#+,;<=>\\".contains(escaped) {
                    value.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
                } else {
                    let low = rest.next().and_then(|low| low.to_digit(16));
                    let byte = escaped.to_digit(16).zip(low).map(|(high, low)| high * 16 + low);
                    let byte = byte.and_then(|byte| u8::try_from(byte).ok());
                    value.push(byte.ok_or(NameError::Malformed)?);
                }
            }
            c => value.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    let part = String::from_utf8(value).map_err(|_| NameError::Malformed)?;
    Ok(ReadPart { part, end })
}

impl AttributeValue {
    fn of(value: &Any<'_>) -> Self {
        let tag = value.tag();
        let text = match tag {
            Tag::Utf8String => std::str::from_utf8(value.data).ok().map(ToOwned::to_owned),
            Tag::PrintableString
            | Tag::Ia5String
            | Tag::T61String
            | Tag::NumericString
            | Tag::VisibleString => std::str::from_utf8(value.data)
                .ok()
                .filter(|text| text.is_ascii())
                .map(ToOwned::to_owned),
            Tag::BmpString => {
                let (pairs, odd) = value.data.as_chunks::<2>();
                let units: Vec<_> = pairs.iter().map(|pair| u16::from_be_bytes(*pair)).collect();
                String::from_utf16(&units).ok().filter(|_| odd.is_empty())
            }
            _ => None,
        };
        match text.filter(|_| value.class() == Class::Universal) {
            Some(text) => Self::Text(normal(&text)),
            None => Self::Other(value.class() as u8, tag.0, value.data.to_vec()),
        }
    }

    /// The value whose DER these digits are.
    fn of_hex(digits: &str) -> Result<Self, NameError> {
        let (pairs, odd) = digits.as_bytes().as_chunks::<2>();
        let digit = |byte: u8| {
            char::from(byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
        let der: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let der = der.filter(|_| odd.is_empty()).ok_or(NameError::Malformed)?;
        match Any::from_der(&der) {
            Ok(([], value)) => Ok(Self::of(&value)),
            _ => Err(NameError::Malformed),
        }
    }
}

/// The text without insignificant spaces, in lower case where it is ASCII (RFC 4518 sections 2.2 and 2.6.1).
fn normal(text: &str) -> String {
    let words: Vec<_> = text.split(' ').filter(|word| !word.is_empty()).collect();
    words.join(" ").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DistinguishedName {
        text.parse().unwrap()
    }

    /// RFC 4514 section 4.
    #[test]
    fn the_examples_of_rfc_4514_are_names() {
        for text in [
            "UID=jsmith,DC=example,DC=net",
            "OU=Sales+CN=J.  Smith,DC=example,DC=net",
            r#"CN=James \"Jim\" Smith\, III,DC=example,DC=net"#,
            r"CN=Before\0dAfter,DC=example,DC=net",
            "1.3.6.1.4.1.1466.0=#04024869",
            r"CN=Lu\C4\8Di\C4\87",
        ] {
            assert!(text.parse::<DistinguishedName>().is_ok(), "{text}");
        }
        assert_eq!(name(r"CN=Lu\C4\8Di\C4\87"), name("CN=Lučić"));
    }

    #[test]
    fn names_are_equal_by_their_attributes_and_not_by_their_text() {
        for (one, other) in [
            ("CN=a,O=b", "cn=A, o=b"),
            ("CN=a  b", "CN=\\20a b\\ "),
            ("OU=x+CN=a,C=BE", "CN=a+OU=x,C=be"),
            ("2.5.4.3=a", "CN=a"),
            ("CN=#0C0161", "CN=a"),
            (r"CN=a\,O\=b", r"CN=a\2CO\3Db"),
        ] {
            assert_eq!(name(one), name(other), "{one} {other}");
        }
        for (one, other) in [
            ("CN=a,O=b", "O=b,CN=a"),
            ("CN=a,O=b", "CN=a"),
            ("CN=a,O=b", "CN=a+O=b"),
            ("CN=a", "OU=a"),
            (r"CN=a\,O\=b", "CN=a,O=b"),
            ("CN=a", "CN=#04 0161"),
            ("CN=a", "CN=#8c0161"),
            ("CN=#4c0161", "CN=#8c0161"),
            ("CN=É", "CN=é"),
            ("CN=k", "CN=\u{212a}"),
        ] {
            assert_ne!(one.parse(), other.parse::<DistinguishedName>(), "{one} {other}");
        }
    }

    #[test]
    fn a_text_of_another_form_is_no_name() {
        for text in [
            "",
            "a",
            "=a",
            "CN",
            "CN=a,",
            "CN=a;O=b",
            "CN=<a>",
            "CN=\"a\"",
            r"CN=a\",
            r"CN=a\xy",
            r"CN=\ff",
            "CN=#0",
            "CN=#0c02",
            "CN=a+CN=a",
            "/CN=a/O=b",
            "XY=a",
            "1..2=a",
            "01.2=a",
        ] {
            assert!(text.parse::<DistinguishedName>().is_err(), "{text}");
        }
    }
}
