//! The files that pages of every theme load. They are part of the executable.
//!
//! Each name has a hash of the content, so browsers may cache the file for ever.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::LazyLock;

use ring::digest;

use crate::hex;

/// The path that assets are served under, below the issuer's.
pub const PREFIX: &str = "/assets/";

/// A file that a page may load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Sends the form of a page as soon as the page is loaded.
    Submit,
    /// Lets users see the password that they type.
    Reveal,
    /// The same. It also lets them sign in with a passkey.
    Login,
    /// The same, to add a passkey. It also keeps a browser from showing the account page after a sign-out, and from repeating a notice.
    Account,
    /// Copies tokens and commands on the pages of the development server.
    Copy,
    /// Inter for the Latin letters of most languages.
    Latin,
    /// Inter for the other Latin letters of Europe.
    LatinExtended,
}

/// An asset as it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The file's content.
    pub bytes: &'static [u8],
    /// Its media type, for `Content-Type`.
    pub content_type: &'static str,
}

struct EmbeddedFile {
    file: File,
    url: String,
    bytes: Cow<'static, [u8]>,
}

const REVEAL: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/reveal.js"));
const PASSKEY: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/passkey.js"));
const ACCOUNT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/account.js"));
const SUBMIT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/submit.js"));

const COPY: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/copy.js"));
const LATIN: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/assets/fonts/inter-latin.woff2"
));
const LATIN_EXTENDED: &[u8] = include_bytes!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/assets/fonts/inter-latin-ext.woff2"
));

/// The name of the font in style sheets.
pub const FONT: &str = "Inter";
/// The files of the font, and the characters that each one has.
const FONT_FILES: [(File, &str); 2] = [
    (
        File::LatinExtended,
        "U+100-130,U+132-151,U+154-17F,U+192,U+1CD-1DC,U+218-21B,U+237,U+1E80-1E85,U+1E9E,U+1EF2-1EF3,U+20A0-20AB,\
         U+20AD-20C0",
    ),
    (
        File::Latin,
        "U+0-FF,U+131,U+152-153,U+2BB-2BC,U+2C6,U+2DA,U+2DC,U+304,U+308,U+329,U+2000-206F,U+20AC,U+2122,U+2191,U+2193,\
         U+2212,U+2215,U+FEFF,U+FFFD",
    ),
];

static EMBEDDED_FILES: LazyLock<[EmbeddedFile; 7]> = LazyLock::new(|| {
    [
        EmbeddedFile::script(File::Submit, "submit", &[SUBMIT]),
        EmbeddedFile::script(File::Reveal, "reveal", &[REVEAL]),
        EmbeddedFile::script(File::Login, "login", &[REVEAL, PASSKEY]),
        EmbeddedFile::script(File::Account, "account", &[ACCOUNT, REVEAL, PASSKEY]),
        EmbeddedFile::script(File::Copy, "copy", &[COPY]),
        EmbeddedFile::new(File::Latin, "inter-latin", "woff2", LATIN.into()),
        EmbeddedFile::new(
            File::LatinExtended,
            "inter-latin-ext",
            "woff2",
            LATIN_EXTENDED.into(),
        ),
    ]
});

impl EmbeddedFile {
    /// The sources one after the other, without the comments on lines of their own and without what indents a line.
    fn script(file: File, stem: &str, sources: &[&str]) -> Self {
        let mut script = String::new();
        let lines = sources.iter().flat_map(|source| source.lines());
        for line in lines.map(str::trim_start) {
            if !line.is_empty() && !line.starts_with("//") {
                script.push_str(line);
                script.push('\n');
            }
        }
        Self::new(file, stem, "js", script.into_bytes().into())
    }

    fn new(file: File, stem: &str, extension: &str, bytes: Cow<'static, [u8]>) -> Self {
        let digest = digest::digest(&digest::SHA256, &bytes);
        let mut hash = String::new();
        hex::push(&mut hash, digest.as_ref().iter().take(6));
        Self {
            file,
            url: format!("{PREFIX}{stem}.{hash}.{extension}"),
            bytes,
        }
    }
}

/// The path of a file, below the issuer's: `/assets/<stem>.<12 hexadecimal digits>.<extension>`.
pub fn url(file: File) -> &'static str {
    EMBEDDED_FILES
        .iter()
        .find(|embedded| embedded.file == file)
        .map_or("", |embedded| &embedded.url)
}

/// Finds an asset by the name behind [`PREFIX`].
pub fn find(name: &str) -> Option<Asset> {
    EMBEDDED_FILES
        .iter()
        .find(|embedded| embedded.url.strip_prefix(PREFIX) == Some(name))
        .map(|embedded| Asset {
            bytes: &embedded.bytes,
            content_type: match embedded.file {
                File::Latin | File::LatinExtended => "font/woff2",
                _ => "text/javascript; charset=utf-8",
            },
        })
}

/// The font as CSS, for a style sheet at a path of three segments, such as `/theme/default/VERSION/theme.css`.
pub fn font_css() -> String {
    let mut css = String::new();
    for (file, characters) in FONT_FILES {
        let url = url(file);
        let _ = writeln!(
            css,
            "@font-face{{font-family:{FONT};src:url(../../..{url})format(\"woff2\");font-weight:100 900;font-display:swap;\
             unicode-range:{characters}}}"
        );
    }
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_found_by_its_name_and_no_other_name() {
        for entry in EMBEDDED_FILES.iter() {
            let name = url(entry.file).strip_prefix(PREFIX).unwrap();
            let asset = find(name).unwrap();
            assert!(!asset.bytes.is_empty());
            let hash = name.rsplit('.').nth(1).unwrap();
            assert!(
                hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{name}"
            );
            assert_eq!(find(&name.replace(hash, "000000000000")), None);
        }
        for name in ["", "style.css", "../Cargo.toml", "/"] {
            assert_eq!(find(name), None, "{name}");
        }
    }
}
