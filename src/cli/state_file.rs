//! A file of declared state: TOML or JSON, its faults with their lines, its secrets read from where it says.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use toml::de::DeValue;

use super::client::read_secret;
use super::provider::read_logo;
use crate::config::file::{BadSyntax, line_of, table_of};
use crate::config::reference::nearest;
use crate::flow::admin::Disclosed;
use crate::flow::admin::state::State;
use crate::flow::admin::state::clients;
use crate::flow::admin::state::providers;
use crate::flow::admin::state::users::{self, DeclaredUser};

/// A kind of record: what its section is called, and which keys an entry may have.
const KINDS: [(&str, &[&str]); 3] = [
    ("provider", providers::KEYS),
    ("client", clients::KEYS),
    ("user", users::KEYS),
];

/// Where the secrets that a file names are.
pub struct Sources<'a> {
    /// The folder that relative paths begin at.
    pub folder: &'a Path,
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// An entry as it was written: its keys with their lines.
struct Entry {
    /// How messages call its place.
    place: String,
    members: Map<String, Value>,
    lines: BTreeMap<String, usize>,
}

impl Entry {
    fn at(&self, key: &str) -> String {
        self.lines
            .get(key)
            .map_or_else(|| self.place.clone(), |line| format!("line {line}"))
    }
}

/// Reads a state; every fault at once.
pub fn parse(text: &str, sources: &Sources<'_>) -> Result<State, Vec<String>> {
    let mut faults = Vec::new();
    let sections = if text.trim_start().starts_with('{') {
        of_json(text, &mut faults)
    } else {
        of_toml(text, &mut faults)
    };
    let mut state = State::default();
    for (kind, mut entries) in sections {
        for entry in &mut entries {
            check_keys(&kind, entry, &mut faults);
            read_sources(entry, sources, &mut faults);
        }
        let entries = entries.iter();
        match kind.as_str() {
            "provider" => {
                state.provider = Some(entries.filter_map(|entry| plain(entry, &mut faults)).collect());
            }
            "client" => state.client = Some(entries.filter_map(|entry| plain(entry, &mut faults)).collect()),
            "user" => state.user = Some(entries.filter_map(|entry| user(entry, &mut faults)).collect()),
            _ => {}
        }
    }
    if faults.is_empty() { Ok(state) } else { Err(faults) }
}

/// An entry that is the record as it stands.
fn plain<T: DeserializeOwned>(entry: &Entry, faults: &mut Vec<String>) -> Option<T> {
    typed(entry, entry.members.clone(), faults)
}

fn user(entry: &Entry, faults: &mut Vec<String>) -> Option<DeclaredUser> {
    let mut members = entry.members.clone();
    let password = match members.remove("password") {
        Some(Value::String(text)) => Some(Disclosed::new(text)),
        _ => None,
    };
    let line = typed(entry, members, faults)?;
    Some(DeclaredUser { password, line })
}

/// The entry as a type. Its keys are known already, so what is left is a value of another type.
fn typed<T: DeserializeOwned>(
    entry: &Entry,
    members: Map<String, Value>,
    faults: &mut Vec<String>,
) -> Option<T> {
    // One by one, so that the fault has its line.
    let mut is_sound = true;
    for (key, value) in &members {
        let single: Map<String, Value> = [(key.clone(), value.clone())].into_iter().collect();
        if let Err(error) = serde_json::from_value::<T>(Value::Object(single)) {
            faults.push(format!("{}: {key}: {error}", entry.at(key)));
            is_sound = false;
        }
    }
    if !is_sound {
        return None;
    }
    serde_json::from_value(Value::Object(members))
        .map_err(|error| faults.push(format!("{}: {error}", entry.place)))
        .ok()
}

