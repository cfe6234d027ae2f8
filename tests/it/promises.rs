//! `packaging/SECURITY.md` says which test keeps which promise: every one of them has to be there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const PROMISES: &str = include_str!("../../packaging/SECURITY.md");

/// The names of all tests below a folder.
fn tests_below(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("node_modules") {
            tests_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let marked = text.split("test]\n").skip(1).chain(text.split("test(").skip(1));
            names.extend(marked.filter_map(|rest| {
                let (before, name) = rest.split_once("fn ")?;
                let name = name.split(['(', '<']).next()?;
                (before.lines().count() <= 4).then(|| name.to_owned())
            }));
        }
    }
}

/// The texts between backquotes in the last column of each row of the promises.
fn rows() -> Vec<Vec<&'static str>> {
    let (_, promises) = PROMISES.split_once("\n## Promises\n").unwrap();
    let rows = promises
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| promise |"));
    rows.map(|row| row.trim_end_matches(" |").rsplit(" | ").next().unwrap())
        .map(|kept_by| kept_by.split('`').skip(1).step_by(2).collect())
        .collect()
}

#[test]
fn every_promise_is_kept_by_tests_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = BTreeSet::new();
    tests_below(&root.join("src"), &mut known);
    tests_below(&root.join("tests"), &mut known);
    assert!(known.len() > 500 && known.contains("every_promise_is_kept_by_tests_that_are_there"));
    let rows = rows();
    assert!(rows.len() > 30);
    for names in rows {
        assert!(!names.is_empty());
        let is_name = |name: &&str| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        for name in names.into_iter().filter(is_name) {
            assert!(known.contains(name), "there is no test {name}");
        }
    }
}
