//! `--add-X` and `--remove-X` beside each flag `--X` of `update` that replaces a list.

use std::thread;

use serde_json::{Value, json};

use super::{ADD_WEB, code, said};
use crate::harness::process::{Service, shown};

fn run(service: &Service, line: &str) -> std::process::Output {
    service.run(&line.split(' ').collect::<Vec<_>>())
}

fn done(service: &Service, line: &str) -> String {
    let output = run(service, line);
    assert_eq!(code(&output), Some(0), "{line}: {}", said(&output));
    shown(&output)
}

fn document(service: &Service, line: &str) -> Value {
    service.json(&format!("{line} --json").split(' ').collect::<Vec<_>>())
}

fn refused(service: &Service, line: &str, code: i32, why: &str) {
    let output = run(service, line);
    assert_eq!(output.status.code(), Some(code), "{line}: {}", said(&output));
    assert!(said(&output).contains(why), "{line}: {}", said(&output));
}

/// Bob is in the group staff.
fn service() -> Service {
    let service = Service::new();
    for group in ["staff", "admins", "board"] {
        done(&service, &format!("group add {group}"));
    }
    done(&service, "user add bob@example.com --no-password --group staff");
    service
}

#[test]
fn a_group_is_added_and_removed_and_the_others_stay() {
    let service = service();
    let _running = service.serve();
    let text = done(
        &service,
        "user update bob@example.com --add-group admins --add-group staff",
    );
    assert!(text.ends_with("\ngroups: + admins\n"), "{text}");
    let text = done(&service, "user update bob@example.com --group board");
    assert!(text.ends_with("\ngroups: + board, - admins, - staff\n"), "{text}");
    let line = "user update bob@example.com --add-group STAFF --remove-group Board --add-claim nickname=Bob";
    let updated = document(&service, line);
    assert_eq!(updated["groups"], json!(["staff"]));
    assert_eq!(
        updated["changes"],
        json!([
            {"field": "groups", "added": ["staff"], "removed": ["board"]},
            {"field": "claims", "added": ["nickname=Bob"], "removed": []},
        ])
    );
    let again = document(&service, "user update bob@example.com --add-group staff");
    assert_eq!(
        (&again["groups"], &again["changes"]),
        (&json!(["staff"]), &json!([]))
    );
    let left = document(
        &service,
        "user update bob@example.com --remove-group staff --remove-claim nickname",
    );
    assert_eq!((&left["groups"], &left["claims"]), (&json!([]), &json!({})));
}

#[test]
fn what_is_not_in_the_list_is_not_removed_and_nothing_is_changed() {
    let service = service();
    let update = "user update bob@example.com --add-group board";
    refused(
        &service,
        &format!("{update} --remove-group admins"),
        1,
        "groups: \"admins\" is not in the list, which has staff",
    );
    refused(
        &service,
        &format!("{update} --add-group nobody"),
        1,
        "there is no group nobody",
    );
    refused(
        &service,
        &format!("{update} --remove-claim nickname"),
        1,
        "the user has no claim nickname",
    );
    let why = "--group replaces the list: name all its members, or use only --add-group and --remove-group";
    refused(&service, &format!("{update} --group admins"), 2, why);
    refused(
        &service,
        "user update bob@example.com --group admins --remove-group staff",
        2,
        why,
    );
    let user = document(&service, "user show bob@example.com");
    assert_eq!(user["groups"], json!(["staff"]));
}

#[test]
fn changes_of_one_list_at_the_same_time_all_count() {
    let service = service();
    let _running = service.serve();
    thread::scope(|scope| {
        for group in ["admins", "board"] {
            let service = &service;
            scope.spawn(move || {
                done(
                    service,
                    &format!("user update bob@example.com --add-group {group}"),
                )
            });
        }
    });
    let user = document(&service, "user show bob@example.com");
    assert_eq!(user["groups"], json!(["admins", "board", "staff"]));
}

