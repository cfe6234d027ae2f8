//! Groups of users, and the roles that they have in APIs: RFC 9068 section 2.2.3.1.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use idsvc::admin::api::{AddApi, UpdateApi};
use idsvc::admin::group::{AddGroup, RemoveGroup};
use idsvc::admin::user;
use idsvc::oauth::client::{Client, GrantType};
use idsvc::oauth::{ApiFields, Group, GroupFields, GroupMetadata};
use idsvc::store::engine::Tx;
use idsvc::store::tables::GROUPS;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::harness::process::{self, Service, said};
use crate::harness::{Audit, Person, RelyingParty, Reply, START, Server, Tokens};

const NOTES: &str = "https://api.example/notes";
const FILES: &str = "https://api.example/files";

async fn add_group(server: &Server, name: &str) {
    let request = AddGroup {
        name: name.to_owned(),
        fields: GroupFields::default(),
    };
    server.admin().call(request).await.unwrap();
}

/// Puts the user into these groups, and out of all others.
async fn put_into(server: &Server, person: &Person, groups: &[&str]) {
    let request = user::UpdateUser {
        who: person.sub(),
        email: None,
        account_id: None,
        reset_failed_passwords: false,
        keep_factors: false,
        fields: user::UserFields {
            groups: Some(groups.iter().map(|&name| name.to_owned()).collect()),
            ..user::UserFields::default()
        },
    };
    server.admin().call(request).await.unwrap();
}

/// An API with the roles `editor`, for the group `staff`, and `owner`, for the group `admins`.
async fn add_api(server: &Server, id: &str, identifier: &str) {
    let request = AddApi {
        id: id.to_owned(),
        identifier: identifier.to_owned(),
        fields: ApiFields {
            scope: Some(vec![format!("{id}.read")]),
            roles: Some(vec!["owner".to_owned(), "editor".to_owned()]),
            role_groups: Some(
                [
                    ("editor".to_owned(), vec!["staff".to_owned(), "admins".to_owned()]),
                    ("owner".to_owned(), vec!["admins".to_owned()]),
                ]
                .into(),
            ),
            ..ApiFields::default()
        },
    };
    server.admin().call(request).await.unwrap();
}

/// A client that may ask for groups, and a user in the groups `staff` and `all`. Tokens list the groups in the other
/// order.
async fn scene() -> (Server, RelyingParty, Person) {
    let server = Server::start().await;
    for name in ["staff", "all", "admins"] {
        add_group(&server, name).await;
    }
    let acme = server
        .client_with("acme", |client| {
            client.scope = client.scope.clone().with("groups");
        })
        .await;
    let alice = server.user("alice").await;
    put_into(&server, &alice, &["staff", "all"]).await;
    (server, acme, alice)
}

/// The claim in the ID token, at `UserInfo` and in the access token.
async fn claims_of(acme: &RelyingParty, tokens: &Tokens, name: &str) -> [Value; 3] {
    let id = acme.verify(tokens.id_token()).await.claims[name].clone();
    let userinfo = acme.userinfo(tokens.access_token()).await.json()[name].clone();
    [id, userinfo, tokens.access().claims[name].clone()]
}

async fn granted(acme: &RelyingParty, alice: &Person, scope: &str) -> Tokens {
    let request = acme.request().with("scope", scope);
    acme.tokens_for(&alice.browser(), &request).await
}

#[tokio::test]
async fn the_scope_groups_names_the_groups_in_both_tokens_and_at_userinfo() {
    let (server, acme, alice) = scene().await;
    let tokens = granted(&acme, &alice, "openid groups").await;
    let named = claims_of(&acme, &tokens, "groups").await;
    assert_eq!(named, [(); 3].map(|()| json!(["all", "staff"])));
    put_into(&server, &alice, &["admins"]).await;
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    let named = claims_of(&acme, &tokens, "groups").await;
    assert_eq!(named, [(); 3].map(|()| json!(["admins"])));
    let narrow = acme.refresh(tokens.refresh_token()).with("scope", "openid");
    let named = claims_of(&acme, &narrow.await.tokens(), "groups").await;
    assert_eq!(named, [(); 3].map(|()| Value::Null));
}

