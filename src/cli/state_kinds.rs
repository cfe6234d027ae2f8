//! The kinds of records that a file declares: their keys, and the places of their entries.

use serde_json::{Map, Value};

use crate::admin::apply::{apis, clients, named, providers, users};
use crate::federation::provider::ProviderFields;
use crate::oauth::fault::RecordName;
use crate::oauth::fields::Form;
use crate::oauth::{ApiFields, ClientFields, GroupFields, ScopeFields};

/// A kind of record.
pub(super) struct Kind {
    /// The name of its section.
    pub(super) name: &'static str,
    /// The keys of an entry, and the forms of their values.
    pub(super) keys: [&'static [(&'static str, Form)]; 2],
    /// Groups of keys. An entry needs at least one key of each group.
    pub(super) needed: &'static [&'static [&'static str]],
    /// The keys that name the record. The first one that is present counts.
    names: &'static [&'static str],
}

pub(super) const KINDS: [Kind; 6] = [
    Kind {
        name: "scope",
        keys: [named::KEYS, ScopeFields::FIELDS],
        needed: &[&["name"]],
        names: &["name"],
    },
    Kind {
        name: "group",
        keys: [named::KEYS, GroupFields::FIELDS],
        needed: &[&["name"]],
        names: &["name"],
    },
    Kind {
        name: "provider",
        keys: [providers::KEYS, ProviderFields::FIELDS],
        needed: &[&["id"], &["issuer"]],
        names: &["id"],
    },
    Kind {
        name: "api",
        keys: [apis::KEYS, ApiFields::FIELDS],
        needed: &[&["id"], &["identifier"]],
        names: &["id"],
    },
    Kind {
        name: "client",
        keys: [clients::KEYS, ClientFields::FIELDS],
        needed: &[&["client_id"]],
        names: &["client_id"],
    },
    Kind {
        name: "user",
        keys: [users::KEYS, &[]],
        needed: &[&["email", "account_id"]],
        names: &["account_id", "email"],
    },
];

/// The places of the entries, by the records that they declare.
#[derive(Default)]
pub struct Places(Vec<(RecordName, String)>);

impl Places {
    pub(super) fn add(&mut self, kind: &Kind, members: &Map<String, Value>, place: &str) {
        let mut names = kind.names.iter().filter_map(|key| members.get(*key)?.as_str());
        let name = names.next().unwrap_or_default();
        let record = RecordName {
            kind: kind.name.to_owned(),
            id: name.to_owned(),
        };
        self.0.push((record, place.to_owned()));
    }

    /// Adds the places of other entries of the same file.
    pub(super) fn extend(&mut self, others: &Self) {
        self.0.extend(others.0.iter().cloned());
    }

    /// The place of the entry that declares a record. Of two entries with one name it is the second.
    pub fn of(&self, record: &RecordName) -> Option<&str> {
        let find = |in_case: fn(&str) -> String| {
            let is_meant = |(declared, _): &&(RecordName, String)| {
                declared.kind == record.kind && in_case(&declared.id) == in_case(&record.id)
            };
            self.0.iter().rev().find(is_meant)
        };
        // A fault may have the name of a user in lower case.
        let found = find(str::to_owned).or_else(|| find(str::to_lowercase));
        found.map(|(_, place)| place.as_str())
    }
}

/// Keys that name a file or a variable, and the fields that it is read into.
pub(super) const SOURCES: [(&str, &str); 9] = [
    ("secret_file", "secret"),
    ("secret_env", "secret"),
    ("client_secret_file", "client_secret"),
    ("client_secret_env", "client_secret"),
    ("logo_file", "logo"),
    ("password_file", "password"),
    ("password_env", "password"),
    ("public_key_file", "keys"),
    ("jwks_file", "keys"),
];

/// The keys that set this field of a record.
pub(super) fn keys_of(kind: &str, field: &str) -> Vec<String> {
    let kinds = KINDS.iter().filter(|known| known.name == kind);
    let keys = kinds.flat_map(|kind| kind.keys.concat()).map(|(key, _)| key);
    keys.filter(|key| *key == field || SOURCES.contains(&(key, field)))
        .map(str::to_owned)
        .collect()
}
