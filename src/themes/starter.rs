//! The files of a new theme.

use std::fmt::Write;

use crate::pages::locale::built_in_text;
use crate::pages::text::{EN, PLACE, SENTENCES};

macro_rules! starter {
    ($($file:literal)*) => {
        &[$(($file, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/theme/", $file))),)*]
    };
}

/// The files of every new theme: names and contents.
pub const FILES: &[(&str, &str)] = starter!["theme.toml" "theme.css"];

/// A template for every page, for themes with HTML of their own.
pub const TEMPLATES: &[(&str, &str)] = starter![
    "layout.html" "login.html" "address.html" "check-mail.html" "second-factor.html" "passkey-offer.html"
    "choose-password.html" "confirm-link.html" "consent.html" "no-access.html" "device.html" "device-decision.html" "logout.html" "logged-out.html" "error.html" "form-post.html" "account.html"
    "mail/layout.html" "mail/layout.txt"
];

/// A file with every text of the pages, to be translated. The texts are in the language if it is built in, otherwise in
/// English.
pub fn language(tag: &str) -> String {
    let base = built_in_text(tag).unwrap_or(&EN);
    let mut file = format!(
        "# The words of the pages in the language {tag}. {PLACE} is the place of a name or a number.\n\
         # name = \"Nederlands\"   # the language's name in itself\n\
         # direction = \"rtl\"   # where the language is written from the right and its tag does not say so\n\n[texts]\n"
    );
    for sentence in SENTENCES {
        let words = toml::Value::String(sentence.of(base).to_owned());
        let _ = writeln!(file, "{} = {words}", sentence.name);
    }
    file.push_str("\n[scopes]\n# \"notes.write\" = \"Write notes in your name\"\n");
    file
}
