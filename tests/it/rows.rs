//! Rows as they are kept: a change of a record's shape shows here.
//!
//! They are seeds of the fuzzer (`tests/fuzz/seeds/stored_record`): a byte for the table, a byte of version, the
//! record.

use std::fs;
use std::path::{Path, PathBuf};

use idsvc::federation::Provider;
use idsvc::identity::{Consent, Factor, OneTimeLink, Session, User};
use idsvc::oauth::code::AuthorizationCode;
use idsvc::oauth::device::DeviceAuthorization;
use idsvc::oauth::login::LoginRecord;
use idsvc::oauth::refresh::RefreshFamily;
use idsvc::oauth::{Api, Client, Group, RegisteredScope};
use idsvc::store::record::{DecodeError, Record};
use idsvc::store::records::{
    ApiKeyUse, FailedPasswords, Lease, LogoutNotice, OutboxEntry, RefreshKeyRecord, SessionClient,
    SigningKeyRecord,
};
use uuid::Uuid;

/// Reads a row and writes it again.
fn read<R: Record>(row: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut written = Vec::new();
    R::decode(row)?.encode(&mut written).unwrap();
    Ok(written)
}

type Reader = fn(&[u8]) -> Result<Vec<u8>, DecodeError>;

const READERS: &[(&str, Reader)] = &[
    ("clients", read::<Client>),
    ("apis", read::<Api>),
    ("scopes", read::<RegisteredScope>),
    ("groups", read::<Group>),
    ("users", read::<User>),
    ("signing_keys", read::<SigningKeyRecord>),
    ("refresh_keys", read::<RefreshKeyRecord>),
    ("login_records", read::<LoginRecord>),
    ("codes", read::<AuthorizationCode>),
    ("families", read::<RefreshFamily>),
    ("sessions", read::<Session>),
    ("consents", read::<Consent>),
    ("api-key-use", read::<ApiKeyUse>),
    ("failed_passwords", read::<FailedPasswords>),
    ("factors", read::<Factor>),
    ("outbox", read::<OutboxEntry>),
    ("one_time_links", read::<OneTimeLink>),
    ("leases", read::<Lease>),
    ("device_authorizations", read::<DeviceAuthorization>),
    ("session_clients", read::<SessionClient>),
    ("logout_notices", read::<LogoutNotice>),
    ("providers", read::<Provider>),
    ("users_by_login_name", read::<Uuid>),
];

/// The name of each row's table, how it is read, the file, the row.
fn kept() -> Vec<(&'static str, Reader, PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds/stored_record");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter_map(|file| {
            let name = file.file_name().unwrap().to_str().unwrap();
            let (table, reader) = READERS.iter().find(|(table, _)| {
                name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-') == *table
            })?;
            let row = fs::read(&file).unwrap().split_off(1);
            Some((*table, *reader, file, row))
        })
        .collect()
}

#[test]
fn every_table_has_rows() {
    for (table, _) in READERS {
        assert!(kept().iter().any(|(of, ..)| of == table), "{table}");
    }
}

#[test]
fn a_row_is_read_and_written_the_same() {
    for (_, reader, file, row) in kept() {
        let written = reader(&row);
        assert!(written.is_ok(), "{}", file.display());
        assert_eq!(written.unwrap(), row, "{}", file.display());
    }
}

#[test]
fn a_row_that_is_cut_anywhere_is_no_record() {
    for (_, reader, file, row) in kept() {
        for end in 1..row.len() {
            assert!(reader(&row[..end]).is_err(), "{} cut at {end}", file.display());
        }
    }
}
