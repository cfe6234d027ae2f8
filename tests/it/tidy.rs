//! The house rules that a compiler does not check: who may import whom, and what has only one home.

mod circles;
mod signatures;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A word of code, and the only places below `src/` where it may stand.
const HOMES: &[(&str, &[&str])] = &[
    ("SystemTime::now", &["clock.rs"]),
    ("OffsetDateTime::now", &["clock.rs"]),
    ("redb::", &["store/engine/"]),
    ("maud::", &["pages/", "themes/"]),
    ("minijinja::", &["pages/", "themes/"]),
    ("clap::", &["cli/", "guide/reference/"]),
    ("tokio_rustls", &["mail/", "net/", "store/engine/postgres/"]),
    ("rustls::Server", &["net/"]),
    ("hyper::", &["net/", "http/"]),
    ("argon2::", &["password/"]),
    ("bcrypt::", &["password/"]),
    ("scrypt::", &["age/", "password/"]),
    ("x25519_dalek::", &["age/"]),
    ("http::StatusCode", &["http/", "net/"]),
    (
        "tokio::",
        &[
            "app.rs",
            "net/",
            "http/",
            "control/",
            "cli/",
            "server/",
            "observe/",
            "store/",
            "flow/",
            "limit/charges.rs",
            "federation/",
            "mail/",
        ],
    ),
    ("UnixListener", &["control/"]),
    ("unsafe_code", &["net/nss.rs"]),
    ("listenfd::", &["net/"]),
    ("prometheus_client::", &["observe/metrics.rs"]),
    ("miniz_oxide::", &["guide/mod.rs"]),
];

/// The most lines of a file that holds code.
const LONGEST_FILE: usize = 510;

/// Files that are one list, which may be longer.
const LISTS: &[&str] = &["observe/audit.rs"];

struct Source {
    path: String,
    text: String,
    code: String,
    lines: usize,
}

/// Every source file, without comments and without its tests.
fn sources() -> Vec<Source> {
    fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                into.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    collect(&root, &mut paths);
    let sources = paths.into_iter().map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        let lines = text.lines().count();
        let tests = ["mod tests {", "pub(crate) mod tests {", "pub(super) mod tests {"];
        let shipped = tests.iter().fold(text.as_str(), |code, tests| {
            code.split(&format!("#[cfg(test)]\n{tests}")).next().unwrap()
        });
        let code = shipped
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect::<Vec<_>>()
            .join("\n");
        Source {
            path: path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(),
            code,
            lines,
            text,
        }
    });
    sources.collect()
}

/// Several programs call the verbs of administration, and only the command line has flags and commands.
#[test]
fn administration_names_no_flag_and_no_command() {
    for source in sources() {
        if room(&source.path) == "admin" && !is_test_file(&source.path) {
            let named = [" --", "\"--", "idsvc "].map(|word| source.code.contains(word));
            assert_eq!(named, [false; 3], "{}", source.path);
        }
    }
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("tests.rs") || path.contains("/tests/")
}

fn room(path: &str) -> &str {
    path.split('/').next().unwrap().trim_end_matches(".rs")
}

/// What a file imports of ours: the name behind each `crate::`, one by one inside braces too.
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let word = |text: &str| {
            text.chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect::<String>()
        };
        if let Some(group) = rest.strip_prefix('{') {
            let mut depth = 0_i32;
            let mut item = String::new();
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => {
                        found.insert(word(item.trim()));
                        item.clear();
                    }
                    _ => item.push(c),
                }
            }
            found.insert(word(item.trim()));
        } else {
            found.insert(word(rest));
        }
    }
    found.remove("");
    found
}

/// The rooms of the house, folders or files below `src/`, and what of ours each may import: the table in `lib.rs`.
fn rooms() -> BTreeMap<String, BTreeSet<String>> {
    let house = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let rows = house.lines().filter_map(|line| line.strip_prefix("//! | [`"));
    let rooms = rows.map(|row| {
        let mut cells = row.trim_end_matches(" |").split(" | ");
        let room = cells.next().unwrap().trim_end_matches("`]");
        let allowed = cells
            .nth(1)
            .unwrap()
            .split(", ")
            .filter(|name| *name != "nothing");
        (room.to_owned(), allowed.map(ToOwned::to_owned).collect())
    });
    rooms.collect()
}