#[test]
fn the_lists_of_a_client_an_api_and_a_scope_value_change_by_member() {
    let service = service();
    assert_eq!(code(&service.run(&ADD_WEB)), Some(0));
    done(
        &service,
        "api add notes --identifier https://api.example/notes --scope notes.read=Read --scope notes.write --role editor",
    );
    let update = "client update web --add-redirect-uri https://app.example/two --add-api notes --add-grant device_code \
                  --remove-grant refresh_token --remove-scope phone --add-scope groups";
    let client = document(&service, update);
    assert_eq!(
        client["redirect_uris"],
        json!(["https://app.example/cb", "https://app.example/two"])
    );
    assert_eq!(
        client["grant_types"],
        json!(["authorization_code", "device_code"])
    );
    assert_eq!(
        client["scope"],
        "openid profile email address offline_access groups"
    );
    assert_eq!(client["apis"], json!(["notes"]));
    let api = document(
        &service,
        "api update notes --add-scope notes.write=Write --add-role-group editor=staff --add-role-group editor=board",
    );
    assert_eq!(
        api["scope_texts"],
        json!({"notes.read": "Read", "notes.write": "Write"})
    );
    assert_eq!(api["role_groups"], json!({"editor": ["board", "staff"]}));
    let api = document(
        &service,
        "api update notes --remove-scope notes.read --remove-role-group editor=staff",
    );
    assert_eq!(
        (&api["scope"], &api["scope_texts"]),
        (&json!("notes.write"), &json!({"notes.write": "Write"}))
    );
    assert_eq!(
        api["changes"],
        json!([
            {"field": "scope", "added": [], "removed": ["notes.read"]},
            {"field": "scope_texts", "added": [], "removed": ["notes.read=Read"]},
            {"field": "role_groups", "added": [], "removed": ["editor=staff"]},
        ])
    );
    let api = document(&service, "api update notes --remove-role editor");
    assert_eq!((&api["roles"], &api["role_groups"]), (&json!([]), &json!({})));
    done(&service, "scope add badge --claim badge --claim desk");
    let scope = document(
        &service,
        "scope update badge --add-claim floor --remove-claim desk",
    );
    assert_eq!(scope["claims"], json!(["badge", "floor"]));
    refused(
        &service,
        "client update web --remove-api mail",
        1,
        "apis: \"mail\" is not in the list, which has notes",
    );
    refused(
        &service,
        "client update web --add-grant password",
        2,
        "unknown grant type password",
    );
    refused(
        &service,
        "client update web --no-grants --add-grant device_code",
        1,
        "the list is replaced",
    );
}

/// An empty list of domains lets the addresses of all domains in, and an empty list of audiences is the client id.
#[test]
fn the_last_member_of_a_restriction_is_not_removed_alone() {
    let service = Service::new();
    done(
        &service,
        "provider add corp --issuer https://corp.example --exchange --client-id us --auth-method private_key_jwt --domain a.example",
    );
    refused(
        &service,
        "provider update corp --remove-domain a.example",
        1,
        "an empty list restricts nothing",
    );
    let provider = document(
        &service,
        "provider update corp --remove-domain a.example --add-domain b.example --add-audience https://api.example --add-claim nickname=login",
    );
    assert_eq!(provider["domains"], json!(["b.example"]));
    assert_eq!(provider["audiences"], json!(["us", "https://api.example"]));
    assert_eq!(provider["claims"], json!({"nickname": "login"}));
    refused(
        &service,
        "provider update corp --remove-claim nickname=name",
        1,
        "\"nickname=name\" is not in the list",
    );
    let provider = document(
        &service,
        "provider update corp --remove-claim nickname --remove-alg RS256 --add-alg es256",
    );
    assert_eq!(
        (&provider["claims"], &provider["algs"]),
        (&json!({}), &json!(["ES256"]))
    );
    done(&service, "provider update corp --domain ");
}
