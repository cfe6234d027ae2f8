//! Writing, reading and refusing backups.

use super::*;
use crate::oauth::login::LoginRecord;
use crate::store::engine::tests::Folder;
use crate::store::record::Record;
use crate::store::schema::{meta_get, meta_put, stored};
use crate::store::tables::{LOGIN_RECORDS, USERS_BY_LOGIN_NAME};
use uuid::Uuid;

fn key() -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &[7; 32])
}

fn header() -> Header {
    Header {
        schema: 1,
        release: "test".to_owned(),
        created_at: Timestamp::from_seconds(1_000),
        issuer: None,
        master_key_fingerprint: "f".to_owned(),
        rows: Some(0),
        master_key: None,
    }
}

fn backup() -> Vec<u8> {
    backup_with(&header())
}

fn backup_with(header: &Header) -> Vec<u8> {
    let store = Store::in_memory(Options::default()).unwrap();
    store
        .write_blocking("fill", |tx| {
            meta_put(tx, "issuer", "https://id.example")?;
            for number in 0..3_u128 {
                USERS_BY_LOGIN_NAME.put(tx, &format!("user-{number}"), &Uuid::from_u128(number))?;
            }
            LOGIN_RECORDS.put(tx, &Uuid::from_u128(1), &LoginRecord::default())?;
            Ok(())
        })
        .unwrap();
    let mut bytes = Vec::new();
    store
        .stream(|snapshot| {
            write(snapshot, header.clone(), &key(), &mut bytes).unwrap();
            Ok(())
        })
        .unwrap();
    bytes
}

fn read_all(bytes: &[u8], key: &hmac::Key) -> Result<u64, BackupError> {
    let mut rows = BackupReader::open(bytes)?.rows(key);
    while rows.next_row()?.is_some() {}
    Ok(rows.progress().read)
}

fn restored(bytes: &[u8], folder: &Folder, schema: &Schema) -> Result<Store, BackupError> {
    let mut rows = BackupReader::open(bytes)?.rows(&key());
    restore(
        &folder.path("restored"),
        &mut rows,
        Options::default(),
        schema,
        &mut |_, _| {},
    )
}

/// A row of a sign-in, as the backups of older releases have them.
fn with_sign_in(whole: &[u8]) -> Vec<u8> {
    let end = whole.len() - usize::try_from(END_LEN).unwrap();
    let header = FORMAT.len()
        + whole[FORMAT.len()..]
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap();
    let changed = Header {
        rows: Some(6),
        ..header_of(whole)
    };
    let mut out = FORMAT.to_vec();
    out.extend_from_slice(&serde_json::to_vec(&changed).unwrap());
    out.extend_from_slice(&whole[header..end]);
    let name = LOGIN_RECORDS.id().name();
    let mut row = Vec::new();
    LoginRecord::default().encode(&mut row).unwrap();
    out.extend_from_slice(&[TABLE, u8::try_from(name.len()).unwrap()]);
    out.extend_from_slice(name.as_bytes());
    out.push(ROW);
    out.extend_from_slice(&16_u32.to_be_bytes());
    out.extend_from_slice(&u32::try_from(row.len()).unwrap().to_be_bytes());
    out.extend_from_slice(Uuid::from_u128(7).as_bytes());
    out.extend_from_slice(&row);
    out.push(END);
    out.extend_from_slice(&6_u64.to_be_bytes());
    let tag = hmac::sign(&key(), &out);
    [&out, tag.as_ref()].concat()
}

fn header_of(whole: &[u8]) -> Header {
    BackupReader::open(whole).unwrap().header().clone()
}

#[test]
fn a_backup_holds_no_sign_in_and_an_older_one_with_sign_ins_is_restored() {
    let whole = backup();
    let name = LOGIN_RECORDS.id().name().as_bytes();
    assert!(!whole.windows(name.len()).any(|part| part == name));
    assert_eq!(header_of(&whole).rows, Some(5));
    let folder = Folder::new();
    let store = restored(&with_sign_in(&whole), &folder, &Schema::CURRENT).unwrap();
    let found = store.read_blocking(|snapshot| {
        Ok((
            LOGIN_RECORDS.get(snapshot, &Uuid::from_u128(7))?,
            USERS_BY_LOGIN_NAME.count(snapshot)?,
        ))
    });
    assert_eq!(found.unwrap(), (Some(LoginRecord::default()), 3));
}

#[test]
fn a_backup_without_a_count_has_the_number_of_rows_at_its_end() {
    let whole = backup_with(&Header {
        rows: None,
        ..header()
    });
    assert_eq!(header_of(&whole).rows, None);
    assert_eq!(check_ends(io::Cursor::new(&whole)).unwrap().rows, Some(5));
    assert_eq!(read_all(&whole, &key()).unwrap(), 5);
}

