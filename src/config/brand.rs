//! What pages and mails call the service, and how they show it, without a theme.

use super::fault::Fault;
use super::form::{File, Parsed};
use super::reader::{Read, Reader};
use super::setting::{Literal, Setting};
use super::source::Sources;
use crate::themes::brand::BrandSettings;
use crate::themes::tokens::Colour;

pub(super) const SETTINGS: &[&Setting] = &[&NAME, &LOGO, &ACCENT];

pub(super) static NAME: Setting<Parsed<String>> = Setting {
    key: "brand.name",
    doc: "What pages, mails, passkeys and authenticator apps call the service, and the sender of mails if mail.from has no\n\
     name. A theme with a product_name counts before it. Left out: idsvc.",
    default: None,
    example: Literal::Text("Acme"),
    value_name: "NAME",
    help: Some("What people read as the name of the service"),
    form: Parsed(parse_name),
};

pub(super) static LOGO: Setting<File> = Setting {
    key: "brand.logo",
    doc: "The logo beside the name and in the browser's tab, an image that a theme may have: .svg, .png, .jpg, .gif, .webp,\n\
     .avif or .ico, at most 2 MiB. It is read at the start, and if it cannot be read, the log says why. A theme with a logo\n\
     counts before it. Left out: a key.",
    default: None,
    example: Literal::Text("/etc/idsvc/logo.svg"),
    value_name: "FILE",
    help: Some("The logo on pages"),
    form: File,
};

pub(super) static ACCENT: Setting<Parsed<Colour>> = Setting {
    key: "brand.accent",
    doc: "The colour of buttons and links, on pages and in mails. It is made as dark, or in the dark scheme as light, as people\n\
     need to read it. A theme with an accent counts before it. Left out: teal.",
    default: None,
    example: Literal::Text("#0f766e"),
    value_name: "COLOUR",
    help: Some("The colour of buttons and links"),
    form: Parsed(parse_accent),
};

pub(super) fn brand(reader: &mut Reader<'_>) -> Read<BrandSettings> {
    reader.check(SETTINGS);
    Ok(BrandSettings {
        name: reader.read_if_set(&NAME)?,
        logo: reader.read_if_set(&LOGO)?,
        accent: reader.read_if_set(&ACCENT)?,
    })
}

/// The fault of a logo that cannot be read. The service starts without it.
pub fn logo_fault(sources: &Sources) -> Option<Fault> {
    let mut reader = Reader::of(sources);
    let message = brand(&mut reader).ok()?.read().err()?;
    let place = reader.origin(&LOGO).to_string();
    Some(Fault { place, message })
}

fn parse_name(text: &str) -> Result<String, String> {
    let name = text.trim();
    if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
        return Err(": a name has 1 to 200 bytes on one line".to_owned());
    }
    Ok(name.to_owned())
}

fn parse_accent(text: &str) -> Result<Colour, String> {
    text.parse()
        .map_err(|_| "is no colour, written #rrggbb as in #0f766e".to_owned())
}
