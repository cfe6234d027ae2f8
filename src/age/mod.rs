//! Encrypted files in the age format, version 1 (<https://age-encryption.org/v1>), which the tool `age` opens too.
//!
//! A file has a header, which wraps the file key for each recipient, and a payload in chunks. The cited sections are
//! those of the specification (C2SP `age.md`). Two recipient types are supported: X25519, for one or more keys, and
//! scrypt, for a passphrase.
//!
//! The crate `age` 0.12 would bring 100 crates, some of them for translations, and 430 KB of code. This room needs three
//! crates (x25519-dalek and its dependencies) and 55 KB. The project uses ring and scrypt already.

mod bech32;
mod header;
mod stanza;
mod stream;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use ring::aead::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use ring::hmac;
use x25519_dalek::x25519;
use zeroize::Zeroizing;

pub use self::header::{Header, MAX_STANZAS, SIGNATURE_LEN, looks_encrypted};
use self::stanza::{MAX_WORK_FACTOR, is_low_order};
pub use self::stream::{DecryptingReader, EncryptingWriter, SHORTEST_PAYLOAD};
use crate::random::Random;
use crate::text;

const FILE_KEY_LEN: usize = 16;

/// Why an encrypted file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// The bytes cannot be read.
    #[error("the encrypted file cannot be read: {0}")]
    Unreadable(io::Error),
    /// Another version of the format.
    #[error(
        "the file is encrypted in another version of the format of age than this release knows: decrypt it with age first"
    )]
    OtherVersion,
    /// The file ends within its header.
    #[error("the encrypted file is cut off: a part of it is missing")]
    CutOff,
    /// The header is malformed.
    #[error("the header of the encrypted file is damaged or was changed ({0})")]
    Malformed(&'static str),
    /// The MAC of the header does not fit.
    #[error("the header of the encrypted file is damaged or was changed (its seal does not fit)")]
    HeaderChanged,
    /// A chunk does not open in its place.
    #[error("the encrypted content is cut off or was changed")]
    PayloadChanged,
    /// The passphrase would take too much memory.
    #[error(
        "the passphrase takes a work factor of 2^{0}, and at most 2^{MAX_WORK_FACTOR} is accepted: decrypt the file with age first"
    )]
    WorkFactor(u8),
    #[error("the passphrase does not open the file: it was encrypted with another one")]
    WrongPassphrase,
    /// None of the identities is a recipient.
    #[error("no identity opens the file: it was encrypted to other recipients")]
    NoMatch,
    /// An identity is needed, and a passphrase was given.
    #[error("the file is encrypted to recipients, and a passphrase does not open it: an identity does")]
    NeedsIdentity,
    /// A passphrase is needed, and an identity was given.
    #[error("the file is encrypted with a passphrase, and an identity does not open it")]
    NeedsPassphrase,
}

/// The kind of secret that opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// An [`Identity`].
    Identity,
    /// A [`Passphrase`].
    Passphrase,
}

/// A public key of the type X25519.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipient([u8; 32]);

/// Why a text is no recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecipientError {
    /// The text is a secret key.
    #[error("it is an identity, which is secret: name its recipient, which age-keygen -y prints")]
    Identity,
    /// The text is anything else.
    #[error(
        "it is not an X25519 recipient of age, which is age1 and 58 more characters, as age-keygen prints it"
    )]
    Malformed,
}

impl FromStr for Recipient {
    type Err = RecipientError;

    fn from_str(text: &str) -> Result<Self, RecipientError> {
        if text
            .get(..IDENTITY_HRP.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(IDENTITY_HRP))
        {
            return Err(RecipientError::Identity);
        }
        let key = *bech32::decode("age", text).ok_or(RecipientError::Malformed)?;
        // With a point of low order, every secret key has the same shared secret.
        if is_low_order(&x25519([1; 32], key)) {
            return Err(RecipientError::Malformed);
        }
        Ok(Self(key))
    }
}

const IDENTITY_HRP: &str = "age-secret-key-";

/// A secret key of the type X25519.
#[derive(Clone)]
pub struct Identity(Zeroizing<[u8; 32]>);

/// A file without an identity, or with a line that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("line {0} is not an X25519 identity of age (AGE-SECRET-KEY-1…): use a file that age-keygen made")]
    Line(usize),
    /// No line is an identity.
    #[error("it has no identity of age (AGE-SECRET-KEY-1…): use a file that age-keygen made")]
    None,
}

/// The identities in the text of a file, one a line. Empty lines and those that begin with `#` are left out.
pub fn identities(text: &str) -> Result<Vec<Identity>, IdentityError> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end();
        if !line.is_empty() && !line.starts_with('#') {
            let key = bech32::decode(IDENTITY_HRP, line);
            found.push(Identity(key.ok_or(IdentityError::Line(number + 1))?));
        }
    }
    if found.is_empty() {
        return Err(IdentityError::None);
    }
    Ok(found)
}

