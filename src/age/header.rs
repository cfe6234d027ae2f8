//! The header of a file: a line with the version, the stanzas that wrap the file key, and a MAC (section "Header").

use std::io::{self, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ring::hmac;

use super::stanza::{Stanza, decode_array};
use super::{AgeError, FileKey, Identities, SecretKind, stanza};

/// The version line.
const VERSION: &str = "age-encryption.org/v1";
/// The beginning of the version line of every version.
const PREFIX: &[u8] = b"age-encryption.org/";
/// The number of bytes that identify an encrypted file.
pub const SIGNATURE_LEN: usize = PREFIX.len();
const MAC_MARK: &str = "---";
const STANZA_MARK: &str = "-> ";
/// The length of every line of a body but its last, which is shorter.
const BODY_COLUMNS: usize = 64;
/// The longest line. The arguments of the post-quantum recipient type take 1,500 bytes.
const LINE_LIMIT: usize = 4096;
/// The most bytes of a header.
const HEADER_LIMIT: usize = 128 * 1024;
/// The most stanzas of a header, and so the most recipients.
pub const MAX_STANZAS: usize = 100;

/// Whether a file with this beginning is encrypted, or was to become so. A beginning that is shorter than
/// [`SIGNATURE_LEN`] must be the whole file.
pub fn looks_encrypted(beginning: &[u8]) -> bool {
    beginning.starts_with(PREFIX) || PREFIX.starts_with(beginning)
}

/// A header that was read. It is authenticated once [`Header::unlock`] or [`Header::verify`] has accepted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    stanzas: Vec<Stanza>,
    mac: [u8; 32],
}

impl Header {
    pub(super) fn new(stanzas: Vec<Stanza>, key: &FileKey) -> Self {
        let mut header = Self {
            stanzas,
            mac: [0; 32],
        };
        let tag = hmac::sign(&key.header_key(), header.authenticated().as_bytes());
        header.mac.copy_from_slice(tag.as_ref());
        header
    }

    /// Reads a header, and no byte after it.
    pub fn read(source: &mut impl Read) -> Result<Self, AgeError> {
        let mut lines = Lines {
            source,
            left: HEADER_LIMIT,
        };
        let version = lines.next_line()?;
        if version != VERSION {
            return Err(if version.as_bytes().starts_with(PREFIX) {
                AgeError::OtherVersion
            } else {
                AgeError::Malformed("its first line")
            });
        }
        let mut stanzas = Vec::new();
        loop {
            let line = lines.next_line()?;
            if let Some(rest) = line.strip_prefix(MAC_MARK) {
                let mac = rest.strip_prefix(' ').and_then(decode_array);
                let header = Self {
                    stanzas,
                    mac: mac.ok_or(AgeError::Malformed("its last line"))?,
                };
                stanza::check(&header.stanzas)?;
                return Ok(header);
            }
            if stanzas.len() == MAX_STANZAS {
                return Err(AgeError::Malformed("it has more than 100 recipients"));
            }
            let arguments = line.strip_prefix(STANZA_MARK).and_then(arguments);
            stanzas.push(Stanza {
                arguments: arguments.ok_or(AgeError::Malformed("the line of a recipient"))?,
                body: lines.body()?,
            });
        }
    }

    /// The bytes of the header.
    pub fn encode(&self) -> Vec<u8> {
        let mac = STANDARD_NO_PAD.encode(self.mac);
        format!("{} {mac}\n", self.authenticated()).into_bytes()
    }

    /// All of the header up to its MAC.
    fn authenticated(&self) -> String {
        let mut text = format!("{VERSION}\n");
        for stanza in &self.stanzas {
            text.push_str(STANZA_MARK);
            text.push_str(&stanza.arguments.join(" "));
            text.push('\n');
            let body = STANDARD_NO_PAD.encode(&stanza.body);
            for line in body.as_bytes().chunks(BODY_COLUMNS) {
                text.extend(line.iter().copied().map(char::from));
                if line.len() == BODY_COLUMNS {
                    text.push('\n');
                }
            }
            text.push('\n');
        }
        text + MAC_MARK
    }

    /// The kind of secret that opens the file.
    pub fn wanted(&self) -> SecretKind {
        stanza::wanted(&self.stanzas)
    }

    /// Unwraps the file key with one of the identities, and verifies the header.
    pub fn unlock(&self, identities: &Identities) -> Result<FileKey, AgeError> {
        let key = stanza::unwrap(&self.stanzas, identities)?;
        self.verify(&key)?;
        Ok(key)
    }

    /// Verifies that the header was made with this file key (section "Header MAC").
    pub fn verify(&self, key: &FileKey) -> Result<(), AgeError> {
        hmac::verify(&key.header_key(), self.authenticated().as_bytes(), &self.mac)
            .map_err(|_| AgeError::HeaderChanged)
    }
}

fn arguments(text: &str) -> Option<Vec<String>> {
    let is_argument = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    let arguments = text
        .split(' ')
        .map(|text| is_argument(text).then(|| text.to_owned()));
    arguments.collect()
}

struct Lines<'a, R> {
    source: &'a mut R,
    left: usize,
}

impl<R: Read> Lines<'_, R> {
    /// The next line, without its end.
    fn next_line(&mut self) -> Result<String, AgeError> {
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            match self.source.read(&mut byte) {
                Ok(0) => return Err(AgeError::CutOff),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(AgeError::Unreadable(error)),
            }
            self.left = self
                .left
                .checked_sub(1)
                .ok_or(AgeError::Malformed("it is too long"))?;
            if byte == *b"\n" {
                return String::from_utf8(line).map_err(|_| AgeError::Malformed("it is not text"));
            }
            line.extend_from_slice(&byte);
            if line.len() > LINE_LIMIT {
                return Err(AgeError::Malformed("a line is too long"));
            }
        }
    }

    /// The body of a stanza: lines of 64 columns and one that is shorter.
    fn body(&mut self) -> Result<Vec<u8>, AgeError> {
        let mut body = Vec::new();
        loop {
            let line = self.next_line()?;
            let is_last = line.len() < BODY_COLUMNS;
            let bytes = STANDARD_NO_PAD.decode(&line).ok();
            let bytes = bytes.filter(|_| line.len() <= BODY_COLUMNS);
            body.extend(bytes.ok_or(AgeError::Malformed("the key of a recipient"))?);
            if is_last {
                return Ok(body);
            }
        }
    }
}
