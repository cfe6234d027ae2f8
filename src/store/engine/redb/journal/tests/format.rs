//! The format of the journal file, tested on bytes in memory.

use std::ops::Range;

use proptest::prelude::*;

use crate::store::engine::redb::journal::RECORD_LIMIT;
use crate::store::engine::redb::journal::changes::Changes;
use crate::store::engine::redb::journal::record::{
    HEAD_LEN, JournalId, JournalPosition, read_records, write_record,
};
use crate::store::engine::tests::RAW;

fn position(id: u8, number: u64) -> JournalPosition {
    let id = JournalId([id; 16]);
    JournalPosition { id, number }
}

/// The bytes of a journal with these records, and the range of each record.
fn written(first: JournalPosition, contents: &[Vec<u8>]) -> (Vec<u8>, Vec<Range<usize>>) {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    for (number, content) in (first.number..).zip(contents) {
        let start = bytes.len();
        write_record(JournalPosition { number, ..first }, content, &mut bytes);
        records.push(start..start + HEAD_LEN + content.len());
    }
    (bytes, records)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn of_a_journal_that_was_cut_the_beginning_is_read(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let first = position(7, 0);
        let (bytes, records) = written(first, &contents);
        let cut = cut.index(bytes.len());
        let whole = records.iter().filter(|record| record.end <= cut).count();
        let mut padded = bytes[..cut].to_vec();
        padded.resize(bytes.len() + 100, 0);
        // A record whose content ends in zeros may be complete although it was cut.
        let read = read_records(&padded, first).unwrap();
        prop_assert!(read.len() >= whole && read == contents[..read.len()]);
        prop_assert_eq!(read_records(&padded, position(8, 0)), Some(Vec::new()));
    }

    #[test]
    fn a_record_that_changed_is_damage_unless_it_is_the_last(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 1..6),
        hit in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let first = position(7, 0);
        let (mut bytes, records) = written(first, &contents);
        let hit = hit.index(records.len());
        let record = records[hit].clone();
        bytes[record.start + at.index(record.len())] ^= flip;
        let read = read_records(&bytes, first);
        let is_last = hit == contents.len() - 1;
        prop_assert!(read.is_some() == is_last && read.is_none_or(|read| read == contents[..hit]));
    }

    #[test]
    fn records_count_from_a_position_on_in_either_half(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 2..8),
        cut in any::<prop::sample::Index>(),
        from in any::<prop::sample::Index>(),
    ) {
        let (bytes, records) = written(position(7, 0), &contents);
        // The later records lie at the beginning, as after a switch of halves.
        let cut = cut.index(contents.len());
        let (first, second) = bytes.split_at(records[cut].start);
        let switched = [second, first].concat();
        let from = from.index(contents.len());
        let read = read_records(&switched, position(7, from as u64)).unwrap();
        prop_assert_eq!(read.as_slice(), &contents[from..]);
        // A record is missing before the last one.
        let after = position(7, contents.len() as u64 + 1);
        let mut with_gap = switched;
        write_record(after, b"later", &mut with_gap);
        prop_assert_eq!(read_records(&with_gap, position(7, from as u64)), None);
    }

    #[test]
    fn changes_come_back_from_their_content_and_nothing_else_is_taken_for_one(
        rows in prop::collection::vec((any::<[u8; 2]>(), prop::option::of(any::<[u8; 3]>())), 0..20),
        cut in any::<prop::sample::Index>(),
        noise in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut changes = Changes::default();
        for (key, value) in rows {
            changes.set(RAW.id().name(), &key, value.map(Vec::from));
        }
        let content = changes.to_content().unwrap();
        let mut read = Changes::default();
        prop_assert_eq!(read.add_content(&content), Some(()));
        prop_assert_eq!(&read, &changes);
        let _ = read.add_content(&content[..cut.index(content.len() + 1)]);
        let _ = read.add_content(&noise);
        let _ = read_records(&noise, position(7, 0));
    }
}

#[test]
fn a_content_has_a_limit() {
    let mut changes = Changes::default();
    changes.set("raw", b"key", Some(vec![0; RECORD_LIMIT]));
    assert_eq!(changes.to_content(), None);
    changes.set("raw", b"key", Some(vec![0; RECORD_LIMIT - 100]));
    assert!(changes.to_content().unwrap().len() <= RECORD_LIMIT);
}

#[test]
fn what_was_overtaken_hides_nothing_though_it_is_whole_by_chance() {
    // The last byte of the content lies on the second page, and equals the first byte of a record.
    let mut content = vec![1; 4096 - HEAD_LEN];
    content.push(7);
    let (mut bytes, _) = written(position(7, 3), &[content]);
    let (newer, _) = written(position(7, 4), &[b"counts".to_vec()]);
    bytes.splice(4096.., newer);
    let read = read_records(&bytes, position(7, 4)).unwrap();
    assert_eq!(read, [b"counts"]);
}

#[test]
fn a_position_comes_back_from_its_bytes() {
    for position in [position(7, 0), position(8, 1), position(9, u64::MAX)] {
        assert_eq!(JournalPosition::from_bytes(&position.to_bytes()), Some(position));
    }
    for length in [0, 16, 23, 25] {
        assert_eq!(JournalPosition::from_bytes(&vec![7; length]), None);
    }
    assert_eq!(read_records(&[], position(7, 0)), Some(Vec::new()));
}