fn check_keys(kind: &str, entry: &mut Entry, faults: &mut Vec<String>) {
    let known = KINDS
        .iter()
        .find(|(name, _)| *name == kind)
        .map_or(&[][..], |(_, keys)| keys);
    let unknown: Vec<String> = entry
        .members
        .keys()
        .filter(|key| !known.contains(&key.as_str()))
        .cloned()
        .collect();
    for key in unknown {
        let advice = match (key.as_str(), nearest(&key, known.iter().copied())) {
            ("secret" | "client_secret" | "password", _) => {
                format!("a {key} does not stand in the file: use {key}_file or {key}_env")
            }
            (_, Some(meant)) => format!("did you mean {meant}?"),
            (_, None) => format!("a {kind} has {}", known.join(", ")),
        };
        faults.push(format!(
            "{}: unknown key {key} of a {kind}: {advice}",
            entry.at(&key)
        ));
        entry.members.remove(&key);
    }
}

/// Replaces keys that name a file or a variable by what is there.
fn read_sources(entry: &mut Entry, sources: &Sources<'_>, faults: &mut Vec<String>) {
    for (named, target) in [
        ("secret_file", "secret"),
        ("secret_env", "secret"),
        ("client_secret_file", "client_secret"),
        ("client_secret_env", "client_secret"),
        ("logo_file", "logo"),
        ("password_file", "password"),
        ("password_env", "password"),
        ("public_key_file", "public_key"),
        ("jwks_file", "jwks"),
    ] {
        let at = entry.at(named);
        let Some(source) = entry.members.remove(named) else {
            continue;
        };
        let Some(source) = source.as_str() else {
            faults.push(format!("{at}: {named} must be a text"));
            continue;
        };
        let read = if named.ends_with("_env") {
            (sources.variable)(source)
                .filter(|text| !text.is_empty())
                .ok_or_else(|| format!("the environment has no variable {source}"))
        } else if target == "logo" {
            read_logo(&sources.folder.join(source)).map_err(|stop| stop.to_string())
        } else {
            read_secret(&sources.folder.join(source))
                .map(|text| text.reveal().to_owned())
                .map_err(|stop| stop.to_string())
        };
        match read {
            Ok(text) => {
                if entry
                    .members
                    .insert(target.to_owned(), Value::from(text))
                    .is_some()
                {
                    faults.push(format!("{at}: {named} names a second {target}: give one of them"));
                }
            }
            Err(fault) => faults.push(format!("{at}: {named}: {fault}")),
        }
    }
}

type Sections = Vec<(String, Vec<Entry>)>;

fn unknown_kind(name: &str) -> String {
    let known = KINDS.map(|(kind, _)| kind);
    match nearest(name, known.into_iter()) {
        Some(meant) => format!("unknown section {name}: did you mean [[{meant}]]?"),
        None => format!(
            "unknown section {name}: there are {}",
            known.map(|kind| format!("[[{kind}]]")).join(", ")
        ),
    }
}

fn of_toml(text: &str, faults: &mut Vec<String>) -> Sections {
    let line_of = |offset: usize| line_of(text, offset);
    let mut sections = Vec::new();
    let table = match table_of(text) {
        Ok(table) => table,
        Err(BadSyntax {
            line,
            column,
            message,
        }) => {
            faults.push(format!("line {line} column {column}: {message}"));
            return sections;
        }
    };
    for (name, value) in &table {
        let line = line_of(name.span().start);
        let kind = name.get_ref().to_string();
        if !KINDS.iter().any(|(known, _)| *known == kind) {
            faults.push(format!("line {line}: {}", unknown_kind(&kind)));
            continue;
        }
        let DeValue::Array(items) = value.get_ref() else {
            faults.push(format!("line {line}: a {kind} is written below [[{kind}]]"));
            continue;
        };
        let mut entries = Vec::new();
        for item in items {
            let line = line_of(item.span().start);
            let DeValue::Table(members) = item.get_ref() else {
                faults.push(format!("line {line}: a {kind} is a table"));
                continue;
            };
            entries.push(Entry {
                place: format!("line {line}"),
                members: members
                    .iter()
                    .map(|(key, value)| (key.get_ref().to_string(), json_of(value.get_ref())))
                    .collect(),
                lines: members
                    .iter()
                    .map(|(key, _)| (key.get_ref().to_string(), line_of(key.span().start)))
                    .collect(),
            });
        }
        sections.push((kind, entries));
    }
    sections
}