/// The most bytes of a passphrase.
pub const MAX_PASSPHRASE: usize = 64 * 1024;

#[derive(Clone)]
pub struct Passphrase(Zeroizing<String>);

/// Why a text is no passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassphraseError {
    /// The text is empty.
    #[error("it is empty: write the passphrase into it")]
    Empty,
    /// The text is too long.
    #[error("it is longer than 64 KiB: name the right file")]
    TooLong,
    /// The text has several lines, which no terminal reads as one passphrase.
    #[error("it has several lines or a control character: write the passphrase alone into it, on one line")]
    SeveralLines,
}

impl Passphrase {
    /// The passphrase in the text of a file, as [`text::secret_line`] has it.
    pub fn new(text: &str) -> Result<Self, PassphraseError> {
        let line = text::secret_line(text);
        if line.is_empty() {
            return Err(PassphraseError::Empty);
        }
        if line.len() > MAX_PASSPHRASE {
            return Err(PassphraseError::TooLong);
        }
        if line.chars().any(char::is_control) {
            return Err(PassphraseError::SeveralLines);
        }
        Ok(Self(Zeroizing::new(line.to_owned())))
    }

    /// Reads the text of a file with a passphrase.
    pub fn read(source: impl Read) -> io::Result<Self> {
        let mut text = Zeroizing::new(String::new());
        source.take(2 * MAX_PASSPHRASE as u64).read_to_string(&mut text)?;
        Self::new(&text).map_err(io::Error::other)
    }
}

/// Whom a file is encrypted to.
#[derive(Clone, Debug)]
pub enum Recipients {
    /// The holders of these keys: any one of them can decrypt the file. Never empty.
    Keys(Vec<Recipient>),
    /// Everybody who knows the passphrase.
    Passphrase(Passphrase),
}

impl Recipients {
    /// The recipients that these texts name; `None` if there is no text. Returns all faults.
    pub fn parse(texts: &[String]) -> Result<Option<Self>, Vec<String>> {
        let (mut keys, mut faults) = (Vec::new(), Vec::new());
        for (number, text) in (1..).zip(texts) {
            match text.parse() {
                Ok(key) => keys.push(key),
                // A text that is an identity by mistake is not repeated.
                Err(error) => faults.push(format!("value {number}: {error}")),
            }
        }
        if texts.len() > MAX_STANZAS {
            faults.push(format!("there are more than {MAX_STANZAS} recipients"));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok((!keys.is_empty()).then_some(Self::Keys(keys)))
    }
}

/// What a file is decrypted with.
#[derive(Debug)]
pub enum Identities {
    /// Secret keys, of which one has to fit.
    Keys(Vec<Identity>),
    Passphrase(Passphrase),
}

pub struct FileKey(Zeroizing<[u8; FILE_KEY_LEN]>);

impl FileKey {
    /// Draws a key for a new file.
    pub fn generate(random: &Random) -> Self {
        Self(Zeroizing::new(random.bytes()))
    }

    fn header_key(&self) -> hmac::Key {
        hkdf(self.0.as_slice(), &[], b"header", hmac::HMAC_SHA256)
    }
}

fn hkdf_key(secret: &[u8], salt: &[u8], info: &[u8]) -> LessSafeKey {
    let key: UnboundKey = hkdf(secret, salt, info, &CHACHA20_POLY1305);
    LessSafeKey::new(key)
}

/// HKDF with SHA-256 (RFC 5869), to a key of 32 bytes.
#[expect(
    clippy::expect_used,
    reason = "expanding fails beyond 8160 bytes only, and these are 32"
)]
fn hkdf<L: ring::hkdf::KeyType, K: for<'a> From<ring::hkdf::Okm<'a, L>>>(
    secret: &[u8],
    salt: &[u8],
    info: &[u8],
    kind: L,
) -> K {
    let derived: Prk = Salt::new(HKDF_SHA256, salt).extract(secret);
    derived.expand(&[info], kind).map(K::from).expect("32 bytes")
}

/// Decrypts a file whose key is known, as that of a file that was just written.
pub fn decrypt<R: Read>(mut source: R, key: &FileKey) -> Result<DecryptingReader<R>, AgeError> {
    Header::read(&mut source)?.verify(key)?;
    DecryptingReader::new(source, key)
}

macro_rules! redacted {
    ($($secret:ident)*) => {$(
        impl fmt::Debug for $secret {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($secret), "([redacted])"))
            }
        }
    )*};
}

redacted!(Identity Passphrase FileKey);
