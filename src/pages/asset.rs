//! The files that pages load whatever their theme, inside the executable and named by what is in them.
//!
//! A name that changes with the content may be cached for ever.

use std::sync::LazyLock;

use ring::digest;

use crate::hex;

/// The path that assets are served under, below the issuer's.
pub const PREFIX: &str = "/assets/";

/// A file that a page may load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File {
    /// Sends a page's one form as soon as it has been read.
    Submit,
    /// Lets people see the password that they type.
    Reveal,
    /// The same, and keeps the account page from being shown to whoever comes after, and its notices from being said
    /// again.
    Account,
}

/// What is served for an asset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asset {
    /// The file's content.
    pub bytes: &'static [u8],
    /// Its media type, for `Content-Type`.
    pub content_type: &'static str,
}

struct Entry {
    file: File,
    url: String,
    bytes: Vec<u8>,
    content_type: &'static str,
}

const REVEAL: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/reveal.js"));
const ACCOUNT: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/account.js"));

static ENTRIES: LazyLock<[Entry; 3]> = LazyLock::new(|| {
    [
        Entry::new(
            File::Submit,
            "submit",
            "js",
            "text/javascript; charset=utf-8",
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/submit.js")).to_vec(),
        ),
        Entry::new(
            File::Reveal,
            "reveal",
            "js",
            "text/javascript; charset=utf-8",
            REVEAL.to_vec(),
        ),
        Entry::new(
            File::Account,
            "account",
            "js",
            "text/javascript; charset=utf-8",
            [ACCOUNT, REVEAL].concat(),
        ),
    ]
});

impl Entry {
    fn new(file: File, stem: &str, extension: &str, content_type: &'static str, bytes: Vec<u8>) -> Self {
        let digest = digest::digest(&digest::SHA256, &bytes);
        let mut hash = String::new();
        hex::push(&mut hash, digest.as_ref().iter().take(6));
        Self {
            file,
            url: format!("{PREFIX}{stem}.{hash}.{extension}"),
            bytes,
            content_type,
        }
    }
}

/// The path of a file, below the issuer's: `/assets/<stem>.<12 hexadecimal digits>.<extension>`.
pub fn url(file: File) -> &'static str {
    ENTRIES
        .iter()
        .find(|entry| entry.file == file)
        .map_or("", |entry| &entry.url)
}

/// Finds an asset by the name behind [`PREFIX`].
pub fn find(name: &str) -> Option<Asset> {
    ENTRIES
        .iter()
        .find(|entry| entry.url.strip_prefix(PREFIX) == Some(name))
        .map(|entry| Asset {
            bytes: &entry.bytes,
            content_type: entry.content_type,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_found_by_its_name_and_no_other_name() {
        for entry in ENTRIES.iter() {
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