#[test]
fn a_check_of_both_ends_finds_an_incomplete_backup() {
    let whole = backup();
    let check_ends = |bytes: &[u8]| check_ends(io::Cursor::new(bytes));
    assert_eq!(
        check_ends(&whole).unwrap().rows,
        Some(read_all(&whole, &key()).unwrap())
    );
    assert!(matches!(check_ends(b""), Err(BackupError::NotABackup)));
    for length in [FORMAT.len() + 1, whole.len() / 2, whole.len() - 1] {
        assert!(
            matches!(check_ends(&whole[..length]), Err(BackupError::CutOff)),
            "{length}"
        );
    }
}

#[test]
fn what_was_backed_up_is_restored_row_by_row() {
    let folder = Folder::new();
    let store = restored(&backup(), &folder, &Schema::CURRENT).unwrap();
    let found = store.read_blocking(|snapshot| {
        Ok((
            meta_get(snapshot, "issuer")?,
            USERS_BY_LOGIN_NAME.get(snapshot, "user-2")?,
            USERS_BY_LOGIN_NAME.count(snapshot)?,
        ))
    });
    assert_eq!(
        found.unwrap(),
        (Some("https://id.example".to_owned()), Some(Uuid::from_u128(2)), 3)
    );
}

#[test]
fn a_backup_of_an_older_schema_is_brought_up() {
    fn step(tx: &mut dyn crate::store::engine::Tx) -> Result<(), StoreError> {
        meta_put(tx, "upgraded", "yes")
    }
    const LATER: Schema = Schema::new(&[step, step]);
    let folder = Folder::new();
    let store = restored(&backup(), &folder, &LATER).unwrap();
    assert_eq!(store.read_blocking(stored).unwrap(), Some(LATER.version()));
    assert_eq!(
        store
            .read_blocking(|s| meta_get(s, "upgraded"))
            .unwrap()
            .as_deref(),
        Some("yes")
    );
}

#[test]
fn no_cut_and_no_changed_byte_goes_unnoticed() {
    let whole = backup();
    assert_eq!(read_all(&whole, &key()).unwrap(), 5);
    for end in 0..whole.len() {
        let cut = read_all(&whole[..end], &key());
        assert!(
            matches!(cut, Err(BackupError::CutOff | BackupError::NotABackup)),
            "{end}"
        );
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        assert!(read_all(&changed, &key()).is_err(), "byte {at}");
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(matches!(read_all(&longer, &key()), Err(BackupError::Damaged(_))));
    let foreign = hmac::Key::new(hmac::HMAC_SHA256, &[8; 32]);
    assert!(matches!(read_all(&whole, &foreign), Err(BackupError::Damaged(_))));
}

#[test]
fn a_change_that_the_source_notices_is_no_error_of_the_disk() {
    struct Source<'a>(&'a [u8], io::ErrorKind);
    impl Read for Source<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buffer)? {
                0 => Err(self.1.into()),
                count => Ok(count),
            }
        }
    }
    let whole = backup();
    let read = |end, kind| {
        let mut rows = BackupReader::open(Source(&whole[..end], kind))?.rows(&key());
        while rows.next_row()?.is_some() {}
        Ok(())
    };
    for end in 0..=whole.len() {
        let changed = read(end, io::ErrorKind::InvalidData);
        assert!(
            matches!(changed, Err(BackupError::Damaged(_))),
            "{end}: {changed:?}"
        );
        let failed = read(end, io::ErrorKind::Other);
        assert!(
            matches!(failed, Err(BackupError::Unreadable(_))),
            "{end}: {failed:?}"
        );
    }
}

#[test]
fn a_length_that_lies_takes_no_memory() {
    for announced in [KEY_LIMIT, VALUE_LIMIT, u32::MAX] {
        let came = read_at_most(&mut b"short".as_slice(), announced).unwrap();
        assert_eq!(came, b"short");
        assert!(came.capacity() < 1024, "{announced}: {}", came.capacity());
    }
    let mut bytes = FORMAT.to_vec();
    bytes.extend_from_slice(&serde_json::to_vec(&header()).unwrap());
    bytes.extend_from_slice(b"\n\x01\x05users\x02");
    for lengths in [
        [0, 0, 0, 16, 0x03, 0xff, 0xff, 0xff],
        [0xff; 8],
        [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff],
    ] {
        let lying = [&bytes[..], &lengths, b"short"].concat();
        assert!(matches!(
            read_all(&lying, &key()),
            Err(BackupError::CutOff | BackupError::Damaged(_))
        ));
    }
    assert!(matches!(
        read_all(&vec![b'x'; HEADER_LIMIT * 2], &key()),
        Err(BackupError::NotABackup)
    ));
    let later = [b"idsvc backup 2\n".as_slice(), b"{}"].concat();
    assert!(matches!(read_all(&later, &key()), Err(BackupError::Newer(_))));
}
