//! `idsvc api …`, with and without a running service, and in declared state.

use std::fs;

use serde_json::{Value, json};

use super::{ADD_WEB, code, said};
use crate::harness::process::{Service, shown};

const NOTES: &str = "https://api.example/notes";

fn service() -> Service {
    let service = Service::new();
    assert_eq!(code(&service.run(&ADD_WEB)), Some(0));
    service
}

/// The document of a command, without what differs from run to run.
fn document(service: &Service, words: &[&str]) -> Value {
    let mut document = service.json(&[words, &["--json"]].concat());
    let forget = |record: &mut Value| {
        for name in ["created_at", "updated_at", "uuid"] {
            assert!(!record[name].take().is_null(), "{name}");
        }
    };
    match &mut document {
        Value::Array(records) => records.iter_mut().for_each(forget),
        record if record.get("uuid").is_some() => forget(record),
        _ => {}
    }
    document
}

const ADD_NOTES: [&str; 17] = [
    "api",
    "add",
    "notes",
    "--identifier",
    NOTES,
    "--name",
    "Notebook",
    "--scope",
    "notes.read=Read your notes",
    "--scope",
    "notes.write",
    "--access-token-lifetime",
    "15m",
    "--access-token-typ",
    "JWT",
    "--introspection-client",
    "web",
];

fn an_apis_life(service: &Service) -> Vec<Value> {
    let added = document(service, &ADD_NOTES);
    let shown = document(service, &["api", "show", "notes"]);
    let update = [
        "api",
        "update",
        "notes",
        "--open",
        "--name",
        "",
        "--access-token-lifetime",
        "",
        "--access-token-typ",
        "",
    ];
    let changed = document(service, &update);
    let listed = document(service, &["api", "list"]);
    let removed = document(service, &["api", "remove", "notes", "--yes"]);
    let left = document(service, &["api", "list"]);
    vec![added, shown, changed, listed, removed, left]
}

#[test]
fn an_api_is_registered_changed_and_removed_the_same_with_a_service_and_without_one() {
    let offline = an_apis_life(&service());
    let online = service();
    let running = online.serve();
    assert_eq!(an_apis_life(&online), offline);
    drop(running);
    let record = |changes: Value| {
        let mut record = json!({
            "id": "notes", "identifier": NOTES, "name": "Notebook", "scope": "notes.read notes.write",
            "scope_texts": {"notes.read": "Read your notes"}, "open": false, "access_token_lifetime": 900,
            "access_token_alg": null, "access_token_typ": "JWT", "introspection_clients": ["web"], "roles": [], "role_groups": {},
            "uuid": null, "created_at": null, "updated_at": null,
        });
        for (name, value) in changes.as_object().unwrap() {
            record[name] = value.clone();
        }
        record
    };
    let open = json!({"open": true, "name": null, "access_token_lifetime": null, "access_token_typ": null});
    let mut changed = record(open.clone());
    changed["changes"] = json!([]);
    assert_eq!(
        offline,
        [
            record(json!({})),
            record(json!({})),
            changed,
            json!([record(open)]),
            json!({"id": "notes", "removed": true}),
            json!([]),
        ]
    );
}

#[test]
fn an_api_that_would_be_ambiguous_is_refused_with_what_to_do() {
    let service = service();
    document(&service, &ADD_NOTES);
    let issuer = service.issuer();
    for (words, problem) in [
        (
            &["add", "other", "--identifier", "https://api.example/notes"][..],
            "api notes has this identifier already",
        ),
        (
            &[
                "add",
                "other",
                "--identifier",
                "https://o.example",
                "--scope",
                "notes.read",
            ],
            "scope notes.read belongs to api notes",
        ),
        (
            &[
                "add",
                "other",
                "--identifier",
                "https://o.example",
                "--scope",
                "openid",
            ],
            "cannot belong to an API",
        ),
        (
            &["add", "other", "--identifier", "https://o.example/#x"],
            "without a fragment",
        ),
        (&["add", "other", "--identifier", "notes"], "is an absolute URI"),
        (&["add", "other", "--identifier", &issuer], "this is the issuer"),
        (
            &["add", "Other", "--identifier", "https://o.example"],
            "lower-case letters",
        ),
        (
            &["add", "notes", "--identifier", "https://o.example"],
            "there is an API notes already",
        ),
        (&["show", "other"], "idsvc api list shows all"),
        (
            &["update", "notes", "--access-token-lifetime", "30d"],
            "may last 604800 s at most",
        ),
        (
            &["update", "notes", "--introspection-client", "nobody"],
            "there is no client nobody",
        ),
    ] {
        let refused = service.run(&[&["api"], words].concat());
        assert_eq!(code(&refused), Some(1), "{words:?}");
        assert!(said(&refused).contains(problem), "{words:?}: {}", said(&refused));
    }
    let unnamed = service.run(&["api", "update", "notes"]);
    assert_eq!(code(&unnamed), Some(2));
}

