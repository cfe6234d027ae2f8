//! The settings for passkeys.

use super::reader::Reader;
use super::setting::{Kind, Setting, setting};
use crate::oauth::redirect_uri;

pub(super) const ORIGINS: Setting = setting(
    "passkeys.origins",
    Kind::List,
    (
        "ORIGIN",
        "A further origin whose pages may use the passkeys; may be repeated",
    ),
    Some("[]"),
    r#"["https://example.net"]"#,
    "Further origins whose pages may use the passkeys of this service (Related Origin Requests). They are published at\n\
     /.well-known/webauthn. Passkeys belong to the host of base_url.",
);

pub(super) const OFFER: Setting = setting(
    "passkeys.offer",
    Kind::Flag,
    ("BOOL", "Offer a passkey after a sign-in with a password"),
    Some("true"),
    "false",
    "Whether a user without a passkey who has signed in with a password is offered one, on a device that can keep it. In a\n\
     browser in which the user declined, the next offer is made after 30 days.",
);

/// The most origins. Browsers read no more than five registrable domains.
const MOST: usize = 20;

/// The origins, which have to be https and without a path.
pub(super) fn origins(reader: &mut Reader<'_>) -> Vec<String> {
    let (origins, place) = reader.list(ORIGINS.key);
    if origins.len() > MOST {
        reader.fault(&place, format!("{} may have {MOST} origins at most", ORIGINS.key));
    }
    for origin in &origins {
        let is_origin = redirect_uri::origin(origin).is_some_and(|known| known == *origin);
        if !is_origin || !origin.starts_with("https://") {
            let message = format!(
                "{}: {origin:?} is not an https origin, such as https://example.net",
                ORIGINS.key
            );
            reader.fault(&place, message);
        }
    }
    origins
}
