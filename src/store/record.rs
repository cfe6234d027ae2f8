//! The format of a row: one byte of version, then the record as `MessagePack`.
//!
//! Structures are written with the names of their members, so that a member with a default can be added without a
//! new version. Identifiers and digests are bytes. A row takes about half the space of JSON, and so do the pages that a
//! change writes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::message_pack::Reader;

/// Why stored bytes cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// There are no bytes at all.
    #[error("it is empty")]
    Empty,
    /// A version that this release does not know.
    #[error("record version {0} is unknown")]
    Version(u8),
    /// The bytes do not fit their version. The decoder's message is left out: it may quote the record.
    #[error("it is not what record version {0} looks like")]
    Malformed(u8),
}

/// A type that can be stored as a row.
pub trait Record: Serialize + DeserializeOwned {
    /// The version of the format. A change to a released format needs a new version, and a migration that rewrites the
    /// table.
    const VERSION: u8 = 1;

    /// Appends the stored form.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), rmp_serde::encode::Error> {
        out.push(Self::VERSION);
        rmp_serde::encode::write_named(out, self)
    }

    /// Reads the stored form.
    fn decode(stored: &[u8]) -> Result<Self, DecodeError> {
        match stored.split_first() {
            None => Err(DecodeError::Empty),
            Some((&version, record)) if version == Self::VERSION => {
                read_message_pack(record).ok_or(DecodeError::Malformed(version))
            }
            Some((&version, _)) => Err(DecodeError::Version(version)),
        }
    }
}

/// Reads a record, and refuses bytes after it.
fn read_message_pack<R: DeserializeOwned>(stored: &[u8]) -> Option<R> {
    let mut reader = Reader::new(stored);
    let record = R::deserialize(&mut reader).ok()?;
    reader.is_at_end().then_some(record)
}

/// An empty row, for tables that need only keys.
impl Record for () {
    fn encode(&self, _: &mut Vec<u8>) -> Result<(), rmp_serde::encode::Error> {
        Ok(())
    }

    fn decode(stored: &[u8]) -> Result<Self, DecodeError> {
        match stored.first() {
            None => Ok(()),
            Some(version) => Err(DecodeError::Version(*version)),
        }
    }
}

impl Record for String {}

impl Record for Uuid {}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::identity::User;

    /// A record that holds any JSON.
    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Row {
        claim: Value,
    }

    impl Record for Row {}

    fn nested(depth: usize) -> String {
        format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn every_readable_json_can_be_stored() {
        let deepest = (1..200)
            .rev()
            .find_map(|depth| serde_json::from_str::<Value>(&nested(depth)).ok())
            .unwrap();
        for claim in [
            deepest,
            json!([u64::MAX, i64::MIN, -1, 0, 1.0, 1e300, 0.1]),
            json!({"": null, "a": {"b": [true, false, {}]}, "\u{0}\u{10FFFF}": "x".repeat(70_000)}),
        ] {
            let record = Row { claim };
            let mut row = Vec::new();
            record.encode(&mut row).unwrap();
            assert_eq!(Row::decode(&row).unwrap(), record);
        }
    }

    #[test]
    fn a_row_that_something_follows_is_refused() {
        let mut row = Vec::new();
        "a record".to_owned().encode(&mut row).unwrap();
        assert_eq!(String::decode(&row).unwrap(), "a record");
        let whole = row.len();
        for byte in 0..=u8::MAX {
            for more in [&[][..], &[0], &[0xC1, 0xC1]] {
                row.truncate(whole);
                row.push(byte);
                row.extend_from_slice(more);
                let read = String::decode(&row);
                assert!(matches!(read, Err(DecodeError::Malformed(1))), "{byte} {more:?}");
            }
        }
    }

    #[test]
    fn a_row_nested_without_end_is_refused() {
        let mut row = vec![User::VERSION, 0x81, 0xA6];
        row.extend_from_slice(b"claims");
        row.extend_from_slice(&[0x81, 0xA1, b'a']);
        row.extend(std::iter::repeat_n(0x91, 1_000_000));
        assert!(matches!(
            User::decode(&row),
            Err(DecodeError::Malformed(User::VERSION))
        ));
    }
}
