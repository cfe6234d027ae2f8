//! A file of declared state: TOML or JSON, its faults with their lines, its secrets read from where it says.

use std::collections::BTreeMap;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use toml::de::DeValue;

use super::output::CliError;
use super::provider::read_logo;
use super::value_parsers::{KeyForm, read_keys, read_secret};
use crate::admin::apply::{State, clients, providers, subject, users};
use crate::config::file::{BadSyntax, LineEnds, table_of};
use crate::config::reference::nearest;
use crate::federation::provider::ProviderFields;
use crate::jose::json;
use crate::oauth::ClientFields;
use crate::oauth::fields::Form;

/// A kind of record.
struct Kind {
    /// What its section is called.
    name: &'static str,
    /// Which keys an entry may have, and the form of their values.
    keys: [&'static [(&'static str, Form)]; 2],
    /// Of which keys an entry has at least one each, for without them it means no record.
    needed: &'static [&'static [&'static str]],
    /// Which keys name the record, the first that is there.
    names: &'static [&'static str],
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "provider",
        keys: [providers::KEYS, ProviderFields::FIELDS],
        needed: &[&["id"], &["issuer"]],
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

/// A state, and where the file says what.
pub struct Declared {
    /// The state.
    pub state: State,
    /// The place of each entry.
    pub places: Places,
}

/// The places of the entries, by what a refusal calls them.
#[derive(Default)]
pub struct Places(Vec<(String, String)>);

impl Places {
    /// The place of the entry that a line of a refusal is about; of twins, the second.
    pub fn of(&self, line: &str) -> Option<&str> {
        let longest = |line: &str, in_case: fn(&str) -> String| {
            let named = self
                .0
                .iter()
                .filter(|(subject, _)| line.starts_with(&in_case(subject)));
            named.max_by_key(|(subject, _)| subject.len())
        };
        // A user's name is told in lower case, however it was written.
        let found = longest(line, str::to_owned).or_else(|| longest(&line.to_lowercase(), str::to_lowercase));
        found.map(|(_, place)| place.as_str())
    }
}

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
pub fn parse(text: &str, sources: &Sources<'_>) -> Result<Declared, Vec<String>> {
    let mut faults = Vec::new();
    let mut places = Places::default();
    // A mark of the byte order may stand before JSON, too (RFC 8259 section 8.1).
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let sections = if text.trim_start().starts_with('{') {
        of_json(text, &mut faults)
    } else {
        of_toml(text, &mut faults)
    };
    let mut state = State::default();
    for (kind, mut entries) in sections {
        for entry in &mut entries {
            check_keys(kind, entry, &mut faults);
            read_sources(entry, sources, &mut faults);
            let mut names = kind
                .names
                .iter()
                .filter_map(|key| entry.members.get(*key)?.as_str());
            let name = names.next().unwrap_or_default();
            places.0.push((subject(kind.name, name), entry.place.clone()));
        }
        match kind.name {
            "provider" => state.provider = Some(typed(entries, &mut faults)),
            "client" => state.client = Some(typed(entries, &mut faults)),
            "user" => state.user = Some(typed(entries, &mut faults)),
            _ => {}
        }
    }
    if faults.is_empty() {
        Ok(Declared { state, places })
    } else {
        Err(faults)
    }
}

/// The entries as a type. Their keys and the forms of the values are known already, so what is left is a word that means
/// nothing.
fn typed<T: DeserializeOwned>(entries: Vec<Entry>, faults: &mut Vec<String>) -> Vec<T> {
    let mut all = Vec::new();
    for entry in entries {
        let before = faults.len();
        // One by one, so that the fault has its line.
        for (key, value) in &entry.members {
            let single = Map::from_iter([(key.clone(), value.clone())]);
            if let Err(error) = serde_json::from_value::<T>(Value::Object(single)) {
                let error = error.to_string().replace("unknown variant", "unknown value");
                faults.push(format!("{}: {key}: {error}", entry.at(key)));
            }
        }
        if faults.len() > before {
            continue;
        }
        match serde_json::from_value(Value::Object(entry.members)) {
            Ok(typed) => all.push(typed),
            Err(error) => faults.push(format!("{}: {error}", entry.place)),
        }
    }
    all
}

fn check_keys(kind: &Kind, entry: &mut Entry, faults: &mut Vec<String>) {
    let keys = kind.keys.concat();
    let known: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
    let name = kind.name;
    let mut unfit = Vec::new();
    for (key, value) in &entry.members {
        match keys.iter().find(|(known, _)| known == key) {
            Some((_, form)) if form.fits(value) => continue,
            Some((_, form)) => faults.push(format!("{}: {key} must be {}", entry.at(key), form.name())),
            None => faults.push(format!(
                "{}: unknown key {key} of a {name}: {}",
                entry.at(key),
                advice(key, name, &known)
            )),
        }
        unfit.push(key.clone());
    }
    for needed in kind.needed {
        // Whoever misspelt the key is told so already.
        let is_meant = |key: &String| {
            let meant = nearest(key, known.iter().copied());
            needed.contains(&key.as_str()) || meant.is_some_and(|meant| needed.contains(&meant))
        };
        if !entry.members.keys().any(is_meant) {
            faults.push(format!("{}: a {name} needs {}", entry.place, needed.join(" or ")));
        }
    }
    entry.members.retain(|key, _| !unfit.contains(key));
}

