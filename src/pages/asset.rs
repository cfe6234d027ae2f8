//! The files that pages of every theme load. They are part of the executable.
//!
//! Each name has a hash of the content, so browsers may cache the file for ever.

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
    bytes: Vec<u8>,
}

const REVEAL: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/reveal.js"));
const PASSKEY: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/passkey.js"));
const ACCOUNT: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/account.js"));
const SUBMIT: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/submit.js"));

static EMBEDDED_FILES: LazyLock<[EmbeddedFile; 4]> = LazyLock::new(|| {
    [
        EmbeddedFile::new(File::Submit, "submit", SUBMIT.to_vec()),
        EmbeddedFile::new(File::Reveal, "reveal", REVEAL.to_vec()),
        EmbeddedFile::new(File::Login, "login", [REVEAL, PASSKEY].concat()),
        EmbeddedFile::new(File::Account, "account", [ACCOUNT, REVEAL, PASSKEY].concat()),
    ]
});

impl EmbeddedFile {
    fn new(file: File, stem: &str, bytes: Vec<u8>) -> Self {
        let digest = digest::digest(&digest::SHA256, &bytes);
        let mut hash = String::new();
        hex::push(&mut hash, digest.as_ref().iter().take(6));
        Self {
            file,
            url: format!("{PREFIX}{stem}.{hash}.js"),
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
            content_type: "text/javascript; charset=utf-8",
        })
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
            let hash = name.split('.').nth(1).unwrap();
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
