//! Files of one room do not import each other in a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::tokens::{Token, shipped_tokens};
use super::{is_test_file, sources};

/// Where a module is: `["oauth", "code"]` for `oauth/code.rs`.
type ModulePath = Vec<String>;

#[derive(Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    /// What a `use` brings in, public or not, by the name that it gets here.
    used: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Every path of more than one name, in a `use` or in code.
    paths: BTreeSet<Vec<String>>,
}

struct House(BTreeMap<ModulePath, Module>);

impl House {
    fn read() -> Self {
        let shipped = sources().into_iter().filter(|source| !is_test_file(&source.path));
        Self::of(shipped.map(|source| (source.path, source.text)))
    }

    fn of(files: impl Iterator<Item = (String, String)>) -> Self {
        let modules = files.map(|(file, text)| {
            let name = file.trim_end_matches(".rs").trim_end_matches("/mod");
            let path = if name == "lib" {
                Vec::new()
            } else {
                segments(name, "/")
            };
            (path, Module::parse(file, &shipped_tokens(&text)))
        });
        Self(modules.collect())
    }

    /// The module that defines what a path names, seen from the module that names it.
    fn resolve(&self, from: &[String], path: &[String], fuel: u8) -> Option<ModulePath> {
        let fuel = fuel.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut module = match first.as_str() {
            "crate" => Vec::new(),
            "self" => from.to_vec(),
            "super" => from[..from.len().checked_sub(1)?].to_vec(),
            _ => {
                rest = path;
                from.to_vec()
            }
        };
        let is_relative = rest.len() == path.len();
        while let Some((name, after)) = rest.split_first() {
            let child: ModulePath = module.iter().chain([name]).cloned().collect();
            if name == "super" {
                module.pop()?;
            } else if self.0.contains_key(&child) {
                module = child;
            } else {
                let at = self.0.get(&module)?;
                if at.items.contains(name) {
                    return Some(module);
                }
                if let Some(used) = at.used.get(name) {
                    let whole: Vec<String> = used.iter().chain(after).cloned().collect();
                    return self.resolve(&module, &whole, fuel);
                }
                let through_glob = at.globs.iter().find_map(|glob| {
                    let whole: Vec<String> = glob.iter().chain(rest).cloned().collect();
                    self.resolve(&module, &whole, fuel)
                        .filter(|found| *found != module)
                });
                let is_ours = !is_relative || rest.len() < path.len();
                return through_glob.or(is_ours.then_some(module));
            }
            rest = after;
        }
        Some(module)
    }

    /// For each room, which of its files imports which other. A parent and its child may import each other.
    fn imports_by_room(&self) -> BTreeMap<String, Imports> {
        let mut rooms: BTreeMap<String, Imports> = BTreeMap::new();
        for (from, module) in &self.0 {
            for path in &module.paths {
                let Some(to) = self.resolve(from, path, 20) else {
                    continue;
                };
                let is_one_room = from.first().is_some_and(|room| to.first() == Some(room));
                if is_one_room && !from.starts_with(&to) && !to.starts_with(from) {
                    let imports = rooms.entry(from[0].clone()).or_default();
                    let imported = imports.entry(module.file.clone()).or_default();
                    imported.insert(self.0[&to].file.clone());
                }
            }
        }
        rooms
    }
}

/// What each file of a room imports of the same room.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn segments(text: &str, separator: &str) -> Vec<String> {
    text.split(separator).map(ToOwned::to_owned).collect()
}

