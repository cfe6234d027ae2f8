//! Who may use a client: the commands that say it, declared state, and lists of many users.

use std::fs;

use idsvc::admin::client::{ListAccess, UpdateClient};
use idsvc::admin::group::AddGroup;
use idsvc::admin::user::ShowAccess;
use idsvc::identity::User;
use idsvc::oauth::ClientFields;
use idsvc::oauth::group::GroupFields;
use idsvc::store::tables::USERS;
use serde_json::{Value, json};

use crate::harness::process::{Service, said, shown};
use crate::harness::{START, Server};

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

fn refused(service: &Service, line: &str) -> String {
    let output = service.run(&words(line));
    assert_eq!(output.status.code(), Some(1), "{line}: {}", said(&output));
    said(&output)
}

/// The client `web` for the groups `staff` and `admins`. Alice is in both, Bob in neither.
fn service() -> Service {
    let service = Service::new();
    for line in [
        "group add staff --json",
        "group add admins --json",
        "client add web --name Payroll --redirect-uri https://app.example/cb --allow-group staff --allow-group ADMINS --json",
        "client add open --redirect-uri https://open.example/cb --json",
        "client add api --no-grants --json",
        "user add alice@example.com --no-password --group staff --group admins --json",
        "user add bob@example.com --no-password --json",
    ] {
        service.json(&words(line));
    }
    service
}

#[test]
fn commands_say_who_may_use_a_client_and_what_a_user_may_use() {
    let service = service();
    let client = service.json(&words("client show web --json"));
    assert_eq!(client["allowed_groups"], json!(["admins", "staff"]));
    let access = service.json(&words("client access web --json"));
    assert_eq!(
        (&access["client_id"], &access["everybody"], &access["groups"]),
        (&json!("web"), &json!(false), &json!(["admins", "staff"]))
    );
    let alice = service.json(&words("user show alice@example.com --json"));
    assert_eq!(
        access["users"],
        json!([{
            "uuid": alice["uuid"],
            "account_id": "alice@example.com",
            "allowed": true,
            "through": ["admins", "staff"],
            "last_used": null,
        }])
    );
    let open = service.json(&words("client access open --json"));
    assert_eq!((&open["everybody"], &open["groups"]), (&json!(true), &json!([])));
    assert_eq!(open["users"].as_array().unwrap().len(), 2);

    let bob = service.json(&words("user access bob@example.com --json"));
    let client = |id: &str, name: &str, reasons: Value| {
        json!({
            "client_id": id,
            "name": name,
            "allowed": reasons == json!([]),
            "reasons": reasons,
            "last_used": null,
        })
    };
    assert_eq!(bob["user"]["account_id"], "bob@example.com");
    assert_eq!(
        bob["clients"],
        json!([
            client("open", "open", json!([])),
            client("web", "Payroll", json!(["not_in_group"]))
        ])
    );
    service.json(&words("client disable open --json"));
    service.json(&words("user disable bob@example.com --json"));
    let bob = service.json(&words("user access bob@example.com --json"));
    assert_eq!(
        bob["clients"][0]["reasons"],
        json!(["client_disabled", "disabled"])
    );
    assert_eq!(bob["clients"][1]["reasons"], json!(["disabled", "not_in_group"]));

    let text = shown(&service.run(&words("client access web")));
    assert!(
        text.contains("admins, staff") && text.contains("alice@example.com"),
        "{text}"
    );
    let text = shown(&service.run(&words("user access bob@example.com")));
    assert!(text.contains("disabled, not_in_group"), "{text}");
    let text = shown(&service.run(&words("client show web")));
    assert!(
        text.contains("allowed_groups") && text.contains("admins, staff"),
        "{text}"
    );
    let doctor = service.run(&words("doctor --json"));
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(!text.contains("nobody gets a token"), "{text}");
    service.json(&words("user disable alice@example.com --json"));
    let doctor = service.run(&words("doctor --json"));
    let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(text.contains("nobody gets a token"), "{text}");
    for flag in ["WHO --add-group GROUP", "web --add-allow-group GROUP"] {
        assert!(text.contains(flag), "{text}");
    }
    assert!(refused(&service, "client access nobody").contains("there is no client nobody"));
    assert!(refused(&service, "user access nobody").contains("there is no user nobody"));
}

#[test]
fn a_group_that_a_client_names_stays() {
    let service = service();
    let said = refused(&service, "group remove staff --yes");
    assert!(said.contains("group staff is named by client web"), "{said}");
    assert!(
        said.contains("idsvc client update ID --remove-allow-group GROUP"),
        "{said}"
    );
    let said = refused(&service, "client update web --allow-group stuff");
    assert!(said.contains("there is no group stuff"), "{said}");
    assert!(said.contains("idsvc group list shows all"), "{said}");
    let said = refused(&service, "client add kiosk --grant anonymous --allow-group staff");
    assert!(said.contains("anonymous users are in no group"), "{said}");
    assert!(said.contains("--allow-group"), "{said}");
    let said = refused(&service, "client update open --groups-claim allowed");
    assert!(said.contains("change --groups-claim or --allow-group"), "{said}");
    service.json(&words("client update web --allow-group admins --json"));
    service.json(&words("group remove staff --yes --json"));
    let open = service.json(&["client", "update", "web", "--allow-group", "", "--json"]);
    assert_eq!(open.get("allowed_groups"), None);
    service.json(&words("group remove admins --yes --json"));
}

const STATE: &str = r#"
[[group]]
name = "Staff"

[[client]]
client_id = "payroll"
public = true
redirect_uris = ["https://payroll.example/cb"]
allowed_groups = ["STAFF"]
groups_claim = "allowed"
"#;

