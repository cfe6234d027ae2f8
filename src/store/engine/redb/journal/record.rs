//! Records as bytes of the journal file. The format is described at the head of this module's parent.

use std::collections::BTreeMap;

use ring::digest;

/// A record begins at a multiple of this.
pub(super) const PAGE: usize = 4096;

const ID_LEN: usize = 16;
const NUMBER_LEN: usize = 8;
const LENGTH_LEN: usize = 4;
const DIGEST_LEN: usize = digest::SHA256_OUTPUT_LEN;
/// The length of the record before its content.
pub(super) const HEAD_LEN: usize = ID_LEN + NUMBER_LEN + LENGTH_LEN + DIGEST_LEN;

/// Drawn at random each time a journal is started. Records with another id are leftovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalId(pub(super) [u8; ID_LEN]);

/// The position of a record: the first one that redb does not hold, or the next one to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalPosition {
    pub(super) id: JournalId,
    pub(super) number: u64,
}

impl JournalPosition {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        [self.id.0.as_slice(), &self.number.to_be_bytes()].concat()
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (id, number) = bytes.split_first_chunk()?;
        Some(Self {
            id: JournalId(*id),
            number: u64::from_be_bytes(number.try_into().ok()?),
        })
    }
}

fn digest_of(position: JournalPosition, content: &[u8]) -> digest::Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&position.id.0);
    context.update(&position.number.to_be_bytes());
    context.update(content);
    context.finish()
}

/// The length of a record in the file.
pub(super) fn record_len(content: &[u8]) -> usize {
    (HEAD_LEN + content.len()).next_multiple_of(PAGE)
}

/// Appends a record to `out`, padded to whole pages.
pub(super) fn write_record(position: JournalPosition, content: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&position.id.0);
    out.extend_from_slice(&position.number.to_be_bytes());
    // No content is longer than RECORD_LIMIT.
    out.extend_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(digest_of(position, content).as_ref());
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(PAGE), 0);
}

/// The number and the content of the record at the beginning of `bytes`, if it is complete.
fn read_record(bytes: &[u8], id: JournalId) -> Option<(u64, &[u8])> {
    let rest = bytes.strip_prefix(&id.0)?;
    let (number, rest) = rest.split_first_chunk::<NUMBER_LEN>()?;
    let (length, rest) = rest.split_first_chunk::<LENGTH_LEN>()?;
    let (digest, rest) = rest.split_first_chunk::<DIGEST_LEN>()?;
    let number = u64::from_be_bytes(*number);
    let (content, _) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    (digest_of(JournalPosition { id, number }, content).as_ref() == digest).then_some((number, content))
}

/// The contents of all complete records from `from` on, in the order of their numbers. `None` if a number is missing
/// before the last one.
pub(super) fn read_records(bytes: &[u8], from: JournalPosition) -> Option<Vec<&[u8]>> {
    let mut contents = BTreeMap::new();
    let mut end = 0;
    for at in (0..bytes.len()).step_by(PAGE) {
        // The content of a record may look like a record.
        if at < end {
            continue;
        }
        let found = bytes.get(at..).and_then(|rest| read_record(rest, from.id));
        // A record that redb holds is not skipped whole: newer records may have replaced its last pages.
        let Some((number, content)) = found.filter(|(number, _)| *number >= from.number) else {
            continue;
        };
        end = at + record_len(content);
        if contents.insert(number, content).is_some() {
            return None;
        }
    }
    let is_gapless = contents.keys().copied().eq((from.number..).take(contents.len()));
    is_gapless.then(|| contents.into_values().collect())
}