fn json_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().map_or(Value::Null, Value::from),
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::Datetime(moment) => Value::from(moment.to_string()),
        DeValue::Array(values) => values.iter().map(|value| json_of(value.get_ref())).collect(),
        DeValue::Table(members) => Value::Object(
            members
                .iter()
                .map(|(key, value)| (key.get_ref().to_string(), json_of(value.get_ref())))
                .collect(),
        ),
    }
}

fn of_json(text: &str, faults: &mut Vec<String>) -> Sections {
    let sections: Map<String, Value> = match serde_json::from_str(text) {
        Ok(sections) => sections,
        Err(error) => {
            let message = error.to_string();
            // The place is said once, and first.
            let message = message.split(" at line ").next().unwrap_or_default();
            faults.push(format!(
                "line {} column {}: {message}",
                error.line(),
                error.column()
            ));
            return Vec::new();
        }
    };
    let mut all = Vec::new();
    for (kind, items) in sections {
        if !KINDS.iter().any(|(known, _)| *known == kind) {
            faults.push(unknown_kind(&kind));
            continue;
        }
        let Value::Array(items) = items else {
            faults.push(format!("{kind}: the section is an array of objects"));
            continue;
        };
        let mut entries = Vec::new();
        for (number, item) in (1..).zip(items) {
            match item {
                Value::Object(members) => entries.push(Entry {
                    place: format!("{kind} {number}"),
                    members,
                    lines: BTreeMap::new(),
                }),
                _ => faults.push(format!("{kind} {number}: it is no object")),
            }
        }
        all.push((kind, entries));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<State, String> {
        let sources = Sources {
            folder: Path::new("/nowhere"),
            variable: &|name| (name == "WEB_SECRET").then(|| "s".repeat(32)),
        };
        parse(text, &sources).map_err(|faults| faults.join("\n"))
    }

    #[test]
    fn an_entry_names_its_secret_by_a_variable() {
        let state = read("[[client]]\nclient_id = \"web\"\nsecret_env = \"WEB_SECRET\"\n").unwrap();
        let client = &state.client.unwrap()[0];
        assert_eq!(client.secret.as_ref().unwrap().reveal(), "s".repeat(32));
        assert!(state.user.is_none());
    }

    #[test]
    fn every_fault_has_its_line_and_the_key_that_was_meant() {
        let text = "\
[[client]]
client_id = \"web\"
redirect_uri = [\"https://app.example/cb\"]
secret = \"in the clear\"
public = \"yes\"

[[user]]
email = \"a@example.com\"
emial = \"b@example.com\"
password_env = \"NO_SUCH\"

[[cleint]]
client_id = \"x\"
";
        let faults = read(text).unwrap_err();
        for part in [
            "line 3: unknown key redirect_uri of a client: did you mean redirect_uris?",
            "line 4: unknown key secret of a client: a secret does not stand in the file: use secret_file or secret_env",
            "line 5: public: invalid type",
            "line 9: unknown key emial of a user: did you mean email?",
            "line 10: password_env: the environment has no variable NO_SUCH",
            "line 12: unknown section cleint: did you mean [[client]]?",
        ] {
            assert!(faults.contains(part), "{part}\n{faults}");
        }
        assert_eq!(faults.lines().count(), 6, "{faults}");
        assert!(read("[[client]\n").unwrap_err().starts_with("line 1: "));
        assert!(read("client = 1").unwrap_err().contains("below [[client]]"));
    }

    #[test]
    fn json_does_too() {
        let state = read(r#"{"client": [{"client_id": "web"}], "user": []}"#).unwrap();
        assert_eq!((state.client.unwrap().len(), state.user.unwrap().len()), (1, 0));
        assert!(
            read(r#"{"client": [{"client_idd": "web"}]}"#)
                .unwrap_err()
                .contains("client 1: unknown key client_idd")
        );
        assert!(read("{").unwrap_err().starts_with("line 1"));
        // What is no list of records is not an empty one: pruning would remove everything.
        for text in [
            r#"{"client": {"client_id": "web"}}"#,
            r#"{"client": null}"#,
            r#"{"user": "x"}"#,
        ] {
            assert!(
                read(text)
                    .unwrap_err()
                    .contains("the section is an array of objects"),
                "{text}"
            );
        }
    }
}