/// A client may get the scope values of its APIs, so its default scope may have these values too.
#[test]
fn a_client_names_apis_and_an_api_that_is_named_stays() {
    let service = service();
    document(&service, &ADD_NOTES);
    let unknown = service.run(&["client", "update", "web", "--api", "mail"]);
    assert_eq!(code(&unknown), Some(1));
    assert!(
        said(&unknown).contains("idsvc api list shows all"),
        "{}",
        said(&unknown)
    );
    let default = ["client", "update", "web", "--default-scope", "notes.read"];
    assert_eq!(code(&service.run(&default)), Some(1));
    let named = service.run(&[&default[..], &["--api", "notes"]].concat());
    assert_eq!(code(&named), Some(0), "{}", said(&named));
    let renamed = service.json(&["client", "update", "web", "--name", "Acme", "--json"]);
    assert_eq!(renamed["apis"], json!(["notes"]));
    assert_eq!(renamed["default_scope"], "notes.read", "another change keeps it");
    let kept = service.run(&["api", "remove", "notes", "--yes"]);
    assert_eq!(code(&kept), Some(1));
    assert!(
        said(&kept).contains("clients may name api notes: web"),
        "{}",
        said(&kept)
    );
    let unnamed = [
        "client",
        "update",
        "web",
        "--api",
        "",
        "--default-scope",
        "openid",
    ];
    assert_eq!(code(&service.run(&unnamed)), Some(0));
    assert_eq!(code(&service.run(&["api", "remove", "notes", "--yes"])), Some(0));
}

#[test]
fn an_empty_value_removes_an_algorithm() {
    let service = service();
    let update = |alg: &str| {
        let flags = ["--id-token-alg", alg, "--access-token-alg", alg, "--json"];
        let client = service.json(&[&["client", "update", "web"], &flags[..]].concat());
        [
            client["id_token_signed_response_alg"].clone(),
            client["access_token_alg"].clone(),
        ]
    };
    assert_eq!(update("es256"), ["ES256", "ES256"]);
    assert_eq!(update(""), [Value::Null, Value::Null]);
}

/// The scope of an API may lose a value that a client names. The client keeps it, and a file with both is applied.
#[test]
fn a_limit_that_names_a_lost_scope_value_stays_and_is_exported_and_applied() {
    let service = service();
    service.json(&[
        "api",
        "add",
        "notes",
        "--identifier",
        NOTES,
        "--scope",
        "notes.read",
        "--scope",
        "notes.write",
        "--json",
    ]);
    let robot =
        "client add robot --grant client_credentials --api notes --allow-secret-credentials --max-scope";
    let robot: Vec<_> = robot.split(' ').chain(["notes.read", "--json"]).collect();
    service.json(&robot);
    service.json(&["api", "update", "notes", "--scope", "notes.write", "--json"]);
    let file = service.folder.path().join("state.toml");
    fs::write(&file, shown(&service.run(&["export"]))).unwrap();
    let applied = service.run(&["apply", "-f", file.to_str().unwrap()]);
    assert_eq!(code(&applied), Some(0), "{}", said(&applied));
    let unknown = [
        "client",
        "update",
        "robot",
        "--allow-secret-credentials",
        "--max-scope",
        "notes.raed",
    ];
    assert_eq!(code(&service.run(&unknown)), Some(1));
}

#[test]
fn a_scope_value_of_an_api_that_the_client_may_not_name_brings_a_hint() {
    let service = service();
    document(&service, &ADD_NOTES);
    let hint = "The scope notes.read belongs to API notes: --add-api notes lets";
    let update = [
        "client",
        "update",
        "web",
        "--scope",
        "openid",
        "--scope",
        "notes.read",
    ];
    let updated = service.run(&update);
    assert!(said(&updated).contains(hint), "{}", said(&updated));
    let updated = service.run(&[&update[..], &["--api", "notes"]].concat());
    assert!(!said(&updated).contains(hint), "{}", said(&updated));
}