#[tokio::test]
async fn a_client_that_may_not_ask_for_groups_learns_none() {
    let (server, acme, alice) = scene().await;
    let tokens = granted(&acme, &alice, "openid profile").await;
    assert_eq!(
        claims_of(&acme, &tokens, "groups").await,
        [(); 3].map(|()| Value::Null)
    );
    let other = server.client("other").await;
    let request = other.request().with("scope", "openid groups");
    let request = request.with(
        "claims",
        r#"{"userinfo":{"groups":null},"id_token":{"groups":null}}"#,
    );
    let tokens = other.tokens_for(&alice.browser(), &request).await;
    assert!(!tokens.scope().contains(&"groups"));
    assert_eq!(
        claims_of(&other, &tokens, "groups").await,
        [(); 3].map(|()| Value::Null)
    );
}

#[tokio::test]
async fn a_user_in_no_group_has_an_empty_list() {
    let (server, acme, alice) = scene().await;
    put_into(&server, &alice, &[""]).await;
    let tokens = granted(&acme, &alice, "openid groups").await;
    assert_eq!(
        claims_of(&acme, &tokens, "groups").await,
        [(); 3].map(|()| json!([]))
    );
}

#[tokio::test]
async fn nobody_is_in_a_group_that_was_removed_even_if_it_is_added_again() {
    let (server, acme, alice) = scene().await;
    let tokens = granted(&acme, &alice, "openid groups").await;
    server
        .admin()
        .call(RemoveGroup {
            name: "staff".to_owned(),
        })
        .await
        .unwrap();
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(
        claims_of(&acme, &tokens, "groups").await,
        [(); 3].map(|()| json!(["all"]))
    );
    add_group(&server, "staff").await;
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(
        claims_of(&acme, &tokens, "groups").await,
        [(); 3].map(|()| json!(["all"]))
    );
    let shown = server
        .admin()
        .call(user::ShowUser { who: alice.sub() })
        .await
        .unwrap();
    assert!(shown.groups.iter().eq(["all"]));
}

/// An earlier release may have stored a claim of this name.
#[tokio::test]
async fn a_claim_of_the_users_record_is_never_taken_for_groups_or_roles() {
    let (server, acme, _) = scene().await;
    add_api(&server, "notes", NOTES).await;
    server
        .change_client(&acme, |client| client.apis = ["notes".to_owned()].into())
        .await;
    let mallory = server
        .user_with("mallory", |user| {
            for name in ["groups", "roles"] {
                user.claims.insert(name.to_owned(), json!(["admins", "owner"]));
            }
        })
        .await;
    let tokens = granted(&acme, &mallory, "openid groups notes.read").await;
    assert_eq!(
        claims_of(&acme, &tokens, "groups").await,
        [(); 3].map(|()| json!([]))
    );
    let roles = claims_of(&acme, &tokens, "roles").await;
    assert_eq!(roles, [Value::Null, Value::Null, json!([])]);
}

/// A client that may name both APIs, and that may act for itself.
fn at_both(client: &mut Client) {
    client.apis = ["notes".to_owned(), "files".to_owned()].into();
    client.grant_types.insert(GrantType::ClientCredentials);
    client.max_scope = Some("notes.read".parse().unwrap());
}

#[tokio::test]
async fn roles_are_in_an_access_token_for_one_api_and_nowhere_else() {
    let (server, acme, alice) = scene().await;
    add_api(&server, "notes", NOTES).await;
    add_api(&server, "files", FILES).await;
    server.change_client(&acme, at_both).await;
    put_into(&server, &alice, &["admins"]).await;
    let tokens = granted(&acme, &alice, "openid notes.read").await;
    let roles = claims_of(&acme, &tokens, "roles").await;
    assert_eq!(roles, [Value::Null, Value::Null, json!(["editor", "owner"])]);
    // The roles say nothing of the groups.
    assert_eq!(tokens.access().claims.get("groups"), None);
    put_into(&server, &alice, &["staff"]).await;
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(tokens.access().claims["roles"], json!(["editor"]));
    put_into(&server, &alice, &["all"]).await;
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(tokens.access().claims["roles"], json!([]));
    put_into(&server, &alice, &["admins"]).await;

    for (scope, has_roles) in [
        ("openid", false),
        ("openid notes.read files.read", false),
        ("openid files.read", true),
    ] {
        let claims = granted(&acme, &alice, scope).await.access().claims;
        assert_eq!(claims.get("roles").is_some(), has_roles, "{scope} {claims}");
    }
    let both = granted(&acme, &alice, "openid notes.read files.read").await;
    let one = acme.refresh(both.refresh_token()).with("resource", NOTES);
    assert_eq!(
        one.await.tokens().access().claims["roles"],
        json!(["editor", "owner"])
    );
    let own = acme
        .post("/oauth2/token")
        .with("grant_type", "client_credentials")
        .with("scope", "notes.read")
        .await
        .tokens();
    assert_eq!(own.access().claims["aud"], NOTES);
    assert_eq!(own.access().claims.get("roles"), None);
}