#[test]
fn declared_state_names_groups_that_exist_after_it() {
    let service = service();
    let apply = |state: &str, flags: &[&str]| {
        fs::write(service.folder.path().join("state.toml"), state).unwrap();
        let output = service.run(&[&["apply", "-f", "state.toml"], flags].concat());
        (
            output.status.code(),
            said(&output) + &String::from_utf8_lossy(&output.stdout),
        )
    };
    let other = STATE.replace("\"Staff\"", "\"others\"");
    // The group `staff` is there, and would be found by its other form.
    let (code, said) = apply(&other.replace("STAFF", "stuff"), &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("there is no group stuff"), "{said}");
    let (code, said) = apply(&other, &["--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = apply(&other, &["--prune", "--yes"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("there is no group STAFF"), "{said}");
    let groups_only = "[[group]]\nname = \"others\"\n";
    let (code, said) = apply(groups_only, &["--prune", "--yes"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("client web names it"), "{said}");
    let (code, said) = apply(&other, &[]);
    assert_eq!(code, Some(0), "{said}");
    let payroll = service.json(&words("client show payroll --json"));
    assert_eq!(
        (&payroll["allowed_groups"], &payroll["groups_claim"]),
        (&json!(["staff"]), &json!("allowed"))
    );
    let (code, said) = apply(&other, &[]);
    assert_eq!(code, Some(0));
    assert!(said.contains("0 added, 0 changed"), "{said}");
    let exported = shown(&service.run(&["export"]));
    assert!(exported.contains("allowed_groups"), "{exported}");
    let (code, said) = apply(&exported, &["--prune", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("0 added, 0 changed, 0 removed"), "{said}");
    let copy = Service::new();
    fs::write(copy.folder.path().join("state.toml"), &exported).unwrap();
    shown(&copy.run(&["apply", "-f", "state.toml"]));
    assert_eq!(
        copy.json(&words("client show payroll --json"))["allowed_groups"],
        json!(["staff"])
    );
}

/// A number of users who are in the group `staff` if their number is even.
async fn many_users(server: &Server, count: u128) {
    let staff = server.app.core.catalog().groups().id_of("staff").unwrap();
    let user = |number: u128| {
        let uuid = uuid::Uuid::from_u128(number << 64);
        let mut user = User::local(uuid, &format!("u{number}@example.com"), "org", START);
        if number.is_multiple_of(2) {
            user.groups.insert(staff);
        }
        user
    };
    let users: Vec<_> = (1..=count).map(user).collect();
    let written = server.app.core.store.write("test", move |tx| {
        users.iter().try_for_each(|user| USERS.put(tx, &user.uuid, user))
    });
    written.await.unwrap();
}

/// The lines of the list.
fn list(server: &Server, client_id: &str, after: Option<uuid::Uuid>, limit: Option<u64>) -> Vec<Value> {
    let request = ListAccess {
        client_id: client_id.to_owned(),
        after,
        limit,
    };
    let mut sink = Vec::new();
    server.admin().stream(request, &mut sink).unwrap();
    let text = String::from_utf8(sink).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter_map(|line| line.get("record").cloned()).collect()
}

#[tokio::test]
async fn a_list_of_many_users_goes_on_page_by_page_and_knows_the_last_use() {
    let server = Server::start().await;
    let group = AddGroup {
        name: "staff".to_owned(),
        fields: GroupFields::default(),
    };
    server.admin().call(group).await.unwrap();
    let payroll = server.client("payroll").await;
    let web = server.client("web").await;
    many_users(&server, 501).await;
    // Alice has used it before it was for the group, and Bob has used another one.
    let alice = server.user("alice").await;
    let bob = server.user("bob").await;
    let tokens = payroll.tokens(&alice.browser()).await;
    web.tokens(&bob.browser()).await;
    server.advance(100);
    payroll.refresh(tokens.refresh_token()).await.tokens();
    let update = UpdateClient {
        client_id: "payroll".to_owned(),
        no_secret: false,
        fields: ClientFields {
            allowed_groups: Some(vec!["staff".to_owned()]),
            ..ClientFields::default()
        },
    };
    server.admin().call(update).await.unwrap();

    let all = list(&server, "payroll", None, None);
    assert_eq!(all.len(), 251);
    let used: Vec<_> = all
        .iter()
        .filter(|user| user["last_used"] != json!(null))
        .collect();
    assert_eq!(
        used,
        [&json!({
            "uuid": alice.sub(),
            "account_id": "alice@example.com",
            "allowed": false,
            "through": [],
            "last_used": "2027-01-15",
        })]
    );
    let allowed = all.iter().filter(|user| user["allowed"] == json!(true));
    assert!(allowed.clone().all(|user| user["through"] == json!(["staff"])));
    assert_eq!(allowed.count(), 250);
    let first = list(&server, "payroll", None, Some(7));
    assert_eq!(first, all[..7]);
    let last = first[6]["uuid"].as_str().unwrap().parse().unwrap();
    assert_eq!(list(&server, "payroll", Some(last), None), all[7..]);
    assert_eq!(list(&server, "web", None, None).len(), 503, "everybody may");
    assert_eq!(list(&server, "nobody", None, None), [] as [Value; 0]);

    let who = alice.sub();
    let access = server.admin().call(ShowAccess { who }).await.unwrap();
    let access = serde_json::to_value(access).unwrap();
    assert_eq!(access["clients"][0]["client_id"], "payroll");
    assert_eq!(access["clients"][0]["reasons"], json!(["not_in_group"]));
    assert_eq!(access["clients"][0]["last_used"], "2027-01-15");
    assert_eq!(access["clients"][1]["last_used"], json!(null));
}