#[test]
fn every_room_imports_what_the_table_allows_and_all_of_it() {
    let mut unused = rooms();
    let allowed = unused.clone();
    let mut faults = Vec::new();
    for source in sources() {
        let room = room(&source.path);
        if is_test_file(&source.path) || ["lib", "main"].contains(&room) {
            continue;
        }
        let Some(allowed) = allowed.get(room) else {
            faults.push(format!("{}: `{room}` is not in the table", source.path));
            continue;
        };
        for import in imports(&source.code) {
            unused.get_mut(room).unwrap().remove(&import);
            if import != room && !allowed.contains(&import) {
                faults.push(format!("{}: `{room}` may not import `{import}`", source.path));
            }
        }
    }
    for (room, unused) in unused.iter().filter(|(_, unused)| !unused.is_empty()) {
        faults.push(format!("`{room}` may import {unused:?} and does not"));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What a room can reach through the imports of others.
fn reached<'a>(room: &'a str, rooms: &'a BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next = vec![room];
    while let Some(room) = next.pop() {
        for import in rooms.get(room).into_iter().flatten() {
            if found.insert(import.as_str()) {
                next.push(import);
            }
        }
    }
    found
}

#[test]
fn no_room_imports_itself_by_way_of_others() {
    let rooms = rooms();
    let circular: Vec<_> = rooms
        .keys()
        .filter(|room| reached(room, &rooms).contains(room.as_str()))
        .collect();
    assert!(circular.is_empty(), "{circular:?}");
}

#[test]
fn what_has_one_home_stays_there() {
    let mut faults = Vec::new();
    for source in sources() {
        if is_test_file(&source.path) {
            continue;
        }
        for (word, homes) in HOMES {
            let is_home = homes.iter().any(|home| source.path.starts_with(home));
            let stands_there = source.code.match_indices(word).any(|(at, _)| {
                !source.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
            });
            if !is_home && stands_there {
                faults.push(format!("{}: `{word}` belongs in {homes:?}", source.path));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_file_holds_more_than_one_idea_can_fill() {
    let mut faults = Vec::new();
    for Source { path, lines, .. } in sources() {
        let is_list = LISTS.contains(&path.as_str());
        if lines > LONGEST_FILE && !is_list {
            faults.push(format!("{path} has {lines} lines, and is not named as a list"));
        } else if lines <= LONGEST_FILE && is_list {
            faults.push(format!("{path} has {lines} lines: take it off the lists"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn no_two_tables_share_a_number_or_a_name() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/tables.rs")).unwrap();
    let named: Vec<(&str, &str)> = text
        .match_indices("Table::new(")
        .map(|(at, _)| {
            let inside = text[at + "Table::new(".len()..].split(')').next().unwrap();
            inside.split_once(", ").unwrap()
        })
        .collect();
    assert!(named.len() > 10);
    let numbers: BTreeSet<_> = named.iter().map(|(number, _)| number).collect();
    let names: BTreeSet<_> = named.iter().map(|(_, name)| name).collect();
    assert_eq!((numbers.len(), names.len()), (named.len(), named.len()));
    assert!(!numbers.contains(&"0"), "number 0 is the schema's own");
    let listed = idsvc::store::tables::all().count();
    assert_eq!(listed, named.len() + 1, "every table and the schema");
    for declared in text.split("pub const ").skip(1) {
        let declared = declared.split(';').next().unwrap();
        let is_by_uuid = declared.contains(": Table<(Uuid, ");
        assert_eq!(
            is_by_uuid,
            declared.contains(".grouped_by_first(16)"),
            "{declared}"
        );
    }
}

#[test]
fn the_checks_can_fail() {
    assert_eq!(
        imports("use crate::{oauth::{a, b}, store};\nlet x = crate::flow::y;"),
        BTreeSet::from(["flow".to_owned(), "oauth".to_owned(), "store".to_owned()])
    );
    let rooms = rooms();
    assert_eq!(
        rooms["seal"],
        BTreeSet::from(["hex", "random"].map(ToOwned::to_owned))
    );
    assert!(rooms["clock"].is_empty());
    assert!(!rooms.values().any(|allowed| allowed.contains("cli")));
}