/// A new client of the same name must not introspect the tokens of the API.
#[test]
fn a_client_that_is_removed_leaves_the_apis() {
    let service = service();
    document(&service, &ADD_NOTES);
    service.json(&["client", "remove", "web", "--yes", "--json"]);
    let left = document(&service, &["api", "show", "notes"]);
    assert_eq!(left["introspection_clients"], json!([]));
}

const STATE: &str = r#"
[[api]]
id = "notes"
identifier = "https://api.example/notes"
scope = ["notes.read"]
scope_texts = { "notes.read" = "Read your notes" }
access_token_lifetime = 900
introspection_clients = ["notes-server"]

[[client]]
client_id = "notes-server"
grant_types = []

[[client]]
client_id = "phone"
public = true
redirect_uris = ["com.example.app:/cb"]
apis = ["notes"]
"#;

#[test]
fn a_declared_api_is_applied_exported_and_pruned() {
    let service = Service::new();
    let file = service.folder.path().join("state.toml");
    let path = file.to_str().unwrap();
    fs::write(&file, STATE).unwrap();
    let applied = service.run(&["apply", "-f", path]);
    assert_eq!(code(&applied), Some(0), "{}", said(&applied));
    let exported = shown(&service.run(&["export"]));
    assert!(exported.contains("access_token_lifetime = 900"), "{exported}");
    fs::write(&file, &exported).unwrap();
    let again = service.run(&["apply", "-f", path, "--prune", "--yes"]);
    assert!(
        shown(&again).contains("0 added, 0 changed, 0 removed"),
        "{}",
        shown(&again)
    );
    let without = |what: &str| {
        let sections: Vec<_> = STATE
            .split("\n\n")
            .filter(|section| !section.contains(what))
            .collect();
        fs::write(&file, sections.join("\n\n")).unwrap();
        service.run(&["apply", "-f", path, "--prune", "--yes"])
    };
    let orphaned = without("client_id = \"notes-server\"");
    assert_eq!(code(&orphaned), Some(1));
    assert!(
        said(&orphaned).contains("there is no client notes-server"),
        "{}",
        said(&orphaned)
    );
    fs::write(
        &file,
        STATE.replace("https://api.example/notes", "https://api.example/other"),
    )
    .unwrap();
    let moved = service.run(&["apply", "-f", path]);
    assert!(
        said(&moved).contains("which cannot be changed"),
        "{}",
        said(&moved)
    );
    let pruned = STATE.replace("apis = [\"notes\"]\n", "");
    let pruned = pruned.replace(
        "id = \"notes\"\nidentifier = \"https://api.example/notes\"",
        "id = \"mail\"\nidentifier = \"https://api.example/mail\"",
    );
    fs::write(&file, pruned.replace("notes.read", "mail.read")).unwrap();
    let replaced = service.run(&["apply", "-f", path, "--prune", "--yes"]);
    assert_eq!(code(&replaced), Some(0), "{}", said(&replaced));
    let ids = service.json(&["api", "list", "--json"]);
    assert_eq!(ids[0]["id"], "mail");
    assert!(ids.get(1).is_none(), "{ids}");
}

#[test]
fn an_api_without_words_for_people_is_an_advice() {
    let service = service();
    let add = [
        "api",
        "add",
        "notes",
        "--identifier",
        NOTES,
        "--scope",
        "notes.read",
        "--scope",
        "notes.write=Write",
    ];
    let advice = "idsvc api update notes --name NAME --add-scope notes.read=TEXT";
    let what = format!("people read {NOTES}, notes.read on the consent page");
    let added = service.run(&add);
    assert!(
        said(&added).contains(advice) && said(&added).contains(&what),
        "{}",
        said(&added)
    );
    let doctor = || shown(&service.run(&["doctor", "--backup-interval", "off"]));
    let examined = doctor();
    assert!(
        examined.contains(&format!("advice  api notes: {what}")) && examined.contains(advice),
        "{examined}"
    );
    let named = service.run(&["api", "update", "notes", "--name", "Notebook"]);
    assert!(
        said(&named).contains("idsvc api update notes --add-scope notes.read=TEXT"),
        "{}",
        said(&named)
    );
    assert!(!said(&named).contains("--name"), "{}", said(&named));
    let described = service.run(&[
        "scope",
        "add",
        "notes.read",
        "--claim",
        "nickname",
        "--text",
        "Read",
    ]);
    assert_eq!(code(&described), Some(0), "{}", said(&described));
    let quiet = service.run(&["api", "update", "notes", "--open"]);
    assert!(!said(&quiet).contains("Advice"), "{}", said(&quiet));
    assert!(!doctor().contains("api notes"), "{}", doctor());
}