/// The words of a command line. No word has a space.
fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Runs a command that is refused.
fn refused(service: &Service, line: &str) -> String {
    let output = service.run(&words(line));
    assert_eq!(output.status.code(), Some(1), "{line}");
    said(&output)
}

#[test]
fn what_is_wrong_with_groups_and_roles_is_refused_by_name() {
    let service = Service::with_client();
    for line in [
        "group add staff",
        "group add admins",
        "user add alice@example.com --no-password --group staff",
        "api add notes --identifier https://api.example/notes --role editor --role-group editor=staff",
    ] {
        service.json(&[words(line), vec!["--json"]].concat());
    }
    for (line, why) in [
        ("group add staff", "there is a group staff already"),
        ("group show nobody", "there is no group nobody"),
        (
            "user update alice@example.com --group stuff",
            "there is no group stuff",
        ),
        (
            "user update alice@example.com --claim groups=x",
            "claim groups belongs to the service",
        ),
        (
            "user update alice@example.com --claim roles=x",
            "claim roles belongs to the service",
        ),
        (
            "api update notes --role-group editor=stuff",
            "there is no group stuff",
        ),
        (
            "api update notes --role-group owner=staff",
            "role \"owner\" has groups, but is not a role of the API",
        ),
        (
            "group remove staff --yes",
            "the users of group staff have roles in api notes",
        ),
        (
            "api update notes --scope groups",
            "scope groups has a meaning of its own",
        ),
    ] {
        let said = refused(&service, line);
        assert!(said.contains(why), "{line}: {said}");
    }
    let in_group = |group: &str| {
        let users = service.json(&["user", "list", "--group", group, "--json"]);
        users.as_array().unwrap().len()
    };
    assert_eq!((in_group("staff"), in_group("admins")), (1, 0));
    let line = "user update alice@example.com --group admins --group staff --json";
    assert_eq!(service.json(&words(line))["groups"], json!(["admins", "staff"]));
    let shown = service.json(&["user", "update", "alice@example.com", "--group", "", "--json"]);
    assert_eq!(shown["groups"], json!([]));
    let shown = service.json(&words("api update notes --role-group editor= --json"));
    assert_eq!(shown["role_groups"], json!({}));
    service.json(&words("user update alice@example.com --group staff --json"));
    service.json(&words("group remove staff --yes --json"));
    let exported = process::shown(&service.run(&["export"]));
    fs::write(service.folder.path().join("state.toml"), exported).unwrap();
    let applied = process::shown(&service.run(&["apply", "-f", "state.toml"]));
    assert!(applied.contains("0 added, 0 changed"), "{applied}");
}

const STATE: &str = r#"
[[user]]
email = "alice@example.com"
groups = ["staff"]
claims = { badge = 7, tags = ["a", "b"] }

[[group]]
name = "staff"
text = "People who work here"

[[scope]]
name = "badge"
claims = ["badge", "tags"]

[[api]]
id = "notes"
identifier = "https://api.example/notes"
roles = ["editor"]
role_groups = { editor = ["staff"] }
"#;

fn apply(service: &Service, state: &str, flags: &[&str]) -> (Option<i32>, String) {
    fs::write(service.folder.path().join("state.toml"), state).unwrap();
    let output = service.run(&[&["apply", "-f", "state.toml"], flags].concat());
    (output.status.code(), said(&output))
}

