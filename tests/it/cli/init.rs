//! `idsvc init`, and a data directory whose database is on a PostgreSQL server.

use std::fs;
use std::process::Output;

use super::{ADD_WEB, code};
use crate::harness::process::{Service, said};

const URL: &str = "postgres://idsvc:s3cret@db.example.com/idsvc";

/// Runs a command with `store.url`.
fn run_node(service: &Service, words: &[&str]) -> Output {
    let done = service
        .command(words)
        .env("IDSVC_STORE_URL", URL)
        .output()
        .unwrap();
    assert!(!said(&done).contains("s3cret"), "{}", said(&done));
    done
}

fn refused(done: &Output, reason: &str) {
    assert!(
        code(done) == Some(1) && said(done).contains(reason),
        "{}",
        said(done)
    );
}

#[test]
fn init_makes_the_data_directory_that_the_service_uses() {
    let service = Service::empty();
    let made = service.json(&["init", "--json"]);
    let key = service.data().join("master.key");
    assert_eq!(made["master_key"], key.to_str().unwrap());
    let saved = fs::read(&key).unwrap();
    let again = service.run(&["init"]);
    refused(&again, "master.key is there already");
    assert!(said(&again).contains("for another node, copy it"));
    let running = service.serve();
    refused(&service.run(&["init"]), "master.key is there already");
    assert_eq!(service.json(&["client", "list", "--json"]), serde_json::json!([]));
    drop(running);
    assert_eq!(fs::read(&key).unwrap(), saved);
}

#[test]
fn a_node_needs_the_key_of_the_others_and_no_database_file() {
    let service = Service::empty();
    let data = service.data();
    refused(
        &run_node(&service, &["client", "list"]),
        "run idsvc init on the first node",
    );
    assert!(!data.exists());
    assert_eq!(code(&run_node(&service, &["init"])), Some(0));
    assert!(data.join("master.key").exists() && !data.join("idsvc.redb").exists());
    refused(&run_node(&service, &["init"]), "is there already");
    if !cfg!(feature = "postgres") {
        for words in [
            &["serve"][..],
            &["migrate"],
            &["restore", "saved"],
            &["config", "check"],
        ] {
            refused(
                &run_node(&service, words),
                "this idsvc was built without postgres",
            );
        }
    }
    refused(
        &service.run(&["client", "list"]),
        "if the data is in PostgreSQL set store.url",
    );
    fs::remove_file(data.join("master.key")).unwrap();
    assert_eq!(code(&service.run(&ADD_WEB)), Some(0));
    let both = "idsvc.redb is there, and store.url is postgres://idsvc:…@db.example.com/idsvc";
    refused(&run_node(&service, &["client", "list"]), both);
}