/// What to do about a key that does not exist.
fn advice(key: &str, kind: &str, known: &[&str]) -> String {
    match (key, nearest(key, known.iter().copied())) {
        ("secret" | "client_secret" | "password", _) => {
            format!("a {key} does not stand in the file: use {key}_file or {key}_env")
        }
        (_, Some(meant)) => format!("did you mean {meant}?"),
        (_, None) => format!("a {kind} has {}", known.join(", ")),
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
        ("public_key_file", "keys"),
        ("jwks_file", "keys"),
    ] {
        let at = entry.at(named);
        let Some(Value::String(source)) = entry.members.remove(named) else {
            continue;
        };
        let path = sources.folder.join(&source);
        let read = match named {
            _ if named.ends_with("_env") => (sources.variable)(&source)
                .filter(|text| !text.is_empty())
                .map(Value::from)
                .ok_or_else(|| CliError::refused(format!("the environment has no variable {source}"))),
            "logo_file" => read_logo(&path).map(Value::from),
            "jwks_file" => read_keys(&path, KeyForm::JwkSet).map(Value::from),
            "public_key_file" => read_keys(&path, KeyForm::Pem).map(Value::from),
            _ => read_secret(&path).map(|text| Value::from(text.reveal())),
        };
        match read {
            Ok(value) => {
                if entry.members.insert(target.to_owned(), value).is_some() {
                    faults.push(format!("{at}: {target} beside {named}: give one of them"));
                }
            }
            Err(fault) => faults.push(format!("{at}: {named}: {fault}")),
        }
    }
}

type Sections = Vec<(&'static Kind, Vec<Entry>)>;

fn kind_of(name: &str) -> Result<&'static Kind, String> {
    KINDS
        .iter()
        .find(|kind| kind.name == name)
        .ok_or_else(|| unknown_kind(name))
}

fn unknown_kind(name: &str) -> String {
    let known = KINDS.map(|kind| kind.name);
    match nearest(name, known.into_iter()) {
        Some(meant) => format!("unknown section {name}: did you mean [[{meant}]]?"),
        None => format!(
            "unknown section {name}: there are {}",
            known.map(|kind| format!("[[{kind}]]")).join(", ")
        ),
    }
}