impl Module {
    fn parse(file: String, tokens: &[Token]) -> Self {
        let mut module = Self {
            file,
            ..Self::default()
        };
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let before = at.checked_sub(1).and_then(|before| tokens.get(before));
            let is_start = before.is_none_or(|before| !before.is("::") && !before.is("."));
            if token.is("use") {
                let end = at + tokens[at..].iter().position(|token| token.is(";")).unwrap_or(1);
                module.parse_use(&tokens[at + 1..end], &[]);
                at = end;
            } else if is_start && token.is_word() {
                let path = path_at(&tokens[at..]);
                at += path.len() * 2 - 2;
                if path.len() > 1 {
                    module.paths.insert(path);
                }
            }
            let kinds = [
                "fn", "struct", "enum", "trait", "type", "const", "static", "union",
            ];
            let declares = kinds.contains(&token.text.as_str()) || token.is("macro_rules");
            let name = tokens[at + 1..]
                .iter()
                .take(2)
                .find(|name| name.is_word() && !name.is("mut"));
            if let (true, Some(name)) = (declares, name) {
                module.items.insert(name.text.clone());
            }
            at += 1;
        }
        module
    }

    fn parse_use(&mut self, tree: &[Token], prefix: &[String]) {
        for branch in branches(tree) {
            let start = branch.iter().position(|token| !token.is("::")).unwrap_or(0);
            let branch = &branch[start..];
            let mut path = prefix.to_vec();
            let names = path_at(branch);
            let length = (names.len() * 2).saturating_sub(1);
            path.extend(names);
            match branch.get(length).map(|token| token.text.as_str()) {
                Some("::") if branch[length + 1].is("*") => {
                    self.paths.insert(path.clone());
                    self.globs.push(path);
                }
                Some("::") => self.parse_use(&branch[length + 2..branch.len() - 1], &path),
                alias => {
                    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                        path.pop();
                    }
                    let Some(last) = path.last() else { continue };
                    let name = if alias == Some("as") {
                        &branch[length + 1].text
                    } else {
                        last
                    };
                    self.used.insert(name.clone(), path.clone());
                    self.paths.insert(path);
                }
            }
        }
    }
}

/// The names at the start, as far as only `::` stands between them.
fn path_at(tokens: &[Token]) -> Vec<String> {
    let mut names = Vec::new();
    for pair in tokens.chunks(2) {
        if !pair[0].is_word() {
            break;
        }
        names.push(pair[0].text.clone());
        if !pair.get(1).is_some_and(|sign| sign.is("::")) {
            break;
        }
    }
    names
}

fn branches(tree: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0_i32;
    let parts = tree.split(|token| {
        depth += i32::from(token.is("{")) - i32::from(token.is("}"));
        depth == 0 && token.is(",")
    });
    parts.filter(|part| !part.is_empty()).collect()
}

/// The shortest way from a file back to itself.
fn shortest_circle(start: &str, imports: &Imports) -> Option<Vec<String>> {
    let mut ways = VecDeque::from([vec![start.to_owned()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for to in way
            .last()
            .and_then(|last| imports.get(last))
            .into_iter()
            .flatten()
        {
            let longer = [way.clone(), vec![to.clone()]].concat();
            if to == start {
                return Some(longer);
            }
            if seen.insert(to) {
                ways.push_back(longer);
            }
        }
    }
    None
}

/// Chains of files that end where they begin. Each file that is on a circle is in one of them at least.
fn circles(imports: &Imports) -> Vec<String> {
    let mut shown = BTreeSet::new();
    let mut found = Vec::new();
    for start in imports.keys() {
        if shown.contains(start) {
            continue;
        }
        if let Some(circle) = shortest_circle(start, imports) {
            found.push(circle.join(" → "));
            shown.extend(circle);
        }
    }
    found
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let rooms = House::read().imports_by_room();
    let found: Vec<String> = rooms.values().flat_map(circles).collect();
    assert!(found.is_empty(), "{} circles:\n{}", found.len(), found.join("\n"));
}

#[test]
fn the_check_finds_a_circle_behind_a_name_that_is_passed_on() {
    let files = [
        ("lib.rs", "mod room;"),
        (
            "room/mod.rs",
            "mod a; mod b; mod c; pub use c::{Passed as Renamed, d::*}; pub struct Shared;",
        ),
        (
            "room/a.rs",
            "use super::{Renamed, Shared}; const TEXT: &str = \"crate::room::b::B\";",
        ),
        ("room/b.rs", "pub fn b() { crate::room::a::call() } // self::c"),
        ("room/c.rs", "pub mod d; pub struct Passed; use super::b;"),
        (
            "room/c/d.rs",
            "pub struct Deep; use super::super::Shared; #[cfg(test)] use crate::room::a;",
        ),
    ];
    let house = House::of(
        files
            .map(|(file, text)| (file.to_owned(), text.to_owned()))
            .into_iter(),
    );
    let rooms = house.imports_by_room();
    let circle = "room/a.rs → room/c.rs → room/b.rs → room/a.rs";
    assert_eq!(rooms.values().flat_map(circles).collect::<Vec<_>>(), [circle]);
    let deep = ["crate", "room", "Deep"].map(ToOwned::to_owned);
    assert_eq!(house.resolve(&[], &deep, 9), Some(segments("room/c/d", "/")));
}
