//! What a row holds: one byte of version, then the record as `MessagePack`.
//!
//! Structures are written with the names of their members, so that a member with a default can be added without a
//! new version; identifiers and digests are bytes. A row takes about half of what JSON takes, and so do the pages
//! that a change has to write.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How deep a record may be nested: deeper than any JSON that can come in (`serde_json` stops at 128), for that is
/// nested in a record then.
const MAX_DEPTH: usize = 256;

/// Why stored bytes are not a record.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// There are no bytes at all.
    #[error("it is empty")]
    Empty,
    /// A version that this release does not know.
    #[error("record version {0} is unknown")]
    Version(u8),
    /// Not what its version promises. Says no more: the messages of decoders may quote the record.
    #[error("it is not what record version {0} looks like")]
    Malformed(u8),
}

/// What can be a row.
pub trait Record: Serialize + DeserializeOwned {
    /// The version of its shape. Once a shape was released, another one is another version, and the schema gets a step
    /// that rewrites the table.
    const VERSION: u8 = 1;

    /// Appends the stored form.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), rmp_serde::encode::Error> {
        out.push(Self::VERSION);
        rmp_serde::encode::write_named(out, self)
    }

    /// Reads the stored form.
    fn decode(stored: &[u8]) -> Result<Self, Unreadable> {
        match stored.split_first() {
            None => Err(Unreadable::Empty),
            Some((&version, record)) if version == Self::VERSION => {
                read_message_pack(record).ok_or(Unreadable::Malformed(version))
            }
            Some((&version, _)) => Err(Unreadable::Version(version)),
        }
    }
}

/// Reads a record that nothing follows.
fn read_message_pack<R: DeserializeOwned>(stored: &[u8]) -> Option<R> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(stored);
    reader.set_max_depth(MAX_DEPTH);
    let record = R::deserialize(&mut reader).ok()?;
    // The reader does not tell how far it came; where no byte follows, there is no marker of a next value.
    match u8::deserialize(&mut reader) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Some(record),
        _ => None,
    }
}

/// For tables whose keys say everything: the row is empty.
impl Record for () {
    fn encode(&self, _: &mut Vec<u8>) -> Result<(), rmp_serde::encode::Error> {
        Ok(())
    }

    fn decode(stored: &[u8]) -> Result<Self, Unreadable> {
        match stored.first() {
            None => Ok(()),
            Some(version) => Err(Unreadable::Version(*version)),
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

    /// A record with room for any JSON.
    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    struct Row {
        claim: Value,
    }

    impl Record for Row {}

    fn nested(depth: usize) -> String {
        format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn whatever_json_can_be_read_can_be_kept() {
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
                assert!(matches!(read, Err(Unreadable::Malformed(1))), "{byte} {more:?}");
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
            Err(Unreadable::Malformed(User::VERSION))
        ));
    }
}