fn of_toml(text: &str, faults: &mut Vec<String>) -> Sections {
    let ends = LineEnds::of(text);
    let line_of = |offset: usize| ends.line_of(offset);
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
        let kind = match kind_of(name.get_ref()) {
            Ok(kind) => kind,
            Err(fault) => {
                faults.push(format!("line {line}: {fault}"));
                continue;
            }
        };
        let DeValue::Array(items) = value.get_ref() else {
            faults.push(format!("line {line}: a {0} is written below [[{0}]]", kind.name));
            continue;
        };
        let mut entries = Vec::new();
        for item in items {
            let line = line_of(item.span().start);
            let DeValue::Table(members) = item.get_ref() else {
                faults.push(format!("line {line}: a {} is a table", kind.name));
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
    let sections = match json::object(text.as_bytes()) {
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
    for (name, items) in sections {
        let kind = match kind_of(&name) {
            Ok(kind) => kind,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        let Value::Array(items) = items else {
            faults.push(format!("{name}: the section is an array of objects"));
            continue;
        };
        let mut entries = Vec::new();
        for (number, item) in (1..).zip(items) {
            match item {
                Value::Object(mut members) => {
                    members.retain(|_, value| !value.is_null());
                    entries.push(Entry {
                        place: format!("{name} {number}"),
                        members,
                        lines: BTreeMap::new(),
                    });
                }
                _ => faults.push(format!("{name} {number}: it is no object")),
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
        parse(text, &sources)
            .map(|declared| declared.state)
            .map_err(|faults| faults.join("\n"))
    }

    #[test]
    fn an_entry_names_its_secret_by_a_variable() {
        let state = read("[[client]]\nclient_id = \"web\"\nsecret_env = \"WEB_SECRET\"\n").unwrap();
        let client = &state.client.unwrap()[0];
        assert_eq!(client.secret.as_ref().unwrap().reveal(), "s".repeat(32));
        assert!(state.user.is_none());
    }

    /// Reading it once for every key would take minutes here.
    #[test]
    fn a_file_of_many_users_is_read_in_one_pass() {
        const USERS: usize = 30_000;
        let entry = "[[user]]\naccount_id = \"";
        let users = (0..USERS)
            .map(|user| format!("{entry}u{user}@example.com\"\npassword_hash = \"{user:0>100}\"\n"));
        let text = users.collect::<Vec<_>>().concat();
        let unknown = format!("{text}[[user]]\ntypo = 1\n");
        let refused = read(&unknown).unwrap_err();
        assert!(refused.contains(&format!("line {}", USERS * 3 + 2)), "{refused}");
        assert_eq!(read(&text).unwrap().user.unwrap().len(), USERS);
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
            "line 5: public must be true or false",
            "line 9: unknown key emial of a user: did you mean email?",
            "line 10: password_env: the environment has no variable NO_SUCH",
            "line 12: unknown section cleint: did you mean [[client]]?",
        ] {
            assert!(faults.contains(part), "{part}\n{faults}");
        }
        assert_eq!(faults.lines().count(), 6, "{faults}");
        assert!(read("[[client]\n").unwrap_err().starts_with("line 1 column "));
        assert_eq!(read(&"no TOML\n".repeat(100)).unwrap_err().lines().count(), 1);
        assert!(read("client = 1").unwrap_err().contains("below [[client]]"));
    }

    #[test]
    fn a_value_of_another_form_is_told_in_the_words_of_the_file() {
        let text = "\
[[client]]
client_id = \"web\"
redirect_uris = \"https://app.example/cb\"
client_uuid = \"7\"
pkce = \"optinal\"
grant_types = [\"code\"]
scope_texts = [\"x\"]
keys = [\"x\"]

[[provider]]
id = 7
issuer = \"https://login.corp.example\"
max_age = -1
algs = [\"HS256\"]

[[user]]
email_verified = \"yes\"
";
        let faults = read(text).unwrap_err();
        for part in [
            "line 3: redirect_uris must be a list of texts, as in",
            "line 4: client_uuid must be a uuid, as in",
            "line 5: pkce: unknown value `optinal`, expected",
            "line 6: grant_types: unknown value `code`, expected one of",
            "line 7: scope_texts must be a table, as in",
            "line 8: keys must be a list of tables",
            "line 11: id must be a text",
            "line 13: max_age must be a whole number",
            "line 14: algs: ",
            "line 16: a user needs email or account_id",
            "line 17: email_verified must be true or false",
        ] {
            assert!(faults.contains(part), "{part}\n{faults}");
        }
        assert_eq!(faults.lines().count(), 11, "{faults}");
        for word in ["invalid type", "variant", "struct", "sequence", "u64", "Declared"] {
            assert!(!faults.contains(word), "{word}\n{faults}");
        }
    }

    #[test]
    fn an_entry_without_a_name_has_its_place_and_every_other_has_one_for_later() {
        let text = "[[provider]]\nname = \"Corp\"\n\n[[client]]\nname = \"x\"\n\n[[user]]\n";
        assert_eq!(
            read(text).unwrap_err(),
            "line 4: a client needs client_id\n\
             line 1: a provider needs id\n\
             line 1: a provider needs issuer\n\
             line 7: a user needs email or account_id"
        );
        let sources = Sources {
            folder: Path::new("/nowhere"),
            variable: &|_| None,
        };
        let text = "[[client]]\nclient_id = \"a\"\n[[client]]\nclient_id = \"a:b\"\n[[user]]\nemail = \"A@example.com\"\n\
                    [[client]]\nclient_id = \"a\"\n[[client]]\nclient_id = \"A\"\n";
        let places = parse(text, &sources).unwrap().places;
        for (line, place) in [
            ("client a: it is declared twice", Some("line 7")),
            ("client a:b: there is no provider x", Some("line 3")),
            ("user a@example.com: it is declared twice", Some("line 5")),
            ("client A: it is disabled", Some("line 9")),
            ("provider corp: client a names it", None),
            ("the store is full", None),
        ] {
            assert_eq!(places.of(line), place, "{line}");
        }
    }

    #[test]
    fn a_number_that_json_or_toml_cannot_hold_is_refused_where_it_stands() {
        for (number, message) in [
            ("9223372036854775808", "is not within"),
            ("-9223372036854775809", "is not within"),
            ("0xFFFFFFFFFFFFFFFF", "is not within"),
            ("inf", "is no number"),
            ("nan", "is no number"),
        ] {
            let user =
                format!("[[user]]\nemail = \"a@example.com\"\nclaims = {{ badges = [1, {number}] }}\n");
            let fault = read(&user).unwrap_err();
            assert_eq!(fault.lines().count(), 1, "{fault}");
            assert!(fault.starts_with("line 3 column 25: "), "{fault}");
            assert!(fault.contains(number) && fault.contains(message), "{fault}");
        }
        let most = "[[user]]\nemail = \"a@example.com\"\nclaims = { badge = 9223372036854775807 }\n";
        let user = &read(most).unwrap().user.unwrap()[0];
        assert_eq!(user.line.claims["badge"], i64::MAX);
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        for text in [
            "\u{feff}{\"client\": [{\"client_id\": \"web\"}]}",
            "\u{feff}\n {\"client\": [{\"client_id\": \"web\"}]}",
            "\u{feff}[[client]]\nclient_id = \"web\"\n",
        ] {
            assert_eq!(read(text).unwrap().client.unwrap()[0].client_id, "web", "{text}");
        }
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
        let twice = read(r#"{"client": [{"client_id": "web"}], "client": []}"#).unwrap_err();
        assert!(twice.starts_with("line 1 column"), "{twice}");
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
