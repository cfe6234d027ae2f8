//! What the service is called, and what it tells others about itself.

use url::Url;

use super::form::{Flag, Parsed, Text};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};

pub(super) const SETTINGS: &[&Setting] = &[
    &SERVICE_NAME,
    &ORGANIZATION,
    &SERVICE_DOCUMENTATION,
    &SUPPORT_CONTACT,
    &ID_TOKEN_ALIAS,
];

pub(super) static SERVICE_NAME: Setting<Parsed<String>> = Setting {
    key: "service_name",
    doc: "The name in the grant type of anonymous users: urn:{service_name}:oauth2:grant-type:anonymous.",
    default: Some(Literal::Text("service")),
    example: Literal::Text("acme"),
    value_name: "NAME",
    help: Some("The name in the grant type of anonymous users"),
    form: Parsed(parse_service_name),
};

pub(super) static ORGANIZATION: Setting<Text> = Setting {
    key: "organization",
    doc: "The organization of new users.",
    default: Some(Literal::Text("default")),
    example: Literal::Text("acme"),
    value_name: "NAME",
    help: Some("The organization of new users"),
    form: Text,
};

pub(super) static SERVICE_DOCUMENTATION: Setting<Parsed<String>> = Setting {
    key: "service_documentation",
    doc: "The address of what developers of applications should read. Discovery shows it.",
    default: None,
    example: Literal::Text("https://docs.example.com/sign-in"),
    value_name: "URL",
    help: Some("What developers of applications should read"),
    form: Parsed(parse_documentation),
};

pub(super) static SUPPORT_CONTACT: Setting<Parsed<String>> = Setting {
    key: "support_contact",
    doc: "Where people get help: an address that begins with mailto:, https: or tel:. Error pages link to it.",
    default: None,
    example: Literal::Text("mailto:help@example.com"),
    value_name: "URL",
    help: Some("Where people get help"),
    form: Parsed(parse_contact),
};

pub(super) static ID_TOKEN_ALIAS: Setting<Flag> = Setting {
    key: "id_token_alias",
    doc: "Whether the token response repeats id_token under the name idtoken.",
    default: Some(Literal::Flag(true)),
    example: Literal::Flag(false),
    value_name: "BOOL",
    help: Some("Repeat id_token as idtoken"),
    form: Flag,
};

/// What protocol rules need of these settings.
pub(super) struct Service {
    pub(super) name: String,
    pub(super) organization: String,
    pub(super) documentation: Option<String>,
    pub(super) id_token_alias: bool,
}

pub(super) fn service(reader: &mut Reader<'_>) -> Read<Service> {
    reader.check(&[
        &SERVICE_NAME,
        &ORGANIZATION,
        &SERVICE_DOCUMENTATION,
        &ID_TOKEN_ALIAS,
    ]);
    Ok(Service {
        name: reader.read(&SERVICE_NAME)?,
        organization: reader.read(&ORGANIZATION)?,
        documentation: reader.read_if_set(&SERVICE_DOCUMENTATION)?,
        id_token_alias: reader.read(&ID_TOKEN_ALIAS)?,
    })
}

/// A valid namespace of a URN (RFC 8141 section 2).
fn parse_service_name(text: &str) -> Result<String, String> {
    let ends_well = |end: Option<u8>| end.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_fit = (2..=32).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && ends_well(text.bytes().next())
        && ends_well(text.bytes().last())
        && !text.eq_ignore_ascii_case("urn");
    if is_fit {
        Ok(text.to_owned())
    } else {
        Err(": use 2 to 32 letters, digits and hyphens, no hyphen at an end (RFC 8141)".to_owned())
    }
}

/// The URL of the documentation (RFC 8414 section 2).
fn parse_documentation(text: &str) -> Result<String, String> {
    let problem = ": it is no address of a page, as in https://docs.example.com/sign-in";
    parse_url(text, &["https://", "http://"]).ok_or_else(|| problem.to_owned())
}

fn parse_contact(text: &str) -> Result<String, String> {
    let problem = ": it is no address where people get help, as in mailto:help@example.com, https://example.com/help or \
                   tel:+15550100";
    parse_url(text, &["mailto:", "https://", "tel:"]).ok_or_else(|| problem.to_owned())
}

/// A URL that begins in one of these ways.
fn parse_url(text: &str, beginnings: &[&str]) -> Option<String> {
    let begins_well = beginnings.iter().any(|beginning| text.starts_with(beginning));
    let is_fit = text.bytes().all(|byte| byte.is_ascii_graphic()) && Url::parse(text).is_ok();
    (begins_well && is_fit).then(|| text.to_owned())
}
