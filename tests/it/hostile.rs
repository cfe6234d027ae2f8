//! What strangers may send: every seed of the fuzzer, put to the properties that the fuzzer holds it to.

#[path = "../fuzz/properties/mod.rs"]
mod properties;

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use properties::TARGETS;

fn seeds() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/seeds");
    let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let seeds = folders.flat_map(|folder| {
        let target = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.map(|file| (target.clone(), file)).collect::<Vec<_>>()
    });
    seeds.collect()
}

#[test]
fn every_target_has_seeds_and_every_seed_a_target() {
    let seeds = seeds();
    let named: BTreeSet<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    let seeded: BTreeSet<&str> = seeds.iter().map(|(target, _)| target.as_str()).collect();
    assert_eq!(named.len(), TARGETS.len());
    assert_eq!(seeded, named);
    for name in named {
        let count = seeds.iter().filter(|(target, _)| target == name).count();
        assert!((5..=100).contains(&count), "{name} has {count} seeds");
    }
}

/// A property that no seed reaches would hold for any behaviour of the service.
#[test]
fn of_each_target_some_seeds_are_accepted_and_some_are_not() {
    let seeds = seeds();
    for (name, property) in TARGETS {
        let own = seeds.iter().filter(|(target, _)| target == name);
        let verdicts: Vec<_> = own.map(|(_, file)| property(&fs::read(file).unwrap())).collect();
        let accepted = verdicts.iter().filter(|is_accepted| **is_accepted).count();
        assert!(
            (1..verdicts.len()).contains(&accepted),
            "{name}: {accepted} of {} are accepted",
            verdicts.len()
        );
    }
}

#[test]
fn no_seed_of_any_target_breaks_a_property() {
    let mut broken = Vec::new();
    for (_, file) in seeds() {
        let bytes = fs::read(&file).unwrap();
        for (name, property) in TARGETS {
            if catch_unwind(|| property(&bytes)).is_err() {
                broken.push(format!("{name}: {}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