#[test]
fn a_file_declares_groups_and_who_is_in_them() {
    let service = Service::new();
    let (code, said) = apply(&service, STATE, &[]);
    assert_eq!((code, said.contains("warning")), (Some(0), false), "{said}");
    let (code, said) = apply(&service, STATE, &["--dry-run"]);
    assert_eq!((code, said.contains("group")), (Some(0), false), "{said}");
    let alice = service.json(&["user", "show", "alice@example.com", "--json"]);
    assert_eq!(alice["groups"], json!(["staff"]));
    assert_eq!(alice["claims"], json!({"badge": 7, "tags": ["a", "b"]}));
    let exported = service.run(&["export"]);
    let exported = String::from_utf8(exported.stdout).unwrap();
    let elsewhere = Service::empty();
    let (code, said) = apply(&elsewhere, &exported, &["--prune", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let again = elsewhere.run(&["export"]);
    assert_eq!(String::from_utf8(again.stdout).unwrap(), exported);
    for (from, to, why) in [
        (
            "[\"staff\"]\nclaims",
            "[\"stuff\"]\nclaims",
            "line 2: user alice@example.com: there is no group stuff",
        ),
        (
            "editor = [\"staff\"]",
            "editor = [\"stuff\"]",
            "api notes: there is no group stuff",
        ),
        (
            "name = \"badge\"",
            "name = \"email\"",
            "scope email: the value email has a meaning of its own",
        ),
        (
            "\"tags\"]\n\n",
            "\"iss\"]\n\n",
            "claim \"iss\" is not a claim of a user",
        ),
    ] {
        let (code, said) = apply(&service, &STATE.replace(from, to), &[]);
        assert_eq!(code, Some(1), "{to}");
        assert!(said.contains(why), "{to}: {said}");
    }
    // A group that is no longer declared has no users.
    let without =
        "[[group]]\nname = \"all\"\n[[api]]\nid = \"notes\"\nidentifier = \"https://api.example/notes\"\n";
    let (code, said) = apply(&service, without, &["--prune", "--yes"]);
    assert_eq!(code, Some(0), "{said}");
    let alice = service.json(&["user", "show", "alice@example.com", "--json"]);
    assert_eq!(alice["groups"], json!([]));
}

/// Users follow everything else. They are checked before its groups are stored or removed.
#[test]
fn users_are_checked_against_the_groups_that_the_file_leaves() {
    let service = Service::with_client();
    service.json(&words("group add old --json"));
    let mut state = String::new();
    for number in 0..150 {
        let _ = write!(
            state,
            "[[user]]\nemail = \"u{number}@example.com\"\ngroups = [\"staff\"]\n"
        );
    }
    let (code, said) = apply(&service, &state, &[]);
    assert_eq!(code, Some(1));
    assert!(said.contains("there is no group staff"), "{said}");
    state.push_str("[[group]]\nname = \"staff\"\n");
    let with_old = format!("{state}[[user]]\nemail = \"last@example.com\"\ngroups = [\"old\"]\n");
    let (code, said) = apply(&service, &with_old, &["--prune", "--yes"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("line 453: user last@example.com: there is no group old"),
        "{said}"
    );
    let groups = service.json(&words("group list --json"));
    assert_eq!(groups.as_array().unwrap().len(), 1, "nothing was changed");
    let (code, said) = apply(&service, &state, &["--prune", "--dry-run"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(service.json(&words("user list --json")), json!([]));
    let (code, said) = apply(&service, &state, &[]);
    assert_eq!(code, Some(0), "{said}");
    let users = service.json(&["user", "list", "--group", "staff", "--json"]);
    assert_eq!(users.as_array().unwrap().len(), 150);
}

#[test]
fn an_import_puts_users_into_groups_that_exist() {
    let service = Service::with_client();
    service.json(&words("group add staff --json"));
    let import = |line: &str| {
        fs::write(service.folder.path().join("users.jsonl"), line).unwrap();
        let output = service.run(&["user", "import", "users.jsonl"]);
        (output.status.code(), said(&output))
    };
    let (code, said) = import("{\"email\": \"bob@example.com\", \"groups\": [\"stuff\"]}\n");
    assert_eq!(code, Some(1));
    assert!(said.contains("line 1: there is no group stuff"), "{said}");
    let (code, said) = import("{\"email\": \"bob@example.com\", \"groups\": [\"staff\"]}\n");
    assert_eq!(code, Some(0), "{said}");
    let bob = service.json(&words("user show bob@example.com --json"));
    assert_eq!(bob["groups"], json!(["staff"]));
}

/// An update adds a group to the role `owner`. The next refresh has the role.
#[tokio::test]
async fn an_operator_gives_a_role_to_one_more_group() {
    let (server, acme, alice) = scene().await;
    add_api(&server, "notes", NOTES).await;
    server.change_client(&acme, at_both).await;
    let tokens = granted(&acme, &alice, "openid notes.read").await;
    assert_eq!(tokens.access().claims["roles"], json!(["editor"]));
    let request = UpdateApi {
        id: "notes".to_owned(),
        fields: ApiFields {
            role_groups: Some([("owner".to_owned(), vec!["all".to_owned()])].into()),
            ..ApiFields::default()
        },
    };
    server.admin().call(request).await.unwrap();
    let tokens = acme.refresh(tokens.refresh_token()).await.tokens();
    assert_eq!(tokens.access().claims["roles"], json!(["editor", "owner"]));
}

/// A client that may ask for groups, and a user in `count` groups with names of 30 letters.
async fn in_many_groups(server: &Server, count: u128) -> (RelyingParty, Person) {
    let groups: Vec<_> = (0..count)
        .map(|number| Group {
            name: format!("{number:030}"),
            uuid: Uuid::from_u128(number),
            metadata: GroupMetadata::default(),
            created_at: START,
            updated_at: START,
        })
        .collect();
    let core = &server.app.core;
    let ids = groups.iter().map(|group| group.uuid).collect();
    let put = move |tx: &mut dyn Tx| {
        let mut groups = groups.iter();
        groups.try_for_each(|group| GROUPS.put(tx, &group.name, group))
    };
    core.store.write("test_groups", put).await.unwrap();
    core.reload_catalog().await.unwrap();
    let alice = server.user("alice").await;
    server.change_user(&alice, |user| user.groups = ids).await;
    let acme = server
        .client_with("acme", |client| {
            client.scope = client.scope.clone().with("groups");
        })
        .await;
    (acme, alice)
}

/// The endpoints must be able to read each token that is issued.
#[tokio::test]
async fn a_token_with_many_groups_is_accepted_by_every_endpoint() {
    let server = Server::start().await;
    let (acme, alice) = in_many_groups(&server, 200).await;
    let browser = alice.browser();
    let request = acme.request().with("scope", "openid groups");
    let tokens = acme.tokens_for(&browser, &request).await;
    assert!(tokens.access_token().len() > 9_000 && tokens.id_token().len() > 9_000);
    let named = claims_of(&acme, &tokens, "groups").await;
    assert!(named.iter().all(|names| names.as_array().unwrap().len() == 200));
    let introspected = acme
        .post("/oauth2/introspect")
        .with("token", tokens.access_token())
        .await;
    assert_eq!(introspected.json()["active"], true);
    let silent = request
        .with("prompt", "none")
        .with("id_token_hint", tokens.id_token());
    browser.authorize(&silent).await.callback().code();
    let posted = server
        .post("/oauth2/logout")
        .with("id_token_hint", tokens.id_token())
        .await;
    let signed_out = browser.visit(posted.header("location").unwrap()).await;
    assert_eq!(signed_out.page(), "/logged-out", "{}", signed_out.text());
}

#[tokio::test]
async fn a_token_that_the_endpoints_would_refuse_is_not_issued() {
    for count in [350, 500] {
        let server = Server::start().await;
        let (acme, alice) = in_many_groups(&server, count).await;
        let browser = alice.browser();
        acme.tokens_for(&browser, &acme.request()).await;
        let request = acme.request().with("scope", "openid groups");
        let audit = Audit::listen();
        let refused = browser.authorize(&request).await.callback();
        assert_eq!(refused.get("error").unwrap(), "invalid_request");
        let description = refused.get("error_description").unwrap();
        assert!(
            description.contains("the longest claim is groups"),
            "{description}"
        );
        let events = audit.take(&["token_too_long"]);
        assert_eq!(events[0]["claim"], "groups");
        assert_eq!(events[0]["user"], alice.sub());
        granted(&acme, &alice, "openid").await;
        put_into(&server, &alice, &[]).await;
        granted(&acme, &alice, "openid groups").await;
    }
}

/// The user comes into the groups after the sign-in.
#[tokio::test]
async fn a_refusal_for_length_uses_up_neither_a_code_nor_a_refresh_token() {
    let server = Server::start().await;
    let (acme, alice) = in_many_groups(&server, 500).await;
    let many: BTreeSet<Uuid> = (0..500).map(Uuid::from_u128).collect();
    let put_into = async |groups: &BTreeSet<Uuid>| {
        server
            .change_user(&alice, |user| user.groups.clone_from(groups))
            .await;
    };
    let assert_too_long = |refused: &Reply| {
        assert_eq!((refused.status, &*refused.error()), (400, "invalid_request"));
    };
    let none = BTreeSet::new();
    put_into(&none).await;
    let request = acme.request().with("scope", "openid groups");
    let code = alice.browser().authorize(&request).await.through().await.code();
    put_into(&many).await;
    for _ in 0..2 {
        assert_too_long(&acme.redeem(&code).await);
    }
    put_into(&none).await;
    let tokens = acme.redeem(&code).await.tokens();
    put_into(&many).await;
    for _ in 0..2 {
        assert_too_long(&acme.refresh(tokens.refresh_token()).await);
    }
    server.advance(60 * 60);
    put_into(&none).await;
    acme.refresh(tokens.refresh_token()).await.tokens();
}
