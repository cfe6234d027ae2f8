//! Rows that earlier releases wrote: each is still the record that it was.
//!
//! They are seeds of the fuzzer (`tests/fuzz/seeds/stored_record`): a byte for the table, a byte of version, the
//! record. One that was added once is never changed.

use std::fs;
use std::path::{Path, PathBuf};

use idsvc::federation::Provider;
use idsvc::identity::{Consent, Session, User};
use idsvc::oauth::Client;
use idsvc::oauth::authorize::LoginTransaction;
use idsvc::oauth::code::AuthorizationCode;
use idsvc::oauth::refresh::RefreshFamily;
use idsvc::store::record::{Record, Unreadable};
use idsvc::store::records::{ApiKeyUse, SigningKeyRecord};
use idsvc::store::schema::Schema;
use serde_json::Value;
use uuid::Uuid;

/// What a row says, as JSON, and the row as it would be written today.
fn read<R: Record>(row: &[u8]) -> Result<(Value, Vec<u8>), Unreadable> {
    let record = R::decode(row)?;
    let mut written = Vec::new();
    record.encode(&mut written).unwrap();
    Ok((serde_json::to_value(&record).unwrap(), written))
}

type Reader = fn(&[u8]) -> Result<(Value, Vec<u8>), Unreadable>;

const READERS: &[(&str, Reader)] = &[
    ("clients", read::<Client>),
    ("users", read::<User>),
    ("signing_keys", read::<SigningKeyRecord>),
    ("login_transactions", read::<LoginTransaction>),
    ("codes", read::<AuthorizationCode>),
    ("families", read::<RefreshFamily>),
    ("sessions", read::<Session>),
    ("consents", read::<Consent>),
    ("api-key-use", read::<ApiKeyUse>),
    ("providers", read::<Provider>),
    ("users_by_login_name", read::<Uuid>),
];

/// The rows of one version: the name of their table, how it is read, the file, the row.
fn kept(version: u8) -> Vec<(&'static str, Reader, PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds/stored_record");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files
        .filter_map(|file| {
            let name = file.file_name().unwrap().to_str().unwrap();
            let (table, reader) = READERS.iter().find(|(table, _)| {
                name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-') == *table
            })?;
            let row = fs::read(&file).unwrap().split_off(1);
            (row.first() == Some(&version)).then_some((*table, *reader, file, row))
        })
        .collect()
}

/// What is left of a JSON document without the members that say nothing.
fn telling(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| (name, telling(value)))
            .filter(|(_, value)| {
                !matches!(value, Value::Null | Value::Bool(false)) && *value != serde_json::json!({})
            })
            .collect(),
        Value::Array(values) => values.into_iter().map(telling).collect(),
        other => other,
    }
}

/// The tables whose rows got a new version with each schema from the third on; all got one with the first two. What was
/// released is never changed here.
const CHANGED: &[&[&str]] = &[&["users"]];

/// The version in which records of a table are written.
fn current(table: &str) -> u8 {
    let changes = CHANGED.iter().filter(|tables| tables.contains(&table)).count();
    2 + u8::try_from(changes).unwrap()
}

/// The members of users had longer names, and so had those of a family and of what was granted.
fn renamed_user(json: &str) -> Value {
    let names = [
        ("uuid", "id"),
        ("account_id", "acct"),
        ("email", "mail"),
        ("email_verified", "mail_ok"),
        ("phone_number", "tel"),
        ("phone_number_verified", "tel_ok"),
        ("user_type", "type"),
        ("venue_id", "venue"),
        ("organization", "org"),
        ("source", "src"),
        ("password", "pw"),
        ("identities", "ids"),
        ("enabled", "on"),
        ("created_at", "from"),
        ("updated_at", "at"),
    ];
    let members: serde_json::Map<String, Value> = serde_json::from_str(json).unwrap();
    let renamed = members.into_iter().map(|(old, value)| {
        let new = names.iter().find(|(name, _)| *name == old);
        (new.map_or(old, |(_, new)| (*new).to_owned()), value)
    });
    renamed.collect()
}

fn renamed(json: &str) -> String {
    [
        ("authorization", "auth"),
        ("client_id", "client"),
        ("session", "sid"),
        ("auth_time", "at"),
        ("factor", "by"),
        ("bound_to_session", "bound"),
        ("created_at", "from"),
        ("expires_at", "to"),
        ("revoked_at", "end"),
        ("lineage", "line"),
        ("current", "new"),
        ("predecessor", "old"),
        ("generation", "gen"),
        ("used_at", "at"),
        ("number", "n"),
        ("digest", "d"),
    ]
    .iter()
    .fold(json.to_owned(), |json, (old, new)| {
        json.replace(&format!("\"{old}\":"), &format!("\"{new}\":"))
    })
}

#[test]
fn every_table_has_rows_of_all_versions() {
    for (table, _) in READERS {
        for version in 1..=current(table) {
            let found = kept(version).iter().any(|(of, ..)| of == table);
            assert!(found, "{table} of version {version}");
        }
    }
}

/// A release refuses a store of a later schema, and so never meets a row that it cannot read.
#[test]
fn every_version_of_a_record_came_with_a_schema() {
    assert_eq!(
        2 + CHANGED.len(),
        usize::try_from(Schema::CURRENT.version()).unwrap()
    );
}

#[test]
fn rows_that_were_json_are_read_and_become_smaller() {
    for (table, reader, file, row) in kept(1) {
        let (record, written) = reader(&row).unwrap();
        assert_eq!(written[0], current(table));
        assert!(written.len() < row.len(), "{}", file.display());
        let again = reader(&written).unwrap();
        assert_eq!(again, (record.clone(), written), "{}", file.display());
        let said = std::str::from_utf8(&row[1..]).unwrap();
        let said = match table {
            "families" => serde_json::from_str(&renamed(said)).unwrap(),
            "users" => renamed_user(said),
            "codes" => {
                let mut code: Value = serde_json::from_str(said).unwrap();
                let granted = renamed(&code["authorization"].to_string());
                code["authorization"] = serde_json::from_str(&granted).unwrap();
                code
            }
            _ => serde_json::from_str(said).unwrap(),
        };
        assert_eq!(telling(record), telling(said), "{}", file.display());
    }
}

#[test]
fn rows_of_this_version_are_read_and_written_the_same() {
    for version in [2, 3] {
        for (table, reader, file, row) in kept(version) {
            if current(table) == version {
                assert_eq!(reader(&row).unwrap().1, row, "{}", file.display());
            }
        }
    }
}

#[test]
fn users_with_long_names_in_their_rows_are_read_and_become_smaller() {
    let users = |version| kept(version).into_iter().filter(|(table, ..)| *table == "users");
    let as_json = users(1).map(|(_, reader, _, row)| reader(&row).unwrap().0).next();
    for (_, reader, file, row) in users(2) {
        let (record, written) = reader(&row).unwrap();
        assert!(written.len() < row.len(), "{}", file.display());
        assert_eq!(reader(&written).unwrap(), (record.clone(), written));
        assert_eq!(Some(record), as_json, "{}", file.display());
    }
}

#[test]
fn a_row_that_is_cut_anywhere_is_no_record() {
    for (_, reader, file, row) in kept(2) {
        for end in 1..row.len() {
            assert!(reader(&row[..end]).is_err(), "{} cut at {end}", file.display());
        }
    }
}
