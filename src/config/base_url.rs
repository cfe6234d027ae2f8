//! The address of the service.

use url::Url;

use super::form::{Text, Words};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use crate::oauth::redirect_uri::is_on_this_machine;

pub(super) const SETTINGS: &[&Setting] = &[&REGION, &BASE_URL];

pub(super) static REGION: Setting<Words<&'static str>> = Setting {
    key: "region",
    doc: "The region of this installation, us or ap. Needed when base_url has {region} in it.",
    default: None,
    example: Literal::Text("us"),
    value_name: "REGION",
    help: Some("The region, us or ap"),
    form: Words(&[("us", "us"), ("ap", "ap")]),
};

pub(super) static BASE_URL: Setting<Text> = Setting {
    key: "base_url",
    doc: "The address of the service. It is the issuer of every token, and fixed at the first start.",
    default: None,
    example: Literal::Text("https://id.{region}.example.com"),
    value_name: "URL",
    help: Some("The address of the service, and its issuer"),
    form: Text,
};

/// `base_url` with the region filled in.
pub(super) fn base_url(reader: &mut Reader<'_>) -> Read<Option<String>> {
    let region = reader.read_if_set(&REGION);
    let Some(text) = reader.read_if_set(&BASE_URL)? else {
        return Ok(None);
    };
    let needs_region = text.contains("{region}");
    let region = match region {
        Ok(None) if needs_region => {
            Err(reader.missing(&REGION, "base_url has {region} in it and region is not set"))
        }
        region => region,
    };
    // The rest of the address is checked with any region.
    let filled = text.replace("{region}", region.ok().flatten().unwrap_or("us"));
    if let Err(message) = check_base_url(&filled) {
        return Err(reader.fault(&BASE_URL, format!("base_url = {filled:?}: {message}")));
    }
    if needs_region {
        region?;
    }
    Ok(Some(filled))
}

/// Checks that the text can be an issuer (RFC 8414 section 2): https, or http on loopback; no query and no fragment.
pub fn check_base_url(text: &str) -> Result<(), String> {
    let example = "as in https://id.example.com";
    let url = Url::parse(text).map_err(|error| format!("it is no URL ({error}), {example}"))?;
    let is_local = is_on_this_machine(&url);
    match url.scheme() {
        "https" => {}
        "http" if is_local => {}
        "http" => return Err("it must begin with https; http is for loopback hosts only".to_owned()),
        _ => return Err(format!("it must begin with https, {example}")),
    }
    if !url.username().is_empty() || url.password().is_some() || text.contains('@') {
        return Err("it must not hold a user name".to_owned());
    }
    if text.contains(['?', '#']) {
        return Err("it must have neither a query nor a fragment".to_owned());
    }
    if text.ends_with('/') {
        return Err(format!(
            "it must not end with a slash: {}",
            text.trim_end_matches('/')
        ));
    }
    let canonical = url.as_str().trim_end_matches('/');
    if canonical != text {
        return Err(format!("it must be written as browsers write it: {canonical}"));
    }
    if url.path().contains("//") || url.path().contains('%') {
        return Err("its path must be plain segments".to_owned());
    }
    Ok(())
}

/// The host of a URL, without the brackets of an IPv6 address.
pub fn host_of(url: &str) -> Option<String> {
    Url::parse(url)
        .ok()?
        .host_str()
        .map(|host| host.trim_matches(['[', ']']).to_owned())
}
